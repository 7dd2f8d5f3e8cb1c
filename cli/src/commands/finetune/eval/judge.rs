//! Measures that a judge model takes.

use std::time::Duration;

use riverrun_api::wire::{ChatBody, ChatDone, ChatMessage, EmbedBody, EmbedDone};
use riverrun_training::evaluate::{
    JudgedMetric, JudgedReport, RagSample, average_precision, cosine, questions_prompt, share, statements_prompt,
    support_prompt, texts, usefulness_prompt, verdicts,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::output::Output;
use crate::progress;

/// Tokens of a judge's reply.
const MAX_REPLY: u32 = 1_024;
/// Tries of a question to a judge that is busy or away.
const TRIES: u32 = 4;
/// Before the second try; doubles with each.
const PAUSE: Duration = Duration::from_secs(1);

/// A judge behind the API.
pub(super) struct Judge<'c> {
    client: &'c Client,
    provider: Option<String>,
    model: Option<String>,
    pause: Duration,
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

/// What a failed question says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// The judge is busy or away: the same question may be answered later.
    Moment,
    /// This question can't be answered.
    Sample,
    /// No question will be.
    Judge,
}

fn blame(error: &CliError) -> Blame {
    match (error.status, error.code.as_deref()) {
        (_, Some("model_unauthorized" | "model_missing" | "model_unreadable" | "unknown_provider"))
        | (Some(401 | 403), _) => Blame::Judge,
        (Some(408 | 429 | 500..=599), _) => Blame::Moment,
        (Some(_), _) => Blame::Sample,
        (None, _) => match error.exit {
            Exit::ServiceDown | Exit::Failed => Blame::Moment, // no answer, or one that broke off
            Exit::Usage | Exit::Refused | Exit::Interrupted => Blame::Judge,
        },
    }
}

impl<'c> Judge<'c> {
    pub(super) fn new(client: &'c Client, provider: Option<String>, model: Option<String>) -> Self {
        Self { client, provider, model, pause: PAUSE }
    }

