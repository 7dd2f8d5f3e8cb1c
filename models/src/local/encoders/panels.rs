//! Products of rows with the weights of a dense layer, which lie in the order in which they are read.
//!
//! As [Goto and van de Geijn, 2008](https://doi.org/10.1145/1356052.1356053) have it: columns are taken in panels as wide as two registers,
//! and rows in tiles whose sums stay in registers. Kernels for any two matrices lay out one of them anew for each product; weights are
//! laid out once. Each number of a product is summed in one order, whatever else is computed with it, so that a text has the same
//! vector alone and among others.

// The hint that numbers are needed soon takes a pointer, in `fetch_ahead` alone.
#![allow(unsafe_code)]

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::kernels::{LANES, add, widest};

/// Columns of a panel: two of the widest registers.
const WIDTH: usize = 2 * LANES;
/// Rows of a tile, at most: their sums take 24 of the 32 registers that processors with the widest have. Where there are 16, shorter
/// ones, half as many rows are taken.
const TALL: usize = 12;
/// Rows that are multiplied with a panel before the next one comes: with 1,536 numbers each they fit into half a mebibyte.
const BLOCK: usize = 8 * TALL;
/// Numbers of each row that are multiplied before the next ones come: so many rows of a panel fit into the cache nearest to the core.
const DEPTH: usize = 384;
/// Up to so many tiles the last one asks for the weights that come next: with more there is time.
const TILES_AHEAD: usize = 3;
/// How many rows of a panel ahead a single tile asks for; the last of several asks for what the first ones read next.
const AHEAD: usize = 32;

/// Who multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The thread that asks.
    Caller,
    /// All threads of the pool that it is one of.
    Pool,
}

/// What becomes of the numbers in the place of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    /// They are lost.
    Replaced,
    /// The product is added to them.
    Kept,
}

/// Weights of a dense layer.
#[derive(Debug)]
pub(super) struct Panels {
    /// Panel by panel, in each row by row of the matrix; the last one is filled up with zeros.
    numbers: Vec<f32>,
    depth: usize,
    columns: usize,
}

impl Panels {
    /// The matrix whose columns are given, each of `depth` numbers.
    ///
    /// # Panics
    /// Where the numbers are no such columns.
    pub(super) fn of_columns(columns: &[f32], depth: usize) -> Self {
        assert!(depth > 0 && columns.len().is_multiple_of(depth), "{} numbers by {depth}", columns.len());
        let count = columns.len() / depth;
        let mut numbers = vec![0.0; count.next_multiple_of(WIDTH) * depth];
        for (index, column) in columns.chunks_exact(depth).enumerate() {
            let panel = &mut numbers[index / WIDTH * WIDTH * depth..];
            for (place, number) in panel.iter_mut().skip(index % WIDTH).step_by(WIDTH).zip(column) {
                *place = *number;
            }
        }
        Panels { numbers, depth, columns: count }
    }

    /// How many numbers a row has that is multiplied.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Puts the products of the rows into `out`, where they follow one another as the rows do.
    ///
    /// # Panics
    /// Where `out` has not as many rows.
    pub(super) fn multiply(&self, out: &mut [f32], former: Former, rows: &[f32], by: By) {
        let count = rows.len() / self.depth;
        assert!(rows.len() == count * self.depth && out.len() == count * self.columns, "{count} rows");
        let panels = self.columns.div_ceil(WIDTH);
        let threads = if by == By::Pool { rayon::current_num_threads() } else { 1 };
        if threads == 1 || count == 0 {
            return self.blocks(out, former, rows, 0..panels);
        }
        if count >= threads * BLOCK / 2 {
            let share = count.div_ceil(threads).next_multiple_of(TALL).min(BLOCK);
            let parts = out.par_chunks_mut(share * self.columns).zip(rows.par_chunks(share * self.depth));
            return parts.for_each(|(out, rows)| self.blocks(out, former, rows, 0..panels));
        }
        // For few rows each thread reads some of the weights.
        let share = panels.div_ceil(threads).max(1);
        let parts = (0..panels).into_par_iter().step_by(share).map(|first| {
            let range = first..(first + share).min(panels);
            let columns = self.within(&range);
            let mut part = vec![0.0; count * columns.len()];
            self.blocks(&mut part, Former::Replaced, rows, range);
            (columns, part)
        });
        for (columns, part) in parts.collect::<Vec<_>>() {
            for (out, part) in out.chunks_exact_mut(self.columns).zip(part.chunks_exact(columns.len())) {
                write(&mut out[columns.clone()], former, part);
            }
        }
    }

