//! `riverrun collections tune`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use riverrun_api::wire::{JudgementBody, SearchGainView, TuneBody, TuningView};
use riverrun_knowledge::retrieval::metrics::Judged;
use riverrun_schemas::counted;

use crate::client::encode;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};
use crate::{awaited, judged};

/// Options of `collections tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// The collection
    pub name: String,
    /// Judgements, one a line: query, document, grade from 0 to 10; or in TREC's four columns. A document is an id, a source, or its
    /// file's name without extension
    #[arg(long, value_name = "FILE", required_unless_present = "off", requires = "queries")]
    pub qrels: Option<PathBuf>,
    /// Queries, one a line: its id, a tab, its text
    #[arg(long, value_name = "FILE", requires = "qrels")]
    pub queries: Option<PathBuf>,
    /// Search as without tuning from now on
    #[arg(long, conflicts_with_all = ["qrels", "queries"])]
    pub off: bool,
    /// Its namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
}

pub async fn run(connection: &Connection, args: TuneArgs, output: Output) -> Result<(), CliError> {
    let judgements = match (&args.queries, &args.qrels) {
        (Some(queries), Some(qrels)) => bodies(judged::read(queries, qrels)?.judged),
        _ => Vec::new(),
    };
    let body = TuneBody { judgements, off: args.off.then_some(true), namespace: args.namespace };
    let path = format!("/collections/{}/tune", encode(&args.name));
    let meanwhile = |view: &TuningView| {
        format!("learning from {}; searches go on as before", counted(view.queries, "judged question"))
    };
    let view = awaited::ended(connection, &path, &body, meanwhile, output).await?;
    output.show(&view, shown)
}

/// A question that comes twice is one, with the better grades.
fn bodies(judged: Vec<(String, Judged)>) -> Vec<JudgementBody> {
    let mut questions: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for (query, grades) in judged {
        let documents = questions.entry(query.trim().to_owned()).or_default();
        for (document, grade) in grades {
            let kept = documents.entry(document).or_insert(0.0);
            *kept = kept.max(grade);
        }
    }
    questions.into_iter().map(|(query, documents)| JudgementBody { query, documents }).collect()
}

fn shown(view: &TuningView) -> String {
    let place = format!("{}/{}", view.namespace, view.collection);
    if view.gains.is_empty() {
        return format!("{place} is searched as without tuning");
    }
    let row = |gain: &SearchGainView| {
        let share = |value: f64| format!("{value:.3}");
        [
            gain.search.clone(),
            share(gain.ndcg_at_10_before),
            share(gain.ndcg_at_10_after),
            share(gain.recall_at_100_before),
            share(gain.recall_at_100_after),
        ]
    };
    let heads = ["search", "ndcg@10 before", "after", "recall@100 before", "after"];
    let gains = table(heads, view.gains.iter().map(row).collect(), "nothing was measured");
    let came_to = match view.tuned {
        true => "is tuned; each question was tested with what was learned from others",
        false => {
            "is searched as without tuning, which did not help: each question was tested with what was learned from others"
        }
    };
    format!("{gains}\n\n{place} {came_to} ({})", counted(view.queries, "judged question"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_question_that_comes_twice_when_it_is_sent_then_it_is_one_with_the_better_grades() {
        let judged = |text: &str, grades: &[(&str, f64)]| {
            (
                text.to_owned(),
                grades.iter().map(|(document, grade)| ((*document).to_owned(), *grade)).collect::<Judged>(),
            )
        };
        let sent = bodies(vec![
            judged("why?", &[("a", 1.0), ("b", -1.0)]),
            judged("who?", &[("a", 2.0)]),
            judged(" why? ", &[("a", 3.0), ("b", 0.0)]),
        ]);
        let documents =
            |grades: &[(&str, f64)]| grades.iter().map(|(name, grade)| ((*name).to_owned(), *grade)).collect();
        let body = |query: &str, documents| JudgementBody { query: query.to_owned(), documents };
        assert_eq!(sent, [body("who?", documents(&[("a", 2.0)])), body("why?", documents(&[("a", 3.0), ("b", 0.0)]))]);
    }
}
