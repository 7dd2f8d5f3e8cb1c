//! What the syntax tree shows, in each language.

use riverrun_projects::analyzers::deterministic;
use riverrun_projects::copy::Files;

fn rules(path: &str, text: &str) -> Vec<(String, usize)> {
    let files = Files::from([(path.to_owned(), text.to_owned().into())]);
    let found = deterministic(&files).findings.into_iter().filter(|one| one.tool == "syntax");
    found.map(|one| (one.rule, one.line)).collect()
}

/// A function with so many branches, in each language.
fn branching(count: usize) -> [(&'static str, String); 5] {
    let ifs = |one: &str| one.repeat(count);
    [
        ("a.py", format!("def f(x):\n{}    return x\n", ifs("    if x > 1:\n        x = x + 1\n"))),
        ("a.rs", format!("fn f(mut x: u8) -> u8 {{\n{}    x\n}}\n", ifs("    if x > 1 { x += 1; }\n"))),
        ("a.js", format!("function f(x) {{\n{}  return x;\n}}\n", ifs("  if (x > 1) { x += 1; }\n"))),
        ("a.ts", format!("function f(x: number) {{\n{}  return x;\n}}\n", ifs("  if (x > 1) { x += 1; }\n"))),
        ("a.go", format!("package a\n\nfunc F(x int) int {{\n{}\treturn x\n}}\n", ifs("\tif x > 1 {\n\t\tx++\n\t}\n"))),
    ]
}

#[test]
fn given_functions_with_many_ways_when_they_are_looked_at_then_each_language_counts_them() {
    for (path, text) in branching(16) {
        let line = text.lines().position(|line| line.contains("f(") || line.contains("F(")).unwrap() + 1;
        assert_eq!(rules(path, &text), [("complexity".to_owned(), line)], "{path}");
    }
    for (path, text) in branching(14) {
        assert!(rules(path, &text).is_empty(), "{path}");
    }
}

#[test]
fn given_functions_within_each_other_when_they_are_looked_at_then_each_counts_what_is_within_it() {
    let ifs = |count: usize, indent: &str| format!("{indent}if x > 1:\n{indent}    x = x + 1\n").repeat(count);
    let text = format!(
        "def a(x):\n{}\ndef b(x):\n{}    def inner(x):\n{}        return x\n{}    return inner(x)\n\ndef c(x):\n{}",
        ifs(16, "    "),
        ifs(8, "    "),
        ifs(16, "        "),
        ifs(4, "    "),
        ifs(2, "    "),
    );
    let files = Files::from([("a.py".to_owned(), text.into())]);
    let found = deterministic(&files).findings.into_iter().filter(|one| one.rule == "complexity");
    let mut ways: Vec<String> = found.map(|one| one.message.split(" through").next().unwrap().to_owned()).collect();
    ways.sort();
    assert_eq!(ways, ["a has 17 ways", "b has 29 ways", "inner has 17 ways"]);
}

#[test]
fn given_long_functions_when_they_are_looked_at_then_each_is_found_once() {
    for (path, head, line, tail) in [
        ("a.py", "def f(x):\n", "    x = x + 1\n", "    return x\n"),
        ("a.rs", "fn f(mut x: u8) -> u8 {\n", "    x += 1;\n", "    x\n}\n"),
        ("a.js", "function f(x) {\n", "  x += 1;\n", "  return x;\n}\n"),
    ] {
        let long = format!("{head}{}{tail}", line.repeat(110));
        assert_eq!(rules(path, &long), [("long-function".to_owned(), 1)], "{path}");
        assert!(rules(path, &format!("{head}{}{tail}", line.repeat(50))).is_empty(), "{path}");
    }
}

#[test]
fn given_statements_behind_one_that_leaves_when_they_are_looked_at_then_the_first_is_found_in_each_language() {
    for (path, text, line) in [
        ("a.py", "def f():\n    return 1\n    print(2)\n    print(3)\n", 3),
        ("a.py", "def f():\n    raise E\n    # said\n    print(2)\n", 4),
        ("a.rs", "fn f() -> u8 {\n    return 1;\n    g();\n}\n", 3),
        ("a.js", "function f() {\n  throw e;\n  g();\n}\n", 3),
        ("a.ts", "function f() {\n  for (;;) {\n    break;\n    g();\n  }\n}\n", 4),
        ("a.go", "package a\n\nfunc F() int {\n\treturn 1\n\tg()\n}\n", 5),
    ] {
        assert_eq!(rules(path, text), [("unreachable-code".to_owned(), line)], "{path}\n{text}");
    }
    for (path, text) in [
        ("a.py", "def f(x):\n    if x:\n        return 1\n    print(2)\n"),
        ("a.js", "function f() {\n  return g();\n  function g() { return 1; }\n}\n"),
        ("a.rs", "fn f() -> u8 {\n    return g();\n    fn g() -> u8 { 1 }\n}\n"),
        ("a.go", "package a\n\nfunc F() int {\n\tgoto end\nend:\n\treturn 1\n}\n"),
        ("a.py", "def nothing():\n    return\n    yield\n"),
        ("a.py", "def broken():\n    raise E\n    yield 1\n"),
        ("a.py", "def nothing():\n    return\n    sent = yield\n"),
        ("a.py", "def broken():\n    raise E\n    sent = yield from others()\n"),
        ("a.rs", "fn f() -> u8 {\n    #[cfg(windows)]\n    return 1;\n    g()\n}\n"),
    ] {
        assert!(rules(path, text).is_empty(), "{path}\n{text}");
    }
}

#[test]
fn given_functions_of_files_in_latin_1_when_they_are_compared_then_only_bodies_that_are_alike_are_told() {
    let function = |name: &str, end: &str| {
        format!(
            "def {name}():\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    e = '\u{e9}'\n    return a + {end}\n\n\n"
        )
    };
    let latin1 = |text: String| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<u8>>();
    for (other, expected) in [("c", vec![]), ("b", vec![10])] {
        let text = latin1(function("f", "b") + &function("g", other));
        let files = Files::from([("a.py".to_owned(), text.into())]);
        let found = deterministic(&files).findings.into_iter().filter(|one| one.rule == "duplicate-code");
        assert_eq!(found.map(|one| one.line).collect::<Vec<usize>>(), expected, "{other}");
    }
}

#[test]
fn given_files_that_do_not_parse_when_they_are_looked_at_then_each_says_where() {
    for (path, text, line) in [
        ("a.py", "x = 1\ndef f(:\n    pass\n", 2),
        ("a.py", "x = 1\n\nif x\n    pass\n", 3),
        ("a.rs", "fn f() {}\nfn g( {\n", 2),
        ("a.js", "let x = 1;\nfunction (\n", 2),
        ("a.ts", "const x: number = 1;\nconst = ;\n", 2),
        ("a.go", "package a\n\nfunc F( {\n", 3),
        // What is missing is a bracket or another sign, which has no name in the tree.
        ("a.rs", "fn f() {}\n\nfn g() {\n    h(1;\n}\n", 4),
        ("a.rs", "fn f() -> u8 {\n    let x = 1\n    x\n}\n", 2),
        ("a.js", "let x = 1;\nlet y = f(1;\n", 2),
        ("a.js", "let a = 1;\nlet b = [1, 2;\nlet c = 3;\n", 2),
        ("a.ts", "let x = 1;\nif (x {\n}\n", 2),
        ("a.ts", "class A {\n  m() {\n    return 1;\n  }\n", 4),
        ("a.go", "package a\n\nfunc F() {\n\tg(1\n}\n", 4),
    ] {
        let found: Vec<usize> =
            rules(path, text).into_iter().filter(|(rule, _)| rule == "syntax-error").map(|(_, line)| line).collect();
        assert_eq!(found, [line], "{path}\n{text}");
    }
}

#[test]
fn given_python_of_another_age_or_too_deep_when_it_is_looked_at_then_only_what_is_known_is_said() {
    let deep =
        |levels: usize| format!("def f():\n    return 1\n    g()\nx = {}1{}\n", "[".repeat(levels), "]".repeat(levels));
    for (text, expected) in [
        ("x = 1\nprint x\n".to_owned(), ("syntax-error", 2)),
        ("try:\n    f()\nexcept E:\n    raise E, e\n".to_owned(), ("syntax-error", 4)),
        ("def f():\n    return 1\n    g()\n".to_owned(), ("unreachable-code", 3)),
        (deep(10_000), ("unreachable-code", 3)),
        (deep(50_000), ("not-parsed", 1)),
    ] {
        let found = rules("a.py", &text);
        let (rule, line) = found.first().expect("something is said");
        assert_eq!((rule.as_str(), *line, found.len()), (expected.0, expected.1, 1), "{}", &text[..30]);
    }
}

#[test]
fn given_comments_behind_the_last_statement_when_a_function_is_measured_then_they_are_no_lines_of_it() {
    let function = |lines: usize| format!("def f(x):\n{}    # said\n    # more\n", "    x = x + 1\n".repeat(lines));
    assert!(rules("a.py", &function(99)).is_empty());
    assert_eq!(rules("a.py", &function(100)), [("long-function".to_owned(), 1)]);
}
