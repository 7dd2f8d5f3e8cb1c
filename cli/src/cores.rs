//! How many threads multiply matrices where candle's own operations do.

// Candle takes the number from the environment alone, and settings are read when there may be threads already.
#![allow(unsafe_code, clippy::disallowed_methods)]

use std::thread::available_parallelism;

/// What candle and rayon read.
const COUNT: &str = "RAYON_NUM_THREADS";
/// Ours for models.
const OWN: &str = "RIVERRUN_MODEL_THREADS";

/// Says it once for the whole process. Candle would read `/proc/cpuinfo` before every product, which takes as long as a small product does
/// on two cores, and a hundred times as long on hundreds of them.
///
/// To be called before there is a second thread.
pub fn name() {
    if std::env::var_os(COUNT).is_none() {
        let count = wanted(std::env::var(OWN).ok().as_deref(), available_parallelism().map_or(1, usize::from));
        // SAFETY: nobody else reads or writes the environment, since no thread was started yet.
        unsafe { std::env::set_var(COUNT, count.to_string()) };
    }
}

/// What our setting says, where it is one; it is refused later, where it is none.
fn wanted(setting: Option<&str>, cores: usize) -> usize {
    setting.and_then(|setting| setting.parse().ok()).filter(|count| *count > 0).unwrap_or(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_setting_when_threads_are_named_then_it_counts_and_else_there_is_one_for_each_core() {
        assert_eq!(wanted(Some("3"), 8), 3);
        for none in [None, Some(""), Some("0"), Some("many"), Some("-1")] {
            assert_eq!(wanted(none, 8), 8, "{none:?}");
        }
    }
}
