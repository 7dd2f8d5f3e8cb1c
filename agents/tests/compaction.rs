//! given a run of any agent type that outgrew its model's context, when a smaller form of its prompt is looked for, then the
//! first one that fits is found, and what must be shown is shown.

mod common;

use common::{Run, reply, request};
use proptest::prelude::*;
use riverrun_agents::compaction::{self, Compacted, Compaction, Figures, Room, Search};
use riverrun_agents::{Action, ModelCall, ModelMode, RunState, catalog};
use riverrun_schemas::agent::StepKind;
use serde_json::json;

const TASK: &str = "find out what is to be found out";

/// What the tool returns for the n-th time: `size` characters, with a beginning and an end that are nowhere else.
fn result(n: usize, size: usize) -> String {
    format!("begin-{n} {} end-{n}", "word ".repeat(size / 5))
}

/// A run that used its tool so often, with results of these sizes, and is about to ask its model.
fn grown(agent: &str, sizes: &[usize]) -> Run {
    let mut run = Run::new(request(agent, TASK, 40));
    let mut used = 0;
    loop {
        let drafts = match run.next() {
            Action::CallModel(_) if used == sizes.len() => return run,
            Action::CallModel(call) => run.interpret(call.mode, &reply(&reply_to(&call, used))),
            Action::CallTool(call) => {
                used += 1;
                Run::returned(call, Ok(json!(result(used, sizes[used - 1]))))
            }
            Action::Append(drafts) => drafts,
            Action::Finish(_) | Action::Route | Action::Wait => panic!("{agent} does not use its tool {used} times"),
        };
        run.append(drafts);
    }
}

fn reply_to(call: &ModelCall, used: usize) -> String {
    match call.mode {
        ModelMode::Act => {
            json!({ "thought": "go on", "tool": "calculator", "arguments": { "expression": format!("{used}") } })
                .to_string()
        }
        ModelMode::Plan => {
            let step = |n| json!({ "description": format!("step {n}"), "tool": "calculator" });
            json!({ "steps": (1..=5).map(step).collect::<Vec<_>>() }).to_string()
        }
        ModelMode::Answer
        | ModelMode::Work
        | ModelMode::Draft
        | ModelMode::Judge
        | ModelMode::Reflect
        | ModelMode::Route => panic!("{:?} before the tool was used {used} times", call.mode),
    }
}

fn due(run: &Run) -> ModelCall {
    match run.next() {
        Action::CallModel(call) => call,
        other => panic!("{other:?}"),
    }
}

fn prompt(call: &ModelCall) -> String {
    call.messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n")
}

fn tokens(call: &ModelCall) -> usize {
    riverrun_knowledge::room::estimate(&call.messages)
}

/// The form that a worker would find, with its tokens.
fn found(run: &Run, room: Room) -> Option<(Compaction, usize)> {
    let mut search = Search::new(compaction::forms(&run.state), room, tokens(&due(run)), false);
    while let Some(form) = search.wanted() {
        let call = compaction::due(&run.state, &run.tools, &form).expect("a call is due in every form");
        search.measured(tokens(&call));
    }
    search.found().map(|(form, tokens)| (form.clone(), tokens))
}

fn compacted(state: &RunState, form: &Compaction) -> Compacted {
    let figures = Figures { before: 2, after: 1, estimated: true };
    Compacted::new(state, form, Room::new(Some(1_000), 100), figures)
}

