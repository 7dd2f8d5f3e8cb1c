//! Products of matrices that lie in plain memory, by the kernels that candle takes as well.
//!
//! Candle's own product makes a new tensor each time, whose pages the system has to find and to empty, and asks the system how many cores
//! there are: between short texts that takes longer than to multiply.

// The kernels take pointers: what they reach is held against the slices that the pointers come from, in `multiply` alone.
#![allow(unsafe_code)]

use gemm::{Parallelism, gemm};

/// A matrix within a slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    /// How far the numbers of neighbouring rows lie apart, and those of neighbouring columns.
    strides: (usize, usize),
}

impl<'a> Matrix<'a> {
    /// Rows that follow one another, each of `stride` numbers, of which the first `columns` count.
    ///
    /// # Panics
    /// Where they do not lie in `numbers`, or overlap.
    pub(super) fn of_rows(numbers: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(columns <= stride && reach(rows, columns, stride) <= numbers.len(), "{rows} × {columns} by {stride}");
        Matrix { numbers, rows, columns, strides: (stride, 1) }
    }

    /// The same with its rows as columns; nothing is moved.
    pub(super) fn transposed(self) -> Self {
        let Matrix { numbers, rows, columns, strides: (row, column) } = self;
        Matrix { numbers, rows: columns, columns: rows, strides: (column, row) }
    }
}

/// Puts `left · right` into the rows of `out`, which lie `stride` numbers apart, on the thread that asks.
///
/// # Panics
/// Where the matrices do not fit one another, or the product does not lie in `out`.
pub(super) fn multiply(out: &mut [f32], stride: usize, left: Matrix<'_>, right: Matrix<'_>) {
    let (rows, columns, depth) = (left.rows, right.columns, left.columns);
    assert_eq!(depth, right.rows, "columns of the left and rows of the right");
    assert!(columns <= stride && reach(rows, columns, stride) <= out.len(), "{rows} × {columns} by {stride}");
    let number = |size: usize| isize::try_from(size).unwrap_or(isize::MAX);
    // SAFETY: the three pointers come from slices that live throughout the call, `out` from one that nobody else reads. Row r and column
    // c of a matrix lie at r·(its row stride) + c·(its column stride). For `left` and `right` `of_rows` found the last of these within
    // the slice, for `out` the assertion above; transposing exchanges both counts and strides. Sizes of slices are below `isize::MAX`.
    unsafe {
        gemm(
            rows,
            columns,
            depth,
            out.as_mut_ptr(),
            1,
            number(stride),
            false,
            left.numbers.as_ptr(),
            number(left.strides.1),
            number(left.strides.0),
            right.numbers.as_ptr(),
            number(right.strides.1),
            number(right.strides.0),
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// How many numbers there are up to the end of the last row.
fn reach(rows: usize, columns: usize, stride: usize) -> usize {
    if rows == 0 || columns == 0 { 0 } else { (rows - 1).saturating_mul(stride).saturating_add(columns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole numbers, whose sums are exact in any order.
    fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|n| (n * step % 7) as f32 - 3.0).collect()
    }

    fn plainly(rows: usize, columns: usize, term: impl Fn(usize, usize) -> f32) -> Vec<f32> {
        (0..rows * columns).map(|at| term(at / columns, at % columns)).collect()
    }

    #[test]
    fn given_matrices_of_many_shapes_when_they_are_multiplied_then_the_product_is_that_of_the_definition() {
        for (rows, depth, columns) in [(1, 1, 1), (1, 32, 48), (3, 5, 2), (18, 32, 18), (70, 64, 130), (300, 40, 96)] {
            let (left, right) = (numbers(rows * depth, 3), numbers(depth * columns, 5));
            let expected = plainly(rows, columns, |row, column| {
                (0..depth).map(|at| left[row * depth + at] * right[at * columns + column]).sum()
            });
            let (left, right) =
                (Matrix::of_rows(&left, rows, depth, depth), Matrix::of_rows(&right, depth, columns, columns));
            let mut out = vec![1.0; rows * columns];
            multiply(&mut out, columns, left, right);
            assert_eq!(out, expected, "{rows} × {depth} × {columns}");
        }
    }

    #[test]
    fn given_a_part_of_a_matrix_when_it_is_multiplied_then_its_neighbours_are_neither_read_nor_written() {
        // Columns 2 and 3 of rows of five; what lies beside them is no number.
        let mut whole = [f32::NAN; 15];
        for row in 0..3 {
            whole[row * 5 + 2] = row as f32;
            whole[row * 5 + 3] = 10.0;
        }
        let part = Matrix::of_rows(&whole[2..], 3, 2, 5);
        let mut out = [-1.0; 3 * 4];
        multiply(&mut out[1..], 4, part, part.transposed());
        assert_eq!(out, [-1.0, 100.0, 100.0, 100.0, -1.0, 100.0, 101.0, 102.0, -1.0, 100.0, 102.0, 104.0]);
    }

    #[test]
    fn given_shapes_that_do_not_fit_when_they_are_multiplied_then_nothing_is_reached_outside() {
        let short = [0.0; 11];
        assert!(std::panic::catch_unwind(|| Matrix::of_rows(&short, 3, 4, 4)).is_err());
        assert!(std::panic::catch_unwind(|| Matrix::of_rows(&short, 1, 4, 3)).is_err());
        let fits = Matrix::of_rows(&short, 2, 3, 4);
        let product = |out: usize, stride: usize, right: Matrix<'_>| {
            let mut out = vec![0.0; out];
            multiply(&mut out, stride, fits, right);
        };
        assert!(std::panic::catch_unwind(|| product(9, 3, fits)).is_err(), "inner sizes differ");
        assert!(std::panic::catch_unwind(|| product(3, 2, fits.transposed())).is_err(), "out is too short");
        assert!(std::panic::catch_unwind(|| product(9, 1, fits.transposed())).is_err(), "rows of out overlap");
        product(4, 2, fits.transposed());
    }
}
