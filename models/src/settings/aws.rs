//! What AWS's own programs are told by, as far as its models need it: `AWS_REGION`, `AWS_ACCESS_KEY_ID` and what belongs to them. Nothing
//! is read but the environment: no profile, no service that hands out roles.

use super::{Lookup, SettingError, text};
use crate::secret::Secret;

/// The key of Bedrock where [`crate::ModelSettings::keys`] has none of ours.
pub(crate) const BEARER_TOKEN: &str = "AWS_BEARER_TOKEN_BEDROCK";
/// What requests are signed with, for errors.
pub(crate) const CREDENTIALS: &str = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
/// Where the models are, in front of the more general setting.
pub(crate) const REGION: &str = "AWS_REGION";
const DEFAULT_REGION: &str = "AWS_DEFAULT_REGION";

/// Credentials that requests to AWS are signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsCredentials {
    /// Which key it is. Not secret to AWS, and shown nowhere here.
    pub access_key_id: Secret,
    /// The key itself, which never leaves.
    pub secret_access_key: Secret,
    /// Beside the keys of a role, which are for a time.
    pub session_token: Option<Secret>,
}

/// Where AWS's models are and what requests to them are signed with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aws {
    /// The region, such as `eu-central-1`.
    pub region: Option<String>,
    /// Signs requests where no key is set.
    pub credentials: Option<AwsCredentials>,
}

/// Reads the variables. Half of a pair of credentials is none: it may be meant for another program.
pub(super) fn read(get: Lookup<'_>) -> Result<Aws, SettingError> {
    let secret = |name: &str| get(name).as_deref().and_then(Secret::new);
    let credentials = match (secret("AWS_ACCESS_KEY_ID"), secret("AWS_SECRET_ACCESS_KEY")) {
        (Some(access_key_id), Some(secret_access_key)) => {
            Some(AwsCredentials { access_key_id, secret_access_key, session_token: secret("AWS_SESSION_TOKEN") })
        }
        (Some(_), None) | (None, Some(_)) | (None, None) => None,
    };
    Ok(Aws { region: region(get, REGION)?.or(region(get, DEFAULT_REGION)?), credentials })
}

/// A region, which becomes a part of a host's name.
fn region(get: Lookup<'_>, name: &str) -> Result<Option<String>, SettingError> {
    let Some(value) = text(get, name) else { return Ok(None) };
    if value.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Ok(Some(value));
    }
    Err(SettingError { name: name.to_owned(), value, expected: "the name of a region like eu-central-1".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(pairs: &[(&str, &str)]) -> Result<Aws, SettingError> {
        let get = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        read(&get)
    }

    #[test]
    fn given_the_variables_of_awss_programs_when_they_are_read_then_the_nearer_region_counts_and_keys_do_not_show() {
        let pair = [("AWS_ACCESS_KEY_ID", "canary-id"), ("AWS_SECRET_ACCESS_KEY", "canary-key")];
        let regions = [("AWS_DEFAULT_REGION", "us-east-1"), ("AWS_REGION", "eu-central-1")];
        let all = [&pair[..], &regions[..], &[("AWS_SESSION_TOKEN", "canary-token")]].concat();
        let found = read_of(&all).unwrap();
        assert_eq!(found.region.as_deref(), Some("eu-central-1"));
        let token = found.credentials.as_ref().and_then(|keys| keys.session_token.as_ref());
        assert_eq!(token.map(Secret::expose), Some("canary-token"));
        assert!(!format!("{found:?}").contains("canary"), "{found:?}");
        assert_eq!(read_of(&regions[..1]).unwrap().region.as_deref(), Some("us-east-1"));
        for half in [&pair[..1], &pair[1..], &[]] {
            assert_eq!(read_of(half).unwrap(), Aws::default());
        }
    }

    #[test]
    fn given_a_region_that_is_no_name_when_it_is_read_then_it_is_refused() {
        for name in [REGION, DEFAULT_REGION] {
            let error = read_of(&[(name, "x.example/?")]).unwrap_err();
            assert_eq!((error.name.as_str(), error.value.as_str()), (name, "x.example/?"));
        }
    }
}
