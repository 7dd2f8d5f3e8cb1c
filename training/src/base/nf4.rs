//! Matrices in four bits: NormalFloat with double quantization (Dettmers and others, "QLoRA", 2023), as bitsandbytes has it. A block
//! of numbers is divided by its largest one, and each is rounded to one of sixteen levels that normal numbers fall on about equally
//! often. The largest ones are kept in eight bits, less their mean, by the dynamic levels of Dettmers and others ("8-bit
//! optimizers via block-wise quantization", 2022). Reading them back takes nothing but operations that every device has.

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

/// Numbers that share a largest one.
const BLOCK: usize = 64;
/// Blocks whose largest ones share one of their own.
const GROUP: usize = 256;
/// Blocks that one thread takes at a time.
const BLOCKS_OF_A_THREAD: usize = 128;

/// The levels of NF4, appendix E of the paper.
static LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// 256 levels in seven decades, each with twice as many as the one below it; sorted.
fn dynamic_levels() -> Vec<f32> {
    let decade = |number: i32| {
        let (count, size) = (1i32 << number, 10f64.powi(number - 6));
        (0..count).map(move |at| size * (0.1 + 0.9 * (f64::from(at) + 0.5) / f64::from(count)))
    };
    let magnitudes = (0..7).flat_map(decade);
    let mut levels: Vec<f32> = magnitudes.flat_map(|level| [level as f32, -level as f32]).chain([0.0, 1.0]).collect();
    levels.sort_unstable_by(f32::total_cmp);
    levels
}

/// The place of the level that is nearest to `number`; levels are sorted.
fn nearest(levels: &[f32], number: f32) -> u8 {
    let above = levels.partition_point(|level| *level < number).min(levels.len() - 1);
    let below = above.saturating_sub(1);
    let place = if number - levels[below] < levels[above] - number { below } else { above };
    place as u8 // there are 256 at most
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |most, number| number.abs().max(most))
}

/// 1 over a number; 0 for 0, whose block has nothing but zeros.
fn inverse(number: f32) -> f32 {
    if number > 0.0 { number.recip() } else { 0.0 }
}

/// What codes mean, on a device. All matrices of a model share it.
#[derive(Debug, Clone)]
pub(crate) struct Levels {
    /// For each byte the two numbers that it stands for, the first in its upper half.
    pairs: Tensor,
    dynamic: Tensor,
}

impl Levels {
    pub(crate) fn on(device: &Device) -> candle_core::Result<Self> {
        let pairs: Vec<f32> =
            LEVELS.iter().flat_map(|one| LEVELS.iter().flat_map(move |other| [*one, *other])).collect();
        let dynamic = dynamic_levels();
        let count = dynamic.len();
        Ok(Self {
            pairs: Tensor::from_vec(pairs, (256, 2), device)?,
            dynamic: Tensor::from_vec(dynamic, count, device)?,
        })
    }
}

/// A matrix in four bits.
#[derive(Debug, Clone)]
pub(crate) struct Nf4 {
    shape: [usize; 2],
    levels: Levels,
    /// Two numbers a byte, row by row; filled up to whole blocks.
    codes: Tensor,
    /// Of each block the place of its largest number among the dynamic levels; filled up to whole groups.
    constants: Tensor,
    /// Of each group what its constants are multiplied with, `[groups, 1]`.
    scales: Tensor,
    /// What the constants have in common.
    mean: f64,
}

/// The numbers of a quantized matrix, before they go to a device.
struct Codes {
    codes: Vec<u8>,
    constants: Vec<u8>,
    scales: Vec<f32>,
    mean: f32,
}

