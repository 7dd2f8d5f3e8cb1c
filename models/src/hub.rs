//! Fetches models from a model hub that speaks the Hugging Face paths.
//!
//! `hf-hub` knows the layout of the cache that every program of that hub shares: what another one fetched is taken from there. The
//! transfer itself is on our own HTTP client: that of `hf-hub` has no time-outs that can be set and cannot be cancelled, so a hub that
//! hangs would hang whoever waits for a model; and it brings a second HTTP stack.
//!
//! A model's files come into a hidden folder beside the final one and are checked there; the folder is renamed when all are complete,
//! so a model's folder is complete whenever it exists. What an interrupted try left is continued.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use hf_hub::{Cache, Repo, RepoType};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Response, StatusCode, redirect};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::catalog::{CatalogFile, ModelName, find};
use crate::error::ModelError;
use crate::http::client::{LazyClient, builder};
use crate::http::{MAX_RETRY_WAIT, retry_after};
use crate::progress::PullProgress;
use crate::settings::ModelSettings;

mod hashes;
mod plan;

use hashes::FileHash;
use plan::{Plan, gguf_plan, plan_of_files};

/// A listing or a header block larger than this is refused.
const MAX_LISTING_BYTES: usize = 8 << 20;
/// A single model file larger than this is refused.
const MAX_FILE_BYTES: u64 = 256 << 30;
const TRIES: u32 = 3;

/// A hub.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    address: String,
    client: LazyClient,
    /// Sees the hub's own answer, with the file's hash, before the redirect to the store.
    direct: LazyClient,
    /// What other programs fetched.
    shared: Option<Cache>,
}

