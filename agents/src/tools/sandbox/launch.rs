//! The launcher's side: takes everything away from this process that the tool is not to have, then becomes the tool.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope, path_beneath_rules,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};

use super::os::{self, Resource};
use super::{CONFINEMENT, Confinement};

/// First argument of a program that is to be a launcher; the tool and its arguments follow.
pub const LAUNCH: &str = "__sandbox";
/// Exit code of a launcher that could not become the tool.
pub const FAILED: u8 = 126;
/// Begins what it says then.
pub(super) const SAYS: &str = "sandbox:";
/// Says that the launcher was given a library path that the tool is not to have.
pub(super) const LIBRARIES: &str = "RIVERRUN_SANDBOX_LIBRARIES";

/// Newest rules that are asked for; an older kernel enforces what it knows of them.
const RULES: ABI = ABI::V6;

/// What programs of the system need to start. Not all of `/etc`, which has secrets.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/ssl",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/proc/self",
    "/sys/devices/system/cpu",
];

/// What the kernel of this machine enforces on command tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// Files, and TCP where the kernel is 6.7 or newer.
    pub landlock: bool,
    /// Sockets, other process groups, and what administers the machine.
    pub seccomp: bool,
}

impl std::fmt::Display for Support {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |has: bool| if has { "enforced" } else { "not in this kernel" };
        write!(f, "limits enforced, landlock {}, seccomp {}", word(self.landlock), word(self.seccomp))
    }
}

/// Asks the kernel, restricting nothing.
pub fn support() -> Support {
    let landlock = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .is_ok();
    let seccomp = Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() && filter(false).is_ok();
    Support { landlock, seccomp }
}

/// Becomes the tool that `arguments` name, confined as the environment says. Returns only with the reason why not.
pub fn launch(arguments: impl Iterator<Item = OsString>) -> String {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{SAYS} {what}: {error}");
    let mut arguments = arguments;
    let Some(program) = arguments.next() else { return format!("{SAYS} no program is named") };
    let text = std::env::var(CONFINEMENT).unwrap_or_default();
    let confinement: Confinement = match serde_json::from_str(&text) {
        Ok(confinement) => confinement,
        Err(error) => return failed("what the program may use can't be read", &error),
    };
    let mut command = Command::new(&program);
    command.args(arguments).env_remove(CONFINEMENT);
    if std::env::var_os(LIBRARIES).is_some() {
        command.env_remove(LIBRARIES).env_remove("LD_LIBRARY_PATH");
    }
    // Everything that takes memory comes before the limit on memory.
    let filter = match filter(confinement.network) {
        Ok(filter) => filter,
        Err(error) => return failed("seccomp", &error),
    };
    if let Err(error) = restrict_files(&confinement) {
        return failed("landlock", &error);
    }
    if let Err(error) = limit(&confinement) {
        return failed("limits", &error);
    }
    match seccompiler::apply_filter(&filter) {
        Ok(()) | Err(seccompiler::Error::Seccomp(_)) => {} // a kernel without it: `support` says so
        Err(error) => return failed("seccomp", &error),
    }
    failed(&program.to_string_lossy(), &command.exec())
}

fn limit(confinement: &Confinement) -> std::io::Result<()> {
    os::end_with_parent()?;
    os::set_limit(Resource::Core, 0)?;
    os::set_limit(Resource::Cpu, confinement.cpu_seconds)?;
    os::set_limit(Resource::FileSize, confinement.file_bytes)?;
    os::set_limit(Resource::OpenFiles, confinement.open_files)?;
    os::set_limit(Resource::Processes, own_tasks().saturating_add(confinement.processes))?;
    match confinement.memory_bytes {
        0 => Ok(()),
        bytes => os::set_limit(Resource::Memory, bytes),
    }
}

/// Tasks that the user has already: the kernel's limit counts them all.
fn own_tasks() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(own) = std::fs::metadata("/proc/self").map(|found| found.uid()) else { return 0 };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = processes.filter(|entry| {
        entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
            && entry.metadata().is_ok_and(|found| found.uid() == own)
    });
    ours.map(|entry| std::fs::read_dir(entry.path().join("task")).map_or(1, |tasks| tasks.count() as u64)).sum()
}

fn restrict_files(confinement: &Confinement) -> Result<RulesetStatus, landlock::RulesetError> {
    let (read, all) = (AccessFs::from_read(RULES), AccessFs::from_all(RULES));
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(RULES))?;
    if !confinement.network {
        rules = rules.handle_access(AccessNet::from_all(RULES))?;
    }
    let status = rules
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(&confinement.read, read))?
        .add_rules(path_beneath_rules(["/dev/null"], AccessFs::WriteFile | AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(&confinement.write, all & !AccessFs::Execute))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// Answers "not permitted" to what leads out of the group or of the machine; everything else is as usual.
fn filter(network: bool) -> Result<BpfProgram, String> {
    let mut calls = vec![
        libc::SYS_setsid,
        libc::SYS_setpgid,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_sethostname,
        // Operations on its rings pass no filter.
        libc::SYS_io_uring_setup,
    ];
    if !network {
        calls.push(libc::SYS_socket);
    }
    let rules: BTreeMap<i64, Vec<SeccompRule>> = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).map_err(|error| error.to_string())?;
    filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())
}
