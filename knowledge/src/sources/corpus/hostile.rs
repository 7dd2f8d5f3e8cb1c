//! What is made to do harm: every such document ends in a typed error or a text, and soon.

use std::path::Path;

use proptest::prelude::*;

use super::build::{self, Font};
use super::{read, refusal};
use crate::sources::gather::Item;
use crate::sources::globs::Globs;
use crate::sources::{Limits, by_name, source_names, zip_archive};

/// One whole document of each type.
pub(super) fn corpus() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("text", b"Words in a row.\r\nAnd more.\n".to_vec()),
        ("markdown", b"# A\n\nText\n\n| a | b |\n|---|---|\n| 1 | 2 |\n".to_vec()),
        (
            "html",
            b"<html><head><title>T</title></head><body><h1>A</h1><p>b<table><tr><td>c</table></body></html>".to_vec(),
        ),
        ("pdf", build::saved(build::pdf(&["First line\nsecond", "Page two"], Font::Ligatures))),
        (
            "docx",
            build::docx(
                "<w:p><w:r><w:t>Words</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc></w:tr></w:tbl>",
            ),
        ),
        ("pptx", build::pptx()),
        ("xlsx", build::xlsx(build::SHEET)),
        ("ods", build::ods()),
        ("csv", b"a;b\r\n1;\"two\r\nlines\"\r\n3;4\r\n".to_vec()),
        ("tsv", b"a\tb\n1\t2\n".to_vec()),
        ("json", br#"[{"a":1,"b":{"c":[1,2,"x"]}},{"a":null}]"#.to_vec()),
        ("jsonl", b"{\"a\":1}\n{\"b\":[true]}\n".to_vec()),
        ("parquet", include_bytes!("data/rows.parquet").to_vec()),
        ("epub", build::epub()),
        ("eml", build::EMAIL.as_bytes().to_vec()),
        (
            "notebook",
            br##"{"nbformat":4,"metadata":{},"cells":[{"cell_type":"markdown","source":["# A\n","b"]},{"cell_type":"code","source":"c","outputs":[{"output_type":"stream","text":"d"}]}]}"##.to_vec(),
        ),
        ("code", b"fn main() {\n    println!(\"x\");\n}\n".to_vec()),
    ]
}

/// Reading must end in a text or a typed error; neither is fine, a panic is not.
pub(super) fn survives(source: &str, bytes: &[u8]) {
    match by_name(source).unwrap().extract("d", bytes) {
        Ok(text) => assert!(!text.text.trim().is_empty(), "{source}: a success without text"),
        Err(error) => assert!(!error.code().is_empty() && error.hint().is_some(), "{source}: {error}"),
    }
    if let Ok(tables) = by_name(source).unwrap().tables("d", bytes) {
        for table in tables {
            let width = table.columns.len();
            table.rows.map_while(Result::ok).for_each(|row| assert_eq!(row.len(), width, "{source}"));
        }
    }
}

#[test]
fn given_the_corpus_then_it_has_every_type_and_each_document_is_read() {
    let types: Vec<&str> = corpus().iter().map(|(source, _)| *source).collect();
    let known: Vec<&str> = source_names().into_iter().filter(|name| crate::sources::is_document_type(name)).collect();
    assert_eq!(types, known);
    for (source, bytes) in corpus() {
        read(source, &bytes).unwrap_or_else(|error| panic!("{source}: {error}"));
    }
}

#[test]
fn given_documents_that_are_cut_off_anywhere_when_read_then_none_makes_a_reader_fail() {
    for (source, bytes) in corpus() {
        assert_eq!(refusal(source, b""), "empty_document", "{source}");
        let step = (bytes.len() / 60).max(1);
        for end in (0..bytes.len()).step_by(step) {
            survives(source, &bytes[..end]);
        }
    }
}

/// Formats that say where they end, or can't be read without their end.
const BOUNDED: [&str; 9] = ["pdf", "docx", "pptx", "xlsx", "ods", "epub", "json", "parquet", "notebook"];

#[test]
fn given_documents_whose_end_is_missing_when_read_then_they_are_refused_and_never_read_in_part() {
    for (source, bytes) in corpus().into_iter().filter(|(source, _)| BOUNDED.contains(source)) {
        for percent in [30, 60, 80, 95] {
            let cut = &bytes[..bytes.len() * percent / 100];
            assert_eq!(refusal(source, cut), "malformed_document", "{source}: {percent} %");
        }
    }
    let archive = build::zip(&[("a.txt", b"hello hello hello"), ("b.md", b"# x")]);
    for percent in [30, 60, 80, 95] {
        let cut = &archive[..archive.len() * percent / 100];
        let read = zip_archive::read_members("a.zip", cut, &Globs::all(), Limits::default(), |_| true);
        assert_eq!(read.unwrap_err().code(), "malformed_document", "an archive: {percent} %");
    }
}

