//! Zip packages that are read in memory: office documents and books. Nothing is ever written to a disk.

use std::io::{Cursor, Read};

use zip::ZipArchive;
use zip::result::ZipError;

use super::xml::{self, Node};
use super::{Fault, SourceError};

/// Most bytes that the parts of one package may unpack to together.
const MAX_UNPACKED_BYTES: u64 = 128 << 20;

/// Most parts of a package.
const MAX_PARTS: usize = 20_000;

/// How many times larger than packed a part may be once it has more than [`FREE_BYTES`]. Deflate reaches about 1,000 on zeros;
/// the text of office documents is below 50.
const MAX_RATIO: u64 = 200;

/// Bytes up to which the ratio of a part does not matter.
pub(super) const FREE_BYTES: u64 = 1 << 20;

/// A relation of a part: its id, its kind and its target.
pub(super) type Relation = (String, String, String);

/// A package, and what it may still unpack.
pub(super) struct Package<'d> {
    name: &'d str,
    format: &'static str,
    zip: ZipArchive<Cursor<&'d [u8]>>,
    left: u64,
}

impl<'d> Package<'d> {
    /// Opens a document of `format`. `name` is only for messages.
    pub(super) fn open(name: &'d str, format: &'static str, bytes: &'d [u8]) -> Result<Self, SourceError> {
        if bytes.is_empty() {
            return Err(SourceError::Empty { name: name.to_owned(), detail: "" });
        }
        // Office writes what is protected by a password into the older container.
        if bytes.starts_with(b"\xd0\xcf\x11\xe0") {
            return Err(SourceError::fault(
                name,
                Fault::Encrypted,
                format!("is an old office document or a {format} that is protected by a password"),
                "save it without a password in the current format",
            ));
        }
        let zip = ZipArchive::new(Cursor::new(bytes)).map_err(|error| SourceError::malformed(name, format, error))?;
        if zip.len() > MAX_PARTS {
            return Err(limit(name, format!("has {} parts; at most {MAX_PARTS} are read", zip.len())));
        }
        Ok(Self { name, format, zip, left: MAX_UNPACKED_BYTES })
    }

    /// The names of the parts.
    pub(super) fn parts(&self) -> Vec<String> {
        self.zip.file_names().filter_map(|name| name.ok().map(|name| name.into_owned())).collect()
    }

    /// The bytes of a part; `None` when there is no such part.
    pub(super) fn part(&mut self, part: &str) -> Result<Option<Vec<u8>>, SourceError> {
        let (name, format) = (self.name, self.format);
        let file = match self.zip.by_name(part) {
            Ok(file) => file,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(ZipError::UnsupportedArchive(reason)) if reason.contains("assword") => {
                return Err(encrypted(name, part));
            }
            Err(error) => return Err(SourceError::malformed(name, format, format!("{part}: {error}"))),
        };
        if file.encrypted() {
            return Err(encrypted(name, part));
        }
        let packed = file.compressed_size();
        let allowed = self.left.min(packed.saturating_mul(MAX_RATIO).max(FREE_BYTES));
        // What the directory says of sizes may be a lie: one byte more than allowed tells.
        let mut bytes = Vec::new();
        file.take(allowed + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| SourceError::malformed(name, format, format!("{part}: {error}")))?;
        if bytes.len() as u64 > allowed {
            return Err(limit(name, format!("unpacks to too much: {part} has more than {allowed} bytes")));
        }
        self.left -= bytes.len() as u64;
        Ok(Some(bytes))
    }

    /// The text of a part in XML; `None` when there is no such part.
    pub(super) fn xml(&mut self, part: &str) -> Result<Option<String>, SourceError> {
        let Some(bytes) = self.part(part)? else { return Ok(None) };
        let text = xml::decode(&bytes)
            .ok_or_else(|| SourceError::malformed(self.name, self.format, format!("{part} is not valid text")))?;
        Ok(Some(text))
    }

    /// The relations of a part.
    pub(super) fn relations(&mut self, part: &str) -> Result<Vec<Relation>, SourceError> {
        let (folder, file) = part.rsplit_once('/').unwrap_or(("", part));
        let Some(xml) = self.xml(&format!("{folder}/_rels/{file}.rels"))? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        xml::walk(self.name, self.format, &xml, |node| {
            if let Node::Open(tag) = node
                && tag.name() == "Relationship"
                && let (Some(id), Some(kind), Some(target)) =
                    (tag.attribute("Id"), tag.attribute("Type"), tag.attribute("Target"))
            {
                found.push((id, kind, resolve(part, &target)));
            }
        })?;
        Ok(found)
    }

    /// The text of a part in XML that the format can't be without.
    pub(super) fn needed(&mut self, part: &str) -> Result<String, SourceError> {
        let (name, format) = (self.name, self.format);
        self.xml(part)?.ok_or_else(|| SourceError::malformed(name, format, format!("it has no part {part}")))
    }
}

fn encrypted(name: &str, part: &str) -> SourceError {
    SourceError::fault(name, Fault::Encrypted, format!("has an encrypted part: {part}"), "save it without a password")
}

fn limit(name: &str, reason: String) -> SourceError {
    SourceError::fault(name, Fault::LimitExceeded, reason, "split the document, or save it without what is not text")
}

/// A path within a package: `target` as written in the part `from`, without a leading slash and with `..` taken away.
pub(super) fn resolve(from: &str, target: &str) -> String {
    let target = target.split(['#', '?']).next().unwrap_or_default();
    let mut path: Vec<&str> = Vec::new();
    if !target.starts_with('/') {
        path.extend(from.split('/'));
        path.pop();
    }
    for step in target.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                path.pop();
            }
            step => path.push(step),
        }
    }
    path.join("/")
}
