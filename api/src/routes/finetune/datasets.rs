//! Datasets: handed in as JSON lines, checked, kept by their hash.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json as Reply;
use axum::body::Bytes;
use axum::extract::multipart::Multipart;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use riverrun_log::blobs::sha256_hex;
use riverrun_models::{Models, Presence};
use riverrun_schemas::finetune::DatasetRegistered;
use riverrun_schemas::{Namespace, RunId, not_there, now_ms};
use riverrun_stores::StoreError;
use riverrun_stores::read_models::{DatasetRunsView, DatasetView, Timestamp, Within, finetune, runs};
use riverrun_training::dataset::{Dataset, Format, MAX_BYTES, Split, read, read_of_runs};
use riverrun_training::text::Lengths;
use riverrun_training::{Plan, TrainingError, base, export, unfit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use super::{PageQuery, tell};
use crate::accept::key_conflict;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Path, Query};
use crate::idempotency::KEEP;
use crate::routes::form;
use crate::state::AppState;
use crate::submit::to_i64;
use crate::wait::until;
use crate::wire::{Page, Problem};

/// Longest text field of the form, in bytes.
const MAX_FIELD: usize = 4 << 10;
/// How long an answer waits for the read model.
const PATIENCE: Duration = Duration::from_secs(5);
const MEDIA_TYPE: &str = "application/x-ndjson";

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(create, list).layer(crate::upload_limit())).routes(routes!(show))
}

/// What was handed in.
struct Form {
    name: String,
    format: Format,
    base_model: Option<String>,
    /// What the runs were asked for by, where the lines are of runs.
    from_runs: Option<String>,
    file: Bytes,
}

/// What a file holds.
struct Content {
    dataset: Dataset,
    runs: Option<DatasetRunsView>,
    /// All of the runs.
    run_ids: BTreeSet<RunId>,
    /// As it is kept.
    canonical: Vec<u8>,
}

impl Content {
    fn of(file: &[u8], format: Format, from_runs: Option<String>) -> Result<Self, ApiError> {
        let Some(conditions) = from_runs else {
            let dataset = read(file, format).map_err(TrainingError::from)?;
            let canonical = dataset.canonical();
            return Ok(Self { dataset, runs: None, run_ids: BTreeSet::new(), canonical });
        };
        if format != Format::Sft {
            let reason = format!("runs make datasets of the format sft, not {}", format.as_str());
            return Err(ApiError::field("format", reason));
        }
        let read = read_of_runs(file).map_err(TrainingError::from)?;
        let run_ids = read.runs.iter().map(|run| run_id(run)).collect::<Result<_, _>>()?;
        let (runs, canonical) = (DatasetRunsView::of(conditions, &read.runs), read.canonical());
        Ok(Self { dataset: read.dataset, runs: Some(runs), run_ids, canonical })
    }
}

fn run_id(text: &str) -> Result<RunId, ApiError> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(80).collect();
        ApiError::field("run", format!("{shown:?} is no id of a run"))
    })
}

/// Datasets belong to the machine, and whoever may use a model may hear what it was trained on: of runs only those of the machine's own
/// namespace are taken. One of another namespace is answered like one that never was.
async fn check_own(state: &AppState, run_ids: &BTreeSet<RunId>) -> Result<(), ApiError> {
    let own = Namespace::default();
    match runs::first_missing(&state.parts().sql, Within::Namespace(&own), run_ids).await? {
        None => Ok(()),
        Some(run_id) => {
            let hint = "datasets belong to the machine: make them of runs of that namespace, or hand texts in as a file without from_runs";
            Err(ApiError::field("run", format!("{run_id} is no run of the namespace {own}")).hint(hint))
        }
    }
}

/// Checks a dataset and keeps it under its name: `multipart/form-data` with the fields `name`, `format` (`sft`, `dpo` or `chat`),
/// `base_model` (whose tokens are counted, where it is here), `from_runs` (by which conditions the runs were found whose ids the lines
/// have as `run`) and the file `file`, JSON lines of at most 64 MiB. A dataset with a line that is no example is refused whole, with
/// the numbers of the lines.
#[utoipa::path(post, path = "/finetune/datasets", tag = "finetune", request_body(content = String, content_type = "multipart/form-data"),
    responses((status = 201, body = DatasetView), (status = 409, description = "the key was used for another dataset", body = Problem), (status = 413, body = Problem), (status = 422, description = "lines that are no examples", body = Problem)))]
