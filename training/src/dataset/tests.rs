use super::*;

fn remarks(bytes: &[u8], format: Format) -> Vec<(String, String)> {
    let error = read(bytes, format).unwrap_err();
    error.errors.iter().map(|remark| (remark.place(), remark.reason.clone())).collect()
}

#[test]
fn given_lines_that_are_no_examples_then_each_is_named_with_its_field() {
    let long = format!("{{\"prompt\":\"{}\",\"completion\":\"a\"}}", "x".repeat(MAX_LINE_BYTES));
    let deep = format!("{{\"prompt\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    for (line, place, part) in [
        ("{", "line 2", "not a JSON object"),
        ("[]", "line 2", "not a JSON object"),
        ("7", "line 2", "not a JSON object"),
        ("{\"prompt\":\"a\"}", "line 2.completion", "missing"),
        ("{\"completion\":\"a\"}", "line 2.prompt", "missing"),
        ("{\"prompt\":\"a\",\"completion\":\"\"}", "line 2.completion", "empty"),
        ("{\"prompt\":\"a\",\"completion\":\" \\n\"}", "line 2.completion", "empty"),
        ("{\"prompt\":\"a\",\"completion\":7}", "line 2.completion", "a number"),
        ("{\"prompt\":null,\"completion\":\"a\"}", "line 2.prompt", "null"),
        ("{\"prompt\":\"a\",\"completion\":\"b\",\"prompt\":\"c\"}", "line 2", "twice"),
        ("{\"prompt\":\"a\",\"completion\":\"b\\u0000\"}", "line 2.completion", "NUL"),
        ("{\"prompt\":\"a\",\"completion\":\"b\"} x", "line 2", "not a JSON object"),
        ("{'prompt':'a','completion':'b'}", "line 2", "not a JSON object"),
        ("{\"prompt\":\"a\",\"completion\":\"b\",}", "line 2", "trailing comma"),
        ("{\"prompt\":\"a\",\"completion\":\"b\",\"n\":1e999}", "line 2", "out of range"),
        ("{\"prompt\":\"a\",\"completion\":\"b\",\"n\":{\"k\":1,\"k\":2}}", "line 2", "\"k\" twice"),
        ("{\"prompt\":\"a\",\"completion\":\"b\",\"n\":[0,{\"k\":1,\"k\":2}]}", "line 2", "\"k\" twice"),
        ("{\"prompt\":\"a\tb\",\"completion\":\"b\"}", "line 2", "control character"),
        ("{\"Prompt\":\"a\",\"completion\":\"b\"}", "line 2.prompt", "missing"),
        ("\u{feff}{\"prompt\":\"a\",\"completion\":\"b\"}", "line 2", "not a JSON object"),
        (
            "{\"prompt\":\"c\",\"completion\":\"d\"}\r{\"prompt\":\"e\",\"completion\":\"f\"}",
            "line 2",
            "a CR alone ends no line",
        ),
        (deep.as_str(), "line 2", "recursion limit"),
        (long.as_str(), "line 2", "more than"),
    ] {
        let file = format!("{{\"prompt\":\"a\",\"completion\":\"b\"}}\n{line}\n");
        let found = remarks(file.as_bytes(), Format::Sft);
        assert_eq!(found.len(), 1, "{line:.60}");
        assert!(found[0].0 == place && found[0].1.contains(part), "{line:.60}: {found:?}");
    }
    let found = remarks(b"{\"prompt\":\"a\",\"completion\":\"b\xff\"}", Format::Sft);
    assert!(found[0].1.contains("not UTF-8 at byte 30"), "{found:?}");
    assert!(remarks(b"{\"prompt\":\"a\0\"}", Format::Sft)[0].1.contains("NUL"));
    for empty in [&b""[..], b"\n\n \r\n", b"\xef\xbb\xbf"] {
        assert!(remarks(empty, Format::Sft)[0].1.contains("no examples"));
    }
}

#[test]
fn given_preferences_and_conversations_that_can_not_be_then_it_is_said_why() {
    for (line, part) in [
        ("{\"prompt\":\"a\",\"chosen\":\"b\"}", "missing"),
        ("{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"b\"}", "same as chosen"),
    ] {
        assert!(remarks(line.as_bytes(), Format::Dpo)[0].1.contains(part), "{line}");
    }
    for (messages, part) in [
        ("{}", "not a list"),
        ("[]", "empty"),
        ("[{\"role\":\"user\",\"content\":\"a\"}]", "does not end"),
        ("[{\"role\":\"robot\",\"content\":\"a\"}]", "role \"robot\""),
        ("[{\"content\":\"a\"}]", "no role"),
        ("[\"a\"]", "no role"),
        ("[{\"role\":\"assistant\",\"content\":null}]", "null, not a text"),
        ("[{\"role\":\"assistant\"}]", "no content"),
        ("[{\"role\":\"assistant\",\"content\":[\"a\"]}]", "a list"),
        ("[{\"role\":\"assistant\",\"content\":\"\"}]", "empty"),
        (
            "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"a\"}]",
            "only speaks first",
        ),
    ] {
        let found = remarks(format!("{{\"messages\":{messages}}}").as_bytes(), Format::Chat);
        assert!(found[0].0 == "line 1.messages" && found[0].1.contains(part), "{messages}: {found:?}");
    }
}

