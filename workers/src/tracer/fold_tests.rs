use std::collections::HashSet;

use riverrun_models::Secret;
use riverrun_schemas::agent::RunCancelRequested;

use super::super::span::Value;
use super::super::testing::*;
use super::*;

fn defaults(content: bool) -> Defaults {
    Defaults {
        provider: "local".into(),
        model: "tiny".into(),
        content: Content::new(content, Secret::new("canary-1234")),
    }
}

fn spans_of(events: &[AgentEvent], defaults: &Defaults) -> Vec<Span> {
    let AgentEvent::RunAccepted(accepted) = &events[0] else { panic!("a run begins with its acceptance") };
    let mut run = RunTrace::new(accepted, None, defaults);
    events.iter().flat_map(|event| run.apply(event, defaults)).collect()
}

fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} among {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>());
    found[0]
}

fn shape(span: &Span) -> (&str, i64, i64) {
    (span.name.as_str(), span.start, span.end)
}

#[test]
fn given_a_run_when_it_is_folded_then_each_thing_that_took_time_is_a_span_below_what_it_belongs_to() {
    let spans = spans_of(&whole("a"), &defaults(true));
    assert_eq!(
        spans.iter().map(shape).collect::<Vec<_>>(),
        [
            ("wait for a worker", 1_000, 1_100),
            ("route", 1_100, 1_110),
            ("chat tiny", 1_110, 1_400),
            ("thought", 1_110, 1_400),
            ("execute_tool knowledge_search", 1_410, 1_460),
            ("retrieval", 1_410, 1_460),
            ("chat tiny", 1_460, 1_900),
            ("answer", 1_460, 1_900),
            ("invoke_agent react", 1_000, 1_910),
        ]
    );
    let trace = TraceId::from(run_id("a"));
    assert!(spans.iter().all(|span| span.trace == trace));
    let ids: HashSet<_> = spans.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), spans.len());
    let root = named(&spans, "invoke_agent react");
    assert_eq!((root.id, root.parent), (trace.root(), None));
    assert!(spans.iter().filter(|span| span.id != root.id).all(|span| ids.contains(&span.parent.unwrap())));
    assert_eq!(named(&spans, "retrieval").parent, Some(named(&spans, "execute_tool knowledge_search").id));
    let first_chat = spans.iter().find(|span| span.name == "chat tiny").unwrap();
    assert_eq!(first_chat.parent, Some(named(&spans, "thought").id));
}

#[test]
fn given_model_calls_when_they_are_folded_then_they_carry_the_names_of_the_conventions() {
    let spans = spans_of(&whole("a"), &defaults(false));
    let chat = spans.iter().find(|span| span.name == "chat tiny").unwrap();
    for (name, value) in [
        ("gen_ai.operation.name", Value::from("chat")),
        ("gen_ai.provider.name", "local".into()),
        ("gen_ai.request.model", "tiny".into()),
        ("gen_ai.request.temperature", 0.5.into()),
        ("gen_ai.usage.input_tokens", 20.into()),
        ("gen_ai.usage.output_tokens", 5.into()),
        ("gen_ai.usage.cost", 0.25.into()),
        ("session.id", "s-1".into()),
    ] {
        assert_eq!(chat.attributes.get(name), Some(&value), "{name}");
    }
    assert_eq!(chat.side, Side::Client);
    let root = named(&spans, "invoke_agent react");
    for (name, value) in [
        ("gen_ai.operation.name", Value::from("invoke_agent")),
        ("gen_ai.agent.name", "react".into()),
        ("riverrun.run.status", "succeeded".into()),
        ("riverrun.run.model_calls", 2.into()),
        ("riverrun.run.tool_calls", 1.into()),
        ("riverrun.run.input_tokens", 30.into()),
    ] {
        assert_eq!(root.attributes.get(name), Some(&value), "{name}");
    }
    let tool = named(&spans, "execute_tool knowledge_search");
    assert_eq!(tool.attributes.get("gen_ai.tool.call.id"), Some(&"c-1".into()));
    assert_eq!(named(&spans, "retrieval").attributes.get("retrieval.documents.0.document.id"), Some(&"chk_1".into()));
}

