//! Sizes and overlaps: what is asked for, checked.

use riverrun_schemas::{Failure, not_there};

use super::{
    DEFAULT_OVERLAP, DEFAULT_SIZE, DEFAULT_TOKENS, DEFAULT_TOKENS_OVERLAP, MAX_CHUNKS, MAX_SIZE, MAX_TOKENS,
    strategy_names,
};

/// Who reads a document knows which size it was handed in with, and not where that came from.
const SIZE_IS_GIVEN_BY: &str = "--chunk-size, by chunk_size of a request or by RIVERRUN_CHUNK_SIZE";

/// Size and overlap, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkConfig {
    pub(super) size: usize,
    pub(super) overlap: usize,
    pub(super) unit: ChunkUnit,
}

/// What sizes and overlaps count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ChunkUnit {
    /// Unicode characters.
    #[default]
    Characters,
    /// Tokens of the embedding model's own tokenizer.
    Tokens,
}

impl ChunkUnit {
    /// Both names.
    pub const NAMES: [&'static str; 2] = ["characters", "tokens"];

    /// The name that settings, requests and events have.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Characters => Self::NAMES[0],
            Self::Tokens => Self::NAMES[1],
        }
    }

    /// The unit of that name; characters when none is named.
    pub fn named(name: Option<&str>) -> Result<Self, ChunkError> {
        match name {
            None | Some("characters") => Ok(Self::Characters),
            Some("tokens") => Ok(Self::Tokens),
            Some(other) => Err(ChunkError::BadUnit { given: other.to_owned() }),
        }
    }

    /// Size and overlap when nothing is set.
    pub fn defaults(self) -> (usize, usize) {
        match self {
            Self::Characters => (DEFAULT_SIZE, DEFAULT_OVERLAP),
            Self::Tokens => (DEFAULT_TOKENS, DEFAULT_TOKENS_OVERLAP),
        }
    }

    fn max_size(self) -> usize {
        match self {
            Self::Characters => MAX_SIZE,
            Self::Tokens => MAX_TOKENS,
        }
    }
}

impl std::fmt::Display for ChunkUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Size or overlap can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The size is zero, negative or too large.
    #[error("RIVERRUN_CHUNK_SIZE is {size}, which is not between 1 and {max} {unit}", max = .unit.max_size())]
    BadSize {
        /// What was asked for.
        size: i64,
        /// What it counts.
        unit: ChunkUnit,
    },
    /// There is no such unit.
    #[error("RIVERRUN_CHUNK_UNIT is {given:?}, which is neither characters nor tokens")]
    BadUnit {
        /// What was asked for.
        given: String,
    },
    /// The model does not read so many tokens at once.
    #[error("chunks of {size} tokens are asked for, and the embedding model {model} reads {limit} at once")]
    BeyondModel {
        /// What was asked for.
        size: usize,
        /// The embedding model.
        model: String,
        /// What it reads.
        limit: usize,
    },
    /// The tokenizer could not read the document.
    #[error("the tokens of {name} can't be counted: {reason}")]
    Tokenizer {
        /// The document.
        name: String,
        /// What the tokenizer said.
        reason: String,
    },
    /// The overlap is negative or leaves no room for anything new.
    #[error(
        "RIVERRUN_CHUNK_OVERLAP is {overlap}, which is not between 0 and one less than RIVERRUN_CHUNK_SIZE, {size}"
    )]
    BadOverlap {
        /// What was asked for.
        overlap: i64,
        /// The size that it has to be below.
        size: i64,
    },
    /// There is no such strategy.
    #[error("there is no chunking strategy {given:?}")]
    UnknownStrategy {
        /// What was asked for.
        given: String,
    },
    /// The document is too long for chunks of this size.
    #[error("{name} has more than {MAX_CHUNKS} chunks of {size} {unit}")]
    TooMany {
        /// The document.
        name: String,
        /// The chunk size.
        size: usize,
        /// What it counts.
        unit: ChunkUnit,
    },
}

