use super::*;

fn public(source: &str) -> Vec<String> {
    Module::parse(source.as_bytes()).unwrap().public_names()
}

#[test]
fn given_files_when_their_names_are_listed_then_only_what_others_can_use_is_among_them() {
    for (source, expected) in [
        (
            "import os\nA = 1\n_b = 2\nx, y = 1, 2\ndef f(): pass\nclass C: z = 1\ntry:\n    def g(): pass\nexcept E:\n    pass\nif __name__ == '__main__':\n    args = 1\n",
            vec!["A", "C", "f", "g", "x", "y"],
        ),
        ("__all__ = ['f']\n__all__ += ['imported']\ndef f(): pass\ndef g(): pass\n", vec!["f", "imported"]),
        ("__all__ = names()\ndef f(): pass\n", vec!["f"]),
        (
            "if A:\n    def f(): pass\nelif B:\n    g: int = 1\nelse:\n    with h:\n        [i, *j] = 1, 2\n",
            vec!["f", "g", "i"],
        ),
        ("for a in b:\n    c = 1\nd += 1\ne.f = 1\n", vec![]),
    ] {
        assert_eq!(public(source), expected, "{source}");
    }
}

#[test]
fn given_very_many_names_that_are_listed_when_they_are_looked_for_then_each_of_them_is_public_and_no_other_is() {
    let all = 0..60_000;
    let listed: String = all.clone().rev().map(|number| format!("'_n{number}',")).collect();
    let defined: String = all.clone().map(|number| format!("_n{number} = 1\nm{number} = 2\n")).collect();
    let names = public(&format!("__all__ = [{listed}]\n{defined}"));
    assert_eq!(names.len(), all.len());
    assert!(names.iter().all(|name| name.starts_with("_n")));
}

#[test]
fn given_words_when_they_are_read_then_each_is_what_it_is_for_those_who_count() {
    let source = "'''said'''\nfrom a.b import c\nd.e().f('g', f'h{i.j}')  # type: k\n('l')\nclass m:\n    'n'\n    match = type\n";
    let module = Module::parse(source.as_bytes()).unwrap();
    assert_eq!(module.error, None);
    let read: Vec<(&str, WordKind)> = module.words.iter().map(|word| (module.text(word.range), word.kind)).collect();
    let (name, attribute, of_name, text) =
        (WordKind::Name, WordKind::Attribute, WordKind::AttributeOfName, WordKind::Text);
    let expected = [
        ("a", name),
        ("b", name),
        ("c", name),
        ("d", name),
        ("e", of_name),
        ("f", attribute),
        ("g", text),
        ("h", text),
        ("i", name),
        ("j", of_name),
        ("# type: k", WordKind::TypeComment),
        ("l", text),
        ("m", name),
        ("match", name),
        ("type", name),
    ];
    assert_eq!(read, expected);
}

#[test]
fn given_ways_through_functions_when_they_are_counted_then_each_branch_is_one() {
    let source = "@a\n# said\nasync def f(x=1 if a else 2):\n    if x and y or z: pass\n    elif x: pass\n    for a in [b for b in c if d]: pass\n    while x: pass\n    \
                  try: pass\n    except E: pass\n    match x:\n        case 1 if y: pass\n        case _: pass\n    match = case\n    \
                  try: pass\n    except* E: pass\ndef g(): pass\n";
    let module = Module::parse(source.as_bytes()).unwrap();
    let ways: Vec<(&str, usize, (usize, usize))> = module
        .functions
        .iter()
        .map(|one| (module.text(one.name), module.ways(one), module.place(one.range.start())))
        .collect();
    assert_eq!(module.error, None);
    assert_eq!(ways, [("f", 14, (3, 1)), ("g", 1, (16, 1))]);
}

/// From where, the names with their aliases, and whether it stands in nothing, is guarded and of the future.
type Read<'m> = (Option<&'m str>, Vec<(&'m str, Option<&'m str>)>, [bool; 3]);

