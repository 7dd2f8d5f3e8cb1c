//! What a server is handed makes the copy that it would have made of the folder itself.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use riverrun_projects::import::{self, Imported};
use riverrun_projects::pack::{NOT_PACKED, pack};
use riverrun_projects::progress::Progress;

const MAX: u64 = 64 << 20;

/// A folder with everything in it that an import looks at.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(place.path()).unwrap().join("code na\u{ef}ve");
    let files: &[(&str, &[u8])] = &[
        ("src/train.py", b"x = 1\r\n"),
        ("src/\u{65e5}\u{672c} \"a\".py", b"y = 2\n"),
        ("data/latin1.csv", b"caf\xe9;1\n"),
        ("empty.txt", b""),
        (".gitignore", b"*.log\nsecrets/\n"),
        ("run.log", b"ignored"),
        ("secrets/key", b"ignored"),
        (".env", b"A=1\n"),
        (".git/config", b"no part of it"),
        ("node_modules/a.js", b"no part of it"),
        ("docs/__MACOSX/._a", b"no part of it"),
        (".venv/lib/python3.12/site-packages/a-1.0.dist-info/METADATA", b"Name: a\n"),
        (".venv/lib/python3.12/site-packages/a.py", b"no part of it"),
    ];
    for (file, content) in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::write(root.join("zeros.bin"), vec![0; (2 << 20) + 1]).unwrap();
    fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("run.sh"), Permissions::from_mode(0o755)).unwrap();
    symlink("/etc", root.join("out")).unwrap();
    symlink("/etc/passwd", root.join("src/passwd.py")).unwrap();
    (place, root)
}

#[tokio::test]
async fn given_a_folder_when_it_is_packed_then_the_copy_of_the_archive_is_that_of_the_folder_and_so_is_its_hash() {
    let (_place, root) = folder();
    let source = root.display().to_string();
    let here = import::read(&source, None, &Progress::default()).await.unwrap();
    let progress = Progress::default();
    let packed = pack(&source, MAX, &progress).await.unwrap();
    assert_eq!(progress.seen().0 as usize, here.files.len());
    let there = import::unpack("upload/code", &packed.archive, &Progress::default()).unwrap();
    assert_eq!(there.skipped, 0, "what is left out is not sent");
    assert_eq!(packed.skipped, here.skipped);
    assert_eq!(packed.sha256.as_deref(), Some(there.sha256.as_str()));
    assert_eq!(Imported { skipped: here.skipped, ..there }, here);
    assert!(here.files.keys().all(|name| !name.contains("passwd") && !name.contains("__MACOSX")), "{:?}", here.files);
    assert_eq!(pack(&source, MAX, &Progress::default()).await.unwrap(), packed, "the same folder is the same archive");
}

#[tokio::test]
async fn given_an_archive_when_it_is_packed_then_it_is_handed_over_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let path = fs::canonicalize(place.path()).unwrap().join("a.ZIP");
    fs::write(&path, b"whatever it is, the server says so").unwrap();
    let packed = pack(&path.display().to_string(), MAX, &Progress::default()).await.unwrap();
    assert_eq!(packed.archive, b"whatever it is, the server says so");
    assert_eq!((packed.sha256, packed.skipped), (None, 0));
}

#[tokio::test]
async fn given_what_can_not_be_handed_over_when_it_is_packed_then_that_is_told_apart_from_what_can_not_be_read() {
    let place = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(place.path()).unwrap();
    for (folder, file) in [("names", "a\\b.py"), ("large", "a.bin")] {
        fs::create_dir(root.join(folder)).unwrap();
        fs::write(root.join(folder).join(file), [1, 2, 3]).unwrap();
    }
    fs::create_dir(root.join("none")).unwrap();
    fs::write(root.join("a.zip"), [0; 100]).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(root.join("pipe.zip")).status().unwrap().success());
    symlink(root.join("a.zip"), root.join("link.zip")).unwrap();
    for (name, max_bytes, code) in [
        ("names", MAX, NOT_PACKED),
        ("large", 50, NOT_PACKED),
        ("a.zip", 99, NOT_PACKED),
        ("none", MAX, "no_files"),
        ("gone", MAX, "not_found"),
        ("gone.zip", MAX, "not_found"),
        ("pipe.zip", MAX, "special_file"),
        ("link.zip", MAX, "source_changed"),
    ] {
        let source = root.join(name).display().to_string();
        let failure = pack(&source, max_bytes, &Progress::default()).await.unwrap_err().failure();
        assert_eq!(failure.code, code, "{name}: {failure:?}");
        assert!(failure.hint.is_some(), "{name}");
    }
}
