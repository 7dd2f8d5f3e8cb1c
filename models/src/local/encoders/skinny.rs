//! Products of few rows with a large matrix, which take as long as the matrix takes to come from memory.
//!
//! Kernels for products of any shape read the matrix in tiles, each a few numbers of many rows, and some of it more than once. Here each
//! thread has some of the columns and reads them once, a few rows at a time from their beginning to their end, which is what processors
//! fetch ahead; what the products have come to stays in the cache nearest to the core.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::kernels::{LANES, add, widest};
use super::matrix::Former;

/// Rows up to which this is the faster way.
pub(super) const MAX_ROWS: usize = 32;
/// Columns that a thread takes at a time: with as many rows, their sums fit into 32 KiB.
const MAX_COLUMNS: usize = 256;
/// Columns are taken in pairs of the widest registers.
const UNIT: usize = 2 * LANES;
/// Rows of the matrix that are read side by side: with their pairs of registers and the sums they fit into sixteen.
const DEPTH: usize = 4;

/// Whether a matrix has as many columns as are needed.
pub(super) fn takes(rows: usize, columns: usize) -> bool {
    (1..=MAX_ROWS).contains(&rows) && columns.is_multiple_of(UNIT)
}

/// Puts the products of `rows`, of `depth` numbers each, with `matrix` (`depth` rows of `columns` numbers) into `out`, where [`takes`] says so.
pub(super) fn multiply(out: &mut [f32], former: Former, rows: &[f32], matrix: &[f32], depth: usize, columns: usize) {
    let count = rows.len() / depth;
    let width = width(columns, rayon::current_num_threads());
    let blocks: Vec<Vec<f32>> = (0..columns)
        .into_par_iter()
        .step_by(width)
        .map(|first| {
            let width = width.min(columns - first);
            let mut sums = vec![0.0; count * width];
            let block = Block { sums: &mut sums, width, rows, depth, matrix: &matrix[first..], columns };
            widest().dispatch(block);
            sums
        })
        .collect();
    for (index, block) in blocks.iter().enumerate() {
        let first = index * width;
        let width = width.min(columns - first);
        for (out, sums) in out.chunks_exact_mut(columns).zip(block.chunks_exact(width)) {
            let out = &mut out[first..first + width];
            match former {
                Former::Replaced => out.copy_from_slice(sums),
                Former::Kept => add(out, sums),
            }
        }
    }
}

/// Columns of a block: as many for each thread, as far as that goes.
fn width(columns: usize, threads: usize) -> usize {
    let threads = threads.max(1);
    let blocks = threads * columns.div_ceil(threads * MAX_COLUMNS);
    columns.div_ceil(blocks).next_multiple_of(UNIT)
}

/// The products of all rows with some columns.
struct Block<'a> {
    sums: &'a mut [f32],
    width: usize,
    rows: &'a [f32],
    depth: usize,
    /// From its first column on.
    matrix: &'a [f32],
    columns: usize,
}

impl WithSimd for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let whole = self.depth / DEPTH * DEPTH;
        for first in (0..whole).step_by(DEPTH) {
            self.add::<S, DEPTH>(simd, first);
        }
        for first in whole..self.depth {
            self.add::<S, 1>(simd, first);
        }
    }
}

impl Block<'_> {
    /// Adds what `ROWS` rows of the matrix contribute.
    #[inline(always)]
    fn add<S: Simd, const ROWS: usize>(&mut self, simd: S, first: usize) {
        let Block { sums, width, rows, depth, matrix, columns } = self;
        let read: [&[S::f32s]; ROWS] =
            std::array::from_fn(|row| S::as_simd_f32s(&matrix[(first + row) * *columns..][..*width]).0);
        for column in (0..read[0].len()).step_by(2) {
            let pairs: [[S::f32s; 2]; ROWS] = std::array::from_fn(|row| [read[row][column], read[row][column + 1]]);
            for (sums, factors) in sums.chunks_exact_mut(*width).zip(rows.chunks_exact(*depth)) {
                let sums = &mut S::as_mut_simd_f32s(sums).0[column..column + 2];
                let [mut left, mut right] = [sums[0], sums[1]];
                for (pair, factor) in pairs.iter().zip(&factors[first..first + ROWS]) {
                    let factor = simd.splat_f32s(*factor);
                    left = simd.mul_add_e_f32s(factor, pair[0], left);
                    right = simd.mul_add_e_f32s(factor, pair[1], right);
                }
                sums[0] = left;
                sums[1] = right;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_few_rows_when_they_are_multiplied_then_the_product_is_that_of_the_definition() {
        // Whole numbers, whose sums are exact in any order.
        let numbers =
            |count: usize, step: usize| -> Vec<f32> { (0..count).map(|n| (n * step % 9) as f32 - 4.0).collect() };
        for (count, depth, columns) in [(1, 1, 32), (1, 7, 64), (3, 384, 1152), (18, 384, 96), (MAX_ROWS, 65, 800)] {
            assert!(takes(count, columns));
            let (rows, matrix) = (numbers(count * depth, 5), numbers(depth * columns, 7));
            let mut out = vec![f32::NAN; count * columns];
            multiply(&mut out, Former::Replaced, &rows, &matrix, depth, columns);
            for (at, found) in out.iter().enumerate() {
                let (row, column) = (at / columns, at % columns);
                let expected: f32 = (0..depth).map(|n| rows[row * depth + n] * matrix[n * columns + column]).sum();
                assert_eq!(*found, expected, "{count} × {depth} × {columns} at {row}, {column}");
            }
            let once = out.clone();
            multiply(&mut out, Former::Kept, &rows, &matrix, depth, columns);
            assert!(out.iter().zip(&once).all(|(twice, once)| *twice == 2.0 * once));
        }
    }

    #[test]
    fn given_columns_and_threads_when_they_are_shared_out_then_blocks_are_small_and_each_thread_has_one() {
        for threads in [1, 2, 3, 8, 64] {
            for columns in [32, 384, 1152, 1536, 3072, 800] {
                let width = width(columns, threads);
                assert!(width.is_multiple_of(UNIT) && width <= MAX_COLUMNS + UNIT, "{threads} {columns}: {width}");
                let most = columns.div_ceil(threads).next_multiple_of(UNIT);
                assert!(columns.div_ceil(width) >= threads.min(columns / most), "{threads} {columns}: {width}");
            }
        }
        assert_eq!(width(1152, 2), 192);
        assert!(!takes(0, 32) && !takes(MAX_ROWS + 1, 32) && !takes(1, 33));
    }
}
