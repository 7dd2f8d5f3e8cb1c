//! What can't be done says what failed, on which value, and what to do; nothing of it goes to stdout.

use serde_json::json;

use crate::harness::Place;

const UNKNOWN_RUN: &str = "run_01h455vb4pex5vsknk084sn02q";

fn check(place: &Place, arguments: &[&str], code: i32, words: &[&str]) {
    let done = place.run(arguments);
    assert_eq!((done.code, done.stdout.as_str()), (code, ""), "{arguments:?}: {}", done.stderr);
    assert!(!done.stderr.contains("panicked"), "{arguments:?}: {}", done.stderr);
    for word in words {
        assert!(done.stderr.contains(word), "{arguments:?} says nothing of {word:?}: {}", done.stderr);
    }
    if code != 2 {
        assert!(
            done.stderr.starts_with("error: ") && done.stderr.contains("\n\nhint: "),
            "{arguments:?}: {}",
            done.stderr
        );
    }
}

#[test]
fn given_requests_that_can_not_be_when_they_are_made_then_nothing_is_started_for_them() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("empty")).unwrap();
    std::fs::create_dir(place.path().join("pictures")).unwrap();
    std::fs::write(place.path().join("pictures/a.png"), b"\x89PNG\r\n\x1a\n\0\0").unwrap();
    std::fs::write(place.path().join("a.exe"), b"MZ\0\0").unwrap();
    std::fs::write(place.path().join("a.md"), "# A\n\nWords.").unwrap();
    for (arguments, code, words) in [
        (vec!["agent", "run", ""], 4, vec!["task", "must not be empty"]),
        (vec!["agent", "run", "x", "--agent", "root"], 4, vec!["root", "react", "riverrun agents"]),
        (vec!["agent", "run", "x", "--provider", "nobody"], 4, vec!["nobody", "ollama"]),
        (vec!["agent", "run", "x", "--namespace", "a__b"], 4, vec!["a__b"]),
        (vec!["agent", "run", "x", "--tool", "rm"], 4, vec!["rm", "calculator"]),
        (vec!["agent", "run", "x", "--temperature", "9"], 4, vec!["temperature", "9"]),
        (vec!["agent", "run", "x", "--metadata", "[1]"], 2, vec!["--metadata"]),
        (vec!["ingest", "missing.md", "-c", "c"], 4, vec!["missing.md", "does not exist"]),
        (vec!["project", "import", "./missing"], 4, vec!["./missing does not exist", ".zip"]),
        (vec!["ingest", "empty", "-c", "c"], 4, vec!["empty"]),
        (vec!["ingest", "pictures", "-c", "c"], 4, vec!["pictures", ".md"]),
        (vec!["ingest", "a.exe", "-c", "c"], 4, vec!["a.exe", ".md"]),
        (vec!["ingest", "/dev/zero", "-c", "c"], 4, vec!["/dev/zero"]),
        (vec!["ingest", "a.md", "-c", "../x"], 4, vec!["../x"]),
        (vec!["ingest", "a.md", "-t", "sql", "--query", "SELECT 1"], 4, vec!["a.md", "sql", "postgres://"]),
        (vec!["ingest", "a.md", "--strategy", "semantic"], 4, vec!["semantic", "recursive"]),
    ] {
        check(&place, &arguments, code, &words);
    }
    assert!(!place.data().join("broker").exists(), "a stack was started");
}

#[test]
fn given_command_lines_that_are_none_when_they_are_run_then_the_exit_code_is_2() {
    let place = Place::new();
    for arguments in [
        vec![],
        vec!["no-such-command"],
        vec!["ingest"],
        vec!["runs"],
        vec!["rag", "ask"],
        vec!["search", "x", "-k", "many"],
        vec!["search", "x", "--fusion", "magic"],
        vec!["search", "x", "--rerank", "--no-rerank"],
        vec!["rag", "ask", "x", "--context", "many"],
        vec!["rag", "ask", "x", "--fusion", "magic"],
        vec!["agent", "run"],
        vec!["models", "--nonsense"],
    ] {
        let done = place.run(&arguments);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{arguments:?}: {}", done.stderr);
        let is_help = done.stderr.contains("Usage: riverrun");
        let is_told = done.stderr.starts_with("error: ") && done.stderr.contains("\n\nhint: ");
        // Without the command that it wants, a command shows its help.
        assert!(
            is_help != is_told && is_help == matches!(arguments[..], [] | ["runs"]),
            "{arguments:?}: {}",
            done.stderr
        );
    }
    let done = place.run(&["--json", "agent", "run", "x", "--max-iters", "abc"]);
    let hint = "\n\nhint: riverrun agent run --help shows what it takes\n";
    assert!(done.code == 2 && done.stderr.contains("'abc'") && done.stderr.ends_with(hint), "{}", done.stderr);
    for arguments in [["--help"], ["--version"]] {
        let done = place.run(&arguments);
        assert!(done.code == 0 && done.stderr.is_empty() && done.stdout.contains("riverrun"), "{arguments:?}");
    }
}

