//! What analyzers find and what they leave alone; what an import takes and what it refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use riverrun_projects::analyzers::{ToolRun, deterministic};
use riverrun_projects::copy::Files;
use riverrun_projects::import::{origin, unpack};
use riverrun_projects::patch::{patch, unified};
use riverrun_projects::progress::Progress;
use riverrun_projects::report::trend;
use riverrun_projects::{Finding, Report, Severity};

fn examples(kind: &str) -> Vec<(String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let files = Files::from([(name.clone(), std::fs::read(&path).unwrap().into())]);
        let leaks = deterministic(&files).findings.into_iter().filter(|one| one.tool == "leakage");
        found.push((name, leaks.map(|one| one.rule).collect()));
    }
    found
}

/// What leaks in the examples, by the numbers of their names.
const LABELS: [(std::ops::RangeInclusive<u32>, &str); 5] = [
    (1..=7, "fit-before-split"),
    (8..=9, "resample-before-split"),
    (10..=14, "test-in-training"),
    (15..=17, "target-in-features"),
    (18..=20, "shuffled-time-series"),
];

#[test]
fn given_twenty_leaks_when_they_are_analyzed_then_each_is_found_as_what_it_is() {
    let found = examples("leaky");
    let label = |name: &str| {
        let number: u32 = name.split('_').next().unwrap().parse().unwrap();
        LABELS.iter().find(|(numbers, _)| numbers.contains(&number)).unwrap().1
    };
    let wrong: Vec<_> = found.iter().filter(|(name, rules)| *rules != [label(name)]).collect();
    assert!(found.len() == 20 && wrong.is_empty(), "{wrong:?}");
}

#[test]
fn given_twenty_clean_programs_when_they_are_analyzed_then_nothing_is_said() {
    let found = examples("clean");
    let loud: Vec<_> = found.iter().filter(|(_, rules)| !rules.is_empty()).collect();
    assert!(found.len() == 20 && loud.is_empty(), "{loud:?}");
}

/// What is found in a file of that content: rule, line and column.
fn places(name: &str, content: &[u8]) -> Vec<(String, usize, usize)> {
    let files = Files::from([(name.to_owned(), content.to_vec().into())]);
    let report = Report::new(&files, deterministic(&files), 1);
    let own = report.findings.into_iter().filter(|one| matches!(one.tool.as_str(), "syntax" | "dead-code" | "secrets"));
    let mut found: Vec<(String, usize, usize)> = own.map(|one| (one.rule, one.line, one.column)).collect();
    found.sort();
    found
}

#[test]
fn given_files_with_any_ends_mark_and_encoding_when_they_are_analyzed_then_the_same_is_found_at_the_same_places() {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let python = "import os\npassword = 'hunter2hunter2'\n\n\ndef f():\n    return 1\n    print(2)\n";
    for (name, remark, text, has_returns) in [
        ("two words \u{e9} \u{540d}.py", "  # ", python, true),
        ("a.js", " // ", "import os from 'os';\nfunction f() {\n  return 1;\n  g();\n}\n", true),
        ("a.rs", " // ", "mod a;\nfn f() -> u8 {\n    return 1;\n    g();\n}\n", false),
        ("a.go", " // ", "package a\n\nfunc F() int {\n\treturn 1\n\tg()\n}\n", false),
    ] {
        let expected = places(name, text.as_bytes());
        assert!(expected.iter().any(|(rule, ..)| rule == "unreachable-code"), "{name} {expected:?}");
        let both = text.replace('\n', "\r\n");
        let first = text.replacen('\n', "\r\n", 2);
        let remarked = |word: &[u8]| {
            let (line, rest) = text.split_once('\n').unwrap();
            [line.as_bytes(), remark.as_bytes(), word, b"\n", rest.as_bytes()].concat()
        };
        let mut variants = vec![
            both.clone().into_bytes(),
            first.into_bytes(),
            text.trim_end().as_bytes().to_vec(),
            [MARK, text.as_bytes()].concat(),
            [MARK, both.trim_end().as_bytes()].concat(),
            // Latin-1, which is no UTF-8.
            remarked(b"caf\xe9"),
            remarked("caf\u{e9} \u{540d}".as_bytes()),
        ];
        if has_returns {
            variants.push(text.replace('\n', "\r").into_bytes());
            variants.push(text.replacen('\n', "\r", 1).replacen('\n', "\r\n", 1).into_bytes());
        }
        for content in variants {
            assert_eq!(places(name, &content), expected, "{name} {:?}", String::from_utf8_lossy(&content));
        }
    }
    let found = places("a.py", python.as_bytes());
    for (rule, line) in [("unused-import", 1), ("literal-password", 2), ("unreachable-code", 7)] {
        assert!(found.iter().any(|one| one.0 == rule && one.1 == line), "{rule} {found:?}");
    }
}

