//! How many files this process may have open: sockets are files, too.

// The calls take a number and a pointer to a value on this stack.
#![allow(unsafe_code)]

use std::io;

use crate::error::{CliError, Exit};

/// What a process that hosts everything has to be allowed. With nothing to do it has 236 open: log, stores, and each worker's clients of
/// the log. Files of partitions, and a few clients, come with the first work.
pub const HOST: u64 = 512;

/// What a worker process has to be allowed: some for its stores, and eight for each worker's clients of the log.
pub fn of_worker(concurrency: u16) -> u64 {
    128 + 8 * u64::from(concurrency)
}

/// As many as the limits on connections, streams and segment files of the defaults need together, and as much again.
const WANTED: u64 = 16_384;

/// Raises the limit to what the defaults need, as far as the system lets us: 1,024, which most shells give, is less than the
/// connections that the broker takes, and one that runs out of files refuses records. Returns the limit now.
pub fn raise() -> io::Result<u64> {
    let mut limit = limit()?;
    let Some(raised) = raised(limit.rlim_cur, limit.rlim_max) else { return Ok(limit.rlim_cur) };
    limit.rlim_cur = raised;
    // SAFETY: `limit` is a valid `rlimit` for the whole call, which only reads it.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(raised),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Refuses what would run out of files in the midst of its start, where each part that fails gives a reason of its own, and some try on.
pub fn require(what: &str, needed: u64) -> Result<(), CliError> {
    // Where the limit can't be told, the start tells.
    limit().map_or(Ok(()), |limit| check(what, needed, limit.rlim_cur))
}

fn check(what: &str, needed: u64, limit: u64) -> Result<(), CliError> {
    if limit >= needed {
        return Ok(());
    }
    let message = format!("{what} needs {needed} open files, and this process may have {limit}");
    Err(CliError::new(Exit::Failed, message).hint(format!(
        "raise the limit, best to {WANTED}: ulimit -n {WANTED} in the shell (ulimit -Hn says how far), LimitNOFILE={WANTED} in a unit of systemd, --ulimit nofile={WANTED} for a container"
    )))
}

fn limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid `rlimit` for the whole call, which only writes it.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The limit to set, if that is more than there is.
fn raised(soft: u64, hard: u64) -> Option<u64> {
    let possible = WANTED.min(hard);
    (possible > soft).then_some(possible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_limits_when_raised_then_only_what_is_missing_and_allowed_is_asked_for() {
        assert_eq!(raised(1_024, 1_048_576), Some(WANTED));
        assert_eq!(raised(1_024, 4_096), Some(4_096));
        assert_eq!(raised(1_024, 1_024), None);
        assert_eq!(raised(65_536, 1_048_576), None, "more was given on purpose");
    }

    #[test]
    fn given_limits_when_something_is_to_start_then_it_is_refused_below_what_it_needs_with_both_numbers_and_the_fix() {
        for (needed, limit, is_refused) in [
            (HOST, 64, true),
            (HOST, 128, true),
            (HOST, HOST - 1, true),
            (HOST, HOST, false),
            (of_worker(1), 64, true),
            (of_worker(1), 128, true),
            (of_worker(1), 256, false),
            (of_worker(64), 256, true),
        ] {
            let found = check("this", needed, limit);
            assert_eq!(found.is_err(), is_refused, "{needed} of {limit}");
            let Err(error) = found else { continue };
            assert!(error.message.contains(&needed.to_string()) && error.message.contains(&limit.to_string()));
            let hint = error.hint.unwrap();
            assert!(hint.contains("ulimit -n") && hint.contains("LimitNOFILE"), "{hint}");
        }
        assert!(HOST < WANTED && of_worker(64) < WANTED);
    }

    #[test]
    fn given_this_process_when_its_limit_is_raised_then_that_is_the_limit_and_stays_it() {
        let now = raise().unwrap();
        assert!(now > 0);
        assert_eq!(raise().unwrap(), now);
    }
}
