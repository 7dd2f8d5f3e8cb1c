//! The process that reads one hostile document.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn read(source: &str, task: &str, name: &str, bytes: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_riverrun"))
        .args(["read-document", source, task])
        .env_clear()
        .envs(std::env::var_os("LD_LIBRARY_PATH").map(|path| ("LD_LIBRARY_PATH", path)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&u32::try_from(name.len()).unwrap().to_le_bytes()).unwrap();
    input.write_all(name.as_bytes()).unwrap();
    let _ = input.write_all(bytes); // it may have seen enough
    drop(input);
    child.wait_with_output().unwrap()
}

fn answer(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn given_a_document_on_stdin_when_it_is_read_then_its_text_or_the_error_is_on_stdout() {
    let output = read("html", "text", "a.html", b"<title>T</title><h1>Words</h1>");
    assert!(output.status.success());
    assert_eq!(answer(&output)["Ok"]["Text"]["text"], "# Words");
    let output = read("csv", "tables", "a.csv", b"a,b\n1,\n");
    assert_eq!(answer(&output)["Ok"]["Tables"][0]["rows"], serde_json::json!([["1", null]]));
    let output = read("pdf", "text", "a.pdf", b"no pdf");
    assert_eq!(answer(&output)["Err"]["code"], "malformed_document");
}

#[test]
fn given_a_parquet_file_when_it_is_read_apart_then_its_rows_come_typed_and_a_broken_one_is_refused() {
    let bytes = include_bytes!("../../../knowledge/src/sources/corpus/data/rows.parquet");
    let output = read("parquet", "text", "rows.parquet", bytes);
    assert!(output.status.success(), "{output:?}");
    let text = answer(&output)["Ok"]["Text"]["text"].as_str().unwrap().to_owned();
    let output = read("parquet", "tables", "rows.parquet", bytes);
    let told = answer(&output);
    let table = &told["Ok"]["Tables"][0];
    let count = |list: &str| table[list].as_array().map_or(0, Vec::len);
    assert_eq!(table["name"], "rows");
    assert!(count("columns") > 0 && count("types") == count("columns"), "{table}");
    assert!(count("rows") > 0 && text.lines().count() <= count("rows"), "{table} {text}");
    let output = read("parquet", "text", "broken.parquet", &bytes[..bytes.len() / 2]);
    assert_eq!(answer(&output)["Err"]["code"], "malformed_document");
}

#[test]
fn given_anything_else_when_it_is_started_then_it_ends_without_an_answer() {
    for (source, task) in [("folder", "text"), ("nonsense", "text"), ("pdf", "nonsense")] {
        let output = read(source, task, "a", b"x");
        assert!(!output.status.success() && output.stdout.is_empty(), "{source} {task}: {output:?}");
    }
}
