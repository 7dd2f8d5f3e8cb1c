//! Reads safetensors files tensor by tensor, so that a model is in memory once and not twice, and without mapping memory unsafely.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use serde::Deserialize;

use super::text::EncodeError;

/// A header larger than this is no header.
const MAX_HEADER_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

impl Entry {
    /// Bytes that it takes once it is read.
    fn bytes_read(&self) -> u64 {
        let (from, to) = self.data_offsets;
        let read = to.saturating_sub(from);
        match self.float() {
            Ok(Some(DType::F64)) => read / 2,
            Ok(Some(DType::F16 | DType::BF16)) => read.saturating_mul(2),
            Ok(Some(_)) => read,
            Ok(None) | Err(_) => 0,
        }
    }

    /// The type of floats; none of integers.
    fn float(&self) -> Result<Option<DType>, String> {
        match self.dtype.as_str() {
            "F32" => Ok(Some(DType::F32)),
            "F16" => Ok(Some(DType::F16)),
            "BF16" => Ok(Some(DType::BF16)),
            "F64" => Ok(Some(DType::F64)),
            "I64" | "I32" | "I16" | "I8" | "U8" | "U16" | "U32" | "U64" | "BOOL" => Ok(None),
            other => Err(format!("type {other} is not supported")),
        }
    }
}

/// All tensors of a file, as 32-bit floats.
pub(super) struct Weights {
    tensors: HashMap<String, Tensor>,
}

impl Weights {
    pub(super) fn read(path: &Path) -> Result<Self, EncodeError> {
        let mut file = File::open(path).map_err(|error| bad(path, error))?;
        let total = file.metadata().map_err(|error| bad(path, error))?.len();
        let header = header(&mut file, total).map_err(|reason| bad(path, reason))?;
        let start = file.stream_position().map_err(|error| bad(path, error))?;
        let mut tensors = HashMap::new();
        for (name, entry) in header {
            let tensor = tensor(&mut file, start, total, &entry)
                .map_err(|reason| bad(path, format!("tensor {name}: {reason}")))?;
            if let Some(tensor) = tensor {
                tensors.insert(name, tensor);
            }
        }
        Ok(Weights { tensors })
    }

    /// Bytes that the tensors of a file take once they are read, as its header tells, but no more than a file of its size can hold.
    pub(super) fn bytes_of(path: &Path) -> Result<u64, EncodeError> {
        let mut file = File::open(path).map_err(|error| bad(path, error))?;
        let total = file.metadata().map_err(|error| bad(path, error))?.len();
        let header = header(&mut file, total).map_err(|reason| bad(path, reason))?;
        let taken = header.iter().fold(0_u64, |sum, (_, entry)| sum.saturating_add(entry.bytes_read()));
        Ok(taken.min(total.saturating_mul(2)))
    }

    pub(super) fn into_builder(self) -> VarBuilder<'static> {
        VarBuilder::from_tensors(self.tensors, DType::F32, &Device::Cpu)
    }
}

fn header(file: &mut File, total: u64) -> Result<Vec<(String, Entry)>, String> {
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|error| error.to_string())?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES || length + 8 > total {
        return Err(format!("its header claims {length} bytes"));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(|error| error.to_string())?;
    let map: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&text).map_err(|error| format!("its header is no JSON: {error}"))?;
    map.into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .map(|(name, entry)| match serde_json::from_value(entry) {
            Ok(entry) => Ok((name, entry)),
            Err(error) => Err(format!("tensor {name}: {error}")),
        })
        .collect()
}

