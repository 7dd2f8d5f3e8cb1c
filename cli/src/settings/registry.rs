//! Which schema registry, and the key to it.

use std::path::Path;

use riverrun_log::{Credentials, RegistryConfig};

use super::servers::authorities;
use super::{Values, redact_url, wrong};
use crate::error::{CliError, Exit};

const URL: &str = "RIVERRUN_SCHEMA_REGISTRY_URL";
const USER: &str = "RIVERRUN_SCHEMA_REGISTRY_USER";
const PASSWORD: &str = "RIVERRUN_SCHEMA_REGISTRY_PASSWORD";
const TOKEN: &str = "RIVERRUN_SCHEMA_REGISTRY_TOKEN";
const CA_FILE: &str = "RIVERRUN_SCHEMA_REGISTRY_CA_FILE";

/// A registry where one is named. Its other settings without it would go unused in silence.
pub(super) fn schema_registry(values: &Values, folder: &Path) -> Result<Option<RegistryConfig>, CliError> {
    let Some(url) = values.text(URL) else {
        let Some(named) = [USER, PASSWORD, TOKEN, CA_FILE].into_iter().find(|name| values.text(name).is_some()) else {
            return Ok(None);
        };
        return Err(CliError::new(Exit::Usage, format!("{named} is set, and {URL} is not"))
            .hint(format!("set {URL}, or unset {named} (environment or .env)")));
    };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(wrong(URL, &redact_url(&url), "http://host:8081 or https://host:8081"));
    }
    if url.contains('@') {
        let expected = format!("an address without a password; {USER} and {PASSWORD} have them");
        return Err(wrong(URL, &redact_url(&url), &expected));
    }
    if let Some(end) = url.find(['?', '#']) {
        return Err(wrong(URL, &format!("{}…", &url[..end]), "an address without ? and #"));
    }
    Ok(Some(RegistryConfig { url, credentials: credentials(values)?, ca_pem: authorities(values, CA_FILE, folder)? }))
}

fn credentials(values: &Values) -> Result<Credentials, CliError> {
    match (values.text(USER), values.text(PASSWORD), values.text(TOKEN)) {
        (None, None, None) => Ok(Credentials::None),
        (Some(user), Some(password), None) => Ok(Credentials::Basic { user, password }),
        (None, None, Some(token)) => Ok(Credentials::Bearer(token)),
        (_, _, Some(_)) => Err(CliError::new(Exit::Usage, format!("{TOKEN} is set, and so is {USER} or {PASSWORD}"))
            .hint("set the token, or user and password")),
        (_, _, None) => Err(CliError::new(Exit::Usage, format!("one of {USER} and {PASSWORD} is not set"))
            .hint("set both, or none for a registry that anybody may use")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: (&str, &str) = (URL, "https://registry:8081/contexts/.riverrun");

    fn read(pairs: &[(&str, &str)], folder: &Path) -> Result<Option<RegistryConfig>, CliError> {
        let values = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        schema_registry(&Values::new(values), folder)
    }

    #[test]
    fn given_a_registry_when_its_settings_are_read_then_it_is_used_and_its_key_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(&[], folder.path()).unwrap().is_none());
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
        let basic = [SERVER, (USER, "ann"), (PASSWORD, "s3cret"), (CA_FILE, "ca.pem")];
        let found = read(&basic, folder.path()).unwrap().unwrap();
        assert_eq!((found.url.as_str(), found.ca_pem.as_deref()), (SERVER.1, Some(pem.as_bytes())));
        assert!(matches!(&found.credentials, Credentials::Basic { user, .. } if user == "ann"));
        let bearer = read(&[SERVER, (TOKEN, "s3cret")], folder.path()).unwrap().unwrap();
        assert!(bearer.credentials == Credentials::Bearer("s3cret".to_owned()));
        for config in [found, bearer] {
            assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
        }
    }

    #[test]
    fn given_halves_of_a_registry_when_its_settings_are_read_then_they_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("empty.pem"), "").unwrap();
        for pairs in [
            vec![(USER, "ann")],
            vec![(PASSWORD, "s3cret")],
            vec![(TOKEN, "s3cret")],
            vec![(CA_FILE, "ca.pem")],
            vec![(URL, "registry:8081")],
            vec![(URL, "http://ann:s3cret@registry:8081")],
            vec![(URL, "http://registry:8081/?x=s3cret")],
            vec![SERVER, (USER, "ann")],
            vec![SERVER, (PASSWORD, "s3cret")],
            vec![SERVER, (USER, "ann"), (PASSWORD, "s3cret"), (TOKEN, "s3cret")],
            vec![SERVER, (CA_FILE, "none.pem")],
            vec![SERVER, (CA_FILE, "empty.pem")],
        ] {
            let error = read(&pairs, folder.path()).unwrap_err();
            let told = error.exit == Exit::Usage
                && error.message.contains("RIVERRUN_SCHEMA_REGISTRY_")
                && error.hint.is_some();
            assert!(told && !error.message.contains("s3cret"), "{error:?}");
        }
    }
}