#[test]
fn given_files_without_an_end_when_they_are_named_then_each_command_refuses_them() {
    let place = Place::new();
    std::fs::write(place.path().join("queries.tsv"), "1\twhat is it\n").unwrap();
    for (arguments, code) in [
        (vec!["chat", "hi", "--file", "/dev/zero"], 4),
        (vec!["finetune", "eval", "/dev/zero"], 4),
        (vec!["finetune", "dataset", "verses", "--jsonl", "/dev/zero"], 4),
        (vec!["finetune", "train", "--dataset", "/dev/zero", "--name", "poet"], 4),
        (vec!["canvas", "check", "/dev/zero"], 2),
        (vec!["rag", "eval", "--queries", "queries.tsv", "--qrels", "/dev/zero"], 2),
    ] {
        check(&place, &arguments, code, &["/dev/zero", "it has more than ", "hint: "]);
    }
}

#[test]
fn given_a_document_on_stdin_that_is_no_text_when_it_is_published_then_the_input_is_to_blame() {
    let place = Place::new();
    let done = place.run_with(&["stream", "produce", "-"], b"caf\xe9");
    assert_eq!((done.code, done.stdout.as_str()), (4, ""), "{}", done.stderr);
    assert!(done.stderr.contains("from stdin") && done.stderr.contains("hint: "), "{}", done.stderr);
    let done = place.run_with(&["stream", "produce", "-"], b" \n");
    assert!(done.code == 2 && done.stderr.contains("the document is empty"), "{}", done.stderr);
}

#[test]
fn given_command_lines_that_mean_nothing_together_when_they_are_run_then_each_is_refused_with_what_to_do() {
    let place = Place::new();
    for (arguments, words) in [
        (vec!["warehouse", "tables", "--csv", "--json"], vec!["--csv", "--json", "hint: leave one"]),
        (vec!["--json", "warehouse", "query", "SELECT 1", "--csv"], vec!["--csv", "--json", "hint: leave one"]),
        (vec!["project", "report", "prj_x", "--html", "--json"], vec!["--html", "--json", "hint: leave one"]),
        (vec!["mcp", "--namespace", "Team A"], vec!["--namespace", "hint: riverrun mcp --help"]),
        (vec!["tokens", "create", "ann", "--scope", "read", "--namespace", "Team A"], vec!["--namespace"]),
    ] {
        check(&place, &arguments, 2, &words);
    }
}

#[test]
fn given_settings_that_can_not_be_when_a_command_starts_then_the_setting_and_its_value_are_named() {
    for (name, value, code) in [
        ("RIVERRUN_API_PORT", "http", 2),
        ("RIVERRUN_CHUNK_SIZE", "0", 2),
        ("RIVERRUN_RAG_FUSION", "magic", 2),
        ("RIVERRUN_MODEL_RUNTIME_BASE_URL", "nowhere", 2),
        ("RIVERRUN_MONGODB_URL", "127.0.0.1:27017", 2),
        ("RIVERRUN_LOG", "=====", 2),
        ("RIVERRUN_API_HOST", "0.0.0.0", 2),
        ("RIVERRUN_API_ALLOWED_HOSTS", "a b", 2),
        ("RIVERRUN_API_ALLOWED_ORIGINS", "console.example", 2),
        ("RIVERRUN_DATA_DIR", "/dev/null", 2),
    ] {
        let done = Place::new().with(name, value).run(&["serve"]);
        assert_eq!(done.code, code, "{name}: {}", done.stderr);
        assert!(
            done.stderr.contains(name) && done.stderr.contains(value) && done.stderr.contains("hint: "),
            "{name}: {}",
            done.stderr
        );
    }
    let place = Place::new();
    std::fs::write(place.path().join(".env"), "RIVERRUN_RAG_TOP_K=zero\n").unwrap();
    let done = place.run(&["agents"]);
    assert!(done.code == 2 && done.stderr.contains("RIVERRUN_RAG_TOP_K is \"zero\""), "{}", done.stderr);
}

