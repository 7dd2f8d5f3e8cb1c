//! `serve`, and commands beside it.

use std::net::TcpListener;

use serde_json::json;

use crate::harness::{Place, free_port, wait_for};

#[test]
fn given_a_server_when_commands_run_then_they_use_it_and_it_stops_within_its_time() {
    let place = Place::new().with("RIVERRUN_API_PORT", free_port());
    let mut server = place.serve();
    let health = place.run(&["diagnose", "--json"]);
    assert_eq!(health.code, 3, "the model server is down: {}", health.stderr);
    assert_eq!(place.run(&["collections", "--json"]).json(), json!({ "items": [] }));
    let run = place.run(&["agent", "run", "What is it?", "--json"]);
    assert_eq!((run.code, &run.json()["error"]["code"]), (3, &json!("model_runtime_down")), "{}", run.stderr);
    let id = run.json()["run_id"].as_str().unwrap().to_owned();
    wait_for("the run in the list", || place.run(&["runs", "ls"]).stdout.contains(&id).then_some(()));
    let watched = place.run(&["runs", "watch", &id, "--json"]);
    assert!(watched.stdout.lines().last().unwrap().starts_with("{\"type\":\"final\""), "{}", watched.stdout);
    server.signal("-TERM");
    assert_eq!(server.end(), Some(0));
    assert!(!place.data().join("riverrun.json").exists());
}

#[test]
fn given_a_server_when_a_second_one_starts_on_its_data_then_it_is_refused_and_the_first_goes_on() {
    let place = Place::new().with("RIVERRUN_API_PORT", 0);
    let server = place.serve();
    let second = place.run(&["serve"]);
    assert_eq!((second.code, second.stdout.as_str()), (1, ""), "{}", second.stderr);
    for word in [place.data().to_str().unwrap(), &server.pid().to_string(), &server.url, "hint: ", "RIVERRUN_DATA_DIR"]
    {
        assert!(second.stderr.contains(word), "{word} is not in {}", second.stderr);
    }
    // Another folder is no way out for what carries this one.
    let moved = place.run(&["export", "archive"]);
    assert_eq!(moved.code, 1, "{}", moved.stderr);
    let again = "run riverrun export again, then start the server again";
    assert!(moved.stderr.contains(again) && !moved.stderr.contains("RIVERRUN_DATA_DIR"), "{}", moved.stderr);
    assert_eq!(place.run(&["collections"]).code, 0);
}

#[test]
fn given_a_log_that_can_not_be_written_when_a_server_works_then_it_goes_on_all_the_same() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    for log in [std::process::Stdio::from(full), std::process::Stdio::from(unread)] {
        let place = Place::new().with("RIVERRUN_API_PORT", 0).with("RIVERRUN_LOG", "debug");
        let mut server = place.serve_logging_to(log);
        // A run goes through every kind of worker, and each has something to say.
        let run = place.run(&["agent", "run", "What is it?", "--json"]);
        assert_eq!((run.code, &run.json()["error"]["code"]), (3, &json!("model_runtime_down")), "{}", run.stderr);
        let id = run.json()["run_id"].as_str().unwrap().to_owned();
        wait_for("the run in the list", || place.run(&["runs", "ls"]).stdout.contains(&id).then_some(()));
        server.signal("-TERM");
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn given_ports_that_are_taken_when_a_server_starts_then_the_setting_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for name in ["RIVERRUN_API_PORT", "RIVERRUN_BROKER_PORT"] {
        let done = Place::new().with("RIVERRUN_API_PORT", 0).with(name, port).run(&["serve"]);
        assert_eq!(done.code, 1, "{}", done.stderr);
        assert!(
            done.stderr.contains(name) && done.stderr.contains(&port.to_string()) && done.stderr.contains("hint: "),
            "{}",
            done.stderr
        );
    }
    // A command that hosts a stack takes another port.
    assert_eq!(Place::new().with("RIVERRUN_BROKER_PORT", port).run(&["runs", "ls"]).code, 0);
}

