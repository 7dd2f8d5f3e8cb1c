//! Checkpoints: everything that a training has come to, in a folder of its own. A folder is there wholly or not at all: it is
//! written beside, synced, and renamed.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::TrainingError;

mod disk;
mod tensors;

use disk::{Disk, System};

const PREFIX: &str = "step-";
const TENSORS: &str = "state.safetensors";
const STATE: &str = "state.json";
/// Checkpoints that are kept: the newest, and the one before it.
const KEPT: usize = 2;

/// What is not a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Of plan, examples and base model: a checkpoint of another training is not gone on from.
    pub(crate) fingerprint: String,
    /// Steps that are done.
    pub(crate) step: u64,
    /// Loss of the base model on what was held out.
    #[serde(with = "exact")]
    pub(crate) base_loss: Option<f64>,
    /// The best loss since, and its step.
    #[serde(with = "exact_at")]
    pub(crate) best: Option<(f64, u64)>,
    /// The last loss that was measured.
    #[serde(with = "exact")]
    pub(crate) last: Option<f64>,
    /// Measurements since the best.
    pub(crate) worse: u32,
    /// Loss of the last step.
    #[serde(with = "exact")]
    pub(crate) loss: Option<f64>,
}

/// A number that is read as it was written: the JSON reader is off by one unit in the last place for some, which text is not.
struct Exact(f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_string())
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Older versions wrote a number.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(f64),
        }
        match Written::deserialize(deserializer)? {
            Written::Text(text) => text.parse().map(Exact).map_err(de::Error::custom),
            Written::Number(number) => Ok(Exact(number)),
        }
    }
}

mod exact {
    use super::{Deserialize, Deserializer, Exact, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Exact).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Exact>::deserialize(deserializer)?.map(|Exact(value)| value))
    }
}

mod exact_at {
    use super::{Deserialize, Deserializer, Exact, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<(f64, u64)>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|(value, step)| (Exact(value), step)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<(f64, u64)>, D::Error> {
        Ok(Option::<(Exact, u64)>::deserialize(deserializer)?.map(|(Exact(value), step)| (value, step)))
    }
}

/// Tensors by purpose: each a list in the order of the adapter's matrices.
pub(crate) type Lists = HashMap<&'static str, Vec<Tensor>>;

fn name(step: u64) -> String {
    format!("{PREFIX}{step:08}")
}

/// Writes a checkpoint and removes those that are older than the one before it.
pub(crate) fn write(folder: &Path, state: &State, lists: &Lists) -> Result<PathBuf, TrainingError> {
    write_on(&System, folder, state, lists)
}

fn write_on(disk: &impl Disk, folder: &Path, state: &State, lists: &Lists) -> Result<PathBuf, TrainingError> {
    disk.create_folder(folder).map_err(TrainingError::io("creating", folder))?;
    let path = folder.join(name(state.step));
    let beside = folder.join(format!(".{}", name(state.step)));
    match write_into(disk, &beside, state, lists).and_then(|()| publish(disk, folder, &beside, &path)) {
        Ok(()) => {
            remove_old(folder);
            Ok(path)
        }
        Err(error) => {
            let _ = disk.remove(&beside); // what is left of it is taken away at the next write
            Err(error)
        }
    }
}

fn write_into(disk: &impl Disk, beside: &Path, state: &State, lists: &Lists) -> Result<(), TrainingError> {
    if beside.exists() {
        disk.remove(beside).map_err(TrainingError::io("removing", beside))?;
    }
    disk.create_folder(beside).map_err(TrainingError::io("creating", beside))?;
    let all: BTreeMap<String, Tensor> = lists
        .iter()
        .flat_map(|(purpose, list)| {
            list.iter().enumerate().map(move |(at, tensor)| (format!("{purpose}.{at}"), tensor.clone()))
        })
        .collect();
    put(disk, &beside.join(TENSORS), |out| tensors::write(out, &all))?;
    let json = serde_json::to_vec_pretty(state).map_err(|error| TrainingError::Compute(error.to_string()))?;
    put(disk, &beside.join(STATE), |out| out.write_all(&json))?;
    disk.sync(beside).map_err(TrainingError::io("syncing", beside))
}

/// Writes a file that is there for good when this returns.
fn put(
    disk: &impl Disk,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), TrainingError> {
    let mut out = BufWriter::new(disk.create(path).map_err(TrainingError::io("creating", path))?);
    write(&mut out).and_then(|()| out.flush()).map_err(TrainingError::io("writing", path))?;
    drop(out);
    disk.sync(path).map_err(TrainingError::io("syncing", path))
}

fn publish(disk: &impl Disk, folder: &Path, beside: &Path, path: &Path) -> Result<(), TrainingError> {
    if path.exists() {
        disk.remove(path).map_err(TrainingError::io("removing", path))?;
    }
    disk.rename(beside, path).map_err(TrainingError::io("renaming", beside))?;
    disk.sync(folder).map_err(TrainingError::io("syncing", folder))
}

/// Makes a file, or the names in a folder, survive a power failure.
pub(crate) fn sync(path: &Path) -> Result<(), TrainingError> {
    System.sync(path).map_err(TrainingError::io("syncing", path))
}

/// Steps of the checkpoints of a folder, the newest first.
fn steps(folder: &Path) -> Vec<u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut steps: Vec<u64> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok()).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    steps
}

