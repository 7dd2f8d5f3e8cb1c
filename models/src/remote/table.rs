//! The providers behind HTTP, as data. A provider that speaks a protocol which is here already is a row of [`PROVIDERS`].

use super::openai::dialect::{self, Dialect, JsonMode, Purpose};
use crate::http::Auth;
use crate::models::ProviderKind;
use crate::settings::aws;

/// Which protocol a provider speaks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wire {
    /// OpenAI's, as this provider speaks it.
    OpenAi(Dialect),
    /// Anthropic's Messages.
    Anthropic,
    /// Google's Gemini.
    Gemini,
    /// Cohere's second version.
    Cohere,
    /// Converse of Amazon Bedrock.
    Bedrock,
    /// Ollama's native one.
    Ollama,
}

/// Stands in an address for the region.
const REGION: &str = "{region}";

/// A provider.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// The name that settings, flags and errors use; lower case letters.
    pub(crate) name: &'static str,
    pub(super) wire: Wire,
    /// Hosted ones do nothing without a key.
    pub(crate) kind: ProviderKind,
    /// Where it is when the settings do not say, with [`REGION`] for that of AWS; none where only the operator knows.
    pub(crate) address: Option<&'static str>,
    /// Added to an address that names only a server.
    pub(super) path: &'static str,
    pub(super) auth: Auth,
    /// Headers of every request.
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// The model that re-ranks when the provider's key is set and no re-ranker is named.
    pub(crate) reranker: Option<&'static str>,
}

/// A hosted service that speaks OpenAI's protocol with a bearer token.
const fn hosted(name: &'static str, address: &'static str, dialect: Dialect) -> Spec {
    Spec {
        name,
        wire: Wire::OpenAi(dialect),
        kind: ProviderKind::Hosted,
        address: Some(address),
        path: "/v1",
        auth: Auth::Bearer,
        headers: &[],
        reranker: None,
    }
}

/// A server of the operator's that speaks OpenAI's protocol; the key is optional.
const fn server(name: &'static str, address: Option<&'static str>, dialect: Dialect) -> Spec {
    Spec { kind: ProviderKind::Server, address, ..hosted(name, "", dialect) }
}

/// All of them, in the order in which they are listed.
pub(crate) const PROVIDERS: &[Spec] = &[
    Spec {
        name: "ollama",
        wire: Wire::Ollama,
        kind: ProviderKind::Server,
        address: Some(crate::settings::DEFAULT_OLLAMA_ADDRESS),
        path: "",
        auth: Auth::Bearer,
        headers: &[],
        reranker: None,
    },
    hosted("openai", crate::settings::DEFAULT_OPENAI_ADDRESS, dialect::OPENAI),
    Spec {
        name: "anthropic",
        wire: Wire::Anthropic,
        kind: ProviderKind::Hosted,
        address: Some("https://api.anthropic.com"),
        path: "",
        auth: Auth::Header("x-api-key"),
        headers: &[("anthropic-version", "2023-06-01")],
        reranker: None,
    },
    Spec {
        name: "gemini",
        wire: Wire::Gemini,
        kind: ProviderKind::Hosted,
        address: Some("https://generativelanguage.googleapis.com/v1beta"),
        path: "/v1beta",
        auth: Auth::Header("x-goog-api-key"),
        headers: &[],
        reranker: None,
    },
    // Refuses fields that it does not know, and counts without being asked.
    hosted(
        "mistral",
        "https://api.mistral.ai/v1",
        Dialect {
            stream_usage: false,
            seed: Some("random_seed"),
            short_ids: true,
            dimensions: Some("output_dimension"),
            ..dialect::PLAIN
        },
    ),
    // Takes the fields of penalties, and says that none of its models heeds them.
    hosted(
        "groq",
        "https://api.groq.com/openai/v1",
        Dialect { max_tokens: "max_completion_tokens", penalties: false, ..dialect::PLAIN },
    ),
    // Knows JSON, but no schemas. Its reasoning model takes fields that say how it samples, and passes them over.
    hosted(
        "deepseek",
        "https://api.deepseek.com",
        Dialect {
            json: JsonMode::Object,
            seed: None,
            own_sampling: &["deepseek-reasoner"],
            embeds: false,
            ..dialect::PLAIN
        },
    ),
    Spec {
        headers: &[("x-title", "riverrun")],
        ..hosted(
            "openrouter",
            "https://openrouter.ai/api/v1",
            Dialect { sampling: true, tells_cost: true, ..dialect::PLAIN },
        )
    },
    hosted("together", "https://api.together.xyz/v1", Dialect { sampling: true, reranks: true, ..dialect::PLAIN }),
    // The resource's own address ends in `.openai.azure.com`; the model is the deployment's name.
    Spec {
        address: None,
        path: "/openai/v1",
        auth: Auth::Header("api-key"),
        ..hosted("azure", "", Dialect { deployments: true, ..dialect::OPENAI })
    },
    Spec {
        name: "cohere",
        wire: Wire::Cohere,
        kind: ProviderKind::Hosted,
        address: Some("https://api.cohere.com"),
        path: "",
        auth: Auth::Bearer,
        headers: &[],
        reranker: Some("rerank-v3.5"),
    },
    Spec {
        name: "bedrock",
        wire: Wire::Bedrock,
        kind: ProviderKind::Hosted,
        address: Some("https://bedrock-runtime.{region}.amazonaws.com"),
        path: "",
        auth: Auth::Bearer,
        headers: &[],
        reranker: None,
    },
    Spec {
        reranker: Some("rerank-2.5"),
        ..hosted(
            "voyage",
            "https://api.voyageai.com/v1",
            Dialect {
                chats: false,
                lists: false,
                reranks: true,
                ranks: "data",
                encoding_format: false,
                purpose: Some(Purpose { field: "input_type", document: "document", query: "query" }),
                dimensions: Some("output_dimension"),
                truncation: Some("truncation"),
                ..dialect::PLAIN
            },
        )
    },
    Spec {
        reranker: Some("jina-reranker-v2-base-multilingual"),
        ..hosted(
            "jina",
            "https://api.jina.ai/v1",
            Dialect {
                chats: false,
                lists: false,
                reranks: true,
                encoding_format: false,
                purpose: Some(Purpose { field: "task", document: "retrieval.passage", query: "retrieval.query" }),
                dimensions: Some("dimensions"),
                truncation: Some("truncate"),
                ..dialect::PLAIN
            },
        )
    },
    server("lmstudio", Some("http://127.0.0.1:1234/v1"), Dialect { sampling: true, ..dialect::PLAIN }),
    // Its default port is ours, so that its address must be given.
    server("vllm", None, Dialect { repeat: "repetition_penalty", ..dialect::COMPATIBLE }),
    server("llamacpp", Some("http://127.0.0.1:8080/v1"), dialect::SERVER),
];