#[test]
fn given_whatever_our_own_analyzers_find_when_it_is_reported_then_each_finding_says_where_it_is_and_what_to_do() {
    let body = "    a = 1\n    b = 2\n    c = 3\n    d = 4\n    e = 5\n    return a + b + c + d + e\n";
    let ways: String = (0..20).map(|number| format!("    if x > {number}:\n        x -= 1\n")).collect();
    let lines: String = (0..110).map(|number| format!("    print({number})\n")).collect();
    let files: Files = [
        (
            "a.py",
            format!("import b\nimport json\nimport left_pad\n\n\ndef f():\n{body}\n\ndef ways(x):\n{ways}\n\nb.g()\n"),
        ),
        (
            "b.py",
            format!("import a\n\n\ndef g():\n{body}\n\ndef long():\n{lines}    return 1\n    print(1)\n\na.f()\n"),
        ),
        ("broken.py", "def f(:\n".to_owned()),
        (
            "leaks.py",
            "X = StandardScaler().fit_transform(X)\nparts = train_test_split(X, y)\nmodel.fit(X_test, y_test)\n"
                .to_owned(),
        ),
        ("k.py", "password = 'hunter2hunter2'\n".to_owned()),
        ("requirements.txt", "flask\n".to_owned()),
        ("package.json", "{\"license\": \"Nonsense\", \"dependencies\": {\"x\": \"*\"}}".to_owned()),
        ("c.js", "import y from 'y';\nfunction f() { return 1; f(); }\n".to_owned()),
    ]
    .into_iter()
    .map(|(path, text)| (path.to_owned(), text.into()))
    .collect();
    let report = Report::new(&files, deterministic(&files), 1);
    let incomplete: Vec<_> = report
        .findings
        .iter()
        .filter(|one| {
            let words = [&one.rule, &one.message, &one.file];
            let has_fix = one.fix.as_ref().is_some_and(|fix| !fix.is_empty());
            words.iter().any(|word| word.is_empty()) || one.line == 0 || one.column == 0 || !has_fix
        })
        .collect();
    assert!(incomplete.is_empty(), "{incomplete:?}");
    let tools: BTreeSet<&str> = report.findings.iter().map(|one| one.tool.as_str()).collect();
    let all = ["syntax", "dead-code", "dependencies", "leakage", "imports", "licences", "secrets"];
    assert_eq!(tools, BTreeSet::from(all), "{:?}", report.findings);
    let result = &report.sarif()["runs"][0]["results"][0]["properties"];
    assert!(result["fix"].as_str().is_some_and(|fix| !fix.is_empty()) && result["severity"].is_string(), "{result}");
}

#[test]
fn given_a_secret_when_it_is_found_then_no_report_quotes_it() {
    let key = format!("AKIA{}", "A1".repeat(8));
    let files = Files::from([("a.py".to_owned(), format!("k = '{key}'\n").into())]);
    let report = Report::new(&files, deterministic(&files), 1);
    assert!(report.findings.iter().any(|one| one.severity == Severity::Critical));
    assert!(!serde_json::to_string(&report).unwrap().contains(&key));
    assert!(!report.sarif().to_string().contains(&key));
}