async fn create(
    State(state): State<AppState>,
    key: IdempotencyKey,
    request: Request,
) -> Result<(StatusCode, Reply<DatasetView>), ApiError> {
    let form = Multipart::from_request(request, &state).await.map_err(|rejection| {
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", rejection.body_text())
            .hint("send multipart/form-data with the fields name and file")
    })?;
    let Form { name, format, base_model, from_runs, file } = form_of(form).await?;
    export::check_name(&name)?;
    let models = state.core().models().clone();
    let counted_with = base_model.clone();
    let work = move || -> Result<(Content, Counted), ApiError> {
        let content = Content::of(&file, format, from_runs)?;
        let counted = lengths(&content.dataset, base_model.as_deref(), &models)?;
        Ok((content, counted))
    };
    let done = tokio::task::spawn_blocking(work).await;
    let (Content { dataset, runs, run_ids, canonical }, counted) =
        done.map_err(|_| ApiError::internal("reading the dataset broke off"))??;
    check_own(&state, &run_ids).await?;
    let content = state.parts().blobs.put_bytes(canonical.into(), MEDIA_TYPE).await?;
    let split = Split::of(dataset.examples.len(), Plan::default().seed);
    let event = DatasetRegistered {
        name,
        format: format.as_str().to_owned(),
        examples: to_i64(dataset.examples.len()),
        train_examples: to_i64(split.train.len()),
        eval_examples: to_i64(split.held_out.len()),
        duplicates: to_i64(dataset.duplicates),
        warnings_json: warnings(&dataset, &counted, runs.as_ref()).to_string(),
        tokens_json: counted.lengths().and_then(|lengths| serde_json::to_string(&lengths).ok()),
        content,
        at: now_ms(),
    };
    let view = shown(&event)?;
    let Some(key) = key.0.as_deref() else {
        register(&state, event, &view).await?;
        return Ok((StatusCode::CREATED, Reply(view)));
    };
    let use_of_key = UseOfKey::new(key, &view, counted_with.as_deref());
    let reserved = state.reservations().reserve(&use_of_key.place, use_of_key.asked.as_bytes());
    let held = reserved.ok_or_else(|| key_conflict(key, "dataset"))?;
    let before = use_of_key.before(&state, key, &view).await?;
    let view = match before {
        Some(before) => before,
        None => {
            register(&state, event, &view).await?;
            view
        }
    };
    held.keep();
    use_of_key.keep(&state, &view).await;
    Ok((StatusCode::CREATED, Reply(view)))
}

async fn register(state: &AppState, event: DatasetRegistered, view: &DatasetView) -> Result<(), ApiError> {
    tell(state, event).await?;
    wait_for(state, view).await
}

/// What an idempotency key is used for. A dataset has no id that could follow from it, so the key is remembered by the process, and in the
/// cache for as long as answers are.
struct UseOfKey {
    place: String,
    /// All that tells one dataset from another: two forms may hold the same.
    asked: String,
}

/// A dataset that was handed in under a key.
#[derive(Serialize, Deserialize)]
struct KeptDataset {
    asked: String,
    view: DatasetView,
}

impl UseOfKey {
    fn new(key: &str, view: &DatasetView, base_model: Option<&str>) -> Self {
        // What is counted may change once the base is there, and is no part of what is asked for.
        let asked = json!([&view.name, &view.format, &view.sha256, &view.runs, base_model]).to_string();
        Self { place: format!("dataset:{}", sha256_hex(key.as_bytes())), asked }
    }

    /// The dataset that it was used for: the one that is kept, or else the same one where that is the newest of its name. 409 where it was
    /// used for another one.
    async fn before(&self, state: &AppState, key: &str, view: &DatasetView) -> Result<Option<DatasetView>, ApiError> {
        let kept = state.core().cache().get(&self.place).await;
        if let Some(kept) = kept.and_then(|bytes| serde_json::from_slice::<KeptDataset>(&bytes).ok()) {
            return if kept.asked == self.asked { Ok(Some(kept.view)) } else { Err(key_conflict(key, "dataset")) };
        }
        let known = finetune::find_dataset(&state.parts().sql, &view.name).await?;
        Ok(known.filter(|known| DatasetView { created_at: known.created_at, ..view.clone() } == *known))
    }

    async fn keep(self, state: &AppState, view: &DatasetView) {
        let kept = KeptDataset { asked: self.asked, view: view.clone() };
        // Texts and numbers: can't fail.
        state.core().cache().put(&self.place, serde_json::to_vec(&kept).unwrap_or_default(), KEEP).await;
    }
}

