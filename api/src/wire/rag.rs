use riverrun_stores::read_models::{CitationView, FailureView, SpanView, UsageView};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Both bodies from one list of what a search and a question say of what is to be found. Each is a plain struct, because serde
/// refuses unknown fields, and tells where a value is wrong, only where nothing is flattened.
macro_rules! searching_bodies {
    ($($(#[$said:meta])* $field:ident: $kind:ty,)+) => {
        /// What to find, and where.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct SearchBody {
            $($(#[$said])* pub $field: $kind,)+
        }

        /// A question to a collection.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct AskBody {
            $($(#[$said])* pub $field: $kind,)+
            /// Model provider.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub provider: Option<String>,
            /// Chat model.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub model: Option<String>,
            /// Answer with server-sent events: `delta` `{text}` while the model writes, then `final` with the whole answer, or
            /// `error` with a problem document.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub stream: Option<bool>,
        }

        impl AskBody {
            /// The search that finds what the answer is made from.
            pub fn search(&self) -> SearchBody {
                SearchBody { $($field: self.$field.clone(),)+ }
            }
        }

        impl From<SearchBody> for AskBody {
            fn from(search: SearchBody) -> Self {
                Self { $($field: search.$field,)+ provider: None, model: None, stream: None }
            }
        }
    };
}

searching_bodies! {
    /// The question or words; at most 16 KiB.
    query: String,
    /// The collection to look in.
    collection: String,
    /// Its namespace; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// How many chunks to find, 1 to 100; `RIVERRUN_RAG_TOP_K` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    k: Option<usize>,
    /// Whether each document is found once, by its best chunk: `k` then counts documents. Chunks count when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    per_document: Option<bool>,
    /// Only chunks of certain documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<FilterBody>,
    /// Whether a cross-encoder orders the chunks; left out, it does where one is there. `true` has it fetched first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rerank: Option<bool>,
    /// Which searches are done; both when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<SearchMode>,
    /// How what they found becomes one order; `RIVERRUN_RAG_FUSION` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fusion: Option<Fusion>,
    /// Other wordings of the query, at most 8: what each finds is fused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wordings: Vec<String>,
    /// Whether the default chat model is asked for other wordings, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rewrite: Option<bool>,
    /// Whether a collection that was tuned is searched so; it is when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tuned: Option<bool>,
    /// Bytes of the document before and behind each chunk, at most 20,000: a search shows them as `context`, and the model
    /// that answers a question reads them. Left out, a search shows none and a question has `RIVERRUN_RAG_CONTEXT_BYTES`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context_bytes: Option<usize>,
}

/// Which searches are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchMode {
    /// By meaning and by words, fused.
    Hybrid,
    /// By meaning only.
    Dense,
    /// By words only.
    Sparse,
}

impl From<SearchMode> for riverrun_knowledge::retrieval::SearchMode {
    fn from(mode: SearchMode) -> Self {
        match mode {
            SearchMode::Hybrid => Self::Hybrid,
            SearchMode::Dense => Self::Dense,
            SearchMode::Sparse => Self::Sparse,
        }
    }
}

/// How the lists of both searches become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fusion {
    /// By ranks alone: reciprocal rank fusion.
    Rrf,
    /// By scores, each a share of its list's best, of which meaning counts for 0.8 and words for 0.2.
    Scores,
}

impl From<Fusion> for riverrun_knowledge::retrieval::Fusion {
    fn from(fusion: Fusion) -> Self {
        match fusion {
            Fusion::Rrf => Self::Rrf,
            Fusion::Scores => Self::Scores,
        }
    }
}

/// Which documents' chunks may be found: any of those named, and of them those whose metadata fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterBody {
    /// Ids of documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub document_ids: Vec<String>,
    /// Where documents came from, exactly as `source` shows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Fields of the documents' metadata with the value that they must have, or a list of values of which they must have
    /// one: texts, numbers, truths. Every field must fit. A field that is a list fits when one of its items does.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(additional_properties)]
    pub metadata: Map<String, Value>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchDone {
    /// Best first.
    pub items: Vec<SearchItem>,
    /// How long each stage took.
    pub took_ms: SearchTimes,
    /// The model that the query was embedded with.
    pub embed_model: String,
    /// Whether what the collection was tuned to moved the vectors of the query.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tuned: bool,
    /// What was left out although it was wanted, such as a re-ranking that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Why chunks of the collection may be lacking, with the code `index_incomplete`; it is among the notes, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<FailureView>,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchItem {
    /// The chunk.
    pub chunk_id: String,
    /// Its document.
    pub document_id: String,
    /// Where the document came from.
    pub source: String,
    /// The chunk's text.
    pub text: String,
    /// What the order follows: the re-ranker's score where there is one, else the fused one.
    pub score: f64,
    /// Scores of the single stages; null where the stage did not find the chunk.
    pub scores: SearchScores,
    /// Where the chunk is in the document's stored text.
    pub span: SpanView,
    /// Page, where the format has pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<i32>,
    /// The chunk with what stands around it in its document, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<SearchContext>,
    /// The document's metadata, with `version`, `ordinal` and `heading` of the chunk.
    #[schema(value_type = Object)]
    pub metadata: Value,
}

/// A chunk with what stands around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchContext {
    /// Where it is in the document's stored text.
    pub span: SpanView,
    /// `stored_text[span.start..span.end]`.
    pub text: String,
}

/// Scores of the single stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchScores {
    /// Cosine similarity.
    pub dense: Option<f64>,
    /// BM25.
    pub sparse: Option<f64>,
    /// Both as one, by `fusion`.
    pub fused: Option<f64>,
    /// The cross-encoder's.
    pub rerank: Option<f64>,
}

