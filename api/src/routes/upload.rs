//! Documents that come with the request.

use std::path::Path;

use axum::body::Bytes;
use axum::extract::multipart::Multipart;
use axum::http::StatusCode;
use riverrun_knowledge::sources;
use riverrun_log::Outgoing;
use riverrun_log::blobs::sha256_hex;
use riverrun_schemas::ingest::{IngestCommand, IngestEvent, IngestScanned, SubmitDocument, document_id};
use riverrun_schemas::{BlobRef, Collection, IngestId, now_ms};
use serde_json::Value;

use super::form;
use super::ingest::check_model;
use crate::accept::{self, AcceptedIngest, COMPONENT, Content, UPLOAD};
use crate::config::{MAX_FILE_BYTES, MAX_FILES};
use crate::error::ApiError;
use crate::state::AppState;
use crate::submit::{self, IngestTarget};
use crate::unambiguous::Unambiguous;
use crate::wire::IngestBody;

/// Longest text field, in bytes.
const MAX_FIELD: usize = 64 << 10;
/// Longest file name, in bytes.
const MAX_NAME: usize = 255;

struct File {
    name: String,
    content: Bytes,
}

struct Stored {
    source: String,
    content: BlobRef,
    table: Option<String>,
}

/// Reads the form, keeps its files and puts them on the log.
pub(super) async fn start(state: &AppState, key: Option<&str>, form: Multipart) -> Result<AcceptedIngest, ApiError> {
    let (body, files) = read(form).await?;
    let defaults = state.core().ingest_defaults();
    let target = submit::ingest_target(&body, &defaults)?;
    check_model(state, &target).await?;
    check_names(&files)?;
    if files.iter().any(|file| is_archive(file, &target)) {
        return start_archive(state, key, body, target, files).await;
    }
    check_types(&files, &target)?;
    let (files, tables) = tables_of(files, &target).await?;
    let mut fingerprint = String::new();
    let mut stored = Vec::with_capacity(files.len());
    for (file, table) in files.into_iter().zip(tables) {
        let source = source_of(&file);
        let media_type = sources::detect(Path::new(&file.name), &file.content, target.source_type.as_deref())
            .map_err(refused)?
            .media_type();
        fingerprint.push_str(&format!("{source} {}\n", sha256_hex(&file.content)));
        let content = state.parts().blobs.put_bytes(file.content, media_type).await?;
        stored.push(Stored { source, content, table });
    }
    let documents = submit::to_i64(stored.len());
    let records = Box::new(move |ingest_id, target: &IngestTarget| records(ingest_id, target, stored));
    accept::ingest(state, key, &body, target, Content::Uploaded { records, fingerprint, documents }).await
}

fn source_of(file: &File) -> String {
    format!("{UPLOAD}/{}", file.name)
}

/// The warehouse table of each file: of one alone that of the request, of several a name of its own for each that has rows.
async fn tables_of(files: Vec<File>, target: &IngestTarget) -> Result<(Vec<File>, Vec<Option<String>>), ApiError> {
    let Some(table) = target.table.clone() else {
        let none = vec![None; files.len()];
        return Ok((files, none));
    };
    if files.len() == 1 {
        return Ok((files, vec![Some(table)]));
    }
    let forced = target.source_type.clone();
    let told = tokio::task::spawn_blocking(move || {
        let has_rows = |file: &File| {
            let source = sources::detect(Path::new(&file.name), &file.content, forced.as_deref());
            source.is_ok_and(|source| source.has_rows(&file.name, &file.content))
        };
        let has_rows: Vec<bool> = files.iter().map(has_rows).collect();
        (files, has_rows)
    });
    let (files, has_rows) = told.await.map_err(|_| ApiError::internal("looking for rows in the files broke off"))?;
    let sources: Vec<String> = files.iter().map(source_of).collect();
    let tables = sources::member_tables(&table, UPLOAD, sources.iter().map(String::as_str).zip(has_rows));
    Ok((files, tables))
}

fn is_archive(file: &File, target: &IngestTarget) -> bool {
    let by_name =
        Path::new(&file.name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case(sources::ZIP));
    target.source_type.as_deref().map_or(by_name, |forced| forced == sources::ZIP)
}

/// An archive is unpacked by the ingester, never here.
async fn start_archive(
    state: &AppState,
    key: Option<&str>,
    body: IngestBody,
    target: IngestTarget,
    mut files: Vec<File>,
) -> Result<AcceptedIngest, ApiError> {
    let (Some(File { name, content }), true) = (files.pop(), files.is_empty()) else {
        return Err(
            ApiError::field("files", "holds a zip archive among other files").hint("hand in each archive alone")
        );
    };
    let content = state.parts().blobs.put_bytes(content, "application/zip").await?;
    let source = format!("{UPLOAD}/{name}");
    accept::ingest(state, key, &body, target, Content::Archive { source, content }).await
}