#[test]
fn given_a_file_of_another_format_than_was_named_then_that_is_said_once_and_which_it_is() {
    let line = |format: Format| match format {
        Format::Sft => "{\"prompt\":\"a\",\"completion\":\"b\"}",
        Format::Dpo => "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}",
        Format::Chat => "{\"messages\":[{\"role\":\"assistant\",\"content\":\"b\"}]}",
    };
    for named in Format::ALL {
        for is in Format::ALL.into_iter().filter(|is| *is != named) {
            for count in [1, 3, 250] {
                let file = format!("\u{feff}\n{}", format!("{}\r\n", line(is)).repeat(count));
                let error = read(file.as_bytes(), named).unwrap_err();
                assert_eq!((error.errors.len(), error.total), (1, count), "{named:?} {is:?}");
                let told = (error.errors[0].place(), &error.errors[0].reason);
                let fix = format!("--format {}", is.as_str());
                assert!(told.0 == "line 2" && told.1.ends_with(&fix), "{told:?}");
            }
        }
        // One line of another format among others is a fault of that line.
        let mixed =
            format!("{}\n{}\n", line(named), line(if named == Format::Chat { Format::Sft } else { Format::Chat }));
        let found = remarks(mixed.as_bytes(), named);
        assert!(found.len() == 1 && found[0].0.starts_with("line 2.") && found[0].1 == "is missing", "{found:?}");
        // And one that is of no format says what is missing.
        let found = remarks(b"{\"text\":\"a\"}\n", named);
        assert!(found.len() == 1 && found[0].1 == "is missing", "{found:?}");
    }
}

#[test]
fn given_a_key_that_stands_twice_in_a_message_then_it_is_named_and_not_the_last_one_taken() {
    let line = "{\"messages\":[{\"role\":\"user\",\"role\":\"assistant\",\"content\":\"a\"}]}";
    let found = remarks(line.as_bytes(), Format::Chat);
    assert_eq!(found, [("line 1".to_owned(), "has the key \"role\" twice".to_owned())]);
}

#[test]
fn given_nothing_but_repeats_and_blank_lines_of_any_end_then_one_example_is_left() {
    let line = "{\"prompt\":\"a\",\"completion\":\"b\"}";
    let file = format!("\n \t\r\n{line}\r\n\r\n{line}\n{line}\r\n\n{line}");
    let dataset = read(file.as_bytes(), Format::Sft).unwrap();
    assert_eq!((dataset.examples.len(), dataset.duplicates, dataset.examples[0].0), (1, 3, 3));
}

#[test]
fn given_marks_line_ends_and_repeats_then_the_examples_and_their_hash_are_the_same() {
    let plain = b"{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"c\",\"completion\":\"d\"}\n";
    let other = b"\xef\xbb\xbf{\"completion\":\"b\",\"prompt\":\"a\",\"note\":1}\r\n\r\n{\"prompt\":\"a\",\"completion\":\"b\"}\r\n{\"prompt\":\"c\",\"completion\":\"d\"}";
    let (plain, other) = (read(plain, Format::Sft).unwrap(), read(other, Format::Sft).unwrap());
    assert_eq!(plain.sha256(), other.sha256());
    assert_eq!((plain.duplicates, other.duplicates), (0, 1));
    assert!(plain.warnings.is_empty());
    let places: Vec<usize> = other.warnings.iter().map(|warning| warning.line).collect();
    assert_eq!(places, [1, 1, 3]);
    assert_eq!(read(&plain.canonical(), Format::Sft).unwrap().examples, plain.examples);
}

#[test]
fn given_many_bad_lines_then_the_first_are_told_and_all_are_counted() {
    let file = "{}\n".repeat(MAX_TOLD + 50);
    let error = read(file.as_bytes(), Format::Sft).unwrap_err();
    assert_eq!((error.errors.len(), error.total), (MAX_TOLD, MAX_TOLD + 50));
    assert!(error.to_string().contains("line 1.prompt"), "{error}");
}

#[test]
fn given_a_seed_when_examples_are_split_then_each_is_on_one_side_and_the_seed_decides() {
    for (n, held) in [(1, 0), (9, 0), (10, 1), (105, 10), (10_000, 256)] {
        let split = Split::of(n, 3);
        assert_eq!((split.train.len(), split.held_out.len()), (n - held, held));
        let mut all: Vec<usize> = split.train.iter().chain(&split.held_out).copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..n).collect::<Vec<_>>());
    }
    assert_eq!(Split::of(100, 1), Split::of(100, 1));
    assert_ne!(Split::of(100, 1), Split::of(100, 2));
}

#[test]
fn given_a_line_with_as_many_keys_as_fit_then_it_is_read_at_once_and_only_some_are_named() {
    let keys: String = (0..90_000).map(|n| format!(",\"{n}\":0")).collect();
    let line = format!("{{\"prompt\":\"a\",\"completion\":\"b\"{keys}}}");
    assert!(line.len() < MAX_LINE_BYTES);
    let dataset = read(line.as_bytes(), Format::Sft).unwrap();
    assert_eq!(dataset.warnings[0].reason, "fields that are not used: 0, 1, 2, 3, 4, 5, 6, 7 and 89992 more");
    let twice = format!("{{\"prompt\":\"a\"{keys},\"7\":1}}");
    assert!(read(twice.as_bytes(), Format::Sft).unwrap_err().errors[0].reason.contains("\"7\" twice"));
}

#[test]
fn given_a_line_of_a_hundred_megabytes_then_it_is_named_and_not_parsed() {
    let mut file = b"{\"prompt\":\"a\",\"completion\":\"b\"}\n".to_vec();
    file.resize(100 << 20, b'[');
    let error = read(&file, Format::Sft).unwrap_err();
    assert_eq!((error.total, error.errors[0].line), (1, 2));
    assert!(error.errors[0].reason.contains("more than 1048576"), "{error:?}");
}
