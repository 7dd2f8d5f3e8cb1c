//! `riverrun search` and `riverrun rag search`.

use clap::{Args, ValueEnum};
use riverrun_api::wire::{FilterBody, Fusion, SearchBody, SearchDone, SearchItem, SearchMode};
use serde_json::Value;

use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, clip, print_json, print_line, tell};

/// Characters of a chunk that people see.
const SHOWN: usize = 300;

/// How both searches become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FusionArg {
    /// By ranks: reciprocal rank fusion
    Rrf,
    /// By scores, each a share of its list's best
    Scores,
}

impl From<FusionArg> for Fusion {
    fn from(fusion: FusionArg) -> Self {
        match fusion {
            FusionArg::Rrf => Fusion::Rrf,
            FusionArg::Scores => Fusion::Scores,
        }
    }
}

/// Which searches are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// By meaning and by words
    Hybrid,
    /// By meaning
    Dense,
    /// By words: no model is asked
    Sparse,
}

impl From<ModeArg> for SearchMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Hybrid => SearchMode::Hybrid,
            ModeArg::Dense => SearchMode::Dense,
            ModeArg::Sparse => SearchMode::Sparse,
        }
    }
}

/// Options of searches and questions.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// What to look for, or to ask
    pub query: String,
    /// The collection
    #[arg(short, long, default_value = "default")]
    pub collection: String,
    /// How many results, 1 to 100; RIVERRUN_RAG_TOP_K when left out
    #[arg(short, value_name = "N")]
    pub k: Option<usize>,
    /// Find each document once, by its best chunk: -k counts documents
    #[arg(long)]
    pub per_document: bool,
    /// The collection's namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// A JSON object: only documents whose metadata has these values
    #[arg(long, value_name = "JSON")]
    pub filter: Option<String>,
    /// How the hits by meaning and by words become one order; RIVERRUN_RAG_FUSION when left out
    #[arg(long, value_enum)]
    pub fusion: Option<FusionArg>,
    /// Which searches are done; both when left out
    #[arg(long, value_enum)]
    pub mode: Option<ModeArg>,
    /// Have a cross-encoder order the results, also where it has to be fetched first
    #[arg(long, conflicts_with = "no_rerank")]
    pub rerank: bool,
    /// Leave the cross-encoder out
    #[arg(long)]
    pub no_rerank: bool,
    /// Another wording of the query that is searched for, too; may be repeated
    #[arg(long = "wording", value_name = "TEXT")]
    pub wordings: Vec<String>,
    /// Have the chat model write other wordings of the query
    #[arg(long)]
    pub rewrite: bool,
    /// Search as if the collection had not been tuned
    #[arg(long)]
    pub untuned: bool,
    /// Bytes of the document to show, or have the model read, before and behind each result, at most 20,000
    #[arg(long, value_name = "BYTES")]
    pub context: Option<usize>,
}

impl SearchArgs {
    /// Whether to re-rank, where it was said.
    fn reranking(&self) -> Option<bool> {
        (self.rerank || self.no_rerank).then_some(self.rerank)
    }

    /// The search that they ask for.
    pub(crate) fn body(self) -> Result<SearchBody, CliError> {
        Ok(SearchBody {
            rerank: self.reranking(),
            filter: filter(self.filter.as_deref())?,
            query: self.query,
            collection: self.collection,
            namespace: self.namespace,
            k: self.k,
            per_document: self.per_document.then_some(true),
            mode: self.mode.map(Into::into),
            fusion: self.fusion.map(Into::into),
            wordings: self.wordings,
            rewrite: self.rewrite.then_some(true),
            tuned: self.untuned.then_some(false),
            context_bytes: self.context,
        })
    }
}

/// Documents whose metadata has these values.
fn filter(text: Option<&str>) -> Result<Option<FilterBody>, CliError> {
    let Some(text) = text else { return Ok(None) };
    let metadata = serde_json::from_str(text).map_err(|error| {
        CliError::new(Exit::Usage, format!("--filter {text:?} is not a JSON object: {error}"))
            .hint("--filter '{\"team\": \"a\"}'")
    })?;
    Ok(Some(FilterBody { metadata, ..FilterBody::default() }))
}

pub async fn run(connection: &Connection, args: SearchArgs, output: Output) -> Result<(), CliError> {
    let found: Value = connection.client.post("/rag/search", &args.body()?).await?;
    if output.json {
        return print_json(&found);
    }
    let found: SearchDone = serde_json::from_value(found).map_err(std::io::Error::other)?;
    if found.items.is_empty() {
        tell("nothing was found");
    }
    for (index, item) in found.items.iter().enumerate() {
        print_line(&shown(index + 1, item))?;
    }
    for note in &found.notes {
        tell(&format!("note: {note}"));
    }
    Ok(())
}

/// Lines of a document below the number of their result, so that none is taken for a result.
fn indented(text: &str) -> String {
    text.trim()
        .lines()
        .map(|line| format!("   {line}").trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
        .trim_start()
        .to_owned()
}

fn shown(number: usize, item: &SearchItem) -> String {
    let page = item.page.map(|page| format!(" page {page}")).unwrap_or_default();
    let text = item.context.as_ref().map_or_else(|| clip(&item.text, SHOWN), |context| indented(&context.text));
    format!(
        "{number}. {} bytes {}..{}{page} (score {:.4})\n   {text}\n",
        item.source, item.span.start, item.span.end, item.score
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_what_stands_around_a_chunk_when_it_is_shown_then_each_of_its_lines_is_below_the_result() {
        assert_eq!(
            indented("# Winch\n\n1. The weak link.\r\n2. The cable.\n\n"),
            "# Winch\n\n   1. The weak link.\n   2. The cable."
        );
        assert_eq!(indented("  "), "");
    }
}
