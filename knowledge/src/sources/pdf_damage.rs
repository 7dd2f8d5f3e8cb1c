//! Whether a PDF is whole: its end, and the streams that its pages are drawn by.
//!
//! The library that reads it repairs what it can and is silent about the rest: of a stream that breaks off it gives the
//! beginning, of an object that is gone nothing. What is lost would be missing from every answer, so it is looked for here.
//! What producers get wrong without losing anything is borne.

use std::borrow::Cow;
use std::io::{self, ErrorKind};

use flate2::read::DeflateDecoder;
use lopdf::content::{Content, Operation};
use lopdf::xref::{XrefEntry, XrefRecovery};
use lopdf::{Document, Object, ObjectId, Stream, dictionary};

/// Most pages that a message names.
const MAX_NAMED_PAGES: usize = 10;

/// Whether the bytes are those of a PDF that breaks off: there is no `startxref` (7.5.5) behind its last object, and nobody knows how
/// many came after that one. Bytes behind `%%EOF`, a file without it, and an offset that leads nowhere are common and no sign of it: all
/// objects are there, and are found without the table. The first end of a linearized file (annex F) stands before most of its
/// objects and is none.
pub(super) fn is_cut(bytes: &[u8]) -> bool {
    const HEADER: &[u8] = b"%PDF-";
    const END: &[u8] = b"startxref";
    if !bytes.windows(HEADER.len()).any(|window| window == HEADER) {
        return false;
    }
    match bytes.windows(END.len()).rposition(|window| window == END) {
        None => true,
        Some(end) => has_object(&bytes[end..]),
    }
}

/// Whether an object begins in the bytes, as in `12 0 obj`.
fn has_object(bytes: &[u8]) -> bool {
    const BEGIN: &[u8] = b" obj";
    bytes.windows(BEGIN.len() + 1).any(|window| window[0].is_ascii_digit() && window[1..] == *BEGIN)
}

/// The operations of a page (7.8.2); `None` where some of what they show is lost.
pub(super) fn of_page(document: &Document, page: ObjectId) -> Option<Content> {
    let contents = document.get_dictionary(page).ok()?.get(b"Contents");
    // A stream whose beginning is damaged is read as the dictionary in front of it.
    if let Ok(contents) = contents
        && matches!(document.dereference(contents), Ok((_, Object::Dictionary(_))))
    {
        return None;
    }
    let mut bytes = Vec::new();
    for id in document.get_page_contents(page) {
        match document.get_object(id) {
            Ok(Object::Stream(stream)) => {
                bytes.extend(plain(stream)?);
                bytes.push(b'\n');
            }
            Ok(Object::Dictionary(_)) => return None,
            Ok(_) => {}
            Err(_) if is_lost(document, id) => return None,
            // What no table lists is null (7.3.10): so some producers write a blank page.
            Err(_) => {}
        }
    }
    read_through(&bytes)
}

/// The operations of a form (8.10); `None` where some of what they show is lost.
pub(super) fn of_form(form: &Stream) -> Option<Content> {
    read_through(&plain(form)?)
}

/// Whether an object that can't be had should be there.
fn is_lost(document: &Document, id: ObjectId) -> bool {
    // A table that was made from what the file has left lists nothing that is gone.
    document.xref_recovery == Some(XrefRecovery::Reconstructed)
        || matches!(document.reference_table.get(id.0), Some(XrefEntry::Normal { .. } | XrefEntry::Compressed { .. }))
}

/// The bytes of a stream without its filters; `None` where they are damaged.
fn plain(stream: &Stream) -> Option<Vec<u8>> {
    const DEFLATE: &[u8] = b"FlateDecode";
    let filters = stream.filters().unwrap_or_default();
    if let Some(at) = filters.iter().position(|filter| *filter == DEFLATE) {
        let packed = if at == 0 {
            Cow::Borrowed(stream.content.as_slice())
        } else {
            let before: Vec<Object> = filters[..at].iter().map(|filter| Object::Name(filter.to_vec())).collect();
            let armoured = Stream::new(dictionary! { "Filter" => Object::Array(before) }, stream.content.clone());
            Cow::Owned(armoured.get_plain_content().ok()?)
        };
        if !is_inflated_to_its_end(&packed) {
            return None;
        }
    }
    stream.get_plain_content().ok()
}

/// Whether a deflated stream (RFC 1950) reaches its end. Its checksum is not looked at: some producers get it wrong or leave it
/// out, and no reader asks for it.
fn is_inflated_to_its_end(zlib: &[u8]) -> bool {
    const HEADER_BYTES: usize = 2;
    // What a flush leaves (RFC 1951, 3.2.4, a stored block without bytes): such a stream lacks its end and nothing else.
    const FLUSHED: &[u8] = &[0, 0, 0xff, 0xff];
    let Some(deflated) = zlib.get(HEADER_BYTES..) else { return zlib.is_empty() };
    match io::copy(&mut DeflateDecoder::new(deflated), &mut io::sink()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::UnexpectedEof && deflated.trim_ascii_end().ends_with(FLUSHED),
    }
}