#[test]
fn given_providers_that_the_conventions_name_otherwise_when_a_run_is_folded_then_their_names_are_used() {
    for (provider, name) in [
        ("gemini", "gcp.gemini"),
        ("bedrock", "aws.bedrock"),
        ("mistral", "mistral_ai"),
        ("azure", "azure.ai.openai"),
        ("groq", "groq"),
    ] {
        let spans = spans_of(&whole("a"), &Defaults { provider: provider.into(), ..defaults(false) });
        let named: Vec<_> = spans.iter().filter_map(|span| span.attributes.get("gen_ai.provider.name")).collect();
        let expected = Value::from(name);
        assert_eq!(named, [&expected; 3], "two calls and the run");
    }
}

#[test]
fn given_content_is_not_asked_for_when_a_run_is_folded_then_no_words_of_people_and_models_leave() {
    let mut events = whole("a");
    events.insert(
        6,
        AgentEvent::from(RunCancelRequested {
            run_id: run_id("a"),
            reason: Some("words of a person".into()),
            at: 1_905,
        }),
    );
    let told = format!("{:?}", spans_of(&events, &defaults(false)));
    for word in ["how many", "words", "beds", "a bed", "four"] {
        assert!(!told.contains(word), "{word} left");
    }
    let told = format!("{:?}", spans_of(&events, &defaults(true)));
    for word in ["how many", "words 2", "words of a person", "beds", "a bed", "four"] {
        assert!(told.contains(word), "{word} did not leave");
    }
    for secret in ["hunter2", "abcdefghijklmnop"] {
        assert!(!told.contains(secret), "{secret} left");
    }
}

#[test]
fn given_events_that_come_twice_or_are_void_when_they_are_folded_then_the_spans_are_the_same() {
    let once = spans_of(&whole("a"), &defaults(true));
    let twice: Vec<AgentEvent> = whole("a").into_iter().flat_map(|event| [event.clone(), event]).collect();
    assert_eq!(spans_of(&twice, &defaults(true)), once);
    let mut fenced = whole("a");
    fenced.insert(4, advanced("a", 0, vec![words(4, StepKind::Answer, 1_450)]));
    fenced.push(finished("a", 1, RunOutcome::Failed, 3_000));
    assert_eq!(spans_of(&fenced, &defaults(true)), once);
}

#[test]
fn given_a_tool_that_fails_when_it_is_folded_then_its_span_and_no_other_has_an_error() {
    let events = [
        accepted("a").into(),
        claimed("a", 1, 1_100),
        advanced(
            "a",
            1,
            vec![call(1, "clock", "c-1", 1_200), result(2, "clock", "c-1", Err("no canary-1234"), 5, 1_300)],
        ),
        finished("a", 1, RunOutcome::Succeeded, 1_400),
    ];
    for (content, message) in [(true, "no ***"), (false, "the tool failed")] {
        let spans = spans_of(&events, &defaults(content));
        let tool = named(&spans, "execute_tool clock");
        assert_eq!(tool.outcome, Outcome::Error(message.into()));
        assert_eq!(tool.attributes.get("error.type"), Some(&"tool_error".into()));
        let root = named(&spans, "invoke_agent react");
        assert_eq!((&root.outcome, root.attributes.get("riverrun.run.tool_errors")), (&Outcome::Ok, Some(&1.into())));
    }
}

#[test]
fn given_a_run_that_ends_within_a_call_when_it_is_folded_then_the_call_is_told_without_a_result() {
    let events = [
        accepted("a").into(),
        claimed("a", 1, 1_100),
        advanced("a", 1, vec![call(1, "mail", "c-1", 1_200)]),
        finished("a", 1, RunOutcome::Failed, 1_500),
    ];
    let spans = spans_of(&events, &defaults(false));
    let tool = named(&spans, "execute_tool mail");
    assert_eq!(
        (shape(tool), tool.attributes.get("error.type")),
        (("execute_tool mail", 1_200, 1_500), Some(&"no_result".into()))
    );
    let root = named(&spans, "invoke_agent react");
    assert_eq!(root.outcome, Outcome::Error("model_runtime_down".into()));
    assert_eq!(root.attributes.get("error.type"), Some(&"model_runtime_down".into()));
}

