//! Which servers stand for embedded parts, and the keys to them.

use std::path::Path;

use reqwest::Url;
use riverrun_log::S3Config;
use riverrun_stores::RedisConfig;
use riverrun_stores::vectors::qdrant::{QdrantConfig, Quantization};
use riverrun_stores::warehouse::RemoteConfig;

use super::{Values, redact_url, wrong};
use crate::error::{CliError, Exit};

/// A PostgreSQL server, where one is named.
pub(super) fn database_url(values: &Values) -> Result<Option<String>, CliError> {
    let name = "RIVERRUN_DATABASE_URL";
    match values.text(name) {
        Some(url) if !url.starts_with("postgres://") && !url.starts_with("postgresql://") => {
            let shown = redact_url(&url);
            Err(wrong(name, &shown, "postgres://user:password@host:5432/database"))
        }
        url => Ok(url),
    }
}

/// A Redis server, where one is named. Authorities without TLS would go unused in silence.
pub(super) fn redis(values: &Values, folder: &Path) -> Result<Option<RedisConfig>, CliError> {
    let (name, ca_file) = ("RIVERRUN_REDIS_URL", "RIVERRUN_REDIS_CA_FILE");
    let ca_pem = authorities(values, ca_file, folder)?;
    let url = values.text(name);
    let is_tls = url.as_ref().is_some_and(|url| url.starts_with("rediss://"));
    if ca_pem.is_some() && !is_tls {
        return Err(CliError::new(Exit::Usage, format!("{ca_file} is set, and {name} is no address with TLS"))
            .hint(format!("begin {name} with rediss://, or unset {ca_file} (environment or .env)")));
    }
    let Some(url) = url else { return Ok(None) };
    if !is_tls && !url.starts_with("redis://") {
        let expected = "redis://user:password@host:6379/0, or rediss:// for TLS";
        return Err(wrong(name, &redact_url(&url), expected));
    }
    if url.contains('#') {
        let expected =
            format!("an address without #; {ca_file} names the authorities that a certificate may come from");
        return Err(wrong(name, &redact_url(&url), &expected));
    }
    Ok(Some(RedisConfig { url, ca_pem }))
}

/// A server elsewhere that the command line speaks to.
#[derive(Debug, Clone)]
pub struct RemoteServer {
    /// Its address, without a slash at the end.
    pub url: String,
    /// Authorities that its certificate may come from besides those of the system.
    pub ca_pem: Option<Vec<u8>>,
}

impl RemoteServer {
    /// Whether it is on this machine, whatever the machine is called elsewhere.
    pub fn is_loopback(&self) -> bool {
        let url = Url::parse(&self.url).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        riverrun_api::guard::is_loopback(host.trim_start_matches('[').trim_end_matches(']'))
    }
}

/// The server that commands speak to, where one is named.
pub(super) fn remote(values: &Values, folder: &Path) -> Result<Option<RemoteServer>, CliError> {
    let (place, ca_file) = ("RIVERRUN_SERVER", "RIVERRUN_SERVER_CA_FILE");
    let ca_pem = authorities(values, ca_file, folder)?;
    let Some(url) = values.text(place) else {
        if ca_pem.is_none() {
            return Ok(None);
        }
        return Err(CliError::new(Exit::Usage, format!("{ca_file} is set, and {place} is not"))
            .hint(format!("set {place}, or unset {ca_file} (environment or .env)")));
    };
    let parsed = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if parsed.is_none() {
        return Err(wrong(place, &redact_url(&url), "https://host, or http://host:8000"));
    }
    if url.contains(['@', '?', '#']) {
        let expected = "an address without a password, ? and #; RIVERRUN_API_TOKEN has the token";
        return Err(wrong(place, &redact_url(&url), expected));
    }
    if ca_pem.is_some() && !url.starts_with("https://") {
        return Err(CliError::new(Exit::Usage, format!("{ca_file} is set, and {place} is no address with TLS"))
            .hint(format!("begin {place} with https://, or unset {ca_file} (environment or .env)")));
    }
    Ok(Some(RemoteServer { url: url.trim_end_matches('/').to_owned(), ca_pem }))
}

/// The certificates of authorities, where a file of them is named.
pub(super) fn authorities(values: &Values, name: &str, folder: &Path) -> Result<Option<Vec<u8>>, CliError> {
    let Some(file) = values.text(name) else { return Ok(None) };
    let pem = std::fs::read(folder.join(&file))
        .map_err(|error| wrong(name, &file, &format!("a file that can be read: {error}")))?;
    if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----") {
        return Err(wrong(name, &file, "a file of PEM certificates"));
    }
    Ok(Some(pem))
}

