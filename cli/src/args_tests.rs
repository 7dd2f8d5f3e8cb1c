//! given command lines and helps, when they are read, then each is understood and all speak alike.

use clap::CommandFactory;

use super::*;

#[test]
fn given_the_definition_when_clap_checks_it_then_it_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn given_any_command_when_its_help_is_read_then_what_every_command_has_stands_apart_from_its_own() {
    for line in ["runs ls", "ingest", "docs show"] {
        let words = std::iter::once("riverrun").chain(line.split(' ')).chain(std::iter::once("--help"));
        let help = Cli::try_parse_from(words).expect_err("a help ends the parsing").to_string();
        let (own, shared) = help.split_once(EVERYWHERE).expect("a heading of its own");
        assert!(own.contains("-n, --namespace") && shared.contains("--json") && shared.contains("--verbose"), "{help}");
        assert!(!shared.contains("--namespace"), "{help}");
    }
}

/// A command and all below it, with what it is called by.
fn all(command: clap::Command, path: &str) -> Vec<(String, clap::Command)> {
    let path = format!("{path} {}", command.get_name());
    let below: Vec<_> = command.get_subcommands().cloned().flat_map(|sub| all(sub, &path)).collect();
    std::iter::once((path, command)).chain(below).collect()
}

#[test]
fn given_every_command_when_its_help_is_read_then_it_speaks_as_the_others_do() {
    // With these a text names a thing; a command that does something says so with a verb.
    const NAMES: [&str; 8] = ["The", "A", "An", "One", "What", "Where", "Which", "Its"];
    for (path, command) in all(Cli::command(), "") {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let does = !command.has_subcommands() || !command.is_subcommand_required_set();
        let first = about.split_whitespace().next().unwrap_or_default();
        assert!(!does || !NAMES.contains(&first), "{path}: {about}");
        let options = command.get_arguments().map(|arg| {
            (format!("{path} {}", arg.get_id()), arg.get_help().map(ToString::to_string).unwrap_or_default())
        });
        for (what, text) in std::iter::once((path.clone(), about)).chain(options) {
            assert!(text.starts_with(|first: char| first.is_uppercase()), "{what} begins with no capital: {text:?}");
            assert!(!text.ends_with('.'), "{what} ends with a full stop: {text:?}");
        }
    }
}

