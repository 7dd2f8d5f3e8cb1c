use serde_json::json;

use super::*;

fn request(approval: ApprovalPolicy) -> RunRequest {
    RunRequest { task: "do it".into(), agent: Some("react".into()), approval, ..RunRequest::default() }
}

fn tool(name: &str, effect: ToolEffect) -> ToolManifest {
    ToolManifest::builtin(name, "", json!({ "type": "object" }), effect)
}

/// Nothing but the request, or words from outside too.
fn read(untrusted: bool) -> Reading {
    if untrusted { Reading::Outside } else { Reading::Request }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask { .. } => "ask",
        Verdict::Deny { .. } => "deny",
    }
}

#[test]
fn given_no_rules_when_calls_are_judged_then_mode_effect_and_context_decide() {
    use ApprovalPolicy::{Always, External, Never, Unknown};
    for (approval, effect, untrusted, expected) in [
        (Never, ToolEffect::None, false, "allow"),
        (Never, ToolEffect::None, true, "allow"),
        (Never, ToolEffect::Idempotent, true, "allow"),
        (Never, ToolEffect::External, false, "allow"),
        (Never, ToolEffect::External, true, "ask"),
        (Never, ToolEffect::Unknown, true, "ask"),
        (External, ToolEffect::None, true, "allow"),
        (External, ToolEffect::External, false, "ask"),
        (External, ToolEffect::External, true, "ask"),
        (External, ToolEffect::Unknown, false, "ask"),
        (Always, ToolEffect::None, false, "ask"),
        (Always, ToolEffect::External, true, "ask"),
        (Unknown, ToolEffect::None, false, "ask"),
    ] {
        let verdict = Policy::default().judge(&request(approval), &tool("t", effect), read(untrusted));
        assert_eq!(word(&verdict), expected, "{approval:?} {effect:?} untrusted: {untrusted}");
    }
}

#[test]
fn given_rules_when_calls_are_judged_then_the_stricter_counts_and_no_rule_lets_untrusted_text_act() {
    let policy = Policy::parse(
        r#"
        [[rule]]
        decision = "allow"
        tool = "ticket_*"
        [[rule]]
        decision = "deny"
        tool = "ticket_delete"
        reason = "tickets are kept"
        [[rule]]
        decision = "ask"
        tool = "clock"
        namespace = "team-?"
        [[rule]]
        decision = "deny"
        tool = "*"
        agent = "critic"
        "#,
    )
    .unwrap();
    let in_team = |mut request: RunRequest| {
        request.namespace = "team-a".parse().unwrap();
        request
    };
    let as_critic = |mut request: RunRequest| {
        request.agent = Some("critic".into());
        request
    };
    let external = request(ApprovalPolicy::External);
    let new = tool("ticket_new", ToolEffect::External);
    let clock = tool("clock", ToolEffect::None);
    for (request, tool, untrusted, expected) in [
        (&external, &new, false, "allow"),
        (&external, &new, true, "ask"),
        (&request(ApprovalPolicy::Always), &new, false, "ask"),
        (&external, &tool("ticket_delete", ToolEffect::External), false, "deny"),
        (&external, &clock, false, "allow"),
        (&in_team(external.clone()), &clock, false, "ask"),
        (&as_critic(external.clone()), &clock, false, "deny"),
        (&external, &tool("other", ToolEffect::External), false, "ask"),
    ] {
        let verdict = policy.judge(request, tool, read(untrusted));
        assert_eq!(word(&verdict), expected, "{} {} untrusted: {untrusted}", request.namespace, tool.name);
    }
    let denied = policy.judge(&external, &tool("ticket_delete", ToolEffect::External), read(false));
    assert_eq!(denied, Verdict::Deny { reason: "tickets are kept".into() });
}

#[test]
fn given_a_tool_of_another_namespace_when_it_is_judged_then_it_is_denied_whatever_the_rules_say() {
    let policy = Policy::parse("[[rule]]\ndecision = \"allow\"").unwrap();
    let mut foreign = tool("t", ToolEffect::None);
    foreign.namespace = Some("team-b".parse().unwrap());
    assert_eq!(word(&policy.judge(&request(ApprovalPolicy::Never), &foreign, read(false))), "deny");
}

