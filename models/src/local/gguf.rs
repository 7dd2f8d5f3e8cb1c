//! What the beginning of a GGUF file says that its model is for.
//!
//! Only the key-value pairs before the vocabulary are read, a few kilobytes; llama.cpp reads the whole file when the model is loaded.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::provider::ModelKind;

/// Bytes of a header that are read at most.
const MAX_BYTES: u64 = 1 << 20;
/// A longer text or list is not among the pairs before the vocabulary.
const MAX_LENGTH: u64 = 1 << 16;
/// Pairs that are read at most.
const MAX_PAIRS: u64 = 4096;

/// What is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) architecture: String,
    /// `LLAMA_POOLING_TYPE_*`; none when the file does not say.
    pub(super) pooling: Option<u32>,
}

/// `LLAMA_POOLING_TYPE_RANK`.
const RANK: u32 = 4;

impl Header {
    /// Reads a file's header; an unreadable one says nothing.
    pub(super) fn read(path: &Path) -> Self {
        File::open(path).and_then(|file| read(BufReader::new(file.take(MAX_BYTES)))).unwrap_or_default()
    }

    /// What the model is for: files of encoders say how tokens are pooled, those of chat models do not.
    pub(super) fn kind(&self) -> ModelKind {
        match self.pooling {
            Some(RANK) => ModelKind::Rerank,
            Some(1..=3) => ModelKind::Embed,
            None if self.architecture.contains("bert") => ModelKind::Embed,
            _ => ModelKind::Chat,
        }
    }
}

fn read(mut input: impl Read) -> io::Result<Header> {
    let mut header = Header::default();
    if &bytes::<4>(&mut input)? != b"GGUF" {
        return Ok(header);
    }
    let _version = number32(&mut input)?;
    let _tensors = number64(&mut input)?;
    let pairs = number64(&mut input)?.min(MAX_PAIRS);
    for _ in 0..pairs {
        let key = text(&mut input)?;
        // The vocabulary stands behind the parameters, and it is large.
        if key.starts_with("tokenizer.") {
            break;
        }
        match number32(&mut input)? {
            TEXT if key == "general.architecture" => header.architecture = text(&mut input)?,
            NUMBER if key.ends_with(".pooling_type") => header.pooling = Some(number32(&mut input)?),
            kind => skip(&mut input, kind)?,
        }
    }
    Ok(header)
}

/// `GGUF_TYPE_UINT32`.
const NUMBER: u32 = 4;
/// `GGUF_TYPE_STRING`.
const TEXT: u32 = 8;
/// `GGUF_TYPE_ARRAY`.
const LIST: u32 = 9;

fn skip(input: &mut impl Read, kind: u32) -> io::Result<()> {
    let size = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        TEXT => return text(input).map(drop),
        LIST => {
            let kind = number32(input)?;
            let count = limited(number64(input)?)?;
            if kind == LIST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            return (0..count).try_for_each(|_| skip(input, kind));
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let mut rest = [0; 8];
    input.read_exact(&mut rest[..size])
}

fn text(input: &mut impl Read) -> io::Result<String> {
    let length = limited(number64(input)?)?;
    let mut text = vec![0; length as usize];
    input.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn limited(length: u64) -> io::Result<u64> {
    if length > MAX_LENGTH { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

fn number32(input: &mut impl Read) -> io::Result<u32> {
    bytes(input).map(u32::from_le_bytes)
}

fn number64(input: &mut impl Read) -> io::Result<u64> {
    bytes(input).map(u64::from_le_bytes)
}

fn bytes<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pairs: &[(&str, u32, Vec<u8>)]) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend(0_u64.to_le_bytes());
        file.extend((pairs.len() as u64).to_le_bytes());
        for (key, kind, value) in pairs {
            file.extend(string(key));
            file.extend(kind.to_le_bytes());
            file.extend(value);
        }
        file
    }

    fn string(text: &str) -> Vec<u8> {
        [(text.len() as u64).to_le_bytes().as_slice(), text.as_bytes()].concat()
    }

    #[test]
    fn given_headers_when_they_are_read_then_pooling_tells_what_the_model_is_for() {
        let list = [TEXT.to_le_bytes().to_vec(), 2_u64.to_le_bytes().to_vec(), string("a"), string("b")].concat();
        let of = |architecture: &str, pooling: Option<u32>| {
            let mut pairs = vec![
                ("general.architecture", TEXT, string(architecture)),
                ("general.tags", LIST, list.clone()),
                ("x.flag", 7, vec![1]),
                ("x.wide", 12, vec![0; 8]),
            ];
            pairs.extend(pooling.map(|pooling| ("x.pooling_type", NUMBER, pooling.to_le_bytes().to_vec())));
            pairs.push(("tokenizer.ggml.tokens", 99, vec![]));
            read(file(&pairs).as_slice()).unwrap()
        };
        for (architecture, pooling, kind) in [
            ("llama", None, ModelKind::Chat),
            ("qwen3", Some(0), ModelKind::Chat),
            ("qwen3", Some(3), ModelKind::Embed),
            ("nomic-bert", Some(1), ModelKind::Embed),
            ("bert", None, ModelKind::Embed),
            ("bert", Some(4), ModelKind::Rerank),
        ] {
            let header = of(architecture, pooling);
            assert_eq!((header.architecture.as_str(), header.pooling, header.kind()), (architecture, pooling, kind));
        }
    }

    #[test]
    fn given_broken_headers_when_they_are_read_then_they_say_nothing_and_take_no_memory() {
        let huge = [u64::MAX.to_le_bytes().as_slice(), b"x"].concat();
        for bytes in [
            vec![],
            b"GGUF".to_vec(),
            b"GGML and more".to_vec(),
            file(&[("a", TEXT, huge.clone())]),
            file(&[("a", LIST, [NUMBER.to_le_bytes().as_slice(), &huge].concat())]),
            file(&[("a", 99, vec![])]),
        ] {
            assert_eq!(read(bytes.as_slice()).unwrap_or_default(), Header::default());
        }
    }

    mod fuzz_tests {
        use super::*;
        use crate::fuzz::{Target, run};

        #[test]
        fn gguf_headers_are_read_or_refused() {
            let list = [TEXT.to_le_bytes().to_vec(), 2_u64.to_le_bytes().to_vec(), string("a"), string("b")].concat();
            let corpus = [file(&[
                ("general.architecture", TEXT, string("nomic-bert")),
                ("general.tags", LIST, list),
                ("x.flag", 7, vec![1]),
                ("x.pooling_type", NUMBER, 1_u32.to_le_bytes().to_vec()),
                ("tokenizer.ggml.tokens", 99, vec![]),
            ])];
            let words = ["GGUF", ".pooling_type", "general.architecture", "tokenizer."];
            run(&Target { name: "gguf_headers", corpus: &corpus, words: &words, inputs: 10_000 }, |bytes| {
                let _ = read(bytes).map(|header| header.kind());
            });
        }
    }
}