#[test]
fn given_the_commands_of_the_specification_when_they_are_parsed_then_each_is_understood() {
    for line in [
        "diagnose",
        "serve",
        "providers",
        "models --provider ollama",
        "models",
        "models pull x",
        "chat hi --provider local --model m --no-stream -t 0.5",
        "chat hi --file a.md -f b.txt --timeout 30 --max-tokens 9",
        "models rm x",
        "models show x --provider ollama",
        "models probe x",
        "usage --by model -n team",
        "embed hi",
        "ingest ./docs -c notes --table t -t sql --query q --strategy late --embed-backend hf",
        "ingest ./docs -c notes --type text",
        "ingest ./docs -c notes --chunk-size 200 --chunk-overlap 20 --chunk-unit tokens",
        "collections reembed notes --model m --namespace team",
        "collections tune notes --qrels q --queries t --namespace team",
        "collections tune notes --off",
        "ingest https://h/ --depth 2 --include *.html --exclude old/** --sitemap",
        "ingest riverrun.documents -t kafka --follow",
        "stream consume --collection notes --idle-timeout 5",
        "stream consume -c notes --topic t.x --from-beginning --create-topic",
        "stream produce hello --topic notes",
        "collections",
        "rag eval --qrels q --queries t -c notes --config sparse --at-least 0.5 --untuned",
        "collections rm notes --namespace team",
        "collections check notes",
        "collections check notes --repair",
        "collections rebuild notes --afresh --namespace team",
        "docs ls -c notes",
        "docs ls -c notes --limit 3 --cursor c",
        "project ls --limit 3 --cursor c -n team",
        "finetune datasets --limit 3 --cursor c",
        "finetune jobs --status failed --limit 3 --cursor c",
        "finetune registry --limit 3 --cursor c",
        "docs show doc_x",
        "docs rm doc_x --namespace team",
        "blobs ls --limit 3",
        "blobs check",
        "blobs sweep --grace 1",
        "warehouse tables",
        "warehouse query select --csv",
        "search hi -c notes -k 3",
        "rag search hi -c notes -k 3 --namespace team",
        "rag ask hi -c notes --namespace team",
        "agents",
        "tools",
        "tools -n team",
        "tools ls -n team",
        "tools check",
        "tools check my.toml",
        "mcp --namespace team",
        "agent run task --agent react --steps --namespace team",
        "agent run task --json",
        "--json runs ls",
        "runs watch run_x --after 3",
        "runs ls --session s",
        "runs approve run_x 4",
        "runs approve run_x 4 --deny --note no",
        "runs resume run_x",
        "runs fork run_x --at-seq 3 --model m --agent react --task t",
        "runs tree run_x",
        "runs show run_x -n team",
        "runs approve run_x 4 -n team",
        "chains cancel chn_x -n team --reason why",
        "runs compare run_x run_y",
        "runs compare run_x",
        "agent run task --session s --session-policy interrupt --approval always",
        "chaos run",
        "chaos load --runs 10 --steps 10 --kill-every 2s --workers 2",
        "memory add user hello -n team -s ann",
        "memory chat hello -n team -s ann",
        "memory context --query dog -n team -s ann",
        "memory turns -n team -s ann --limit 3",
        "memory why epi_x -n team -s ann",
        "memory forget trn_x -n team -s ann",
        "memory forget --all -n team -s ann",
        "tokens create ann --scope read --scope run -n team --per-minute 60 --days 30",
        "tokens ls",
        "export ./archive",
        "import ./archive",
        "tokens revoke ann",
        "completion bash",
        "search x --fusion scores --mode sparse --no-rerank --wording y --wording z --rewrite --untuned --context 500",
        "rag search x --context 500 --per-document",
        "rag ask x --fusion rrf --mode dense --rerank --wording y --rewrite --untuned --context 2000",
    ] {
        let words = std::iter::once("riverrun").chain(line.split_whitespace());
        assert!(Cli::try_parse_from(words).is_ok(), "{line}");
    }
}

#[test]
fn given_numbers_that_nothing_can_be_done_with_when_they_are_parsed_then_the_option_is_named() {
    for (line, option) in [
        ("chat hi --timeout 0", "--timeout"),
        ("chat hi -t nan", "--temperature"),
        ("chat hi -t inf", "--temperature"),
        ("chat hi -t 1e99", "--temperature"),
        ("memory chat hi -t NaN", "--temperature"),
        ("agent run x -t nan", "--temperature"),
        ("finetune train --dataset d --name n --alpha nan", "--alpha"),
        ("finetune train --dataset d --name n --dropout inf", "--dropout"),
        ("finetune train --dataset d --name n --learning-rate 1e999", "--learning-rate"),
        ("runs watch run_x --after=-1", "--after"),
        ("chaos run --event 0", "--event"),
        ("chaos run --calls 0", "--calls"),
        ("chaos load --runs 0", "--runs"),
        ("chaos load --workers 0", "--workers"),
        ("rag eval --qrels q --queries q --at-least NaN", "--at-least"),
        ("rag eval --qrels q --queries q --at-least 1.5", "--at-least"),
        ("rag eval --qrels q --queries q --at-least=-1", "--at-least"),
        ("tokens create ann --scope read --per-minute 0", "--per-minute"),
        ("tokens create ann --scope read --days 0", "--days"),
        ("worker embedder --concurrency 0", "--concurrency"),
        ("worker embedder --health-port 0 --hangs-after 0", "--hangs-after"),
    ] {
        let words = std::iter::once("riverrun").chain(line.split_whitespace());
        let error = Cli::try_parse_from(words).expect_err(line).to_string();
        assert!(error.contains("invalid value") && error.contains(option), "{line}: {error}");
    }
}
