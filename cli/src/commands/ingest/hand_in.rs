//! Documents that the ingester can't read where they lie: the server may have another user, be in a container, or have its ingesters on
//! another machine. The command line reads them, and hands them in as whoever speaks HTTP would.

use std::path::Path;

use riverrun_api::config::MAX_FILE_BYTES;
use riverrun_api::wire::{IngestAccepted, IngestBody, IngestView, LeftOutFilesView};
use riverrun_knowledge::sources::{
    self, FOLDER, FolderListing, Globs, LeftOutFiles, Limits, PackedFile, Scan, SourceError, pack_members, read_regular,
};
use riverrun_schemas::{agreed, counted};

use super::{QUIET, refused, watch};
use crate::client::FormPart;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, tell};

/// Most bytes of a folder's documents before they are packed: 256 MiB. They are held in memory.
const MAX_UNPACKED: usize = 256 << 20;

/// A path of this machine that is to be ingested.
pub(super) struct Here {
    /// What was asked for, its source a canonical path.
    pub(super) body: IngestBody,
    /// How much of it may be read.
    pub(super) limits: Limits,
}

/// What came of handing it in.
pub(super) struct HandedIn {
    pub(super) view: IngestView,
    /// Files that could not be handed in, each of which was told.
    left_out: usize,
}

impl HandedIn {
    /// A failure, where some of it was not handed in.
    pub(super) fn outcome(&self) -> Result<(), CliError> {
        let left_out = self.left_out;
        if left_out == 0 {
            return Ok(());
        }
        let (files, were) = (counted(left_out, "file"), agreed(left_out, "was", "were"));
        Err(CliError::new(Exit::Failed, format!("{files} of the folder {were} not handed in"))
            .hint("ingest each by itself, or start the server where it can read the folder"))
    }
}

/// A document, or an archive of several, under the name that it has there.
#[derive(Debug, PartialEq, Eq)]
struct Upload {
    name: String,
    content: Vec<u8>,
    /// What could not be handed in, and why.
    left_out: Vec<String>,
    /// What was left out on purpose: the server never hears of it.
    skipped: LeftOutFiles,
    is_folder: bool,
}

/// Whether an ingest ended because nothing could be read of what this process has just seen: it is not there, may not be read there, or
/// something else that is empty is in its place.
pub(super) fn is_out_of_reach(view: &IngestView) -> bool {
    const CODES: [&str; 3] = ["not_found", "unreadable", "no_readable_documents"];
    view.error.as_ref().is_some_and(|error| CODES.contains(&error.code.as_str()))
}

pub(super) async fn run(connection: &Connection, here: Here, output: Output) -> Result<HandedIn, CliError> {
    let body = here.body.clone();
    let upload = tokio::task::spawn_blocking(move || read(&here)).await.map_err(|_| {
        CliError::new(Exit::Failed, format!("reading {} broke off", body.source)).hint("try it again")
    })??;
    if !output.json {
        let (name, within) = (&upload.name, if upload.is_folder { "!/PATH" } else { "" });
        let source = &body.source;
        tell(&format!(
            "the server can't read {source}: it is handed in, and what is in it is called upload/{name}{within}"
        ));
        upload.left_out.iter().for_each(|why| tell(&format!("not handed in: {why}")));
    }
    let (left_out, skipped) = (upload.left_out.len(), upload.skipped.clone());
    let accepted: IngestAccepted = connection.client.post_form("/ingest", form(&body, upload)?).await?;
    let view = watch(&connection.client, &accepted.ingest_id, QUIET, output).await?;
    Ok(HandedIn { view: with_skipped(view, &skipped), left_out })
}

/// What this process left out of the archive counts as if the server had.
fn with_skipped(mut view: IngestView, skipped: &LeftOutFiles) -> IngestView {
    for row in skipped.rows() {
        view.skipped = view.skipped.saturating_add(row.files);
        view.left_out.push(LeftOutFilesView { reason: row.reason, extension: row.extension, files: row.files });
    }
    view
}

fn form(body: &IngestBody, upload: Upload) -> Result<Vec<FormPart>, CliError> {
    // The members of an archive have types of their own.
    let forced = body.source_type.clone().filter(|_| !upload.is_folder);
    let metadata = body.metadata.as_ref().map(serde_json::to_string).transpose().map_err(std::io::Error::other)?;
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    let fields = [
        ("collection", Some(body.collection.clone())),
        ("namespace", body.namespace.clone()),
        ("type", forced),
        ("strategy", body.strategy.clone()),
        ("embed_backend", body.embed_backend.clone()),
        ("chunk_size", number(body.chunk_size)),
        ("chunk_overlap", number(body.chunk_overlap)),
        ("chunk_unit", body.chunk_unit.clone()),
        ("table", body.table.clone()),
        ("metadata", metadata),
    ];
    let given = fields.into_iter().filter_map(|(name, value)| Some(FormPart::text(name, &value?)));
    let mut parts: Vec<FormPart> = given.collect();
    parts.extend(body.include.iter().map(|glob| FormPart::text("include", glob)));
    parts.extend(body.exclude.iter().map(|glob| FormPart::text("exclude", glob)));
    parts.push(FormPart::file("file", &upload.name, upload.content));
    Ok(parts)
}

