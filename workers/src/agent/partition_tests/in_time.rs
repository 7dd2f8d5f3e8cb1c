//! Runs with a budget of seconds that is over before their turn has come.

use super::*;

/// A run that has ten seconds from the moment 0 on.
fn hurried(name: &str, after: &[&str], session: Option<&str>) -> RunAccepted {
    let mut accepted = of_session(name, session);
    accepted.request.budget_seconds = Some(10);
    accepted.request.after = after.iter().map(|name| run(name)).collect();
    accepted
}

#[test]
fn given_runs_that_wait_when_their_time_is_over_then_they_are_driven_to_their_ends_unless_a_person_is_asked() {
    let copying = ForkedFrom { run_id: run("first"), at_seq: 3 };
    let mut partition = given(vec![
        of_session("first", Some("s")).into(),
        hurried("second", &[], Some("s")).into(),
        of_session("third", Some("s")).into(),
        hurried("follower", &["first"], None).into(),
        hurried("asks", &[], None).into(),
        claimed("asks", 1),
        asks("asks"),
        RunAccepted { forked_from: Some(copying), ..hurried("fork", &[], None) }.into(),
    ]);
    partition.wake_out_of_time(10_000);
    assert!(ready(&mut partition).is_empty(), "the past is not driven");
    partition.go_live();
    assert_eq!(ready(&mut partition), [run("first")]);
    partition.wake_out_of_time(9_999);
    assert!(ready(&mut partition).is_empty());
    partition.wake_out_of_time(10_000);
    let mut over = ready(&mut partition);
    over.sort_unstable();
    let mut expected = [run("second"), run("follower")];
    expected.sort_unstable();
    assert_eq!(over, expected, "others wait on, for a person, for their turn or for steps to be copied");
    partition.wake_out_of_time(10_000);
    assert!(ready(&mut partition).is_empty(), "each once");
}
