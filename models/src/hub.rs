//! Fetches models from a model hub that speaks the Hugging Face paths.
//!
//! `hf-hub` knows the layout of the cache that every program of that hub shares: what another one fetched is taken from there. The
//! transfer itself is on our own HTTP client: that of `hf-hub` has no time-outs that can be set and cannot be cancelled, so a hub that
//! hangs would hang whoever waits for a model; and it brings a second HTTP stack.
//!
//! A model's files come into a hidden folder beside the final one and are checked there; the folder is renamed when all are complete,
//! so a model's folder is complete whenever it exists. What an interrupted try left is continued.
//!
//! The token goes to the hub alone: the client takes it out of requests to other hosts, and hubs send on to signed addresses of a store.

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

use crate::catalog::{CatalogFile, ModelName, find, is_gguf_name};
use crate::error::ModelError;
use crate::http::MAX_RETRY_WAIT;
use crate::http::client::{LazyClient, builder};
use crate::progress::PullProgress;
use crate::settings::ModelSettings;
use crate::split::gguf_of;

mod answers;
mod hashes;
mod plan;
mod together;

use hashes::{Announced, FileHash, announced_size};
use plan::{Plan, gguf_plan, plan_of_files};
use together::Together;

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
    has_token: bool,
    /// What other programs fetched.
    shared: Option<Cache>,
}