/// Reads what is handed in. Blocks.
fn read(here: &Here) -> Result<Upload, CliError> {
    let IngestBody { source, source_type, include, exclude, .. } = &here.body;
    let globs = Globs::new(include, exclude).map_err(refused)?;
    let most = here.limits.max_file_bytes.min(MAX_FILE_BYTES as u64);
    let root = Path::new(source);
    match sources::scan(source, source_type.as_deref(), &globs, here.limits).map_err(refused)? {
        Scan::File(found) | Scan::Archive(found) => {
            let (content, _) = read_regular(&found.path, most).map_err(too_much)?;
            let skipped = LeftOutFiles::default();
            Ok(Upload { name: name_of(root), content, left_out: Vec::new(), skipped, is_folder: false })
        }
        Scan::Folder(listing) => match source_type.as_deref().filter(|name| *name != FOLDER) {
            Some(forced) => {
                let what =
                    format!("the server can't read {source}, and a folder of type {forced:?} can't be handed in");
                Err(CliError::new(Exit::Refused, what).hint("leave --type out, or ingest its files one by one"))
            }
            None => folder(root, &listing, most),
        },
    }
}

/// Only what was scanned: what an ignore file or a glob leaves out is not sent.
fn folder(root: &Path, listing: &FolderListing, most: u64) -> Result<Upload, CliError> {
    let mut left_out: Vec<String> = listing.refused.iter().map(|(_, error)| error.to_string()).collect();
    let (mut read, mut total) = (Vec::new(), 0);
    for found in &listing.documents {
        let name = found.path.strip_prefix(root).ok().and_then(Path::to_str);
        match (name, read_regular(&found.path, most)) {
            (Some(name), Ok((content, _))) => {
                total += content.len();
                read.push((name, content));
            }
            (None, _) => left_out.push(format!("{} has a name that is not valid UTF-8", found.source)),
            (_, Err(error)) => left_out.push(error.to_string()),
        }
        if total > MAX_UNPACKED {
            return Err(too_large(root, format!("more than {MAX_UNPACKED} bytes of documents")));
        }
    }
    let files = read.iter().map(|(name, content)| PackedFile { name, bytes: content, is_executable: false });
    let content = pack_members(&root.display().to_string(), files).map_err(refused)?;
    if content.len() > MAX_FILE_BYTES {
        return Err(too_large(root, counted(content.len(), "byte") + " when it is packed"));
    }
    let (name, skipped) = (format!("{}.zip", name_of(root)), listing.left_out.clone());
    Ok(Upload { name, content, left_out, skipped, is_folder: true })
}

fn too_large(root: &Path, has: String) -> CliError {
    let what = format!("the server can't read {}, and it has {has}", root.display());
    CliError::new(Exit::Refused, format!("{what}, of which {MAX_FILE_BYTES} can be handed in"))
        .hint("start the server where it can read the folder, or ingest its folders one by one")
}

fn too_much(error: SourceError) -> CliError {
    match error {
        SourceError::TooLarge { path, limit_bytes } => {
            let what = format!(
                "the server can't read {path}, and it has more than the {limit_bytes} bytes that can be handed in"
            );
            CliError::new(Exit::Refused, what).hint("start the server where it can read the file, or split it")
        }
        other => refused(other),
    }
}

