//! Who is told what model calls used, and for whom they were made.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::prices::Prices;
use crate::provider::{
    ChatReply, ChatRequest, Cost, DeltaSink, EmbedReply, EmbedRequest, ModelInfo, ProbeReport, Provider, RerankReply,
    RerankRequest, Usage,
};

/// What a call was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Words of a caller to a chat model.
    Chat,
    /// Texts of a caller to an embedding model.
    Embed,
    /// A search: its query, and other wordings of it.
    Search,
    /// An answer from a collection.
    Ask,
    /// A conversation that is remembered: its answers, summaries and episodes.
    Memory,
    /// A document that is read into a collection, or embedded again.
    Ingest,
    /// A project that is reviewed or improved.
    Project,
    /// A model that was trained and is tried.
    Finetune,
    /// Agents that a task is compared with.
    Routing,
    /// A model's card.
    Probe,
}

impl Purpose {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Chat => "chat",
            Purpose::Embed => "embed",
            Purpose::Search => "search",
            Purpose::Ask => "ask",
            Purpose::Memory => "memory",
            Purpose::Ingest => "ingest",
            Purpose::Project => "project",
            Purpose::Finetune => "finetune",
            Purpose::Routing => "routing",
            Purpose::Probe => "probe",
        }
    }
}

/// Whom a call is charged to. The calls of a run's agent are charged to nobody: the run carries their sum.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// The namespace.
    pub namespace: String,
    /// The conversation within it, where there is one.
    pub session: Option<String>,
    /// What for.
    pub purpose: Purpose,
}

impl Account {
    /// An account of a namespace, without a conversation.
    pub fn of(namespace: impl ToString, purpose: Purpose) -> Self {
        Account { namespace: namespace.to_string(), session: None, purpose }
    }

    /// The same for a conversation.
    #[must_use]
    pub fn in_session(self, session: impl ToString) -> Self {
        Account { session: Some(session.to_string()), ..self }
    }
}

/// What a call used.
#[derive(Debug, Clone, PartialEq)]
pub struct MeteredCall {
    /// The provider that answered.
    pub provider: String,
    /// The model's name there.
    pub model: String,
    /// Its tokens, as the provider counts them.
    pub usage: Usage,
    /// What it cost.
    pub cost: Cost,
    /// Whether the tokens are estimated, in part or all: the call was cut off before they were counted.
    pub estimated: bool,
}

/// Takes down what calls used. It must not block: it runs where the call ended.
pub trait Meter: Send + Sync {
    /// A call has ended.
    fn record(&self, account: &Account, call: MeteredCall);
}

/// Who takes calls down, and whom they are charged to.
#[derive(Clone, Default)]
pub(crate) struct Metering {
    pub(crate) meter: Option<Arc<dyn Meter>>,
    pub(crate) account: Option<Arc<Account>>,
}

impl Metering {
    /// A call that begins; none where nobody takes it down or it is charged to nobody.
    pub(crate) fn begin(&self, provider: &str, model: &str) -> Option<Charge> {
        let (meter, account) = (self.meter.clone()?, self.account.clone()?);
        Some(Charge { meter, account, provider: provider.to_owned(), model: model.to_owned() })
    }
}

/// A call that is charged once it is known what it used.
pub(crate) struct Charge {
    meter: Arc<dyn Meter>,
    account: Arc<Account>,
    provider: String,
    model: String,
}

impl Charge {
    /// Takes the call down with what it used, and whether that is an estimate.
    pub(crate) fn settle(self, usage: Usage, estimated: bool, prices: &Prices) {
        let Charge { meter, account, provider, model } = self;
        let cost = prices.cost(&provider, &model, usage);
        meter.record(&account, MeteredCall { provider, model, usage, cost, estimated });
    }
}

/// Passes on what a call says, and charges it: with its reply, else with what is told of one that fails or is dropped.
struct Heard<'s> {
    sink: &'s mut dyn DeltaSink,
    charge: Option<Charge>,
    prices: &'s Prices,
    failed: Usage,
    estimated: bool,
}

impl Heard<'_> {
    fn settle(&mut self, usage: Usage) {
        if let Some(charge) = self.charge.take() {
            charge.settle(usage, self.estimated, self.prices);
        }
    }
}

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        if self.failed.total() > 0 {
            self.settle(self.failed);
        }
    }
}

impl DeltaSink for Heard<'_> {
    fn delta(&mut self, text: &str) {
        self.sink.delta(text);
    }

    fn thought(&mut self, text: &str) {
        self.sink.thought(text);
    }

    fn used(&mut self, usage: Usage) {
        self.failed = usage;
        self.sink.used(usage);
    }

    fn estimated(&mut self) {
        self.estimated = true;
        self.sink.estimated();
    }
}

/// A provider whose chats are charged one by one.
pub(crate) struct Charging<'m> {
    pub(crate) provider: &'m dyn Provider,
    pub(crate) metering: &'m Metering,
    pub(crate) prices: &'m Prices,
}

#[async_trait]
impl Provider for Charging<'_> {
    fn name(&self) -> &str {
        self.provider.name()
    }

    async fn list_models(&self) -> Result<Vec<ModelInfo>, ModelError> {
        self.provider.list_models().await
    }

    async fn chat(
        &self,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        let charge = self.metering.begin(self.provider.name(), &request.model);
        let mut heard = Heard { sink, charge, prices: self.prices, failed: Usage::default(), estimated: false };
        let reply = self.provider.chat(request, &mut heard, cancel).await;
        if let Ok(reply) = &reply {
            heard.settle(reply.usage);
        }
        reply
    }

    async fn embed(&self, request: EmbedRequest) -> Result<EmbedReply, ModelError> {
        self.provider.embed(request).await
    }

    async fn rerank(&self, request: RerankRequest) -> Result<RerankReply, ModelError> {
        self.provider.rerank(request).await
    }

    async fn probe(&self) -> Result<ProbeReport, ModelError> {
        self.provider.probe().await
    }

    async fn count_tokens(&self, model: &str, text: &str) -> Result<usize, ModelError> {
        self.provider.count_tokens(model, text).await
    }

    async fn count_prompt(&self, request: &ChatRequest) -> Result<usize, ModelError> {
        self.provider.count_prompt(request).await
    }

    async fn context_tokens(&self, model: &str) -> Result<usize, ModelError> {
        self.provider.context_tokens(model).await
    }
}
