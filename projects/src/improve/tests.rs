use riverrun_models::Usage;

use super::*;
use crate::finding::Severity;

fn checked(before: &str, answer: &str) -> Result<String, String> {
    checked_in("a.py", before, answer)
}

fn checked_in(file: &str, before: &str, answer: &str) -> Result<String, String> {
    let task = Task { file: file.into(), ..Task::default() };
    let text = FileText::read(before.as_bytes()).unwrap();
    check(&task, &text, before.as_bytes(), answer).map(|(after, _)| String::from_utf8(after).unwrap())
}

#[test]
fn given_a_file_with_secrets_when_a_model_is_asked_then_it_sees_none_and_they_are_back_in_the_rewrite_and_not_in_the_diff()
 {
    let content = b"import os\r\npassword = 'hunter2hunter2'\r\nx = 1\r\n";
    let instruction = Some("keep hunter2hunter2".to_owned());
    let task = Task { file: "a.py".into(), instruction, ..Task::default() };
    let text = FileText::read(content).unwrap();
    let finding = Finding::new(("mypy", "m", Severity::Low), ("a.py", 2, 1), "'hunter2hunter2' is no number", "");
    let sent = request(&task, &text, &[finding], 0);
    assert!(sent.messages.iter().all(|message| !message.content.contains("hunter2hunter2")), "{sent:?}");
    assert!(sent.messages[1].content.contains("password = 'MASKED_SECRET_1_'"), "{sent:?}");
    assert!(sent.messages[0].content.contains("MASKED_SECRET_"), "{sent:?}");

    let (after, diff) = check(&task, &text, content, "```\npassword = 'MASKED_SECRET_1_'\nx = 1\n```").unwrap();
    assert_eq!(String::from_utf8(after).unwrap(), "password = 'hunter2hunter2'\r\nx = 1\r\n");
    assert!(diff.contains(" password = '[secret]'\r\n") && diff.contains("-import os"), "{diff}");
    let why = check(&task, &text, content, "```\npassword = 'MASKED_SECRET_7_'\n```").unwrap_err();
    assert!(why.contains("stands for a secret"), "{why}");
    let plain = request(&task, &FileText::read(b"x = 1\n").unwrap(), &[], 0);
    assert!(!plain.messages[0].content.contains("MASKED"), "nothing is masked there");
}

#[test]
fn given_a_finding_that_stands_in_another_file_when_a_model_is_asked_then_the_task_says_where() {
    let task = Task { file: "a.py".into(), ..Task::default() };
    let rule = ("syntax", "duplicate-code", Severity::Low);
    let findings = ["a.py", "b.py"].map(|file| Finding::new(rule, (file, 3, 1), "twice", ""));
    let sent = request(&task, &FileText::read(b"x = 1\n").unwrap(), &findings, 0);
    let listed = "- line 3: twice (duplicate-code)\n- b.py, line 3: twice (duplicate-code)\n";
    assert!(sent.messages[1].content.contains(listed), "{sent:?}");
}

#[test]
fn given_a_reply_that_the_context_cut_when_it_is_taken_then_it_is_no_rewrite_and_says_why() {
    let content = b"def f():\n    return 1\n";
    let task = Task { file: "a.py".into(), ..Task::default() };
    let text = FileText::read(content).unwrap();
    for (finish, expected) in [
        (FinishReason::Stop, None),
        (FinishReason::Length, Some(["after 20 tokens", "RIVERRUN_MODEL_CONTEXT_TOKENS"])),
        (FinishReason::Repetition, Some(["over and over", "--candidates"])),
    ] {
        let reply = ChatReply {
            text: "```\ndef f():\n    return 2\n```\n".into(),
            tool_calls: Vec::new(),
            usage: Usage { prompt_tokens: 40, completion_tokens: 20, ..Usage::default() },
            finish,
            model: "m".into(),
        };
        match (taken(&task, &text, content, &reply), expected) {
            (Ok(_), None) => {}
            (Err(why), Some(parts)) => assert!(parts.iter().all(|part| why.contains(part)), "{why}"),
            (done, _) => panic!("{finish:?}: {done:?}"),
        }
    }
}

#[test]
fn given_answers_when_they_are_checked_then_only_one_whole_block_that_parses_and_keeps_names_is_a_rewrite() {
    let before = "def f():\r\n    return 1\r\n";
    assert_eq!(checked(before, "```python\ndef f():\n    return 2\n```\n").unwrap(), "def f():\r\n    return 2\r\n");
    for (answer, why) in [
        ("def f(): pass", "no block"),
        ("```\ndef f(:\n```", "does not parse"),
        ("```\ndef g():\n    return 2\n```", "loses public names: f"),
        ("```\na\n```\n```\nb\n```", "fences"),
        ("```\ndef f():\n    return 2\n", "does not end"),
        ("```\ndef f():\n    return 2\nOr:\n```python\ndef f():\n    return 3\n", "does not end"),
        ("```\ndef f():\n    return 1\n```", "changed nothing"),
    ] {
        let error = checked(before, answer).unwrap_err();
        assert!(error.contains(why), "{answer}: {error}");
    }
}

