//! What a process without a log took down: lines of a file, until a process that has one puts them on it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use riverrun_schemas::finetune::{FinetuneEvent, ModelUsed};

/// The file, in the data folder.
const FILE: &str = "model-calls.jsonl";
/// A file that is larger takes no more: nobody has come for it for very long.
const MAX_BYTES: u64 = 4 << 20;

fn file_in(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Puts events behind those that are kept.
pub(super) fn append(folder: &Path, events: &[FinetuneEvent]) -> io::Result<()> {
    let mut lines = Vec::new();
    for event in events {
        if let FinetuneEvent::ModelUsed(used) = event {
            serde_json::to_writer(&mut lines, used)?;
            lines.push(b'\n');
        }
    }
    fs::create_dir_all(folder)?;
    let mut file = OpenOptions::new().append(true).create(true).open(file_in(folder))?;
    file.lock()?;
    if file.metadata()?.len() > MAX_BYTES {
        return Err(io::Error::other(format!(
            "{FILE} has more than {MAX_BYTES} bytes; `riverrun serve` takes them over"
        )));
    }
    file.write_all(&lines)
}

/// Kept events. Nobody adds any while this is held.
pub(super) struct Kept {
    file: File,
    pub(super) events: Vec<FinetuneEvent>,
}

impl Kept {
    /// The events of a folder; none where nothing is kept.
    pub(super) fn open(folder: &Path) -> io::Result<Option<Self>> {
        let mut file = match OpenOptions::new().read(true).write(true).open(file_in(folder)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        file.lock()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // A line that a crash cut off is lost.
        let read = |line: &[u8]| serde_json::from_slice::<ModelUsed>(line).ok();
        let events: Vec<FinetuneEvent> =
            bytes.split(|byte| *byte == b'\n').filter_map(read).map(FinetuneEvent::from).collect();
        Ok(Some(Self { file, events }).filter(|kept| !kept.events.is_empty()))
    }

    /// The events are on the log.
    pub(super) fn forget(self) -> io::Result<()> {
        self.file.set_len(0)
    }
}