fn encode(numbers: &[f32]) -> Codes {
    let mut codes = vec![0u8; numbers.len().div_ceil(BLOCK) * BLOCK / 2];
    let mut absolute = vec![0f32; numbers.len().div_ceil(BLOCK)];
    let blocks = codes.par_chunks_mut(BLOCK / 2).zip(absolute.par_iter_mut()).zip(numbers.par_chunks(BLOCK));
    blocks.with_min_len(BLOCKS_OF_A_THREAD).for_each(|((codes, absolute), block)| {
        *absolute = largest(block);
        let inverse = inverse(*absolute);
        let code = |number: Option<&f32>| nearest(&LEVELS, number.map_or(0.0, |number| number * inverse));
        for (at, byte) in codes.iter_mut().enumerate() {
            *byte = (code(block.get(2 * at)) << 4) | code(block.get(2 * at + 1));
        }
    });
    let mean = absolute.iter().map(|number| f64::from(*number)).sum::<f64>() / absolute.len().max(1) as f64;
    let mean = mean as f32;
    absolute.iter_mut().for_each(|number| *number -= mean);
    let scales: Vec<f32> = absolute.chunks(GROUP).map(largest).collect();
    let dynamic = dynamic_levels();
    let zero = nearest(&dynamic, 0.0);
    let mut constants = vec![zero; scales.len() * GROUP];
    for ((constants, group), scale) in constants.chunks_mut(GROUP).zip(absolute.chunks(GROUP)).zip(&scales) {
        for (constant, number) in constants.iter_mut().zip(group) {
            *constant = nearest(&dynamic, number * inverse(*scale));
        }
    }
    Codes { codes, constants, scales, mean }
}

/// The rows of a table at these places. candle takes the highest number of an index's type for no place at all, and 255 is one.
fn looked_up(table: &Tensor, places: &Tensor) -> candle_core::Result<Tensor> {
    table.index_select(&places.to_dtype(DType::U32)?, 0)
}

impl Nf4 {
    /// Quantizes a matrix; what comes of it lies on the device of `levels`.
    pub(crate) fn of(matrix: &Tensor, levels: &Levels) -> candle_core::Result<Self> {
        let (rows, columns) = matrix.dims2()?;
        let Codes { codes, constants, scales, mean } = encode(&matrix.flatten_all()?.to_vec1::<f32>()?);
        let device = levels.pairs.device();
        let (bytes, blocks, groups) = (codes.len(), constants.len(), scales.len());
        Ok(Self {
            shape: [rows, columns],
            levels: levels.clone(),
            codes: Tensor::from_vec(codes, bytes, device)?,
            constants: Tensor::from_vec(constants, blocks, device)?,
            scales: Tensor::from_vec(scales, (groups, 1), device)?,
            mean: f64::from(mean),
        })
    }

    pub(crate) fn dims(&self) -> &[usize] {
        &self.shape
    }

