//! Streams over WebSocket, seen by another client.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use riverrun_log::Outgoing;
use riverrun_schemas::agent::{AgentEvent, ForkedFrom, RunAccepted, RunAdvanced, Step, StepKind};
use riverrun_schemas::tokens::{Attempt, TokenDelta, TokenEvent};
use riverrun_schemas::{RunId, now_ms};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::harness::{Api, problem, test, wait_for};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn connect(api: &Api, path: &str) -> Socket {
    connect_async(format!("ws://{}{path}", api.address)).await.unwrap().0
}

/// The status that an upgrade is refused with.
async fn refused(api: &Api, path: &str, headers: &[(&'static str, &str)]) -> u16 {
    let mut request = format!("ws://{}{path}", api.address).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match connect_async(request).await {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("the socket was not refused: {other:?}"),
    }
}

/// Every message up to the close, and the close code.
async fn read(socket: &mut Socket) -> (Vec<Value>, Option<(u16, String)>) {
    let mut messages = Vec::new();
    let reading = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => messages.push(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    return frame.map(|frame| (u16::from(frame.code), frame.reason.to_string()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    };
    let close = tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the socket is closed in time");
    (messages, close)
}

fn types(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["type"].as_str().unwrap()).collect()
}

#[test]
fn given_a_first_message_when_it_asks_for_a_run_then_start_steps_and_final_come_in_this_order() {
    test(async |api| {
        let mut socket = connect(api, "/ws/agent").await;
        socket
            .send(Message::text(json!({"task": "go [[steps=2 delay_ms=20 id=ws]]", "agent": "react"}).to_string()))
            .await
            .unwrap();
        let (messages, close) = read(&mut socket).await;
        let kinds = types(&messages);
        assert_eq!((kinds[0], *kinds.last().unwrap()), ("start", "final"));
        assert!(kinds[1..kinds.len() - 1].iter().all(|kind| *kind == "step"), "{kinds:?}");
        assert_eq!(close.unwrap().0, 1000);
        let result = &messages.last().unwrap()["result"];
        assert_eq!((&result["answer"], &messages[0]["run_id"]), (&json!("done after 2 steps"), &result["run_id"]));
        let shown: Vec<&Value> =
            messages.iter().filter(|message| message["type"] == "step").map(|message| &message["step"]).collect();
        assert_eq!(shown, result["steps"].as_array().unwrap().iter().collect::<Vec<_>>());
        let id = result["run_id"].as_str().unwrap();
        for after in 0..=shown.len() {
            let mut again = connect(api, &format!("/ws/runs/{id}?after={after}")).await;
            let (messages, _) = read(&mut again).await;
            assert_eq!(messages.len(), 2 + shown.len() - after, "start, the rest, final");
            assert_eq!(messages.last().unwrap()["result"], *result, "the same from any point");
        }
    });
}

#[test]
fn given_a_client_that_asks_for_tokens_when_the_model_writes_then_it_sees_them_and_others_do_not() {
    test(async |api| {
        let run = async |tokens: bool| {
            let mut socket = connect(api, "/ws/agent").await;
            socket
                .send(Message::text(
                    json!({"task": "say [[steps=1 delay_ms=150 id=tokens]]", "agent": "react", "tokens": tokens})
                        .to_string(),
                ))
                .await
                .unwrap();
            read(&mut socket).await.0
        };
        let with = run(true).await;
        let text: String = with
            .iter()
            .filter(|message| message["type"] == "token")
            .map(|message| message["text"].as_str().unwrap())
            .collect();
        assert!("done after 1 steps".contains(&text) || text.contains("done"), "{text}");
        assert!(types(&run(false).await).iter().all(|kind| *kind != "token"));
    });
}

/// Puts a piece of the text of step 1 on the log, as a worker of this attempt.
async fn write(api: &Api, run_id: RunId, (epoch, text): (i64, u32), piece: &str) {
    let event = TokenEvent::from(TokenDelta { run_id, seq: 1, text: piece.to_owned() });
    let mut record = Outgoing::event(&event, "test", None).unwrap();
    let attempt = Attempt { epoch, text };
    record.headers.push((Attempt::HEADER.to_owned(), attempt.to_string().into_bytes()));
    api.stack.state().parts().producer.send_one(record).await.unwrap();
}

/// The next piece of text, and whether the text begins anew with it.
async fn next_piece(socket: &mut Socket) -> (String, bool) {
    loop {
        let message: Value = match socket.next().await {
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).unwrap(),
            Some(Ok(_)) => continue,
            other => panic!("the socket ended: {other:?}"),
        };
        if message["type"] == "token" {
            return (message["text"].as_str().unwrap().to_owned(), message["restart"] == true);
        }
    }
}

#[test]
fn given_a_watched_text_when_another_worker_writes_it_again_then_its_first_piece_says_so_and_late_ones_are_dropped() {
    test(async |api| {
        let run_id = a_fork_by_hand(api, 1).await;
        let mut socket = connect(api, &format!("/ws/runs/{run_id}?tokens=true")).await;
        // The reader of pieces begins at the end of the log, some time after the process does.
        let first = loop {
            write(api, run_id, (1, 1), "It ").await;
            if let Ok(piece) = tokio::time::timeout(Duration::from_secs(1), next_piece(&mut socket)).await {
                break piece;
            }
        };
        assert_eq!(first, ("It ".to_owned(), false));
        for (attempt, piece) in [((1, 1), "was"), ((2, 1), "It "), ((1, 1), " late"), ((2, 1), "is"), ((2, 2), "So")] {
            write(api, run_id, attempt, piece).await;
        }
        let mut heard = Vec::new();
        while heard.last() != Some(&("So".to_owned(), true)) {
            heard.push(tokio::time::timeout(Duration::from_secs(60), next_piece(&mut socket)).await.unwrap());
        }
        heard.retain(|piece| *piece != first);
        let expected = [("was", false), ("It ", true), ("is", false), ("So", true)];
        assert_eq!(heard, expected.map(|(piece, restart)| (piece.to_owned(), restart)));

        let (kind, agent) = (StepKind::Thought, "react".to_owned());
        let step = Step { seq: 1, kind, agent, text: Some("So".to_owned()), tool: None, usage: None, at: now_ms() };
        append(api, RunAdvanced { run_id, epoch: 0, steps: vec![step] }).await;
        assert_eq!(read(&mut socket).await.1.map(|(code, _)| code), Some(1000), "the run goes on to its end");
    });
}

#[test]
fn given_first_messages_that_start_nothing_when_they_come_then_the_close_code_and_reason_say_why() {
    test(async |api| {
        for (code, word, message) in [
            (1007, "JSON", Message::text("{")),
            (1007, "task", Message::text(json!({"task": 123}).to_string())),
            (1007, "task", Message::text("{}")),
            (1007, "text", Message::binary(vec![1, 2, 3])),
            (1008, "task", Message::text(json!({"task": " "}).to_string())),
            (1008, "react", Message::text(json!({"task": "x", "agent": "root"}).to_string())),
            (1008, "namespace", Message::text(json!({"task": "x", "namespace": "a__b"}).to_string())),
        ] {
            let mut socket = connect(api, "/ws/agent").await;
            socket.send(message.clone()).await.unwrap();
            let (messages, close) = read(&mut socket).await;
            let (found, reason) = close.unwrap_or_else(|| panic!("{message:?} was not closed with a code"));
            assert_eq!((messages.len(), found), (0, code), "{message:?}: {reason}");
            assert!(reason.contains(word), "{message:?}: {reason}");
        }
        let mut socket = connect(api, "/ws/agent").await;
        socket.send(Message::text(json!({"task": "x".repeat(100_000)}).to_string())).await.unwrap();
        assert!(matches!(read(&mut socket).await.1, None | Some((1009, _))), "a message over the limit");
    });
}

#[test]
fn given_a_second_task_on_a_socket_when_it_comes_then_the_socket_is_closed_and_the_run_goes_on() {
    test(async |api| {
        let mut socket = connect(api, "/ws/agent").await;
        socket
            .send(Message::text(json!({"task": "a [[steps=2 delay_ms=200 id=second]]", "agent": "react"}).to_string()))
            .await
            .unwrap();
        let start: Value = loop {
            if let Some(Ok(Message::Text(text))) = socket.next().await {
                break serde_json::from_str(&text).unwrap();
            }
        };
        socket.send(Message::text(json!({"task": "b"}).to_string())).await.unwrap();
        assert_eq!(read(&mut socket).await.1.unwrap().0, 1008);
        let mut again = connect(api, &format!("/ws/runs/{}", start["run_id"].as_str().unwrap())).await;
        assert_eq!(read(&mut again).await.0.last().unwrap()["result"]["status"], "succeeded");
    });
}

#[test]
fn given_upgrades_that_must_not_be_when_they_come_then_they_are_refused_before_the_socket_opens() {
    test(async |api| {
        assert_eq!(refused(api, "/ws/agent", &[("origin", "https://evil.example")]).await, 403);
        assert_eq!(refused(api, "/ws/agent", &[("host", "evil.example")]).await, 403);
        assert_eq!(refused(api, "/ws/runs/run_01h455vb4pex5vsknk084sn02q", &[]).await, 404);
        assert_eq!(refused(api, "/ws/runs/1", &[]).await, 404);
        assert_eq!(refused(api, "/ws/ingest/ing_01h455vb4pex5vsknk084sn02q", &[]).await, 404);
        assert_eq!(refused(api, "/ws/runs/run_01h455vb4pex5vsknk084sn02q?after=x", &[]).await, 422);
    });
}

#[test]
fn given_an_ingest_when_it_is_watched_then_its_end_comes_last_and_once() {
    test(async |api| {
        let path = api.files.join("watched.md");
        std::fs::write(&path, "# Watched\n\nA document.").unwrap();
        let accepted = api.post("/ingest", json!({"source": path, "collection": "watched"})).await.body;
        let mut socket = connect(api, accepted["stream"].as_str().unwrap()).await;
        let (messages, close) = read(&mut socket).await;
        let kinds = types(&messages);
        assert_eq!((kinds[0], *kinds.last().unwrap(), close.unwrap().0), ("start", "final", 1000), "{kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| **kind == "final").count(), 1);
        assert_eq!(messages.last().unwrap()["ingest"]["indexed"], 1);
    });
}

/// Puts a fork on the log whose steps the test copies; nobody drives it before they are all there.
async fn a_fork_by_hand(api: &Api, at_seq: i64) -> RunId {
    let run_id = RunId::new();
    let request = serde_json::json!({
        "task": "x", "agent": "react", "namespace": "default", "session": null, "provider": null, "model": null, "temperature": null,
        "max_iters": 8, "tools": null, "collections": null, "budget_tokens": null, "budget_seconds": null, "approval": "never",
        "metadata_json": null
    });
    let request = serde_json::from_value(request).unwrap();
    let forked_from = Some(ForkedFrom { run_id: RunId::new(), at_seq });
    append(api, RunAccepted { run_id, request, forked_from, at: now_ms() }).await;
    run_id
}

async fn append(api: &Api, event: impl Into<AgentEvent>) {
    let event: AgentEvent = event.into();
    api.stack.state().parts().producer.send(&event, "test", None).await.unwrap();
}

#[test]
fn given_a_client_that_does_not_read_when_much_happens_then_it_is_closed_with_1013_and_can_come_back_without_a_gap() {
    test(async |api| {
        // More events than wait for one listener, and more bytes than sockets buffer on their way.
        const STEPS: i64 = 2_500;
        let run_id = a_fork_by_hand(api, STEPS).await;
        let mut slow = connect(api, &format!("/ws/runs/{run_id}")).await;
        let text = "x".repeat(5 << 10);
        for seq in 1..=STEPS {
            let step = Step {
                seq,
                kind: StepKind::Thought,
                agent: "react".into(),
                text: Some(text.clone()),
                tool: None,
                usage: None,
                at: now_ms(),
            };
            append(api, RunAdvanced { run_id, epoch: 0, steps: vec![step] }).await;
        }
        let (messages, close) = read(&mut slow).await;
        assert_eq!(close.map(|(code, _)| code), Some(1013));
        let seqs = |messages: &[Value]| -> Vec<i64> {
            messages.iter().filter_map(|message| message["step"]["seq"].as_i64()).collect()
        };
        let first = seqs(&messages);
        assert_eq!(first, (1..=first.len() as i64).collect::<Vec<_>>());
        let mut again = connect(api, &format!("/ws/runs/{run_id}?after={}", first.len())).await;
        let (messages, close) = read(&mut again).await;
        let rest = seqs(&messages);
        let last = first.len() as i64 + rest.len() as i64;
        assert_eq!(rest, (first.len() as i64 + 1..=last).collect::<Vec<_>>());
        assert!(last > STEPS, "the run goes on behind what it shares");
        assert_eq!(close.map(|(code, _)| code), Some(1000));
    });
}

/// Puts a run on the log that begins with steps of these words, and waits for its end.
async fn a_run_with_steps(api: &Api, words: &[String]) -> Value {
    let run_id = a_fork_by_hand(api, words.len() as i64).await;
    for (text, seq) in words.iter().cloned().zip(1..) {
        let (kind, agent) = (StepKind::Thought, "react".to_owned());
        let step = Step { seq, kind, agent, text: Some(text), tool: None, usage: None, at: now_ms() };
        append(api, RunAdvanced { run_id, epoch: 0, steps: vec![step] }).await;
    }
    wait_for("the end of the run", async || {
        let run = api.get(&format!("/runs/{run_id}")).await.body;
        run["finished_at"].is_string().then_some(run)
    })
    .await
}

/// What Python's `websockets` takes as one frame when nothing else is said.
const TAKEN: usize = 1 << 20;

#[test]
fn given_a_run_of_many_bytes_when_it_ends_then_the_final_message_fits_and_says_where_the_other_steps_are() {
    test(async |api| {
        let run = a_run_with_steps(api, &vec!["x".repeat(5 << 10); 300]).await;
        let all = run["steps"].as_array().unwrap();
        let id = run["run_id"].as_str().unwrap();
        let mut socket = connect(api, &format!("/ws/runs/{id}")).await;
        let (messages, _) = read(&mut socket).await;
        assert!(messages.iter().all(|message| message.to_string().len() < TAKEN));
        let said: Vec<&Value> =
            messages.iter().filter(|message| message["type"] == "step").map(|message| &message["step"]).collect();
        assert_eq!(said, all.iter().collect::<Vec<_>>(), "each step is said on its own, whole");
        let last = messages.last().unwrap();
        assert_eq!((&last["type"], &last["steps_truncated"]), (&json!("final"), &json!(true)));
        assert_eq!((&last["steps_total"], &last["result"]["answer"]), (&json!(all.len()), &run["answer"]));
        let mut steps = last["result"]["steps"].as_array().unwrap().clone();
        assert!(!steps.is_empty() && steps.len() < all.len());
        let mut path = last["steps_rest"].as_str().unwrap().to_owned();
        loop {
            let page = api.get(&format!("{path}&limit=60")).await;
            assert_eq!(page.status, 200, "{}", page.body);
            let items = page.body["items"].as_array().unwrap();
            assert!((1..=60).contains(&items.len()));
            steps.extend(items.iter().cloned());
            match page.body["next_cursor"].as_str() {
                Some(cursor) => path = format!("/runs/{id}/steps?cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(&steps, all, "the message and the pages are the run");
    });
}

#[test]
fn given_a_step_that_no_client_takes_when_it_is_said_then_it_is_cut_and_its_page_has_all_of_it() {
    test(async |api| {
        // An event has 256 KiB at most; what JSON writes in six bytes each is larger in a message.
        let words = ["one".to_owned(), "\u{1}".repeat(200_000), "three".to_owned()];
        let run = a_run_with_steps(api, &words).await;
        let id = run["run_id"].as_str().unwrap();
        let mut socket = connect(api, &format!("/ws/runs/{id}")).await;
        let (messages, _) = read(&mut socket).await;
        assert!(messages.iter().all(|message| message.to_string().len() < TAKEN));
        let cut: Vec<i64> = messages
            .iter()
            .filter(|message| message["truncated"] == true)
            .map(|message| message["step"]["seq"].as_i64().unwrap())
            .collect();
        assert_eq!(cut, [2]);
        assert_eq!(messages.last().unwrap()["result"]["steps"].as_array().unwrap().len(), 1, "as many as fit");
        let page = api.get(&format!("/runs/{id}/steps?cursor=1&limit=1")).await.body;
        assert_eq!((&page["items"][0], &page["next_cursor"]), (&run["steps"][1], &json!("2")));
        let page = api.get(&format!("/runs/{id}/steps")).await.body;
        assert_eq!((&page["items"], &page["next_cursor"]), (&run["steps"], &Value::Null));
    });
}

#[test]
fn given_pages_that_must_not_be_when_they_are_asked_for_then_the_answer_says_why() {
    test(async |api| {
        let run = api.post("/agent/run", json!({"task": "page [[steps=1 id=paged]]", "agent": "react"})).await.body;
        let id = run["run_id"].as_str().unwrap();
        for query in ["limit=0", "cursor=-1", "cursor=x", "page=2"] {
            problem(&api.get(&format!("/runs/{id}/steps?{query}")).await, &[422]);
        }
        problem(&api.get("/runs/run_01h455vb4pex5vsknk084sn02q/steps").await, &[404]);
        for cursor in [1_000, i64::MAX] {
            let behind = api.get(&format!("/runs/{id}/steps?cursor={cursor}")).await.body;
            assert_eq!(behind, json!({"items": [], "next_cursor": null}), "{cursor}");
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_socket_that_has_asked_for_nothing_yet_when_the_process_stops_then_it_is_told_so() {
    let api = Api::configured(|config| config).await;
    let mut silent = connect(&api, "/ws/agent").await;
    let ((messages, close), ()) = tokio::join!(read(&mut silent), api.stop());
    assert!(messages.is_empty(), "{messages:?}");
    assert_eq!(close.expect("a close frame").0, 1001);
}