impl ChunkError {
    /// Stable code, lower snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadSize { .. } | Self::BeyondModel { .. } => "bad_chunk_size",
            Self::BadUnit { .. } => "bad_chunk_unit",
            Self::Tokenizer { .. } => "tokenizer_failed",
            Self::BadOverlap { .. } => "bad_chunk_overlap",
            Self::UnknownStrategy { .. } => "unknown_strategy",
            Self::TooMany { .. } => "too_many_chunks",
        }
    }

    /// The field of a request that it is about, and what is wrong with its value: as `Display`, which names the setting.
    pub fn in_request(&self) -> (&'static str, String) {
        match self {
            Self::BadSize { size, unit } => {
                ("chunk_size", format!("is {size}, which is not between 1 and {} {unit}", unit.max_size()))
            }
            Self::BadUnit { given } => ("chunk_unit", not_there(given, ChunkUnit::NAMES)),
            Self::BadOverlap { overlap, size } => {
                ("chunk_overlap", format!("is {overlap}, which is not between 0 and one less than chunk_size, {size}"))
            }
            Self::BeyondModel { .. } | Self::Tokenizer { .. } | Self::TooMany { .. } => {
                ("chunk_size", self.to_string())
            }
            Self::UnknownStrategy { .. } => ("strategy", self.to_string()),
        }
    }

    /// The fix.
    pub fn hint(&self) -> String {
        match self {
            Self::BadSize { unit, .. } => {
                format!("set RIVERRUN_CHUNK_SIZE to a number of {unit}, for example {}", unit.defaults().0)
            }
            Self::BadUnit { .. } => "set RIVERRUN_CHUNK_UNIT to characters or to tokens".to_owned(),
            Self::BeyondModel { limit, .. } => format!("ask for {limit} or less, by {SIZE_IS_GIVEN_BY}"),
            Self::Tokenizer { .. } => {
                "count characters, by --chunk-unit, by chunk_unit of a request or by RIVERRUN_CHUNK_UNIT".to_owned()
            }
            Self::BadOverlap { size, .. } => {
                format!(
                    "set RIVERRUN_CHUNK_OVERLAP to a number below RIVERRUN_CHUNK_SIZE, for example {}",
                    (size / 8).max(0)
                )
            }
            Self::UnknownStrategy { .. } => format!("choose one of: {}", strategy_names().join(", ")),
            Self::TooMany { .. } => format!("ask for larger ones, by {SIZE_IS_GIVEN_BY}, or split the document"),
        }
    }

    /// As events and problem documents carry it.
    pub fn failure(&self) -> Failure {
        Failure::new(self.code(), self.to_string()).with_hint(self.hint())
    }
}

impl ChunkConfig {
    /// Checks size and overlap, both in characters.
    pub fn new(size: i64, overlap: i64) -> Result<Self, ChunkError> {
        Self::in_unit(size, overlap, ChunkUnit::Characters)
    }

    /// Checks size and overlap, both in that unit.
    pub fn in_unit(size: i64, overlap: i64, unit: ChunkUnit) -> Result<Self, ChunkError> {
        let checked_size = usize::try_from(size)
            .ok()
            .filter(|size| (1..=unit.max_size()).contains(size))
            .ok_or(ChunkError::BadSize { size, unit })?;
        let checked_overlap = usize::try_from(overlap)
            .ok()
            .filter(|overlap| *overlap < checked_size)
            .ok_or(ChunkError::BadOverlap { overlap, size })?;
        Ok(Self { size: checked_size, overlap: checked_overlap, unit })
    }

    /// Refuses chunks that the embedding model does not read whole.
    pub fn for_window(self, model: &str, limit: usize) -> Result<Self, ChunkError> {
        if self.size > limit {
            return Err(ChunkError::BeyondModel { size: self.size, model: model.to_owned(), limit });
        }
        Ok(self)
    }

    /// Most characters, or tokens, of a chunk.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Characters, or tokens, that neighbours share at most.
    pub fn overlap(&self) -> usize {
        self.overlap
    }

    /// What both count.
    pub fn unit(&self) -> ChunkUnit {
        self.unit
    }
}

impl Default for ChunkConfig {
    fn default() -> Self {
        Self { size: DEFAULT_SIZE, overlap: DEFAULT_OVERLAP, unit: ChunkUnit::Characters }
    }
}