#[test]
fn given_rewrites_that_lose_a_public_method_when_they_are_checked_then_they_are_refused_and_name_it_in_each_language() {
    for (file, before, gone, name) in [
        ("a.py", "class C:\n    def _n(self): pass\n    def m(self): pass\n", "    def m(self): pass\n", "C.m"),
        ("a.py", "class C:\n    limit = 1\n    def m(self): pass\n", "    limit = 1\n", "C.limit"),
        ("a.rs", "pub struct S;\nimpl S {\n    pub fn f() {}\n    fn g() {}\n}\n", "    pub fn f() {}\n", "S::f"),
        ("a.rs", "pub mod m {\n    pub fn f() {}\n    pub fn g() {}\n}\n", "    pub fn f() {}\n", "m::f"),
        ("a.js", "export class C {\n  m() {}\n  n() {}\n}\n", "  m() {}\n", "C.m"),
        ("a.ts", "export class C {\n  m(): void {}\n  n(): void {}\n}\n", "  m(): void {}\n", "C.m"),
        (
            "a.go",
            "package a\ntype T struct{}\ntype U struct{}\nfunc (t *T) M() {}\nfunc (u U) M() {}\n",
            "func (t *T) M() {}\n",
            "T.M",
        ),
    ] {
        let block = |text: &str| format!("```\n{text}```\n");
        let why = checked_in(file, before, &block(&before.replace(gone, ""))).unwrap_err();
        assert_eq!(why, format!("the rewrite loses public names: {name}"), "{file}");
    }
}

#[test]
fn given_a_file_with_blocks_of_its_own_when_it_is_rewritten_then_the_answer_is_read_by_a_longer_fence() {
    let before = "# A\n\n```sh\nls\n```\n";
    let after = before.replace("ls", "ls -l");
    let longer = |text: &str| format!("Here:\n````md\n{text}````\n");
    assert_eq!(checked_in("a.md", before, &longer(&after)).unwrap(), after);
    let shorter = format!("```\n{after}```\n");
    assert_eq!(checked_in("a.md", before, &shorter).unwrap_err(), "the answer has no block of code");
    let task = Task { file: "a.md".into(), ..Task::default() };
    let asked = request(&task, &FileText::read(before.as_bytes()).unwrap(), &[], 0).messages;
    assert!(asked[0].content.contains("between ```` lines") && asked[1].content.ends_with("```\n````"), "{asked:?}");
}

#[test]
fn given_rewrites_that_leave_no_code_when_they_are_checked_then_they_are_refused_unless_names_were_to_go() {
    for (file, before, after, why) in [
        ("a.py", "import os\nprint(1)\n", "", "the rewrite leaves no code"),
        ("a.py", "import os\nprint(1)\n", "# nothing\n\n", "the rewrite leaves no code"),
        ("a.js", "run();\n", "/* gone */\n// gone\n", "the rewrite leaves no code"),
        ("a.rs", "fn f() {}\n", "// gone\n/* gone */\n", "the rewrite leaves no code"),
        ("a.md", "# A\n", "\n\n", "the rewrite leaves nothing of the file"),
    ] {
        assert_eq!(checked_in(file, before, &format!("```\n{after}```\n")).unwrap_err(), why, "{file} {after:?}");
    }
    assert_eq!(checked("# one\n", "```\n# two\n```\n").unwrap(), "# two\n", "there was none before");
    let task = Task { file: "a.py".into(), may_remove: vec!["f".to_owned()], ..Task::default() };
    let before = b"def f(): pass\n";
    let text = FileText::read(before).unwrap();
    assert!(check(&task, &text, before, "```\n# gone\n```\n").is_ok(), "it was asked for");
}

#[test]
fn given_rewrites_of_data_that_do_not_parse_though_the_file_did_when_they_are_checked_then_they_are_refused() {
    for (file, before, after, is_taken) in [
        ("package.json", "{\"a\": \"*\"}\n", "{\"a\": \"1\"\n", false),
        ("package.json", "{\"a\": \"*\"}\n", "{\"a\": \"1\"}\n", true),
        ("pyproject.toml", "[project]\nname = \"m\"\n", "[project\nname = \"n\"\n", false),
        ("pyproject.toml", "[project]\nname = \"m\"\n", "[project]\nname = \"n\"\n", true),
        ("Pipfile", "[packages]\nflask = \"*\"\n", "[packages]\nflask = *\n", false),
        // What did not parse before need not now, such as settings with comments.
        ("tsconfig.json", "{ // all\n}\n", "{ // none\n}\n", true),
        ("a.txt", "{}\n", "{\n", true),
    ] {
        let checked = checked_in(file, before, &format!("```\n{after}```\n"));
        let why = checked.as_ref().err().map(String::as_str).unwrap_or_default();
        assert_eq!(checked.is_ok(), is_taken, "{file} {after}: {checked:?}");
        assert!(is_taken || why.starts_with("the rewrite does not parse: "), "{file} {after}: {why}");
    }
}