#[test]
fn given_packages_that_list_a_part_and_lack_it_when_read_then_they_are_refused_with_its_name() {
    for (source, bytes, part, named) in [
        ("epub", build::epub(), "OEBPS/one.xhtml", "OEBPS/one.xhtml"),
        ("xlsx", build::xlsx(build::SHEET), "xl/worksheets/sheet1.xml", "Prices"),
        ("pptx", build::pptx(), "ppt/slides/slide9.xml", "ppt/slides/slide9.xml"),
        ("pptx", build::pptx(), "ppt/_rels/presentation.xml.rels", "rId1"),
        ("docx", build::docx("<w:p/>"), "word/document.xml", "word/document.xml"),
    ] {
        let error = by_name(source).unwrap().extract("d", &build::without_part(&bytes, part)).unwrap_err();
        assert_eq!(error.code(), "malformed_document", "{source} without {part}: {error}");
        assert!(error.to_string().contains(named) && error.hint().is_some(), "{error}");
    }
    let spine = "<package><manifest><item id='a' href='one.xhtml'/></manifest><spine><itemref idref='a'/><itemref idref='b'/></spine></package>";
    let book = build::with_parts(
        &build::without_part(&build::epub(), "OEBPS/book.opf"),
        &[("OEBPS/book.opf", spine.as_bytes())],
    );
    let error = by_name("epub").unwrap().extract("d", &book).unwrap_err();
    assert!(error.code() == "malformed_document" && error.to_string().contains("\"b\""), "{error}");
}

#[test]
fn given_every_document_as_every_type_when_read_then_none_makes_a_reader_fail() {
    for (_, bytes) in corpus() {
        for (source, _) in corpus() {
            survives(source, &bytes);
        }
    }
}

#[test]
fn given_giant_lines_and_deep_nesting_when_read_then_they_end_in_a_text_or_an_error() {
    let line = vec![b'x'; 4 << 20];
    for source in ["text", "markdown", "csv", "code"] {
        by_name(source).unwrap().extract("d", &line).unwrap_or_else(|error| panic!("{source}: {error}"));
    }
    let deep = |open: &str, close: &str| format!("{}x{}", open.repeat(50_000), close.repeat(50_000));
    survives("json", deep("[", "]").as_bytes());
    survives("json", deep("{\"a\":", "}").as_bytes());
    survives("html", deep("<div>", "</div>").as_bytes());
    survives("markdown", deep("> ", "").as_bytes());
    assert_eq!(refusal("docx", &build::docx(&deep("<w:p>", "</w:p>"))), "limit_exceeded");
}

#[test]
fn given_packages_that_unpack_to_too_much_when_read_then_they_are_refused_without_unpacking_it() {
    let zeros = vec![b' '; 20 << 20];
    let xml = [b"<a>", &zeros[..], b"</a>"].concat();
    for (source, part) in [
        ("docx", "word/document.xml"),
        ("pptx", "ppt/presentation.xml"),
        ("xlsx", "xl/workbook.xml"),
        ("ods", "content.xml"),
        ("epub", "META-INF/container.xml"),
    ] {
        assert_eq!(refusal(source, &build::zip(&[(part, &xml)])), "limit_exceeded", "{source}");
    }
}

