//! Tensors of 32-bit floats in the layout of safetensors, written one after the other to whatever takes bytes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use candle_core::Tensor;
use serde_json::{Map, Value, json};

/// Bytes of a number.
const FLOAT: usize = 4;
/// Numbers begin at a multiple of so many bytes.
const ALIGNED: usize = 8;

/// Writes them in the order of their names.
pub(super) fn write(out: &mut dyn Write, tensors: &BTreeMap<String, Tensor>) -> io::Result<()> {
    let (mut described, mut end) = (Map::new(), 0);
    for (name, tensor) in tensors {
        let start = end;
        end += tensor.elem_count() * FLOAT;
        let place = json!({ "dtype": "F32", "shape": tensor.dims(), "data_offsets": [start, end] });
        described.insert(name.clone(), place);
    }
    let mut text = Value::Object(described).to_string();
    let filler = text.len().next_multiple_of(ALIGNED) - text.len();
    text.push_str(&" ".repeat(filler));
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(text.as_bytes())?;
    for tensor in tensors.values() {
        let numbers = tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>());
        let numbers = numbers.map_err(|error| io::Error::other(error.to_string()))?;
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        out.write_all(&bytes)?;
    }
    Ok(())
}
