//! The tokenizer of a folder in Hugging Face's layout as GGUF files have it: tokens and merges as lists, and the way in which text is
//! split by one of the names that llama.cpp knows.

use std::path::Path;

use serde_json::Value;

use super::codec::{Settings, TextCodec};
use super::vocabulary::{GgufVocabulary, LLAMA3, QWEN2};
use crate::error::TrainingError;
use crate::files;

/// Kinds of tokens, as llama.cpp numbers them.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// What both must split alike: words, contractions, numbers, blanks, line ends, other scripts.
const PROBES: [&str; 3] = [
    "Hello, world! I'll say 12345 things, it's the user's.\n\n  indented\ttext\r\n \n",
    "naïve café — 数据 и слова, ١٢٣ 🙂",
    "a b  c   d\n1 22 333 4444 x1y22 snake_case CamelCase (a+b)*c",
];

/// The files of a tokenizer.
pub(crate) struct TokenizerFiles {
    tokenizer: Value,
    settings: Settings,
}

impl TokenizerFiles {
    pub(crate) fn read(folder: &Path) -> Result<Self, TrainingError> {
        let path = folder.join("tokenizer.json");
        let bytes = files::read(&path, files::MAX_TOKENIZER)?;
        let tokenizer = serde_json::from_slice(&bytes).map_err(|error| TrainingError::base(&path, error))?;
        Ok(Self { tokenizer, settings: Settings::of_folder(folder)? })
    }
}

/// A tokenizer for a GGUF file.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) vocabulary: GgufVocabulary,
    /// Of each token.
    pub(crate) kinds: Vec<i32>,
}

impl Listed {
    /// Of the files that `text` was made of, for embeddings of so many rows; or why no GGUF file can say it.
    pub(crate) fn of(files: &TokenizerFiles, text: &TextCodec, rows: usize) -> Result<Self, String> {
        let (json, settings) = (&files.tokenizer, &files.settings);
        check_model(&json["model"])?;
        let splitting = splitting(json)?;
        let (tokens, kinds) = tokens(json, rows)?;
        let id = |text: &str| tokens.iter().position(|token| token == text);
        let merges = merges(&json["model"])?;
        let controls = kinds.iter().enumerate().filter(|(_, kind)| **kind == CONTROL).map(|(id, _)| id).collect();
        let vocabulary = GgufVocabulary {
            merges,
            controls,
            splitting: splitting.to_owned(),
            template: settings.template.clone(),
            bos: settings.bos.as_deref().and_then(id),
            eos: id(&settings.eos),
            add_bos: settings.add_bos,
            tokens,
        };
        let listed = vocabulary.clone().codec()?;
        for probe in PROBES {
            if listed.tokens(probe)? != text.tokens(probe)? {
                return Err(format!("its tokenizer splits {probe:?} in another way than {splitting} does"));
            }
        }
        Ok(Self { vocabulary, kinds })
    }
}

/// Refuses what is not byte-level BPE as llama.cpp has it.
fn check_model(model: &Value) -> Result<(), String> {
    let kind = model["type"].as_str().unwrap_or("unknown");
    if kind != "BPE" || model["byte_fallback"] == true {
        return Err(format!("its tokenizer is {kind} and not byte-level BPE"));
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model[key].as_str().is_some_and(|text| !text.is_empty()) {
            return Err(format!("its tokenizer has a {key}"));
        }
    }
    Ok(())
}

/// llama.cpp's name of the way in which text is split.
fn splitting(json: &Value) -> Result<&'static str, String> {
    let before = &json["pre_tokenizer"];
    let steps: Vec<&Value> = match before["type"].as_str() {
        Some("Sequence") => before["pretokenizers"].as_array().into_iter().flatten().collect(),
        _ => vec![before],
    };
    let is_bytes = |step: &Value, by_words: bool| {
        let words = step["use_regex"].as_bool().unwrap_or(true);
        step["type"] == "ByteLevel" && step["add_prefix_space"] == false && words == by_words
    };
    let is_digits = |step: &Value| step["type"] == "Digits" && step["individual_digits"] == true;
    let pattern = |step: &Value| {
        let plain = step["type"] == "Split" && step["behavior"] == "Isolated" && step["invert"] != true;
        let text = if plain { step["pattern"]["Regex"].as_str() } else { None };
        text.unwrap_or_default().to_owned()
    };
    let name = match steps.as_slice() {
        [bytes] if is_bytes(bytes, true) => "gpt-2",
        [digits, bytes] if is_digits(digits) && is_bytes(bytes, true) => "smollm",
        [split, bytes] if is_bytes(bytes, false) && pattern(split) == QWEN2 => "qwen2",
        [split, bytes] if is_bytes(bytes, false) && pattern(split) == LLAMA3 => "llama-bpe",
        _ => return Err("its tokenizer splits text in a way that is not known here".to_owned()),
    };
    let normalizer = json["normalizer"]["type"].as_str();
    match (name, normalizer) {
        ("qwen2", Some("NFC")) => Ok(name),
        ("qwen2", _) | (_, Some(_)) => Err(format!(
            "its tokenizer changes text before it splits it: {}",
            normalizer.unwrap_or("not at all, where NFC is usual")
        )),
        (_, None) => Ok(name),
    }
}