    /// The matrix as 32-bit floats, on its device.
    pub(crate) fn floats(&self) -> candle_core::Result<Tensor> {
        let [rows, columns] = self.shape;
        let blocks = (rows * columns).div_ceil(BLOCK);
        let groups = self.scales.elem_count();
        let constants = looked_up(&self.levels.dynamic, &self.constants)?.reshape((groups, GROUP))?;
        let constants = constants.broadcast_mul(&self.scales)?.flatten_all()?.narrow(0, 0, blocks)?;
        let constants = (constants + self.mean)?.reshape((blocks, 1))?;
        let numbers = looked_up(&self.levels.pairs, &self.codes)?.reshape((blocks, BLOCK))?;
        let numbers = numbers.broadcast_mul(&constants)?.flatten_all()?;
        let count = rows * columns;
        // A copy of what is not all: candle quantizes the whole of a storage, whatever part of it a tensor is.
        let numbers =
            if count == numbers.elem_count() { numbers } else { numbers.narrow(0, 0, count)?.force_contiguous()? };
        numbers.reshape((rows, columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// About normal: the sum of twelve uniform numbers.
    fn normal(count: usize, seed: u64) -> Vec<f32> {
        let mut rng = Rng::of(seed, &[]);
        (0..count).map(|_| (0..12).map(|_| rng.unit()).sum::<f32>() - 6.0).collect()
    }

    fn there_and_back(numbers: &[f32], shape: (usize, usize)) -> (Nf4, Vec<f32>) {
        let matrix = Tensor::from_slice(numbers, shape, &Device::Cpu).unwrap();
        let quantized = Nf4::of(&matrix, &Levels::on(&Device::Cpu).unwrap()).unwrap();
        let back = quantized.floats().unwrap();
        assert_eq!(back.dims(), quantized.dims());
        (quantized, back.flatten_all().unwrap().to_vec1::<f32>().unwrap())
    }

    /// Half the distance of the levels around a number between -1 and 1.
    fn half_gap(number: f32) -> f32 {
        let above = LEVELS.iter().position(|level| *level >= number).unwrap_or(15).max(1);
        (LEVELS[above] - LEVELS[above - 1]) / 2.0
    }

    #[test]
    fn given_normal_numbers_then_none_is_off_by_more_than_half_a_gap_of_the_levels_and_their_mean_error_is_known() {
        let numbers = normal(512 * 128, 1);
        let (_, back) = there_and_back(&numbers, (512, 128));
        let most: Vec<f32> = numbers.chunks(BLOCK).map(largest).collect();
        let mean = most.iter().sum::<f32>() / most.len() as f32;
        let spread = most.iter().fold(0f32, |worst, number| worst.max((number - mean).abs()));
        // A largest number is off by half a gap of the dynamic levels at most, times the spread of its group.
        let of_constants = 0.007_04 * spread;
        for (at, (number, back)) in numbers.iter().zip(&back).enumerate() {
            let most = most[at / BLOCK];
            let bound = half_gap(number / most) * most + of_constants + 1e-5;
            assert!((number - back).abs() <= bound, "{at}: {number} became {back}");
        }
        // What bitsandbytes measures for blocks of 64 standard normal numbers; FP4 has 0.0967.
        let error: f32 = numbers.iter().zip(&back).map(|(one, other)| (one - other).abs()).sum();
        let error = error / numbers.len() as f32;
        assert!((error - 0.0728).abs() < 0.001, "{error}");
    }

    #[test]
    fn given_a_large_matrix_then_a_number_takes_as_many_bits_as_the_paper_says() {
        let (quantized, _) = there_and_back(&normal(512 * 128, 2), (512, 128));
        let bytes = quantized.codes.elem_count() + quantized.constants.elem_count() + 4 * quantized.scales.elem_count();
        let bits = 8.0 * bytes as f64 / f64::from(512 * 128);
        assert!((bits - 4.127).abs() < 0.001, "{bits}");
    }

    #[test]
    fn given_zeros_outliers_and_sizes_that_fill_no_block_then_they_come_back_too() {
        let (_, zeros) = there_and_back(&[0.0; 70], (7, 10));
        assert_eq!(zeros, [0.0; 70]);
        let mut numbers = vec![0.0; 70];
        (numbers[3], numbers[66]) = (8.0, -2.0);
        let (_, back) = there_and_back(&numbers, (10, 7));
        // 5 is the mean of the largest ones, and 3 how far they are from it: the levels are 1 and -0.993.
        assert!((back[3] - 8.0).abs() < 1e-5 && (back[66] + 2.0).abs() < 0.022, "{back:?}");
        assert!(back.iter().enumerate().all(|(at, number)| *number == 0.0 || at == 3 || at == 66), "{back:?}");
    }

    #[test]
    fn given_the_dynamic_levels_then_they_are_those_of_the_reference() {
        let levels = dynamic_levels();
        assert_eq!((levels.len(), levels[255], levels[127]), (256, 1.0, 0.0));
        assert!((levels[0] + 0.992_968_75).abs() < 1e-6 && (levels[254] - 0.992_968_75).abs() < 1e-6);
        assert!((levels[128] - 5.5e-7).abs() < 1e-12, "the lowest decade has one level");
        assert!(levels.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