/// The provider of this name.
#[cfg(test)]
pub(crate) fn find(name: &str) -> Option<&'static Spec> {
    PROVIDERS.iter().find(|spec| spec.name == name)
}

impl Spec {
    /// The setting of its address.
    pub(crate) fn address_setting(&self) -> String {
        match self.wire {
            Wire::Ollama => "RIVERRUN_MODEL_RUNTIME_BASE_URL".to_owned(),
            _ => format!("RIVERRUN_{}_BASE_URL", self.name.to_uppercase()),
        }
    }

    /// Where it is when the settings do not say; none where that needs a region and there is none.
    pub(super) fn own_address(&self, region: Option<&str>) -> Option<String> {
        let address = self.address?;
        if address.contains(REGION) { Some(address.replace(REGION, region?)) } else { Some(address.to_owned()) }
    }

    /// Whether its key goes into the `Authorization` header.
    pub(crate) fn has_bearer(&self) -> bool {
        self.auth == Auth::Bearer
    }

    /// The setting of its key.
    pub(crate) fn key_setting(&self) -> String {
        format!("RIVERRUN_{}_API_KEY", self.name.to_uppercase())
    }

    /// The variable that the maker's own programs have the key in.
    pub(crate) fn makers_key_setting(&self) -> Option<&'static str> {
        self.is_signed().then_some(aws::BEARER_TOKEN)
    }

    /// Whether its requests may be signed instead of carrying a key.
    pub(crate) fn is_signed(&self) -> bool {
        matches!(self.wire, Wire::Bedrock)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn given_the_table_when_it_is_read_then_names_are_unique_and_hosted_ones_are_reached_by_tls() {
        let names: HashSet<&str> = PROVIDERS.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), PROVIDERS.len());
        for spec in PROVIDERS {
            assert!(spec.name.chars().all(|c| c.is_ascii_lowercase()), "{}", spec.name);
            assert_eq!(find(spec.name).map(|found| found.name), Some(spec.name));
            let hosted = spec.kind == ProviderKind::Hosted;
            assert!(!hosted || spec.address.is_none_or(|address| address.starts_with("https://")), "{}", spec.name);
            assert!(spec.address.is_none_or(|address| !address.ends_with('/')), "{}", spec.name);
        }
    }
}