/// Lines with what is strange about them; without a line what is to be said of the whole.
fn warnings(dataset: &Dataset, counted: &Counted, runs: Option<&DatasetRunsView>) -> Value {
    let lines = dataset.warnings.iter().map(|warning| json!({ "line": warning.line, "reason": warning.reason }));
    let whole = match counted {
        Counted::NotYet { base } => Some(json!({
            "line": null,
            "reason": format!("tokens are not counted: {base:?} is not here yet, a training fetches it"),
        })),
        Counted::Lengths(_) | Counted::No => None,
    };
    runs.map(DatasetRunsView::remark).into_iter().chain(whole).chain(lines).collect()
}

/// What came of counting the tokens of a dataset.
#[derive(Debug)]
enum Counted {
    Lengths(Lengths),
    /// The base that was named has to be fetched first. That is left to the training: it may be gigabytes, and whoever hands a dataset in
    /// waits for the answer.
    NotYet {
        base: String,
    },
    /// No base was named, and the default one is not here or can't be trained; or there is no example.
    No,
}

impl Counted {
    fn lengths(self) -> Option<Lengths> {
        match self {
            Self::Lengths(lengths) => Some(lengths),
            Self::NotYet { .. } | Self::No => None,
        }
    }
}

/// Lengths in tokens of a base model that is here: the named one, or else the default one when there is.
fn lengths(dataset: &Dataset, named: Option<&str>, models: &Models) -> Result<Counted, ApiError> {
    let model = named.unwrap_or_else(|| models.default_chat_model());
    let model = model.strip_prefix("local/").unwrap_or(model);
    let folder = match models.presence(&format!("local/{model}"))? {
        Presence::Present { path } => path,
        Presence::Missing { .. } if named.is_none() => return Ok(Counted::No),
        Presence::Missing { .. } if models.local().can_fetch(model) => {
            return Ok(Counted::NotYet { base: model.to_owned() });
        }
        Presence::Missing { fix } => {
            return Err(ApiError::field("base_model", format!("{model:?} is not there")).hint(fix));
        }
    };
    let text = match base::text_of(&folder) {
        Ok(text) => text,
        Err(error) if named.is_some() => return Err(error.into()),
        Err(_) => return Ok(Counted::No), // the default model may be of a family that can't be trained
    };
    if let Some(found) = unfit(dataset, &text) {
        return Err(TrainingError::from(found).into());
    }
    let lengths = Lengths::of(dataset.examples.iter().map(|(_, example)| example), &text);
    let lengths = lengths.map_err(|reason| ApiError::field("base_model", reason))?;
    Ok(lengths.map_or(Counted::No, Counted::Lengths))
}

/// The row that an event becomes.
fn shown(event: &DatasetRegistered) -> Result<DatasetView, ApiError> {
    let json = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| ApiError::internal(error.to_string()));
    let mut warnings = json(&event.warnings_json)?;
    Ok(DatasetView {
        name: event.name.clone(),
        format: event.format.clone(),
        sha256: event.content.sha256.clone(),
        examples: event.examples,
        train_examples: event.train_examples,
        eval_examples: event.eval_examples,
        duplicates: event.duplicates,
        size_bytes: event.content.size_bytes,
        tokens: event.tokens_json.as_deref().map(json).transpose()?,
        runs: DatasetRunsView::take(&mut warnings),
        warnings,
        created_at: Timestamp(event.at),
    })
}

/// Whoever has the answer may name the dataset at once.
async fn wait_for(state: &AppState, view: &DatasetView) -> Result<(), ApiError> {
    until(PATIENCE, || async {
        let known = finetune::find_dataset(&state.parts().sql, &view.name).await?;
        Ok::<_, StoreError>(known.filter(|known| known.created_at >= view.created_at))
    })
    .await?;
    Ok(()) // it is on the log, and shows when the projector comes to it
}

async fn form_of(mut form: Multipart) -> Result<Form, ApiError> {
    let (mut name, mut format, mut base_model, mut from_runs, mut file) = (None, Format::Sft, None, None, None);
    let mut once = form::Once::default();
    while let Some(field) = form::next(&mut form).await? {
        let field_name = field.name().unwrap_or_default().to_owned();
        once.take(&field_name)?;
        if field_name == "file" {
            file = Some(form::bytes(field, MAX_BYTES).await?);
            continue;
        }
        let text = form::text(field, MAX_FIELD).await?;
        match field_name.as_str() {
            "name" => name = Some(text),
            "format" => {
                format = Format::by_name(&text)
                    .ok_or_else(|| ApiError::field("format", not_there(&text, Format::ALL.map(Format::as_str))))?;
            }
            "base_model" => base_model = Some(text).filter(|text| !text.is_empty()),
            "from_runs" => from_runs = Some(text),
            _ => return Err(ApiError::field(&field_name, "is no field of this form")),
        }
    }
    let name = name.ok_or_else(|| ApiError::field("name", "is missing"))?;
    let file = file.ok_or_else(|| ApiError::field("file", "is missing"))?;
    Ok(Form { name, format, base_model, from_runs, file })
}