/// The last part of a path.
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| "folder".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn here(source: &Path, change: impl FnOnce(&mut IngestBody)) -> Here {
        let mut body =
            IngestBody { source: source.display().to_string(), collection: "c".into(), ..IngestBody::default() };
        change(&mut body);
        Here { body, limits: Limits::default() }
    }

    fn place() -> (tempfile::TempDir, std::path::PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap().join("notes");
        for (file, content) in [
            ("a.md", "# A\n"),
            ("sub/b.txt", "b\n"),
            ("sub/c.md", "c\n"),
            ("ignored.md", "no\n"),
            (".gitignore", "ignored.md\n"),
            (".hidden.md", "no\n"),
            ("d.bin", "no\n"),
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", root.join("passwd.md")).unwrap();
        (place, root)
    }

    #[test]
    fn given_a_folder_when_it_is_read_then_only_what_an_ingest_takes_is_in_the_archive_and_the_same_twice() {
        let (_place, root) = place();
        let names = |upload: &Upload| {
            let text = String::from_utf8_lossy(&upload.content).into_owned();
            ["a.md", "sub/b.txt", "sub/c.md", "ignored.md", "hidden", "d.bin", "passwd"]
                .into_iter()
                .filter(|name| text.contains(name))
                .collect::<Vec<_>>()
        };
        let upload = read(&here(&root, |_| ())).unwrap();
        assert_eq!((upload.name.as_str(), upload.is_folder, upload.left_out.len()), ("notes.zip", true, 0));
        assert_eq!(names(&upload), ["a.md", "sub/b.txt", "sub/c.md"]);
        assert_eq!(read(&here(&root, |_| ())).unwrap(), upload);
        let skipped: Vec<_> =
            upload.skipped.rows().into_iter().map(|row| (row.reason, row.extension, row.files)).collect();
        let row =
            |reason: &str, extension: Option<&str>, files| (reason.to_owned(), extension.map(str::to_owned), files);
        let expected = [row("no_reader", Some(".bin"), 1), row("hidden_or_ignored", None, 3), row("link", None, 1)];
        assert_eq!(skipped, expected);
        let globbed = read(&here(&root, |body| body.exclude = vec!["sub/*.md".into()])).unwrap();
        assert_eq!(names(&globbed), ["a.md", "sub/b.txt"]);
    }

    #[test]
    fn given_a_file_when_it_is_read_then_it_is_as_it_is_and_what_can_not_be_handed_in_is_refused_with_the_fix() {
        let (_place, root) = place();
        let upload = read(&here(&root.join("sub/b.txt"), |_| ())).unwrap();
        let expected = Upload {
            name: "b.txt".into(),
            content: b"b\n".into(),
            left_out: Vec::new(),
            skipped: LeftOutFiles::default(),
            is_folder: false,
        };
        assert_eq!(upload, expected);
        let large = root.join("large.txt");
        fs::write(&large, vec![b'x'; MAX_FILE_BYTES + 1]).unwrap();
        for (source, forced) in [(&large, None), (&root, Some("text"))] {
            let error = read(&here(source, |body| body.source_type = forced.map(str::to_owned))).unwrap_err();
            assert!(error.message.contains("can't read") && error.hint.is_some(), "{error:?}");
        }
        let beside = read(&here(&root, |_| ())).unwrap();
        assert!(beside.left_out.len() == 1 && beside.left_out[0].contains("large.txt"), "{:?}", beside.left_out);
    }

    #[test]
    fn given_options_when_a_form_is_made_then_each_that_was_given_is_in_it() {
        let body = |source_type: Option<&str>| IngestBody {
            source: "/a/b.md".into(),
            collection: "c".into(),
            namespace: Some("team".into()),
            source_type: source_type.map(str::to_owned),
            chunk_size: Some(300),
            include: vec!["*.md".into(), "*.txt".into()],
            metadata: json!({"by": "ann"}).as_object().cloned(),
            ..IngestBody::default()
        };
        let upload = |is_folder| Upload {
            name: "b.md".into(),
            content: b"x".into(),
            left_out: Vec::new(),
            skipped: LeftOutFiles::default(),
            is_folder,
        };
        let parts = form(&body(Some("markdown")), upload(false)).unwrap();
        let wanted = [
            FormPart::text("collection", "c"),
            FormPart::text("namespace", "team"),
            FormPart::text("type", "markdown"),
            FormPart::text("chunk_size", "300"),
            FormPart::text("metadata", "{\"by\":\"ann\"}"),
            FormPart::text("include", "*.md"),
            FormPart::text("include", "*.txt"),
            FormPart::file("file", "b.md", b"x".into()),
        ];
        assert_eq!(parts, wanted);
        let of_folder = form(&body(Some("folder")), upload(true)).unwrap();
        assert!(!of_folder.contains(&FormPart::text("type", "folder")));
    }

    #[test]
    fn given_how_an_ingest_ended_when_it_is_looked_at_then_only_what_could_not_be_read_is_handed_in() {
        let of = |error: serde_json::Value| -> IngestView {
            serde_json::from_value(json!({
                "ingest_id": "ing_1", "status": "failed", "namespace": "default", "collection": "c", "source": "/a", "documents": null,
                "skipped": 0, "queued": 0, "chunked": 0, "embedded": 0, "indexed": 0, "unchanged": 0, "failed": 0, "chunks": 0,
                "failures": [], "error": error, "created_at": "2026-01-01T00:00:00Z", "finished_at": null,
            }))
            .unwrap()
        };
        for (code, expected) in [
            ("not_found", true),
            ("unreadable", true),
            ("no_readable_documents", true),
            ("no_text", false),
            ("too_large", false),
        ] {
            assert_eq!(is_out_of_reach(&of(json!({ "code": code, "message": "m" }))), expected, "{code}");
        }
        assert!(!is_out_of_reach(&of(serde_json::Value::Null)));
        let handed_in = |left_out| HandedIn { view: of(serde_json::Value::Null), left_out };
        assert!(handed_in(0).outcome().is_ok());
        assert!(handed_in(1).outcome().unwrap_err().message.starts_with("1 file of the folder was"));
    }
}
