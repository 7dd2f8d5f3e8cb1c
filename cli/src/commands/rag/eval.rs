//! `riverrun rag eval`: how good retrieval is, by judgements of people, for each way of searching side by side.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use riverrun_api::wire::{DocumentView, Fusion, Page, SearchBody, SearchDone, SearchMode};
use riverrun_knowledge::retrieval::metrics::{Judged, Quality, quality};
use riverrun_schemas::{agreed, counted};
use serde::Serialize;

use crate::client::{Client, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::judged::{self, Questions};
use crate::output::{Output, table, tell};
use crate::progress;

/// Documents that are ranked.
const DEPTH: usize = 100;
/// Documents of the collection that are asked for together.
const PAGE: u32 = 500;

/// Options of `rag eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Judgements, one a line: query, document, grade; or in TREC's four columns
    #[arg(long, value_name = "FILE")]
    pub qrels: PathBuf,
    /// Queries, one a line: its id, a tab, its text
    #[arg(long, value_name = "FILE")]
    pub queries: PathBuf,
    /// The collection; a document's id in the judgements is its file's name without extension
    #[arg(short, long, default_value = "default")]
    pub collection: String,
    /// Its namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// A way of searching; may be repeated. Dense, sparse and hybrid when left out
    #[arg(long = "config", value_enum)]
    pub configs: Vec<Config>,
    /// Search as if the collection had not been tuned
    #[arg(long)]
    pub untuned: bool,
    /// Fail when nDCG@10 of a way of searching is below this
    #[arg(long, value_parser = floor, value_name = "0..1")]
    pub at_least: Option<f64>,
}

/// A floor that results can be below and above: with any other, the gate would hold for all of them, or for none.
fn floor(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a number from 0 to 1"))
}

/// A way of searching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Config {
    /// By meaning
    Dense,
    /// By words
    Sparse,
    /// Both, fused by ranks
    Hybrid,
    /// Both, fused by scores
    Scores,
    /// Both, fused by ranks, then ordered by a cross-encoder
    Rerank,
}

impl Config {
    fn name(self) -> &'static str {
        match self {
            Config::Dense => "dense",
            Config::Sparse => "sparse",
            Config::Hybrid => "hybrid",
            Config::Scores => "scores",
            Config::Rerank => "rerank",
        }
    }

    fn mode(self) -> SearchMode {
        match self {
            Config::Dense => SearchMode::Dense,
            Config::Sparse => SearchMode::Sparse,
            Config::Hybrid | Config::Scores | Config::Rerank => SearchMode::Hybrid,
        }
    }

    /// Said each time, so that a name means the same whatever the server's settings are.
    fn fusion(self) -> Fusion {
        match self {
            Config::Scores => Fusion::Scores,
            Config::Dense | Config::Sparse | Config::Hybrid | Config::Rerank => Fusion::Rrf,
        }
    }
}

/// What one way of searching came to.
#[derive(Debug, Serialize)]
struct Line {
    config: &'static str,
    queries: usize,
    ndcg_at_10: f64,
    recall_at_10: f64,
    recall_at_100: f64,
    mrr: f64,
    mean_ms: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    collection: String,
    items: Vec<Line>,
    unmatched: Unmatched,
}

/// What of the files matched nothing: it counts against the figures, or not at all, whatever the searches find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Unmatched {
    /// Queries that nobody judged; they are not measured.
    queries: usize,
    /// Judged queries that have no text; nor are these.
    judged_queries: usize,
    /// Judged documents that can't be found in the collection.
    documents: usize,
    /// Judgements of these queries and documents.
    judgements: usize,
}

