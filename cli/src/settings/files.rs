//! Secrets by file, as platforms hand them to a process: `RIVERRUN_X_FILE` names the file that holds `RIVERRUN_X`.

use std::collections::BTreeMap;
use std::path::Path;

use super::{PREFIX, wrong};
use crate::error::{CliError, Exit};

const SUFFIX: &str = "_FILE";
/// Ends of names of settings that hold a secret. Other settings that end in `_FILE` are files for themselves.
const SECRETS: [&str; 8] =
    ["_PASSWORD", "_API_KEY", "_SECRET_KEY", "_SECRET_ACCESS_KEY", "_API_TOKENS", "_TOKEN", "_HEADERS", "_URL"];

/// Puts the content of each file in the place of its name.
pub(super) fn read(values: &mut BTreeMap<String, String>, folder: &Path) -> Result<(), CliError> {
    let named: Vec<(String, String)> =
        values.keys().filter_map(|name| Some((name.clone(), held_by(name)?.to_owned()))).collect();
    for (by_file, setting) in named {
        let Some(file) = values.remove(&by_file).filter(|file| !file.trim().is_empty()) else { continue };
        if values.get(&setting).is_some_and(|value| !value.trim().is_empty()) {
            return Err(CliError::new(Exit::Usage, format!("{by_file} is set, and so is {setting}"))
                .hint("set one of them (environment or .env)"));
        }
        let content = std::fs::read_to_string(folder.join(file.trim()))
            .map_err(|error| wrong(&by_file, &file, &format!("a file that can be read: {error}")))?;
        let secret = content.trim();
        if secret.is_empty() {
            return Err(wrong(&by_file, &file, "a file with something in it"));
        }
        values.insert(setting, secret.to_owned());
    }
    Ok(())
}

/// The name that a file has in the place of the setting, where it may have one.
pub(super) fn name_of(setting: &str) -> String {
    format!("{setting}{SUFFIX}")
}

/// The setting whose value the file of this name holds.
pub(super) fn held_by(name: &str) -> Option<&str> {
    let setting = name.strip_suffix(SUFFIX)?;
    let is_secret = SECRETS.iter().any(|end| setting.ends_with(end));
    (setting.starts_with(PREFIX) && is_secret).then_some(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn given_secrets_in_files_when_settings_are_read_then_each_stands_in_its_place_and_other_files_stay_names() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("database"), "postgres://ann:s3cret@db/x\n").unwrap();
        std::fs::write(folder.path().join("sasl"), "s3cret").unwrap();
        let mut found = values(&[
            ("RIVERRUN_DATABASE_URL_FILE", "database"),
            ("RIVERRUN_KAFKA_SASL_PASSWORD_FILE", "sasl"),
            ("RIVERRUN_OPENAI_API_KEY_FILE", ""),
            ("RIVERRUN_TOKENS_FILE", "tokens.json"),
            ("RIVERRUN_TOOLS_FILE", "tools.toml"),
            ("RIVERRUN_SCHEMA_REGISTRY_CA_FILE", "ca.pem"),
            ("RIVERRUN_KAFKA_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE", "key.pem"),
        ]);
        read(&mut found, folder.path()).unwrap();
        let expected = values(&[
            ("RIVERRUN_DATABASE_URL", "postgres://ann:s3cret@db/x"),
            ("RIVERRUN_KAFKA_SASL_PASSWORD", "s3cret"),
            ("RIVERRUN_TOKENS_FILE", "tokens.json"),
            ("RIVERRUN_TOOLS_FILE", "tools.toml"),
            ("RIVERRUN_SCHEMA_REGISTRY_CA_FILE", "ca.pem"),
            ("RIVERRUN_KAFKA_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE", "key.pem"),
        ]);
        assert_eq!(found, expected);
    }

    #[test]
    fn given_files_that_hold_no_secret_when_settings_are_read_then_the_error_names_the_setting_and_no_content() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("empty"), " \n").unwrap();
        std::fs::write(folder.path().join("secret"), "s3cret").unwrap();
        let name = "RIVERRUN_HUB_TOKEN_FILE";
        for pairs in
            [vec![(name, "none")], vec![(name, "empty")], vec![(name, "secret"), ("RIVERRUN_HUB_TOKEN", "canary")]]
        {
            let error = read(&mut values(&pairs), folder.path()).unwrap_err();
            let told = error.exit == Exit::Usage && error.message.contains(name) && error.hint.is_some();
            assert!(told && !error.message.contains("s3cret") && !error.message.contains("canary"), "{error:?}");
        }
    }
}
