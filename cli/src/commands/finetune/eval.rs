//! `riverrun finetune eval`: answers against references, and by a judge model.

use std::path::PathBuf;

use clap::Args;
use riverrun_api::wire::{ChatBody, ChatDone, ChatMessage, EmbedBody, EmbedDone};
use riverrun_training::evaluate::{
    JudgedMetric, JudgedReport, RagSample, Report, average_precision, cosine, questions_prompt, rag_samples,
    rouge_report, samples, share, statements_prompt, support_prompt, texts, usefulness_prompt, verdicts,
};
use serde::Serialize;

use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, table, tell};

/// Tokens of a judge's reply.
const MAX_REPLY: u32 = 1_024;

/// Options of `finetune eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// A file with one JSON object a line: for rouge with `prediction` and `reference`; for ragas with `question`, `answer`,
    /// `contexts` and perhaps `reference`
    pub samples: PathBuf,
    /// What to measure, separated by commas: rouge, ragas
    #[arg(long, default_value = "rouge", value_delimiter = ',')]
    pub metrics: Vec<String>,
    /// Provider of the judge; the default one when left out
    #[arg(long)]
    pub judge_provider: Option<String>,
    /// The model that judges; the default one when left out
    #[arg(long)]
    pub judge_model: Option<String>,
}

const METRICS: [&str; 2] = ["rouge", "ragas"];

/// What was measured.
#[derive(Debug, Serialize)]
struct Evaluation {
    #[serde(skip_serializing_if = "Option::is_none")]
    rouge: Option<Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ragas: Option<JudgedReport>,
}

impl EvalArgs {
    /// Whether a model is needed.
    pub fn needs_judge(&self) -> bool {
        self.wants("ragas")
    }

    fn wants(&self, metric: &str) -> bool {
        self.metrics.iter().any(|wanted| wanted == metric)
    }

    fn check(&self) -> Result<(), CliError> {
        let other = self.metrics.iter().find(|metric| !METRICS.contains(&metric.as_str()));
        match other {
            None => Ok(()),
            Some(other) => {
                let known = METRICS.join(", ");
                Err(CliError::new(Exit::Usage, format!("metric {other:?} is not known; known: {known}"))
                    .hint("--metrics rouge,ragas"))
            }
        }
    }

    fn read(&self) -> Result<Vec<u8>, CliError> {
        std::fs::read(&self.samples).map_err(|error| self.refused(&format!("can't be read: {error}")))
    }

    fn refused(&self, reason: &str) -> CliError {
        CliError::new(Exit::Refused, format!("{}: {reason}", self.samples.display()))
            .hint("one JSON object a line; riverrun finetune eval --help says with which fields")
    }

    fn rouge(&self, bytes: &[u8]) -> Result<Option<Report>, CliError> {
        if !self.wants("rouge") {
            return Ok(None);
        }
        let found = samples(bytes).map_err(|error| self.refused(&error.to_string()))?;
        Ok(Some(rouge_report(&found)))
    }
}

/// Measures what needs no model.
pub(crate) fn run(args: &EvalArgs, output: Output) -> Result<(), CliError> {
    args.check()?;
    let rouge = args.rouge(&args.read()?)?;
    output.show(&Evaluation { rouge, ragas: None }, shown)
}

/// Measures everything.
pub(crate) async fn judge(connection: &Connection, args: EvalArgs, output: Output) -> Result<(), CliError> {
    args.check()?;
    let bytes = args.read()?;
    let rouge = args.rouge(&bytes)?;
    let ragas = if args.needs_judge() {
        let found = rag_samples(&bytes).map_err(|error| args.refused(&error.to_string()))?;
        let judge = Judge { connection, provider: args.judge_provider, model: args.judge_model };
        Some(judge.report(&found).await?)
    } else {
        None
    };
    output.show(&Evaluation { rouge, ragas }, shown)
}

struct Judge<'c> {
    connection: &'c Connection,
    provider: Option<String>,
    model: Option<String>,
}

/// Why a measure is not taken: the sample's own reason, or a failure that ends everything.
enum Fault {
    Unscored(String),
    Failed(CliError),
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self::Unscored(reason)
    }
}

impl From<CliError> for Fault {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

impl Judge<'_> {
    async fn report(&self, samples: &[RagSample]) -> Result<JudgedReport, CliError> {
        let mut taken = Vec::new();
        for (number, sample) in (1..).zip(samples) {
            tell(&format!("sample {number} of {}", samples.len()));
            for metric in JudgedMetric::ALL {
                let found = match self.measure(metric, sample).await {
                    Ok(found) => Ok(found),
                    Err(Fault::Unscored(reason)) => Err(reason),
                    Err(Fault::Failed(error)) => return Err(error),
                };
                taken.push((sample.line, metric, found));
            }
        }
        Ok(JudgedReport::of(samples.len(), taken))
    }

