//! Prompt injection: whatever a document says, and even when the model obeys it, nothing outside is caused, and nothing
//! that an answer is shown with goes anywhere.

mod injection_corpus;

use injection_corpus::{CANARY, Document, corpus};
use pulldown_cmark::{Event, Options, Parser, Tag};
use riverrun_agents::decide::{Reply, agent};
use riverrun_agents::policy::{Policy, Verdict};
use riverrun_agents::tools::{Hit, KNOWLEDGE_SEARCH, Permission, ToolManifest, ToolSource};
use riverrun_agents::{Action, ModelMode, RunState, decide};
use riverrun_knowledge::answer::{self, MarkerFilter};
use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, RunAccepted, RunAdvanced, RunClaimed, RunRequest, StepKind, ToolEffect, ToolUse,
};
use riverrun_schemas::{ChunkId, DocumentId, RunId, Usage};
use serde_json::json;

fn request(approval: ApprovalPolicy) -> RunRequest {
    RunRequest { task: "when is the launch?".into(), agent: Some("react".into()), approval, ..RunRequest::default() }
}

fn tools() -> Vec<ToolManifest> {
    let any = || json!({ "type": "object" });
    let tool = |name: &str, effect| ToolManifest::builtin(name, "does it", any(), effect);
    let mut pay = tool("pay", ToolEffect::External);
    pay.source = ToolSource::Http;
    pay.permissions = vec![Permission::Network];
    let mut shell = tool("shell", ToolEffect::External);
    shell.source = ToolSource::Command;
    shell.permissions = vec![Permission::Process];
    vec![
        shell,
        tool("note", ToolEffect::Idempotent).needing(&[Permission::Memory]),
        tool("warehouse_query", ToolEffect::None).needing(&[Permission::Warehouse]),
        tool("calculator", ToolEffect::None),
        tool(KNOWLEDGE_SEARCH, ToolEffect::None).needing(&[Permission::Knowledge]),
        tool("web_fetch", ToolEffect::None).needing(&[Permission::Network]),
        pay,
    ]
}

/// A run whose search has found the document.
fn found(document: &Document, approval: ApprovalPolicy) -> RunState {
    let run_id = RunId::derive(&["injection"]);
    let mut state = RunState::accepted(&RunAccepted { run_id, request: request(approval), forked_from: None, at: 0 });
    assert!(state.apply(&AgentEvent::RunClaimed(RunClaimed { run_id, epoch: 1, worker: "w".into(), at: 0 })));
    let hit = Hit {
        chunk_id: ChunkId::derive(&[&document.name]),
        document_id: DocumentId::derive(&[&document.name]),
        source: document.source.clone(),
        start: 0,
        end: 1,
        chunk: None,
        page: None,
        text: document.text.clone(),
        score: 1.0,
    };
    let call = ToolUse {
        call_id: "call_1".into(),
        name: KNOWLEDGE_SEARCH.into(),
        arguments_json: "{\"query\":\"launch\"}".into(),
        effect: ToolEffect::None,
        result_json: None,
        result_blob: None,
        error: None,
        duration_ms: None,
    };
    let result =
        ToolUse { result_json: Some(json!({ "query": "launch", "passages": [hit] }).to_string()), ..call.clone() };
    let drafts = [
        decide::StepDraft::text(StepKind::Thought, "search", None),
        decide::StepDraft::tool(StepKind::ToolCall, call),
        decide::StepDraft::tool(StepKind::ToolResult, result),
    ];
    let steps = drafts.into_iter().zip(1..).map(|(draft, seq)| draft.number(seq, "react", 0)).collect();
    assert!(state.apply(&AgentEvent::RunAdvanced(RunAdvanced { run_id, epoch: 1, steps })));
    state
}

fn replied(text: String) -> Reply {
    Reply { text, usage: Usage::default(), cut: false }
}

/// What would be done outside, were the reply to an action call the given one.
fn caused(state: &RunState, reply: String) -> Vec<String> {
    let drafts = agent("react").unwrap().interpret(state, &tools(), ModelMode::Act, &replied(reply));
    let refused: Vec<_> = drafts.iter().filter(|draft| draft.kind == StepKind::ToolResult).collect();
    let calls = drafts.iter().filter(|draft| draft.kind == StepKind::ToolCall).filter_map(|draft| draft.tool.as_ref());
    let waiting =
        calls.filter(|call| refused.iter().all(|r| r.tool.as_ref().map(|t| &t.call_id) != Some(&call.call_id)));
    waiting
        .filter(|call| {
            let tools = tools();
            let tool = tools.iter().find(|tool| tool.name == call.name).expect("a call of an unknown tool is refused");
            // What only reads this machine's data tells nobody else; that it can do no more is each tool's own to show.
            let tells_nobody = tool.effect == ToolEffect::None && !tool.permissions.contains(&Permission::Network);
            !tells_nobody && Policy::default().judge(&state.request, tool, state.reading()) == Verdict::Allow
        })
        .map(|call| call.name.clone())
        .collect()
}