#[test]
fn given_office_documents_with_a_password_when_read_then_that_is_said() {
    let cfb = [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", &[0u8; 600][..]].concat();
    for source in ["docx", "pptx", "xlsx"] {
        assert_eq!(refusal(source, &cfb), "encrypted", "{source}");
    }
}

#[test]
fn given_a_sheet_that_claims_a_billion_cells_when_read_then_only_those_with_a_value_count() {
    let far = "<row r='1'><c r='A1' t='inlineStr'><is><t>a</t></is></c></row><row r='1048576'><c r='XFD1048576'><v>7</v></c></row>";
    assert!(read("xlsx", &build::xlsx(far)).unwrap().text.contains('7'));
}

fn members(bytes: &[u8], globs: &Globs) -> (Vec<String>, Vec<(String, String)>, usize) {
    let limits = Limits { max_file_bytes: 1 << 20, max_files: 100 };
    let (mut documents, mut refused, mut skipped) = (Vec::new(), Vec::new(), 0);
    zip_archive::read_members("/d/a.zip", bytes, globs, limits, |item| {
        match item {
            Item::Document(found) => documents.push(found.source),
            Item::Refused { source, error } => refused.push((source, error.code().to_owned())),
            Item::Skipped { .. } => skipped += 1,
        }
        true
    })
    .unwrap();
    (documents, refused, skipped)
}

#[test]
fn given_an_archive_when_read_then_good_members_are_documents_and_each_bad_one_is_refused_by_name() {
    let inner = build::zip(&[("x.txt", b"x")]);
    let large = vec![b'x'; (1 << 20) + 1];
    let (documents, refused, skipped) = members(
        &build::zip_with_link(
            "link.txt",
            "/etc/passwd",
            &[
                ("docs/a.md", b"# A"),
                ("docs/b.txt", b"b"),
                ("../../evil.txt", b"x"),
                ("..././evil.txt", b"x"),
                ("/abs.txt", b"x"),
                ("C:\\x.txt", b"x"),
                ("a\\..\\b.txt", b"x"),
                ("inner.zip", &inner),
                ("inner.tar.gz", b"x"),
                (".git/hooks/post-checkout", b"x"),
                ("__MACOSX/a.txt", b"x"),
                ("picture.png", b"x"),
                ("large.txt", &large),
            ],
        ),
        &Globs::all(),
    );
    assert_eq!(documents, ["/d/a.zip!/docs/a.md", "/d/a.zip!/docs/b.txt"]);
    let code = |name: &str| refused.iter().find(|(source, _)| source.ends_with(name)).map(|(_, code)| code.as_str());
    for name in [
        "!/link.txt",
        "!/../../evil.txt",
        "!/..././evil.txt",
        "!//abs.txt",
        "C:\\x.txt",
        "a\\..\\b.txt",
        "inner.zip",
        "inner.tar.gz",
    ] {
        assert_eq!(code(name), Some("unsafe_entry"), "{name}: {refused:?}");
    }
    assert_eq!(code("large.txt"), Some("limit_exceeded"));
    assert_eq!(skipped, 3);
    let some = Globs::new(&["*.txt".into()], &[]).unwrap();
    assert_eq!(
        members(&build::zip(&[("a.md", b"x"), ("d/b.txt", b"b")]), &some),
        (vec!["/d/a.zip!/d/b.txt".to_owned()], vec![], 1)
    );
}

#[test]
fn given_names_that_begin_with_the_packers_own_folder_when_an_archive_is_read_then_they_are_not_taken_for_hidden() {
    let packed = build::zip(&[("./a.txt", b"a"), ("./docs/b.txt", b"b"), ("./.hidden.txt", b"x")]);
    let expected = ["/d/a.zip!/a.txt", "/d/a.zip!/docs/b.txt"].map(str::to_owned).to_vec();
    assert_eq!(members(&packed, &Globs::all()), (expected, vec![], 1));
}

#[test]
fn given_archives_that_are_bombs_or_broken_when_read_then_the_whole_is_refused() {
    let limits = Limits { max_file_bytes: 1 << 20, max_files: 100 };
    let code = |bytes: &[u8]| {
        zip_archive::read_members("a.zip", bytes, &Globs::all(), limits, |_| true)
            .map_err(|error| error.code().to_owned())
    };
    let names: Vec<String> = (0..101).map(|index| format!("{index}.txt")).collect();
    let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    assert_eq!(code(&build::zip(&many)), Err("limit_exceeded".to_owned()));
    assert_eq!(code(b"PK\x03\x04 not a zip"), Err("malformed_document".to_owned()));
    assert_eq!(code(b""), Err("malformed_document".to_owned()));
    // Two entries of the directory that point at the same bytes.
    let twice = build::zip(&[("a.txt", b"hello"), ("b.txt", b"hello")]);
    let at = twice.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    let mut overlapping = twice.clone();
    overlapping[at + 42..at + 46].copy_from_slice(&0u32.to_le_bytes());
    assert!(code(&overlapping).is_err(), "members share bytes");
    // Sizes that lie are found out while unpacking.
    let mut lying = build::zip(&[("a.txt", &vec![b'x'; 2 << 20])]);
    let at = lying.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    lying[at + 24..at + 28].copy_from_slice(&5u32.to_le_bytes());
    let mut refused = Vec::new();
    let _ = zip_archive::read_members("a.zip", &lying, &Globs::all(), limits, |item| {
        refused.push(matches!(item, Item::Refused { .. }));
        true
    });
    assert_eq!(refused, [true]);
    assert!(!Path::new("/d").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes: Vec<u8>) {
        for (source, _) in corpus() {
            survives(source, &bytes);
        }
    }

    #[test]
    fn no_change_of_a_document_makes_its_reader_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        for (source, mut bytes) in corpus() {
            for (place, byte) in &changes {
                let at = place.index(bytes.len());
                bytes[at] = *byte;
            }
            survives(source, &bytes);
        }
    }

    #[test]
    fn no_change_of_an_archive_makes_its_reader_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = build::zip(&[("a.txt", b"hello hello hello"), ("b.md", b"# x")]);
        for (place, byte) in &changes {
            let at = place.index(bytes.len());
            bytes[at] = *byte;
        }
        let _ = zip_archive::read_members("a.zip", &bytes, &Globs::all(), Limits::default(), |_| true);
    }
}