    async fn measure(&self, metric: JudgedMetric, sample: &RagSample) -> Result<f64, Fault> {
        let reference = || sample.reference.as_deref().ok_or_else(|| Fault::from("it has no reference".to_owned()));
        match metric {
            JudgedMetric::Faithfulness => self.supported(&sample.answer, sample).await,
            JudgedMetric::ContextRecall => self.supported(reference()?, sample).await,
            JudgedMetric::ContextPrecision => {
                let prompt = usefulness_prompt(&sample.question, reference()?, &sample.contexts);
                let reply = self.ask(prompt).await?;
                Ok(average_precision(&verdicts(&reply, sample.contexts.len())?))
            }
            JudgedMetric::AnswerRelevancy => {
                let questions = texts(&self.ask(questions_prompt(&sample.answer)).await?)?;
                if questions.is_empty() {
                    return Ok(0.0); // an evasive answer is relevant to nothing
                }
                let inputs = std::iter::once(sample.question.clone()).chain(questions).collect();
                let body = EmbedBody { inputs, ..EmbedBody::default() };
                let done: EmbedDone = self.connection.client.post("/embed", &body).await?;
                let Some((asked, made)) = done.vectors.split_first() else { return Ok(0.0) };
                Ok(made.iter().map(|one| cosine(asked, one)).sum::<f64>() / made.len().max(1) as f64)
            }
        }
    }

    /// The part of a text's statements that the documents support.
    async fn supported(&self, text: &str, sample: &RagSample) -> Result<f64, Fault> {
        let statements = texts(&self.ask(statements_prompt(&sample.question, text)).await?)?;
        if statements.is_empty() {
            return Err("the judge found no statements".to_owned().into());
        }
        let reply = self.ask(support_prompt(&sample.contexts, &statements)).await?;
        let verdicts = verdicts(&reply, statements.len())?;
        share(&verdicts).ok_or_else(|| "there is nothing to judge".to_owned().into())
    }

    async fn ask(&self, prompt: String) -> Result<String, Fault> {
        let body = ChatBody {
            messages: vec![ChatMessage { role: "user".to_owned(), content: prompt }],
            provider: self.provider.clone(),
            model: self.model.clone(),
            temperature: Some(0.0),
            max_tokens: Some(MAX_REPLY),
            stream: Some(false),
        };
        let done: Result<ChatDone, CliError> = self.connection.client.post("/chat", &body).await;
        match done {
            Ok(done) => Ok(done.text),
            // A prompt that does not fit says something of the sample; a judge that is not there, of all of them.
            Err(error) if error.exit == Exit::Refused => Err(Fault::Unscored(error.message)),
            Err(error) => Err(error.into()),
        }
    }
}

fn shown(evaluation: &Evaluation) -> String {
    let rouge = evaluation.rouge.as_ref().map(rouge_shown);
    let ragas = evaluation.ragas.as_ref().map(ragas_shown);
    rouge.into_iter().chain(ragas).collect::<Vec<_>>().join("\n\n")
}

fn rouge_shown(report: &Report) -> String {
    let rows = report.scores.iter().map(|score| {
        [
            score.metric.clone(),
            format!("{:.4}", score.precision),
            format!("{:.4}", score.recall),
            format!("{:.4}", score.fmeasure),
            format!("{}/{}", report.samples - report.unscored.len(), report.samples),
        ]
    });
    let mut text = table(["metric", "precision", "recall", "f1", "scored"], rows.collect(), "nothing was scored");
    for one in &report.unscored {
        text.push_str(&format!("\nline {} is unscored: {}", one.line, one.reason));
    }
    text
}

fn ragas_shown(report: &JudgedReport) -> String {
    let rows = report.scores.iter().map(|score| {
        [
            score.metric.as_str().to_owned(),
            score.mean.map_or("-".to_owned(), |mean| format!("{mean:.4}")),
            format!("{}/{}", score.scored, report.samples),
        ]
    });
    let mut text = table(["metric", "mean", "scored"], rows.collect(), "nothing was scored");
    for one in &report.unscored {
        text.push_str(&format!("\nline {}: {} is unscored: {}", one.line, one.metric.as_str(), one.reason));
    }
    text
}
