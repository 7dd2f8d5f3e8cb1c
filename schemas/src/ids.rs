//! Typed, readable ids in the TypeID form (<https://github.com/jetify-com/typeid>): a prefix and a UUID in Crockford
//! base 32, so `run_01h455vb4pex5vsknk084sn02q`. New ids are UUIDv7 and sort by time; an id that follows from a cause is
//! a UUIDv5 of that cause, so that the same cause gives the same id wherever and however often it is computed.
//!
//! A kind may have had another prefix before. Its ids are read with either and new ones have the new one; an id that was
//! written with the old one keeps it, since it is the key of records and rows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const SUFFIX_LEN: usize = 26;

/// The name space of every derived id. Changing it changes every derived id: it never changes.
const DERIVED: Uuid = Uuid::from_u128(0x5f2b_1d6e_8c0a_4e37_9a41_72d9_03c6_b85f);

/// The bits that tell neighbours apart.
const SECOND_HALF: u128 = (1 << 64) - 1;

/// A text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no {kind} id; expected {prefix}_ followed by 26 characters of base 32")]
pub struct IdError {
    kind: String,
    prefix: &'static str,
    value: String,
}

impl IdError {
    /// What people call a thing with such an id, in lower case: `run`, `document`, `training`.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

/// What people call a thing whose id is of this type.
fn said(type_name: &str) -> String {
    match type_name {
        "FinetuneId" => "training".to_owned(),
        other => other.trim_end_matches("Id").to_lowercase(),
    }
}

fn encode(uuid: Uuid) -> String {
    let value = uuid.as_u128();
    (0..SUFFIX_LEN).rev().map(|i| ALPHABET[((value >> (5 * i)) & 31) as usize] as char).collect()
}

fn decode(suffix: &str) -> Option<Uuid> {
    let bytes = suffix.as_bytes();
    // 26 × 5 = 130 bits: the first character may only carry three.
    if bytes.len() != SUFFIX_LEN || bytes[0] > b'7' {
        return None;
    }
    bytes
        .iter()
        .try_fold(0u128, |value, byte| {
            let digit = ALPHABET.iter().position(|c| c == byte)?;
            Some((value << 5) | digit as u128)
        })
        .map(Uuid::from_u128)
}

fn derive(prefix: &str, parts: &[&str]) -> Uuid {
    // Each part carries its length, so that ("a", "bc") and ("ab", "c") differ.
    let mut name = Vec::with_capacity(64);
    for part in std::iter::once(&prefix).chain(parts) {
        name.extend_from_slice(&(part.len() as u64).to_be_bytes());
        name.extend_from_slice(part.as_bytes());
    }
    Uuid::new_v5(&DERIVED, &name)
}

/// The first half of one and the second of the other: still a UUIDv5 by its version and variant, of which each half has one.
fn beside(one: Uuid, other: Uuid) -> Uuid {
    Uuid::from_u128((one.as_u128() & !SECOND_HALF) | (other.as_u128() & SECOND_HALF))
}

macro_rules! typed_ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal $(, once $once:literal)?;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            uuid: Uuid,
            /// Which of the prefixes it is written with.
            spelling: u8,
        }

        impl $name {
            /// What stands before the underscore of new ids.
            pub const PREFIX: &'static str = $prefix;

            /// Every prefix that is read, the one of new ids first.
            const SPELLINGS: &'static [&'static str] = &[$prefix $(, $once)?];

            const fn of(uuid: Uuid) -> Self {
                Self { uuid, spelling: 0 }
            }

            /// A new id that sorts by the time of its making.
            #[allow(clippy::new_without_default)] // a default that differs at every call would be a trap
            pub fn new() -> Self {
                Self::of(Uuid::now_v7())
            }

            /// The id that follows from `parts`: the same parts give the same id, always.
            pub fn derive(parts: &[&str]) -> Self {
                Self::of(derive($prefix, parts))
            }

            /// The id whose first half follows from `parts` and whose second half from `rest`: those of the same `parts` are
            /// [`neighbours`](Self::neighbours), so that whoever has one of them finds the others.
            pub fn derive_beside(parts: &[&str], rest: &[&str]) -> Self {
                Self::of(beside(derive($prefix, parts), derive($prefix, rest)))
            }

            /// The least and the greatest id with the first half of this one. In the order of their texts, too, nothing else lies between.
            pub fn neighbours(&self) -> (Self, Self) {
                let least = self.uuid.as_u128() & !SECOND_HALF;
                (Self::of(Uuid::from_u128(least)), Self::of(Uuid::from_u128(least | SECOND_HALF)))
            }

            /// The id as a UUID, for stores that want one.
            pub fn as_uuid(&self) -> Uuid {
                self.uuid
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}_{}", Self::SPELLINGS[usize::from(self.spelling)], encode(self.uuid))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(value: &str) -> Result<Self, IdError> {
                let read = |(spelling, prefix): (u8, &&'static str)| {
                    let uuid = value.strip_prefix(*prefix)?.strip_prefix('_').and_then(decode)?;
                    Some(Self { uuid, spelling })
                };
                (0..)
                    .zip(Self::SPELLINGS)
                    .find_map(read)
                    .ok_or_else(|| IdError { kind: said(stringify!($name)), prefix: $prefix, value: value.chars().take(80).collect() })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

