use std::fs;
use std::path::Path;

use super::*;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/fixtures/canvas");

fn fixtures(folder: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(Path::new(FIXTURES).join(folder)).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{folder} is empty");
    found
}

#[test]
fn given_canvases_of_the_page_when_they_are_read_then_everything_is_there() {
    for (name, bytes) in fixtures("good") {
        let canvas = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let plain: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(canvas.nodes.len(), plain["nodes"].as_array().unwrap().len(), "{name}");
        assert_eq!(canvas.edges.len(), plain["edges"].as_array().unwrap().len(), "{name}");
    }
}

#[test]
fn given_files_that_the_page_refuses_when_they_are_read_then_they_are_refused_with_a_place() {
    for (name, bytes) in fixtures("bad") {
        let error = read(&bytes).expect_err(&name);
        assert!(matches!(error.status().as_u16(), 400 | 422), "{name}: {error}");
    }
}

fn canvas(nodes: usize, edges: &[(usize, usize)]) -> Value {
    let nodes: Vec<Value> = (0..nodes)
        .map(|at| serde_json::json!({ "id": format!("n{at}"), "kind": "agent", "x": 0, "y": 0, "data": { "agent": null, "task": "" } }))
        .collect();
    let edges: Vec<Value> =
        edges.iter().map(|(a, b)| serde_json::json!({ "from": format!("n{a}"), "to": format!("n{b}") })).collect();
    serde_json::json!({ "format": FORMAT, "version": 1, "name": "", "namespace": "default", "nodes": nodes, "edges": edges })
}

#[test]
fn given_too_much_when_it_is_read_then_it_is_refused() {
    let many = canvas(MAX_NODES + 1, &[]).to_string();
    assert!(read(many.as_bytes()).unwrap_err().to_string().starts_with("nodes"));
    let large = format!("{}{}", " ".repeat(MAX_BYTES), canvas(0, &[]));
    assert!(read(large.as_bytes()).unwrap_err().to_string().contains("bytes"));
    let chain: Vec<(usize, usize)> = (1..MAX_NODES).map(|at| (at - 1, at)).collect();
    assert!(read(canvas(MAX_NODES, &chain).to_string().as_bytes()).is_ok());
}

#[test]
fn given_circles_of_any_length_when_they_are_read_then_a_node_of_the_circle_is_named() {
    for length in 2..6 {
        // The two nodes before the circle are in none.
        let mut edges: Vec<(usize, usize)> = (0..length).map(|at| (2 + at, 2 + (at + 1) % length)).collect();
        edges.extend([(0, 1), (1, 2)]);
        let message = read(canvas(2 + length, &edges).to_string().as_bytes()).unwrap_err().to_string();
        assert!(message.contains("circle") && !message.contains("n0") && !message.contains("n1:"), "{message}");
    }
}

mod fuzz_tests {
    use super::*;
    use crate::fuzz::{Target, run};

    #[test]
    fn canvas_files_are_read_or_refused_with_a_place() {
        let corpus: Vec<Vec<u8>> =
            ["good", "bad"].iter().flat_map(|folder| fixtures(folder)).map(|(_, bytes)| bytes).collect();
        let words = ["__proto__", "\"nodes\":", "\"edges\":[", "null", "1e999", "-0", "\\ud800", "{\"a\":", "[[["];
        run(&Target { name: "canvas_files", corpus: &corpus, words: &words, inputs: 3_000 }, |bytes| {
            match read(bytes) {
                Ok(canvas) => assert!(canvas.nodes.len() <= MAX_NODES && canvas.edges.len() <= MAX_EDGES),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        });
    }
}
