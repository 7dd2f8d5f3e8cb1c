//! Requests written from their shape, their values by chance.

use kafka_protocol::messages::ApiKey;
use riverrun_broker::versions::is_flexible;
use riverrun_broker::wire::batch::{BatchHeader, build_batch};
use riverrun_broker::wire::shape::{Field, Kind};
use riverrun_broker::wire::shapes::shape_of;

/// A small pseudo-random generator (Knuth's MMIX multiplier), so that a failure can be repeated.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

struct Writer<'a> {
    dice: &'a mut Dice,
    version: i16,
    flexible: bool,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn structure(&mut self, fields: &[Field]) {
        for field in fields {
            if (field.min..=field.max).contains(&self.version) {
                self.value(&field.kind);
            }
        }
        if self.flexible {
            self.out.push(0);
        }
    }

    fn length(&mut self, width: usize, length: Option<usize>) {
        match (self.flexible, length) {
            (true, length) => {
                let mut value = length.map_or(0, |length| length + 1);
                while value >= 0x80 {
                    self.out.push(value as u8 | 0x80);
                    value >>= 7;
                }
                self.out.push(value as u8);
            }
            (false, None) => self.out.extend_from_slice(&[0xff; 4][..width]),
            (false, Some(length)) => self.out.extend_from_slice(&(length as u32).to_be_bytes()[4 - width..]),
        }
    }

    fn value(&mut self, kind: &Kind) {
        match kind {
            Kind::Fixed(1) => self.out.push(self.dice.pick(&[0, 1])),
            // Not 0, which is "no answer" in a produce request.
            Kind::Fixed(2) => {
                let value: i16 = self.dice.pick(&[-1, 1]);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            Kind::Fixed(4) => {
                let value: i32 = self.dice.pick(&[-1, 0, 1, 2, 100]);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            Kind::Fixed(8) => {
                let value: i64 = self.dice.pick(&[-5, -4, -3, -2, -1, 0, 1, 1000]);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            Kind::Fixed(size) => self.out.extend(std::iter::repeat_n(0, *size)),
            Kind::Text => self.text(false),
            Kind::NullableText => self.text(true),
            Kind::Blob => self.blob(false),
            Kind::NullableBlob => self.blob(true),
            Kind::Structs(fields) => self.array(false, |writer| writer.structure(fields)),
            Kind::NullableStructs(fields) => self.array(true, |writer| writer.structure(fields)),
            Kind::Values(kind) => self.array(false, |writer| writer.value(kind)),
            Kind::NullableValues(kind) => self.array(true, |writer| writer.value(kind)),
        }
    }

    fn text(&mut self, nullable: bool) {
        if nullable && self.dice.roll(3) == 0 {
            return self.length(2, None);
        }
        let text = match self.dice.roll(6) {
            0 => String::new(),
            1 => "t".into(),
            2 => "range".into(),
            3 => "retention.ms".into(),
            4 => "Stable".into(),
            _ => format!("n{}", self.dice.roll(500)),
        };
        self.length(2, Some(text.len()));
        self.out.extend_from_slice(text.as_bytes());
    }

    fn blob(&mut self, nullable: bool) {
        if nullable && self.dice.roll(5) == 0 {
            return self.length(4, None);
        }
        let blob = if self.dice.roll(3) == 0 { vec![7; self.dice.roll(90)] } else { batch() };
        self.length(4, Some(blob.len()));
        self.out.extend_from_slice(&blob);
    }

    fn array(&mut self, nullable: bool, mut element: impl FnMut(&mut Self)) {
        if nullable && self.dice.roll(4) == 0 {
            return self.length(4, None);
        }
        let count = self.dice.roll(3);
        self.length(4, Some(count));
        (0..count).for_each(|_| element(self));
    }
}

/// A batch of one record without key or value.
fn batch() -> Vec<u8> {
    let header = BatchHeader {
        base_offset: 0,
        size: 0,
        attributes: 0,
        last_offset_delta: 0,
        base_timestamp: 1_000,
        max_timestamp: 1_000,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records: 1,
    };
    build_batch(&header, &[12, 0, 0, 0, 1, 1, 0])
}

/// A request of this version, its values by chance.
pub(crate) fn body(key: ApiKey, version: i16, dice: &mut Dice) -> Vec<u8> {
    let mut writer = Writer { dice, version, flexible: is_flexible(key, version), out: Vec::new() };
    writer.structure(shape_of(key));
    writer.out
}