/// A token for each row, with its kind.
fn tokens(json: &Value, rows: usize) -> Result<(Vec<String>, Vec<i32>), String> {
    let vocabulary = json["model"]["vocab"].as_object().ok_or("its tokenizer has no vocabulary")?;
    let place = |id: &Value| {
        let row = id.as_u64().and_then(|id| usize::try_from(id).ok()).filter(|row| *row < rows);
        row.ok_or_else(|| format!("its token {id} has no row in the embeddings"))
    };
    let mut found: Vec<Option<(&str, i32)>> = vec![None; rows];
    for (text, id) in vocabulary {
        found[place(id)?] = Some((text.as_str(), NORMAL));
    }
    for added in json["added_tokens"].as_array().into_iter().flatten() {
        let text = added["content"].as_str().ok_or("a token that was added has no text")?;
        let kind = if added["special"] == true { CONTROL } else { USER_DEFINED };
        found[place(&added["id"])?] = Some((text, kind));
    }
    let or_unused = |(row, token): (usize, Option<(&str, i32)>)| match token {
        Some((text, kind)) => (text.to_owned(), kind),
        None => (format!("[PAD{row}]"), UNUSED), // as llama.cpp's converter calls them
    };
    Ok(found.into_iter().enumerate().map(or_unused).unzip())
}

/// Merges are `"a b"`, or `["a", "b"]` in newer files.
fn merges(model: &Value) -> Result<Vec<String>, String> {
    let pair = |left: &str, right: &str| {
        let fit = [left, right].iter().all(|side| !side.is_empty() && !side.contains(' '));
        fit.then(|| format!("{left} {right}"))
    };
    let merge = |value: &Value| {
        let merge = match value {
            Value::String(text) => text.split_once(' ').and_then(|(left, right)| pair(left, right)),
            Value::Array(sides) => match sides.as_slice() {
                [Value::String(left), Value::String(right)] => pair(left, right),
                _ => None,
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        merge.ok_or_else(|| "one of its merges is none".to_owned())
    };
    let merges = model["merges"].as_array().into_iter().flatten().map(merge).collect::<Result<Vec<_>, _>>()?;
    if merges.is_empty() { Err("its tokenizer has no merges, and llama.cpp wants some".to_owned()) } else { Ok(merges) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{tokenizer_json, write_tokenizer};

    fn listed(json: &Value, rows: usize) -> Result<Listed, String> {
        let folder = tempfile::tempdir().unwrap();
        write_tokenizer(folder.path(), json);
        let text = TextCodec::of_folder(folder.path()).unwrap();
        Listed::of(&TokenizerFiles::read(folder.path()).unwrap(), &text, rows)
    }

    #[test]
    fn given_a_tokenizer_that_llama_cpp_knows_then_its_tokens_kinds_and_merges_are_listed() {
        let listed = listed(&tokenizer_json(), 23).unwrap();
        let vocabulary = &listed.vocabulary;
        assert_eq!((vocabulary.tokens.len(), vocabulary.tokens[22].as_str()), (23, "[PAD22]"));
        assert_eq!((listed.kinds[0], listed.kinds[2], listed.kinds[22]), (CONTROL, NORMAL, UNUSED));
        assert_eq!((vocabulary.splitting.as_str(), vocabulary.eos, vocabulary.controls.len()), ("smollm", Some(1), 2));
        assert_eq!(vocabulary.merges, ["a n", "e r", "s t"]);
    }

    #[test]
    fn given_ways_of_splitting_then_each_has_its_name_and_others_are_refused() {
        let bytes = |words: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words });
        let split = |pattern: &str| {
            json!({ "type": "Sequence", "pretokenizers": [
                { "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false }, bytes(false)] })
        };
        let nfc = json!({ "type": "NFC" });
        for (before, normalizer, name) in [
            (bytes(true), Value::Null, Some("gpt-2")),
            (split(QWEN2), nfc.clone(), Some("qwen2")),
            (split(LLAMA3), Value::Null, Some("llama-bpe")),
            (split(QWEN2), Value::Null, None),
            (split(LLAMA3), nfc, None),
            (split("[a-z]+"), Value::Null, None),
            (bytes(false), Value::Null, None),
            (json!({ "type": "Whitespace" }), Value::Null, None),
            (Value::Null, Value::Null, None),
        ] {
            let found = splitting(&json!({ "pre_tokenizer": before, "normalizer": normalizer }));
            assert_eq!(found.ok(), name, "{before}");
        }
    }

    #[test]
    fn given_what_no_gguf_file_could_say_then_it_is_said_why() {
        let with = |path: &[&str], value: Value| {
            let mut json = tokenizer_json();
            let place = path.iter().fold(&mut json, |at, key| &mut at[*key]);
            *place = value;
            json
        };
        for (json, rows, reason) in [
            (with(&["model", "merges"], json!([])), 20, "no merges"),
            (with(&["model", "byte_fallback"], json!(true)), 20, "not byte-level BPE"),
            (tokenizer_json(), 5, "has no row"),
            (with(&["pre_tokenizer"], json!({ "type": "Whitespace" })), 20, "splits text"),
        ] {
            let error = listed(&json, rows).err().unwrap();
            assert!(error.contains(reason), "{error}");
        }
    }
}