impl Hub {
    pub(crate) fn new(settings: &ModelSettings) -> Result<Self, ModelError> {
        let mut headers = HeaderMap::new();
        // Byte ranges and sizes must be those of the file.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(token) = &settings.hub_token {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
                .map_err(|_| ModelError::bad_request("hub", "RIVERRUN_HUB_TOKEN holds characters that no token has"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let (connect, idle) = (settings.connect_timeout, settings.idle_timeout.min(Duration::from_secs(60)));
        let client = |policy: fn() -> redirect::Policy| {
            let headers = headers.clone();
            LazyClient::new(move || {
                let builder = builder().default_headers(headers.clone()).redirect(policy());
                builder.connect_timeout(connect).read_timeout(idle)
            })
        };
        Ok(Hub {
            address: settings.hub_base_url.clone(),
            client: client(|| redirect::Policy::limited(5)),
            direct: client(redirect::Policy::none),
            shared: settings.hub_cache_dir.clone().map(Cache::new),
        })
    }

    /// Fetches `name` into `parent/<folder>` and answers that folder.
    pub(crate) async fn pull(
        &self,
        name: &ModelName,
        parent: &Path,
        progress: &dyn PullProgress,
        cancel: &CancellationToken,
    ) -> Result<PathBuf, ModelError> {
        let folder = name.folder();
        let target = parent.join(&folder);
        let partial = partial_of(parent, &folder);
        let plan = tokio::select! {
            () = cancel.cancelled() => return Err(ModelError::Cancelled),
            plan = self.plan(name) => plan?,
        };
        fs::create_dir_all(&partial).map_err(|error| cannot_write(&partial, &error))?;
        let _lock = lock(&partial)?;
        // Another process may have finished while this one waited for the lock.
        if target.is_dir() {
            return Ok(target);
        }
        for file in &plan.files {
            tokio::select! {
                () = cancel.cancelled() => return Err(ModelError::Cancelled),
                done = self.fetch(&folder, &plan, file, &partial, progress) => done?,
            }
        }
        fs::remove_file(partial.join(LOCK_FILE)).map_err(|error| cannot_write(&partial, &error))?;
        fs::rename(&partial, &target).map_err(|error| cannot_write(&target, &error))?;
        Ok(target)
    }

    async fn plan(&self, name: &ModelName) -> Result<Plan, ModelError> {
        match name {
            ModelName::Short(short) => match find(short) {
                Some(entry) => {
                    Ok(Plan { repo: entry.repo.clone(), revision: entry.revision.clone(), files: entry.files.clone() })
                }
                None => Err(ModelError::ModelMissing {
                    model: short.clone(),
                    reason: "no known model has this name".to_owned(),
                    fix: "use a name of `riverrun models`, or owner/repo[:file] of the hub".to_owned(),
                }),
            },
            ModelName::Hub { repo, file: Some(file) } => Ok(gguf_plan(repo, file)),
            ModelName::Hub { repo, file: None } => self.plan_of_listing(repo).await,
        }
    }

    async fn plan_of_listing(&self, repo: &str) -> Result<Plan, ModelError> {
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        #[derive(Deserialize)]
        struct Listing {
            #[serde(default)]
            siblings: Vec<Sibling>,
        }
        let url = format!("{}/api/models/{repo}", self.address);
        let response = self.client.get()?.get(&url).send().await.map_err(|error| self.unreachable(repo, &error))?;
        let response = self.check(repo, &url, response)?;
        let body = bounded(response, MAX_LISTING_BYTES).await?;
        let listing: Listing = serde_json::from_slice(&body)
            .map_err(|error| ModelError::bad_response("hub", None, format!("{url} is no listing: {error}")))?;
        plan_of_files(repo, listing.siblings.into_iter().map(|sibling| sibling.rfilename).collect())
    }

    async fn fetch(
        &self,
        model: &str,
        plan: &Plan,
        file: &CatalogFile,
        partial: &Path,
        progress: &dyn PullProgress,
    ) -> Result<(), ModelError> {
        let target = partial.join(file.target());
        if target.is_file() {
            return Ok(());
        }
        let part = partial.join(format!("{}.part", file.target()));
        if let Some(parent) = part.parent() {
            fs::create_dir_all(parent).map_err(|error| cannot_write(parent, &error))?;
        }
        if self.take_shared(plan, file, &part).await? {
            return fs::rename(&part, &target).map_err(|error| cannot_write(&target, &error));
        }
        let url = format!("{}/{}/resolve/{}/{}", self.address, plan.repo, plan.revision, file.from);
        let announced = match self.announced(&plan.repo, &url).await {
            Err(ModelError::ModelMissing { .. }) if file.optional => return Ok(()),
            announced => announced?,
        };
        let expected = known_hash(file).or(announced);
        // What an earlier try left may be of a file that the hub has replaced since.
        let mut resumed = part.is_file();
        let mut tries = 0;
        loop {
            let fetched = self.fetch_once(model, &plan.repo, &url, file, &part, progress).await;
            let checked = match fetched {
                Ok(()) => check_hash(&part, expected.as_ref()).await,
                failed => failed,
            };
            tries += 1;
            let error = match checked {
                Ok(()) => break,
                Err(error) => error,
            };
            let start_over = resumed && !part.is_file();
            resumed &= !start_over;
            let pause = if start_over { Some(Duration::ZERO) } else { pause_before_try(tries, &error) };
            let Some(pause) = pause else { return Err(error) };
            tracing::debug!(%url, tries, ?pause, %error, "download interrupted");
            tokio::time::sleep(pause).await;
        }
        fs::rename(&part, &target).map_err(|error| cannot_write(&target, &error))?;
        progress.finish();
        Ok(())
    }

    /// Copies a file that another program has fetched from the hub; false when none has. Where the catalog knows the file's
    /// hash, a copy with another one is passed over.
    async fn take_shared(&self, plan: &Plan, file: &CatalogFile, part: &Path) -> Result<bool, ModelError> {
        let Some(shared) = &self.shared else { return Ok(false) };
        let repo = Repo::with_revision(plan.repo.clone(), RepoType::Model, plan.revision.clone());
        let Some(found) = shared.repo(repo).get(&file.from) else { return Ok(false) };
        // A copy, not a link: the shared cache may be pruned or written by others.
        tokio::fs::copy(&found, part).await.map_err(|error| cannot_write(part, &error))?;
        match check_hash(part, known_hash(file).as_ref()).await {
            Ok(()) => {
                tracing::info!(file = %found.display(), "taken from the shared cache of the hub");
                Ok(true)
            }
            Err(error) => {
                tracing::warn!(file = %found.display(), error = %error, "file of the shared cache passed over");
                Ok(false)
            }
        }
    }

    /// The hash that the hub announces for a file, if it does. Where it sends on to another place of its own for a small file, that one tells.
    async fn announced(&self, repo: &str, url: &str) -> Result<Option<FileHash>, ModelError> {
        let response = self.head(repo, url).await?;
        if !response.status().is_redirection() {
            return self.check(repo, url, response).map(|response| FileHash::announced(response.headers()));
        }
        if let Some(hash) = FileHash::announced(response.headers()) {
            return Ok(Some(hash));
        }
        match own_place(&response) {
            Some(place) => Ok(FileHash::announced(self.head(repo, &place).await?.headers())),
            None => Ok(None),
        }
    }

    async fn head(&self, repo: &str, url: &str) -> Result<Response, ModelError> {
        self.direct.get()?.head(url).send().await.map_err(|error| self.unreachable(repo, &error))
    }

    async fn fetch_once(
        &self,
        model: &str,
        repo: &str,
        url: &str,
        file: &CatalogFile,
        part: &Path,
        progress: &dyn PullProgress,
    ) -> Result<(), ModelError> {
        let mut have = fs::metadata(part).map_or(0, |meta| meta.len());
        let mut request = self.client.get()?.get(url);
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
        }
        let response = request.send().await.map_err(|error| self.unreachable(repo, &error))?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            // Everything was there already, or the part belongs to another version; the hash decides.
            return if total_of(&response) == Some(have) { Ok(()) } else { remove(part) };
        }
        let response = self.check(repo, url, response)?;
        let mut out = if response.status() == StatusCode::PARTIAL_CONTENT {
            OpenOptions::new().append(true).open(part)
        } else {
            have = 0;
            File::create(part)
        }
        .map_err(|error| cannot_write(part, &error))?;
        let total = response.content_length().map(|rest| rest + have);
        if total.is_some_and(|total| total > MAX_FILE_BYTES) {
            return Err(ModelError::bad_response("hub", None, format!("{url} is larger than {MAX_FILE_BYTES} bytes")));
        }
        progress.start(model, &file.from, have, total);
        let mut stream = response.bytes_stream();
        while let Some(block) = stream.next().await {
            let block = block.map_err(|error| self.unreachable(repo, &error))?;
            have += block.len() as u64;
            if have > total.unwrap_or(MAX_FILE_BYTES) {
                return Err(ModelError::bad_response("hub", None, format!("{url} sends more than it announced")));
            }
            out.write_all(&block).map_err(|error| cannot_write(part, &error))?;
            progress.advance(block.len() as u64);
        }
        out.sync_all().map_err(|error| cannot_write(part, &error))?;
        match total {
            Some(total) if total != have => {
                Err(ModelError::bad_response("hub", None, format!("{url} ended after {have} of {total} bytes")))
            }
            _ => Ok(()),
        }
    }