/// Whether a training has come to a checkpoint in that folder, so that work would be lost with it.
pub fn is_begun(folder: &Path) -> bool {
    !steps(folder).is_empty()
}

fn remove_old(folder: &Path) {
    for step in steps(folder).into_iter().skip(KEPT) {
        let path = folder.join(name(step));
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(path = %path.display(), error = %error, "an old checkpoint stays");
        }
    }
}

/// The newest checkpoint that can be read; `None` when there is none.
pub(crate) fn newest(folder: &Path, fingerprint: &str) -> Result<Option<(State, Lists)>, TrainingError> {
    let mut failure = None;
    for step in steps(folder) {
        let path = folder.join(name(step));
        match read(&path) {
            Ok((state, lists)) if state.fingerprint == fingerprint => return Ok(Some((state, lists))),
            Ok(_) => {
                let reason = "it is of another plan, dataset or base model".to_owned();
                return Err(TrainingError::Checkpoint { path, reason });
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), error = %error, "a checkpoint can't be read");
                failure = Some(error);
            }
        }
    }
    failure.map_or(Ok(None), Err)
}

fn read(path: &Path) -> Result<(State, Lists), TrainingError> {
    let bad = |reason: String| TrainingError::Checkpoint { path: path.to_path_buf(), reason };
    let json = fs::read(path.join(STATE)).map_err(|error| bad(error.to_string()))?;
    let state: State = serde_json::from_slice(&json).map_err(|error| bad(error.to_string()))?;
    let loaded = candle_core::safetensors::load(path.join(TENSORS), &Device::Cpu);
    let mut tensors = loaded.map_err(|error| bad(error.to_string()))?;
    let mut lists = Lists::new();
    for purpose in PURPOSES {
        let list: Vec<Tensor> = (0..).map_while(|at| tensors.remove(&format!("{purpose}.{at}"))).collect();
        if !list.is_empty() {
            lists.insert(purpose, list);
        }
    }
    Ok((state, lists))
}

/// The adapter.
pub(crate) const ADAPTER: &str = "adapter";
/// First moments of its gradients.
pub(crate) const FIRST: &str = "first";
/// Second moments.
pub(crate) const SECOND: &str = "second";
/// The adapter at the best measurement.
pub(crate) const BEST: &str = "best";
/// The weights of the reward model.
pub(crate) const REWARD: &str = "reward";
const PURPOSES: [&str; 5] = [ADAPTER, FIRST, SECOND, BEST, REWARD];

#[cfg(test)]
mod tests {
    use super::disk::full::FullDisk;
    use super::*;

    #[test]
    fn given_losses_of_any_digits_when_they_are_read_again_then_they_are_the_same_to_the_last_bit() {
        let losses = (1..10_000).map(|number| 1.509_203_124_556_883_3 * f64::from(number) / 7.0);
        for loss in losses.chain([0.0, f64::MIN_POSITIVE, f64::MAX, 1e300]) {
            let (base_loss, best) = (Some(loss), Some((loss, 3)));
            let written = State { base_loss, best, last: base_loss, loss: None, ..state(1) };
            let json = serde_json::to_vec(&written).unwrap();
            assert_eq!(serde_json::from_slice::<State>(&json).unwrap(), written);
        }
        let older = r#"{"fingerprint":"f","step":1,"base_loss":0.5,"best":[0.25,2],"last":null,"worse":1,"loss":2}"#;
        let (base_loss, best, loss) = (Some(0.5), Some((0.25, 2)), Some(2.0));
        assert_eq!(serde_json::from_str::<State>(older).unwrap(), State { base_loss, best, loss, ..state(1) });
    }

    fn state(step: u64) -> State {
        let best = Some((1.0 / 3.0, 2));
        State { fingerprint: "f".into(), step, base_loss: Some(0.1), best, last: None, worse: 1, loss: None }
    }

