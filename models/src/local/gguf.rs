//! What the beginning of a GGUF file says of its model: what it is for, and the sizes that memory depends on.
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
    pub(super) shape: Shape,
}

/// The sizes that memory depends on; 0 is what the file does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Tokens that the model was trained for.
    pub(super) context: u64,
    pub(super) layers: u64,
    pub(super) embedding: u64,
    pub(super) feed_forward: PerLayer,
    pub(super) heads: PerLayer,
    /// Heads whose keys and values are kept; as many as there are heads where the file does not say.
    pub(super) cached_heads: PerLayer,
    /// Length of a head's key; the embedding divided by the heads where the file does not say.
    pub(super) key: u64,
    /// Length of a head's value, as above.
    pub(super) value: u64,
    pub(super) vocabulary: u64,
}

/// A number of every layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PerLayer {
    /// The same in all of them.
    Same(u64),
    /// Each has its own.
    Each {
        /// Of all layers.
        sum: u64,
        /// The largest.
        most: u64,
    },
}

impl Default for PerLayer {
    fn default() -> Self {
        PerLayer::Same(0)
    }
}

impl PerLayer {
    fn sum(self, layers: u64) -> u64 {
        match self {
            PerLayer::Same(number) => number.saturating_mul(layers),
            PerLayer::Each { sum, .. } => sum,
        }
    }

    fn most(self) -> u64 {
        match self {
            PerLayer::Same(number) => number,
            PerLayer::Each { most, .. } => most,
        }
    }
}

impl Shape {
    /// Numbers that are kept of each token of a context.
    pub(super) fn cached_numbers(&self) -> u64 {
        let heads = if self.cached_heads.most() == 0 { self.heads } else { self.cached_heads };
        heads.sum(self.layers).saturating_mul(self.key().saturating_add(self.value()))
    }

    /// Most numbers that a computation holds of each token at once: the layer's input and output, and the widest of what is between them.
    pub(super) fn widest(&self) -> u64 {
        let attention = self.heads.most().saturating_mul(self.key().max(self.value()));
        let between = attention.max(self.feed_forward.most()).saturating_mul(3).max(self.vocabulary);
        self.embedding.saturating_mul(2).saturating_add(between)
    }

    /// Heads of the layer that has most.
    pub(super) fn most_heads(&self) -> u64 {
        self.heads.most()
    }

    fn key(&self) -> u64 {
        if self.key == 0 { self.of_a_head() } else { self.key }
    }

    fn value(&self) -> u64 {
        if self.value == 0 { self.of_a_head() } else { self.value }
    }

    fn of_a_head(&self) -> u64 {
        self.embedding.checked_div(self.heads.most()).unwrap_or(0)
    }

    fn take(&mut self, key: &str, given: PerLayer) {
        // Every architecture has its own name in front.
        match key.split_once('.').map(|(_, name)| name).unwrap_or_default() {
            "context_length" => self.context = given.most(),
            "block_count" => self.layers = given.most(),
            "embedding_length" => self.embedding = given.most(),
            "feed_forward_length" => self.feed_forward = given,
            "attention.head_count" => self.heads = given,
            "attention.head_count_kv" => self.cached_heads = given,
            "attention.key_length" => self.key = given.most(),
            "attention.value_length" => self.value = given.most(),
            "vocab_size" => self.vocabulary = given.most(),
            _ => {}
        }
    }
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
        // The vocabulary stands behind the parameters, and it is large: it is counted, not read.
        if key.starts_with("tokenizer.") {
            if let Ok(Some(words)) = vocabulary(key, &mut input) {
                header.shape.vocabulary = words;
            }
            break;
        }
        match number32(&mut input)? {
            TEXT if key == "general.architecture" => header.architecture = text(&mut input)?,
            NUMBER if key.ends_with(".pooling_type") => header.pooling = Some(number32(&mut input)?),
            kind => {
                if let Some(given) = numbers(&mut input, kind)? {
                    header.shape.take(&key, given);
                }
            }
        }
    }
    Ok(header)
}

/// How many words a model knows, from the first key of its tokenizer on; none where something else that is large stands before them.
fn vocabulary(mut key: String, input: &mut impl Read) -> io::Result<Option<u64>> {
    for _ in 0..MAX_PAIRS {
        match number32(input)? {
            LIST if key == "tokenizer.ggml.tokens" => {
                let _kind = number32(input)?;
                return number64(input).map(Some);
            }
            LIST => return Ok(None),
            kind => skip(input, kind)?,
        }
        key = text(input)?;
    }
    Ok(None)
}

