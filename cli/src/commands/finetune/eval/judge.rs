//! Measures that a judge model takes.

use riverrun_api::wire::{ChatBody, ChatDone, ChatMessage, EmbedBody, EmbedDone};
use riverrun_training::evaluate::{
    JudgedMetric, JudgedReport, RagSample, average_precision, cosine, questions_prompt, share, statements_prompt,
    support_prompt, texts, usefulness_prompt, verdicts,
};

use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::tell;

/// Tokens of a judge's reply.
const MAX_REPLY: u32 = 1_024;

/// A judge behind the API.
pub(super) struct Judge<'c> {
    pub(super) connection: &'c Connection,
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
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
    pub(super) async fn report(&self, samples: &[RagSample]) -> Result<JudgedReport, CliError> {
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
