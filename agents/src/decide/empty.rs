//! An answer without words is none: it is asked for once more, and a second one ends the run as failed. For every agent type.

use riverrun_schemas::Failure;
use riverrun_schemas::agent::{Step, StepKind};

use super::marks::Mark;
use super::{Action, Ending, Failed, ModelMode, Reply, StepDraft};
use crate::state::RunState;

/// Answers without words in a row that end a run.
const MOST: usize = 2;
/// Said where the answer is asked for once more.
const AGAIN: &str = "Your last reply was empty. Write the answer in words.";

/// Whether a step says that the model was asked for an answer and wrote nothing.
pub(crate) fn wrote_nothing(step: &Step) -> bool {
    let mark = step.text.as_deref().and_then(Mark::read).map(|(mark, _)| mark);
    step.kind == StepKind::Thought && mark == Some(Mark::Empty)
}

/// The step that the reply to a call for an answer becomes.
pub(super) fn answer(reply: &Reply) -> Vec<StepDraft> {
    let words = reply.text.trim();
    let (kind, text) = if words.is_empty() {
        (StepKind::Thought, Mark::Empty.write("the model wrote nothing"))
    } else {
        (StepKind::Answer, words.to_owned())
    };
    vec![StepDraft::text(kind, text, Some(reply.usage))]
}

/// The end of a run whose model wrote nothing, asked twice. What a fork has copied does not count: it may have another model.
pub(super) fn ending(state: &RunState) -> Option<Ending> {
    let copied = state.forked_from.as_ref().map_or(0, |from| from.at_seq);
    let own = state.steps.iter().rev().take_while(|step| step.seq > copied);
    (own.take_while(|step| wrote_nothing(step)).count() >= MOST).then(|| {
        let failure = Failure::new(
            "empty_answer",
            format!("the model was asked for the answer {MOST} times and wrote nothing"),
        )
        .with_hint(
            "take another model; one that thinks may have used up its tokens for the answer before it came to it",
        );
        Failed(failure).into()
    })
}

/// The action, which says so where it asks for the answer again.
pub(super) fn ask_again(state: &RunState, action: Action) -> Action {
    match action {
        Action::CallModel(mut call)
            if call.mode == ModelMode::Answer && state.steps.last().is_some_and(wrote_nothing) =>
        {
            if let Some(last) = call.messages.last_mut() {
                last.content = format!("{}\n\n{AGAIN}", last.content);
            }
            Action::CallModel(call)
        }
        action => action,
    }
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::RunOutcome;

    use super::super::testkit::{Given, leaves, request};
    use super::*;

    /// A run of each type up to its call for an answer.
    fn asked() -> Vec<(&'static str, Given)> {
        let react = Given::new(request("react")).replied(ModelMode::Act, &leaves("answer"));
        let planned = Given::new(request("plan_execute")).replied(ModelMode::Plan, "no plan");
        let mut drafted = Vec::new();
        for agent in ["reflexion", "critic"] {
            let mut given = Given::new(request(agent)).without_tools();
            for _ in 0..20 {
                given = match given.next() {
                    Action::Append(drafts) => given.steps(drafts),
                    Action::CallModel(call) if call.mode == ModelMode::Answer => break,
                    Action::CallModel(call) => given.replied(call.mode, ""),
                    other => panic!("{agent}: {other:?}"),
                };
            }
            drafted.push((agent, given));
        }
        [("react", react), ("plan_execute", planned)].into_iter().chain(drafted).collect()
    }

    #[test]
    fn given_an_answer_without_words_when_any_agent_gets_it_then_it_asks_once_more_and_then_fails() {
        for (agent, given) in asked() {
            let before = given.prompt();
            let once = given.replied(ModelMode::Answer, " \n");
            assert_eq!(once.last().kind, StepKind::Thought, "{agent}");
            assert_eq!(once.mode(), ModelMode::Answer, "{agent} asks again");
            assert!(!before.contains(AGAIN) && once.prompt().ends_with(AGAIN), "{agent}: {}", once.prompt());

            let good = once.clone().replied(ModelMode::Answer, "42").ending();
            assert_eq!((good.status, good.answer.as_deref()), (RunOutcome::Succeeded, Some("42")), "{agent}");

            let end = once.replied(ModelMode::Answer, "").ending();
            let code = end.error.map(|failure| failure.code);
            assert_eq!((end.status, end.answer), (RunOutcome::Failed, None), "{agent}");
            assert_eq!((end.stop_reason, code.as_deref()), ("error", Some("empty_answer")), "{agent}");
        }
    }

    #[test]
    fn given_an_empty_answer_that_an_earlier_version_recorded_when_the_run_is_read_then_it_has_succeeded_as_it_did() {
        let given = Given::new(request("react")).replied(ModelMode::Act, &leaves("answer"));
        let end = given.steps(vec![StepDraft::text(StepKind::Answer, "", None)]).ending();
        assert_eq!((end.status, end.answer.as_deref()), (RunOutcome::Succeeded, Some("")));
        assert_eq!(end.stop_reason, "answered");
    }

    #[test]
    fn given_a_choice_to_answer_when_the_first_answer_is_empty_then_the_run_has_still_ended_by_choice() {
        let given =
            Given::new(request("react")).replied(ModelMode::Act, &leaves("answer")).replied(ModelMode::Answer, "");
        assert_eq!(given.replied(ModelMode::Answer, "42").ending().stop_reason, "answered");
    }
}