#[test]
fn given_names_that_are_not_there_when_they_are_used_then_the_exit_code_is_4() {
    let place = Place::new();
    let _server = place.serve();
    for (arguments, words) in [
        (vec!["runs", "show", UNKNOWN_RUN], vec![UNKNOWN_RUN, "riverrun runs ls"]),
        (vec!["runs", "show", "1"], vec!["run_"]),
        (vec!["runs", "cancel", UNKNOWN_RUN], vec![UNKNOWN_RUN]),
        (vec!["runs", "watch", UNKNOWN_RUN], vec![UNKNOWN_RUN]),
        (vec!["runs", "ls", "--status", "odd"], vec!["odd", "succeeded"]),
        (vec!["rag", "ask", "x", "-c", "no-such"], vec!["no-such", "riverrun ingest"]),
        (vec!["search", "x", "-c", "../x"], vec!["../x"]),
        (vec!["search", "x", "-c", "no-such", "-k", "0"], vec!["k"]),
        (vec!["docs", "ls", "-c", "no-such"], vec!["no-such"]),
        (vec!["dlq", "show", "x"], vec![".dlq:0"]),
        (vec!["dlq", "redrive", "riverrun.agent.commands.dlq:7"], vec!["riverrun.agent.commands.dlq:7"]),
        (vec!["models", "--provider", "nobody"], vec!["nobody", "ollama"]),
        (vec!["agent", "run", "x", "--collection", "no-such"], vec!["no-such"]),
    ] {
        check(&place, &arguments, 4, &words);
    }
}

#[test]
fn given_a_variable_that_was_meant_for_a_setting_when_a_command_starts_then_it_is_told_once_and_the_command_goes_on() {
    let misspelt = concat!("RIVERRUN_", "API_PROT");
    let place = Place::new().with(misspelt, "8123").with(concat!("RIVERRUN_", "BIN"), "/bin/riverrun");
    let told = format!("{misspelt} is no setting and is not read: did you mean RIVERRUN_API_PORT?");
    let done = place.run(&["agents", "--json"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, format!("warning: {told}\n").as_str()));
    assert_eq!(done.json()["items"][0]["name"], "react");
    let rows = place.run(&["diagnose", "--json"]).json();
    let row = rows["services"].as_array().unwrap().iter().find(|row| row["name"] == "settings").unwrap();
    assert_eq!((&row["status"], &row["required"], &row["detail"]), (&json!("missing"), &json!(false), &json!(told)));
}

#[test]
fn given_numbers_that_nothing_can_be_done_with_when_commands_run_then_they_are_refused_by_name() {
    let place = Place::new().with("RIVERRUN_API_PORT", 0);
    let _server = place.serve();
    for (arguments, name) in [
        (vec!["chat", "hi", "--max-tokens", "0"], "max_tokens"),
        (vec!["chat", "hi", "--temperature", "2.5"], "temperature"),
        (vec!["agent", "run", "x", "--max-iters", "0"], "max_iters"),
        (vec!["agent", "run", "x", "--budget-tokens", "0"], "budget.tokens"),
        (vec!["agent", "run", "x", "--budget-seconds", "0"], "budget.seconds"),
        (vec!["search", "x", "-k", "0"], "k"),
        (vec!["memory", "context", "-k", "0"], "k"),
        (vec!["blobs", "ls", "--limit", "0"], "limit"),
        (vec!["blobs", "ls", "--limit", "1001"], "limit"),
        (vec!["blobs", "check", "--grace", "0"], "grace_hours"),
        (vec!["dlq", "ls", "--limit", "0"], "limit"),
        (vec!["dlq", "ls", "--limit", "501"], "limit"),
        (vec!["runs", "ls", "--limit", "0"], "limit"),
        (vec!["runs", "ls", "--limit", "501"], "limit"),
        (vec!["docs", "ls", "--limit", "0"], "limit"),
        (vec!["memory", "turns", "--limit", "0"], "limit"),
        (vec!["project", "ls", "--limit", "0"], "limit"),
        (vec!["finetune", "jobs", "--limit", "0"], "limit"),
        (vec!["finetune", "registry", "--limit", "0"], "limit"),
        (vec!["warehouse", "query", "SELECT 1", "--limit", "0"], "limit"),
    ] {
        check(&place, &arguments, 4, &[&format!("{name}: is ")]);
    }
}