#[test]
fn given_files_with_any_ends_when_a_model_repeats_what_it_was_shown_then_nothing_changed() {
    let task = Task { file: "a.py".into(), ..Task::default() };
    for content in
        ["x = 1\n", "x = 1", "x = 1\r\ny = 2\r\n", "\u{feff}x = 1\n\n\n", "x = 1\r\ny = 2\nz = 3", "x = 1\ry = 2\r"]
    {
        let before = FileText::read(content.as_bytes()).unwrap();
        let shown = request(&task, &before, &[], 0).messages.pop().unwrap().content;
        let answer = &shown[shown.find("```").unwrap()..];
        let why = check(&task, &before, content.as_bytes(), answer).unwrap_err();
        assert_eq!(why, "the model changed nothing", "{content:?}");
    }
}

#[test]
fn given_rewrites_that_lose_private_members_or_a_whole_class_when_they_are_checked_then_only_what_others_use_is_named()
{
    let before = "class C:\n    def m(self): pass\n    def _n(self): pass\n\nclass D: pass\n";
    let fewer = "class C:\n    def m(self): pass\n\nclass D: pass\n";
    assert_eq!(checked(before, &format!("```\n{fewer}```\n")).unwrap(), fewer);
    let why = checked(before, "```\nclass D: pass\n```\n").unwrap_err();
    assert_eq!(why, "the rewrite loses public names: C");
}

#[test]
fn given_names_that_may_go_when_a_rewrite_is_checked_then_they_may_with_all_they_hold_and_no_other_may() {
    let before = "class C:\n    def m(self): pass\n    def n(self): pass\n\ndef f(): pass\n\ndef g(): pass\n";
    let class = "class C:\n    def m(self): pass\n    def n(self): pass\n\n";
    let fewer = class.replace("    def m(self): pass\n", "");
    for (may, after, lost) in [
        (vec!["f"], format!("{class}def g(): pass\n"), None),
        (vec!["f"], class.to_owned(), Some("g")),
        (vec!["C"], "def f(): pass\n\ndef g(): pass\n".to_owned(), None),
        (vec!["C.m"], format!("{fewer}def f(): pass\n\ndef g(): pass\n"), None),
        (vec!["C.m"], "def f(): pass\n\ndef g(): pass\n".to_owned(), Some("C")),
        // What stays keeps its members, unless they were named.
        (vec!["C"], format!("{fewer}def f(): pass\n\ndef g(): pass\n"), Some("C.m")),
    ] {
        let may_remove = may.iter().map(|name| (*name).to_owned()).collect();
        let task = Task { file: "a.py".into(), may_remove, ..Task::default() };
        let text = FileText::read(before.as_bytes()).unwrap();
        let taken = check(&task, &text, before.as_bytes(), &format!("```\n{after}```\n"));
        let why = lost.map(|name| format!("the rewrite loses public names: {name}"));
        assert_eq!(taken.err(), why, "{may:?} {after}");
        let asked = request(&task, &text, &[], 0).messages;
        assert!(asked[0].content.contains("those of methods too, but for those"), "{asked:?}");
        assert!(asked[1].content.contains(&format!("\nPublic names that may go: {}\n", may[0])), "{asked:?}");
    }
}

#[test]
fn given_names_that_a_file_does_not_offer_when_they_are_to_go_then_they_are_refused_by_name() {
    let content = b"class C:\n    def m(self): pass\n\ndef _f(): pass\n";
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    check_names("a.py", content, &[]).unwrap();
    check_names("a.py", content, &names(&["C", "C.m"])).unwrap();
    for (file, asked, shown, hint) in [
        ("a.py", vec!["C", "D"], "a.py has no public name \"D\"", "one of C, C.m"),
        ("a.py", vec!["_f"], "a.py has no public name \"_f\"", "one of C, C.m"),
        ("a.md", vec!["C"], "a.md has no public name \"C\"", "leave may_remove out"),
    ] {
        let failure = check_names(file, content, &names(&asked)).unwrap_err().failure();
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("name_not_found", shown));
        assert_eq!(failure.hint.as_deref(), Some(hint));
    }
}