    /// The columns of some panels.
    fn within(&self, panels: &Range<usize>) -> Range<usize> {
        panels.start * WIDTH..(panels.end * WIDTH).min(self.columns)
    }

    /// The products with the columns of some panels, which are all that `out` has.
    fn blocks(&self, out: &mut [f32], former: Former, rows: &[f32], panels: Range<usize>) {
        let (columns, panel) = (self.within(&panels).len(), WIDTH * self.depth);
        if columns == 0 {
            return;
        }
        for (out, rows) in out.chunks_mut(BLOCK * columns).zip(rows.chunks(BLOCK * self.depth)) {
            for (first, place) in (0..columns).step_by(WIDTH).zip(panels.clone()) {
                widest().dispatch(Product {
                    out,
                    stride: columns,
                    columns: first..(first + WIDTH).min(columns),
                    former,
                    rows,
                    depth: self.depth,
                    panels: &self.numbers[place * panel..],
                });
            }
        }
    }
}

/// Puts products into their places.
#[inline(always)]
fn write(out: &mut [f32], former: Former, products: &[f32]) {
    match former {
        Former::Replaced => out.copy_from_slice(products),
        Former::Kept => add(out, products),
    }
}

/// Says that these numbers are needed soon.
#[inline(always)]
fn fetch_ahead(numbers: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    for line in numbers.chunks(LANES) {
        // SAFETY: it is a hint, which neither reads nor writes what the program has; the pointer is that of a slice.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}

/// The products of some rows with a panel.
struct Product<'a> {
    out: &'a mut [f32],
    /// How far the rows of `out` lie apart, and which columns of it the products are.
    stride: usize,
    columns: Range<usize>,
    former: Former,
    rows: &'a [f32],
    depth: usize,
    /// The panel, and behind it those that come next.
    panels: &'a [f32],
}

/// Computes the tile of that height. The compiler makes each of its own: only then the sums stay in registers.
macro_rules! tile {
    ($product:ident, $S:ident, $height:expr, $ahead:expr, $arguments:tt, $($rows:literal)+) => {
        match ($height, $ahead) {
            $(($rows, false) => $product.tile::<$S, $rows, false> $arguments,
              ($rows, true) => $product.tile::<$S, $rows, true> $arguments,)+
            (height, _) => unreachable!("a tile of {height} rows"),
        }
    };
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let depth = self.depth;
        let count = self.rows.len() / depth;
        let lanes = size_of::<S::f32s>() / size_of::<f32>();
        let tallest = if lanes == LANES { TALL } else { TALL / 2 };
        // Of about one height: a last one of few rows would read the panel for little.
        let tiles = count.div_ceil(tallest);
        let distance = if tiles == 1 { AHEAD } else { DEPTH.min(depth) };
        for start in (0..depth).step_by(DEPTH) {
            let part = start..(start + DEPTH).min(depth);
            let mut row = 0;
            for tile in 0..tiles {
                let height = (count - row).div_ceil(tiles - tile);
                let ahead = tile + 1 == tiles && tiles <= TILES_AHEAD;
                for from in (0..WIDTH).step_by(2 * lanes) {
                    tile!(self, S, height, ahead, (simd, row, from, &part, distance), 1 2 3 4 5 6 7 8 9 10 11 12);
                }
                row += height;
            }
            self.former = Former::Kept;
        }
    }
}