    fn check(&self, model: &str, url: &str, response: Response) -> Result<Response, ModelError> {
        let status = response.status();
        match status.as_u16() {
            200..=299 => Ok(response),
            401 | 403 => Err(ModelError::Unauthorized {
                provider: "hub".to_owned(),
                reason: format!("{url} answered {status}"),
                setting: "RIVERRUN_HUB_TOKEN".to_owned(),
                fix: None,
            }),
            404 => Err(ModelError::ModelMissing {
                model: model.to_owned(),
                reason: format!("{url} is not at the hub"),
                fix: "check the name; `riverrun models` lists the known ones".to_owned(),
            }),
            429 => Err(ModelError::RateLimited {
                provider: "hub".to_owned(),
                reason: format!("{url} answered {status}"),
                retry_after: retry_after(response.headers()),
            }),
            code => Err(ModelError::bad_response("hub", Some(code), format!("{url} answered {status}"))),
        }
    }

    fn unreachable(&self, model: &str, error: &reqwest::Error) -> ModelError {
        ModelError::RuntimeDown {
            provider: "hub".to_owned(),
            address: self.address.clone(),
            reason: crate::http::reason(error),
            fix: format!(
                "connect this machine and run `riverrun models pull {model}`, or set RIVERRUN_MODELS_DIR to a folder that has it"
            ),
        }
    }
}

const LOCK_FILE: &str = ".lock";

