//! BERTScore, with an encoder in this process.

use std::path::Path;

use riverrun_api::ApiError;
use riverrun_models::{Local, ModelSettings, Models, TextTokens, TokenVectors, TokenVectorsRequest};
use riverrun_schemas::counted;
use riverrun_training::evaluate::{Baseline, Rarity, Report, Sample, TokenText, bert_score, report};
use serde::Serialize;

use super::EvalArgs;
use crate::error::{CliError, Exit};
use crate::input;
use crate::output::Output;
use crate::progress;

/// Samples that are encoded at once; each has two texts.
const SAMPLES_AT_ONCE: usize = 64;
/// Largest file of baselines, in bytes: it has a line a layer.
const MAX_BASELINES: u64 = 1 << 20;
const COLUMNS: &str = "a file of baselines has the columns LAYER,P,R,F; bert-score brings some along";

/// What was measured, and how.
#[derive(Debug, Serialize)]
pub(super) struct BertReport {
    /// The encoder.
    encoder: String,
    /// Layers of it that tokens went through.
    layer: usize,
    /// Whether tokens count by their rarity.
    idf: bool,
    /// Whether scores are rescaled.
    rescaled: bool,
    /// Texts of which the encoder reads only the beginning.
    truncated: usize,
    /// The scores.
    #[serde(flatten)]
    pub(super) report: Report,
}

impl BertReport {
    /// For people.
    pub(super) fn how(&self) -> String {
        let weights = if self.idf { ", weighed by rarity" } else { "" };
        let rescaled = if self.rescaled { ", rescaled" } else { "" };
        let cut = if self.truncated > 0 {
            format!("; only the beginnings of {}", counted(self.truncated, "text"))
        } else {
            String::new()
        };
        format!("layer {} of {}{weights}{rescaled}{cut}", self.layer, self.encoder)
    }
}

pub(super) async fn measure(
    settings: &ModelSettings,
    args: &EvalArgs,
    samples: &[Sample],
    output: Output,
) -> Result<BertReport, CliError> {
    let models = Models::new(settings.clone()).map_err(ApiError::from)?;
    let encoder = args.encoder.clone().unwrap_or_else(|| models.hub_embed_model().to_owned());
    let baselines = args.baseline.as_deref().map(read).transpose()?;
    let encode = Encode { local: models.local(), encoder: &encoder };
    let rarity = if args.idf { Some(encode.rarity(samples).await?) } else { None };
    let (mut measured, mut layer, mut truncated, mut baseline) = (Vec::new(), 0, 0, None);
    let bar = progress::bar(output, Some(samples.len() as u64), "samples");
    bar.set_message("bertscore");
    for chunk in samples.chunks(SAMPLES_AT_ONCE) {
        let texts = chunk.iter().flat_map(|sample| [sample.prediction.as_str(), sample.reference.as_str()]).collect();
        let found = encode.texts(texts, args.layer).await?;
        if let Some(file) = &baselines {
            baseline = Some(file.at(found.layer)?);
        }
        layer = found.layer;
        truncated += found.truncated;
        let mut texts = found.texts.into_iter().map(token_text);
        for sample in chunk {
            let (Some(prediction), Some(reference)) = (texts.next(), texts.next()) else { break };
            let score = bert_score(&prediction, &reference, rarity.as_ref());
            let rescaled = score.map(|score| baseline.map_or(score, |baseline: Baseline| baseline.rescaled(score)));
            measured.push((sample.line, rescaled));
        }
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    let report = report("bertscore", measured);
    Ok(BertReport { encoder, layer, idf: args.idf, rescaled: baseline.is_some(), truncated, report })
}

struct Encode<'m> {
    local: &'m Local,
    encoder: &'m str,
}

impl Encode<'_> {
    /// The tokens of texts, without the blanks around them, as `bert-score` takes them.
    async fn texts(&self, texts: Vec<&str>, layer: Option<usize>) -> Result<TokenVectors, CliError> {
        let texts = texts.into_iter().map(|text| text.trim().to_owned()).collect();
        let request = TokenVectorsRequest { model: self.encoder.to_owned(), texts, layer };
        Ok(self.local.token_vectors(request).await.map_err(ApiError::from)?)
    }

    /// Counts the references' tokens; they need no layer for that.
    async fn rarity(&self, samples: &[Sample]) -> Result<Rarity, CliError> {
        let mut rarity = Rarity::default();
        for chunk in samples.chunks(SAMPLES_AT_ONCE) {
            let found = self.texts(chunk.iter().map(|sample| sample.reference.as_str()).collect(), Some(0)).await?;
            found.texts.iter().for_each(|text| rarity.add(&text.ids));
        }
        Ok(rarity)
    }
}

fn token_text(text: TextTokens) -> TokenText {
    TokenText { ids: text.ids, added: text.added, vectors: text.vectors }
}

/// A file of baselines.
struct Baselines<'p> {
    path: &'p Path,
    text: String,
}

fn read(path: &Path) -> Result<Baselines<'_>, CliError> {
    let text = input::read_now(path, MAX_BASELINES)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".to_owned()))
        .map_err(|reason| {
            CliError::new(Exit::Refused, format!("{} can't be read: {reason}", path.display())).hint(COLUMNS)
        })?;
    Ok(Baselines { path, text })
}

impl Baselines<'_> {
    fn at(&self, layer: usize) -> Result<Baseline, CliError> {
        Baseline::read(&self.text, layer)
            .map_err(|reason| CliError::new(Exit::Refused, format!("{}: {reason}", self.path.display())).hint(COLUMNS))
    }
}
