//! Which archives are bombs, and which have names that no file can have.

use std::io::{Cursor, Write};

use riverrun_projects::import::unpack;
use riverrun_projects::progress::Progress;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const MIB: usize = 1 << 20;

/// Bytes of which the first part can't be packed, and all others are zeros.
fn content(length: usize, dense: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let mut bytes: Vec<u8> = (0..dense).map(|_| next()).collect();
    bytes.resize(length, 0);
    bytes
}

fn archive(content: &[u8]) -> Vec<u8> {
    named("a.bin", content)
}

fn named(name: &str, content: &[u8]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file(name, SimpleFileOptions::default()).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap().into_inner()
}

#[test]
fn given_members_that_are_packed_well_when_they_are_unpacked_then_those_of_more_than_a_hundred_times_are_refused() {
    for (length, dense, is_taken) in
        [(2 * MIB, 40_000, true), (2 * MIB, 13_000, false), (MIB, 0, true), (MIB + 1, 0, false)]
    {
        let bytes = archive(&content(length, dense));
        let times = length / bytes.len();
        match unpack("a.zip", &bytes, &Progress::default()) {
            Ok(imported) => assert!(is_taken && imported.files["a.bin"].len() == length, "{times} times"),
            Err(error) => assert!(!is_taken && error.failure().code == "limit_exceeded", "{times} times: {error}"),
        }
    }
}

#[test]
fn given_names_that_no_file_can_have_when_they_are_unpacked_then_the_archive_is_refused_by_their_length() {
    for (name, is_taken) in [
        ("a".repeat(252) + ".py", true),
        ("a".repeat(253) + ".py", false),
        ("sub/".to_owned() + &"é".repeat(128), false),
        ("a/".repeat(1_900) + "b.py", true),
        ("a/".repeat(1_950) + "b.py", false),
        (".".to_owned(), false),
    ] {
        match unpack("a.zip", &named(&name, b"x = 1\n"), &Progress::default()) {
            Ok(imported) => assert!(is_taken && imported.files.contains_key(&name), "{name}"),
            Err(error) => {
                let failure = error.failure();
                assert!(!is_taken && failure.code == "unsafe_entry", "{name}: {failure:?}");
                assert!(failure.message.contains(&format!("of {} bytes", name.len())), "{failure:?}");
            }
        }
    }
}
