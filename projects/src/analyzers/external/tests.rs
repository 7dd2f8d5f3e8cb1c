//! Which tools are chosen, how they are called, and how their answers are read.

use super::*;

fn tool(name: &str) -> &'static Tool {
    TOOLS.iter().find(|tool| tool.name == name).unwrap()
}

fn finished(code: i32, stdout: &str, stderr: &str) -> Finished {
    Finished { code: Some(code), signal: None, stdout: stdout.into(), stderr: stderr.into() }
}

#[test]
fn given_tools_of_one_job_when_they_are_chosen_then_the_first_that_is_there_runs_and_none_is_said_once() {
    let python = BTreeSet::from([Language::Python]);
    let names = |rank: &dyn Fn(&Tool) -> Option<u8>| -> Vec<&str> {
        choose(&python, rank).iter().map(|tool| tool.name).collect()
    };
    assert_eq!(names(&|_| Some(1)), ["ruff", "mypy"]);
    assert_eq!(names(&|_| None), ["ruff", "mypy"]);
    assert_eq!(names(&|tool| (tool.name == "ty").then_some(1)), ["ruff", "ty"]);
    // One that was installed on request goes before one of the `PATH`.
    assert_eq!(names(&|tool| Some(u8::from(tool.name != "pyright"))), ["ruff", "pyright"]);
    assert!(choose(&BTreeSet::new(), |_| Some(0)).is_empty());
}

#[test]
fn given_a_tool_that_is_not_allowed_when_it_is_planned_then_it_is_skipped_and_said() {
    let files = Files::new();
    let around = Surroundings { sandbox: None, programs: &Programs::named([]), tools: None };
    for tool in TOOLS {
        let Plan::Tell(run) = plan(tool, &files, &around) else { panic!("{} runs", tool.name) };
        assert_eq!((run.status.as_str(), run.name.as_str()), ("skipped", tool.name));
        assert!(run.detail.is_some() && run.fix.unwrap().contains("RIVERRUN_PROJECT_PROGRAMS"));
    }
    assert!(!Programs::default().allows("cargo-clippy"), "it executes build scripts");
}

#[test]
fn given_answers_that_are_none_when_they_are_read_then_the_tool_failed_and_is_not_clean() {
    for tool in TOOLS {
        for (code, stdout, stderr) in
            [(70, "", "out of memory"), (101, "", "broken"), (1, "\u{1b}[1mno such option", "")]
        {
            let (run, found) = understood(tool, &finished(code, stdout, stderr), "/tmp/x");
            assert_eq!((run.status.as_str(), found.len()), ("failed", 0), "{} {code} {stdout}", tool.name);
        }
    }
}

#[test]
fn given_modules_of_one_name_when_mypy_breaks_off_then_it_is_called_once_more_and_otherwise_not() {
    let (mypy, said) = (tool("mypy"), "a/setup.py: error: Duplicate module named \"setup\" (also at \"b/setup.py\")\n");
    let again = mypy.again.as_ref().unwrap();
    assert!(breaks_off(mypy, again, &finished(2, said, "")) && breaks_off(mypy, again, &finished(2, "", said)));
    assert!(!breaks_off(mypy, again, &finished(1, said, "")), "it is an answer");
    assert!(!breaks_off(mypy, again, &finished(2, "", "out of memory")));
}

#[test]
fn given_a_file_that_does_not_parse_when_mypy_ends_at_it_then_the_report_names_its_place_and_the_fix() {
    let said = "src/b.py:1:13: error: Expected a parameter  [syntax]\nsrc/b.py:2:2: error: Unexpected EOF  [syntax]\nFound 2 errors in 1 file (errors prevented further checking)\n";
    let (run, found) = understood(tool("mypy"), &finished(2, said, ""), "/tmp/x");
    assert_eq!((run.status.as_str(), found.len()), ("failed", 0), "the other files were not looked at");
    let detail = run.detail.unwrap();
    assert!(detail.contains("src/b.py:1:13: error: Expected a parameter [syntax] src/b.py:2:2: error"), "{detail}");
    assert!(run.fix.unwrap().starts_with("correct the syntax of the files that it names"));
    let (run, _) = understood(tool("mypy"), &finished(2, "usage: mypy\n", ""), "/tmp/x");
    assert_eq!(run.fix.as_deref(), Some("run it by hand to see why"));
}