#[test]
fn given_a_users_tool_that_may_be_repeated_when_the_context_is_untrusted_then_it_asks_all_the_same() {
    let mut put = tool("put", ToolEffect::Idempotent);
    put.source = ToolSource::Http;
    let request = request(ApprovalPolicy::External);
    assert_eq!(word(&Policy::default().judge(&request, &put, read(false))), "allow");
    assert_eq!(word(&Policy::default().judge(&request, &put, read(true))), "ask");
}

#[test]
fn given_a_tool_that_fetches_any_address_when_the_context_is_untrusted_then_it_asks_unless_a_rule_allows_it() {
    let fetch = tool("web_fetch", ToolEffect::None).needing(&[crate::tools::Permission::Network]);
    let allowing = Policy::parse("[[rule]]\ndecision = \"allow\"\ntool = \"web_fetch\"").unwrap();
    for approval in [ApprovalPolicy::Never, ApprovalPolicy::External] {
        let request = request(approval);
        assert_eq!(word(&Policy::default().judge(&request, &fetch, read(false))), "allow");
        assert_eq!(word(&Policy::default().judge(&request, &fetch, read(true))), "ask");
        assert_eq!(word(&allowing.judge(&request, &fetch, read(true))), "allow");
    }
}

#[test]
fn given_a_tool_that_writes_to_memory_when_words_from_outside_were_read_then_it_asks_unless_a_rule_allows_it() {
    let note = tool("note", ToolEffect::Idempotent).needing(&[Permission::Memory]);
    let recall = tool("memory_recall", ToolEffect::None).needing(&[Permission::Memory]);
    let allowing = Policy::parse("[[rule]]\ndecision = \"allow\"\ntool = \"note\"").unwrap();
    let request = request(ApprovalPolicy::Never);
    for (policy, tool, reading, expected) in [
        (&Policy::default(), &note, Reading::Request, "allow"),
        (&Policy::default(), &note, Reading::Conversation, "allow"),
        (&Policy::default(), &note, Reading::Outside, "ask"),
        (&allowing, &note, Reading::Outside, "allow"),
        (&Policy::default(), &recall, Reading::Outside, "allow"),
    ] {
        assert_eq!(word(&policy.judge(&request, tool, reading)), expected, "{} {reading:?}", tool.name);
    }
}

#[test]
fn given_a_rule_for_an_agent_when_the_supervisor_chose_that_agent_then_it_holds_all_the_same() {
    let policy = Policy::parse("[[rule]]\ndecision = \"deny\"\nagent = \"critic\"").unwrap();
    let unnamed = RunRequest { agent: None, ..request(ApprovalPolicy::Never) };
    for (agent, expected) in [(Some("critic"), "deny"), (Some("react"), "allow"), (None, "allow")] {
        let verdict = policy.judge_as(agent, &unnamed, &tool("t", ToolEffect::None), read(false));
        assert_eq!(word(&verdict), expected, "{agent:?}");
    }
}

#[test]
fn given_a_broken_file_when_it_is_read_then_the_error_names_the_line() {
    for (text, line) in [
        ("[[rule]]\ndecision = \"maybe\"\n", 2),
        ("[[rule]]\ntool = \"x\"\n", 1),
        ("[[rule]]\ndecision = \"ask\"\ntools = \"x\"\n", 3),
        ("[rules]\n", 1),
        ("\n\n[[rule\n", 3),
    ] {
        assert_eq!(Policy::parse(text).unwrap_err().line, line, "{text}: {:?}", Policy::parse(text));
    }
    assert_eq!(Policy::parse("").unwrap(), Policy::default());
}

#[test]
fn patterns_fit_whole_names() {
    for (pattern, text, fits) in [
        ("*", "", true),
        ("a*c", "abc", true),
        ("a*c", "abcd", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("ab", "abc", false),
        ("*a*a*a*a*b", &"a".repeat(2_000), false),
    ] {
        assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
    }
}