#[test]
fn given_a_tool_that_quotes_a_secret_when_a_report_is_made_then_the_secret_is_masked_in_every_form_of_it() {
    let files = Files::from([("a.ts".to_owned(), "const password = 'hunter2hunter2';\n".into())]);
    let mut analyzed = deterministic(&files);
    let message = "Type '\"hunter2hunter2\"' is not assignable to type 'number'.";
    let rule = ("tsc", "TS2322", Severity::High);
    analyzed.findings.push(Finding::new(rule, ("a.ts", 1, 1), message, "not hunter2hunter2"));
    analyzed.tools.push(ToolRun::ran("tsc", 1));
    let report = Report::new(&files, analyzed, 1);
    let found = report.findings.iter().find(|one| one.tool == "tsc").unwrap();
    assert_eq!(found.message, "Type '\"[secret]\"' is not assignable to type 'number'.");
    for shown in [serde_json::to_string(&report).unwrap(), report.sarif().to_string()] {
        assert!(!shown.contains("hunter2hunter2") && shown.contains("[secret]"), "{shown}");
    }
}

#[test]
fn given_addresses_that_start_programs_when_they_are_looked_at_then_each_is_refused() {
    for source in [
        "ext::sh -c touch% /tmp/p",
        "--upload-pack=touch /tmp/p",
        "-u./x.git",
        "file:///etc/passwd",
        "git@-oProxyCommand=x:y",
        "http://example.org/x.git",
        "ftp://h/x.git",
        "https://user@example.org/x.git",
    ] {
        assert!(origin(source).is_err(), "{source} was taken");
    }
}

#[test]
fn given_what_is_no_archive_when_it_is_unpacked_then_it_is_refused() {
    for bytes in [&b""[..], b"PK", b"not a zip at all"] {
        assert!(unpack("a.zip", bytes, &Progress::default()).is_err());
    }
}

#[test]
fn given_an_archive_with_very_many_members_when_it_is_unpacked_then_it_is_refused_before_its_list_is_read() {
    let entry = [&b"PK\x01\x02"[..], &[0; 42]].concat();
    let failure = unpack("a.zip", &entry.repeat(100_001), &Progress::default()).unwrap_err().failure();
    assert!(failure.code == "limit_exceeded" && failure.message.contains("100000 members"), "{failure:?}");
    let failure = unpack("a.zip", &entry.repeat(10), &Progress::default()).unwrap_err().failure();
    assert_ne!(failure.code, "limit_exceeded", "it is only no archive");
}

#[test]
fn given_changes_when_a_patch_is_made_then_only_their_lines_are_in_it() {
    let before: Files = BTreeMap::from([("a b.py".to_owned(), "x = 1\r\ny = 2".into()), ("c".to_owned(), "c".into())]);
    let mut after = before.clone();
    after.insert("a b.py".to_owned(), "x = 1\r\ny = 3".into());
    let text = String::from_utf8(patch(&before, &after)).unwrap();
    assert_eq!(
        text,
        "--- a/a b.py\t\n+++ b/a b.py\t\n@@ -1,2 +1,2 @@\n x = 1\r\n-y = 2\n\\ No newline at end of file\n+y = 3\n\\ No newline at end of file\n"
    );
    assert_eq!(unified("a", "x", "x"), "");
}

#[test]
fn given_manifests_that_do_not_parse_when_a_project_is_analyzed_then_they_are_all_that_is_told_of_it() {
    for (path, text) in [
        ("package.json", "{\"name\": \"m\", \"dependencies\": {\"lodash\": \"*\"}"),
        ("pyproject.toml", "[project"),
        ("Cargo.toml", "[package"),
    ] {
        let files = Files::from([(path.to_owned(), text.into())]);
        let found = deterministic(&files).findings;
        let rules: Vec<(&str, &str, Severity)> =
            found.iter().map(|one| (one.tool.as_str(), one.rule.as_str(), one.severity)).collect();
        assert_eq!(rules, [("dependencies", "manifest-does-not-parse", Severity::High)], "{path}");
    }
}

