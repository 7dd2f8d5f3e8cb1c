use riverrun_schemas::Failure;

/// Why a source or a document can't be read. The message says what failed on which value; [`SourceError::hint`] is the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is nothing at that path.
    #[error("{path} does not exist")]
    NotFound {
        /// The path.
        path: String,
    },
    /// Where the path would lead depends on who reads it.
    #[error("{path:?} is not an absolute path")]
    NotAbsolute {
        /// The path.
        path: String,
    },
    /// The operating system refused.
    #[error("{path} can't be read: {reason}")]
    Unreadable {
        /// The path.
        path: String,
        /// What the operating system said.
        reason: String,
    },
    /// Two such names could share one lossy text, and with it one document.
    #[error("{path} can't be read: its name is not valid UTF-8")]
    NameNotUtf8 {
        /// The path, as far as it is text.
        path: String,
    },
    /// A pipe, a device, a socket, or a symbolic link within a folder.
    #[error("{path} is a {kind}, not a regular file")]
    SpecialFile {
        /// The path.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// The file has more bytes than one document may have.
    #[error("{path} has more than {limit_bytes} bytes, the limit of one document")]
    TooLarge {
        /// The path.
        path: String,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The folder has more files than one request may read.
    #[error("{path} has more than {limit} files, the limit of one request")]
    TooManyFiles {
        /// The folder.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// A forced type is not on the list.
    #[error("unknown source type {given:?}")]
    UnknownType {
        /// What was asked for.
        given: String,
        /// Every type.
        known: String,
    },
    /// A type was forced that does not go with the path.
    #[error("{path} is a file, and source type \"folder\" needs a folder")]
    NotAFolder {
        /// The path.
        path: String,
    },
    /// No source reads files of this name.
    #[error("{path} is of an unsupported type: {extension}")]
    UnsupportedType {
        /// The path.
        path: String,
        /// The extension that nobody knows.
        extension: String,
        /// Every type with its extensions.
        supported: String,
    },
    /// The folder is there and has nothing to read.
    #[error("{path} has no readable documents; {seen}")]
    NoReadableDocuments {
        /// The folder.
        path: String,
        /// What it has instead.
        seen: String,
        /// Every type with its extensions.
        supported: String,
    },
    /// The bytes are no text.
    #[error("{name} holds {found}, not text")]
    Binary {
        /// The document.
        name: String,
        /// What the bytes look like.
        found: String,
        /// What to do.
        fix: String,
    },
    /// The bytes are text in an encoding that can't be told.
    #[error("{name} is not valid {encoding}: {reason}")]
    BadEncoding {
        /// The document.
        name: String,
        /// The encoding that it was read as.
        encoding: &'static str,
        /// Where it breaks.
        reason: String,
    },
    /// There is nothing to find in the document.
    #[error("{name} is empty{detail}")]
    Empty {
        /// The document.
        name: String,
        /// How empty, with leading punctuation, or nothing.
        detail: &'static str,
    },
    /// Something about the document itself.
    #[error("{name} {reason}")]
    Document {
        /// The document.
        name: String,
        /// What kind of fault.
        fault: Fault,
        /// What is wrong, as the rest of a sentence about the document.
        reason: String,
        /// What to do.
        fix: String,
    },
    /// As another process, that read the document apart from this one, told it.
    #[error("{message}")]
    Told {
        /// Stable, lower snake case.
        code: &'static str,
        /// What failed, on what.
        message: String,
        /// The fix.
        hint: Option<String>,
    },
}

/// What can be wrong with a document or with a place that documents come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It can't be opened without its password.
    Encrypted,
    /// It can be read, and has no text.
    NoText,
    /// It is not what its format says.
    Malformed,
    /// It is larger, deeper or more than a limit allows.
    LimitExceeded,
    /// The library that reads the format failed on it.
    ExtractionFailed,
    /// Reading it took too long.
    TimedOut,
    /// An entry of an archive whose name or kind leads elsewhere.
    UnsafeEntry,
    /// Its rows are asked for, and it has none.
    NotTabular,
    /// The address is of a kind that is not read.
    AddressRefused,
    /// The place does not answer, or says no.
    SourceFailed,
    /// The query is none that only reads.
    QueryRefused,
    /// An option that does not go with the source.
    BadOption,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 12] = [
        Self::Encrypted,
        Self::NoText,
        Self::Malformed,
        Self::LimitExceeded,
        Self::ExtractionFailed,
        Self::TimedOut,
        Self::UnsafeEntry,
        Self::NotTabular,
        Self::AddressRefused,
        Self::SourceFailed,
        Self::QueryRefused,
        Self::BadOption,
    ];

    /// Stable code, lower snake case.
    pub fn code(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::NoText => "no_text",
            Self::Malformed => "malformed_document",
            Self::LimitExceeded => "limit_exceeded",
            Self::ExtractionFailed => "extraction_failed",
            Self::TimedOut => "timed_out",
            Self::UnsafeEntry => "unsafe_entry",
            Self::NotTabular => "not_tabular",
            Self::AddressRefused => "address_refused",
            Self::SourceFailed => "source_failed",
            Self::QueryRefused => "query_refused",
            Self::BadOption => "bad_option",
        }
    }
}

