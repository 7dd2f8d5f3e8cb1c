//! What is read out of a whole document of each type.

use super::build::{self, Font};
use super::{read, refusal};
use crate::sources::{Cell, Row, by_name};

#[test]
fn given_a_pdf_when_read_then_lines_pages_and_title_are_there() {
    let bytes = build::saved(build::pdf(&["First line\nsecond line", "Page two: caf\u{e9}"], Font::Plain));
    let text = read("pdf", &bytes).unwrap();
    assert_eq!(text.title.as_deref(), Some("The title"));
    assert_eq!((text.author.as_deref(), text.last_page(), &text.encoding), (Some("Ann Author"), Some(2), &None));
    assert_eq!(text.text, "First line\nsecond line\n\nPage two: caf\u{e9}\n");
    let second = text.text.find("Page two").unwrap();
    assert_eq!((text.page(0), text.page(second - 1), text.page(second)), (Some(1), Some(1), Some(2)));
}

#[test]
fn given_a_pdf_with_ligatures_when_read_then_its_words_can_be_found() {
    let bytes = build::saved(build::pdf(&["of\u{1}ce a\u{2}uent"], Font::Ligatures));
    assert_eq!(read("pdf", &bytes).unwrap().text, "office affluent\n");
}

#[test]
fn given_a_pdf_whose_words_are_in_forms_when_read_then_they_stand_where_they_are_shown() {
    let text = read("pdf", &build::saved(build::pdf_of_forms())).unwrap().text;
    assert_eq!(text, "On the page\nIn the outer form\nIn the inner form\nand below\n");
}

#[test]
fn given_an_encrypted_pdf_when_read_then_the_empty_password_opens_it_and_any_other_is_an_error() {
    let document = || build::pdf(&["Secret words"], Font::Plain);
    assert_eq!(read("pdf", &build::encrypted(document(), "")).unwrap().text, "Secret words\n");
    assert_eq!(refusal("pdf", &build::encrypted(document(), "hunter2")), "encrypted");
}

#[test]
fn given_a_pdf_without_fonts_pages_or_text_when_read_then_the_reason_is_named() {
    let why = |bytes: &[u8]| by_name("pdf").unwrap().extract("a.pdf", bytes).unwrap_err().to_string();
    let no_font = build::saved(build::pdf(&["words"], Font::None));
    assert_eq!(refusal("pdf", &no_font), "no_text");
    assert!(why(&no_font).contains("without naming a font"), "{}", why(&no_font));
    let blank = build::saved(build::pdf(&[""], Font::Plain));
    assert!(why(&blank).contains("no characters"), "{}", why(&blank));
    assert!(why(&build::saved(build::pdf(&[], Font::Plain))).contains("no pages"));
}

#[test]
fn given_a_document_without_text_when_read_then_recognition_is_advised_only_where_pictures_may_be_in_it() {
    let fix = |kind: &str, bytes: &[u8]| by_name(kind).unwrap().extract("a", bytes).unwrap_err().hint().unwrap();
    let blank = build::saved(build::pdf(&[""], Font::Plain));
    assert!(fix("pdf", &blank).contains("character recognition"), "{}", fix("pdf", &blank));
    assert!(!fix("json", b"{}").contains("recognition"), "{}", fix("json", b"{}"));
}

/// Pages of words that are long enough to be packed.
fn long_pages() -> Vec<String> {
    (1..=4).map(|page| format!("Page {page} tells of gliding.\n").repeat(20)).collect()
}

#[test]
fn given_a_pdf_with_a_damaged_page_when_read_then_the_whole_is_refused_and_the_page_named() {
    let pages = long_pages();
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let with =
        |change: fn(&mut Vec<u8>)| build::saved(build::pdf_with_content(build::pdf(&pages, Font::Plain), 2, change));
    assert!(read("pdf", &with(|_| ())).unwrap().text.contains("Page 3"));
    assert!(
        read("pdf", &with(|packed| packed.truncate(packed.len() - 4))).unwrap().text.contains("Page 3"),
        "no checksum"
    );
    let mut gone = build::pdf(&pages, Font::Plain);
    let third = gone.page_iter().nth(2).unwrap();
    gone.objects.remove(&third);
    for (bytes, what) in [
        (with(|packed| packed.truncate(packed.len() / 2)), "a stream that breaks off"),
        (with(|packed| packed[2] |= 0b110), "a stream whose bytes are changed"),
        (with(|packed| packed.fill(b'x')), "a stream of other bytes"),
        (build::saved(gone), "no such page"),
    ] {
        let error = by_name("pdf").unwrap().extract("a.pdf", &bytes).unwrap_err();
        assert_eq!(error.code(), "malformed_document", "{what}: {error}");
        assert_eq!(error.to_string(), "a.pdf is damaged: page 3 of 4 can't be read", "{what}");
        assert!(!error.hint().unwrap().contains("recognition"), "{what}");
    }
}

