//! The calls to the operating system for which the standard library has nothing: a process's own limits, ending with its
//! parent, and ending a group of processes.

// The calls take plain numbers, or a pointer to a value on this stack; no memory of ours is handed over.
#![allow(unsafe_code)]

use std::io;

/// What a limit is set on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Resource {
    /// Address space, in bytes.
    Memory,
    /// Processor time, in seconds.
    Cpu,
    /// Largest file that is written, in bytes.
    FileSize,
    /// Files open at once.
    OpenFiles,
    /// Processes and threads of the user.
    Processes,
    /// Memory image after a crash, in bytes.
    Core,
}

/// Sets a limit of this process that it can't raise again. One that is lower already stays.
pub(super) fn set_limit(resource: Resource, value: u64) -> io::Result<()> {
    let number = match resource {
        Resource::Memory => libc::RLIMIT_AS,
        Resource::Cpu => libc::RLIMIT_CPU,
        Resource::FileSize => libc::RLIMIT_FSIZE,
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::Processes => libc::RLIMIT_NPROC,
        Resource::Core => libc::RLIMIT_CORE,
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid `rlimit` for the whole call, which writes it.
    if unsafe { libc::getrlimit(number, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let value = value.min(limit.rlim_max);
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` is a valid `rlimit` for the whole call, which only reads it.
    match unsafe { libc::setrlimit(number, &limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has this process, and the program that it becomes, killed when its parent is gone.
pub(super) fn end_with_parent() -> io::Result<()> {
    // SAFETY: takes numbers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends every process of a group at once. One that has none is done.
pub(super) fn kill_group(leader: u32) {
    let Ok(leader) = i32::try_from(leader) else { return };
    // 0 and 1 would mean our own group, and everyone.
    if leader > 1 {
        // SAFETY: takes two numbers.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}
