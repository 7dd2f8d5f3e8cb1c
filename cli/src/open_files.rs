//! How many files this process may have open: sockets are files, too.

// The calls take a number and a pointer to a value on this stack.
#![allow(unsafe_code)]

use std::io;

/// As many as the limits on connections, streams and segment files of the defaults need together, and as much again.
const WANTED: u64 = 16_384;

/// Raises the limit to what the defaults need, as far as the system lets us: 1,024, which most shells give, is less than the
/// connections that the broker takes, and one that runs out of files refuses records. Returns the limit now.
pub fn raise() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid `rlimit` for the whole call, which only writes it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let Some(raised) = raised(limit.rlim_cur, limit.rlim_max) else { return Ok(limit.rlim_cur) };
    limit.rlim_cur = raised;
    // SAFETY: `limit` is a valid `rlimit` for the whole call, which only reads it.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(raised),
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
    fn given_this_process_when_its_limit_is_raised_then_that_is_the_limit_and_stays_it() {
        let now = raise().unwrap();
        assert!(now > 0);
        assert_eq!(raise().unwrap(), now);
    }
}