/// A MongoDB server, where one is named.
pub(super) fn mongodb_url(values: &Values) -> Result<Option<String>, CliError> {
    let name = "RIVERRUN_MONGODB_URL";
    match values.text(name) {
        Some(url) if !url.starts_with("mongodb://") && !url.starts_with("mongodb+srv://") => {
            Err(wrong(name, &redact_url(&url), "mongodb://user:password@host:27017/riverrun"))
        }
        url => Ok(url),
    }
}

/// A Qdrant server where one is named. Its other settings without it would go unused in silence.
pub(super) fn qdrant(values: &Values) -> Result<Option<QdrantConfig>, CliError> {
    let (key, kind) = ("RIVERRUN_QDRANT_API_KEY", "RIVERRUN_QDRANT_QUANTIZATION");
    let api_key = values.text(key);
    let quantization = match values.text(kind).as_deref() {
        None => Quantization::None,
        Some(name) => {
            let known = || Quantization::ALL.map(Quantization::name).join(", ");
            Quantization::named(name).ok_or_else(|| wrong(kind, name, &known()))?
        }
    };
    let place = "RIVERRUN_QDRANT_KEYWORDS";
    let keywords = match values.text(place).as_deref() {
        None => None,
        Some("sparse") => Some(true),
        Some("local") => Some(false),
        Some(other) => return Err(wrong(place, other, "sparse or local")),
    };
    let Some(url) = values.text("RIVERRUN_QDRANT_URL") else {
        let named = [(quantization != Quantization::None, kind), (api_key.is_some(), key), (keywords.is_some(), place)];
        let Some((_, named)) = named.into_iter().find(|(is_set, _)| *is_set) else { return Ok(None) };
        return Err(CliError::new(Exit::Usage, format!("{named} is set, and RIVERRUN_QDRANT_URL is not"))
            .hint(format!("set RIVERRUN_QDRANT_URL, or unset {named} (environment or .env)")));
    };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(wrong("RIVERRUN_QDRANT_URL", &redact_url(&url), "http://host:6334 or https://host:6334"));
    }
    if url.contains('@') {
        return Err(wrong(
            "RIVERRUN_QDRANT_URL",
            &redact_url(&url),
            "an address without a password; RIVERRUN_QDRANT_API_KEY has the key",
        ));
    }
    Ok(Some(QdrantConfig { url, api_key, quantization, keywords: keywords.unwrap_or(true) }))
}

/// The process that has the tables, where one is named.
pub(super) fn warehouse(values: &Values) -> Result<Option<RemoteConfig>, CliError> {
    let (place, key) = ("RIVERRUN_WAREHOUSE_URL", "RIVERRUN_WAREHOUSE_TOKEN");
    let (url, token) = (values.text(place), values.text(key));
    // The token alone is no mistake: the process that has the tables shares its secrets with those that ask it.
    let Some(url) = url else { return Ok(None) };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(wrong(place, &redact_url(&url), "http://host:8000 or https://host"));
    }
    if url.contains(['@', '?', '#']) {
        let expected = format!("an address without a password, ? and #; {key} has the token");
        return Err(wrong(place, &redact_url(&url), &expected));
    }
    Ok(Some(RemoteConfig { url, token }))
}

