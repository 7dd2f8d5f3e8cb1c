//! `riverrun rag eval`: how good retrieval is, by judgements of people, for each way of searching side by side.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use riverrun_api::wire::{Fusion, SearchBody, SearchDone, SearchMode};
use riverrun_knowledge::retrieval::metrics::{Judged, Quality, quality};
use serde::Serialize;

use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::judged;
use crate::output::{Output, table};
use crate::progress;

/// Documents that are ranked.
const DEPTH: usize = 100;

/// Options of `rag eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Judgements, one a line: query, document, gain; or in TREC's four columns
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
}

/// Queries with their judgements, read before anything is started.
pub struct Prepared {
    args: EvalArgs,
    queries: Vec<(String, Judged)>,
}

/// Reads both files.
pub fn prepare(args: EvalArgs) -> Result<Prepared, CliError> {
    let queries = judged::read(&args.queries, &args.qrels)?;
    Ok(Prepared { args, queries })
}

pub async fn run(connection: &Connection, prepared: Prepared, output: Output) -> Result<(), CliError> {
    let Prepared { args, queries } = prepared;
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
    let report = Report { collection: args.collection, items };
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
