//! Memory that only the start of a server needed.
//!
//! A start runs through most of the program once: the loader looks symbols up, stores are opened, routes are made. Each page that it
//! reads stays mapped, its neighbours with it, until the system is short of memory, and is counted as this process's. What of them a
//! server goes on using comes back with the first instruction that needs it, from the system's file cache and without a read from the
//! disk. So they are given back once, and what is counted from then on is what is in use.

// `madvise` and the loader's list of objects have no safe form; each call says why it is sound.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::time::Duration;
use std::{fs, io, slice};

/// What a start still does behind the moment that it is ready is done by then.
const SETTLING: Duration = Duration::from_secs(2);

/// Gives back what the start needed, a little later. For processes that stay.
pub fn give_back_soon() {
    tokio::spawn(async {
        tokio::time::sleep(SETTLING).await;
        match tokio::task::spawn_blocking(give_back).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the memory of the start is kept"),
            Err(error) => tracing::debug!(%error, "giving back the memory of the start broke off"),
        }
    });
}

/// Unmaps the pages of program and libraries that can't have been written, and gives back what the allocator holds free.
fn give_back() -> io::Result<()> {
    if is_traced(&fs::read_to_string("/proc/self/status")?) {
        // A debugger writes its breakpoints into these pages.
        return Ok(());
    }
    // SAFETY: the callback has the type that is asked for, reads what it is handed only while it runs, and never unwinds.
    unsafe { libc::dl_iterate_phdr(Some(unmap_object), std::ptr::null_mut()) };
    give_back_free_heap();
    Ok(())
}

#[cfg(target_env = "gnu")]
fn give_back_free_heap() {
    // SAFETY: any thread may call it at any time; it touches only what the allocator holds free.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators give back by themselves.
#[cfg(not(target_env = "gnu"))]
fn give_back_free_heap() {}

/// Whether a debugger holds the process whose `status` this is.
fn is_traced(status: &str) -> bool {
    status.lines().filter_map(|line| line.strip_prefix("TracerPid:")).any(|pid| pid.trim() != "0")
}

/// One object of the loader's list. While this runs, the loader unloads none.
unsafe extern "C" fn unmap_object(object: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    // SAFETY: the loader hands a valid object to this call.
    let object = unsafe { &*object };
    if object.dlpi_phdr.is_null() || object.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the loader's names end with a zero and live as long as the object.
    let name = unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes();
    // The program itself has no name; what has one without a path is the system's and in no file.
    if !name.is_empty() && !name.contains(&b'/') {
        return 0;
    }
    // SAFETY: `dlpi_phnum` headers stand there for as long as the object is loaded.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    for pages in never_written(object.dlpi_addr as usize, headers, page_size()) {
        // SAFETY: whole pages of a segment that the loader maps from the object's file and lets nobody write: what is read from them
        // next is what is in the file, which is what was in them.
        unsafe { libc::madvise(pages.start as *mut c_void, pages.len(), libc::MADV_DONTNEED) };
        // Refused where an operator locked memory; it stays then.
    }
    0
}

fn page_size() -> usize {
    // SAFETY: only reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(usize::MAX) // of a size that is not known no page is whole
}

/// Addresses of the whole pages in the segments of an object, loaded at `base`, that are mapped without being writable. Not those that
/// the loader writes before it protects them: these are in a writable segment.
fn never_written(base: usize, headers: &[libc::Elf64_Phdr], page: usize) -> impl Iterator<Item = Range<usize>> {
    headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0).filter_map(
        move |header| {
            let start = base.checked_add(header.p_vaddr as usize)?;
            let end = start.checked_add(header.p_filesz as usize)?;
            let pages = start.checked_next_multiple_of(page)?..end - end % page;
            (!pages.is_empty()).then_some(pages)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(kind: u32, flags: u32, address: u64, bytes: u64) -> libc::Elf64_Phdr {
        libc::Elf64_Phdr {
            p_type: kind,
            p_flags: flags,
            p_offset: 0,
            p_vaddr: address,
            p_paddr: 0,
            p_filesz: bytes,
            p_memsz: bytes,
            p_align: 0x1000,
        }
    }

    #[test]
    fn given_segments_when_it_is_asked_which_were_never_written_then_whole_pages_of_those_that_nobody_may_write_are() {
        const READ: u32 = 4;
        const RUN: u32 = 1;
        let headers = [
            segment(libc::PT_LOAD, READ, 0, 0x2800),
            segment(libc::PT_LOAD, READ | RUN, 0x3100, 0x2000),
            segment(libc::PT_LOAD, READ | libc::PF_W, 0x6000, 0x4000),
            segment(libc::PT_LOAD, READ, 0xa100, 0x800),
            segment(libc::PT_DYNAMIC, READ, 0x6000, 0x1000),
        ];
        let found: Vec<_> = never_written(0x10_0000, &headers, 0x1000).collect();
        assert_eq!(found, [0x10_0000..0x10_2000, 0x10_4000..0x10_5000]);
        assert_eq!(never_written(0x10_0000, &headers, usize::MAX).count(), 0);
    }

    #[test]
    fn given_a_status_then_a_debugger_is_seen() {
        assert!(is_traced("Name:\triverrun\nTracerPid:\t41\nUid:\t0\n"));
        assert!(!is_traced("Name:\triverrun\nTracerPid:\t0\nUid:\t0\n"));
    }

    #[test]
    fn given_this_process_when_its_pages_are_given_back_then_it_goes_on_with_all_that_it_had() {
        let kept: Vec<u8> = (0..100_000u32).map(|number| number.to_le_bytes()[0]).collect();
        let text = || (format!("{:?}", libc::PT_LOAD), "text of the program".to_uppercase());
        let before = text();
        give_back().unwrap();
        assert_eq!(text(), before);
        assert!(kept.iter().enumerate().all(|(at, byte)| at.to_le_bytes()[0] == *byte));
    }
}