impl Hub {
    pub(crate) fn new(settings: &ModelSettings) -> Result<Self, ModelError> {
        let mut headers = HeaderMap::new();
        // Byte ranges and sizes must be those of the file.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(token) = &settings.hub_token {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| {
                ModelError::bad_request(
                    "hub",
                    "the token of RIVERRUN_HUB_TOKEN or HF_TOKEN holds characters that no token has",
                )
            })?;
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
            has_token: settings.hub_token.is_some(),
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
        if target.is_dir() {
            // Another process may have finished since this one looked.
            let all = plan.files.iter().all(|file| file.optional || target.join(file.target()).is_file());
            if all || gguf_of(&target).is_some() {
                return Ok(target);
            }
            take_back(&target, &partial).map_err(|error| cannot_write(&target, &error))?;
        }
        tokio::select! {
            () = cancel.cancelled() => return Err(ModelError::Cancelled),
            done = self.fetch_named(name, &folder, &plan, &partial, progress) => done?,
        }
        fs::remove_file(partial.join(LOCK_FILE)).map_err(|error| cannot_write(&partial, &error))?;
        fs::rename(&partial, &target).map_err(|error| cannot_write(&target, &error))?;
        Ok(target)
    }

    /// Fetches what is planned. A file that the hub does not have may be there as several, or under another name: the listing tells.
    async fn fetch_named(
        &self,
        name: &ModelName,
        folder: &str,
        plan: &Plan,
        partial: &Path,
        progress: &dyn PullProgress,
    ) -> Result<(), ModelError> {
        let fetched = self.fetch_all(folder, plan, partial, progress).await;
        let is_missing = matches!(fetched, Err(ModelError::ModelMissing { .. }));
        let (true, ModelName::Hub { repo, file: Some(file) }) = (is_missing, name) else { return fetched };
        // There may be no such repository, and a mirror may have no listing.
        let Ok(files) = self.listing(repo).await else { return fetched };
        let other = plan_of_files(repo, Some(file), &files)?;
        if other == *plan { fetched } else { self.fetch_all(folder, &other, partial, progress).await }
    }

    async fn fetch_all(
        &self,
        folder: &str,
        plan: &Plan,
        partial: &Path,
        progress: &dyn PullProgress,
    ) -> Result<(), ModelError> {
        let (mut lacking, mut there) = (Vec::new(), 0);
        for file in &plan.files {
            if self.is_there(plan, file, partial).await? {
                there += fs::metadata(partial.join(file.target())).map_or(0, |meta| meta.len());
                continue;
            }
            match self.announced(&plan.repo, &plan.url(&self.address, file)).await {
                Err(ModelError::ModelMissing { .. }) if file.optional => {}
                announced => lacking.push((file, announced?)),
            }
        }
        let rest = lacking.iter().map(|(_, announced)| announced.size).sum::<Option<u64>>();
        let together =
            plan.together.as_ref().map(|name| Together::new(progress, name, there, rest.map(|rest| there + rest)));
        let shown = together.as_ref().map_or(progress, |together| together as &dyn PullProgress);
        for (file, announced) in lacking {
            self.fetch(folder, plan, file, known_hash(file).or(announced.hash), partial, shown).await?;
        }
        if let Some(together) = &together {
            together.end();
        }
        Ok(())
    }

    async fn plan(&self, name: &ModelName) -> Result<Plan, ModelError> {
        match name {
            ModelName::Short(short) => match find(short) {
                Some(entry) => Ok(Plan {
                    repo: entry.repo.clone(),
                    revision: entry.revision.clone(),
                    files: entry.files.clone(),
                    together: None,
                }),
                None => Err(ModelError::ModelMissing {
                    model: short.clone(),
                    reason: "no known model has this name".to_owned(),
                    fix: "use a name of `riverrun models`, or owner/repo[:FILE or :QUANTIZATION] of the hub; `riverrun finetune registry` lists what was trained here"
                        .to_owned(),
                }),
            },
            ModelName::Hub { repo, file: Some(file) } if is_gguf_name(file) => gguf_plan(repo, file),
            ModelName::Hub { repo, file } => plan_of_files(repo, file.as_deref(), &self.listing(repo).await?),
        }
    }

    /// The files of a repository.
    async fn listing(&self, repo: &str) -> Result<Vec<String>, ModelError> {
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
        let response = self.client.get()?.get(&url).send().await.map_err(|error| self.unreachable(&error))?;
        let response = self.check(repo, &url, response)?;
        let body = bounded(response, MAX_LISTING_BYTES).await?;
        let listing: Listing = serde_json::from_slice(&body)
            .map_err(|error| ModelError::bad_response("hub", None, format!("{url} is no listing: {error}")))?;
        Ok(listing.siblings.into_iter().map(|sibling| sibling.rfilename).collect())
    }

    /// Whether a file is there from an earlier try, or from another program.
    async fn is_there(&self, plan: &Plan, file: &CatalogFile, partial: &Path) -> Result<bool, ModelError> {
        let target = partial.join(file.target());
        if target.is_file() {
            return Ok(true);
        }
        let part = part_of(partial, file);
        if let Some(parent) = part.parent() {
            fs::create_dir_all(parent).map_err(|error| cannot_write(parent, &error))?;
        }
        let taken = self.take_shared(plan, file, &part).await?;
        if taken {
            fs::rename(&part, &target).map_err(|error| cannot_write(&target, &error))?;
        }
        Ok(taken)
    }

    async fn fetch(
        &self,
        model: &str,
        plan: &Plan,
        file: &CatalogFile,
        expected: Option<FileHash>,
        partial: &Path,
        progress: &dyn PullProgress,
    ) -> Result<(), ModelError> {
        let (target, part) = (partial.join(file.target()), part_of(partial, file));
        let url = plan.url(&self.address, file);
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

    /// What the hub announces of a file, if it does. Where it sends on to another place of its own for a small file, that one tells the hash.
    async fn announced(&self, repo: &str, url: &str) -> Result<Announced, ModelError> {
        let response = self.head(url).await?;
        if !response.status().is_redirection() {
            let response = self.check(repo, url, response)?;
            let headers = response.headers();
            return Ok(Announced { hash: FileHash::announced(headers), size: announced_size(headers, true) });
        }
        let size = announced_size(response.headers(), false);
        let hash = match (FileHash::announced(response.headers()), own_place(&response)) {
            (None, Some(place)) => FileHash::announced(self.head(&place).await?.headers()),
            (hash, _) => hash,
        };
        Ok(Announced { hash, size })
    }

    async fn head(&self, url: &str) -> Result<Response, ModelError> {
        self.direct.get()?.head(url).send().await.map_err(|error| self.unreachable(&error))
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
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            // Everything was there already, or the part belongs to another version; the hash decides.
            if total_of(&response) != Some(have) {
                return remove(part);
            }
            progress.start(model, &file.from, have, Some(have));
            return Ok(());
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
            let block = block.map_err(|error| self.unreachable(&error))?;
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

/// Where a file lies that is not complete.
fn part_of(partial: &Path, file: &CatalogFile) -> PathBuf {
    partial.join(format!("{}.part", file.target()))
}

/// Moves the files of a folder that lacks some to where the others are fetched.
fn take_back(folder: &Path, partial: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        fs::rename(entry.path(), partial.join(entry.file_name()))?;
    }
    fs::remove_dir(folder)
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
    let place = response.url().join(location).ok().filter(|_| location.starts_with('/'))?;
    // A parser of addresses sees another host in more than `//`.
    (place.origin() == response.url().origin()).then(|| String::from(place))
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
