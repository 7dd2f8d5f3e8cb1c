//! Frames of AWS (`application/vnd.amazon.eventstream`), written by the documentation of the format and not by the code that reads them.
#![allow(dead_code, reason = "each test uses its own part")]

/// The checksum of frames, by its definition (reflected, 0xEDB88320).
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// A frame with headers of text, by the documentation of the format.
pub(crate) fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut named = Vec::new();
    for (name, value) in headers {
        named.push(u8::try_from(name.len()).unwrap());
        named.extend_from_slice(name.as_bytes());
        named.push(7);
        named.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        named.extend_from_slice(value.as_bytes());
    }
    let length = u32::try_from(16 + named.len() + payload.len()).unwrap();
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&u32::try_from(named.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&crc32(&frame).to_be_bytes());
    frame.extend_from_slice(&named);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&crc32(&frame).to_be_bytes());
    frame
}

/// An event of a stream; the payload is JSON.
pub(crate) fn event(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, payload.as_bytes())
}

/// A failure that the service knows, within a stream.
pub(crate) fn exception(kind: &str, message: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":content-type", "application/json"), (":message-type", "exception")];
    frame(&headers, serde_json::json!({ "message": message }).to_string().as_bytes())
}

/// A failure that it does not know.
pub(crate) fn error(code: &str, message: &str) -> Vec<u8> {
    frame(&[(":error-code", code), (":error-message", message), (":message-type", "error")], b"")
}
