//! The facade over all providers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::card::{self, Known, Measuring, ModelCard};
use crate::catalog;
use crate::error::ModelError;
use crate::http::client::LazyClient;
use crate::local::{Local, Presence};
use crate::metering::{Account, Charge, Charging, Meter, Metering};
use crate::prices::Prices;
use crate::progress::PullProgress;
use crate::provider::{
    ChatReply, ChatRequest, Cost, DeltaSink, EmbedPurpose, EmbedReply, EmbedRequest, ModelInfo, Provider,
    RerankRequest, Usage,
};
use crate::remote::Remote;
use crate::remote::table::PROVIDERS;
use crate::reranker::BackgroundFetch;
use crate::settings::{DEFAULT_CHAT_MODEL, DEFAULT_EMBED_MODEL, ModelSettings};
use crate::spans::{EmbedTokenizer, SpansRequest};

/// Most models whose cards are gone by.
const MAX_KNOWN: usize = 1_000;

/// Where a provider runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// In this process.
    Local,
    /// On a server of the operator's.
    Server,
    /// At a hosted service, with a key.
    Hosted,
}

/// A provider as `riverrun providers` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderInfo {
    /// The name to ask for it.
    pub name: String,
    /// Where it runs.
    pub kind: ProviderKind,
    /// Whether a key is set; none where no key is used.
    pub has_key: Option<bool>,
    /// Its address; none for the in-process runtime, and where none is set.
    pub address: Option<String>,
    /// Whether chats go there when no provider is named.
    pub default: bool,
}

/// All providers of this process. Clones share what is loaded.
#[derive(Clone)]
pub struct Models {
    inner: Arc<Inner>,
    metering: Metering,
}

struct Inner {
    settings: ModelSettings,
    local: Local,
    remotes: Vec<Remote>,
    prices: Prices,
    /// What was measured of models, by provider and model.
    known: RwLock<HashMap<(String, String), Known>>,
    /// Held while a model is measured: two at once would measure each other.
    measuring: Mutex<()>,
    background_fetch: BackgroundFetch,
}

impl Models {
    /// Sets the providers up; nothing is loaded, fetched or contacted.
    pub fn new(settings: ModelSettings) -> Result<Self, ModelError> {
        let local = Local::new(&settings)?;
        let prices = Prices::read(settings.prices.as_deref())?;
        let client = LazyClient::of(&settings);
        let remotes = PROVIDERS.iter().map(|spec| Remote::new(spec, &settings, client.clone())).collect();
        let (known, measuring, background_fetch) = (RwLock::default(), Mutex::default(), BackgroundFetch::default());
        let inner = Inner { settings, local, remotes, prices, known, measuring, background_fetch };
        Ok(Models { inner: Arc::new(inner), metering: Metering::default() })
    }

    /// The same with `meter` told what calls used that are charged to an account.
    #[must_use]
    pub fn metered(self, meter: Arc<dyn Meter>) -> Self {
        Models { metering: Metering { meter: Some(meter), ..self.metering }, ..self }
    }

    /// The same models, whose calls are charged to `account`. Without a meter nobody is told.
    #[must_use]
    pub fn charged_to(&self, account: Account) -> Self {
        let metering = Metering { meter: self.metering.meter.clone(), account: Some(Arc::new(account)) };
        Models { inner: self.inner.clone(), metering }
    }

    fn charging<'m>(&'m self, provider: &'m dyn Provider) -> Charging<'m> {
        Charging { provider, metering: &self.metering, prices: &self.inner.prices }
    }

