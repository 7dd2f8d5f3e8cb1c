//! What llama.cpp asserts of a GGUF file where it could refuse it. An assertion that does not hold ends the whole process, so a file is
//! looked through before llama.cpp gets it.
//!
//! The conditions are those that `llama_model_base::load_hparams` has for every architecture, that of ggml's normalizations, and that of
//! llama.cpp's bindings for a context.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::extent::{self, Counted, Extent};
use super::gguf::{LIST, TEXT, number32, number64};

/// `LLAMA_MAX_LAYERS`.
const MAX_LAYERS: u64 = 512;
/// `LLAMA_MAX_EXPERTS`.
const MAX_EXPERTS: u64 = 1024;
/// `GGUF_TYPE_FLOAT32`.
const FLOAT: u32 = 6;
/// `GGML_TYPE_F32`.
const TENSOR_OF_FLOATS: u32 = 0;
/// Bytes that there are.
const BYTES: usize = 256;
/// `LLAMA_ROPE_SCALING_TYPES`.
const SCALINGS: [&str; 4] = ["none", "linear", "yarn", "longrope"];
/// Bytes of a name or of a text that is of interest; a longer one is passed over.
const MAX_TEXT: u64 = 1 << 10;

/// Says what is wrong with a file that llama.cpp would end the process for, or that is cut off. What else it refuses by itself is not looked
/// for.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let mut facts = Facts::default();
    let (size, read) = size_and(path, &mut facts).map_err(|error| error.to_string())?;
    // Of a header that can't be read to its end, what stands before the place counts.
    facts.check()?;
    extent::check(&read, size)
}

/// Says that a file is empty, or shorter than its header says. Its tensors are not read.
pub(super) fn check_size(path: &Path) -> Result<(), String> {
    let (size, read) = size_and(path, &mut Facts::default()).map_err(|error| error.to_string())?;
    extent::check(&read, size)
}

/// A file's size, and the one that its header tells.
fn size_and(path: &Path, facts: &mut Facts) -> io::Result<(u64, io::Result<u64>)> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    Ok((size, facts.read(BufReader::new(file))))
}

/// The pairs of a header that assertions are about, without the architecture in front of their names.
#[derive(Debug, Default)]
struct Facts {
    architecture: String,
    scaling: Option<String>,
    /// Whole numbers; of a list the largest.
    numbers: HashMap<String, u64>,
    /// What the vocabulary is of.
    vocabulary: String,
    /// Bytes that a word of the vocabulary stands for.
    bytes: HashSet<u8>,
    /// The first tensor of one dimension that is added or multiplied and not of 32 bits.
    narrow: Option<String>,
    /// An epsilon that is below 0 or no number.
    epsilon: Option<(String, f32)>,
    extent: Extent,
}

impl Facts {
    /// Reads a header; answers the bytes that the file has to have.
    fn read(&mut self, input: impl Read) -> io::Result<u64> {
        let mut input = Counted::of(input);
        // The magic and the version; then how many tensors and how many pairs there are.
        skip(&mut input, 8)?;
        let tensors = number64(&mut input)?;
        let pairs = number64(&mut input)?;
        for _ in 0..pairs {
            let key = text(&mut input)?.unwrap_or_default();
            let kind = number32(&mut input)?;
            self.take(&key, kind, &mut input)?;
        }
        for _ in 0..tensors {
            let name = text(&mut input)?.unwrap_or_default();
            let mut numbers = 1_u64;
            for _ in 0..number32(&mut input)? {
                numbers = numbers.saturating_mul(number64(&mut input)?);
            }
            let kind = number32(&mut input)?;
            self.extent.take(numbers, kind, number64(&mut input)?);
            if kind != TENSOR_OF_FLOATS && (name.ends_with("norm.weight") || name.ends_with(".bias")) {
                self.narrow = self.narrow.take().or(Some(name));
            }
        }
        Ok(self.extent.of_file(input.bytes, self.numbers.get("alignment").copied()))
    }

    fn take(&mut self, key: &str, kind: u32, input: &mut impl Read) -> io::Result<()> {
        let name = key.split_once('.').map_or("", |(_, name)| name);
        match kind {
            TEXT => {
                let value = text(input)?.unwrap_or_default();
                if key == "general.architecture" {
                    self.architecture = value;
                } else if key == "tokenizer.ggml.model" {
                    self.vocabulary = value;
                } else if name == "rope.scaling.type" {
                    self.scaling = Some(value);
                }
                Ok(())
            }
            LIST => {
                let kind = number32(input)?;
                let count = number64(input)?;
                if kind == TEXT && key == "tokenizer.ggml.tokens" {
                    for _ in 0..count {
                        self.bytes.extend(short(input)?.as_deref().and_then(byte_of));
                    }
                    return Ok(());
                }
                if kind == TEXT {
                    return (0..count).try_for_each(|_| skip_text(input));
                }
                if !is_whole(kind) {
                    return skip(input, count.saturating_mul(size_of(kind)?));
                }
                let mut most = 0;
                for _ in 0..count {
                    most = most.max(u64::from(number32(input)?));
                }
                self.numbers.insert(name.to_owned(), most);
                Ok(())
            }
            FLOAT if name.ends_with("epsilon") => {
                let value = f32::from_bits(number32(input)?);
                if value < 0.0 || value.is_nan() {
                    self.epsilon = Some((name.to_owned(), value));
                }
                Ok(())
            }
            kind if is_whole(kind) => {
                self.numbers.insert(name.to_owned(), u64::from(number32(input)?));
                Ok(())
            }
            kind => skip(input, size_of(kind)?),
        }
    }