impl SourceError {
    pub(crate) fn fault(name: &str, fault: Fault, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Document { name: clip(name), fault, reason: reason.into(), fix: fix.into() }
    }

    /// A document that can be read and has nothing to find.
    pub fn no_text(name: &str, why: &str) -> Self {
        Self::fault(name, Fault::NoText, format!("has no text: {why}"), "give it text, or leave it out (--exclude)")
    }

    /// The same of a document that may be made of pictures.
    pub(crate) fn no_text_but_pictures(name: &str, why: &str) -> Self {
        Self::fault(
            name,
            Fault::NoText,
            format!("has no text: {why}"),
            "convert it to a format with text, for a scan by character recognition, and ingest that",
        )
    }

    /// A document that is not what its format says. What the library said is cut: it may quote the document.
    pub(crate) fn malformed(name: &str, format: &str, reason: impl std::fmt::Display) -> Self {
        let reason = clip(&reason.to_string());
        Self::fault(
            name,
            Fault::Malformed,
            format!("is no readable {format}: {reason}"),
            "open it with the program that it is from and save it again, or force the type with --type",
        )
    }

    /// Stable code, lower snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::NotAbsolute { .. } => "path_not_absolute",
            Self::Unreadable { .. } | Self::NameNotUtf8 { .. } => "unreadable",
            Self::SpecialFile { .. } => "special_file",
            Self::TooLarge { .. } => "too_large",
            Self::TooManyFiles { .. } => "too_many_files",
            Self::UnknownType { .. } => "unknown_source_type",
            Self::NotAFolder { .. } => "not_a_folder",
            Self::UnsupportedType { .. } => "unsupported_type",
            Self::NoReadableDocuments { .. } => "no_readable_documents",
            Self::Binary { .. } => "binary_content",
            Self::BadEncoding { .. } => "bad_encoding",
            Self::Empty { .. } => "empty_document",
            Self::Document { fault, .. } => fault.code(),
            Self::Told { code, .. } => code,
        }
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotFound { .. } => "check the path; it is read where the ingester runs".to_owned(),
            Self::NotAbsolute { .. } => "give the whole path, beginning with '/'".to_owned(),
            Self::Unreadable { path, .. } => format!("make it readable, for example with: chmod u+r '{path}'"),
            Self::NameNotUtf8 { .. } => {
                "give it another name, for example with: convmv -f ISO-8859-1 -t UTF-8 --notest FILE".to_owned()
            }
            Self::SpecialFile { .. } => "copy its content into a regular file and ingest that".to_owned(),
            Self::TooLarge { .. } => "split the file, or raise RIVERRUN_INGEST_MAX_FILE_BYTES".to_owned(),
            Self::TooManyFiles { .. } => {
                "ingest its folders one by one, list what to leave out in a .gitignore, or raise RIVERRUN_INGEST_MAX_FILES".to_owned()
            }
            Self::UnknownType { known, .. } => format!("known types: {known}"),
            Self::NotAFolder { .. } => "leave --type out, and it is inferred from the name".to_owned(),
            Self::UnsupportedType { supported, .. } => {
                format!("supported: {supported}; if it is plain text, force it with --type text")
            }
            Self::NoReadableDocuments { supported, .. } => format!("supported: {supported}"),
            Self::Binary { fix, .. } => fix.clone(),
            Self::BadEncoding { name, .. } => format!("convert it to UTF-8, for example with: iconv -f ENCODING -t UTF-8 '{name}'"),
            Self::Empty { .. } => "put some text into it, or leave it out".to_owned(),
            Self::Document { fix, .. } => fix.clone(),
            Self::Told { hint, .. } => return hint.clone(),
        })
    }

    /// As events and problem documents carry it.
    pub fn failure(&self) -> Failure {
        Failure { code: self.code().to_owned(), message: self.to_string(), hint: self.hint() }
    }
}

/// The beginning of a text that came from outside, for a message.
pub(crate) fn clip(text: &str) -> String {
    const LIMIT: usize = 120;
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