#[test]
fn given_packages_that_staticcheck_can_not_load_when_it_is_read_then_it_failed_and_is_not_clean() {
    let broken = r#"{"code":"compile","severity":"error","location":{"file":"e.go","line":1,"column":1},"end":{"file":"","line":0,"column":0},"message":"could not import x"}"#;
    let (run, found) = understood(tool("staticcheck"), &finished(1, broken, ""), "/tmp/x");
    assert_eq!((run.status.as_str(), found.len()), ("failed", 0));
    assert_eq!(understood(tool("staticcheck"), &finished(0, "", ""), "/tmp/x").0.status, "ran");
}

#[test]
fn given_a_tool_of_the_folder_of_our_own_when_it_is_located_then_it_goes_before_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("go-vet");
    std::fs::create_dir(&own).unwrap();
    assert!(located(tool("go-vet"), Some(folder.path())).is_none_or(|found| !found.is_private));
    let ruff = folder.path().join("ruff/site/bin/ruff");
    std::fs::create_dir_all(ruff.parent().unwrap()).unwrap();
    std::fs::write(&ruff, "").unwrap();
    let manifest = r#"{"version":"1","starter":"site/bin/ruff","interpreter":null,"python":false}"#;
    std::fs::write(folder.path().join("ruff/installed.json"), manifest).unwrap();
    let found = located(tool("ruff"), Some(folder.path())).unwrap();
    assert!(found.is_private && found.program == ruff && found.read.contains(&folder.path().join("ruff")));
    assert!(found.environment["PATH"].starts_with(&*ruff.parent().unwrap().display().to_string()));
    assert!(located(tool("ruff"), None).is_none_or(|found| !found.is_private));
}

#[test]
fn given_a_tool_that_needs_settings_of_ours_when_it_is_located_then_only_the_folder_of_our_own_will_do() {
    let (folder, linter) = (tempfile::tempdir().unwrap(), tool("typescript-eslint"));
    let own = folder.path().join("typescript-eslint");
    let starter = own.join("node_modules/eslint/bin/eslint.js");
    std::fs::create_dir_all(starter.parent().unwrap()).unwrap();
    std::fs::write(&starter, "").unwrap();
    let manifest =
        r#"{"version":"1","starter":"node_modules/eslint/bin/eslint.js","interpreter":"/bin/sh","python":false}"#;
    std::fs::write(own.join("installed.json"), manifest).unwrap();
    assert!(located(linter, Some(folder.path())).is_none(), "without its settings it is not whole");
    let files = Files::from([("a.ts".to_owned(), "let x = 1;\n".into())]);
    let around = Surroundings { sandbox: None, programs: &Programs::default(), tools: Some(folder.path()) };
    let Plan::Tell(run) = plan(linter, &files, &around) else { panic!("it runs") };
    let told = (run.status.as_str(), run.detail.as_deref(), run.fix.as_deref());
    let fix = "riverrun project tools install typescript-eslint";
    assert_eq!(told, ("missing", Some("typescript-eslint is not installed"), Some(fix)));

    let config = own.join("riverrun.eslint.config.mjs");
    std::fs::write(&config, "").unwrap();
    let found = located(linter, Some(folder.path())).unwrap();
    assert!(found.is_private && found.read.contains(&own));
    let asked = arguments(linter, &found, &[], Path::new("/tmp/x"));
    assert_eq!(asked[..3], [starter, "--config".into(), config].map(|one: PathBuf| one.display().to_string()));
    assert!(asked[3..].contains(&"--no-config-lookup".to_owned()), "settings of the project are code: {asked:?}");
}