#[test]
fn given_a_pdf_that_is_cut_off_when_read_then_that_is_said_and_nothing_of_scans() {
    let pages = long_pages();
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let whole = build::saved(build::pdf(&pages, Font::Plain));
    for percent in [30, 60, 95] {
        let error = by_name("pdf").unwrap().extract("a.pdf", &whole[..whole.len() * percent / 100]).unwrap_err();
        assert_eq!(error.code(), "malformed_document", "{percent} %");
        assert!(error.to_string().contains("is cut off"), "{percent} %: {error}");
        assert!(!error.hint().unwrap().contains("recognition"), "{percent} %: {error}");
    }
}

#[test]
fn given_a_pdf_as_producers_write_it_when_its_end_is_untidy_then_all_of_it_is_read() {
    let whole = build::saved(build::pdf(&["First page", "Second page"], Font::Plain));
    let end = whole.windows(5).rposition(|window| window == b"%%EOF").unwrap();
    let offset = whole.windows(9).rposition(|window| window == b"startxref").unwrap();
    for (bytes, what) in [
        (whole[..end].to_vec(), "no %%EOF"),
        ([&whole[..], b"\r\n\0\0\0"].concat(), "padding"),
        ([&whole[..], b"\n<!-- sent by a server -->\n"].concat(), "bytes behind the end"),
        ([&whole[..offset], b"startxref\n7\n%%EOF\n"].concat(), "an offset that leads nowhere"),
    ] {
        let text = read("pdf", &bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((text.text.as_str(), text.last_page()), ("First page\n\nSecond page\n", Some(2)), "{what}");
        assert!(text.notes.is_empty(), "{what}: {:?}", text.notes);
    }
}

#[test]
fn given_pages_without_text_among_others_when_a_pdf_is_read_then_a_note_tells_which() {
    let notes = |pages: &[&str]| read("pdf", &build::saved(build::pdf_with_pictures(pages))).unwrap().notes;
    assert_eq!(notes(&["Words", "", "", ""]), ["3 of 4 pages are pictures without text: pages 2, 3 and 4"]);
    assert_eq!(notes(&["", "Words"]), ["1 of 2 pages is a picture without text: page 1"]);
    assert!(notes(&["Words", "More words"]).is_empty());
    let blank = build::saved(build::pdf(&["Words", ""], Font::Plain));
    assert!(read("pdf", &blank).unwrap().notes.is_empty(), "a blank page lacks nothing");
    assert_eq!(refusal("pdf", &build::saved(build::pdf_with_pictures(&["", ""]))), "no_text");
}

#[test]
fn given_formulas_without_values_when_a_workbook_is_read_then_a_note_counts_them() {
    let row = "<row r='4'><c r='A4' t='inlineStr'><is><t>Sum</t></is></c><c r='B4'><f>B2+B3</f><v></v></c><c r='C4'><f>B2*2</f></c>\
               <c r='D4' t='str'><f>\"\"</f><v></v></c><c r='E4'><f>1+1</f><v>2</v></c><c r='F4' s='1'/></row>";
    let text = read("xlsx", &build::xlsx(&format!("{}{row}", build::SHEET))).unwrap();
    assert!(text.text.contains("Launch: Sum"), "{}", text.text);
    assert!(
        text.notes.len() == 1 && text.notes[0].starts_with("2 cells with a formula have no value"),
        "{:?}",
        text.notes
    );
    assert!(read("xlsx", &build::xlsx(build::SHEET)).unwrap().notes.is_empty());
    let none = build::xlsx("<row r='1'><c r='A1'><f>1+1</f><v/></c></row>");
    let error = by_name("xlsx").unwrap().extract("a.xlsx", &none).unwrap_err();
    assert!(error.code() == "no_text" && error.to_string().contains("never worked out"), "{error}");
}

#[test]
fn given_a_word_document_when_read_then_headings_lists_tables_and_notes_are_there() {
    let p = |style: &str, text: &str| {
        format!("<w:p><w:pPr><w:pStyle w:val='{style}'/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
    };
    let plain = |text: &str| format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>");
    let item = "<w:p><w:pPr><w:numPr><w:ilvl w:val='1'/></w:numPr></w:pPr><w:r><w:t>an item</w:t></w:r></w:p>";
    let deleted = "<w:p><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del><w:r><w:t>kept &amp; </w:t></w:r><w:r><w:t>joined</w:t></w:r></w:p>";
    let cell = |text: &str| format!("<w:tc>{}</w:tc>", plain(text));
    let table = format!(
        "<w:tbl><w:tr>{}{}</w:tr><w:tr>{}{}</w:tr></w:tbl>",
        cell("Launch"),
        cell("Price"),
        cell("Winch"),
        cell("9 | 10")
    );
    let body = p("berschrift1", "Gliding")
        + &plain("Quiet flight.")
        + &p("Custom", "Costs")
        + &table
        + item
        + deleted
        + &p("Heading3", "Deep");
    let text = read("docx", &build::docx(&body)).unwrap();
    assert_eq!((text.title.as_deref(), text.author.as_deref()), (Some("Core title"), Some("Ann Author")));
    let headings: Vec<_> = text.sections.iter().map(|section| (section.level, section.heading.as_str())).collect();
    assert_eq!(headings, [(1, "Gliding"), (2, "Costs"), (3, "Deep"), (1, "Footnotes")]);
    for part in [
        "# Gliding\n\nQuiet flight.",
        "| Launch | Price |\n| --- | --- |\n| Winch | 9 \\| 10 |",
        "  - an item",
        "kept & joined",
        "A note at the foot.",
    ] {
        assert!(text.text.contains(part), "{part:?} is not in {}", text.text);
    }
    assert!(!text.text.contains("deleted"));
    assert_eq!(refusal("docx", &build::zip(&[("word/document.xml", b"<w:document/>")])), "no_text");
}

#[test]
fn given_cells_over_several_columns_when_a_word_document_is_read_then_those_behind_keep_their_columns() {
    let cell = |properties: &str, text: &str| {
        format!("<w:tc><w:tcPr>{properties}</w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>")
    };
    let table = |rows: &str| build::docx(&format!("<w:tbl>{rows}</w:tbl>"));
    let wide = "<w:gridSpan w:val='2'/>";
    let rows = format!(
        "<w:tr>{}{}</w:tr><w:tr>{}{}{}</w:tr><w:tr><w:trPr><w:gridBefore w:val='2'/></w:trPr>{}</w:tr><w:tr>{}{}{}</w:tr>",
        cell(wide, "Name"),
        cell("", "Price"),
        cell("", "Ada"),
        cell("", "Byron"),
        cell("", "7"),
        cell("", "8"),
        cell("<w:vMerge/>", ""),
        cell("", &format!("a</w:t></w:r></w:p><w:tbl><w:tr>{}</w:tr></w:tbl><w:p><w:r><w:t>b", cell(wide, "in"))),
        cell("", "9"),
    );
    let expected = "| Name |  | Price |\n| --- | --- | --- |\n| Ada | Byron | 7 |\n|  |  | 8 |\n|  | a in b | 9 |\n";
    let text = read("docx", &table(&rows)).unwrap().text;
    assert!(text.contains(expected), "{text}");
    for count in ["0", "-1", "x", "18446744073709551616", "18446744073709551615", "1000000"] {
        let span = format!("<w:gridSpan w:val='{count}'/>");
        let text = read("docx", &table(&format!("<w:tr>{}{}</w:tr>", cell(&span, "a"), cell("", "b")))).unwrap().text;
        let columns = text.lines().find(|line| line.starts_with("| a")).unwrap().matches(" |").count();
        assert!(text.contains("b |") && columns <= 64, "{count}: {text}");
    }
}

#[test]
fn given_text_boxes_and_moved_text_when_a_word_document_is_read_then_each_word_is_there_once() {
    let run = |text: &str| format!("<w:r><w:t xml:space='preserve'>{text}</w:t></w:r>");
    let inner = format!("<w:p>{}</w:p>", run("Boxed words."));
    let box_of = format!(
        "<w:r><mc:AlternateContent><mc:Choice><wps:txbx><w:txbxContent>{inner}</w:txbxContent></wps:txbx></mc:Choice>\
         <mc:Fallback><w:pict><w:txbxContent>{inner}</w:txbxContent></w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    );
    let body = format!(
        "<w:p><w:pPr><w:pStyle w:val='berschrift1'/></w:pPr>{}{box_of}{}</w:p>\
         <w:p><w:pPr><w:rPr><w:moveFrom w:id='1'/></w:rPr></w:pPr><w:moveFrom w:id='2'>{moved}</w:moveFrom></w:p>\
         <w:p>{}</w:p><w:p><w:moveTo w:id='3'>{moved}</w:moveTo></w:p>",
        run("Before "),
        run("and after"),
        run("Between."),
        moved = run("Moved words."),
    );
    let text = read("docx", &build::docx(&body)).unwrap();
    let expected = "Boxed words.\n\n# Before and after\n\nBetween.\n\nMoved words.\n\n";
    assert!(text.text.starts_with(expected), "{}", text.text);
}

#[test]
fn given_headers_and_footers_when_a_word_document_is_read_then_each_text_is_there_once() {
    let part =
        |element: &str, text: &str| format!("<w:{element}><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:{element}>");
    let (header, footer) = (part("hdr", "Contract 4711"), part("ftr", "Gliding club"));
    let body = format!("<w:document>{}</w:document>", part("body", "Written words."));
    let bytes = build::zip(&[
        ("word/document.xml", body.as_bytes()),
        (
            "word/_rels/document.xml.rels",
            b"<Relationships><Relationship Id='a' Type='t/header' Target='header1.xml'/><Relationship Id='b' Type='t/header' Target='header2.xml'/>\
              <Relationship Id='c' Type='t/footer' Target='footer1.xml'/><Relationship Id='d' Type='t/footer' Target='gone.xml'/></Relationships>",
        ),
        ("word/header1.xml", header.as_bytes()),
        ("word/header2.xml", header.as_bytes()),
        ("word/footer1.xml", footer.as_bytes()),
    ]);
    let expected = "Written words.\n\n# Headers and footers\n\nContract 4711\n\nGliding club\n";
    assert_eq!(read("docx", &bytes).unwrap().text, expected);
}

#[test]
fn given_a_presentation_when_read_then_slides_are_pages_in_their_order_with_notes() {
    let text = read("pptx", &build::pptx()).unwrap();
    let headings: Vec<_> = text.sections.iter().map(|section| section.heading.as_str()).collect();
    assert_eq!(headings, ["Welcome", "Notes", "Slide 2"]);
    let at = |part: &str| text.page(text.text.find(part).unwrap_or_else(|| panic!("{part} is not in {}", text.text)));
    assert_eq!(
        (at("Gliding is quiet"), at("Say hello first"), at("Second slide"), at("Launch")),
        (Some(1), Some(1), Some(2), Some(2))
    );
    assert_eq!(text.title.as_deref(), Some("Welcome"));
}

#[test]
fn given_diagrams_and_drawings_in_two_forms_when_a_presentation_is_read_then_each_word_is_there_once() {
    let words = |text: &str| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>");
    let shape = format!("<p:sp><p:txBody>{}</p:txBody></p:sp>", words("Drawn words."));
    let slide = format!(
        "<p:sld><mc:AlternateContent><mc:Choice>{shape}</mc:Choice><mc:Fallback>{shape}</mc:Fallback></mc:AlternateContent></p:sld>"
    );
    let diagram = format!(
        "<dgm:dataModel><dgm:pt><dgm:t>{}</dgm:t></dgm:pt><dgm:pt><dgm:t>{}</dgm:t></dgm:pt></dgm:dataModel>",
        words("Plan the flight"),
        words("Fly the plan")
    );
    let bytes = build::zip(&[
        (
            "ppt/presentation.xml",
            b"<p:presentation><p:sldIdLst><p:sldId id='256' r:id='rId1'/></p:sldIdLst></p:presentation>",
        ),
        (
            "ppt/_rels/presentation.xml.rels",
            b"<Relationships><Relationship Id='rId1' Type='t/slide' Target='slides/slide1.xml'/></Relationships>",
        ),
        ("ppt/slides/slide1.xml", slide.as_bytes()),
        (
            "ppt/slides/_rels/slide1.xml.rels",
            b"<Relationships><Relationship Id='rId1' Type='t/diagramData' Target='../diagrams/data1.xml'/></Relationships>",
        ),
        ("ppt/diagrams/data1.xml", diagram.as_bytes()),
    ]);
    let text = read("pptx", &bytes).unwrap();
    assert_eq!(text.text.trim_end(), "# Slide 1\n\nDrawn words.\n\nPlan the flight\n\nFly the plan");
}

#[test]
fn given_charts_when_office_documents_are_read_then_titles_series_and_values_are_there() {
    let words = |text: &str| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>");
    let cache = |values: [&str; 2]| {
        format!("<c:pt idx='0'><c:v>{}</c:v></c:pt><c:pt idx='1'><c:v>{}</c:v></c:pt>", values[0], values[1])
    };
    let series = |name: &str, values: [&str; 2]| {
        format!(
            "<c:ser><c:idx val='0'/><c:tx><c:strRef><c:f>Sheet1!$B$1</c:f><c:strCache><c:pt idx='0'><c:v>{name}</c:v></c:pt></c:strCache></c:strRef></c:tx>\
             <c:cat><c:strRef><c:f>Sheet1!$A$2:$A$3</c:f><c:strCache><c:ptCount val='2'/>{}</c:strCache></c:strRef></c:cat>\
             <c:val><c:numRef><c:numCache><c:formatCode>General</c:formatCode>{}</c:numCache></c:numRef></c:val></c:ser>",
            cache(["Winch", "Aerotow"]),
            cache(values)
        )
    };
    let title = |text: &str| format!("<c:title><c:tx><c:rich>{}</c:rich></c:tx></c:title>", words(text));
    let chart = format!(
        "<c:chartSpace><c:chart>{}<c:plotArea><c:barChart>{}{}</c:barChart><c:valAx>{}</c:valAx></c:plotArea></c:chart></c:chartSpace>",
        title("Launches &amp; costs"),
        series("Spring", ["12", "3.5"]),
        series("Autumn", ["9", "4"]),
        title("Euros")
    );
    let expected = "Launches & costs\n\nEuros\n\n|  | Spring | Autumn |\n| --- | --- | --- |\n| Winch | 12 | 9 |\n| Aerotow | 3.5 | 4 |";
    let relation = |target: &str| {
        format!(
            "<Relationships><Relationship Id='rId7' Type='t/relationships/chart' Target='{target}'/></Relationships>"
        )
    };

    let slide = format!("<p:sld><p:sp><p:txBody>{}</p:txBody></p:sp></p:sld>", words("Spoken words."));
    let deck = build::zip(&[
        (
            "ppt/presentation.xml",
            b"<p:presentation><p:sldIdLst><p:sldId id='256' r:id='rId1'/></p:sldIdLst></p:presentation>",
        ),
        (
            "ppt/_rels/presentation.xml.rels",
            b"<Relationships><Relationship Id='rId1' Type='t/slide' Target='slides/slide1.xml'/></Relationships>",
        ),
        ("ppt/slides/slide1.xml", slide.as_bytes()),
        ("ppt/slides/_rels/slide1.xml.rels", relation("../charts/chart1.xml").as_bytes()),
        ("ppt/charts/chart1.xml", chart.as_bytes()),
    ]);
    assert_eq!(read("pptx", &deck).unwrap().text.trim_end(), format!("# Slide 1\n\nSpoken words.\n\n{expected}"));

    let letter = build::zip(&[
        (
            "word/document.xml",
            b"<w:document><w:body><w:p><w:r><w:t>Written words.</w:t></w:r></w:p></w:body></w:document>",
        ),
        ("word/_rels/document.xml.rels", relation("charts/chart1.xml").as_bytes()),
        ("word/charts/chart1.xml", chart.as_bytes()),
    ]);
    assert_eq!(read("docx", &letter).unwrap().text.trim_end(), format!("Written words.\n\n# Charts\n\n{expected}"));

    let book = build::with_parts(
        &build::xlsx(build::SHEET),
        &[
            ("xl/drawings/drawing1.xml", b"<xdr:wsDr/>"),
            ("xl/drawings/_rels/drawing1.xml.rels", relation("../charts/chart1.xml").as_bytes()),
            ("xl/charts/chart1.xml", chart.as_bytes()),
        ],
    );
    let text = read("xlsx", &book).unwrap().text;
    assert!(text.starts_with("# Prices\n\nLaunch: Winch") && text.trim_end().ends_with(expected), "{text}");
}

#[test]
fn given_comments_and_text_boxes_when_office_documents_are_read_then_their_words_are_there() {
    let words = |text: &str| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>");
    let drawing = format!("<xdr:wsDr><xdr:sp><xdr:txBody>{}</xdr:txBody></xdr:sp></xdr:wsDr>", words("Boxed words"));
    let comments = b"<comments><authors><author>Ann</author></authors><commentList><comment ref='B2' authorId='0'>\
                     <text><r><t>Too </t></r><r><t>dear</t></r></text></comment></commentList></comments>";
    let book = build::with_parts(
        &build::xlsx(build::SHEET),
        &[("xl/drawings/drawing1.xml", drawing.as_bytes()), ("xl/comments1.xml", comments)],
    );
    let text = read("xlsx", &book).unwrap().text;
    assert!(text.ends_with("\n# Text boxes\n\nBoxed words\n\n# Comments\n\nB2: Too dear\n"), "{text}");

    let slide = format!("<p:sld><p:sp><p:txBody>{}</p:txBody></p:sp></p:sld>", words("Spoken words."));
    let newer = format!("<cmLst><cm><txBody>{}</txBody></cm></cmLst>", words("Say it louder."));
    let deck = build::zip(&[
        (
            "ppt/presentation.xml",
            b"<p:presentation><p:sldIdLst><p:sldId id='256' r:id='rId1'/></p:sldIdLst></p:presentation>",
        ),
        (
            "ppt/_rels/presentation.xml.rels",
            b"<Relationships><Relationship Id='rId1' Type='t/slide' Target='slides/slide1.xml'/></Relationships>",
        ),
        ("ppt/slides/slide1.xml", slide.as_bytes()),
        (
            "ppt/slides/_rels/slide1.xml.rels",
            b"<Relationships><Relationship Id='rId1' Type='t/comments' Target='../comments/c1.xml'/>\
              <Relationship Id='rId2' Type='u/comments' Target='../comments/c2.xml'/></Relationships>",
        ),
        ("ppt/comments/c1.xml", b"<p:cmLst><p:cm><p:pos x='1'/><p:text>Is it true?</p:text></p:cm></p:cmLst>"),
        ("ppt/comments/c2.xml", newer.as_bytes()),
    ]);
    let expected = "# Slide 1\n\nSpoken words.\n\n## Comments\n\nIs it true?\n\nSay it louder.";
    assert_eq!(read("pptx", &deck).unwrap().text.trim_end(), expected);
}

#[test]
fn given_workbooks_when_read_then_rows_have_their_columns_and_sheets_are_sections() {
    let text = read("xlsx", &build::xlsx(build::SHEET)).unwrap();
    assert_eq!(text.text, "# Prices\n\nLaunch: Winch; Price: 9; Since: 2023-03-15\nLaunch: Tow; Price: 42.5\n");
    let mut tables = by_name("xlsx").unwrap().tables("a.xlsx", &build::xlsx(build::SHEET)).unwrap();
    let table = tables.remove(0);
    assert_eq!(
        (table.name.as_str(), table.columns),
        ("Prices", ["Launch", "Price", "Since"].map(str::to_owned).to_vec())
    );
    let rows: Vec<Row> = table.rows.map(Result::unwrap).collect();
    assert_eq!(rows[0], [Cell::Text("Winch".into()), Cell::Int(9), Cell::Text("2023-03-15".into())]);
    assert_eq!(rows[1], [Cell::Text("Tow".into()), Cell::Float(42.5), Cell::Null]);
    assert_eq!(read("ods", &build::ods()).unwrap().text, "# Prices\n\nLaunch: Winch; Price: 9\n");
    assert_eq!(refusal("xlsx", &build::xlsx("")), "no_text");
}

#[test]
fn given_a_book_when_read_then_chapters_come_in_the_order_of_its_spine() {
    let text = read("epub", &build::epub()).unwrap();
    assert_eq!((text.title.as_deref(), text.author.as_deref()), (Some("A book"), Some("Ann & Co, Bob")));
    let headings: Vec<_> = text.sections.iter().map(|section| section.heading.as_str()).collect();
    assert_eq!(headings, ["Chapter one", "Chapter two"]);
    assert!(text.text.find("It begins.").unwrap() < text.text.find("It ends.").unwrap(), "{}", text.text);
    for section in &text.sections {
        assert!(text.text[section.start..].starts_with("# Chapter"), "{section:?}");
    }
}

#[test]
fn given_a_message_when_read_then_headers_text_and_names_of_attachments_are_there() {
    let text = read("eml", build::EMAIL.as_bytes()).unwrap();
    assert_eq!(text.title.as_deref(), Some("Gr\u{fc}\u{df}e"));
    assert_eq!(text.author.as_deref(), Some("J\u{f6}rg <joerg@example.org>"));
    for part in [
        "From: J\u{f6}rg <joerg@example.org>",
        "To: Ada <ada@example.org>, bob@example.org",
        "Date: 2026-09-01T10:00:00+02:00",
        "Attachments: plan.pdf",
        "The caf\u{e9} is open.",
    ] {
        assert!(text.text.contains(part), "{part:?} is not in {}", text.text);
    }
    assert!(!text.text.contains("html part"));
    let html = "From: a@example.org\r\nSubject: x\r\nContent-Type: text/html\r\n\r\n<p>Only <b>html</b></p><script>evil()</script>";
    let text = read("eml", html.as_bytes()).unwrap().text;
    assert!(text.contains("Only **html**") && !text.contains("evil"), "{text}");
    assert_eq!(refusal("eml", b"no header at all"), "malformed_document");
}

#[test]
fn given_messages_attached_to_messages_when_read_then_their_words_are_found_and_depth_is_bounded() {
    let within = |number: usize, attached: &str| {
        format!(
            "From: a{number}@example.org\r\nSubject: Subject {number}\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=B{number}\r\n\r\n\
             --B{number}\r\nContent-Type: text/plain\r\n\r\nWords of {number}.\r\n{attached}--B{number}--\r\n"
        )
    };
    let attach = |number: usize, message: &str| {
        format!("--B{number}\r\nContent-Type: message/rfc822\r\nContent-Disposition: attachment\r\n\r\n{message}\r\n")
    };
    let mut message = within(9, "");
    for number in (0..9).rev() {
        message = within(number, &attach(number, &message));
    }
    let text = read("eml", message.as_bytes()).unwrap();
    assert_eq!(text.title.as_deref(), Some("Subject 0"));
    for number in 0..5 {
        let part = format!("From: a{number}@example.org\n\nWords of {number}.");
        assert!(text.text.contains(&part), "{part:?} is not in {}", text.text);
    }
    assert!(!text.text.contains("Words of 5."), "{}", text.text);
    let levels: Vec<_> = text.sections.iter().map(|section| section.level).collect();
    assert_eq!(levels, [1, 2, 3, 4]);
    let digest = within(0, &(1..4).map(|number| attach(0, &within(number, ""))).collect::<String>());
    let text = read("eml", digest.as_bytes()).unwrap().text;
    assert!((0..4).all(|number| text.contains(&format!("Words of {number}."))), "{text}");
}

#[test]
fn given_documents_without_an_extension_when_detected_then_their_content_tells() {
    let name =
        |bytes: &[u8]| crate::sources::detect(std::path::Path::new("/d/file"), bytes, None).map(|source| source.name());
    assert_eq!(name(&build::docx("<w:p/>")), Ok("docx"));
    assert_eq!(name(&build::pptx()), Ok("pptx"));
    assert_eq!(name(&build::xlsx(build::SHEET)), Ok("xlsx"));
    assert_eq!(name(&build::ods()), Ok("ods"));
    assert_eq!(name(&build::epub()), Ok("epub"));
    assert_eq!(name(&build::saved(build::pdf(&["x"], Font::Plain))), Ok("pdf"));
    assert!(name(&build::zip(&[("a.txt", b"x")])).is_err());
}