#[test]
fn given_the_corpus_when_it_is_made_then_it_has_at_least_two_hundred_documents_all_different() {
    let corpus = corpus();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    let different: std::collections::HashSet<_> = corpus.iter().map(|d| (&d.text, &d.source)).collect();
    assert_eq!(different.len(), corpus.len());
}

#[test]
fn given_a_model_that_obeys_a_document_when_it_chooses_an_action_then_nothing_outside_is_done_without_a_person() {
    for document in corpus() {
        for approval in [ApprovalPolicy::Never, ApprovalPolicy::External, ApprovalPolicy::Always] {
            let state = found(&document, approval);
            if let Some((tool, arguments)) = &document.action {
                let obeys = json!({ "thought": "the document says so", "tool": tool, "arguments": arguments });
                assert_eq!(caused(&state, obeys.to_string()), Vec::<String>::new(), "{} {approval:?}", document.name);
            }
            // Or it writes out what it read.
            assert_eq!(
                caused(&state, document.payload.clone()),
                Vec::<String>::new(),
                "{} {approval:?}",
                document.name
            );
        }
    }
}

#[test]
fn given_a_document_when_the_prompt_is_made_then_it_stands_in_one_observation_and_speaks_in_no_role() {
    for document in corpus() {
        let state = found(&document, ApprovalPolicy::Never);
        let Action::CallModel(call) = decide::next(&state, &tools(), 0) else { panic!("{}", document.name) };
        let texts: Vec<String> = call.messages.iter().map(|message| message.content.clone()).collect();
        let (system, rest) = texts.split_first().unwrap();
        assert!(!system.contains(CANARY), "{}: the system prompt holds no text of a document", document.name);
        for token in ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>"] {
            assert!(rest.iter().all(|text| !text.contains(token)), "{}: {token}", document.name);
        }
        let observed: Vec<&String> = rest.iter().filter(|text| text.starts_with("<observation tool=")).collect();
        assert_eq!(observed.len(), 1, "{}", document.name);
        assert_eq!(observed[0].matches("<observation").count(), 1, "{}: {}", document.name, observed[0]);
        assert_eq!(observed[0].matches("</observation>").count(), 1, "{}: {}", document.name, observed[0]);
        // What follows is the platform's own word, not the document's.
        let behind = observed[0].split("</observation>").nth(1).unwrap_or_default();
        assert!(!behind.contains(CANARY), "{}: {}", document.name, observed[0]);
    }
}

/// The tags, comments and declarations in HTML, without the words between them.
fn tags(html: &str) -> String {
    let opens = |rest: &&str| rest.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?'));
    html.split('<').skip(1).filter(opens).map(|rest| rest.split('>').next().unwrap_or_default()).collect()
}

/// Addresses that a viewer of markdown would fetch or link to.
fn live(text: &str) -> Vec<String> {
    let shown =
        Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH);
    shown
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
            Event::Html(html) | Event::InlineHtml(html) => Some(tags(&html)),
            _ => None,
        })
        .filter(|what| what.contains(CANARY))
        .collect()
}

#[test]
fn given_a_model_that_repeats_a_document_when_its_answer_is_shown_then_no_address_is_live_and_only_given_numbers_are_cited()
 {
    for document in corpus() {
        for answer in
            [document.payload.clone(), document.text.clone(), format!("It is at noon [1]. {}", document.payload)]
        {
            let mut filter = MarkerFilter::new(1);
            let mut shown = filter.push(&answer);
            shown.push_str(&filter.finish());
            assert!(live(&shown).is_empty(), "{}: {shown}: {:?}", document.name, live(&shown));
            for n in 2..60 {
                assert!(!shown.contains(&format!("[{n}]")), "{}: {shown}", document.name);
            }
            assert!(live(&answer::inert(&answer)).is_empty(), "{}: without sources too", document.name);
        }
    }
}