    fn check(&self) -> Result<(), String> {
        let number = |name: &str| self.numbers.get(name).copied().unwrap_or(0);
        let within = |name: &str, least: u64, most: u64| match self.numbers.get(name) {
            Some(given) if !(least..=most).contains(given) => {
                Err(format!("its {name:?} is {given}, and llama.cpp takes {least} to {most}"))
            }
            Some(_) | None => Ok(()),
        };
        if self.architecture == "clip" {
            return Err("it reads pictures for another model and is none by itself".to_owned());
        }
        let layers = number("block_count");
        within("block_count", 1, MAX_LAYERS)?;
        within("nextn_predict_layers", 0, layers)?;
        within("posnet.block_count", 0, layers)?;
        within("convnext.block_count", 0, layers)?;
        // What is larger comes back as a negative number.
        within("context_length", 0, i32::MAX as u64)?;
        if let Some(scaling) = self.scaling.as_deref().filter(|scaling| !SCALINGS.contains(scaling)) {
            return Err(format!(
                "its \"rope.scaling.type\" is {scaling:?}, and llama.cpp takes {}",
                SCALINGS.join(", ")
            ));
        }
        match self.vocabulary.as_str() {
            "no_vocab" => return Err("it has no vocabulary".to_owned()),
            // A character that is no word is read byte by byte.
            "llama" if self.bytes.len() < BYTES => {
                return Err(format!("its vocabulary has {} tokens of bytes, not all {BYTES}", self.bytes.len()));
            }
            _ => {}
        }
        if let Some(name) = &self.narrow {
            return Err(format!("its tensor {name:?} does not hold floats of 32 bits, as its kind must"));
        }
        if let Some((name, value)) = &self.epsilon {
            return Err(format!("its {name:?} is {value}, and llama.cpp takes 0 and more"));
        }
        let experts = number("expert_count");
        // There, one expert is none.
        if self.architecture.starts_with("hunyuan") && experts <= 1 {
            return Ok(());
        }
        within("expert_count", 0, MAX_EXPERTS)?;
        let (used, groups) = (number("expert_used_count"), number("expert_group_count"));
        let fits = if experts == 0 {
            used == 0 && groups == 0
        } else {
            let grouped = groups <= 1
                || (experts.is_multiple_of(groups) && (1..groups).contains(&number("expert_group_used_count")));
            (1..=experts).contains(&used) && groups < experts && grouped
        };
        if !fits {
            return Err(format!("it has {experts} experts, of which it uses {used}, in {groups} groups"));
        }
        Ok(())
    }
}

/// The byte that a word stands for: itself, or as in `<0x0A>`.
fn byte_of(word: &[u8]) -> Option<u8> {
    match word {
        [byte] => Some(*byte),
        [b'<', b'0', b'x', digits @ .., b'>'] if digits.len() == 2 => {
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        }
        _ => None,
    }
}

/// Whether numbers of a kind are whole ones of 32 bits, which all counts are. A negative one reads as a very large one.
fn is_whole(kind: u32) -> bool {
    matches!(kind, 4 | 5)
}

/// Bytes of a number of a kind.
fn size_of(kind: u32) -> io::Result<u64> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A text; none where it is a long one.
fn text(input: &mut impl Read) -> io::Result<Option<String>> {
    Ok(short(input)?.map(|text| String::from_utf8_lossy(&text).into_owned()))
}

/// Its bytes.
fn short(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let length = number64(input)?;
    if length > MAX_TEXT {
        return skip(input, length).map(|()| None);
    }
    let mut text = Vec::new();
    if input.take(length).read_to_end(&mut text)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(text))
}

fn skip_text(input: &mut impl Read) -> io::Result<()> {
    let length = number64(input)?;
    skip(input, length)
}

