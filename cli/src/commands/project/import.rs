//! `riverrun project import`: a source of this machine is read by whoever can. A command that hosts the stack has it read where it lies;
//! another process, which may be elsewhere or somebody else's, is handed an archive of it.

use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use riverrun_api::config::MAX_UPLOAD_BYTES;
use riverrun_api::wire::{ImportBody, ProjectAccepted, ProjectView};
use riverrun_projects::ProjectError;
use riverrun_projects::pack::{NOT_PACKED, Packed, pack};
use riverrun_projects::progress::Progress;
use riverrun_schemas::{Failure, counted};

use super::progress::Seen;
use super::waiting::Waiting;
use crate::client::FormPart;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::Output;
use crate::progress;
use crate::settings::Settings;

/// How often it is told how far reading is.
const POLL: Duration = Duration::from_millis(100);
/// What a form may have besides its archive, in bytes: names, and the lines between its parts.
const MAX_REST: usize = 64 << 10;

/// What was handed in, as it has to arrive.
struct HandedIn {
    sha256: Option<String>,
    skipped: usize,
}

/// The source as whoever reads it is told. The command line reads what its user can read.
pub(super) fn prepare(source: String, settings: &mut Settings) -> Result<String, CliError> {
    let is_path = !source.contains("://") && !source.contains("::") && !source.starts_with('-');
    if is_path && Path::new(&source).exists() {
        let path = std::fs::canonicalize(&source)
            .map_err(|error| CliError::new(Exit::Refused, format!("{source} can't be read: {error}")))?;
        settings.api.ingest_roots.push(path.clone());
        return Ok(path.display().to_string());
    }
    if is_path && !source.is_empty() && !source.contains(':') {
        // Where no other machine is named, what is not here is nowhere.
        return Err(CliError::new(Exit::Refused, format!("{source} does not exist"))
            .hint("name a folder or a .zip that is here, or https://host/repository.git"));
    }
    Ok(source)
}

pub(super) async fn run(connection: &Connection, body: ImportBody, output: Output) -> Result<(), CliError> {
    let namespace = body.namespace.clone();
    let is_here = Path::new(&body.source).is_absolute();
    let (accepted, handed_in) = if is_here && !connection.reads_here() {
        hand_in(connection, body, output).await?
    } else {
        (connection.client.post::<ProjectAccepted>("/projects/import", &body).await?, None)
    };
    let seen = Seen::new(output, "file");
    let view = Waiting::at(&connection.client).imported(&accepted.project_id, namespace, seen).await?;
    let view = match handed_in {
        Some(handed_in) => arrived(view, &handed_in)?,
        None => view,
    };
    output.show(&view, line)
}

/// Hands an archive of the source in. What can't be handed in is asked for by its path: the server may be one that can read it.
async fn hand_in(
    connection: &Connection,
    body: ImportBody,
    output: Output,
) -> Result<(ProjectAccepted, Option<HandedIn>), CliError> {
    let shown = progress::line(output);
    let client = &connection.client;
    let accepted = match packed(&body.source, &shown).await {
        Ok(Packed { archive, sha256, skipped }) => {
            shown.set_message(format!("sending {}", counted(archive.len(), "byte")));
            shown.tick();
            let accepted = client.post_form::<ProjectAccepted>("/projects/import", form(&body, archive)).await?;
            (accepted, Some(HandedIn { sha256, skipped }))
        }
        Err(error) => match error.failure() {
            failure if failure.code == NOT_PACKED => {
                let asked = client.post::<ProjectAccepted>("/projects/import", &body).await;
                (asked.map_err(|error| or_not_packed(error, failure))?, None)
            }
            failure => return Err(refused(failure)),
        },
    };
    shown.finish_and_clear();
    Ok(accepted)
}

/// Reads the source, and says how far that is.
async fn packed(source: &str, shown: &ProgressBar) -> Result<Packed, ProjectError> {
    let read = Progress::default();
    let work = pack(source, (MAX_UPLOAD_BYTES - MAX_REST) as u64, &read);
    tokio::pin!(work);
    loop {
        tokio::select! {
            packed = &mut work => return packed,
            () = tokio::time::sleep(POLL) => {
                shown.set_message(reading(read.seen()));
                shown.tick();
            }
        }
    }
}

/// All of it is read once when it is known how much it is.
fn reading((done, total): (u64, u64)) -> String {
    let what = if total == 0 { "reading" } else { "packing" };
    format!("{what}: {}", counted(done, "file"))
}