#[test]
fn given_answers_of_each_tool_when_they_are_read_then_place_rule_and_message_are_theirs() {
    let ruff = r#"[{"code":"F401","filename":"/tmp/x/a.py","location":{"row":1,"column":8},"message":"unused","fix":{"message":"remove"}}]"#;
    let pyright = r#"{"generalDiagnostics":[{"file":"/tmp/x/a.py","severity":"error","message":"m","range":{"start":{"line":1,"character":9}},"rule":"reportCall"},
        {"file":"/tmp/x/a.py","severity":"error","message":"m","range":{"start":{"line":1,"character":9}},"rule":"reportMissingImports"}]}"#;
    let eslint = r#"[{"filePath":"/tmp/x/a.js","messages":[{"ruleId":"no-empty","severity":2,"message":"Empty.","line":2,"column":3},{"ruleId":null,"fatal":true,"severity":2,"message":"p","line":1,"column":1}]}]"#;
    let typescript_eslint = r#"[{"filePath":"/tmp/x/a.ts","messages":[{"ruleId":"@typescript-eslint/no-explicit-any","severity":2,"message":"Unexpected any.","line":1,"column":10},
        {"ruleId":"react-hooks/exhaustive-deps","severity":2,"message":"Definition for rule 'react-hooks/exhaustive-deps' was not found.","line":2,"column":1}]}]"#;
    let tsc = "src/a.ts(3,7): error TS2322: Type 'string' is not assignable.\nsrc/a.ts(1,1): error TS2307: Cannot find module 'y'.\n";
    let vet = "{\"m\":{\"printf\":[{\"posn\":\"/tmp/x/d.go:5:24\",\"message\":\"wrong type\"}]}}\n{\"n\":{}}\n";
    let staticcheck = r#"{"code":"SA5009","severity":"error","location":{"file":"/tmp/x/d.go","line":8,"column":13},"end":{"file":"/tmp/x/d.go","line":8,"column":17},"message":"Printf format %d has arg #1 of wrong type string"}"#;
    let clippy = r#"{"reason":"compiler-artifact"}
{"reason":"compiler-message","message":{"level":"warning","message":"needless","code":{"code":"clippy::needless_return"},"spans":[{"is_primary":true,"file_name":"src/lib.rs","line_start":4,"column_start":5}],"children":[]}}
{"reason":"build-finished","success":true}"#;
    for (name, code, stdout, rule, place) in [
        ("ruff", 0, ruff, "F401", ("a.py", 1, 8)),
        ("mypy", 1, "a.py:2:10: error: Bad  [assignment]\n", "assignment", ("a.py", 2, 10)),
        ("pyright", 1, pyright, "reportCall", ("a.py", 2, 10)),
        (
            "ty",
            0,
            "a.py:2:10: error[invalid-assignment] Bad\nFound 1 diagnostic\n",
            "invalid-assignment",
            ("a.py", 2, 10),
        ),
        ("eslint", 1, eslint, "no-empty", ("a.js", 2, 3)),
        ("typescript-eslint", 1, typescript_eslint, "@typescript-eslint/no-explicit-any", ("a.ts", 1, 10)),
        ("tsc", 1, tsc, "TS2322", ("src/a.ts", 3, 7)),
        ("go-vet", 0, vet, "printf", ("d.go", 5, 24)),
        ("staticcheck", 1, staticcheck, "SA5009", ("d.go", 8, 13)),
        ("clippy", 0, clippy, "clippy::needless_return", ("src/lib.rs", 4, 5)),
    ] {
        let (run, found) = understood(tool(name), &finished(code, stdout, ""), "/tmp/x");
        assert_eq!((run.status.as_str(), run.findings), ("ran", 1), "{name}: {run:?}");
        let one = &found[0];
        assert_eq!((one.tool.as_str(), one.rule.as_str()), (name, rule));
        assert_eq!((one.file.as_str(), one.line, one.column), place, "{name}");
        assert!(!one.message.is_empty(), "{name}");
        let fix = one.fix.as_deref().unwrap_or_default();
        let is_told = matches!(name, "ruff" | "tsc")
            || fix.contains(rule.trim_start_matches("clippy::").trim_start_matches("@typescript-eslint/"));
        assert!(!fix.is_empty() && is_told, "{name}: {fix}");
    }
}