fn skip(input: &mut impl Read, bytes: u64) -> io::Result<()> {
    let passed = io::copy(&mut input.take(bytes), &mut io::sink())?;
    if passed == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u32 = 4;

    fn string(text: &str) -> Vec<u8> {
        [(text.len() as u64).to_le_bytes().as_slice(), text.as_bytes()].concat()
    }

    fn one(number: u32) -> Vec<u8> {
        number.to_le_bytes().to_vec()
    }

    fn list(kind: u32, items: &[Vec<u8>]) -> Vec<u8> {
        [one(kind), (items.len() as u64).to_le_bytes().to_vec(), items.concat()].concat()
    }

    fn file(pairs: &[(&str, u32, Vec<u8>)]) -> Vec<u8> {
        let head =
            [b"GGUF".to_vec(), one(3), 0_u64.to_le_bytes().to_vec(), (pairs.len() as u64).to_le_bytes().to_vec()];
        let pairs = pairs.iter().map(|(key, kind, value)| [string(key), one(*kind), value.clone()].concat());
        head.into_iter().chain(pairs).collect::<Vec<Vec<u8>>>().concat()
    }

    /// A vocabulary with the tokens of some bytes.
    fn bytes(count: u32) -> (&'static str, u32, Vec<u8>) {
        let bytes = (0..count).map(|byte| string(&format!("<0x{byte:02X}>")));
        let words: Vec<Vec<u8>> = [string("<0x>"), string("<0xé>"), string("A")].into_iter().chain(bytes).collect();
        ("tokenizer.ggml.tokens", LIST, list(TEXT, &words))
    }

    fn checked(bytes: &[u8]) -> Result<(), String> {
        let mut facts = Facts::default();
        let _ = facts.read(bytes);
        facts.check()
    }

    /// A sound file with some pairs in the place of its own, or behind them.
    fn with(changes: &[(&str, u32, Vec<u8>)]) -> Vec<u8> {
        let mut pairs = vec![
            ("general.architecture", TEXT, string("llama")),
            ("general.description", TEXT, string(&"long ".repeat(1_000))),
            ("tokenizer.ggml.tokens", LIST, list(TEXT, &[string("a"), string(""), string("b")])),
            ("tokenizer.ggml.scores", LIST, list(6, &[one(0), one(1)])),
            ("llama.rope.freq_base", 6, one(0)),
            ("llama.wide", 12, vec![0; 8]),
            ("llama.flag", 7, vec![1]),
            ("llama.context_length", NUMBER, one(2_048)),
            ("llama.block_count", NUMBER, one(30)),
        ];
        for change in changes {
            match pairs.iter_mut().find(|(key, _, _)| *key == change.0) {
                Some(pair) => *pair = change.clone(),
                None => pairs.push(change.clone()),
            }
        }
        file(&pairs)
    }

    #[test]
    fn given_sound_files_and_those_that_llama_cpp_refuses_by_itself_when_they_are_checked_then_they_pass() {
        let experts = |all: u32, used: u32| {
            [("llama.expert_count", NUMBER, one(all)), ("llama.expert_used_count", NUMBER, one(used))]
        };
        let mut grouped = experts(64, 8).to_vec();
        grouped.push(("llama.expert_group_count", NUMBER, one(8)));
        grouped.push(("llama.expert_group_used_count", NUMBER, one(4)));
        let of_layers = [
            ("llama.expert_count", NUMBER, one(4)),
            ("llama.expert_used_count", LIST, list(NUMBER, &[one(1), one(4), one(2)])),
        ];
        let hunyuan = [
            ("general.architecture", TEXT, string("hunyuan-dense")),
            ("hunyuan-dense.expert_count", NUMBER, one(1)),
            ("hunyuan-dense.expert_used_count", NUMBER, one(1)),
        ];
        for bytes in [
            with(&[]),
            with(&experts(8, 2)),
            with(&grouped),
            with(&of_layers),
            with(&hunyuan),
            with(&[("llama.rope.scaling.type", TEXT, string("yarn"))]),
            with(&[("tokenizer.ggml.model", TEXT, string("llama")), bytes(256)]),
            with(&[("tokenizer.ggml.model", TEXT, string("gpt2"))]),
            with(&[("llama.attention.head_count", NUMBER, one(u32::MAX))]),
            with(&[("llama.attention.layer_norm_rms_epsilon", FLOAT, one(1e-5_f32.to_bits()))]),
            Vec::new(),
            b"GGUF".to_vec(),
            file(&[("a", 99, Vec::new())]),
        ] {
            assert_eq!(checked(&bytes), Ok(()));
        }
    }

    #[test]
    fn given_a_file_that_is_cut_off_anywhere_when_it_is_checked_then_it_is_said_so_and_a_whole_one_passes() {
        let mut whole = with(&[("general.alignment", NUMBER, one(64))]);
        whole[8..16].copy_from_slice(&1_u64.to_le_bytes());
        let shape = [one(2), 256_u64.to_le_bytes().to_vec(), 3_u64.to_le_bytes().to_vec()].concat();
        whole.extend([string("output.weight"), shape, one(12), vec![0; 8]].concat());
        let header = whole.len();
        whole.resize(header.next_multiple_of(64) + 3 * 144, 0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let of = |length: usize| {
            std::fs::write(&path, &whole[..length]).unwrap();
            (check(&path), check_size(&path))
        };
        assert_eq!(of(whole.len()), (Ok(()), Ok(())));
        for length in [header, header + 1, whole.len() - 1] {
            let told = Err(format!("it is cut off: it has {length} bytes of {}", whole.len()));
            assert_eq!(of(length), (told.clone(), told));
        }
        for length in [4, 20, 30, header - 1] {
            let (loading, looking) = of(length);
            assert!(loading.unwrap_err().contains(&format!("its {length} bytes end within its header")));
            assert!(looking.is_err());
        }
        assert_eq!(of(0).1.unwrap_err(), "it is empty");
    }

    #[test]
    fn given_tensors_of_other_kinds_when_they_are_checked_then_only_those_that_are_added_or_multiplied_must_have_32_bits()
     {
        let of = |name: &str, kind: u32| {
            let mut bytes = with(&[]);
            bytes[8..16].copy_from_slice(&2_u64.to_le_bytes());
            for (name, kind) in [("output.weight", 12), (name, kind)] {
                bytes.extend([string(name), one(1), 64_u64.to_le_bytes().to_vec(), one(kind), vec![0; 8]].concat());
            }
            checked(&bytes)
        };
        assert_eq!(
            (of("output_norm.weight", 0), of("blk.0.attn_q.bias", 0), of("token_embd.weight", 1)),
            (Ok(()), Ok(()), Ok(()))
        );
        for name in ["output_norm.weight", "blk.0.attn_q.bias"] {
            assert!(of(name, 1).unwrap_err().contains(name));
        }
    }

    #[test]
    fn given_files_that_llama_cpp_would_end_the_process_for_when_they_are_checked_then_the_reason_is_told() {
        let number = |key: &'static str, value: u32| (key, NUMBER, one(value));
        let experts =
            |all: u32, used: u32| [number("llama.expert_count", all), number("llama.expert_used_count", used)];
        let groups = |count: u32, used: u32| {
            let [all, of_it] = experts(64, 8);
            [all, of_it, number("llama.expert_group_count", count), number("llama.expert_group_used_count", used)]
        };
        for (changes, reason) in [
            (vec![number("llama.block_count", 0)], "\"block_count\" is 0,"),
            (vec![number("llama.block_count", 513)], "\"block_count\" is 513,"),
            (vec![("llama.block_count", 5, one(u32::MAX))], "\"block_count\" is 4294967295,"),
            (vec![number("llama.nextn_predict_layers", 31)], "\"nextn_predict_layers\" is 31,"),
            (vec![number("llama.context_length", 1 << 31)], "\"context_length\" is 2147483648,"),
            (vec![("llama.rope.scaling.type", TEXT, string("other"))], "\"rope.scaling.type\" is \"other\","),
            (vec![("general.architecture", TEXT, string("clip"))], "pictures"),
            (vec![("tokenizer.ggml.model", TEXT, string("no_vocab"))], "no vocabulary"),
            (vec![("tokenizer.ggml.model", TEXT, string("llama"))], "2 tokens of bytes, not all 256"),
            (vec![("tokenizer.ggml.model", TEXT, string("llama")), bytes(255)], "255 tokens of bytes, not all 256"),
            (
                vec![("llama.attention.layer_norm_rms_epsilon", FLOAT, one((-1.0_f32).to_bits()))],
                "rms_epsilon\" is -1,",
            ),
            (vec![("llama.attention.layer_norm_epsilon", FLOAT, one(f32::NAN.to_bits()))], "norm_epsilon\" is NaN,"),
            (experts(1_025, 2).to_vec(), "\"expert_count\" is 1025,"),
            (experts(8, 9).to_vec(), "8 experts, of which it uses 9,"),
            (experts(8, 0).to_vec(), "8 experts, of which it uses 0,"),
            (experts(0, 2).to_vec(), "0 experts, of which it uses 2,"),
            (groups(64, 1).to_vec(), "in 64 groups"),
            (groups(7, 1).to_vec(), "in 7 groups"),
            (groups(8, 8).to_vec(), "in 8 groups"),
            (groups(8, 0).to_vec(), "in 8 groups"),
        ] {
            let bytes = with(&changes);
            let told = checked(&bytes).unwrap_err();
            assert!(told.contains(reason), "{told}");
            // Also where the file is cut off behind it.
            let mut cut = bytes.clone();
            cut.extend(string("general.more"));
            cut[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
            assert_eq!(checked(&cut).unwrap_err(), told);
        }
    }
}