/// The operations, if every text among them could be told. The library stops at the first bytes that it can't read, as within some
/// inline images and at the junk that some producers leave at the end. Where nothing behind them is text, nothing is lost: the text
/// objects (9.4.1) are counted on both sides.
fn read_through(bytes: &[u8]) -> Option<Content> {
    if let Ok(content) = Content::decode_strict(bytes) {
        return Some(content);
    }
    let operations: Vec<Operation> = Content::decode_iter(bytes).map_while(Result::ok).collect();
    let all_told = [b"BT", b"ET"].into_iter().all(|operator| {
        let told = operations.iter().filter(|operation| operation.operator.as_bytes() == operator).count();
        let there = bytes.split(u8::is_ascii_whitespace).filter(|token| **token == *operator).count();
        told >= there
    });
    all_told.then_some(Content { operations })
}

/// `page 3` or `pages 1, 2 and 14`, with the first few and how many more.
pub(super) fn named(pages: &[usize]) -> String {
    let mut parts: Vec<String> = pages.iter().take(MAX_NAMED_PAGES).map(usize::to_string).collect();
    if pages.len() > parts.len() {
        parts.push(format!("{} more", pages.len() - parts.len()));
    }
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() { format!("page {last}") } else { format!("pages {} and {last}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_ends_of_files_when_they_are_looked_at_then_only_what_breaks_off_is_cut() {
        let whole = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\nxref\n0 1\ntrailer\n<<>>\nstartxref\n30\n%%EOF\n".to_vec();
        let with = |tail: &[u8]| [&whole[..], tail].concat();
        for (read, what) in [
            (whole.clone(), "a whole file"),
            (with(b"\0\0\0<html>an objection, by the server</html>"), "bytes behind the end"),
            (whole[..whole.len() - 7].to_vec(), "no %%EOF"),
            (with(b"2 0 obj\n<<>>\nendobj\nstartxref\n90\n%%EOF"), "a later version in the same file"),
            (b"an apology of the server".to_vec(), "no PDF, which another check says"),
        ] {
            assert!(!is_cut(&read), "{what}");
        }
        let end = whole.windows(9).position(|window| window == b"startxref").unwrap();
        for (cut, what) in [
            (whole[..end].to_vec(), "no startxref"),
            (whole[..end + 4].to_vec(), "half of it"),
            (with(b"2 0 obj\n<</Length 900>>\nstream\n"), "an object behind the end of the first part"),
        ] {
            assert!(is_cut(&cut), "{what}");
        }
    }

    #[test]
    fn given_deflated_bytes_when_they_break_off_or_are_changed_then_that_is_seen_and_a_wrong_checksum_is_not() {
        let text = b"BT /F1 12 Tf (Gliding is quiet, and towing is not) Tj ET".repeat(20);
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        io::Write::write_all(&mut encoder, &text).unwrap();
        io::Write::flush(&mut encoder).unwrap();
        let flushed = encoder.get_ref().clone();
        let whole = encoder.finish().unwrap();
        assert!(is_inflated_to_its_end(&whole));
        assert!(is_inflated_to_its_end(&whole[..whole.len() - 4]), "without its checksum");
        assert!(is_inflated_to_its_end(&[&whole[..], b"\r\n"].concat()), "with the end of a line behind it");
        assert!(is_inflated_to_its_end(&flushed), "flushed and never finished");
        assert!(is_inflated_to_its_end(b""));
        for end in [3, whole.len() / 2, whole.len() - 8] {
            assert!(!is_inflated_to_its_end(&whole[..end]), "{end} of {}", whole.len());
        }
        let mut changed = whole;
        // A block of the kind that there is none of (RFC 1951, 3.2.3).
        changed[2] |= 0b110;
        assert!(!is_inflated_to_its_end(&changed));
    }

    #[test]
    fn given_operations_that_break_off_when_they_are_read_then_lost_text_is_seen_and_junk_behind_it_is_borne() {
        let whole = b"q BT /F1 12 Tf (one) Tj ET Q\nBT (two) Tj ET\n";
        assert_eq!(read_through(whole).unwrap().operations.len(), 9);
        for junk in [&b"0 0 612 792"[..], b"\0\0\0", b"] >>"] {
            assert!(read_through(&[&whole[..], junk].concat()).is_some(), "{junk:?}");
        }
        let image = b"BT (one) Tj ET BI /W 1 /H 1 /BPC 8 /CS /G ID xyzEI ";
        assert_eq!(read_through(image).unwrap().operations.len(), 3, "an inline image of another size than it says");
        let garbage = [&whole[..], b"\x01\x02>> BT (three) Tj ET"].concat();
        assert!(read_through(&garbage).is_none());
        assert!(read_through(b"BT (one) Tj >> (two) Tj ET").is_none());
    }

    #[test]
    fn given_pages_when_they_are_named_then_the_list_reads_well_and_is_bounded() {
        assert_eq!(named(&[3]), "page 3");
        assert_eq!(named(&[3, 4]), "pages 3 and 4");
        assert_eq!(named(&[1, 2, 14]), "pages 1, 2 and 14");
        let many: Vec<usize> = (1..=25).collect();
        assert_eq!(named(&many), "pages 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 15 more");
    }
}
