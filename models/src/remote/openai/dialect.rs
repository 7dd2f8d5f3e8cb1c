//! How a provider's way of speaking OpenAI's protocol differs from OpenAI's own.

/// The differences.
#[derive(Debug, Clone, Copy)]
pub(in crate::remote) struct Dialect {
    /// The field of the bound on generated tokens.
    pub(in crate::remote) max_tokens: &'static str,
    /// Whether it counts tokens only when `stream_options` asks for it.
    pub(in crate::remote) stream_usage: bool,
    /// The field of the seed.
    pub(in crate::remote) seed: Option<&'static str>,
    /// What it knows of JSON.
    pub(in crate::remote) json: JsonMode,
    /// Beginnings of the names of models that choose how they sample, and refuse a request that says how or pass it over.
    pub(in crate::remote) own_sampling: &'static [&'static str],
    /// Whether the ids of tool calls must be nine letters and digits.
    pub(in crate::remote) short_ids: bool,
    /// Whether it takes `top_k`, `min_p` and a repeat penalty, which OpenAI has not.
    pub(in crate::remote) sampling: bool,
    /// Whether its models heed `frequency_penalty` and `presence_penalty`.
    pub(in crate::remote) penalties: bool,
    /// The field of the repeat penalty.
    pub(in crate::remote) repeat: &'static str,
    /// Whether it has chat models.
    pub(in crate::remote) chats: bool,
    /// Whether it lists its models.
    pub(in crate::remote) lists: bool,
    /// Whether it embeds.
    pub(in crate::remote) embeds: bool,
    /// Whether it takes `encoding_format`.
    pub(in crate::remote) encoding_format: bool,
    /// How it is told what texts are embedded for.
    pub(in crate::remote) purpose: Option<Purpose>,
    /// The field that says how long vectors should be.
    pub(in crate::remote) dimensions: Option<&'static str>,
    /// The field that says whether texts which are too long to be embedded are cut.
    pub(in crate::remote) truncation: Option<&'static str>,
    /// Whether it re-ranks, in the shape that Jina, vLLM and llama.cpp share.
    pub(in crate::remote) reranks: bool,
    /// The field of the answer that holds the scores.
    pub(in crate::remote) ranks: &'static str,
    /// Whether `/tokenize` lies beside `/v1`: llama.cpp (`content` → `tokens`) and vLLM (`prompt` → `count`).
    pub(in crate::remote) tokenizes: bool,
    /// Whether the path may name the model as a deployment, with an API version.
    pub(in crate::remote) deployments: bool,
    /// Whether its counts say what it charges, in US dollars.
    pub(in crate::remote) tells_cost: bool,
}

impl Dialect {
    /// Whether a model chooses by itself how it samples.
    pub(in crate::remote) fn samples_itself(&self, model: &str) -> bool {
        // Those that only chat, as `gpt-5-chat-latest`, are told how to sample like the older ones.
        self.own_sampling.iter().any(|start| model.starts_with(start)) && !model.contains("-chat")
    }
}

/// What a server knows of JSON answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::remote) enum JsonMode {
    /// Holds the answer to a schema.
    Schema,
    /// Only that it is JSON: the schema is put into the instructions.
    Object,
}

/// The field that says what texts are embedded for, with its values.
#[derive(Debug, Clone, Copy)]
pub(in crate::remote) struct Purpose {
    pub(in crate::remote) field: &'static str,
    pub(in crate::remote) document: &'static str,
    pub(in crate::remote) query: &'static str,
}

/// What most services speak.
pub(in crate::remote) const PLAIN: Dialect = Dialect {
    max_tokens: "max_tokens",
    stream_usage: true,
    seed: Some("seed"),
    json: JsonMode::Schema,
    own_sampling: &[],
    short_ids: false,
    sampling: false,
    penalties: true,
    repeat: "repetition_penalty",
    chats: true,
    lists: true,
    embeds: true,
    encoding_format: true,
    purpose: None,
    dimensions: None,
    truncation: None,
    reranks: false,
    ranks: "results",
    tokenizes: false,
    deployments: false,
    tells_cost: false,
};

/// OpenAI itself, which renamed a field that the others know by its old name.
pub(in crate::remote) const OPENAI: Dialect = Dialect {
    max_tokens: "max_completion_tokens",
    own_sampling: &["o1", "o3", "o4", "gpt-5"],
    dimensions: Some("dimensions"),
    ..PLAIN
};

/// A server of one's own: llama.cpp and what is like it.
pub(in crate::remote) const SERVER: Dialect =
    Dialect { sampling: true, repeat: "repeat_penalty", reranks: true, tokenizes: true, ..PLAIN };

/// A server or gateway in OpenAI's place.
pub(in crate::remote) const COMPATIBLE: Dialect = Dialect { dimensions: Some("dimensions"), ..SERVER };
