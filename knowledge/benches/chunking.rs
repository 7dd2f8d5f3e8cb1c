//! How fast texts are split: `chunking [--rounds N] FILE...` prints one JSON object, for scripts/bench/knowledge.py.
//!
//! Each file is read and its text taken out once; only the splitting is timed, each round over all files.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riverrun_knowledge::chunking::{ChunkConfig, Chunker, chunks};
use riverrun_knowledge::sources::{ExtractedText, detect, extract};
use riverrun_schemas::DocumentId;

type Failed = Box<dyn std::error::Error>;

const ROUNDS: usize = 5;

struct Arguments {
    rounds: usize,
    files: Vec<PathBuf>,
}

struct Document {
    name: String,
    text: ExtractedText,
    chunker: &'static dyn Chunker,
}

fn main() -> Result<(), Failed> {
    let arguments = arguments(std::env::args().skip(1))?;
    if arguments.files.is_empty() {
        // As `cargo bench` calls it.
        writeln!(std::io::stderr(), "nothing to split; usage: chunking [--rounds N] FILE...")?;
        return Ok(());
    }
    let documents = arguments.files.iter().map(|path| document(path)).collect::<Result<Vec<_>, _>>()?;
    let bytes: usize = documents.iter().map(|document| document.text.text.len()).sum();
    let mut seconds = Vec::with_capacity(arguments.rounds);
    let mut count = 0;
    for _ in 0..arguments.rounds {
        let (took, made) = round(&documents)?;
        seconds.push(took.as_secs_f64());
        count = made;
    }
    let told = serde_json::json!({ "bytes": bytes, "documents": documents.len(), "chunks": count, "seconds": seconds });
    writeln!(std::io::stdout(), "{told}")?;
    Ok(())
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Arguments, Failed> {
    let mut arguments = Arguments { rounds: ROUNDS, files: Vec::new() };
    while let Some(argument) = given.next() {
        match argument.as_str() {
            // What `cargo bench` adds.
            "--bench" => {}
            "--rounds" => arguments.rounds = given.next().ok_or("--rounds lacks its number")?.parse()?,
            file => arguments.files.push(PathBuf::from(file)),
        }
    }
    Ok(arguments)
}

fn document(path: &Path) -> Result<Document, Failed> {
    let bytes = std::fs::read(path)?;
    let source = detect(path, &bytes, None)?;
    let name = path.display().to_string();
    let text = extract(source, &name, &bytes)?;
    Ok(Document { name, text, chunker: source.chunker() })
}

/// Splits every document; how long that took and how many chunks it made.
fn round(documents: &[Document]) -> Result<(Duration, usize), Failed> {
    let began = Instant::now();
    let mut count = 0;
    for Document { name, text, chunker } in documents {
        let id = DocumentId::derive(&[name.as_str()]);
        let made = chunks(name, text, *chunker, ChunkConfig::default(), &id, "bench")?;
        count += std::hint::black_box(made).len();
    }
    Ok((began.elapsed(), count))
}
