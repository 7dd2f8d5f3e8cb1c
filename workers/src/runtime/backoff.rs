use std::time::Duration;

/// How long to wait after failure number `failures` (from 1): doubling from `base` up to `max`, of which `jitter` (0 to 1)
/// chooses a place in the upper half, so that those who failed together do not come back together.
pub(super) fn pause(base: Duration, max: Duration, failures: u32, jitter: f64) -> Duration {
    let doubled = base.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(max);
    doubled.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// The same with jitter drawn.
pub(super) fn draw(base: Duration, max: Duration, failures: u32) -> Duration {
    pause(base, max, failures, rand::random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_jitter_only_shortens() {
        let s = Duration::from_secs;
        let full: Vec<_> = (1..=8).map(|n| pause(s(1), s(60), n, 1.0).as_secs()).collect();
        assert_eq!(full, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(s(1), s(60), u32::MAX, 1.0), s(60));
        assert_eq!(pause(s(1), s(60), 2, 0.0), s(1));
    }
}
