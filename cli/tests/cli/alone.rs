//! Commands without a server.

use std::fs::File;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Place, free_port};

#[test]
fn given_no_server_when_catalogs_are_asked_then_they_answer_without_starting_anything() {
    let place = Place::new();
    for (arguments, word) in [
        (vec!["agents"], "react"),
        (vec!["tools"], "calculator"),
        (vec!["providers"], "ollama"),
        (vec!["topics"], "riverrun.agent.events"),
        (vec!["openapi"], "/agent/run"),
        (vec!["completion", "bash"], "_riverrun"),
        (vec!["--version"], "riverrun "),
        (vec!["--help"], "ingest"),
        (vec!["agent", "run", "--help"], "--steps"),
    ] {
        let done = place.run(&arguments);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(done.stdout.contains(word), "{arguments:?}: {}", done.stdout);
        assert!(!done.stdout.contains('\u{1b}'), "no colours where nobody looks: {arguments:?}");
    }
    assert_eq!(place.run(&["agents", "--json"]).json()["items"][0]["name"], "react");
    assert_eq!(place.run(&["--json", "topics"]).json()["items"][0]["name"], "riverrun.agent.commands");
    assert!(!place.data().exists(), "a data folder was made");
}

#[test]
fn given_variables_that_are_no_utf_8_when_commands_run_then_those_of_others_are_nothing_to_them() {
    let place = Place::new().with_bytes("OLDPWD", b"/srv/caf\xe9");
    let done = place.run(&["agents", "--json"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    let done = place.with_bytes("RIVERRUN_API_HOST", b"canary\xff").run(&["agents"]);
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{}", done.stderr);
    assert!(done.stderr.contains("RIVERRUN_API_HOST is not valid UTF-8"), "{}", done.stderr);
    assert!(!done.stderr.contains("canary") && done.stderr.contains("hint: "), "{}", done.stderr);
}

#[test]
fn given_no_server_when_the_log_is_needed_then_a_stack_is_hosted_for_the_command_and_gone_after_it() {
    let place = Place::new();
    for arguments in [["runs", "ls"], ["collections", "--json"], ["dlq", "ls"]] {
        let done = place.run(&arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
    }
    for (arguments, words) in
        [(vec!["runs", "ls"], "there are no runs"), (vec!["runs", "ls", "--status", "running"], "no run is like that")]
    {
        let done = place.run(&arguments);
        assert!(done.code == 0 && done.stderr.contains(words), "{arguments:?}: {}", done.stderr);
    }
    assert_eq!(place.run(&["collections", "--json"]).json(), json!({ "items": [] }));
    assert!(place.data().join("broker").exists() && !place.data().join("riverrun.json").exists());
}

#[test]
fn given_commands_that_start_together_when_each_has_a_folder_of_its_own_then_none_is_in_the_way_of_another() {
    let port = free_port();
    let places: Vec<Place> = (0..4).map(|_| Place::new().with("RIVERRUN_BROKER_PORT", port)).collect();
    std::thread::scope(|threads| {
        let commands: Vec<_> = places.iter().map(|place| threads.spawn(move || place.run(&["runs", "ls"]))).collect();
        for command in commands {
            let done = command.join().unwrap();
            assert_eq!(done.code, 0, "{}", done.stderr);
        }
    });
}

#[test]
fn given_a_model_server_that_is_down_when_it_is_needed_then_the_exit_code_is_3_and_the_fix_is_told() {
    let place = Place::new();
    for arguments in [vec!["chat", "hi"], vec!["models"], vec!["diagnose"], vec!["agent", "run", "What is it?"]] {
        let done = place.run(&arguments);
        assert_eq!(done.code, 3, "{arguments:?}: {}", done.stderr);
        assert!(
            done.stderr.contains("127.0.0.1:9") || done.stdout.contains("127.0.0.1:9"),
            "{arguments:?}: {}{}",
            done.stdout,
            done.stderr
        );
        assert!(done.stderr.contains("hint: "), "{arguments:?}: {}", done.stderr);
    }
    let rows = place.run(&["diagnose", "--json"]).json();
    assert_eq!(rows["status"], "degraded");
    let status = |name: &str| {
        rows["services"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap()["status"].clone()
    };
    assert_eq!(
        (status("broker"), status("sql"), status("model runtime"), status("hosted providers")),
        (json!("up"), json!("up"), json!("down"), json!("missing"))
    );
    let listed = place.run(&["runs", "ls", "--json"]).json();
    assert_eq!(
        (&listed["items"][0]["status"], listed["items"].as_array().unwrap().len()),
        (&json!("failed"), 1),
        "the run ended once, with its reason on the log"
    );
}

#[test]
fn given_a_model_server_that_is_down_when_a_rewrite_is_asked_for_then_that_is_told_and_not_a_stronger_model() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("code")).unwrap();
    std::fs::write(place.path().join("code/a.py"), "import os\n").unwrap();
    let project = place.run(&["project", "import", "code", "--json"]).json();
    let id = project["project_id"].as_str().unwrap();
    let done = place.run(&["project", "improve", id, "--file", "a.py"]);
    assert_eq!((done.code, done.stdout.as_str()), (3, ""), "{}", done.stderr);
    assert!(done.stderr.contains("127.0.0.1:9") && done.stderr.contains("hint: "), "{}", done.stderr);
    assert!(!done.stderr.contains("stronger model"), "{}", done.stderr);
    let done = place.run(&["project", "improve", id, "--file", "a.py", "--json"]);
    let proposal = done.json();
    assert_eq!(
        (done.code, &proposal["status"], &proposal["error"]["code"]),
        (3, &json!("refused"), &json!("model_runtime_down"))
    );
}

#[test]
fn given_another_command_that_has_the_data_folder_when_it_is_diagnosed_then_its_name_is_told_at_once_and_the_rest_is_asked()
 {
    let place = Place::new();
    std::fs::create_dir(place.data()).unwrap();
    let held = File::create(place.data().join("riverrun.lock")).unwrap();
    held.lock().unwrap();
    let owner = json!({ "pid": 4711, "command": "ingest", "api_url": null, "brokers": "", "needs_token": false });
    std::fs::write(place.data().join("riverrun.json"), owner.to_string()).unwrap();
    let since = Instant::now();
    let told = place.run(&["diagnose", "--json"]).json();
    assert!(since.elapsed() < Duration::from_secs(60), "who waits for a command waits for two minutes");
    let rows = told["services"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name);
    let folder = row("data folder").unwrap();
    assert_eq!((&folder["status"], &folder["kind"]), (&json!("up"), &json!("in use")));
    assert!(folder["detail"].as_str().unwrap().contains("riverrun ingest (process 4711)"), "{folder}");
    assert_eq!(row("model runtime").unwrap()["status"], "down", "what needs no log and no stores is asked");
    assert!(row("sql").is_none(), "{told}");
    drop(held);
    let told = place.run(&["diagnose", "--json"]).json();
    assert!(told["services"].as_array().unwrap().iter().any(|row| row["name"] == "sql" && row["status"] == "up"));
}

#[test]
fn given_a_broker_elsewhere_that_is_down_when_it_is_needed_then_it_is_named() {
    let address = format!("127.0.0.1:{}", free_port());
    let place = Place::new().with("RIVERRUN_KAFKA_BROKERS", &address);
    let done = place.run(&["diagnose"]);
    assert_eq!(done.code, 3, "{}", done.stderr);
    assert!(done.stdout.contains("DOWN") && done.stdout.contains(&address), "{}", done.stdout);
}

#[test]
fn given_no_tools_file_when_it_is_checked_then_nothing_is_wrong_unless_one_was_named() {
    let place = Place::new();
    let done = place.run(&["tools", "check"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stderr.contains("only built-in tools") && done.stderr.contains("programs: "), "{}", done.stderr);
    assert_eq!(place.run(&["tools", "check", "--json"]).json()["problems"], json!([]));
    let missing = |place: &Place, arguments: &[&str], fix: &str| {
        let done = place.run(arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {}", done.stderr);
        assert!(done.stdout.contains("there is no such file"), "{arguments:?}: {}", done.stdout);
        assert!(done.stderr.contains(fix) && !done.stderr.contains("entries"), "{arguments:?}: {}", done.stderr);
    };
    missing(&place, &["tools", "check", "other.toml"], "hint: check the path");
    let place = place.with("RIVERRUN_TOOLS_FILE", "tools-of-mine.toml");
    missing(&place, &["tools", "check", "other.toml"], "hint: check the path");
    missing(&place, &["tools", "check"], "unset RIVERRUN_TOOLS_FILE");
}

#[test]
fn given_the_last_token_when_it_is_revoked_then_it_is_told_that_nobody_is_let_in() {
    let place = Place::new();
    assert!(place.run(&["tokens", "ls"]).stderr.starts_with("there are no tokens"));
    for name in ["first", "last"] {
        assert_eq!(place.run(&["tokens", "create", name, "--scope", "admin"]).code, 0);
    }
    let done = place.run(&["tokens", "revoke", "first"]);
    assert_eq!((done.code, done.stderr.contains("no token is left")), (0, false), "{}", done.stderr);
    for arguments in [vec!["tokens", "revoke", "last"], vec!["tokens", "ls"]] {
        let done = place.run(&arguments);
        assert_eq!((done.code, done.stderr.contains("no token is left")), (0, true), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn given_a_worker_without_a_log_when_it_is_started_then_the_address_of_a_server_with_these_settings_is_told() {
    let place = Place::new().with("RIVERRUN_BROKER_PORT", 18_101);
    let done = place.run(&["worker", "agent"]);
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains("127.0.0.1:18101") && !done.stderr.contains("9092"), "{}", done.stderr);
}

#[test]
fn given_a_document_without_text_when_it_is_ingested_then_its_fix_is_told_once() {
    let place = Place::new();
    std::fs::write(place.path().join("a.json"), "{}").unwrap();
    let done = place.run(&["ingest", "a.json", "-c", "c"]);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert_eq!(done.stderr.matches("leave it out (--exclude)").count(), 1, "{}", done.stderr);
}
