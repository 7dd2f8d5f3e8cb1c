//! Datasets: examples of what a model should answer, one JSON object a line.

mod pairs;
mod parse;
mod runs;
mod split;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub(crate) use parse::without_mark;
pub use parse::{MAX_BYTES, MAX_EXAMPLES, MAX_LINE_BYTES, read};
pub use runs::{OfRuns, read_of_runs};
pub use split::Split;

/// Errors and warnings that are kept, each; the number of all is told.
pub const MAX_TOLD: usize = 100;

/// Why a line is no JSON, with the place in the line: that it has only one is no news.
pub(crate) fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("is not a JSON object: {what} at byte {}", error.column())
}

/// What a line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// `prompt` and `completion`.
    Sft,
    /// `prompt`, `chosen` and `rejected`.
    Dpo,
    /// `messages`, each with `role` and `content`; the last one is the assistant's.
    Chat,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 3] = [Format::Sft, Format::Dpo, Format::Chat];

    /// Its name in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Format::Sft => "sft",
            Format::Dpo => "dpo",
            Format::Chat => "chat",
        }
    }

    /// The fields that every line has.
    pub const fn fields(self) -> &'static [&'static str] {
        match self {
            Format::Sft => &["prompt", "completion"],
            Format::Dpo => &["prompt", "chosen", "rejected"],
            Format::Chat => &["messages"],
        }
    }

    /// The format of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }
}

/// Who speaks in an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// Whoever sets the conversation up.
    System,
    /// A person.
    User,
    /// The model that is taught.
    Assistant,
}

impl Speaker {
    /// Whether it is a person.
    pub fn is_user(self) -> bool {
        self == Speaker::User
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Speaker::System => "system",
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
        }
    }
}

/// A turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// Who speaks.
    pub role: Speaker,
    /// The words.
    pub content: String,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Example {
    /// A prompt with the answer that is taught.
    Sft {
        /// What is asked.
        prompt: String,
        /// What is to be answered.
        completion: String,
    },
    /// A prompt with a better and a worse answer.
    Dpo {
        /// What is asked.
        prompt: String,
        /// The better answer.
        chosen: String,
        /// The worse one.
        rejected: String,
    },
    /// A conversation; every turn of the assistant is taught.
    Chat {
        /// Its turns.
        messages: Vec<Turn>,
    },
}

impl Example {
    /// Every text of it, with the name of its field.
    pub fn texts(&self) -> Vec<(&'static str, &str)> {
        match self {
            Example::Sft { prompt, completion } => vec![("prompt", prompt), ("completion", completion)],
            Example::Dpo { prompt, chosen, rejected } => {
                vec![("prompt", prompt), ("chosen", chosen), ("rejected", rejected)]
            }
            Example::Chat { messages } => messages.iter().map(|turn| ("messages", turn.content.as_str())).collect(),
        }
    }
}

/// Something about a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// Counts from 1.
    pub line: usize,
    /// The field, where it is about one.
    pub field: Option<String>,
    /// What is wrong or strange.
    pub reason: String,
}

impl Remark {
    pub(crate) fn new(line: usize, field: Option<&str>, reason: impl Into<String>) -> Self {
        Self { line, field: field.map(str::to_owned), reason: reason.into() }
    }

    /// `line 17`, or `line 17.completion`.
    pub fn place(&self) -> String {
        match &self.field {
            Some(field) => format!("line {}.{field}", self.line),
            None => format!("line {}", self.line),
        }
    }
}

/// Lines that are no examples. Nothing of a file with one is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{total} line(s) of the dataset are not usable; first: {}", first_of(.errors))]
pub struct DatasetError {
    /// The first [`MAX_TOLD`].
    pub errors: Vec<Remark>,
    /// How many there are.
    pub total: usize,
}

impl DatasetError {
    pub(crate) fn one(line: usize, reason: impl Into<String>) -> Self {
        Self { errors: vec![Remark::new(line, None, reason)], total: 1 }
    }
}

fn first_of(errors: &[Remark]) -> String {
    errors.first().map(|error| format!("{}: {}", error.place(), error.reason)).unwrap_or_default()
}

/// The examples of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// What its lines hold.
    pub format: Format,
    /// Examples in the order of the file, each once, with the line that it stood in.
    pub examples: Vec<(usize, Example)>,
    /// Lines that were left out because their example is there already.
    pub duplicates: usize,
    /// The first [`MAX_TOLD`] things that are strange and allowed.
    pub warnings: Vec<Remark>,
}

impl Dataset {
    /// The examples as JSON lines, always written the same way: what is hashed and kept.
    pub fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (_, example) in &self.examples {
            // Strings and lists of strings: writing them to memory can't fail.
            serde_json::to_writer(&mut bytes, example).unwrap_or_default();
            bytes.push(b'\n');
        }
        bytes
    }

    /// Lower-case hex of the SHA-256 of [`Dataset::canonical`].
    pub fn sha256(&self) -> String {
        hex(&Sha256::digest(self.canonical()))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