#[test]
fn given_a_server_that_was_killed_when_the_next_starts_then_nothing_is_in_its_way() {
    let place = Place::new().with("RIVERRUN_API_PORT", 0);
    let mut server = place.serve();
    server.signal("-KILL");
    server.end();
    assert_eq!(place.run(&["runs", "ls"]).code, 0, "a command takes the folder");
    let mut server = place.serve();
    server.signal("-INT");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn given_tokens_when_commands_run_beside_a_server_then_each_does_what_the_api_lets_it_and_nothing_is_begun_for_the_others()
 {
    let place = Place::new().with("RIVERRUN_API_PORT", 0);
    let made = |arguments: &[&str]| {
        let done = place.run(&[&["tokens", "create"][..], arguments].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
        done.stdout.trim().to_owned()
    };
    let reader = made(&["reader", "--scope", "read"]);
    let bound = made(&["bound", "--scope", "read", "--scope", "run", "--scope", "ingest", "-n", "team"]);
    // The API may read the one, the folder that it was started in, and only the user of this command the other.
    std::fs::write(place.path().join("a.md"), "# A\n\nWords.").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = elsewhere.path().join("b.md");
    std::fs::write(&outside, "# B\n\nWords.").unwrap();
    let outside = outside.to_str().unwrap();
    let commands = [
        vec!["agent", "run", "What is it?"],
        vec!["ingest", "a.md", "-c", "notes"],
        vec!["ingest", outside, "-c", "notes"],
        vec!["stream", "consume", "-c", "notes", "--idle-timeout", "1"],
    ];
    let _server = place.serve();
    let place = place.with("RIVERRUN_API_TOKEN", "rr_nobody");
    for arguments in &commands {
        let done = place.run(arguments);
        assert_eq!(done.code, 4, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains("no valid token"), "{arguments:?}: {}", done.stderr);
    }
    let place = place.with("RIVERRUN_API_TOKEN", &reader);
    for arguments in &commands {
        let done = place.run(arguments);
        assert_eq!(done.code, 4, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains("token \"reader\" has the scopes read"), "{arguments:?}: {}", done.stderr);
    }
    let place = place.with("RIVERRUN_API_TOKEN", &bound);
    for arguments in &commands {
        let done = place.run(&[arguments.as_slice(), &["-n", "default"]].concat());
        assert_eq!(done.code, 4, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains("may do nothing in namespace \"default\""), "{arguments:?}: {}", done.stderr);
    }
    let run = place.run(&["agent", "run", "What is it?", "--json"]);
    assert_eq!((run.code, &run.json()["namespace"]), (3, &json!("team")), "{}", run.stderr);
    // The reader sees every namespace: the one run that was let through is all there is.
    let place = place.with("RIVERRUN_API_TOKEN", &reader);
    let id = run.json()["run_id"].clone();
    wait_for("the run in the list", || {
        let runs = place.run(&["runs", "ls", "--json"]).json()["items"].clone();
        (!runs[0].is_null()).then(|| assert!(runs[1].is_null() && runs[0]["run_id"] == id, "{runs}"))
    });
}

#[test]
fn given_settings_of_a_server_and_others_of_a_command_when_a_run_names_a_tool_then_those_of_the_server_count() {
    let place = Place::new().with("RIVERRUN_API_PORT", 0);
    let tools = |name: &str| {
        let path = place.path().join(format!("{name}.toml"));
        let what = "description = \"Asks.\"\neffect = \"none\"\n[tool.http]\nurl = \"https://stock.example/v1\"\n";
        std::fs::write(&path, format!("[[tool]]\nname = \"{name}\"\n{what}")).unwrap();
        path.display().to_string()
    };
    let (of_server, of_command) = (tools("stock"), tools("other"));
    let place = place.with("RIVERRUN_TOOLS_FILE", of_server);
    let _server = place.serve();
    let place = place.with("RIVERRUN_TOOLS_FILE", of_command);
    let refused = place.run(&["agent", "run", "x", "--tool", "other"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("stock"), "{}", refused.stderr);
    let run = place.run(&["agent", "run", "x", "--tool", "stock", "--json"]);
    assert_eq!((run.code, &run.json()["error"]["code"]), (3, &json!("model_runtime_down")), "{}", run.stderr);
}