#[test]
fn given_a_file_that_is_looked_at_in_its_project_when_tools_are_taken_then_those_that_need_the_others_see_all() {
    let names =
        |reads: Reads| -> Vec<&str> { TOOLS.iter().filter(|tool| reads.takes(tool)).map(|tool| tool.name).collect() };
    assert_eq!(names(Reads::Files), ["ruff", "eslint", "typescript-eslint"]);
    assert_eq!(names(Reads::Around(Language::Python)), ["mypy", "pyright", "ty"]);
    assert_eq!(names(Reads::Around(Language::Tsx)), ["tsc"]);
    assert_eq!(names(Reads::Around(Language::Go)), ["go-vet", "staticcheck"]);
    assert_eq!(names(Reads::Around(Language::Rust)), ["clippy"]);
    assert_eq!(names(Reads::Projects).len(), TOOLS.len());
}

#[test]
fn given_a_project_with_settings_when_tools_look_at_it_then_only_what_builds_it_finds_them() {
    let settings =
        ["pyproject.toml", "ty.toml", "staticcheck.conf", ".gitignore", "tsconfig.json", "pyrightconfig.json"];
    let sources = ["a.py", "web/a.ts", "m.go", "go.mod", "vendor/modules.txt", "src/lib.rs"];
    let files: Files = settings.iter().chain(&sources).map(|path| ((*path).to_owned(), "x".into())).collect();
    let read = seen(&files, false);
    assert!(sources.iter().all(|path| read.contains_key(*path)) && read.contains_key(table::TSCONFIG), "{read:?}");
    assert!(settings.iter().all(|path| !read.contains_key(*path)), "{read:?}");
    assert_eq!(seen(&files, true), files, "a build has the project and nothing else");
}

#[test]
fn given_files_that_a_linter_does_not_parse_when_its_answer_is_read_then_the_report_says_how_many_it_left_out() {
    let broken = r#"{"filePath":"/tmp/x/a.js","messages":[{"ruleId":null,"fatal":true,"severity":2,"message":"Parsing error","line":1,"column":1}]}"#;
    let clean = r#"{"filePath":"/tmp/x/b.js","messages":[]}"#;
    for (answer, told) in [
        (format!("[{clean}]"), None),
        (format!("[{clean},{broken}]"), Some("1 file left out: it does not understand the syntax")),
        (format!("[{broken},{broken}]"), Some("2 files left out: it does not understand the syntax")),
    ] {
        for name in ["eslint", "typescript-eslint"] {
            let (run, found) = understood(tool(name), &finished(1, &answer, ""), "/tmp/x");
            assert_eq!((run.status.as_str(), run.detail.as_deref(), found.len()), ("ran", told, 0), "{name}");
        }
    }
}

#[test]
fn given_a_package_that_does_not_build_when_clippy_is_read_then_its_errors_are_findings_with_and_without_a_code() {
    let message = |level: &str, code: &str, line: usize| {
        format!(
            r#"{{"reason":"compiler-message","message":{{"level":"{level}","message":"m","code":{code},"spans":[{{"is_primary":true,"file_name":"src/lib.rs","line_start":{line},"column_start":1}}],"children":[]}}}}"#
        )
    };
    let summary = r#"{"reason":"compiler-message","message":{"level":"error","message":"aborting","code":null,"spans":[],"children":[]}}"#;
    let said = [
        message("error", "null", 1),
        message("error", r#"{"code":"E0425"}"#, 2),
        message("error", r#"{"code":"clippy::eq_op"}"#, 3),
        message("warning", r#"{"code":"dead_code"}"#, 4),
        message("warning", "null", 5),
        summary.to_owned(),
    ];
    let (run, found) = understood(tool("clippy"), &finished(101, &said.join("\n"), ""), "/tmp/x");
    assert_eq!((run.status.as_str(), run.findings), ("ran", 4));
    let shown: Vec<(&str, usize, bool)> =
        found.iter().map(|one| (one.rule.as_str(), one.line, is_build_error(one))).collect();
    assert_eq!(shown, [("error", 1, true), ("E0425", 2, true), ("clippy::eq_op", 3, false), ("dead_code", 4, false)]);
    assert!(found.iter().all(|one| one.fix.as_deref().is_some_and(|fix| !fix.contains("allow(error)"))), "{found:?}");
    let of_mypy = Finding::new(("mypy", "error", crate::finding::Severity::High), ("a.py", 1, 1), "m", "");
    assert!(!is_build_error(&of_mypy), "mypy goes on behind an error");
}
