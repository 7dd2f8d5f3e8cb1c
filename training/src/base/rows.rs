//! The order of the rows of query and key matrices.

use candle_core::Tensor;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the pairs of neighbours that GGUF files of Llamas have to the halves of `rotate_half`.
    FromGguf,
    /// Back.
    ToGguf,
}

/// Reorders the rows of a query or key matrix `[heads × head_dim, anything]`, head by head: llama.cpp's converter does
/// `reshape(heads, 2, head_dim / 2, …).swapaxes(1, 2)` on the way to GGUF.
pub(crate) fn permute(matrix: &Tensor, heads: usize, way: Way) -> candle_core::Result<Tensor> {
    let (rows, columns) = matrix.dims2()?;
    let half = rows / heads / 2;
    let shape = match way {
        Way::FromGguf => (heads, half, 2, columns),
        Way::ToGguf => (heads, 2, half, columns),
    };
    matrix.reshape(shape)?.transpose(1, 2)?.contiguous()?.reshape((rows, columns))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn given_rows_when_they_go_to_gguf_then_halves_become_neighbours_and_come_back() {
        let rows: Vec<f32> = (0..12).map(|n| n as f32).collect();
        let matrix = Tensor::from_vec(rows.clone(), (12, 1), &Device::Cpu).unwrap();
        let there = permute(&matrix, 2, Way::ToGguf).unwrap();
        let order = there.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(order, [0., 3., 1., 4., 2., 5., 6., 9., 7., 10., 8., 11.]);
        let back = permute(&there, 2, Way::FromGguf).unwrap();
        assert_eq!(back.flatten_all().unwrap().to_vec1::<f32>().unwrap(), rows);
    }
}