impl Product<'_> {
    /// Multiplies part of the numbers of `ROWS` rows with two registers of each row of the panel, the first of them at column `from`.
    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize, const FETCHES: bool>(
        &mut self,
        simd: S,
        first: usize,
        from: usize,
        part: &Range<usize>,
        distance: usize,
    ) {
        let depth = self.depth;
        let wide = 2 * size_of::<S::f32s>() / size_of::<f32>();
        let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &self.rows[(first + row) * depth..][part.clone()]);
        let panel = &self.panels[part.start * WIDTH..part.end * WIDTH];
        let next = if FETCHES { self.panels.get((part.start + distance) * WIDTH..).unwrap_or_default() } else { &[] };
        let mut sums = [[simd.splat_f32s(0.0); 2]; ROWS];
        for (at, weights) in panel.chunks_exact(WIDTH).enumerate() {
            if FETCHES && let Some(next) = next.get(at * WIDTH..(at + 1) * WIDTH) {
                fetch_ahead(next);
            }
            let weights = S::as_simd_f32s(&weights[from..from + wide]).0;
            let [left, right] = [weights[0], weights[1]];
            for (sums, row) in sums.iter_mut().zip(&rows) {
                let factor = simd.splat_f32s(row[at]);
                sums[0] = simd.mul_add_e_f32s(factor, left, sums[0]);
                sums[1] = simd.mul_add_e_f32s(factor, right, sums[1]);
            }
        }
        let width = wide.min(self.columns.len().saturating_sub(from));
        for (row, sums) in sums.iter().enumerate().filter(|_| width > 0) {
            let mut products = [0.0; WIDTH];
            S::as_mut_simd_f32s(&mut products[..wide]).0.copy_from_slice(sums);
            let place = (first + row) * self.stride + self.columns.start + from;
            write(&mut self.out[place..place + width], self.former, &products[..width]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cores;
    use super::*;

    /// Whole numbers, whose sums are exact in any order.
    fn whole(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|n| (n * step % 9) as f32 - 4.0).collect()
    }

    #[test]
    fn given_rows_of_many_counts_and_sizes_when_they_are_multiplied_then_the_product_is_that_of_the_definition() {
        let sizes = [(1, 1), (7, 31), (32, 33), (384, 96), (385, 40), (65, 800), (800, 7)];
        for (depth, columns) in sizes {
            let matrix = whole(depth * columns, 7);
            let panels = Panels::of_columns(&matrix, depth);
            assert_eq!(panels.depth(), depth);
            for count in (1..=27).chain([35, 36, 47, 95, 96, 97, 200, 300]) {
                let rows = whole(count * depth, 5);
                for by in [By::Caller, By::Pool] {
                    let mut out = vec![f32::NAN; count * columns];
                    cores::run(|| panels.multiply(&mut out, Former::Replaced, &rows, by));
                    for (at, found) in out.iter().enumerate() {
                        let (row, column) = (&rows[at / columns * depth..][..depth], &matrix[at % columns * depth..]);
                        let expected: f32 = row.iter().zip(column).map(|(a, b)| a * b).sum();
                        assert_eq!(*found, expected, "{count} × {depth} × {columns} at {at}, {by:?}");
                    }
                    let once = out.clone();
                    cores::run(|| panels.multiply(&mut out, Former::Kept, &rows, by));
                    assert!(out.iter().zip(&once).all(|(twice, once)| *twice == 2.0 * once));
                }
            }
        }
    }

    #[test]
    fn given_a_row_among_others_when_it_is_multiplied_then_its_product_is_bit_by_bit_that_of_the_row_alone() {
        let (depth, columns) = (1_000, 70);
        let fractions = |count: usize, step: usize| -> Vec<f32> {
            (0..count).map(|n| ((n * step % 1_009) as f32 - 500.0) / 333.0).collect()
        };
        let panels = Panels::of_columns(&fractions(depth * columns, 7), depth);
        let rows = fractions(250 * depth, 11);
        let product = |rows: &[f32], by: By| {
            let mut out = vec![0.0; rows.len() / depth * columns];
            cores::run(|| panels.multiply(&mut out, Former::Replaced, rows, by));
            out
        };
        for count in [2, 12, 13, 25, 37, 96, 250] {
            for by in [By::Caller, By::Pool] {
                let together = product(&rows[..count * depth], by);
                for (row, found) in rows.chunks_exact(depth).zip(together.chunks_exact(columns)) {
                    assert_eq!(product(row, By::Caller), found, "of {count} rows, {by:?}");
                }
            }
        }
    }

    #[test]
    fn given_nothing_or_what_does_not_fit_when_it_is_multiplied_then_nothing_is_written() {
        let panels = Panels::of_columns(&whole(3 * 40, 7), 3);
        for by in [By::Caller, By::Pool] {
            panels.multiply(&mut [], Former::Replaced, &[], by);
            Panels::of_columns(&[], 3).multiply(&mut [], Former::Replaced, &[1.0; 9], by);
            for (out, rows) in [(40, 4), (39, 3), (80, 3), (0, 3)] {
                let fits = std::panic::AssertUnwindSafe(|| {
                    panels.multiply(&mut vec![0.0; out], Former::Replaced, &vec![0.0; rows], by);
                });
                assert!(std::panic::catch_unwind(fits).is_err(), "{rows} numbers into {out}");
            }
        }
        assert!(std::panic::catch_unwind(|| Panels::of_columns(&[0.0; 4], 3)).is_err());
        assert!(std::panic::catch_unwind(|| Panels::of_columns(&[], 0)).is_err());
    }
}