#[test]
fn given_imports_when_they_are_compared_with_what_is_declared_then_only_what_is_missing_is_found() {
    let manifest = "[project]\ndependencies = [\"requests>=2\", \"pyyaml==6\"]\n[project.optional-dependencies]\nx = [\"numpy\"]\n";
    let main = "import os, requests\nimport yaml.nodes\nimport numpy\nimport mine.part\nfrom cv2 import x\ntry:\n    import ujson\nexcept ImportError:\n    ujson = None\n";
    let mut files = Files::from([
        ("pyproject.toml".to_owned(), manifest.into()),
        ("main.py".to_owned(), main.into()),
        ("mine/part.py".to_owned(), "".into()),
    ]);
    let undeclared = |files: &Files| -> Vec<(String, usize)> {
        let found = deterministic(files).findings.into_iter().filter(|one| one.rule == "undeclared-dependency");
        found.map(|one| (one.file, one.line)).collect()
    };
    assert_eq!(undeclared(&files), [("main.py".to_owned(), 5)]);
    // What is put together when it runs is not known.
    files.insert("setup.py".to_owned(), "setup(install_requires=read())".into());
    assert!(undeclared(&files).is_empty());
    // A literal is, and what builds the project is no package of it.
    files.insert(
        "setup.py".to_owned(),
        "import setuptools\nsetuptools.setup(install_requires=['opencv-python>=4'])".into(),
    );
    assert!(undeclared(&files).is_empty());
    files.insert("setup.py".to_owned(), "import setuptools\nsetuptools.setup(install_requires=['attrs>=4'])".into());
    assert_eq!(undeclared(&files), [("main.py".to_owned(), 5)]);
}

#[test]
fn given_a_project_of_each_packaging_tool_when_it_is_analyzed_then_unpinned_unused_and_undeclared_packages_are_found() {
    let main = "import requests\nimport cv2\n";
    for (path, text, unpinned, unused) in [
        ("pyproject.toml", "[tool.poetry.dependencies]\nrequests = \"*\"\nflask = \"^1\"\n", 2, 3),
        ("Pipfile", "[packages]\nrequests = \"*\"\nflask = \"==1.0\"\n", 2, 3),
        ("setup.cfg", "[options]\ninstall_requires =\n  requests\n  flask>=1\n", 3, 4),
        (
            "setup.py",
            "from setuptools import setup\nsetup(install_requires=[\n  'requests',\n  'flask>=1',\n])\n",
            3,
            4,
        ),
        ("environment.yml", "dependencies:\n- requests\n- pip:\n  - flask>=1\n", 2, 4),
    ] {
        let files = Files::from([("main.py".to_owned(), main.into()), (path.to_owned(), text.into())]);
        let found = deterministic(&files).findings.into_iter().filter(|one| one.tool == "dependencies");
        let mut found: Vec<(String, String, usize)> = found.map(|one| (one.rule, one.file, one.line)).collect();
        found.sort();
        let expected = [
            ("undeclared-dependency", "main.py", 2),
            ("unpinned", path, unpinned),
            ("unused-dependency", path, unused),
        ];
        assert_eq!(found, expected.map(|(rule, file, line)| (rule.to_owned(), file.to_owned(), line)), "{path}");
    }
}

#[test]
fn given_code_whose_lines_moved_when_two_reports_are_compared_then_only_what_changed_is_new_or_gone() {
    let report = |text: &str| {
        let files = Files::from([("a.py".to_owned(), text.to_owned().into())]);
        Report::new(&files, deterministic(&files), 1)
    };
    let body = "    a = 1\n    b = 2\n    c = 3\n    d = 4\n    e = 5\n    return a + b + c + d + e\n";
    let twins = format!("def f():\n{body}def g():\n{body}print(f(), g())\n");
    let secrets = "password = 'hunter2hunter2'\nold_password = 'hunter3hunter3'\n";
    let before = report(&format!("import os\n{secrets}{twins}"));
    let moved = report(&format!("# one\n# more\n\nimport os\n{secrets}{twins}"));
    let rules: Vec<&str> = before.findings.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(
        rules,
        ["literal-password", "literal-password", "unused-import", "duplicate-code"],
        "{:?}",
        before.findings
    );
    let same = trend(&before, &moved);
    assert_eq!((same.new, same.fixed, same.unchanged), (vec![], vec![], 4));
    let ids: BTreeSet<&str> = before.findings.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids.len(), 4, "each finding has an id of its own");

    let fewer = report(&format!("# one\npassword = 'hunter2hunter2'\n{twins}import re\n"));
    let change = trend(&moved, &fewer);
    let rules = |findings: &[Finding]| findings.iter().map(|one| one.rule.clone()).collect::<Vec<String>>();
    assert_eq!((rules(&change.new), change.unchanged), (vec!["unused-import".to_owned()], 2));
    assert_eq!(rules(&change.fixed), ["literal-password", "unused-import"]);
}
