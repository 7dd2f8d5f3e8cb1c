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