    fn settle(&self, charge: Option<Charge>, usage: Usage) {
        if let Some(charge) = charge {
            charge.settle(usage, false, &self.inner.prices);
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &ModelSettings {
        &self.inner.settings
    }

    /// The in-process runtime.
    pub fn local(&self) -> &Local {
        &self.inner.local
    }

    /// Of the re-ranker that no search has asked for.
    pub(crate) fn background_fetch(&self) -> &BackgroundFetch {
        &self.inner.background_fetch
    }

    fn all(&self) -> impl Iterator<Item = &(dyn Provider + 'static)> {
        let Inner { local, remotes, .. } = &*self.inner;
        let remotes = remotes.iter().map(|remote| remote as &dyn Provider);
        std::iter::once(local as &dyn Provider).chain(remotes)
    }

    fn remote(&self, name: &str) -> Option<&Remote> {
        self.inner.remotes.iter().find(|remote| remote.spec().name == name)
    }

    /// All providers, with where they run and whether they have a key.
    pub fn providers(&self) -> Vec<ProviderInfo> {
        let default = self.inner.settings.default_provider();
        let local = ProviderInfo {
            name: crate::local::NAME.to_owned(),
            kind: ProviderKind::Local,
            has_key: None,
            address: None,
            default: default == crate::local::NAME,
        };
        let remote = |remote: &Remote| ProviderInfo {
            name: remote.spec().name.to_owned(),
            kind: remote.kind(),
            has_key: remote.has_key(),
            address: remote.address().map(str::to_owned),
            default: default == remote.spec().name,
        };
        std::iter::once(local).chain(self.inner.remotes.iter().map(remote)).collect()
    }

    /// The provider of this name, or the default one.
    pub fn provider(&self, name: Option<&str>) -> Result<&(dyn Provider + 'static), ModelError> {
        let name = name.unwrap_or_else(|| self.inner.settings.default_provider());
        self.all().find(|provider| provider.name() == name).ok_or_else(|| {
            let known: Vec<&str> = self.all().map(|provider| provider.name()).collect();
            ModelError::UnknownProvider { name: catalog::clip(name), known: known.join(", ") }
        })
    }

    /// The model that answers chats of the default provider when none is named.
    pub fn default_chat_model(&self) -> &str {
        let settings = &self.inner.settings;
        match &settings.default_chat_model {
            Some(model) => model,
            // The same model under the name that the server has for it.
            None if settings.default_provider() == "ollama" => catalog::find(DEFAULT_CHAT_MODEL)
                .and_then(|entry| entry.ollama.as_deref())
                .unwrap_or(DEFAULT_CHAT_MODEL),
            None => DEFAULT_CHAT_MODEL,
        }
    }

    /// The model that embeds when none is named; it may carry a provider, as in `ollama/nomic-embed-text`.
    pub fn default_embed_model(&self) -> &str {
        &self.inner.settings.default_embed_model
    }

    /// The embedding model of the in-process runtime, which comes from the hub: the default one where that is no model of a server.
    pub fn hub_embed_model(&self) -> &str {
        let model = self.default_embed_model();
        if self.split(model).0.name() == crate::local::NAME { model } else { DEFAULT_EMBED_MODEL }
    }

    /// Chats with `provider`, or the default one. An empty model means the default chat model, which only the default provider has; a model
    /// of the form `provider/model` names its provider itself.
    pub async fn chat(
        &self,
        provider: Option<&str>,
        mut request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        let provider = self.route_chat(provider, &mut request)?;
        self.charging(provider).chat(request, sink, cancel).await
    }

    /// Who answers a chat that names these, or neither: the provider, and its own name of the model.
    pub fn who_chats(&self, provider: Option<&str>, model: Option<&str>) -> Result<(String, String), ModelError> {
        let mut request = ChatRequest { model: model.unwrap_or_default().to_owned(), ..ChatRequest::default() };
        let provider = self.route_chat(provider, &mut request)?;
        Ok((provider.name().to_owned(), request.model))
    }

    /// What a call cost that `provider` and `model` answered, named as in [`Models::chat`], or neither. One that nobody answers cost nothing.
    pub fn cost(&self, provider: Option<&str>, model: &str, usage: Usage) -> Cost {
        let named = self.who_chats(provider, Some(model));
        named.map_or_else(|_| Cost::default(), |(provider, model)| self.inner.prices.cost(&provider, &model, usage))
    }

    /// The same of a call that embeds, whose model is named as in [`Models::embed`].
    pub fn embed_cost(&self, model: &str, usage: Usage) -> Cost {
        let (provider, name) = self.split(model);
        self.inner.prices.cost(provider.name(), name, usage)
    }

    /// Says what a provider lacks to be asked anything, without asking it: an address, a region, a key. Nothing where there is no such provider
    /// behind HTTP.
    pub fn ready(&self, provider: &str) -> Result<(), ModelError> {
        self.remote(provider).map_or(Ok(()), Remote::ready)
    }

    /// The first field of a request that its provider would pass over, named as in [`Models::chat`].
    pub fn leaves_out(
        &self,
        provider: Option<&str>,
        request: &ChatRequest,
    ) -> Result<Option<&'static str>, ModelError> {
        let mut named = request.clone();
        let server = self.route_chat(provider, &mut named)?;
        Ok(server.leaves_out(&named))
    }

    /// Tokens of a whole chat request as its model reads it, where the provider can tell.
    pub async fn count_prompt(&self, provider: Option<&str>, request: &ChatRequest) -> Result<usize, ModelError> {
        let mut request = request.clone();
        let provider = self.route_chat(provider, &mut request)?;
        provider.count_prompt(&request).await
    }

    /// Tokens of a text by the model's own tokenizer; an empty model means the default chat model.
    pub async fn count_tokens(&self, provider: Option<&str>, model: &str, text: &str) -> Result<usize, ModelError> {
        let mut request = ChatRequest { model: model.to_owned(), ..ChatRequest::default() };
        let provider = self.route_chat(provider, &mut request)?;
        provider.count_tokens(&request.model, text).await
    }

    /// Tokens that prompt and answer may have together, as the provider tells; where it does not, as the model's card says. An empty model means
    /// the default chat model.
    pub async fn context_tokens(&self, provider: Option<&str>, model: &str) -> Result<usize, ModelError> {
        let mut request = ChatRequest { model: model.to_owned(), ..ChatRequest::default() };
        let provider = self.route_chat(provider, &mut request)?;
        let told = provider.context_tokens(&request.model).await;
        told.or_else(|error| {
            let known = self.find_known(provider.name(), &request.model);
            known.and_then(|known| known.context_tokens).ok_or(error)
        })
    }

    /// Embeds texts with `model`, or the default one.
    pub async fn embed(
        &self,
        model: Option<&str>,
        inputs: Vec<String>,
        purpose: EmbedPurpose,
    ) -> Result<EmbedReply, ModelError> {
        let model = model.unwrap_or_default().to_owned();
        self.embed_as(EmbedRequest { model, inputs, purpose, dimensions: None }).await
    }

    /// The same with all that a request may say; an empty model means the default one.
    pub async fn embed_as(&self, request: EmbedRequest) -> Result<EmbedReply, ModelError> {
        let model =
            if request.model.is_empty() { self.default_embed_model().to_owned() } else { request.model.clone() };
        let (provider, name) = self.split(&model);
        let request = EmbedRequest { model: name.to_owned(), ..request };
        let charge = self.metering.begin(provider.name(), name);
        let reply = provider.embed(request).await?;
        self.settle(charge, reply.usage);
        // Collections remember the model by the name that reaches it again.
        Ok(EmbedReply { model, ..reply })
    }

    /// The tokenizer of an embedding model, where its provider has it.
    pub async fn embed_tokenizer(&self, model: &str) -> Result<Arc<dyn EmbedTokenizer>, ModelError> {
        let (provider, name) = self.split(model);
        provider.embed_tokenizer(name).await
    }

    /// Embeds spans of one text, each in the light of what stands around it.
    pub async fn embed_spans(&self, request: SpansRequest) -> Result<EmbedReply, ModelError> {
        let (provider, name) = self.split(&request.model);
        let charge = self.metering.begin(provider.name(), name);
        let reply = provider.embed_spans(SpansRequest { model: name.to_owned(), ..request.clone() }).await?;
        self.settle(charge, reply.usage);
        Ok(EmbedReply { model: request.model, ..reply })
    }

    /// Scores documents against a query with `model`, or the default re-ranker. A local one is fetched when it is not here.
    pub async fn rerank(
        &self,
        model: Option<&str>,
        query: String,
        documents: Vec<String>,
    ) -> Result<Vec<f32>, ModelError> {
        let default = self.inner.settings.rerank_model();
        let (provider, name) = self.split(model.filter(|model| !model.is_empty()).unwrap_or(&default));
        if documents.is_empty() {
            return Ok(Vec::new());
        }
        let charge = self.metering.begin(provider.name(), name);
        let reply = provider.rerank(RerankRequest { model: name.to_owned(), query, documents }).await?;
        self.settle(charge, reply.usage);
        Ok(reply.scores)
    }

    /// The models of a provider, or of the default one.
    pub async fn list_models(&self, provider: Option<&str>) -> Result<Vec<ModelInfo>, ModelError> {
        self.provider(provider)?.list_models().await
    }

    /// Fetches a model of the in-process runtime from the hub.
    pub async fn pull(
        &self,
        model: &str,
        progress: &dyn PullProgress,
        cancel: &CancellationToken,
    ) -> Result<ModelInfo, ModelError> {
        self.inner.local.pull(model, progress, cancel).await
    }

    /// Removes a fetched model of the in-process runtime from the cache and answers the bytes that it had. A process that has it loaded goes
    /// on with it.
    pub fn remove(&self, model: &str) -> Result<u64, ModelError> {
        self.inner.local.remove(model)
    }

    /// Measures a chat model with a few questions and goes by what was found from then on; see [`Models::know`]. One model at a time: others wait.
    pub async fn measure(
        &self,
        provider: Option<&str>,
        model: &str,
        cancel: &CancellationToken,
    ) -> Result<ModelCard, ModelError> {
        let mut request = ChatRequest { model: model.to_owned(), ..ChatRequest::default() };
        let provider = self.route_chat(provider, &mut request)?;
        let _one = self.inner.measuring.lock().await;
        let settings = &self.inner.settings;
        let measuring = Measuring { most_tokens: settings.context_tokens, threads: settings.effective_threads() };
        let card = card::measure(&self.charging(provider), &request.model, measuring, cancel).await?;
        self.know(&card.provider, &card.model, card.known());
        Ok(card)
    }

    /// Takes in what a card says: prompts are fitted to its context where the provider tells none, and a model that answered no question in the JSON
    /// that was asked for is not asked to choose. Beyond 1,000 models, further ones are as if they had no card.
    pub fn know(&self, provider: &str, model: &str, known: Known) {
        let mut all = self.inner.known.write();
        let key = (provider.to_owned(), model.to_owned());
        if all.len() < MAX_KNOWN || all.contains_key(&key) {
            all.insert(key, known);
        }
    }

    /// What a model's card says, where it has one; named as in [`Models::chat`].
    pub fn known(&self, provider: Option<&str>, model: &str) -> Option<Known> {
        let mut request = ChatRequest { model: model.to_owned(), ..ChatRequest::default() };
        let provider = self.route_chat(provider, &mut request).ok()?;
        self.find_known(provider.name(), &request.model)
    }

    fn find_known(&self, provider: &str, model: &str) -> Option<Known> {
        self.inner.known.read().get(&(provider.to_owned(), model.to_owned())).copied()
    }

    /// Whether a model is there, without loading or contacting anything. A model of a server counts as present where the server can be asked:
    /// only it knows.
    pub fn presence(&self, model: &str) -> Result<Presence, ModelError> {
        let (provider, name) = self.split(model);
        if provider.name() == crate::local::NAME {
            return self.inner.local.presence(name);
        }
        match self.remote(provider.name()).map(Remote::ready) {
            Some(Err(error)) => Ok(Presence::Missing { fix: error.hint().unwrap_or_else(|| error.to_string()) }),
            Some(Ok(())) | None => Ok(Presence::Present { path: provider.name().into() }),
        }
    }

    /// The default chat model and the default embedding model, each as the provider that is asked for it and its name there.
    pub fn default_models(&self) -> [(&str, &str); 2] {
        let chat = match self.inner.settings.default_provider() {
            crate::local::NAME => {
                let (provider, name) = self.split(self.default_chat_model());
                (provider.name(), name)
            }
            server => (server, self.default_chat_model()),
        };
        let (provider, name) = self.split(self.default_embed_model());
        [chat, (provider.name(), name)]
    }

    /// Whether a model of a provider is there; a server is asked for it. One of this machine that is cut off is an error.
    pub async fn presence_at(&self, server: &str, model: &str) -> Result<Presence, ModelError> {
        if server == crate::local::NAME {
            return self.inner.local.presence_of_whole(model);
        }
        let has = |name: &str| name == model || name.strip_suffix(":latest") == Some(model);
        let listed = self.provider(Some(server))?.list_models().await?;
        Ok(match listed.iter().any(|info| has(&info.name)) {
            true => Presence::Present { path: server.into() },
            false if server == "ollama" => Presence::Missing { fix: format!("`ollama pull {model}`") },
            false => Presence::Missing { fix: format!("`riverrun models --provider {server}` lists what is there") },
        })
    }

    fn route_chat(&self, provider: Option<&str>, request: &mut ChatRequest) -> Result<&dyn Provider, ModelError> {
        if request.model.is_empty() {
            let chosen = self.provider(provider)?;
            if chosen.name() == self.inner.settings.default_provider() {
                request.model = self.default_chat_model().to_owned();
            } else if chosen.name() == crate::local::NAME {
                request.model = DEFAULT_CHAT_MODEL.to_owned();
            } else {
                return Err(ModelError::bad_request(
                    chosen.name(),
                    format!("it has no default model; name one of `riverrun models --provider {}`", chosen.name()),
                ));
            }
            return Ok(chosen);
        }
        match provider {
            Some(name) => self.provider(Some(name)),
            None => match self.named(&request.model) {
                Some((provider, name)) => {
                    request.model = name.to_owned();
                    Ok(provider)
                }
                None => self.provider(None),
            },
        }
    }

    /// The provider of `provider/model`, else the in-process runtime.
    pub(crate) fn split<'m>(&self, model: &'m str) -> (&dyn Provider, &'m str) {
        self.named(model).unwrap_or((&self.inner.local, model))
    }

    fn named<'m>(&self, model: &'m str) -> Option<(&dyn Provider, &'m str)> {
        let (prefix, name) = model.split_once('/')?;
        let provider = self.all().find(|provider| provider.name() == prefix)?;
        Some((provider, name))
    }
}