#[test]
fn given_a_call_that_waited_for_a_person_when_it_is_folded_then_the_wait_is_a_span_and_not_the_tools() {
    let events = [
        accepted("a").into(),
        claimed("a", 1, 1_100),
        advanced("a", 1, vec![call(1, "mail", "c-1", 1_200)]),
        advanced("a", 1, vec![words(2, StepKind::Approval, 9_000)]),
        advanced("a", 1, vec![result(3, "mail", "c-1", Ok("{}"), 100, 9_200)]),
        finished("a", 1, RunOutcome::Cancelled, 9_300),
    ];
    let spans = spans_of(&events, &defaults(false));
    assert_eq!(shape(named(&spans, "approval")), ("approval", 1_200, 9_000));
    assert_eq!(shape(named(&spans, "execute_tool mail")), ("execute_tool mail", 9_100, 9_200));
    assert_eq!(named(&spans, "invoke_agent react").outcome, Outcome::Unset);
}

#[test]
fn given_a_run_that_changes_hands_when_it_is_folded_then_the_time_of_the_dead_worker_is_nobodys() {
    let events = [
        accepted("a").into(),
        claimed("a", 1, 1_100),
        claimed("a", 2, 5_000),
        advanced("a", 2, vec![with_usage(words(1, StepKind::Answer, 5_400), 1, 1)]),
        finished("a", 2, RunOutcome::Succeeded, 5_500),
    ];
    let spans = spans_of(&events, &defaults(false));
    assert_eq!(shape(named(&spans, "chat tiny")), ("chat tiny", 5_000, 5_400));
    let root = named(&spans, "invoke_agent react");
    let marks: Vec<_> = root.marks.iter().map(|mark| (mark.name, mark.at)).collect();
    assert_eq!(marks, [("claimed", 1_100), ("claimed again", 5_000)]);
}

#[test]
fn given_clocks_that_disagree_when_a_run_is_folded_then_no_span_ends_before_it_begins() {
    let events = [
        accepted("a").into(),
        claimed("a", 1, 900),
        advanced("a", 1, vec![with_usage(words(1, StepKind::Thought, 500), 1, 1), call(2, "clock", "c", 400)]),
        advanced("a", 1, vec![result(3, "clock", "c", Ok("1"), 10_000, 300)]),
        finished("a", 1, RunOutcome::Succeeded, 200),
    ];
    let spans = spans_of(&events, &defaults(false));
    assert_eq!(spans.len(), 5);
    assert!(spans.iter().all(|span| span.start <= span.end), "{:?}", spans.iter().map(shape).collect::<Vec<_>>());
}

#[test]
fn given_a_record_of_another_trace_when_the_run_is_folded_then_its_root_links_there() {
    let outside: Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    let own = TraceId::from(run_id("a")).traceparent();
    for (given, links) in [(outside, vec![outside]), (own, vec![])] {
        let mut run = RunTrace::new(&accepted("a"), Some(given), &defaults(false));
        let spans: Vec<Span> = whole("a").iter().flat_map(|event| run.apply(event, &defaults(false))).collect();
        assert_eq!(named(&spans, "invoke_agent react").links, links);
    }
}

#[test]
fn given_more_than_may_be_kept_when_a_run_is_folded_then_what_is_kept_stays_within_its_bounds() {
    let mut run = RunTrace::new(&accepted("a"), None, &defaults(true));
    run.apply(&claimed("a", 1, 1_100), &defaults(true));
    let calls = (1..=200).map(|seq| call(seq, "clock", &seq.to_string(), 1_200)).collect();
    run.apply(&advanced("a", 1, calls), &defaults(true));
    for at in 0..100 {
        let cancel = RunCancelRequested { run_id: run_id("a"), reason: Some("x".repeat(10_000)), at };
        run.apply(&cancel.into(), &defaults(true));
    }
    assert_eq!((run.calls.len(), run.marks.len()), (MAX_OPEN_CALLS, MAX_MARKS));
    assert!(format!("{:?}", run.marks).len() < 20_000);
    let spans = run.apply(&finished("a", 1, RunOutcome::Cancelled, 2_000), &defaults(true));
    assert_eq!(spans.len(), MAX_OPEN_CALLS + 1);
}