/// Reads one tensor; integer ones (position ids that old exports carry) are skipped.
fn tensor(file: &mut File, start: u64, total: u64, entry: &Entry) -> Result<Option<Tensor>, String> {
    let Some(dtype) = entry.float()? else { return Ok(None) };
    let (from, to) = entry.data_offsets;
    let elements = entry.shape.iter().try_fold(1_u64, |product, side| product.checked_mul(*side as u64));
    let expected = elements.and_then(|elements| elements.checked_mul(dtype.size_in_bytes() as u64));
    let end = start.checked_add(to);
    if to < from || expected != Some(to - from) || end.is_none_or(|end| end > total) {
        return Err(format!("bytes {from} to {to} do not fit shape {:?} or the file", entry.shape));
    }
    file.seek(SeekFrom::Start(start + from)).map_err(|error| error.to_string())?;
    if dtype == DType::F32 && cfg!(target_endian = "little") {
        // Read into its place: the weights of a model are its whole size.
        let mut numbers = vec![0_f32; ((to - from) / 4) as usize];
        file.read_exact(bytemuck::cast_slice_mut(&mut numbers)).map_err(|error| error.to_string())?;
        return Tensor::from_vec(numbers, entry.shape.as_slice(), &Device::Cpu)
            .map(Some)
            .map_err(|error| error.to_string());
    }
    let mut data = vec![0; (to - from) as usize];
    file.read_exact(&mut data).map_err(|error| error.to_string())?;
    Tensor::from_raw_buffer(&data, dtype, &entry.shape, &Device::Cpu)
        .and_then(|tensor| tensor.to_dtype(DType::F32))
        .map(Some)
        .map_err(|error| error.to_string())
}

fn bad(path: &Path, reason: impl std::fmt::Display) -> EncodeError {
    EncodeError(format!("{}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        std::fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    #[test]
    fn given_a_file_when_it_is_read_then_floats_are_there_and_integers_are_skipped() {
        let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"ids":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}}"#;
        let mut data = [1.5_f32.to_le_bytes(), (-2.0_f32).to_le_bytes()].concat();
        data.extend_from_slice(&[0; 8]);
        let (_dir, path) = file(header, &data);
        assert_eq!(Weights::bytes_of(&path).unwrap(), 8);
        let weights = Weights::read(&path).unwrap();
        assert!(weights.tensors.contains_key("a") && !weights.tensors.contains_key("ids"));
        assert_eq!(weights.tensors["a"].to_vec1::<f32>().unwrap(), [1.5, -2.0]);
    }

    #[test]
    fn given_headers_when_what_they_take_is_asked_for_then_it_is_in_32_bits_and_claims_are_bounded_by_the_file() {
        let of = |dtype: &str, end: u64| {
            let header = format!(r#"{{"a":{{"dtype":"{dtype}","shape":[4],"data_offsets":[0,{end}]}}}}"#);
            let (_dir, path) = file(&header, &[0; 32]);
            (Weights::bytes_of(&path).unwrap(), fs_size(&path))
        };
        assert_eq!([of("F16", 8).0, of("BF16", 8).0, of("F32", 16).0, of("F64", 32).0], [16; 4]);
        assert_eq!(of("I64", 32).0, 0);
        let (taken, size) = of("F16", u64::MAX);
        assert_eq!(taken, 2 * size);
    }

    fn fs_size(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().len()
    }

    #[test]
    fn given_broken_files_when_they_are_read_then_they_are_refused_and_nothing_is_allocated_for_their_claims() {
        let of = |shape: &str, offsets: &str| {
            format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        for header in [
            of("[2]", "[0,4]"),
            of("[2]", "[0,800000000000]"),
            of("[200000000000]", "[0,800000000000]"),
            of("[18446744073709551615,18446744073709551615]", "[0,8]"),
            of("[2]", "[8,0]"),
            "no json".to_owned(),
            r#"{"a":{"dtype":"Q9","shape":[],"data_offsets":[0,1]}}"#.to_owned(),
        ] {
            let (_dir, path) = file(&header, &[0; 4]);
            assert!(Weights::read(&path).is_err(), "{header}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for bytes in [vec![], vec![1, 2, 3], u64::MAX.to_le_bytes().to_vec()] {
            std::fs::write(&path, bytes).unwrap();
            assert!(Weights::read(&path).is_err());
        }
    }
}
