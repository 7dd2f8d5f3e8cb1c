//! The server that RIVERRUN_SERVER names: commands ask its API, and nothing else of this machine.

use super::{Connection, NotStarted, Reached};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::settings::{RemoteServer, Settings};

/// What it is called as a service.
pub const REMOTE: &str = "server";

/// The server that RIVERRUN_SERVER names, which must be there and not older than this command line.
pub(super) async fn connect(settings: &Settings, server: &RemoteServer) -> Result<Connection, CliError> {
    let client = Client::remote(server, settings.api_token.clone())?;
    let (version, own) = (client.version().await?, env!("CARGO_PKG_VERSION"));
    if is_older(&version, own) {
        let what = format!(
            "the server at {} is riverrun {version}, which is older than this command line ({own})",
            server.url
        );
        return Err(
            CliError::new(Exit::Failed, what).hint("upgrade the server, or use the command line of its version")
        );
    }
    let elsewhere = Some(server.url.clone());
    Ok(Connection { client, log: None, hosted: None, light: None, shares_log: true, elsewhere })
}

pub(super) async fn reach(settings: &Settings, server: &RemoteServer) -> Reached {
    match connect(settings, server).await {
        Ok(connection) => Reached::Connected(Box::new(connection)),
        Err(error) => Reached::NotStarted(NotStarted { service: REMOTE, error }),
    }
}

/// Whether the first two numbers of a version are below those of another: by the third nothing is asked otherwise. What is no version is
/// not older.
fn is_older(version: &str, than: &str) -> bool {
    let numbers = |version: &str| {
        let mut parts = version.split('.').map(str::parse::<u64>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    };
    numbers(version).zip(numbers(than)).is_some_and(|(version, than)| version < than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_versions_of_servers_when_they_are_compared_then_only_a_lower_major_or_minor_number_is_older() {
        for (version, than, older) in [
            ("0.1.0", "0.1.0", false),
            ("0.1.0", "0.1.9", false),
            ("0.1.9", "0.2.0", true),
            ("0.9.0", "0.10.0", true),
            ("0.10.0", "0.9.0", false),
            ("1.0.0", "0.9.0", false),
            ("0.9.0", "1.0.0", true),
            ("0.1.0-rc.1", "0.2.0", true),
            ("", "0.2.0", false),
            ("unreleased", "0.2.0", false),
        ] {
            assert_eq!(is_older(version, than), older, "{version} than {than}");
        }
    }
}