/// The project is called after the source, as where the source itself is read.
fn form(body: &ImportBody, archive: Vec<u8>) -> Vec<FormPart> {
    let last = Path::new(&body.source).file_name().map(|name| name.to_string_lossy().into_owned());
    let last = last.unwrap_or_else(|| "project".to_owned());
    let name = body.name.as_deref().unwrap_or(&last);
    let mut parts = vec![FormPart::text("name", name)];
    parts.extend(body.namespace.as_deref().map(|namespace| FormPart::text("namespace", namespace)));
    parts.push(FormPart::file("file", &last, archive));
    parts
}

fn refused(failure: Failure) -> CliError {
    CliError::new(Exit::Refused, failure.message).maybe_hint(failure.hint)
}

/// A server that may not read the path either: why it was not handed an archive says more.
fn or_not_packed(error: CliError, why: Failure) -> CliError {
    if matches!(error.code.as_deref(), Some("source_not_allowed" | "source_not_found")) { refused(why) } else { error }
}

/// The copy of what was handed in, when it is that, with what was left out here.
fn arrived(mut view: ProjectView, handed_in: &HandedIn) -> Result<ProjectView, CliError> {
    if let (Some(sent), Some(came)) = (&handed_in.sha256, &view.source_sha256)
        && sent != came
    {
        let what = format!("the copy {} has the hash {came}, and what was read here has {sent}", view.project_id);
        return Err(CliError::new(Exit::Failed, what)
            .hint(format!("remove it and import it again: riverrun project rm {}", view.project_id)));
    }
    view.skipped = view.skipped.saturating_add(i64::try_from(handed_in.skipped).unwrap_or(i64::MAX));
    Ok(view)
}

fn line(view: &ProjectView) -> String {
    let left_out = if view.skipped > 0 { format!(", {} left out", view.skipped) } else { String::new() };
    let (files, bytes) = (counted(view.files, "file"), counted(view.size_bytes, "byte"));
    format!("{}  {files}, {bytes}{left_out}", view.project_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(source: &str, name: Option<&str>) -> ImportBody {
        ImportBody { source: source.into(), name: name.map(str::to_owned), namespace: Some("team".into()) }
    }

    fn view() -> ProjectView {
        serde_json::from_value(serde_json::json!({
            "project_id": "prj_1", "name": "n", "source": "upload/n", "status": "imported", "files": 1, "languages": [],
            "size_bytes": 1, "skipped": 2, "source_sha256": "aa", "error": null, "analyses": 0,
            "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn given_a_source_when_it_is_handed_in_then_the_project_is_called_as_if_the_source_itself_were_read() {
        let archive = b"PK".to_vec();
        for (name, expected) in [(None, "my code"), (Some("mine"), "mine")] {
            let parts = form(&body("/home/ann/my code", name), archive.clone());
            let wanted = [
                FormPart::text("name", expected),
                FormPart::text("namespace", "team"),
                FormPart::file("file", "my code", archive.clone()),
            ];
            assert_eq!(parts, wanted);
        }
        assert_eq!(form(&body("/", None), archive.clone())[0], FormPart::text("name", "project"));
    }

    #[test]
    fn given_a_copy_when_it_arrives_then_it_is_what_was_sent_or_a_failure_and_what_was_left_out_here_counts() {
        let of = |sha256: Option<&str>| HandedIn { sha256: sha256.map(str::to_owned), skipped: 3 };
        for sha256 in [None, Some("aa")] {
            assert_eq!(arrived(view(), &of(sha256)).unwrap().skipped, 5, "{sha256:?}");
        }
        let error = arrived(view(), &of(Some("bb"))).unwrap_err();
        assert!(error.message.contains("hash aa") && error.hint.unwrap().contains("project rm prj_1"));
        assert_eq!(line(&view()), "prj_1  1 file, 1 byte, 2 left out");
    }

    #[test]
    fn given_a_server_that_may_not_read_the_path_when_nothing_could_be_handed_in_then_that_is_the_reason() {
        let why = || Failure::new(NOT_PACKED, "it is too large").with_hint("RIVERRUN_INGEST_ROOTS");
        let said = |code: &str| CliError {
            code: Some(code.to_owned()),
            ..CliError::new(Exit::Refused, "of the server").hint("its own")
        };
        for code in ["source_not_allowed", "source_not_found"] {
            let error = or_not_packed(said(code), why());
            assert_eq!(
                (error.message.as_str(), error.hint.as_deref()),
                ("it is too large", Some("RIVERRUN_INGEST_ROOTS"))
            );
        }
        assert_eq!(or_not_packed(said("limit_exceeded"), why()).message, "of the server");
    }

    #[test]
    fn given_how_far_it_is_when_that_is_shown_then_reading_comes_before_packing() {
        assert_eq!((reading((1, 0)), reading((3, 3))), ("reading: 1 file".to_owned(), "packing: 3 files".to_owned()));
    }
}