#[test]
fn given_observations_when_forms_are_made_then_older_ones_are_shortened_and_then_left_out_the_oldest_first() {
    let run = grown("react", &[3_000, 20, 3_000, 3_000]);
    let shown: Vec<(Vec<i64>, Vec<i64>)> = compaction::forms(&run.state)
        .iter()
        .map(|form| compacted(&run.state, form))
        .map(|compacted| (compacted.shortened_steps, compacted.dropped_steps))
        .collect();
    // Thought, call and result: results are steps 3, 6, 9 and 12. The second is short already, the last is the newest.
    let expected = [
        (vec![3], vec![]),
        (vec![3, 9], vec![]),
        (vec![9], vec![2, 3]),
        (vec![9], vec![2, 3, 5, 6]),
        (vec![], vec![2, 3, 5, 6, 8, 9]),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn given_a_failed_call_behind_a_good_one_when_forms_are_made_then_both_stay() {
    let mut run = grown("react", &[3_000, 3_000]);
    for _ in 0..2 {
        let refused = json!({ "thought": "t", "tool": "shell", "arguments": {} }).to_string();
        run.append(run.interpret(ModelMode::Act, &reply(&refused)));
    }
    let last = compaction::forms(&run.state).pop().unwrap();
    // The newest good result is step 6, the newest result step 12.
    assert_eq!(compacted(&run.state, &last).dropped_steps, [2, 3, 8, 9]);
    let call = compaction::due(&run.state, &run.tools, &last).unwrap();
    assert!(prompt(&call).contains("end-2") && !prompt(&call).contains("begin-1"), "{}", prompt(&call));
}

#[test]
fn given_sizes_when_a_form_is_searched_then_the_first_that_fits_the_best_goal_is_found() {
    let run = grown("react", &[900; 10]);
    let forms = compaction::forms(&run.state);
    let search = |context: Option<usize>, tokens: usize, refused: bool, sizes: &dyn Fn(usize) -> usize| {
        let mut search = Search::new(forms.clone(), Room::new(context, 100), tokens, refused);
        let mut asked = 0;
        while let Some(form) = search.wanted() {
            search.measured(sizes(forms.iter().position(|known| *known == form).unwrap()));
            asked += 1;
            assert!(asked <= 15, "as few as a binary search needs");
        }
        search.found().map(|(form, _)| forms.iter().position(|known| known == form).unwrap())
    };
    let falling = |n: usize| 1_000 - 50 * n;
    // Room for 900 tokens; three quarters of that leave the next steps some.
    assert_eq!(search(Some(1_000), 1_050, false, &falling), Some(7));
    assert_eq!(
        search(Some(1_000), 1_050, false, &|n| 1_000 - 10 * n),
        Some(10),
        "all of the room when there is no more"
    );
    assert_eq!(search(Some(1_000), 1_050, false, &|_| 950), Some(0), "a short answer when there is no more");
    assert_eq!(search(Some(1_000), 1_050, false, &|_| 990), None);
    assert_eq!(search(None, 1_050, true, &falling), Some(5), "three quarters of what was refused");
    assert_eq!(search(None, 1_050, true, &|_| 1_050), None, "no form that is as large as what was refused");
}

#[test]
fn given_a_room_when_a_prompt_is_judged_then_a_quarter_at_most_is_kept_for_the_answer() {
    for (context, answer, reserved) in [(8_192, 1_024, 1_024), (1_000, 1_024, 250), (1_000, 16, 16)] {
        let room = Room::new(Some(context), answer);
        assert_eq!(room.reserved(), reserved);
        assert!(room.fits(context - reserved) && !room.fits(context - reserved + 1));
        let least = usize::try_from(answer).unwrap().min(32);
        assert!(room.is_possible(context - least) && !room.is_possible(context - least + 1));
    }
    assert!(Room::new(None, 512).fits(usize::MAX));
}

#[test]
fn given_a_compaction_when_it_is_folded_then_it_is_part_of_the_snapshot_and_no_step_of_an_agents() {
    let mut run = grown("react", &[3_000, 3_000]);
    let last = compaction::forms(&run.state).pop().unwrap();
    let step = compacted(&run.state, &last).step();
    run.append(vec![step]);
    assert_eq!(run.state.compaction(), &last);
    assert!(run.state.steps.iter().all(|step| step.kind != StepKind::Compaction), "it is no step of an agent's");
    let snapshot: RunState = serde_json::from_str(&serde_json::to_string(&run.state).unwrap()).unwrap();
    assert_eq!(snapshot, run.state);
}

#[test]
fn given_a_call_that_was_left_out_when_the_model_asks_for_it_again_then_it_is_made_again() {
    let mut run = grown("react", &[3_000, 3_000, 3_000]);
    let first = json!({ "thought": "t", "tool": "calculator", "arguments": { "expression": "0" } }).to_string();
    let kinds = |run: &Run| -> Vec<StepKind> {
        run.interpret(ModelMode::Act, &reply(&first)).iter().map(|draft| draft.kind).collect()
    };
    assert_eq!(kinds(&run), [StepKind::Thought, StepKind::ToolCall, StepKind::ToolResult], "refused: it is above");
    let last = compaction::forms(&run.state).pop().unwrap();
    let step = compacted(&run.state, &last).step();
    run.append(vec![step]);
    assert_eq!(kinds(&run), [StepKind::Thought, StepKind::ToolCall]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn whatever_a_run_has_read_when_it_is_compacted_then_it_fits_and_shows_what_it_must(
        sizes in prop::collection::vec(0usize..5_000, 1..5),
        context in 600usize..6_000,
    ) {
        for manifest in catalog() {
            let mut run = grown(manifest.name, &sizes);
            let before = due(&run);
            let room = Room::new(Some(context), before.max_tokens);
            if room.fits(tokens(&before)) {
                continue;
            }
            let Some((form, after)) = found(&run, room) else {
                let forms = compaction::forms(&run.state);
                let smallest = forms.last().map_or(before, |form| compaction::due(&run.state, &run.tools, form).unwrap());
                prop_assert!(!room.fits(tokens(&smallest)), "{}: it would have fitted", manifest.name);
                continue;
            };
            prop_assert!(after < tokens(&before), "{}: never more", manifest.name);
            prop_assert!(room.is_possible(after), "{}: never too much", manifest.name);
            // Pairs are left out together.
            let said = compacted(&run.state, &form);
            for step in &run.state.steps {
                let Some(tool) = &step.tool else { continue };
                let other = run.state.steps.iter().filter_map(|other| Some((other.seq, other.tool.as_ref()?)));
                for (seq, _) in other.filter(|(_, other)| other.call_id == tool.call_id) {
                    prop_assert_eq!(said.dropped_steps.contains(&seq), said.dropped_steps.contains(&step.seq));
                }
            }
            // The step is taken in: from now on the prompt is the one that was measured.
            let once = run.state.clone();
            run.append(vec![said.step()]);
            let call = due(&run);
            prop_assert_eq!(run.state.compaction(), &form);
            prop_assert_eq!((call.mode, tokens(&call)), (before.mode, after));
            prop_assert_eq!(&call.messages[0], &before.messages[0], "the instructions stay");
            prop_assert_eq!(&call.response_schema, &before.response_schema, "the tools stay");
            let text = prompt(&call);
            let newest = sizes.len();
            prop_assert!(text.contains(TASK), "{}", manifest.name);
            prop_assert!(text.contains(&result(newest, sizes[newest - 1])), "{}: the newest is whole", manifest.name);
            // Once more changes nothing: what is left out stays so, and the rest has room.
            let again = compaction::due(&once, &run.tools, &form).unwrap();
            prop_assert_eq!(again.messages, call.messages, "the same form gives the same prompt");
            if room.fits(after) {
                prop_assert!(compaction::forms(&run.state).iter().all(|smaller| *smaller != form));
            }
        }
    }
}
