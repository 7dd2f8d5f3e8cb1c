//! From bytes to text, without guessing where a guess could garble.
//!
//! A byte order mark decides. Without one the text is UTF-8; bytes that are not are read as windows-1252 only when nothing
//! speaks for broken UTF-8 or for binary data, because then every byte would "succeed" as some character.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use super::SourceError;

/// Beginnings of formats that are often misnamed as text. Longer ones first where one begins another.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a zip archive (or an office document)"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"\xd0\xcf\x11\xe0", "an old office document"),
];

/// Share of control characters from which on bytes count as binary: text has next to none, binary data about one in ten.
const MAX_CONTROL_SHARE: f64 = 0.01;

/// Share of bytes above 127 up to which bytes that are no UTF-8 count as windows-1252: Western prose has below one in five.
const MAX_HIGH_SHARE: f64 = 0.3;

/// Bytes that windows-1252 leaves undefined.
const UNDEFINED_1252: [u8; 5] = [0x81, 0x8d, 0x8f, 0x90, 0x9d];

/// The text of a document. Refuses what is binary, broken or empty; keeps line endings as they are.
pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<String, SourceError> {
    refuse_signatures(name, bytes)?;
    let text = to_text(name, bytes)?;
    refuse_controls(name, &text)?;
    if text.trim().is_empty() {
        let detail = if text.is_empty() { "" } else { ": it has nothing but white space" };
        return Err(SourceError::Empty { name: name.to_owned(), detail });
    }
    Ok(text)
}

/// The encoding that [`decode`] read these bytes in, once it has.
pub(super) fn encoding_of(bytes: &[u8]) -> &'static str {
    match Encoding::for_bom(bytes) {
        Some((encoding, _)) => encoding.name(),
        None if std::str::from_utf8(bytes).is_ok() => UTF_8.name(),
        None => WINDOWS_1252.name(),
    }
}

/// The encoding that [`decode_any`] read these bytes in, once it has.
pub(super) fn encoding_of_any(bytes: &[u8], declared: Option<&'static Encoding>) -> &'static str {
    if Encoding::for_bom(bytes).is_some() || std::str::from_utf8(bytes).is_ok() {
        return encoding_of(bytes);
    }
    other_encoding(bytes, declared).name()
}

/// The encoding of bytes that are no UTF-8 and have no byte order mark.
fn other_encoding(bytes: &[u8], declared: Option<&'static Encoding>) -> &'static Encoding {
    let guess = || {
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
        detector.feed(bytes, true);
        detector.guess(None, Utf8Detection::Deny)
    };
    declared.filter(|encoding| *encoding != UTF_8).unwrap_or_else(guess)
}

/// The text of a document whose format has no rule for its encoding, and whose writers use many: a byte order mark decides,
/// then UTF-8, then `declared`, then the encoding that its bytes look most like.
pub(super) fn decode_any(name: &str, bytes: &[u8], declared: Option<&'static Encoding>) -> Result<String, SourceError> {
    let failure = match decode(name, bytes) {
        Err(failure @ SourceError::BadEncoding { .. }) if Encoding::for_bom(bytes).is_none() => failure,
        // What is plainly no UTF-8 is read as Windows-1252 there; here there is more to choose from.
        Ok(_) if std::str::from_utf8(bytes).is_err() && Encoding::for_bom(bytes).is_none() => {
            SourceError::BadEncoding {
                name: name.to_owned(),
                encoding: "UTF-8",
                reason: "and nothing that it could be instead".to_owned(),
            }
        }
        other => return other,
    };
    let encoding = other_encoding(bytes, declared);
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes).ok_or(failure)?;
    refuse_controls(name, &text)?;
    Ok(text.into_owned())
}

/// Whether bytes of unknown kind can be taken as text. An empty document can.
pub(super) fn looks_like_text(bytes: &[u8]) -> bool {
    matches!(decode("", bytes), Ok(_) | Err(SourceError::Empty { .. }))
}

fn refuse_signatures(name: &str, bytes: &[u8]) -> Result<(), SourceError> {
    match SIGNATURES.iter().find(|(signature, _)| bytes.starts_with(signature)) {
        None => Ok(()),
        Some((_, found)) => Err(SourceError::Binary {
            name: name.to_owned(),
            found: (*found).to_owned(),
            fix: "give the file its real extension, or convert it to text first".to_owned(),
        }),
    }
}

fn to_text(name: &str, bytes: &[u8]) -> Result<String, SourceError> {
    if bytes.starts_with(b"\xff\xfe\0\0") || bytes.starts_with(b"\0\0\xfe\xff") {
        return Err(SourceError::Binary {
            name: name.to_owned(),
            found: "UTF-32 data".to_owned(),
            fix: format!("convert it: iconv -f UTF-32 -t UTF-8 '{name}'"),
        });
    }
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        return utf8(name, rest);
    }
    for (mark, encoding, label) in
        [(b"\xff\xfe", UTF_16LE, "UTF-16 (little endian)"), (b"\xfe\xff", UTF_16BE, "UTF-16 (big endian)")]
    {
        if let Some(rest) = bytes.strip_prefix(mark) {
            return utf16(name, rest, encoding, label);
        }
    }
    if bytes.contains(&0) {
        return Err(zero_bytes(name));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) if is_windows_1252(bytes) => Ok(WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned()),
        Err(_) => utf8(name, bytes),
    }
}

