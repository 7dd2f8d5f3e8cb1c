//! Which files may be executed is kept from the source to the patch; nothing else of a mode is.

use std::fs::{Permissions, read, set_permissions, write};
use std::io::{Cursor, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use riverrun_projects::copy::{Executables, Files};
use riverrun_projects::import;
use riverrun_projects::patch::patch;
use riverrun_projects::progress::Progress;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// An archive with one file of that mode, kind included.
fn archive(mode: u32) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("bin/run", SimpleFileOptions::default().unix_permissions(0o755)).unwrap();
    writer.write_all(b"#!/bin/sh\n").unwrap();
    let mut bytes = writer.finish().unwrap().into_inner();
    let head = bytes.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    bytes[head + 38..head + 42].copy_from_slice(&(mode << 16).to_le_bytes());
    bytes
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let done = std::process::Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn given_archives_of_unix_when_they_are_unpacked_then_only_whether_a_file_may_be_executed_is_kept() {
    let run = Executables::from(["bin/run".to_owned()]);
    for (mode, executables) in [
        (0o100_755, run.clone()),
        (0o104_711, run.clone()),
        (0o755, run),
        (0o100_644, Executables::new()),
        (0o100_666, Executables::new()),
        (0, Executables::new()),
    ] {
        let read = import::unpack("a.zip", &archive(mode), &Progress::default()).unwrap();
        assert_eq!((read.files.len(), read.executables), (1, executables), "{mode:o}");
    }
}

#[test]
fn given_a_device_pipe_or_socket_in_an_archive_when_it_is_unpacked_then_the_archive_is_refused() {
    for mode in [0o010_644, 0o020_644, 0o060_644, 0o140_755] {
        let error = import::unpack("a.zip", &archive(mode), &Progress::default()).unwrap_err().failure();
        assert!(error.code == "unsafe_entry" && error.message.contains("bin/run"), "{mode:o}: {error:?}");
    }
}

#[tokio::test]
async fn given_a_script_of_a_repository_when_it_is_changed_in_the_copy_then_git_takes_the_patch_and_its_mode_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (script, plain) = (folder.path().join("run me.sh"), folder.path().join("a.py"));
    write(&script, "#!/bin/sh\necho 1\n").unwrap();
    write(&plain, "x = 1\n").unwrap();
    set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    set_permissions(&plain, Permissions::from_mode(0o644)).unwrap();
    git(folder.path(), &["init", "-q"]);
    git(folder.path(), &["add", "."]);
    git(folder.path(), &["commit", "-q", "-m", "x"]);

    let read_in = import::read(&folder.path().display().to_string(), None, &Progress::default()).await.unwrap();
    assert_eq!(read_in.executables, Executables::from(["run me.sh".to_owned()]));
    let mut after: Files = read_in.files.clone();
    after.insert("run me.sh".to_owned(), "#!/bin/sh\necho 2\n".into());
    after.insert("a.py".to_owned(), "x = 2\n".into());
    let file = folder.path().join(".git/change.patch");
    write(&file, patch(&read_in.files, &after)).unwrap();
    git(folder.path(), &["apply", "--index", ".git/change.patch"]);

    assert_eq!(read(&script).unwrap(), b"#!/bin/sh\necho 2\n");
    assert_eq!((mode(&script), mode(&plain)), (0o755, 0o644));
    assert_eq!(git(folder.path(), &["diff", "--cached", "--summary"]), "", "no mode changes");
    assert!(git(folder.path(), &["ls-files", "-s", "run me.sh"]).starts_with("100755"));
}
