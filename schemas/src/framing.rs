//! Confluent wire format: a zero byte, the schema id as a big-endian 32-bit number, the Avro body.
//! <https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format>

/// A record's bytes are not framed as they must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer than the five bytes of the header.
    #[error("record of {0} bytes is too short for a schema id")]
    TooShort(usize),
    /// Something else than a zero byte in front.
    #[error("record starts with byte {0:#04x} instead of 0x00")]
    WrongMagic(u8),
}

/// Puts header and body together.
pub fn frame(schema_id: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(5 + body.len());
    out.push(0);
    out.extend_from_slice(&schema_id.to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// Takes header and body apart.
pub fn unframe(bytes: &[u8]) -> Result<(u32, &[u8]), FrameError> {
    let (head, body) = bytes.split_first_chunk::<5>().ok_or(FrameError::TooShort(bytes.len()))?;
    match *head {
        [0, a, b, c, d] => Ok((u32::from_be_bytes([a, b, c, d]), body)),
        [magic, ..] => Err(FrameError::WrongMagic(magic)),
    }
}