impl Unmatched {
    /// What people are told of it; `None` where everything matched.
    fn told(self) -> Option<String> {
        let part = |number: usize, what: &str, is: &str, are: &str| {
            let verb = agreed(number, is, are);
            (number > 0).then(|| format!("{} {verb}", counted(number, what)))
        };
        let parts = [
            part(self.documents, "judged document", "is not in the collection", "are not in the collection"),
            part(self.judged_queries, "judged query", "is not in --queries", "are not in --queries"),
            part(self.queries, "query", "is not judged in --qrels", "are not judged in --qrels"),
            part(self.judgements, "judgement", "matched nothing", "matched nothing"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Queries with their judgements, read before anything is started.
pub struct Prepared {
    args: EvalArgs,
    questions: Questions,
}

/// Reads both files.
pub fn prepare(args: EvalArgs) -> Result<Prepared, CliError> {
    let questions = judged::read(&args.queries, &args.qrels)?;
    Ok(Prepared { args, questions })
}

pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    let Prepared { args, questions } = prepared;
    let unmatched = unmatched(&connection.client, &args.collection, args.namespace.as_deref(), &questions).await?;
    if let Some(told) = unmatched.told() {
        tell(&told);
    }
    let queries = questions.judged;
    let configs = if args.configs.is_empty() {
        vec![Config::Dense, Config::Sparse, Config::Hybrid]
    } else {
        args.configs.clone()
    };
    let bar = progress::bar(output, Some((configs.len() * queries.len()) as u64), "searches");
    let mut items = Vec::with_capacity(configs.len());
    for config in configs {
        bar.set_message(config.name());
        let (mut rankings, mut took_ms) = (Vec::with_capacity(queries.len()), 0.0);
        for (query, _) in &queries {
            let (ranking, ms) = ranking(connection, &args, config, query).await?;
            rankings.push(ranking);
            took_ms += ms;
            bar.inc(1);
        }
        let found = quality(rankings.iter().map(Vec::as_slice).zip(queries.iter().map(|(_, judged)| judged)));
        items.push(line(config, found, took_ms / queries.len() as f64));
    }
    bar.finish_and_clear();
    let report = Report { collection: args.collection, items, unmatched };
    output.show(&report, |report| {
        let row = |line: &Line| {
            let share = |value: f64| format!("{value:.3}");
            [
                line.config.to_owned(),
                share(line.ndcg_at_10),
                share(line.recall_at_10),
                share(line.recall_at_100),
                share(line.mrr),
                line.queries.to_string(),
                format!("{:.1}", line.mean_ms),
            ]
        };
        table(
            ["config", "ndcg@10", "recall@10", "recall@100", "mrr", "queries", "mean ms"],
            report.items.iter().map(row).collect(),
            "nothing was measured",
        )
    })?;
    let floor = args.at_least.unwrap_or(0.0);
    match report.items.iter().find(|line| line.ndcg_at_10 < floor) {
        Some(line) => Err(CliError::new(
            Exit::Failed,
            format!("nDCG@10 of {} is {:.3}, which is below {floor}", line.config, line.ndcg_at_10),
        )),
        None => Ok(()),
    }
}

/// Compares the files with the collection. Judgements of documents none of which is there measure nothing.
async fn unmatched(
    client: &Client,
    collection: &str,
    namespace: Option<&str>,
    questions: &Questions,
) -> Result<Unmatched, CliError> {
    let all: HashSet<&str> =
        questions.judged.iter().flat_map(|(_, judged)| judged.keys().map(String::as_str)).collect();
    let (mut missing, mut cursor) = (all.clone(), None);
    // As far as there is something to look for: a collection may have many more documents than are judged.
    while !missing.is_empty() {
        let asked = [
            ("collection", Some(collection.to_owned())),
            ("namespace", namespace.map(str::to_owned)),
            ("limit", Some(PAGE.to_string())),
            ("cursor", cursor),
        ];
        let page: Page<DocumentView> = client.get(&with_query("/documents", &asked)).await?;
        for document in page.items.iter().filter(|document| document.indexed_version.is_some()) {
            missing.remove(stem(&document.source).as_str());
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if missing.len() == all.len() {
        let judged = counted(all.len(), "judged document");
        let what = format!("of {judged} none is in collection {collection:?}: nothing would be measured");
        return Err(CliError::new(Exit::Refused, what).hint(format!(
            "a document of --qrels is its file's name without extension; riverrun docs ls -c {collection} shows the files"
        )));
    }
    let of_missing = |judged: &Judged| judged.keys().filter(|document| missing.contains(document.as_str())).count();
    let judgements: usize = questions.judged.iter().map(|(_, judged)| of_missing(judged)).sum();
    Ok(Unmatched {
        queries: questions.unjudged,
        judged_queries: questions.without_text,
        documents: missing.len(),
        judgements: judgements + questions.without_text_judgements,
    })
}

fn line(config: Config, found: Quality, mean_ms: f64) -> Line {
    Line {
        config: config.name(),
        queries: found.queries,
        ndcg_at_10: found.ndcg_at_10,
        recall_at_10: found.recall_at_10,
        recall_at_100: found.recall_at_100,
        mrr: found.mrr,
        mean_ms,
    }
}

/// Documents in the order of their best chunk, and how long the search took.
async fn ranking(
    connection: &Connection,
    args: &EvalArgs,
    config: Config,
    query: &str,
) -> Result<(Vec<String>, f64), CliError> {
    let body = SearchBody {
        query: query.to_owned(),
        collection: args.collection.clone(),
        namespace: args.namespace.clone(),
        k: Some(DEPTH),
        per_document: Some(true),
        rerank: Some(config == Config::Rerank),
        mode: Some(config.mode()),
        fusion: Some(config.fusion()),
        tuned: Some(!args.untuned),
        ..SearchBody::default()
    };
    let since = std::time::Instant::now();
    let found: SearchDone = connection.client.post("/rag/search", &body).await?;
    let ms = since.elapsed().as_secs_f64() * 1_000.0;
    let mut seen = HashSet::new();
    let documents =
        found.items.iter().map(|item| stem(&item.source)).filter(|name| seen.insert(name.clone())).collect();
    Ok((documents, ms))
}

fn stem(source: &str) -> String {
    Path::new(source).file_stem().map_or_else(|| source.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::testing::{answering, unknown};

    fn questions(judged: &[(&str, &[&str])]) -> Questions {
        let grades = |documents: &[&str]| documents.iter().map(|name| ((*name).to_owned(), 1.0)).collect();
        let judged = judged.iter().map(|(text, documents)| ((*text).to_owned(), grades(documents))).collect();
        Questions { judged, unjudged: 2, without_text: 1, without_text_judgements: 4 }
    }

    fn page(sources: &[(&str, bool)], next: Option<&str>) -> (u16, Value) {
        let document = |(source, is_indexed): &(&str, bool)| {
            let version = is_indexed.then_some("v");
            json!({
                "document_id": "doc_01h455vb4pex5vsknk084sn02q", "namespace": "default", "collection": "c", "source": source,
                "status": "indexed", "ingest_id": "ing_01h455vb4pex5vsknk084sn02q", "version": "v", "chunks": 1,
                "indexed_version": version, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
            })
        };
        let items: Vec<Value> = sources.iter().map(document).collect();
        (200, json!({ "items": items, "next_cursor": next }))
    }

    async fn compared(pages: Vec<(u16, Value)>, questions: &Questions) -> Result<Unmatched, CliError> {
        unmatched(&answering(&[("/documents", pages)]), "c", None, questions).await
    }

    #[tokio::test]
    async fn given_judgements_of_documents_that_are_not_there_when_they_are_compared_then_they_are_counted_and_none_that_is_there_is_an_error()
     {
        let pages = || {
            vec![
                page(&[("/a/guide.md", true), ("/a/late.md", false)], Some("/a/late.md")),
                page(&[("https://h/rules.html", true)], None),
            ]
        };
        let some = questions(&[("q", &["guide", "gone", "late"]), ("r", &["rules", "gone"])]);
        let unmatched = compared(pages(), &some).await.unwrap();
        assert_eq!(unmatched, Unmatched { queries: 2, judged_queries: 1, documents: 2, judgements: 7 });
        let told = unmatched.told().unwrap();
        for part in ["2 judged documents are not", "1 judged query is not", "2 queries are not", "7 judgements"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let none = compared(pages(), &questions(&[("q", &["gone", "late"])])).await.unwrap_err();
        assert!(none.exit == Exit::Refused && none.message.contains("2 judged documents"), "{none:?}");
        assert!(none.hint.unwrap().contains("riverrun docs ls -c c"));
        let missing = compared(vec![unknown("collection_not_found")], &some).await.unwrap_err();
        assert_eq!(missing.code.as_deref(), Some("collection_not_found"));
    }

    #[tokio::test]
    async fn given_files_of_which_everything_matches_when_they_are_compared_then_nothing_is_told() {
        let all = Questions { unjudged: 0, without_text: 0, without_text_judgements: 0, ..questions(&[("q", &["a"])]) };
        let unmatched = compared(vec![page(&[("/x/a.md", true)], Some("more"))], &all).await.unwrap();
        assert_eq!(unmatched, Unmatched { queries: 0, judged_queries: 0, documents: 0, judgements: 0 });
        assert_eq!(unmatched.told(), None);
    }
}
