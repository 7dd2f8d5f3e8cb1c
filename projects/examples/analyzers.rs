//! How long the analyzers that only read take for a folder, each of them and all side by side: what `./x bench projects` measures,
//! without a server around it.
//!
//! `analyzers FOLDER [ROUNDS]` prints medians in milliseconds; `analyzers FOLDER --json FILE` writes everything that they found.
//! For times like those of the benchmarks: `cargo run -p riverrun-projects --config profile.dev.package.riverrun-projects.opt-level=3
//! --example analyzers -- FOLDER`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use riverrun_projects::analyzers::{Analyzed, deterministic};
use riverrun_projects::copy::{Files, MAX_FILE_BYTES};
use serde_json::json;

type Failure = Box<dyn Error>;

const USUAL_ROUNDS: usize = 7;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [folder] => times(&read(folder)?, USUAL_ROUNDS),
        [folder, "--json", file] => Ok(std::fs::write(file, found(&read(folder)?)?)?),
        [folder, rounds] => times(&read(folder)?, rounds.parse()?),
        _ => Err("usage: analyzers FOLDER [ROUNDS] | analyzers FOLDER --json FILE".into()),
    }
}

fn read(folder: &str) -> Result<Files, Failure> {
    let mut files = Files::new();
    let root = Path::new(folder);
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder)? {
            let (kind, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
            let kind = kind?;
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() && path.metadata()?.len() <= MAX_FILE_BYTES {
                let below = path.strip_prefix(root)?.to_string_lossy().into_owned();
                files.insert(below, std::fs::read(path)?.into());
            }
        }
    }
    Ok(files)
}

fn times(files: &Files, rounds: usize) -> Result<(), Failure> {
    let mut took: BTreeMap<String, Vec<u128>> = BTreeMap::new();
    for _ in 0..rounds.max(1) {
        let begun = Instant::now();
        let analyzed = deterministic(files);
        took.entry("all, side by side".to_owned()).or_default().push(begun.elapsed().as_millis());
        for tool in analyzed.tools {
            took.entry(tool.name).or_default().push(tool.took_ms.into());
        }
    }
    let mut out = std::io::stdout();
    for (name, mut all) in took {
        all.sort_unstable();
        writeln!(out, "{:6} ms  {name}", all[all.len() / 2])?;
    }
    Ok(())
}

/// What was found, without times, in an order that stays.
fn found(files: &Files) -> Result<String, Failure> {
    let Analyzed { mut findings, complexity, surface, imports, tools, .. } = deterministic(files);
    findings.sort_by_cached_key(|one| json!(one).to_string());
    let counts: BTreeMap<&str, usize> = tools.iter().map(|tool| (tool.name.as_str(), tool.findings)).collect();
    let all = json!({
        "findings": findings, "counts": counts, "complexity": complexity, "surface": surface, "imports": imports,
    });
    Ok(serde_json::to_string_pretty(&all)?)
}