    pub(super) async fn report(&self, samples: &[RagSample], output: Output) -> Result<JudgedReport, CliError> {
        let mut taken = Vec::new();
        let bar = progress::bar(output, Some(samples.len() as u64), "samples");
        bar.set_message("ragas");
        for sample in samples {
            for metric in JudgedMetric::ALL {
                let found = match self.measure(metric, sample).await {
                    Ok(found) => Ok(found),
                    Err(Fault::Unscored(reason)) => Err(reason),
                    Err(Fault::Failed(error)) => return Err(error),
                };
                taken.push((sample.line, metric, found));
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(JudgedReport::of(samples.len(), taken))
    }

    async fn measure(&self, metric: JudgedMetric, sample: &RagSample) -> Result<f64, Fault> {
        if let Some(reason) = sample.lacks(metric) {
            return Err(reason.to_owned().into());
        }
        let reference = sample.reference.as_deref().unwrap_or_default();
        match metric {
            JudgedMetric::Faithfulness => self.supported(&sample.answer, sample).await,
            JudgedMetric::ContextRecall => self.supported(reference, sample).await,
            JudgedMetric::ContextPrecision => {
                let prompt = usefulness_prompt(&sample.question, reference, &sample.contexts);
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
                let done: EmbedDone = self.post("/embed", &body).await?;
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
        let done: ChatDone = self.post("/chat", &body).await?;
        Ok(done.text)
    }

    /// Asks, and again where it is the moment's fault: of thousands of questions, one that is not answered must not end them all.
    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Fault> {
        let (mut tries, mut pause) = (1, self.pause);
        loop {
            let error = match self.client.post(path, body).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            match blame(&error) {
                Blame::Judge => return Err(Fault::Failed(error)),
                Blame::Sample => return Err(error.message.into()),
                Blame::Moment if tries == TRIES => {
                    return Err(format!("{} (tried {TRIES} times)", error.message).into());
                }
                Blame::Moment => tokio::time::sleep(pause).await,
            }
            (tries, pause) = (tries + 1, pause * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;
    use axum::routing::post;
    use axum::{Json, Router};
    use serde_json::{Value, json};

    use super::*;

    /// A judge that answers its calls with these statuses and codes, and every later one well.
    fn judge(script: Vec<(u16, &'static str)>) -> (Client, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let answer = move |Json(body): Json<Value>| {
            let call = counted.fetch_add(1, Ordering::SeqCst);
            let reply = match script.get(call) {
                Some((status, code)) => problem(*status, code),
                None => (StatusCode::OK, Json(reply_to(&body))),
            };
            std::future::ready(reply)
        };
        (Client::InProcess(Router::new().route("/chat", post(answer))), calls)
    }

    fn problem(status: u16, code: &str) -> (StatusCode, Json<Value>) {
        let problem = json!({ "type": "about:blank", "title": "x", "status": status, "detail": format!("said {code}"), "code": code });
        (StatusCode::from_u16(status).unwrap(), Json(problem))
    }

    /// One statement, or a verdict on one.
    fn reply_to(body: &Value) -> Value {
        let prompt = body["messages"][0]["content"].as_str().unwrap();
        said(if prompt.starts_with("Break") { "[\"a statement\"]" } else { "[1]" })
    }

    fn usage() -> Value {
        json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 })
    }

    fn said(text: &str) -> Value {
        json!({ "text": text, "model": "m", "finish_reason": "stop", "usage": usage() })
    }

    /// Of an answer's two statements one is supported, of a reference's three two are, the second of two documents helps, and of two
    /// questions that the answer answers one is the one that was asked.
    fn judged(body: &Value) -> Value {
        let prompt = body["messages"][0]["content"].as_str().unwrap();
        said(if prompt.starts_with("Break") && prompt.contains("wanted") {
            r#"["a", "b", "c"]"#
        } else if prompt.starts_with("Break") {
            r#"["a", "b"]"#
        } else if prompt.contains("list of 3 numbers") {
            "[1, 1, 0]"
        } else if prompt.starts_with("For each statement") {
            "[1, 0]"
        } else if prompt.starts_with("For each context") {
            "[0, 1]"
        } else {
            r#"["asked", "not asked"]"#
        })
    }

    #[tokio::test]
    async fn given_what_a_judge_says_then_each_measure_is_the_number_of_its_definition() {
        let chat = |Json(body): Json<Value>| std::future::ready(Json(judged(&body)));
        let vectors = json!([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]);
        let embedded = json!({ "model": "e", "dimensions": 2, "vectors": vectors, "truncated": 0, "usage": usage() });
        let embed = move || std::future::ready(Json(embedded.clone()));
        let client = Client::InProcess(Router::new().route("/chat", post(chat)).route("/embed", post(embed)));
        let judge = Judge::new(&client, None, None);
        let sample = RagSample {
            line: 1,
            question: "asked".to_owned(),
            answer: "said".to_owned(),
            contexts: vec!["c".to_owned(), "d".to_owned()],
            reference: Some("wanted".to_owned()),
        };
        for (metric, wanted) in JudgedMetric::ALL.into_iter().zip([0.5, 0.5, 0.5, 2.0 / 3.0]) {
            let Ok(found) = judge.measure(metric, &sample).await else { panic!("{metric:?} is unscored") };
            assert!((found - wanted).abs() < 1e-6, "{metric:?}: {found}");
        }
    }

    async fn faithfulness(client: &Client) -> Result<f64, Fault> {
        let judge = Judge { pause: Duration::ZERO, ..Judge::new(client, None, None) };
        let sample = RagSample {
            line: 1,
            question: "q".to_owned(),
            answer: "a".to_owned(),
            contexts: vec!["c".to_owned()],
            reference: None,
        };
        judge.measure(JudgedMetric::Faithfulness, &sample).await
    }

    #[tokio::test]
    async fn given_a_judge_that_is_busy_for_a_moment_then_it_is_asked_again() {
        let script = vec![(429, "model_rate_limited"), (503, "model_timeout"), (500, "model_internal")];
        let (client, calls) = judge(script);
        assert!(matches!(faithfulness(&client).await, Ok(share) if share == 1.0));
        assert_eq!(calls.load(Ordering::SeqCst), 5, "three failures, the statements, the verdicts");
    }

    #[tokio::test]
    async fn given_a_judge_that_stays_away_then_that_measure_is_unscored_with_the_reason() {
        let (client, calls) = judge(vec![(503, "model_timeout"); 100]);
        let Err(Fault::Unscored(reason)) = faithfulness(&client).await else { panic!("it must be unscored") };
        assert!(reason.contains("model_timeout") && reason.contains("4 times"), "{reason}");
        assert_eq!(calls.load(Ordering::SeqCst), TRIES as usize);
    }

    #[tokio::test]
    async fn given_a_key_that_is_refused_then_the_command_fails_at_once() {
        for (status, code) in [(401, "unauthorized"), (403, "forbidden"), (503, "model_unauthorized")] {
            let (client, calls) = judge(vec![(status, code); 100]);
            assert!(matches!(faithfulness(&client).await, Err(Fault::Failed(_))), "{code}");
            assert_eq!(calls.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn given_a_prompt_that_does_not_fit_then_it_is_not_asked_again() {
        let (client, calls) = judge(vec![(422, "context_overflow"); 100]);
        assert!(matches!(faithfulness(&client).await, Err(Fault::Unscored(_))));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}