#[test]
fn given_imports_when_they_are_read_then_each_says_from_where_and_what() {
    let source = "import a.b as c, d\nfrom .  . e import (f, # said\n  g as h)\nfrom . import i\ntry:\n    from j import *\nfinally:\n    pass\nfrom __future__ import k\n";
    let module = Module::parse(source.as_bytes()).unwrap();
    let text = |range: Option<TextRange>| range.map(|range| module.text(range));
    let read: Vec<Read<'_>> = module
        .imports
        .iter()
        .map(|one| {
            let names = one.names.iter().map(|name| (module.text(name.name), text(name.alias))).collect();
            (text(one.from), names, [one.is_outermost, one.is_guarded, one.is_future])
        })
        .collect();
    let plain = [true, false, false];
    let expected = [
        (None, vec![("a.b", Some("c")), ("d", None)], plain),
        (Some(".  . e"), vec![("f", None), ("g", Some("h"))], plain),
        (Some("."), vec![("i", None)], plain),
        (Some("j"), vec![], [false, true, false]),
        (Some("__future__"), vec![("k", None)], [true, false, true]),
    ];
    assert_eq!(read, expected);
}

#[test]
fn given_lines_with_any_ends_and_encodings_when_places_are_asked_for_then_they_are_those_of_the_bytes() {
    for end in ["\n", "\r\n", "\r"] {
        let source = ["# caf\u{e9}", "x = 1", "def f(): pass", ""].join(end);
        let latin1: Vec<u8> = source.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let marked = format!("\u{feff}{source}");
        for bytes in [source.as_bytes(), &latin1, marked.as_bytes()] {
            let module = Module::parse(bytes).unwrap();
            let function = &module.functions[0];
            assert_eq!((module.place(function.range.start()), module.error), ((3, 1), None), "{end:?}");
            assert_eq!((module.text(function.name), module.public_names().len()), ("f", 2));
        }
    }
}

/// Texts that are deep, each one megabyte or less.
fn deep(levels: usize) -> Vec<String> {
    let nest = |open: &str, close: &str| format!("x = {}1{}\n", open.repeat(levels), close.repeat(levels));
    vec![
        nest("(", ")"),
        nest("[", "]"),
        nest("{1: ", "}"),
        nest("f(", ")"),
        nest("-", ""),
        nest("not ", ""),
        nest("lambda a, b: ", ""),
        nest("1 + ", ""),
        nest("1 ** ", ""),
        nest("a if b else ", ""),
        nest("", ".a"),
        nest("", "()"),
        nest("(\n", ""),
        nest("[(", ""),
        format!("match x:\n case {}y{}: pass\n", "(".repeat(levels), ")".repeat(levels)),
        format!("with {}a{}: pass\n", "(".repeat(levels), ")".repeat(levels)),
        format!("fit({}\n", "fit(".repeat(levels)),
    ]
}

#[test]
fn given_texts_that_nest_without_end_when_they_are_parsed_then_they_are_read_or_given_up_and_nothing_overflows() {
    for (levels, is_read) in [(100, true), (9_000, true), (70_000, false)] {
        for source in deep(levels) {
            let whole = format!("def f(): pass\n{source}");
            let module = Module::parse(whole.as_bytes());
            assert_eq!(module.as_ref().is_some(), is_read, "{levels} {}", &source[..20]);
            assert!(module.is_none_or(|module| module.functions.len() == 1), "{levels} {}", &source[..20]);
        }
    }
    let blocks: String = (0..1_400).map(|level| format!("{}if a:\n", " ".repeat(level))).collect();
    let module = Module::parse(blocks.as_bytes()).unwrap();
    assert!(module.error.is_some(), "the innermost has no statement");
    assert_eq!(module.branches.len(), 1_400);
}

#[test]
fn given_long_files_of_machines_when_they_are_parsed_then_each_is_read() {
    for (part, before, behind) in [
        ("(1, {'a': b.c(2)}), ", "x = [", "]\n"),
        ("x = f(1, [2, 3]); ", "", "\n"),
        ("'a' ", "x = (", ")\n"),
        ("x = {1: 'é', 2: (3, 4)}\n", "", ""),
    ] {
        let long = format!("{before}{}{behind}", part.repeat((1 << 20) / part.len()));
        assert_eq!(Module::parse(long.as_bytes()).map(|module| module.error), Some(None), "{part}");
    }
}
