//! Byte-level BPE from the metadata of a GGUF file.

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

use super::codec::TextCodec;
use super::template::ChatTemplate;

/// Of Qwen2's `tokenizer.json`.
pub(super) const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Of Llama 3's.
pub(super) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What a GGUF file says of its tokens.
#[derive(Debug, Clone)]
pub(crate) struct GgufVocabulary {
    pub(crate) tokens: Vec<String>,
    pub(crate) merges: Vec<String>,
    /// Ids of control tokens.
    pub(crate) controls: Vec<usize>,
    /// Name of the way in which text is split before merging.
    pub(crate) splitting: String,
    pub(crate) template: Option<String>,
    pub(crate) bos: Option<usize>,
    pub(crate) eos: Option<usize>,
    pub(crate) add_bos: bool,
}

impl GgufVocabulary {
    pub(crate) fn codec(self) -> Result<TextCodec, String> {
        let eos = self.eos.ok_or("it names no end-of-text token")?;
        let token = |id: usize| self.tokens.get(id).cloned().ok_or(format!("it has no token {id}"));
        let eos_text = token(eos)?;
        let bos_text = self.bos.map(token).transpose()?.unwrap_or_default();
        let controls: Vec<String> = self.controls.iter().map(|id| token(*id)).collect::<Result<_, _>>()?;
        let tokenizer = self.tokenizer(&controls)?;
        let template = ChatTemplate::new(self.template, bos_text.clone(), eos_text);
        let bos = if self.add_bos { self.bos } else { None };
        Ok(TextCodec::new(tokenizer, template, controls, bos.map(|id| id as u32)))
    }

    fn tokenizer(&self, controls: &[String]) -> Result<Tokenizer, String> {
        let vocab: Vocab = self.tokens.iter().enumerate().map(|(id, text)| (text.clone(), id as u32)).collect();
        let merge = |merge: &String| -> Result<(String, String), String> {
            let (left, right) = merge.split_once(' ').ok_or(format!("merge {merge:?} has no space"))?;
            // The library looks for it too, after it has copied both into a buffer as long as the longest token.
            if !vocab.contains_key(&format!("{left}{right}")) {
                return Err(format!("merge {merge:?} makes no token"));
            }
            Ok((left.to_owned(), right.to_owned()))
        };
        let merges: Merges = self.merges.iter().map(merge).collect::<Result<_, String>>()?;
        let bpe = BPE::builder().vocab_and_merges(vocab, merges).build().map_err(|error| error.to_string())?;
        let mut tokenizer = Tokenizer::new(bpe);
        if self.splitting == "qwen2" {
            let normalizer = NormalizerWrapper::from(NFC);
            tokenizer.with_normalizer(Some(normalizer)).map_err(|error| error.to_string())?;
        }
        tokenizer.with_pre_tokenizer(Some(self.splitter()?));
        tokenizer.with_decoder(Some(ByteLevel::new(false, false, false)));
        let added = controls.iter().map(|text| AddedToken::from(text.clone(), true));
        tokenizer.add_special_tokens(added).map_err(|error| error.to_string())?;
        Ok(tokenizer)
    }

    fn splitter(&self) -> Result<PreTokenizerWrapper, String> {
        let by_pattern = |pattern: &str| -> Result<PreTokenizerWrapper, String> {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split =
                Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(|error| error.to_string())?;
            let bytes = ByteLevel::new(false, false, false);
            Ok(Sequence::new(vec![split.into(), bytes.into()]).into())
        };
        match self.splitting.as_str() {
            "qwen2" => by_pattern(QWEN2),
            "llama-bpe" | "llama3" | "llama-v3" => by_pattern(LLAMA3),
            "smollm" => {
                let bytes = ByteLevel::new(false, true, true);
                Ok(Sequence::new(vec![Digits::new(true).into(), bytes.into()]).into())
            }
            "gpt-2" | "default" => Ok(ByteLevel::new(false, true, true).into()),
            other => Err(format!("its text is split in a way that is not known here: {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[&str], merges: &[&str]) -> GgufVocabulary {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        GgufVocabulary {
            tokens: owned(tokens),
            merges: owned(merges),
            controls: Vec::new(),
            splitting: "gpt-2".to_owned(),
            template: None,
            bos: None,
            eos: Some(0),
            add_bos: false,
        }
    }

    #[test]
    fn given_merges_that_are_none_when_a_vocabulary_is_read_then_they_are_refused_by_name() {
        assert!(of(&["a", "b", "ab"], &["a b"]).codec().is_ok());
        for (merge, wrong) in
            [("ab", "has no space"), ("a ab", "makes no token"), ("ab ab", "makes no token"), ("a c", "makes no token")]
        {
            let Err(error) = of(&["a", "b", "ab"], &[merge]).codec() else { panic!("{merge:?} was taken") };
            assert!(error.contains(merge) && error.contains(wrong), "{error}");
        }
    }
}