/// The documents first, then how many they are: a writer that dies in between leaves an ingest that its repeat completes.
fn records(ingest_id: IngestId, target: &IngestTarget, stored: Vec<Stored>) -> Result<Vec<Outgoing>, ApiError> {
    let collection = Collection::new(target.namespace.clone(), target.collection.clone());
    let scanned = IngestScanned {
        ingest_id,
        namespace: target.namespace.clone(),
        collection: target.collection.clone(),
        source: UPLOAD.to_owned(),
        documents: submit::to_i64(stored.len()),
        skipped: 0,
        left_out: Vec::new(),
        at: now_ms(),
    };
    let mut records = Vec::with_capacity(stored.len() + 1);
    let (chunk_size, chunk_overlap, chunk_unit) = target.chunk_sizes();
    for Stored { source, content, table } in stored {
        let command = SubmitDocument {
            document_id: document_id(&collection, &source),
            ingest_id,
            namespace: target.namespace.clone(),
            collection: target.collection.clone(),
            source_type: target.source_type.clone(),
            content,
            embed_model: target.embed_model.clone(),
            chunk_size,
            chunk_overlap,
            metadata_json: target.metadata_json.clone(),
            table,
            strategy: target.strategy.clone(),
            chunk_unit: chunk_unit.clone(),
            again: false,
            source,
            at: now_ms(),
        };
        records.push(Outgoing::event(&IngestCommand::SubmitDocument(command), COMPONENT, None)?);
    }
    records.push(Outgoing::event(&IngestEvent::IngestScanned(scanned), COMPONENT, None)?);
    Ok(records)
}

async fn read(mut form: Multipart) -> Result<(IngestBody, Vec<File>), ApiError> {
    let mut body = IngestBody { source: UPLOAD.to_owned(), ..IngestBody::default() };
    let mut files: Vec<File> = Vec::new();
    let mut once = form::Once::default();
    while let Some(field) = form::next(&mut form).await? {
        if let Some(name) = field.file_name().map(str::to_owned) {
            if files.len() >= MAX_FILES {
                return Err(
                    ApiError::field("files", format!("has more than {MAX_FILES}")).hint("hand in several requests")
                );
            }
            files.push(File { content: form::bytes(field, MAX_FILE_BYTES).await?, name });
            continue;
        }
        let name = field.name().unwrap_or_default().to_owned();
        if !matches!(name.as_str(), "include" | "exclude") {
            once.take(&name)?;
        }
        let text = form::text(field, MAX_FIELD).await?;
        match name.as_str() {
            "collection" => body.collection = text,
            "namespace" => body.namespace = Some(text),
            "type" => body.source_type = Some(text),
            "strategy" => body.strategy = Some(text),
            "embed_backend" => body.embed_backend = Some(text),
            "chunk_size" => body.chunk_size = Some(number(&name, &text)?),
            "chunk_overlap" => body.chunk_overlap = Some(number(&name, &text)?),
            "chunk_unit" => body.chunk_unit = Some(text),
            "table" => body.table = Some(text),
            "include" => body.include.push(text),
            "exclude" => body.exclude.push(text),
            "metadata" => {
                let Unambiguous(parsed) = serde_json::from_str(&text)
                    .map_err(|error| ApiError::field("metadata", format!("is not a JSON object: {error}")))?;
                let Value::Object(object) = parsed else {
                    return Err(ApiError::field("metadata", "is not a JSON object"));
                };
                body.metadata = Some(object);
            }
            _ => return Err(ApiError::field(&name, "is no field of this form")),
        }
    }
    Ok((body, files))
}

fn number(name: &str, text: &str) -> Result<i64, ApiError> {
    text.trim().parse().map_err(|_| ApiError::field(name, format!("is {text:?}, which is no whole number")))
}

fn check_names(files: &[File]) -> Result<(), ApiError> {
    if files.is_empty() {
        return Err(ApiError::field("files", "holds no file").hint("curl -F collection=docs -F file=@notes.md"));
    }
    for (index, file) in files.iter().enumerate() {
        let field = format!("files[{index}]");
        let plain = !file.name.is_empty()
            && file.name.len() <= MAX_NAME
            && !file.name.chars().any(|c| c == '/' || c == '\\' || c.is_control());
        if !plain || matches!(file.name.as_str(), "." | "..") {
            return Err(ApiError::field(&field, "has a name that is no plain file name"));
        }
        if files[..index].iter().any(|other| other.name == file.name) {
            return Err(ApiError::field(&field, format!("has the same name as another: {}", file.name)));
        }
    }
    Ok(())
}

fn check_types(files: &[File], target: &IngestTarget) -> Result<(), ApiError> {
    for file in files {
        sources::detect(Path::new(&file.name), &file.content, target.source_type.as_deref()).map_err(refused)?;
    }
    Ok(())
}

fn refused(error: sources::SourceError) -> ApiError {
    let answer = ApiError::field("files", error.to_string()).code_as(error.code());
    match error.hint() {
        Some(hint) => answer.hint(hint),
        None => answer,
    }
}

impl From<riverrun_log::BlobError> for ApiError {
    fn from(error: riverrun_log::BlobError) -> Self {
        let status =
            if error.retryable() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
        ApiError::new(status, error.code(), error.to_string()).hint("riverrun diagnose")
    }
}
