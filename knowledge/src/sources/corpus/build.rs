//! Makes documents.

use std::io::{Cursor, Write};

use lopdf::content::{Content, Operation};
use lopdf::{Document, Object, Stream, dictionary};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A zip with these members.
pub(super) fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A zip with further members.
pub(super) fn with_parts(zip: &[u8], members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new_append(Cursor::new(zip.to_vec())).unwrap();
    for (name, bytes) in members {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The same zip without one of its members.
pub(super) fn without_part(bytes: &[u8], part: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let mut is_there = false;
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).unwrap();
        if member.name().unwrap() == part {
            is_there = true;
        } else {
            writer.raw_copy_file(member).unwrap();
        }
    }
    assert!(is_there, "{part}");
    writer.finish().unwrap().into_inner()
}

/// A zip with these members, of which one is a symbolic link.
pub(super) fn zip_with_link(name: &str, target: &str, members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.add_symlink(name, target, SimpleFileOptions::default()).unwrap();
    for (name, bytes) in members {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// How the characters of a page are told.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Font {
    Plain,
    /// A font whose codes 1 and 2 are the ligatures fi and ffl.
    Ligatures,
    None,
}

/// A PDF with these pages, one line for each line.
pub(super) fn pdf(pages: &[&str], font: Font) -> Document {
    let mut document = Document::with_version("1.5");
    let tree = document.new_object_id();
    let encoding: Object = match font {
        Font::Ligatures => dictionary! {
            "Type" => "Encoding", "BaseEncoding" => "WinAnsiEncoding",
            "Differences" => vec![1.into(), Object::Name(b"fi".to_vec()), Object::Name(b"ffl".to_vec())],
        }
        .into(),
        Font::Plain | Font::None => "WinAnsiEncoding".into(),
    };
    let font_id = document.add_object(
        dictionary! { "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Helvetica", "Encoding" => encoding },
    );
    let fonts = if font == Font::None {
        dictionary! {}
    } else {
        dictionary! { "F1" => font_id }
    };
    let resources = document.add_object(dictionary! { "Font" => fonts });
    let mut kids = Vec::new();
    for page in pages {
        let mut operations = vec![Operation::new("BT", vec![])];
        if font != Font::None {
            operations.push(Operation::new("Tf", vec!["F1".into(), 12.into()]));
        }
        operations.push(Operation::new("Td", vec![50.into(), 700.into()]));
        for line in page.lines() {
            let bytes: Vec<u8> = line.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect();
            operations.push(Operation::new("Tj", vec![Object::string_literal(bytes)]));
            operations.push(Operation::new("Td", vec![0.into(), Object::Integer(-14)]));
        }
        operations.push(Operation::new("ET", vec![]));
        let content = document.add_object(Stream::new(dictionary! {}, Content { operations }.encode().unwrap()));
        kids.push(
            document.add_object(dictionary! { "Type" => "Page", "Parent" => tree, "Contents" => content }).into(),
        );
    }
    let count = i64::try_from(pages.len()).unwrap();
    let all = dictionary! { "Type" => "Pages", "Kids" => kids, "Count" => count, "Resources" => resources, "MediaBox" => vec![0.into(), 0.into(), 595.into(), 842.into()] };
    document.objects.insert(tree, Object::Dictionary(all));
    let catalog = document.add_object(dictionary! { "Type" => "Catalog", "Pages" => tree });
    let info = document.add_object(dictionary! {
        "Title" => Object::string_literal("The title"), "Author" => Object::string_literal("Ann  Author")
    });
    document.trailer.set("Root", catalog);
    document.trailer.set("Info", info);
    let id = Object::string_literal("0123456789abcdef");
    document.trailer.set("ID", vec![id.clone(), id]);
    document
}

/// A PDF with a page for each: words, or a picture where there are none.
pub(super) fn pdf_with_pictures(pages: &[&str]) -> Document {
    let mut document = pdf(pages, Font::Plain);
    let picture = dictionary! {
        "Type" => "XObject", "Subtype" => "Image", "Width" => 1, "Height" => 1, "ColorSpace" => "DeviceGray", "BitsPerComponent" => 8,
    };
    let picture = document.add_object(Stream::new(picture, vec![0]));
    let shown = Content { operations: vec![Operation::new("Do", vec!["Im1".into()])] }.encode().unwrap();
    let ids: Vec<_> = document.page_iter().collect();
    for (id, _) in ids.into_iter().zip(pages).filter(|(_, words)| words.is_empty()) {
        let content = document.add_object(Stream::new(dictionary! {}, shown.clone()));
        let page = document.get_object_mut(id).unwrap().as_dict_mut().unwrap();
        page.set("Contents", content);
        page.set("Resources", dictionary! { "XObject" => dictionary! { "Im1" => picture } });
    }
    document
}

/// The same with the content of one page, counted from 0, changed after it was packed.
pub(super) fn pdf_with_content(mut document: Document, page: usize, change: impl FnOnce(&mut Vec<u8>)) -> Document {
    let page = document.page_iter().nth(page).unwrap();
    let content = document.get_page_contents(page)[0];
    let stream = document.get_object_mut(content).unwrap().as_stream_mut().unwrap();
    stream.compress().unwrap();
    let mut bytes = stream.content.clone();
    change(&mut bytes);
    stream.set_content(bytes);
    document
}

/// A PDF whose page shows a form with words, which shows another one and itself.
pub(super) fn pdf_of_forms() -> Document {
    let mut document = pdf(&["Replaced"], Font::Plain);
    let font = document.add_object(
        dictionary! { "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Helvetica", "Encoding" => "WinAnsiEncoding" },
    );
    let words = |font: &str, words: &str| {
        vec![
            Operation::new("BT", vec![]),
            Operation::new("Tf", vec![font.into(), 12.into()]),
            Operation::new("Tj", vec![Object::string_literal(words)]),
            Operation::new("ET", vec![]),
        ]
    };
    let show = |form: &str| Operation::new("Do", vec![form.into()]);
    let encoded = |operations: Vec<Operation>| Content { operations }.encode().unwrap();
    let form = |forms: lopdf::Dictionary, operations: Vec<Operation>| {
        let resources = dictionary! { "Font" => dictionary! { "Own" => font }, "XObject" => forms };
        let dict = dictionary! { "Type" => "XObject", "Subtype" => "Form", "Resources" => resources };
        Stream::new(dict, encoded(operations))
    };
    let inner = document.add_object(form(dictionary! {}, words("Own", "In the inner form")));
    let outer = document.new_object_id();
    let operations = [words("Own", "In the outer form"), vec![show("Inner"), show("Outer")]].concat();
    let stream = form(dictionary! { "Inner" => inner, "Outer" => outer }, operations);
    document.objects.insert(outer, Object::Stream(stream));
    let operations = [words("F1", "On the page"), vec![show("Outer")], words("F1", "and below")].concat();
    let content = document.add_object(Stream::new(dictionary! {}, encoded(operations)));
    let page = document.page_iter().next().unwrap();
    let page = document.get_object_mut(page).unwrap().as_dict_mut().unwrap();
    page.set("Contents", content);
    page.set("Resources", dictionary! { "XObject" => dictionary! { "Outer" => outer } });
    document
}

pub(super) fn saved(mut document: Document) -> Vec<u8> {
    let mut bytes = Vec::new();
    document.save_to(&mut bytes).unwrap();
    bytes
}

/// The same encrypted, to be opened with `password`.
pub(super) fn encrypted(mut document: Document, password: &str) -> Vec<u8> {
    use lopdf::{EncryptionState, EncryptionVersion, Permissions};
    let version = EncryptionVersion::V2 {
        document: &document,
        owner_password: "owner",
        user_password: password,
        key_length: 128,
        permissions: Permissions::all(),
    };
    let state = EncryptionState::try_from(version).unwrap();
    document.encrypt(&state).unwrap();
    saved(document)
}

const W: &str = "xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'";

pub(super) fn docx(body: &str) -> Vec<u8> {
    let styles = format!(
        "<w:styles {W}><w:style w:styleId='berschrift1'><w:name w:val='heading 1'/></w:style>\
         <w:style w:styleId='Custom'><w:name w:val='My head'/><w:pPr><w:outlineLvl w:val='1'/></w:pPr></w:style></w:styles>"
    );
    let notes = format!(
        "<w:footnotes {W}><w:footnote><w:p><w:r><w:t>A note at the foot.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    );
    let core = "<cp:coreProperties xmlns:cp='x' xmlns:dc='y'><dc:title>Core title</dc:title><dc:creator>Ann Author</dc:creator></cp:coreProperties>";
    let document = format!("<?xml version='1.0'?><w:document {W}><w:body>{body}</w:body></w:document>");
    zip(&[
        ("[Content_Types].xml", b"<Types/>"),
        ("word/document.xml", document.as_bytes()),
        ("word/styles.xml", styles.as_bytes()),
        ("word/footnotes.xml", notes.as_bytes()),
        ("docProps/core.xml", core.as_bytes()),
    ])
}

pub(super) fn pptx() -> Vec<u8> {
    let shape = |kind: &str, text: &str| {
        format!(
            "<p:sp><p:nvSpPr><p:nvPr><p:ph type='{kind}'/></p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
        )
    };
    let slide =
        |inner: String| format!("<p:sld xmlns:p='p' xmlns:a='a'><p:cSld><p:spTree>{inner}</p:spTree></p:cSld></p:sld>");
    let table = "<p:graphicFrame><a:tbl><a:tr><a:tc><a:txBody><a:p><a:r><a:t>Launch</a:t></a:r></a:p></a:txBody></a:tc><a:tc><a:txBody><a:p><a:r><a:t>Price</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame>";
    let first = slide(shape("title", "Welcome") + &shape("body", "Gliding is quiet") + &shape("sldNum", "1"));
    let second = slide(shape("body", "Second slide") + table);
    let notes = slide(shape("body", "Say hello first") + &shape("sldNum", "1"));
    let rels = |inner: &str| format!("<Relationships>{inner}</Relationships>");
    let deck_rels = rels(
        "<Relationship Id='rId2' Type='t/slide' Target='slides/slide9.xml'/><Relationship Id='rId1' Type='t/slide' Target='/ppt/slides/slide1.xml'/>",
    );
    let slide_rels = rels("<Relationship Id='rId1' Type='t/notesSlide' Target='../notesSlides/n1.xml'/>");
    // The order of the deck counts, not the numbers of the parts.
    let deck = "<p:presentation xmlns:p='p' xmlns:r='r'><p:sldIdLst><p:sldId id='256' r:id='rId1'/><p:sldId id='257' r:id='rId2'/></p:sldIdLst></p:presentation>";
    zip(&[
        ("ppt/presentation.xml", deck.as_bytes()),
        ("ppt/_rels/presentation.xml.rels", deck_rels.as_bytes()),
        ("ppt/slides/slide1.xml", first.as_bytes()),
        ("ppt/slides/slide9.xml", second.as_bytes()),
        ("ppt/slides/_rels/slide1.xml.rels", slide_rels.as_bytes()),
        ("ppt/notesSlides/n1.xml", notes.as_bytes()),
    ])
}

pub(super) fn xlsx(sheet: &str) -> Vec<u8> {
    const NS: &str = "xmlns='http://schemas.openxmlformats.org/spreadsheetml/2006/main'";
    let sheet = format!(
        "<?xml version='1.0'?><worksheet {NS}><dimension ref='A1:XFD1048576'/><sheetData>{sheet}</sheetData></worksheet>"
    );
    let book = format!(
        "<?xml version='1.0'?><workbook {NS} xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships'><sheets><sheet name='Prices' sheetId='1' r:id='rId1'/></sheets></workbook>"
    );
    let strings = format!(
        "<?xml version='1.0'?><sst {NS}><si><t>Launch</t></si><si><t>Price</t></si><si><t>Winch</t></si></sst>"
    );
    let styles = format!(
        "<?xml version='1.0'?><styleSheet {NS}><cellXfs count='2'><xf numFmtId='0'/><xf numFmtId='14'/></cellXfs></styleSheet>"
    );
    let kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    let rels = format!(
        "<?xml version='1.0'?><Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'>\
         <Relationship Id='rId1' Type='{kind}/worksheet' Target='worksheets/sheet1.xml'/>\
         <Relationship Id='rId2' Type='{kind}/sharedStrings' Target='sharedStrings.xml'/><Relationship Id='rId3' Type='{kind}/styles' Target='styles.xml'/></Relationships>"
    );
    let root = format!(
        "<?xml version='1.0'?><Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'>\
         <Relationship Id='rId1' Type='{kind}/officeDocument' Target='xl/workbook.xml'/></Relationships>"
    );
    zip(&[
        ("_rels/.rels", root.as_bytes()),
        ("xl/workbook.xml", book.as_bytes()),
        ("xl/_rels/workbook.xml.rels", rels.as_bytes()),
        ("xl/worksheets/sheet1.xml", sheet.as_bytes()),
        ("xl/sharedStrings.xml", strings.as_bytes()),
        ("xl/styles.xml", styles.as_bytes()),
    ])
}

/// Two rows with a header, a number, a date and a gap.
pub(super) const SHEET: &str = "<row r='1'><c r='A1' t='s'><v>0</v></c><c r='B1' t='s'><v>1</v></c><c r='D1' t='inlineStr'><is><t>Since</t></is></c></row>\
    <row r='2'><c r='A2' t='s'><v>2</v></c><c r='B2'><v>9</v></c><c r='D2' s='1'><v>45000</v></c></row>\
    <row r='3'><c r='A3' t='inlineStr'><is><t>Tow</t></is></c><c r='B3'><v>42.5</v></c></row>";

pub(super) fn ods() -> Vec<u8> {
    let content = "<?xml version='1.0' encoding='UTF-8'?><office:document-content xmlns:office='urn:oasis:names:tc:opendocument:xmlns:office:1.0' \
        xmlns:table='urn:oasis:names:tc:opendocument:xmlns:table:1.0' xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0'><office:body><office:spreadsheet>\
        <table:table table:name='Prices'><table:table-row><table:table-cell office:value-type='string'><text:p>Launch</text:p></table:table-cell>\
        <table:table-cell office:value-type='string'><text:p>Price</text:p></table:table-cell></table:table-row>\
        <table:table-row><table:table-cell office:value-type='string'><text:p>Winch</text:p></table:table-cell>\
        <table:table-cell office:value-type='float' office:value='9'><text:p>9</text:p></table:table-cell></table:table-row></table:table>\
        </office:spreadsheet></office:body></office:document-content>";
    let manifest =
        "<?xml version='1.0'?><manifest:manifest xmlns:manifest='urn:oasis:names:tc:opendocument:xmlns:manifest:1.0'/>";
    zip(&[
        ("mimetype", b"application/vnd.oasis.opendocument.spreadsheet"),
        ("META-INF/manifest.xml", manifest.as_bytes()),
        ("content.xml", content.as_bytes()),
    ])
}

pub(super) fn epub() -> Vec<u8> {
    let container = "<container xmlns='c'><rootfiles><rootfile full-path='OEBPS/book.opf'/></rootfiles></container>";
    let book = "<package xmlns:dc='d'><metadata><dc:title>A book</dc:title><dc:creator>Ann &amp; Co</dc:creator><dc:creator>Bob</dc:creator></metadata><manifest><item id='b' href='two%20words.xhtml'/><item id='a' href='one.xhtml'/></manifest>\
        <spine><itemref idref='a'/><itemref idref='b'/></spine></package>";
    zip(&[
        ("mimetype", b"application/epub+zip"),
        ("META-INF/container.xml", container.as_bytes()),
        ("OEBPS/book.opf", book.as_bytes()),
        ("OEBPS/one.xhtml", b"<html><body><h1>Chapter one</h1><p>It begins.</p></body></html>"),
        (
            "OEBPS/two words.xhtml",
            b"<html><head><title>Chapter two</title></head><body><p>It ends.</p><script>x()</script></body></html>",
        ),
    ])
}

pub(super) const EMAIL: &str = "From: =?UTF-8?Q?J=C3=B6rg?= <joerg@example.org>\r\nTo: Ada <ada@example.org>, bob@example.org\r\nSubject: =?UTF-8?B?R3LDvMOfZQ==?=\r\n\
Date: Tue, 1 Sep 2026 10:00:00 +0200\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\nContent-Type: multipart/alternative; boundary=C\r\n\r\n\
--C\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nThe caf=E9 is open.\r\n--C\r\nContent-Type: text/html\r\n\r\n<p>The html part</p>\r\n--C--\r\n\
--B\r\nContent-Type: application/pdf; name=\"plan.pdf\"\r\nContent-Disposition: attachment; filename=\"plan.pdf\"\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERi0=\r\n--B--\r\n";