    fn lists(number: f32) -> Lists {
        let tensor = Tensor::from_vec(vec![number, 1.0 / 3.0], 2, &Device::Cpu).unwrap();
        Lists::from([(ADAPTER, vec![tensor.clone(), tensor.clone()]), (FIRST, vec![tensor])])
    }

    #[test]
    fn given_checkpoints_then_the_newest_comes_back_exactly_and_two_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert!(newest(folder.path(), "f").unwrap().is_none() && !is_begun(folder.path()));
        for step in [5, 10, 15] {
            write(folder.path(), &state(step), &lists(step as f32)).unwrap();
        }
        let (found, tensors) = newest(folder.path(), "f").unwrap().unwrap();
        assert_eq!(found, state(15));
        assert!(is_begun(folder.path()));
        assert_eq!(tensors[ADAPTER].len(), 2);
        assert_eq!(tensors[FIRST][0].to_vec1::<f32>().unwrap(), [15.0, 1.0 / 3.0]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    /// Bytes of a checkpoint's files.
    fn size(path: &Path) -> usize {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len() as usize).sum()
    }

    #[test]
    fn given_a_disk_that_is_full_after_any_number_of_bytes_then_the_checkpoint_before_stays_whole_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let needed = size(&write(folder.path(), &state(5), &lists(5.0)).unwrap());
        for room in 0..needed {
            let error = write_on(&FullDisk::of(room), folder.path(), &state(10), &lists(10.0)).unwrap_err();
            assert!(error.retryable() && error.code() == "training_io_failed", "{room} bytes: {error}");
            assert!(error.to_string().starts_with("writing ") && error.hint().unwrap().contains("room"), "{error}");
            let (found, tensors) = newest(folder.path(), "f").unwrap().unwrap();
            assert_eq!(found, state(5), "{room} bytes");
            assert_eq!(tensors[FIRST][0].to_vec1::<f32>().unwrap(), [5.0, 1.0 / 3.0]);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{room} bytes: what was begun takes no room");
        }
        // One more digit in the number of the step.
        write_on(&FullDisk::of(needed + 1), folder.path(), &state(10), &lists(10.0)).unwrap();
        assert_eq!(newest(folder.path(), "f").unwrap().unwrap().0, state(10));
    }

    #[test]
    fn given_any_call_that_finds_no_room_then_a_whole_checkpoint_is_the_newest_and_the_next_one_is_written() {
        let whole = FullDisk::failing(usize::MAX);
        write_on(&whole, tempfile::tempdir().unwrap().path(), &state(5), &lists(5.0)).unwrap();
        assert!(whole.calls() > 8, "folder, files, their bytes, and names");
        for call in 0..whole.calls() {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), &state(5), &lists(5.0)).unwrap();
            let failing = FullDisk::failing(call);
            let error = write_on(&failing, folder.path(), &state(10), &lists(10.0)).unwrap_err();
            assert!(error.retryable(), "call {call}: {error}");
            let (found, tensors) = newest(folder.path(), "f").unwrap().unwrap();
            assert!(found == state(5) || found == state(10), "call {call}: {found:?}");
            assert_eq!(tensors[FIRST][0].to_vec1::<f32>().unwrap(), [found.step as f32, 1.0 / 3.0], "call {call}");
            write(folder.path(), &state(15), &lists(15.0)).unwrap();
            assert_eq!(newest(folder.path(), "f").unwrap().unwrap().0, state(15), "call {call}");
        }
    }

    #[test]
    fn given_a_damaged_checkpoint_then_the_one_before_it_is_used_and_one_of_another_training_is_not() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &state(5), &lists(5.0)).unwrap();
        let newer = write(folder.path(), &state(10), &lists(10.0)).unwrap();
        fs::write(newer.join(TENSORS), b"cut off").unwrap();
        assert_eq!(newest(folder.path(), "f").unwrap().unwrap().0.step, 5);
        assert_eq!(newest(folder.path(), "g").unwrap_err().code(), "checkpoint_unusable");
        fs::write(folder.path().join(name(5)).join(STATE), b"{").unwrap();
        assert_eq!(newest(folder.path(), "f").unwrap_err().code(), "checkpoint_unusable");
    }

    #[test]
    fn given_what_an_interrupted_write_left_then_it_is_not_a_checkpoint_and_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".step-00000005")).unwrap();
        fs::write(folder.path().join(".step-00000005").join(STATE), b"{").unwrap();
        assert!(newest(folder.path(), "f").unwrap().is_none());
        write(folder.path(), &state(5), &lists(1.0)).unwrap();
        assert_eq!(newest(folder.path(), "f").unwrap().unwrap().0.step, 5);
    }
}