/// A bucket where one is named. Its other settings without it would go unused in silence.
pub(super) fn s3(values: &Values) -> Result<Option<S3Config>, CliError> {
    let [endpoint, id, key] = ["RIVERRUN_S3_ENDPOINT", "RIVERRUN_S3_ACCESS_KEY_ID", "RIVERRUN_S3_SECRET_ACCESS_KEY"]
        .map(|name| values.text(name));
    let region = values.text("RIVERRUN_S3_REGION").unwrap_or_else(|| "us-east-1".to_owned());
    let Some(bucket) = values.text("RIVERRUN_S3_BUCKET") else {
        return match endpoint.or(id).or(key) {
            None => Ok(None),
            Some(_) => Err(CliError::new(Exit::Usage, "settings of S3 are there, and RIVERRUN_S3_BUCKET is not set")
                .hint("set RIVERRUN_S3_BUCKET, or unset the others (environment or .env)")),
        };
    };
    if let Some(url) = endpoint.as_ref().filter(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
        return Err(wrong("RIVERRUN_S3_ENDPOINT", &redact_url(url), "http://host:port or https://host:port"));
    }
    if id.is_some() != key.is_some() {
        return Err(CliError::new(
            Exit::Usage,
            "one of RIVERRUN_S3_ACCESS_KEY_ID and RIVERRUN_S3_SECRET_ACCESS_KEY is not set",
        )
        .hint("set both, or none for a bucket that anybody may use"));
    }
    Ok(Some(S3Config { bucket, endpoint, region, access_key_id: id, secret_access_key: key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        Values::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn given_a_redis_server_when_its_settings_are_read_then_it_is_used_with_its_authorities_and_halves_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
        let redis = |pairs: &[(&str, &str)]| redis(&values(pairs), folder.path());
        let (url, ca) = ("RIVERRUN_REDIS_URL", ("RIVERRUN_REDIS_CA_FILE", "ca.pem"));
        assert!(redis(&[]).unwrap().is_none());
        for (address, authorities) in
            [("redis://cache:6379/1", None), ("rediss://:s3cret@cache", None), ("rediss://:s3cret@cache", Some(ca))]
        {
            let pairs: Vec<_> = [(url, address)].into_iter().chain(authorities).collect();
            let found = redis(&pairs).unwrap().unwrap();
            assert_eq!((found.url.as_str(), found.ca_pem.is_some()), (address, authorities.is_some()));
            assert!(!format!("{found:?}").contains("s3cret"), "{found:?}");
        }
        for pairs in [
            vec![(url, "http://:s3cret@cache:6379")],
            vec![(url, "cache:6379")],
            vec![(url, "rediss://:s3cret@cache/#insecure")],
            vec![(url, "redis://:s3cret@cache"), ca],
            vec![ca],
            vec![(url, "rediss://:s3cret@cache"), ("RIVERRUN_REDIS_CA_FILE", "none.pem")],
        ] {
            let error = redis(&pairs).unwrap_err();
            let told = error.exit == Exit::Usage && error.message.contains("RIVERRUN_REDIS_") && error.hint.is_some();
            assert!(told && !error.message.contains("s3cret"), "{error:?}");
        }
    }

    #[test]
    fn given_a_server_elsewhere_when_its_settings_are_read_then_it_is_named_and_what_is_no_address_or_half_is_refused()
    {
        let folder = tempfile::tempdir().unwrap();
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
        let remote = |pairs: &[(&str, &str)]| remote(&values(pairs), folder.path());
        let (place, ca) = ("RIVERRUN_SERVER", ("RIVERRUN_SERVER_CA_FILE", "ca.pem"));
        assert!(remote(&[]).unwrap().is_none());
        for (url, authorities, expected, is_loopback) in [
            ("http://127.0.0.1:8000/", None, "http://127.0.0.1:8000", true),
            ("http://localhost:8000", None, "http://localhost:8000", true),
            ("http://[::1]:8000", None, "http://[::1]:8000", true),
            ("https://runs.example", Some(ca), "https://runs.example", false),
            ("https://runs.example/riverrun/", None, "https://runs.example/riverrun", false),
        ] {
            let pairs: Vec<_> = [(place, url)].into_iter().chain(authorities).collect();
            let found = remote(&pairs).unwrap().unwrap();
            assert_eq!((found.url.as_str(), found.is_loopback()), (expected, is_loopback), "{url}");
            assert_eq!(found.ca_pem.is_some(), authorities.is_some(), "{url}");
        }
        for pairs in [
            vec![(place, "runs.example")],
            vec![(place, "runs.example:8000")],
            vec![(place, "ftp://runs.example")],
            vec![(place, "https://")],
            vec![(place, "https://ann:s3cret@runs.example")],
            vec![(place, "https://runs.example/?token=s3cret")],
            vec![(place, "http://runs.example"), ca],
            vec![ca],
            vec![(place, "https://runs.example"), ("RIVERRUN_SERVER_CA_FILE", "none.pem")],
        ] {
            let error = remote(&pairs).unwrap_err();
            let told = error.exit == Exit::Usage && error.message.contains("RIVERRUN_SERVER") && error.hint.is_some();
            assert!(told, "{error:?}");
        }
        assert!(!remote(&[(place, "https://ann:s3cret@runs.example")]).unwrap_err().message.contains("s3cret"));
    }

    #[test]
    fn given_servers_when_their_settings_are_read_then_they_are_used_and_halves_are_refused() {
        let nothing = values(&[]);
        assert!(database_url(&nothing).unwrap().is_none() && s3(&nothing).unwrap().is_none());
        let mongodb = |url: &str| mongodb_url(&values(&[("RIVERRUN_MONGODB_URL", url)]));
        assert!(mongodb_url(&nothing).unwrap().is_none());
        assert!(mongodb("mongodb://ann:s3cret@docs:27017/river").unwrap().is_some());
        let error = mongodb("http://ann:s3cret@docs:27017").unwrap_err();
        assert!(error.message.contains("RIVERRUN_MONGODB_URL") && !error.message.contains("s3cret"), "{error:?}");
        assert!(qdrant(&nothing).unwrap().is_none());
        let server = ("RIVERRUN_QDRANT_URL", "http://vectors:6334");
        let found =
            qdrant(&values(&[server, ("RIVERRUN_QDRANT_API_KEY", "s3cret"), ("RIVERRUN_QDRANT_QUANTIZATION", "int8")]));
        let found = found.unwrap().unwrap();
        assert!(!format!("{found:?}").contains("s3cret"), "{found:?}");
        assert_eq!(found.quantization, Quantization::Int8);
        for kind in Quantization::ALL {
            let pairs = [server, ("RIVERRUN_QDRANT_QUANTIZATION", kind.name())];
            assert_eq!(qdrant(&values(&pairs)).unwrap().unwrap().quantization, kind);
        }
        for (value, sparse) in [("sparse", true), ("local", false)] {
            let found = qdrant(&values(&[server, ("RIVERRUN_QDRANT_KEYWORDS", value)])).unwrap().unwrap();
            assert_eq!(found.keywords, sparse);
        }
        assert!(found.keywords, "both sides go to the server unless something else is said");
        for pairs in [
            vec![("RIVERRUN_QDRANT_API_KEY", "s3cret")],
            vec![("RIVERRUN_QDRANT_QUANTIZATION", "int8")],
            vec![("RIVERRUN_QDRANT_KEYWORDS", "local")],
            vec![server, ("RIVERRUN_QDRANT_KEYWORDS", "yes")],
            vec![server, ("RIVERRUN_QDRANT_QUANTIZATION", "int4")],
            vec![("RIVERRUN_QDRANT_URL", "vectors:6334")],
            vec![("RIVERRUN_QDRANT_URL", "http://ann:s3cret@vectors:6334")],
        ] {
            let error = qdrant(&values(&pairs)).unwrap_err();
            assert!(error.message.contains("RIVERRUN_QDRANT_") && !error.message.contains("s3cret"), "{error:?}");
        }
        let tables = ("RIVERRUN_WAREHOUSE_URL", "http://tables:8000");
        let token = ("RIVERRUN_WAREHOUSE_TOKEN", "s3cret");
        assert!(warehouse(&values(&[token])).unwrap().is_none());
        let found = warehouse(&values(&[tables, token])).unwrap().unwrap();
        assert!(found.token.as_deref() == Some("s3cret") && !format!("{found:?}").contains("s3cret"), "{found:?}");
        for url in ["tables:8000", "http://ann:s3cret@tables:8000", "http://tables:8000/?x=1"] {
            let error = warehouse(&values(&[("RIVERRUN_WAREHOUSE_URL", url)])).unwrap_err();
            assert!(error.message.contains("RIVERRUN_WAREHOUSE_URL") && !error.message.contains("s3cret"), "{error:?}");
        }
        let both = values(&[("RIVERRUN_DATABASE_URL", "postgresql://ann@db/x"), ("RIVERRUN_S3_BUCKET", "blobs")]);
        assert_eq!(database_url(&both).unwrap().as_deref(), Some("postgresql://ann@db/x"));
        assert_eq!(s3(&both).unwrap().unwrap().region, "us-east-1");
        let bucket = ("RIVERRUN_S3_BUCKET", "blobs");
        for pairs in [
            [("RIVERRUN_S3_ENDPOINT", "http://127.0.0.1:9000"), ("RIVERRUN_S3_REGION", "x")],
            [bucket, ("RIVERRUN_S3_ENDPOINT", "127.0.0.1:9000")],
            [bucket, ("RIVERRUN_S3_ACCESS_KEY_ID", "id")],
            [bucket, ("RIVERRUN_S3_SECRET_ACCESS_KEY", "s3cret")],
        ] {
            let error = s3(&values(&pairs)).unwrap_err();
            let told = error.exit == Exit::Usage && error.message.contains("RIVERRUN_S3_") && error.hint.is_some();
            assert!(told && !error.message.contains("s3cret"), "{error:?}");
        }
    }
}