typed_ids! {
    /// One run of an agent.
    RunId = "run";
    /// Several runs of which some wait for the answers of others.
    ChainId = "chn";
    /// One request to read a source into a collection.
    IngestId = "ing";
    /// One source within a collection, whatever its version.
    DocumentId = "doc";
    /// One span of one version of a document.
    ChunkId = "chk";
    /// One record on the log.
    EventId = "evt";
    /// One thing said in a conversation.
    TurnId = "trn";
    /// One state of a conversation's running summary.
    SummaryId = "sum";
    /// One exchange that can be recalled.
    EpisodeId = "epi";
    /// One fact that an agent put down.
    NoteId = "nte";
    /// One request to forget.
    ForgetId = "fgt";
    /// One training of a model.
    FinetuneId = "job", once "ftj";
    /// One imported project.
    ProjectId = "prj";
    /// One analysis of a project.
    AnalysisId = "anl";
    /// One proposed rewrite of a file.
    ProposalId = "prp";
    /// One request to change a file of a copy.
    ChangeId = "chg";
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_typeid_vector_is_read_and_written() {
        // From the TypeID specification's valid.yml.
        let id = RunId::of(Uuid::parse_str("01890a5d-ac96-774b-bcce-b302099a8057").unwrap());
        assert_eq!(id.to_string(), "run_01h455vb4pex5vsknk084sn02q");
        assert_eq!("run_01h455vb4pex5vsknk084sn02q".parse(), Ok(id));
    }

    #[test]
    fn ids_of_another_kind_or_damaged_are_refused() {
        let id = RunId::new().to_string();
        for bad in [
            "",
            "run_",
            "run",
            "doc_01h455vb4pex5vsknk084sn02q",
            "run_81h455vb4pex5vsknk084sn02q",
            "run_01h455vb4pex5vsknk084sn02u",
            "run_01h455vb4pex5vsknk084sn02",
            &id.to_uppercase(),
        ] {
            assert!(bad.parse::<RunId>().is_err(), "{bad} was taken");
        }
        let said = "nope".parse::<RunId>().unwrap_err().to_string();
        assert_eq!(said, "\"nope\" is no run id; expected run_ followed by 26 characters of base 32");
        assert_eq!("nope".parse::<DocumentId>().unwrap_err().kind(), "document");
        assert!("nope".parse::<FinetuneId>().unwrap_err().to_string().contains("is no training id; expected job_"));
    }

    #[test]
    fn ids_of_a_former_prefix_are_read_and_stay_what_they_are_and_new_ones_have_the_new_one() {
        for new in [FinetuneId::new(), FinetuneId::derive(&["a"])] {
            assert!(new.to_string().starts_with("job_"), "{new}");
            assert_eq!(new.to_string().parse(), Ok(new));
        }
        let text = "ftj_01h455vb4pex5vsknk084sn02q";
        let former: FinetuneId = text.parse().unwrap();
        assert_eq!(former.to_string(), text, "it is the key of records and rows");
        assert_eq!(serde_json::to_value(former).unwrap(), text);
        assert_eq!(serde_json::from_value::<FinetuneId>(text.into()).unwrap(), former);
        for other in
            ["ftj01h455vb4pex5vsknk084sn02q", "jobs_01h455vb4pex5vsknk084sn02q", "run_01h455vb4pex5vsknk084sn02q"]
        {
            assert!(other.parse::<FinetuneId>().is_err(), "{other} was taken");
        }
        assert!("ftj_01h455vb4pex5vsknk084sn02q".parse::<RunId>().is_err());
    }

    #[test]
    fn derived_ids_depend_on_every_part_and_on_nothing_else() {
        assert_eq!(EventId::derive(&["a", "bc"]), EventId::derive(&["a", "bc"]));
        assert_ne!(EventId::derive(&["a", "bc"]), EventId::derive(&["ab", "c"]));
        assert_ne!(EventId::derive(&["a"]).as_uuid(), RunId::derive(&["a"]).as_uuid());
    }

    #[test]
    fn neighbours_are_of_the_same_parts_and_lie_together_also_as_texts() {
        let first = IngestId::derive_beside(&["key", "a"], &["body"]);
        assert_eq!(first, IngestId::derive_beside(&["key", "a"], &["body"]));
        assert_eq!(first.as_uuid().get_version_num(), 5);
        let (least, greatest) = first.neighbours();
        let between = |id: IngestId| (least.to_string()..=greatest.to_string()).contains(&id.to_string());
        for (id, near) in [
            (first, true),
            (IngestId::derive_beside(&["key", "a"], &["another body"]), true),
            (IngestId::derive(&["key", "a"]), true),
            (IngestId::derive_beside(&["key", "b"], &["body"]), false),
            (IngestId::derive(&["key", "b"]), false),
            (IngestId::new(), false),
        ] {
            assert_eq!((between(id), id.neighbours() == (least, greatest)), (near, near), "{id}");
        }
        assert_ne!(first, IngestId::derive_beside(&["key", "a"], &["another body"]));
    }

    proptest! {
        #[test]
        fn every_uuid_survives_the_text_form(value: u128) {
            let id = ChunkId::of(Uuid::from_u128(value));
            prop_assert_eq!(id.to_string().parse::<ChunkId>().unwrap(), id);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            let _ = text.parse::<RunId>();
        }
    }
}
