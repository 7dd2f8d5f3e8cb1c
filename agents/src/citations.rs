//! Checks what a run's answer cites against the passages that its searches found, and writes it as events say it.

use riverrun_knowledge::answer::{self, MarkerFilter};
use riverrun_knowledge::retrieval::{Scores, SearchItem, Span};
use riverrun_schemas::agent::Citation;
use serde_json::json;

use crate::state::RunState;
use crate::tools::Hit;

/// The answer with the numbers that the run gave and no others, and the places that they stand for. Without passages
/// there is nothing to cite: brackets in the answer are then the model's own words.
pub fn check(state: &RunState, answer: Option<String>) -> (Option<String>, Vec<Citation>) {
    let sources = state.sources();
    let answer = match answer {
        Some(answer) if !sources.is_empty() => answer,
        other => return (other.as_deref().map(answer::inert), Vec::new()),
    };
    let items: Vec<SearchItem> = sources.into_iter().map(item).collect();
    let mut filter = MarkerFilter::new(items.len());
    let mut known = filter.push(&answer);
    known.push_str(&filter.finish());
    let checked = answer::check(&known, &state.request.task, &items.iter().collect::<Vec<_>>());
    (Some(checked.answer), checked.citations.into_iter().map(citation).collect())
}

fn item(hit: Hit) -> SearchItem {
    SearchItem {
        chunk_id: hit.chunk_id,
        document_id: hit.document_id,
        source: hit.source,
        text: hit.text,
        score: hit.score,
        scores: Scores { dense: None, sparse: None, fused: hit.score, rerank: None },
        span: Span { start: hit.start, end: hit.end },
        chunk: hit.chunk,
        page: hit.page,
        metadata: json!({}),
    }
}

fn citation(cited: answer::Citation) -> Citation {
    Citation {
        n: i32::try_from(cited.n).unwrap_or(i32::MAX),
        chunk_id: cited.chunk_id,
        document_id: cited.document_id,
        source: cited.source,
        start: cited.span.start,
        end: cited.span.end,
        page: cited.page,
        quote: cited.quote,
        supported: cited.supported,
    }
}
