//! Chooses an agent for a run that names none: measures and asks what [`supervisor`] needs to know, and records its choice.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use riverrun_agents::supervisor::{self, Judgement, Question, Similarity};
use riverrun_agents::{Manifest, catalog};
use riverrun_models::{Account, EmbedPurpose, Models, Presence, Purpose};
use riverrun_schemas::{Failure, Usage};
use tokio::sync::Mutex;

use super::driver::{Driver, Interrupted};
use super::retries;

/// An embedding that takes longer is given up, and the rules choose alone. A model that is loaded for the first time, or
/// that is busy with an ingestion, takes its time: a choice without it would be another one than the next run's.
const MAX_EMBED_TIME: Duration = Duration::from_secs(120);

/// Embeddings of the agents' own texts: they change only with the program and the model.
pub(super) struct AgentVectors {
    by_model: Mutex<HashMap<String, Arc<TextVectors>>>,
    /// How long one choice waits for embeddings.
    patience: Duration,
}

impl Default for AgentVectors {
    fn default() -> Self {
        Self { by_model: Mutex::default(), patience: MAX_EMBED_TIME }
    }
}

/// Agent → its texts → their vectors.
type TextVectors = Vec<Vec<Vec<f32>>>;

impl AgentVectors {
    /// How like each agent a task is. Nothing is fetched for it: without a model that is there, it is not measured.
    async fn similarity(&self, models: &Models, task: &str, manifests: &[&'static Manifest]) -> Similarity {
        let model = models.default_embed_model().to_owned();
        match models.presence(&model) {
            Ok(Presence::Present { .. }) => {}
            Ok(_) => return Similarity::Missing(format!("the embedding model {model} is not here")),
            Err(error) => return Similarity::Missing(error.to_string()),
        }
        match tokio::time::timeout(self.patience, self.measure_again(models, &model, task, manifests)).await {
            Ok(Ok(values)) => Similarity::Measured(values),
            Ok(Err(error)) => Similarity::Missing(error.to_string()),
            Err(_) => Similarity::Missing(format!("{model} gave no embedding within {} ms", self.patience.as_millis())),
        }
    }

    /// Measures once more behind a pause where the trouble may pass, as calls of chat models are made again.
    async fn measure_again(
        &self,
        models: &Models,
        model: &str,
        task: &str,
        manifests: &[&'static Manifest],
    ) -> Result<Vec<f64>, riverrun_models::ModelError> {
        let mut attempt = 0;
        loop {
            match self.measure(models, model, task, manifests).await {
                Ok(values) => return Ok(values),
                Err(error) => {
                    let Some(pause) = retries::pause(&error, attempt) else { return Err(error) };
                    attempt += 1;
                    tracing::warn!(attempt, ?pause, error = %error, "a task can't be embedded, trying again");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn measure(
        &self,
        models: &Models,
        model: &str,
        task: &str,
        manifests: &[&'static Manifest],
    ) -> Result<Vec<f64>, riverrun_models::ModelError> {
        let agents = self.agents(models, model, manifests).await?;
        let task = models.embed(Some(model), vec![task.to_owned()], EmbedPurpose::Document).await?.vectors;
        let task = task.first().map(Vec::as_slice).unwrap_or_default();
        Ok(agents.iter().map(|texts| supervisor::similarity(task, texts)).collect())
    }

    /// Held while the first run embeds them: the others want the same.
    async fn agents(
        &self,
        models: &Models,
        model: &str,
        manifests: &[&'static Manifest],
    ) -> Result<Arc<Vec<Vec<Vec<f32>>>>, riverrun_models::ModelError> {
        let mut known = self.by_model.lock().await;
        if let Some(vectors) = known.get(model) {
            return Ok(vectors.clone());
        }
        let texts: Vec<Vec<String>> = manifests.iter().map(|manifest| supervisor::texts(manifest)).collect();
        let all = models.embed(Some(model), texts.concat(), EmbedPurpose::Document).await?.vectors;
        let mut all = all.into_iter();
        let vectors: Vec<Vec<Vec<f32>>> = texts.iter().map(|texts| all.by_ref().take(texts.len()).collect()).collect();
        let vectors = Arc::new(vectors);
        known.insert(model.to_owned(), vectors.clone());
        Ok(vectors)
    }
}

impl Driver {
    /// Chooses an agent; the choice is the run's first step.
    pub(super) async fn route(&mut self) -> Result<(), Interrupted> {
        let manifests = catalog();
        let context = self.context.clone();
        let task = self.state.task_with_inputs();
        let similarity = {
            let account = Account::of(&self.state.request.namespace, Purpose::Routing);
            let models = context.models.charged_to(account);
            let measured = context.agent_vectors.similarity(&models, &task, &manifests);
            tokio::pin!(measured);
            tokio::select! {
                similarity = &mut measured => similarity,
                interrupted = self.interruption() => return Err(interrupted),
            }
        };
        let (choice, usage) = match supervisor::judge(&task, &manifests, &similarity) {
            None => return self.fail(Failure::new("unknown_agent", "there is no agent to choose from")).await,
            Some(Judgement::Made(choice)) => (choice, None),
            Some(Judgement::Ask(question)) => self.settle(question).await?,
        };
        tracing::info!(run_id = %self.state.run_id, agent = choice.agent, by = ?choice.by, reason = choice.reason, "agent chosen");
        self.append_steps(vec![choice.step(usage)]).await
    }

    /// Asks the model, with as much of the task as fits its context. When it can't answer the run goes on with the rules'
    /// choice, and meets the trouble at its next call. A model that, by its card, answers nothing in the JSON that is asked for is not asked.
    async fn settle(&mut self, question: Question) -> Result<(supervisor::Choice, Option<Usage>), Interrupted> {
        if self.never_answers_json() {
            return Ok((
                question.settle(Err("by its card, none of its answers was the JSON that was asked for")),
                None,
            ));
        }
        let unasked = question.clone();
        let question = match self.fit_question(question).await? {
            Ok(question) => question,
            Err(failure) => return Ok((unasked.settle(Err(&failure.message)), None)),
        };
        let mut call = question.call.clone();
        Ok(match self.ask(&mut call).await? {
            Ok(reply) => (question.settle(Ok(&reply.text)), Some(self.usage_of(&reply))),
            Err(error) => (question.settle(Err(&error.to_string())), None),
        })
    }

    fn never_answers_json(&self) -> bool {
        let request = &self.state.request;
        let model = request.model.as_deref().unwrap_or_default();
        let known = self.context.models.known(request.provider.as_deref(), model);
        known.is_some_and(|known| !known.answers_json)
    }
}

#[cfg(test)]
mod tests {
    use riverrun_models::ModelSettings;
    use serde_json::{Value, json};
    use wiremock::matchers::path;
    use wiremock::{Mock, MockServer, Request, ResponseTemplate};

    use super::*;

    fn models(server: &MockServer) -> Models {
        let address = server.uri();
        let env = |name: &str| match name {
            "RIVERRUN_MODEL_RUNTIME_BASE_URL" => Some(address.clone()),
            "RIVERRUN_DEFAULT_EMBED_MODEL" => Some("ollama/scripted".to_owned()),
            _ => None,
        };
        Models::new(ModelSettings::from_env(&env).unwrap()).unwrap()
    }

    /// Every text has the same vector.
    fn embeds(request: &Request) -> ResponseTemplate {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let vectors: Vec<Value> = body["input"].as_array().unwrap().iter().map(|_| json!([1.0, 0.0])).collect();
        ResponseTemplate::new(200).set_body_json(json!({ "embeddings": vectors, "prompt_eval_count": 1 }))
    }

    #[tokio::test]
    async fn given_an_embedding_that_takes_longer_than_is_waited_for_when_a_task_is_measured_then_the_rules_are_told_why()
     {
        let server = MockServer::start().await;
        let slow = ResponseTemplate::new(200).set_delay(Duration::from_secs(3_600));
        Mock::given(path("/api/embed")).respond_with(slow).mount(&server).await;
        let vectors = AgentVectors { patience: Duration::from_millis(50), ..AgentVectors::default() };
        let similarity = vectors.similarity(&models(&server), "Write a letter", &catalog()).await;
        let Similarity::Missing(why) = &similarity else { panic!("{similarity:?}") };
        assert!(why.ends_with("gave no embedding within 50 ms"), "{why}");
        let Some(Judgement::Made(choice)) = supervisor::judge("Write a letter", &catalog(), &similarity) else {
            panic!("no choice")
        };
        assert_eq!((choice.agent.as_str(), choice.by), ("critic", supervisor::Judge::Rules));
        assert!(choice.reason.contains("rules alone, since") && choice.reason.contains("50 ms"), "{}", choice.reason);
    }

    #[tokio::test]
    async fn given_an_embedding_that_fails_for_a_moment_when_a_task_is_measured_then_it_is_measured_all_the_same() {
        let server = MockServer::start().await;
        let broken = ResponseTemplate::new(500).set_body_json(json!({ "error": "for a moment" }));
        Mock::given(path("/api/embed")).respond_with(broken).up_to_n_times(1).with_priority(1).mount(&server).await;
        Mock::given(path("/api/embed")).respond_with(embeds).mount(&server).await;
        let similarity = AgentVectors::default().similarity(&models(&server), "Write a letter", &catalog()).await;
        assert_eq!(similarity, Similarity::Measured(vec![1.0; catalog().len()]));
    }
}