/// Datasets, the newest first.
#[utoipa::path(get, path = "/finetune/datasets", tag = "finetune", params(PageQuery),
    responses((status = 200, body = Page<DatasetView>), (status = 422, body = Problem)))]
async fn list(
    State(state): State<AppState>,
    Query(query): Query<PageQuery>,
) -> Result<Reply<Page<DatasetView>>, ApiError> {
    let page = finetune::datasets(&state.parts().sql, &query.page()?).await?;
    Ok(Reply(Page { items: page.items, next_cursor: page.next_cursor }))
}

/// A dataset by its name: the newest that was handed in under it.
#[utoipa::path(get, path = "/finetune/datasets/{name}", tag = "finetune", params(("name" = String, Path)),
    responses((status = 200, body = DatasetView), (status = 404, body = Problem)))]
async fn show(State(state): State<AppState>, Path(name): Path<String>) -> Result<Reply<DatasetView>, ApiError> {
    find(&state, &name).await.map(Reply)
}

pub(super) async fn find(state: &AppState, name: &str) -> Result<DatasetView, ApiError> {
    finetune::find_dataset(&state.parts().sql, name).await?.ok_or_else(|| {
        let shown: String = name.chars().take(80).collect();
        ApiError::not_found("dataset_not_found", format!("there is no dataset {shown:?}"))
            .hint("riverrun finetune datasets, or hand it in: riverrun finetune dataset <name> --jsonl FILE")
    })
}

#[cfg(test)]
mod tests {
    use riverrun_models::ModelSettings;

    use super::*;

    /// Counts with a hub of which nothing is asked.
    fn counted(base: Option<&str>, offline: bool) -> Result<Counted, ApiError> {
        let folder = tempfile::tempdir().unwrap();
        let settings = ModelSettings {
            cache_dir: folder.path().to_owned(),
            hub_base_url: "http://127.0.0.1:1".to_owned(),
            offline,
            ..ModelSettings::default()
        };
        let dataset = read(br#"{"prompt": "a", "completion": "b"}"#, Format::Sft).unwrap();
        lengths(&dataset, base, &Models::new(settings).unwrap())
    }

    #[test]
    fn given_a_base_that_is_not_here_when_tokens_are_counted_then_what_a_training_can_fetch_is_no_error() {
        for base in ["other/base", "local/other/base", "qwen2.5-0.5b-instruct"] {
            let counted = counted(Some(base), false).unwrap();
            let dataset = read(br#"{"prompt": "a", "completion": "b"}"#, Format::Sft).unwrap();
            let told = warnings(&dataset, &counted, None);
            let name = base.strip_prefix("local/").unwrap_or(base);
            assert!(told[0]["line"].is_null() && told[0]["reason"].as_str().unwrap().contains(name), "{told}");
            assert!(counted.lengths().is_none());
        }
        // Nobody could fetch these: no model is called so, and no hub may be asked.
        for (base, offline) in [("no-such-base", false), ("other/base", true)] {
            assert!(counted(Some(base), offline).is_err(), "{base}");
        }
        assert!(matches!(counted(None, false), Ok(Counted::No)));
    }

    #[test]
    fn given_a_file_of_runs_then_they_are_kept_with_it_and_what_is_no_run_is_refused() {
        let run = RunId::new();
        let line = format!(r#"{{"prompt": "a", "completion": "b", "run": "{run}"}}"#);
        let content = Content::of(line.as_bytes(), Format::Sft, Some("agent=react".to_owned())).unwrap();
        assert_eq!(content.run_ids, BTreeSet::from([run]));
        let runs = content.runs.clone().unwrap();
        assert_eq!((runs.count, runs.run_ids.as_slice()), (1, [run.to_string()].as_slice()));
        assert!(String::from_utf8(content.canonical).unwrap().contains(&run.to_string()));
        let mut told = warnings(&content.dataset, &Counted::No, content.runs.as_ref());
        assert_eq!(DatasetRunsView::take(&mut told), Some(runs));
        assert_eq!(told, json!([]));
        let other = r#"{"prompt": "a", "completion": "b", "run": "yesterday's"}"#;
        assert!(Content::of(other.as_bytes(), Format::Sft, Some(String::new())).is_err());
        assert!(Content::of(line.as_bytes(), Format::Chat, Some(String::new())).is_err());
        // Said without `from_runs`, it is a field like any other that is not used.
        assert!(Content::of(line.as_bytes(), Format::Sft, None).unwrap().runs.is_none());
    }
}
