//! Numbers that look random and are the same for the same seed, on every machine and in every version: SplitMix64
//! (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). Resuming and repeating depend on it.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of a seed and of what it is for: streams of different purposes have nothing in common.
    pub(crate) fn of(seed: u64, purpose: &[u64]) -> Self {
        let mut rng = Rng(seed);
        for part in purpose {
            let mixed = rng.draw();
            rng = Rng(mixed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        rng
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..1`.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.draw() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform in `0..below`; the bias of the remainder is below 2⁻³² for all lengths that occur.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        (self.draw() % below.max(1) as u64) as usize
    }

    /// `0..n` in another order (Fisher and Yates).
    pub(crate) fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_published_seed_then_the_numbers_are_those_of_the_reference() {
        // From the reference implementation with seed 1234567.
        let mut rng = Rng(1_234_567);
        assert_eq!([rng.draw(), rng.draw()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn given_a_seed_when_things_are_ordered_then_each_is_there_once_and_the_order_repeats() {
        for n in [0, 1, 2, 17] {
            let order = Rng::of(7, &[1]).order(n);
            assert_eq!(order, Rng::of(7, &[1]).order(n));
            let mut sorted = order;
            sorted.sort_unstable();
            assert_eq!(sorted, (0..n).collect::<Vec<_>>());
        }
        assert_ne!(Rng::of(7, &[1]).order(50), Rng::of(7, &[2]).order(50));
    }
}
