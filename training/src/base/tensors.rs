//! Weights in files of safetensors, read tensor by tensor: candle reads a whole file before it makes tensors of it, which takes the
//! memory of a model twice.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::{Map, Value};

use crate::error::TrainingError;
use crate::files;

pub(super) const WEIGHTS: &str = "model.safetensors";
/// Names the file of each tensor, where there are several.
const INDEX: &str = "model.safetensors.index.json";
/// Bytes before the description of a file's tensors: how long it is.
const PREFIX: u64 = 8;
/// Longest description, in bytes, as the reference implementation has it.
const MAX_DESCRIPTION: u64 = 100_000_000;
/// A key of descriptions that is no tensor.
const METADATA: &str = "__metadata__";

/// The files of a folder's weights.
pub(super) fn files_of(folder: &Path) -> Result<Vec<PathBuf>, TrainingError> {
    let (whole, index) = (folder.join(WEIGHTS), folder.join(INDEX));
    if whole.is_file() {
        return Ok(vec![whole]);
    }
    let Some(bytes) = files::maybe(&index, files::MAX_SETTINGS)? else { return Ok(vec![whole]) };
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| TrainingError::base(&index, error))?;
    let mut names = BTreeSet::new();
    for file in value["weight_map"].as_object().into_iter().flat_map(Map::values) {
        // A name that leads elsewhere is no file of this model.
        let name = file.as_str().filter(|name| Path::new(name).file_name() == Some(OsStr::new(name)));
        names
            .insert(name.ok_or_else(|| TrainingError::base(&index, format!("{file} is no name of a file beside it")))?);
    }
    if names.is_empty() {
        return Err(TrainingError::base(&index, "it names no files"));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Where a tensor lies in a file.
struct Place {
    file: usize,
    dtype: DType,
    shape: Vec<usize>,
    start: u64,
    length: usize,
}

/// The tensors of a folder's weights.
pub(crate) struct Tensors {
    files: Vec<(PathBuf, File)>,
    places: HashMap<String, Place>,
}

impl Tensors {
    pub(crate) fn open(folder: &Path) -> Result<Self, TrainingError> {
        let mut tensors = Self { files: Vec::new(), places: HashMap::new() };
        for path in files_of(folder)? {
            let mut file = File::open(&path).map_err(|error| TrainingError::base(&path, error))?;
            let places = places(&mut file, tensors.files.len()).map_err(|reason| TrainingError::base(&path, reason))?;
            tensors.places.extend(places);
            tensors.files.push((path, file));
        }
        Ok(tensors)
    }

    /// A tensor in 32-bit floats; each is given once.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<Tensor>, TrainingError> {
        let Some(place) = self.places.remove(name) else { return Ok(None) };
        let (path, file) = &mut self.files[place.file];
        let mut bytes = vec![0u8; place.length];
        let read = file.seek(SeekFrom::Start(place.start)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(TrainingError::io("reading", path))?;
        let tensor = Tensor::from_raw_buffer(&bytes, place.dtype, &place.shape, &Device::Cpu);
        let floats = tensor.and_then(|tensor| tensor.to_dtype(DType::F32));
        floats.map(Some).map_err(|error| TrainingError::base(path, error))
    }
}

/// Where the tensors of a file lie, which is the `number`th one.
fn places(file: &mut File, number: usize) -> Result<Vec<(String, Place)>, String> {
    let told = |error: std::io::Error| error.to_string();
    let length = file.metadata().map_err(told)?.len();
    let mut prefix = [0u8; PREFIX as usize];
    file.read_exact(&mut prefix).map_err(told)?;
    let described = u64::from_le_bytes(prefix);
    if described > MAX_DESCRIPTION.min(length.saturating_sub(PREFIX)) {
        return Err(format!("it says that {described} bytes describe its tensors, and has {length} bytes"));
    }
    let mut text = vec![0u8; described as usize];
    file.read_exact(&mut text).map_err(told)?;
    let tensors: Map<String, Value> = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let mut places = Vec::with_capacity(tensors.len());
    for (name, value) in tensors.into_iter().filter(|(name, _)| name != METADATA) {
        // Numbers of other kinds are no weights.
        let Some(dtype) = value["dtype"].as_str().and_then(float) else { continue };
        let place = place((number, dtype), &value, (PREFIX + described, length));
        let place = place.ok_or_else(|| format!("its tensor {name} is not where {value} says"))?;
        places.push((name, place));
    }
    Ok(places)
}

fn float(name: &str) -> Option<DType> {
    match name {
        "F64" => Some(DType::F64),
        "F32" => Some(DType::F32),
        "F16" => Some(DType::F16),
        "BF16" => Some(DType::BF16),
        _ => None,
    }
}

/// A tensor by its description, where the file has room for it behind `begin`.
fn place((file, dtype): (usize, DType), value: &Value, (begin, end): (u64, u64)) -> Option<Place> {
    let sizes = value["shape"].as_array()?.iter().map(|size| usize::try_from(size.as_u64()?).ok());
    let shape = sizes.collect::<Option<Vec<usize>>>()?;
    let length = shape.iter().try_fold(dtype.size_in_bytes(), |bytes, size| bytes.checked_mul(*size))?;
    let [from, to] = value["data_offsets"].as_array()?.as_slice() else { return None };
    let (from, to) = (from.as_u64()?, to.as_u64()?);
    let (start, stop) = (begin.checked_add(from)?, begin.checked_add(to)?);
    let fits = stop <= end && stop.checked_sub(start) == Some(length as u64);
    fits.then_some(Place { file, dtype, shape, start, length })
}