/// Where the files of a model lie until all are there.
pub(crate) fn partial_of(parent: &Path, folder: &str) -> PathBuf {
    parent.join(format!(".{folder}.partial"))
}

/// How long to wait after so many tries that failed; none when there is no further one.
fn pause_before_try(tries: u32, error: &ModelError) -> Option<Duration> {
    if tries >= TRIES || !error.retryable() {
        return None;
    }
    let own = Duration::from_millis(500 << tries);
    let asked = if let ModelError::RateLimited { retry_after, .. } = error { *retry_after } else { None };
    Some(asked.map_or(own, |asked| own.max(asked))).filter(|pause| *pause <= MAX_RETRY_WAIT)
}

/// Keeps other processes from a model that is being fetched, while the file is held.
pub(crate) fn lock(folder: &Path) -> Result<File, ModelError> {
    let path = folder.join(LOCK_FILE);
    let file = File::create(&path).map_err(|error| cannot_write(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(ModelError::RateLimited {
            provider: "hub".to_owned(),
            reason: format!("another process is fetching this model into {}", folder.display()),
            retry_after: Some(Duration::from_secs(10)),
        }),
        Err(fs::TryLockError::Error(error)) => Err(cannot_write(&path, &error)),
    }
}

/// The hash that the catalog knows.
fn known_hash(file: &CatalogFile) -> Option<FileHash> {
    file.sha256.as_ref().map(|hash| FileHash::Sha256(hash.to_ascii_lowercase()))
}

/// Where a redirect leads that stays at its server.
fn own_place(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let stays = location.starts_with('/') && !location.starts_with("//");
    stays.then(|| response.url().join(location).ok().map(String::from)).flatten()
}

fn total_of(response: &Response) -> Option<u64> {
    response.headers().get(CONTENT_RANGE)?.to_str().ok()?.rsplit('/').next()?.parse().ok()
}

async fn bounded(response: Response, limit: usize) -> Result<Vec<u8>, ModelError> {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(block) = stream.next().await {
        let block = block.map_err(|error| ModelError::bad_response("hub", None, crate::http::reason(&error)))?;
        if body.len() + block.len() > limit {
            return Err(ModelError::bad_response("hub", None, format!("a listing is larger than {limit} bytes")));
        }
        body.extend_from_slice(&block);
    }
    Ok(body)
}

/// Compares the file's hash; a wrong file is removed, so that the next try starts anew.
async fn check_hash(path: &Path, expected: Option<&FileHash>) -> Result<(), ModelError> {
    let Some(expected) = expected.cloned() else { return Ok(()) };
    let file = path.to_owned();
    let other = tokio::task::spawn_blocking(move || expected.other_than(&file))
        .await
        .map_err(ModelError::internal)?
        .map_err(|error| ModelError::internal(format!("can't read {}: {error}", path.display())))?;
    let Some(other) = other else { return Ok(()) };
    remove_quietly(path);
    // With its status it is no failure that may pass.
    Err(ModelError::bad_response("hub", Some(200), format!("{} has {other}", path.display())))
}

fn remove(part: &Path) -> Result<(), ModelError> {
    remove_quietly(part);
    Err(ModelError::bad_response("hub", None, "what an earlier try left does not fit the file; it was removed"))
}

fn remove_quietly(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove a broken download");
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> ModelError {
    ModelError::internal(format!(
        "can't write {}: {error}; check the room and the rights of RIVERRUN_MODELS_CACHE_DIR",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_tries_that_failed_when_the_next_is_planned_then_what_the_hub_asks_for_is_waited_and_no_more() {
        let busy = |seconds: Option<u64>| ModelError::RateLimited {
            provider: "hub".to_owned(),
            reason: String::new(),
            retry_after: seconds.map(Duration::from_secs),
        };
        assert_eq!(pause_before_try(1, &busy(None)), Some(Duration::from_secs(1)));
        assert_eq!(pause_before_try(1, &busy(Some(7))), Some(Duration::from_secs(7)));
        assert_eq!(pause_before_try(1, &busy(Some(3600))), None);
        assert_eq!(pause_before_try(TRIES, &busy(None)), None);
        assert_eq!(pause_before_try(1, &ModelError::Cancelled), None);
    }
}
