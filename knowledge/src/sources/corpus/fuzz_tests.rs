//! Changed documents and archives. `fuzz/README.md` says how to try more of them.
//!
//! Types that are read in a process of their own are not among them: what these libraries do in it is what it is there for.
//! `tests/interop/test_fuzz.py` tries them there.

use super::build;
use super::hostile::{corpus, survives};
use crate::fuzz::{Target, run};
use crate::sources::globs::Globs;
use crate::sources::{Limits, UnpackLimits, by_name, unpack_members, zip_archive};

/// The documents of these types, all as inputs of each: a type is asked for by whoever hands a document in.
fn try_types(target: &'static str, words: &[&str], types: &[&str], inputs: u64) {
    assert!(types.iter().all(|name| by_name(name).is_ok_and(|source| !source.hostile())));
    let seeds: Vec<Vec<u8>> =
        corpus().into_iter().filter(|(name, _)| types.contains(name)).map(|(_, bytes)| bytes).collect();
    run(&Target { name: target, corpus: &seeds, words, inputs }, |bytes| {
        types.iter().for_each(|name| survives(name, bytes));
    });
}

#[test]
fn texts_are_read_or_refused() {
    let words = ["\n# ", "\n```\n", "| a | b |\n|---|---|\n", "[x](y)", "\u{feff}", "> ", "- "];
    try_types("texts", &words, &["text", "markdown", "code"], 1_000);
}

#[test]
fn tables_are_read_or_refused() {
    let words = ["\"", ";", "\t", "\r\n", "[", "{\"a\":", "null", "1e999", "\\u0000", "\u{feff}"];
    try_types("tables", &words, &["csv", "tsv", "json", "jsonl"], 1_000);
}

#[test]
fn parquet_files_are_read_or_refused() {
    try_types("parquet", &["PAR1"], &["parquet"], 200);
}

#[test]
fn archives_are_read_or_refused() {
    let corpus = [
        build::zip(&[("a.txt", b"hello hello hello"), ("docs/b.md", b"# x"), ("c.csv", b"a,b\n1,2\n")]),
        build::zip_with_link("link.txt", "/etc/passwd", &[("../up.txt", b"x"), ("inner.zip", b"PK\x03\x04")]),
        build::zip(&[]),
    ];
    let words = ["../", "/etc/passwd", "PK\u{1}\u{2}", "PK\u{3}\u{4}", "PK\u{5}\u{6}", "PK\u{6}\u{6}", ".git/hooks/x"];
    let limits = UnpackLimits { total_bytes: 1 << 24, file_bytes: 1 << 22, members: 100 };
    run(&Target { name: "archives", corpus: &corpus, words: &words, inputs: 3_000 }, |bytes| {
        let _ = zip_archive::read_members("a.zip", bytes, &Globs::all(), Limits::default(), |_| true);
        let _ = unpack_members("a.zip", bytes, limits, |name, content| {
            assert!(content.is_none() || !name.split('/').any(|part| part == ".."), "{name} leads out");
        });
    });
}