fn utf8(name: &str, bytes: &[u8]) -> Result<String, SourceError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| SourceError::BadEncoding {
        name: name.to_owned(),
        encoding: "UTF-8",
        reason: format!("the byte at {} fits nowhere", error.valid_up_to()),
    })
}

fn utf16(name: &str, bytes: &[u8], encoding: &'static Encoding, label: &'static str) -> Result<String, SourceError> {
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes);
    text.map(|text| text.into_owned()).ok_or_else(|| SourceError::BadEncoding {
        name: name.to_owned(),
        encoding: label,
        reason: "a pair is broken or cut off".to_owned(),
    })
}

fn zero_bytes(name: &str) -> SourceError {
    SourceError::Binary {
        name: name.to_owned(),
        found: "binary data (zero bytes)".to_owned(),
        fix: format!(
            "give the file its real extension; if it is text in UTF-16 without a byte order mark, convert it: iconv -f UTF-16LE -t UTF-8 '{name}'"
        ),
    }
}

/// Bytes that are no UTF-8 but read well in windows-1252. One valid multi-byte sequence makes them broken UTF-8 instead: such
/// sequences hardly occur in windows-1252, and reading broken UTF-8 byte by byte would garble the whole document.
fn is_windows_1252(bytes: &[u8]) -> bool {
    let has_utf8 = bytes.utf8_chunks().any(|chunk| !chunk.valid().is_ascii());
    let high = bytes.iter().filter(|byte| **byte >= 0x80).count();
    let undefined = bytes.iter().any(|byte| UNDEFINED_1252.contains(byte));
    !has_utf8 && !undefined && (high as f64) <= MAX_HIGH_SHARE * bytes.len() as f64
}

