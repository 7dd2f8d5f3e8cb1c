//! One HTTP client for all model servers, made when it is first needed: reading the root certificates takes longer than most commands.

use std::fmt;
use std::sync::{Arc, OnceLock};

use reqwest::{Client, ClientBuilder, redirect};

use crate::error::ModelError;
use crate::settings::ModelSettings;

type Build = dyn Fn() -> ClientBuilder + Send + Sync;

/// A client that is built at its first use. Clones share it.
#[derive(Clone)]
pub(crate) struct LazyClient {
    build: Arc<Build>,
    built: Arc<OnceLock<Result<Client, ModelError>>>,
}

impl LazyClient {
    /// A client that `build` describes.
    pub(crate) fn new(build: impl Fn() -> ClientBuilder + Send + Sync + 'static) -> Self {
        LazyClient { build: Arc::new(build), built: Arc::default() }
    }

    /// The client of the model servers: it follows no redirect, since that would carry prompts, and perhaps the key, to a place that
    /// nobody configured.
    pub(crate) fn of(settings: &ModelSettings) -> Self {
        let (connect, idle) = (settings.connect_timeout, settings.idle_timeout);
        LazyClient::new(move || {
            builder().connect_timeout(connect).read_timeout(idle).redirect(redirect::Policy::none())
        })
    }

    pub(crate) fn get(&self) -> Result<&Client, ModelError> {
        let built = self.built.get_or_init(|| (self.build)().build().map_err(ModelError::internal));
        built.as_ref().map_err(Clone::clone)
    }
}

/// What all clients of this crate have in common.
pub(crate) fn builder() -> ClientBuilder {
    Client::builder().user_agent(concat!("riverrun/", env!("CARGO_PKG_VERSION")))
}

impl fmt::Debug for LazyClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyClient").field("built", &self.built.get().is_some()).finish()
    }
}
