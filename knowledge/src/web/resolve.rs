//! Names become addresses here, and only addresses that may be connected to leave.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::error::WebError;
use super::policy::WebPolicy;

/// Finds the addresses of a host.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// All of them.
    async fn lookup(&self, host: &str) -> std::io::Result<Vec<IpAddr>>;
}

/// As the operating system does it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

pub(super) struct GuardedResolver {
    pub(super) policy: Arc<WebPolicy>,
    pub(super) lookup: Arc<dyn Lookup>,
}

impl GuardedResolver {
    /// Every address of the host; an error when one of them is not open: a name that points at both the internet and
    /// this machine is no accident.
    async fn addresses(policy: &WebPolicy, lookup: &dyn Lookup, host: &str) -> Result<Vec<SocketAddr>, WebError> {
        let not_found = |reason: String| WebError::NotFound { host: host.to_owned(), reason };
        let found = lookup.lookup(host).await.map_err(|error| not_found(error.to_string()))?;
        if found.is_empty() {
            return Err(not_found("it has no address".to_owned()));
        }
        for address in &found {
            policy.check_address(host, *address)?;
        }
        Ok(found.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookup) = (self.policy.clone(), self.lookup.clone());
        Box::pin(async move {
            let found = Self::addresses(&policy, lookup.as_ref(), name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