fn refuse_controls(name: &str, text: &str) -> Result<(), SourceError> {
    if text.contains('\0') {
        return Err(zero_bytes(name));
    }
    // Form feeds part pages, and escapes colour logs: both are found in honest text.
    let is_foreign = |c: &char| c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0b' | '\x0c' | '\x1b');
    let controls = text.chars().filter(is_foreign).count();
    if controls as f64 > MAX_CONTROL_SHARE * text.len() as f64 {
        return Err(SourceError::Binary {
            name: name.to_owned(),
            found: format!("binary data ({controls} control characters)"),
            fix: "give the file its real extension, or convert it to text first".to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(bytes: &[u8]) -> &'static str {
        decode("a.txt", bytes).err().map_or("ok", |error| error.code())
    }

    #[test]
    fn given_every_accepted_encoding_when_decoded_then_the_text_is_the_same() {
        let text = "Größe: 5 €\r\nzweite Zeile\n";
        let utf16 = |to: fn(u16) -> [u8; 2], mark: [u8; 2]| -> Vec<u8> {
            mark.into_iter().chain(text.encode_utf16().flat_map(to)).collect()
        };
        let forms: [Vec<u8>; 5] = [
            text.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            utf16(u16::to_le_bytes, [0xff, 0xfe]),
            utf16(u16::to_be_bytes, [0xfe, 0xff]),
            b"Gr\xf6\xdfe: 5 \x80\r\nzweite Zeile\n".to_vec(),
        ];
        let names = ["UTF-8", "UTF-8", "UTF-16LE", "UTF-16BE", "windows-1252"];
        for (form, name) in forms.iter().zip(names) {
            assert_eq!(decode("a.txt", form).as_deref(), Ok(text), "{form:?}");
            assert_eq!(encoding_of(form), name, "{form:?}");
        }
    }

    #[test]
    fn given_bytes_that_are_no_text_when_decoded_then_each_kind_has_its_code() {
        for (bytes, expected) in [
            (&b""[..], "empty_document"),
            (b" \r\n\t ", "empty_document"),
            (b"\xef\xbb\xbf", "empty_document"),
            (b"\xff\xfe", "empty_document"),
            (b"a\0b", "binary_content"),
            (b"h\0e\0l\0l\0o\0", "binary_content"),
            (b"\xff\xfe\0\0h\0\0\0", "binary_content"),
            (b"%PDF-1.4 text", "binary_content"),
            (b"PK\x03\x04rest", "binary_content"),
            (b"\x01\x02\x03\x04 some text", "binary_content"),
            (b"\xff\xfeh\0e", "bad_encoding"),
            (b"\xff\xfe\x00\xd8h\0", "bad_encoding"),
            ("grün und bl\u{e4}u".as_bytes().split_last().unwrap().1, "ok"),
            (b"gr\xc3\xbcn und bl\xe4u", "bad_encoding"),
            (b"\xcf\xf0\xe8\xe2\xe5\xf2", "bad_encoding"),
            (b"caf\x81 noir", "bad_encoding"),
            (b"\x1b[31mred\x1b[0m log line", "ok"),
        ] {
            assert_eq!(code(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn given_binary_content_when_refused_then_the_hint_is_a_fix() {
        let error = decode("a.txt", b"h\0i\0").unwrap_err();
        assert!(error.hint().unwrap().contains("iconv -f UTF-16LE"));
        let error = decode("a.txt", b"%PDF-1.7").unwrap_err();
        assert_eq!(error.to_string(), "a.txt holds a PDF document, not text");
    }

    #[test]
    fn given_other_encodings_when_any_may_be_then_they_are_told_by_their_bytes_or_by_what_is_declared() {
        let russian = "Погода сегодня хорошая, и мы пойдём гулять в парк.";
        // KOI8-U is KOI8-R with more letters, so that one is named.
        for (encoding, told) in [(encoding_rs::WINDOWS_1251, "windows-1251"), (encoding_rs::KOI8_R, "KOI8-U")] {
            let (bytes, ..) = encoding.encode(russian);
            assert_eq!(decode_any("a.csv", &bytes, None).as_deref(), Ok(russian), "{}", encoding.name());
            assert_eq!(encoding_of_any(&bytes, None), told);
        }
        let (bytes, ..) = encoding_rs::SHIFT_JIS.encode("日本語");
        assert_eq!(decode_any("a.html", &bytes, Some(encoding_rs::SHIFT_JIS)).as_deref(), Ok("日本語"));
        assert_eq!(decode_any("a.csv", b"caf\xe9;1", None).as_deref(), Ok("café;1"));
        assert_eq!(decode_any("a.csv", b"a\0b", None).unwrap_err().code(), "binary_content");
        assert_eq!(decode_any("a.csv", b"\xff\xfeh", None).unwrap_err().code(), "bad_encoding");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic_and_utf8_stays_as_it_is(bytes: Vec<u8>, text: String) {
            let _ = decode("x", &bytes);
            if let Ok(decoded) = decode("x", text.as_bytes()) {
                prop_assert_eq!(decoded, text.strip_prefix('\u{feff}').unwrap_or(&text));
            }
        }
    }
}