/// `GGUF_TYPE_UINT32`.
const NUMBER: u32 = 4;
/// `GGUF_TYPE_STRING`.
pub(super) const TEXT: u32 = 8;
/// `GGUF_TYPE_ARRAY`.
pub(super) const LIST: u32 = 9;

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
            return skip_all(input, kind, count);
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let mut rest = [0; 8];
    input.read_exact(&mut rest[..size])
}

fn skip_all(input: &mut impl Read, kind: u32, count: u64) -> io::Result<()> {
    (0..count).try_for_each(|_| skip(input, kind))
}

/// A whole number, or a list of them; none of anything else, which is skipped.
fn numbers(input: &mut impl Read, kind: u32) -> io::Result<Option<PerLayer>> {
    if let Some(number) = whole(input, kind)? {
        return Ok(Some(PerLayer::Same(number)));
    }
    if kind != LIST {
        return skip(input, kind).map(|()| None);
    }
    let kind = number32(input)?;
    let count = limited(number64(input)?)?;
    if kind == LIST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let (mut sum, mut most) = (0_u64, 0);
    for place in 0..count {
        let Some(number) = whole(input, kind)? else {
            return skip_all(input, kind, count - place).map(|()| None);
        };
        sum = sum.saturating_add(number);
        most = most.max(number);
    }
    Ok(Some(PerLayer::Each { sum, most }))
}

/// A whole number of a kind that is one; of another kind nothing is read.
fn whole(input: &mut impl Read, kind: u32) -> io::Result<Option<u64>> {
    match kind {
        4 | 5 => number32(input).map(|number| Some(u64::from(number))),
        10 | 11 => number64(input).map(Some),
        _ => Ok(None),
    }
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

pub(super) fn number32(input: &mut impl Read) -> io::Result<u32> {
    bytes(input).map(u32::from_le_bytes)
}

pub(super) fn number64(input: &mut impl Read) -> io::Result<u64> {
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
    fn given_a_header_when_it_is_read_then_the_sizes_that_memory_depends_on_are_known() {
        let one = |number: u32| number.to_le_bytes().to_vec();
        let list = |kind: u32, count: u64| [kind.to_le_bytes().to_vec(), count.to_le_bytes().to_vec()].concat();
        let heads = [list(5, 3), one(8), one(4), one(2)].concat();
        let mut pairs = vec![
            ("general.architecture", TEXT, string("gemma3")),
            ("gemma3.context_length", NUMBER, one(32_768)),
            ("gemma3.block_count", 10, 3_u64.to_le_bytes().to_vec()),
            ("gemma3.embedding_length", NUMBER, one(640)),
            ("gemma3.feed_forward_length", NUMBER, one(2_048)),
            ("gemma3.attention.head_count", NUMBER, one(16)),
            ("gemma3.attention.head_count_kv", LIST, heads),
            ("gemma3.attention.key_length", NUMBER, one(256)),
            ("gemma3.rope.freq_base", 6, one(0)),
            ("gemma3.flags", LIST, [list(7, 2), vec![1, 0]].concat()),
            ("tokenizer.ggml.model", TEXT, string("gpt2")),
            ("tokenizer.ggml.tokens", LIST, list(TEXT, 262_144)),
        ];
        let shape = read(file(&pairs).as_slice()).unwrap().shape;
        let wanted = Shape {
            context: 32_768,
            layers: 3,
            embedding: 640,
            feed_forward: PerLayer::Same(2_048),
            heads: PerLayer::Same(16),
            cached_heads: PerLayer::Each { sum: 14, most: 8 },
            key: 256,
            value: 0,
            vocabulary: 262_144,
        };
        assert_eq!(shape, wanted);
        assert_eq!(shape.cached_numbers(), 14 * (256 + 40));
        assert_eq!(shape.widest(), 2 * 640 + 262_144);
        pairs.insert(10, ("tokenizer.ggml.merges", LIST, list(TEXT, 1 << 40)));
        let cut = read(file(&pairs).as_slice()).unwrap().shape;
        assert_eq!(cut, Shape { vocabulary: 0, ..wanted }, "what stands before the vocabulary is kept");
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
