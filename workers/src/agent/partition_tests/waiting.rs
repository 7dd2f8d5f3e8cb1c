//! Runs that wait for others.

use super::*;

/// A run that waits for others.
fn waiting(name: &str, after: &[&str], session: Option<&str>) -> RunAccepted {
    let mut accepted = of_session(name, session);
    accepted.request.after = after.iter().map(|name| run(name)).collect();
    accepted
}

fn ended(name: &str, status: RunOutcome) -> AgentEvent {
    RunFinished {
        run_id: run(name),
        epoch: 1,
        status,
        agent: "react".into(),
        answer: (status == RunOutcome::Succeeded).then(|| format!("the answer of {name}")),
        citations: vec![],
        usage: Default::default(),
        stop_reason: "answered".into(),
        error: None,
        at: 0,
    }
    .into()
}

#[test]
fn given_a_chain_when_the_runs_before_have_answered_then_the_waiting_one_is_driven_with_their_answers_after_a_restart_too()
 {
    let events = || -> Vec<AgentEvent> {
        vec![
            waiting("join", &["a", "b"], None).into(),
            accepted("a"),
            accepted("b"),
            claimed("a", 1),
            claimed("b", 1),
            ended("a", RunOutcome::Succeeded),
            ended("b", RunOutcome::Succeeded),
        ]
    };
    for count in 1..=6 {
        let (partition, last) = live(events().into_iter().take(count).collect());
        assert!(!last.contains(&run("join")), "after {count} events it still waits");
        assert_eq!(noted(&partition).1, 10, "all that it waits for is folded again");
    }
    let (_, last) = live(events());
    assert_eq!(last, [run("join")]);
    // The same past, folded after a restart.
    let mut partition = given(events());
    partition.go_live();
    let ready = partition.take_ready();
    let [join] = ready.as_slice() else { panic!("only the join is left") };
    let texts: Vec<&str> = join.state.inputs().iter().map(|input| input.text.as_str()).collect();
    assert_eq!((join.state.run_id, texts), (run("join"), vec!["the answer of a", "the answer of b"]));
    assert!(join.ends.is_none() && join.state.reading() == Reading::Outside);
}

#[test]
fn given_a_chain_when_a_run_fails_or_is_cancelled_then_the_waiting_one_is_driven_to_its_end_only() {
    for (status, reason) in
        [(RunOutcome::Failed, "predecessor_failed"), (RunOutcome::Cancelled, "predecessor_cancelled")]
    {
        let past: Vec<AgentEvent> =
            vec![waiting("end", &["a"], None).into(), accepted("a"), claimed("a", 1), ended("a", status)];
        let mut partition = given(past);
        partition.go_live();
        let ready = partition.take_ready();
        let [end] = ready.as_slice() else { panic!("only the waiting one is left") };
        assert_eq!(end.ends.as_ref().map(|ending| ending.stop_reason), Some(reason));
        assert!(end.state.inputs().is_empty());
    }
}

#[test]
fn given_a_waiting_run_when_it_is_cancelled_then_it_is_driven_at_once() {
    let (_, last) = live(vec![waiting("end", &["a"], None).into(), accepted("a"), cancelled("end")]);
    assert_eq!(last, [run("end")]);
}

#[test]
fn given_a_chain_within_a_session_when_it_goes_on_then_no_run_stands_in_the_way_of_one_that_it_waits_for() {
    let past: Vec<AgentEvent> = vec![waiting("end", &["a"], Some("s")).into(), of_session("a", Some("s")).into()];
    let (_, last) = live(past.clone());
    assert_eq!(last, [run("a")], "the waiting one has no turn before its input is there");
    let more = [claimed("a", 1), ended("a", RunOutcome::Succeeded)];
    let mut partition = given(past.into_iter().chain(more).collect());
    partition.go_live();
    assert_eq!(ready(&mut partition), [run("end")]);
}

/// What a look through the log finds.
fn found(wanted: &[&str], events: Vec<AgentEvent>, since: Instant) -> Looked {
    let mut search = Search::new(wanted.iter().map(|name| run(name)).collect());
    // Read twice: a look that broke off is made again.
    let ended = [events.clone(), events].concat().into_iter().filter_map(|event| search.fold(5, event)).collect();
    Looked { search, since, whole: true, ended }
}

#[test]
fn given_a_run_that_ended_before_the_one_that_waits_when_it_is_found_then_that_one_goes_on_in_any_order() {
    let patience = Duration::from_secs(60);
    for (status, reason) in [
        (RunOutcome::Succeeded, None),
        (RunOutcome::Failed, Some("predecessor_failed")),
        (RunOutcome::Cancelled, Some("predecessor_cancelled")),
    ] {
        let before = || vec![accepted("a"), claimed("a", 1), ended("a", status)];
        let (mut partition, last) = live([before(), vec![waiting("end", &["a"], None).into()]].concat());
        assert!(last.is_empty(), "its end was before");
        let now = Instant::now();
        assert!(partition.searches_due(now).is_empty(), "it may come in a moment");
        let due = partition.searches_due(now + Duration::from_secs(2));
        assert_eq!(due.iter().flat_map(Search::wanted).collect::<Vec<_>>(), [&run("a")]);
        let stale = vec![accepted("a"), claimed("a", 1), claimed("a", 2), ended("a", status)];
        partition.looked(found(&["a"], stale, now), patience);
        assert!(ready(&mut partition).is_empty(), "an end under an older claim is none");
        for _ in 0..2 {
            partition.looked(found(&["a"], before(), now), patience);
        }
        let ready = partition.take_ready();
        let [end] = ready.as_slice() else { panic!("{status:?}: the waiting one goes on once") };
        assert_eq!(end.ends.as_ref().map(|ending| ending.stop_reason), reason);
        assert_eq!(end.state.inputs().len(), usize::from(reason.is_none()));
        assert!(partition.searches_due(now + Duration::from_secs(9)).is_empty(), "nobody is missed");
    }
}

#[test]
fn given_a_run_that_comes_while_it_is_given_up_then_the_one_that_waits_waits_on() {
    let (patience, now) = (Duration::from_secs(60), Instant::now());
    for comes in [false, true] {
        let (mut partition, _) = live(vec![waiting("end", &["a"], None).into()]);
        partition.searches_due(now);
        assert_eq!(partition.searches_due(now + Duration::from_secs(2)).len(), 1);
        if comes {
            partition.wrote(12, Some(run("a")));
        }
        partition.looked(found(&["a"], vec![], now + patience), patience);
        let ready = partition.take_ready();
        let reasons: Vec<_> = ready.iter().map(|run| run.ends.as_ref().map(|ending| ending.stop_reason)).collect();
        assert_eq!(reasons, if comes { vec![] } else { vec![Some("predecessor_unknown")] });
    }
}

#[test]
fn given_a_run_that_had_begun_when_what_it_waited_for_has_to_be_looked_for_then_its_session_waits_for_it() {
    let past: Vec<AgentEvent> =
        vec![waiting("end", &["a"], Some("s")).into(), claimed("end", 1), of_session("later", Some("s")).into()];
    let mut partition = given(past);
    partition.go_live();
    assert!(ready(&mut partition).is_empty(), "the later one is not driven before it");
    let events = vec![accepted("a"), claimed("a", 1), ended("a", RunOutcome::Succeeded)];
    partition.looked(found(&["a"], events, Instant::now()), Duration::from_secs(60));
    assert_eq!(ready(&mut partition), [run("end")]);
    partition.fold(20, finished("end", 1));
    assert_eq!(ready(&mut partition), [run("later")]);
}
