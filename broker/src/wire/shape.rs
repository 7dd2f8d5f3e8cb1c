//! The shape of a request: enough of its schema to walk it without building anything.
//!
//! The codec allocates whatever an array's length field claims. Therefore every request is walked first: each length must fit
//! into what remains of the frame, and the number of elements is limited, so that a frame cannot cost much more memory than
//! its own size. `WIRE-1`: no length field is believed before it has been compared with the bytes that are there.

use kafka_protocol::messages::ApiKey;

use super::shapes::shape_of;
use crate::versions::is_flexible;

/// Most array elements in one request; a codec element is around 100 bytes, so this bounds a decoded request to ~50 MB.
pub const MAX_ELEMENTS: usize = 500_000;

/// The type of a field on the wire.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// So many bytes, no length.
    Fixed(usize),
    /// A length and text.
    Text,
    /// Text that may be null.
    NullableText,
    /// A length of four bytes (or compact) and bytes.
    Blob,
    /// The same, may be null.
    NullableBlob,
    /// A count and that many structures.
    Structs(&'static [Field]),
    /// The same, may be null.
    NullableStructs(&'static [Field]),
    /// A count and that many values of one simple type.
    Values(&'static Kind),
    /// The same, may be null.
    NullableValues(&'static Kind),
}

/// A field and the versions that have it.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its type.
    pub kind: Kind,
    /// First version with it.
    pub min: i16,
    /// Last version with it.
    pub max: i16,
}

/// Why a request cannot be what it says it is.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShapeError {
    /// A length or count points beyond the frame.
    #[error("length {claimed} at byte {at} exceeds the {remaining} bytes that remain in the frame")]
    Beyond {
        /// What the field claims.
        claimed: i64,
        /// Where it stands, from the start of the request body.
        at: usize,
        /// What is left.
        remaining: usize,
    },
    /// A null where the protocol has none.
    #[error("null at byte {at} where the protocol allows none")]
    Null {
        /// Where.
        at: usize,
    },
    /// More array elements than [`MAX_ELEMENTS`].
    #[error("more than {MAX_ELEMENTS} array elements in one request")]
    TooManyElements,
    /// A variable-length integer of more than five bytes.
    #[error("malformed variable-length integer at byte {at}")]
    Varint {
        /// Where.
        at: usize,
    },
}

/// Checks that `body` begins with one request of `key` and `version` as far as its lengths go; returns how long that is.
pub fn check(key: ApiKey, version: i16, body: &[u8]) -> Result<usize, ShapeError> {
    let mut walk = Walk { body, at: 0, elements: 0, version, flexible: is_flexible(key, version) };
    walk.structure(shape_of(key))?;
    Ok(walk.at)
}

struct Walk<'a> {
    body: &'a [u8],
    at: usize,
    elements: usize,
    version: i16,
    flexible: bool,
}

impl Walk<'_> {
    fn structure(&mut self, fields: &[Field]) -> Result<(), ShapeError> {
        for field in fields {
            if (field.min..=field.max).contains(&self.version) {
                self.value(&field.kind)?;
            }
        }
        if self.flexible { self.tagged_fields() } else { Ok(()) }
    }

    fn value(&mut self, kind: &Kind) -> Result<(), ShapeError> {
        match kind {
            Kind::Fixed(size) => self.skip(*size as i64),
            Kind::Text | Kind::NullableText => {
                let nullable = matches!(kind, Kind::NullableText);
                let length = self.length(2, nullable)?;
                length.map_or(Ok(()), |length| self.skip(length))
            }
            Kind::Blob | Kind::NullableBlob => {
                let nullable = matches!(kind, Kind::NullableBlob);
                let length = self.length(4, nullable)?;
                length.map_or(Ok(()), |length| self.skip(length))
            }
            Kind::Structs(fields) => self.array(false, |walk| walk.structure(fields)),
            Kind::NullableStructs(fields) => self.array(true, |walk| walk.structure(fields)),
            Kind::Values(kind) => self.array(false, |walk| walk.value(kind)),
            Kind::NullableValues(kind) => self.array(true, |walk| walk.value(kind)),
        }
    }

    fn array(
        &mut self,
        nullable: bool,
        mut element: impl FnMut(&mut Self) -> Result<(), ShapeError>,
    ) -> Result<(), ShapeError> {
        let at = self.at;
        let Some(count) = self.length(4, nullable)? else { return Ok(()) };
        let remaining = self.body.len() - self.at;
        // An element has at least one byte, so a count beyond the remaining bytes is a lie.
        let count = usize::try_from(count).ok().filter(|count| *count <= remaining).ok_or(ShapeError::Beyond {
            claimed: count,
            at,
            remaining,
        })?;
        self.elements += count;
        if self.elements > MAX_ELEMENTS {
            return Err(ShapeError::TooManyElements);
        }
        (0..count).try_for_each(|_| element(self))
    }

    /// A length of `width` bytes, or a compact one; `None` is null.
    fn length(&mut self, width: usize, nullable: bool) -> Result<Option<i64>, ShapeError> {
        let at = self.at;
        let length = if self.flexible {
            i64::from(self.varint()?) - 1
        } else {
            let bytes = self.take(width)?;
            match *bytes {
                [a, b] => i64::from(i16::from_be_bytes([a, b])),
                [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
                _ => unreachable!("lengths are two or four bytes wide"),
            }
        };
        match length {
            -1 if nullable => Ok(None),
            -1 => Err(ShapeError::Null { at }),
            _ => Ok(Some(length)),
        }
    }

    fn tagged_fields(&mut self) -> Result<(), ShapeError> {
        let at = self.at;
        let count = i64::from(self.varint()?);
        let remaining = self.body.len() - self.at;
        if count > remaining as i64 {
            return Err(ShapeError::Beyond { claimed: count, at, remaining });
        }
        self.elements += count as usize;
        if self.elements > MAX_ELEMENTS {
            return Err(ShapeError::TooManyElements);
        }
        for _ in 0..count {
            self.varint()?;
            let size = i64::from(self.varint()?);
            self.skip(size)?;
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u32, ShapeError> {
        let at = self.at;
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ShapeError::Varint { at })
    }

    fn skip(&mut self, size: i64) -> Result<(), ShapeError> {
        let (at, remaining) = (self.at, self.body.len() - self.at);
        match usize::try_from(size) {
            Ok(size) if size <= remaining => {
                self.at += size;
                Ok(())
            }
            _ => Err(ShapeError::Beyond { claimed: size, at, remaining }),
        }
    }

    fn take(&mut self, size: usize) -> Result<&[u8], ShapeError> {
        let start = self.at;
        self.skip(size as i64)?;
        Ok(&self.body[start..start + size])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::versions::ANNOUNCED;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn given_any_bytes_when_walked_as_any_request_then_no_more_is_believed_than_is_there(
            api in 0..ANNOUNCED.len(),
            version in 0i16..20,
            body in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let api = ANNOUNCED[api];
            let version = version.clamp(api.min, api.max);
            if let Ok(length) = check(api.key, version, &body) {
                prop_assert!(length <= body.len());
            }
        }
    }
}