/// How long each stage took, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchTimes {
    /// Asking for other wordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<f64>,
    /// Embedding of the query.
    pub embed: f64,
    /// Search by vector.
    pub dense: f64,
    /// Search by words.
    pub sparse: f64,
    /// Fusion.
    pub fuse: f64,
    /// Re-ranking; null when there was none.
    pub rerank: Option<f64>,
    /// Generation, for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<f64>,
}

/// An answer grounded in chunks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AskDone {
    /// The answer; numbers in brackets are citations.
    pub answer: String,
    /// Whether the collection had an answer.
    pub found: bool,
    /// The places that the answer names. Each also has `chunk_span` and `attributed`: `model` or `overlap`.
    pub citations: Vec<CitationView>,
    /// Every sentence of the answer, in order.
    #[serde(default)]
    pub sentences: Vec<AnswerSentence>,
    /// Tokens of the model call.
    pub usage: UsageView,
    /// How long each stage took.
    pub took_ms: SearchTimes,
    /// Null: answers outside of runs are not traced.
    pub trace_id: Option<String>,
    /// The chat model that answered; null when none was asked.
    pub model: Option<String>,
    /// Why generation ended: `stop`, `length` of an answer that is cut, `repetition` of one that went in circles, `cancelled`; null when no model was asked.
    #[serde(default)]
    pub finish: Option<String>,
    /// Chunks that were found and did not fit in the model's context.
    #[serde(default)]
    pub dropped: Vec<DroppedChunk>,
    /// Numbers that the model cited and nobody gave; they were taken out of the answer.
    #[serde(default)]
    pub removed_citations: Vec<String>,
    /// What was left out although it was wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A sentence of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswerSentence {
    /// Its bytes in the answer, its numbers included.
    pub span: SpanView,
    /// The numbers that it cites, ascending.
    pub citations: Vec<usize>,
    /// Whether the cited chunks together have its words; null where it claims nothing that could be checked.
    pub supported: Option<bool>,
}

/// A chunk that was found and that the model did not see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DroppedChunk {
    /// The chunk.
    pub chunk_id: String,
    /// Where its document came from.
    pub source: String,
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::extract::parse;

    /// The field that a body is refused for.
    fn refused<T: serde::de::DeserializeOwned>(body: &Value) -> Option<String> {
        let problem = parse::<T>(body.to_string().as_bytes()).err()?.problem();
        assert_eq!(problem.status, 422, "{body}: {problem:?}");
        Some(problem.errors[0].field.clone())
    }

    #[test]
    fn given_fields_that_are_unknown_or_wrong_when_bodies_are_read_then_search_and_question_name_them_alike() {
        for (field, value, named) in [
            ("nonsense", json!(1), "nonsense"),
            ("query", json!(5), "query"),
            ("k", json!("many"), "k"),
            ("filter", json!({"sources": [1]}), "filter.sources[0]"),
            ("filter", json!([["doc"]]), "filter"),
            ("wordings", json!([1]), "wordings[0]"),
            ("mode", json!("psychic"), "mode"),
            ("mode", json!(1), "mode"),
            ("fusion", json!(false), "fusion"),
            ("context_bytes", json!(-1), "context_bytes"),
        ] {
            let mut body = json!({"query": "x", "collection": "y"});
            body[field] = value;
            assert_eq!(refused::<SearchBody>(&body).as_deref(), Some(named), "{body}");
            assert_eq!(refused::<AskBody>(&body).as_deref(), Some(named), "{body}");
        }
        let own = json!({"query": "x", "collection": "y", "provider": "local"});
        assert_eq!((refused::<SearchBody>(&own).as_deref(), refused::<AskBody>(&own)), (Some("provider"), None));
    }

    #[test]
    fn given_a_search_when_it_is_asked_as_a_question_then_nothing_of_it_is_lost() {
        let search: SearchBody =
            serde_json::from_value(json!({"query": "q", "collection": "c", "namespace": "n", "k": 3,
            "per_document": true, "filter": {"sources": ["a.md"]}, "rerank": false, "mode": "dense", "fusion": "scores",
            "wordings": ["w"], "rewrite": true, "context_bytes": 9}))
            .unwrap();
        let question = AskBody::from(search.clone());
        assert_eq!(serde_json::to_value(&question).unwrap(), serde_json::to_value(&search).unwrap());
        assert_eq!(question.search(), search);
    }
}
