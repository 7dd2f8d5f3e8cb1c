//! Which sources a caller of the API may name. The command line reads what its user can read; a server reads what it was
//! opened for.

use std::path::Path;

use riverrun_knowledge::sources::{self, DatabaseAddress, GitAddress, Place, SourceError};
use riverrun_knowledge::web::WebError;

use crate::config::ApiConfig;
use crate::error::ApiError;
use crate::submit;
use crate::wire::IngestBody;

impl From<SourceError> for ApiError {
    fn from(error: SourceError) -> Self {
        no_source(error.to_string(), error.code(), error.hint())
    }
}

impl From<WebError> for ApiError {
    fn from(error: WebError) -> Self {
        no_source(error.to_string(), error.code(), error.hint())
    }
}

fn no_source(reason: String, code: &'static str, hint: Option<String>) -> ApiError {
    let answer = ApiError::field("source", reason).code_as(code);
    match hint {
        Some(hint) => answer.hint(hint),
        None => answer,
    }
}

/// The source as it goes on the log, when a caller of the API may have it read. Looks at the file system.
pub fn allowed_source(config: &ApiConfig, body: &IngestBody) -> Result<String, ApiError> {
    let place = sources::place(&body.source, body.source_type.as_deref())?;
    check_options(&place, body)?;
    match &place {
        Place::Path => submit::resolve_under(&config.ingest_roots, &body.source),
        Place::Web(url) => Ok(config.web.check_url(url.as_str())?.to_string()),
        Place::Git(GitAddress::Https(url)) => {
            config.web.check_url(url.as_str())?;
            Ok(body.source.clone())
        }
        Place::Git(GitAddress::Local(path)) => submit::resolve_under(&config.ingest_roots, &text(path)),
        Place::Database(DatabaseAddress { file: Some(file), .. }) => {
            Ok(format!("sqlite:{}", submit::resolve_under(&config.ingest_roots, &text(file))?))
        }
        Place::Database(DatabaseAddress { host, shown, .. }) => open_host(config, host.as_deref(), shown, body),
        Place::Documents(address) => open_host(config, Some(&address.host), &address.shown, body),
        Place::Topic(topic) => {
            Err(ApiError::field("source", "is a topic, which a consumer reads and no single request")
                .hint(format!("riverrun stream consume --topic {topic} --collection {}", body.collection)))
        }
    }
}

/// What can be said of query and password before anything is asked: both for the API and for the command line.
pub fn check_options(place: &Place, body: &IngestBody) -> Result<(), ApiError> {
    match (place, &body.query) {
        (Place::Database(address), Some(query)) => drop(sources::check_query(&address.shown, query)?),
        (Place::Database(_), None) => {
            return Err(
                ApiError::field("query", "is missing: what to read of a database").hint("--query 'SELECT … FROM …'")
            );
        }
        (Place::Documents(address), Some(filter)) => drop(sources::check_filter(&address.shown, filter)?),
        (Place::Documents(_), None) => {}
        (_, Some(_)) => {
            return Err(ApiError::field("query", "belongs to databases, and this source is none")
                .hint("postgres://…, mysql://…, sqlite:/… or mongodb://…"));
        }
        (_, None) => {}
    }
    let of_sites = [("depth", body.depth.is_some_and(|depth| depth > 0)), ("sitemap", body.sitemap)];
    match of_sites.into_iter().find(|(_, is_given)| *is_given) {
        Some((field, _)) if !matches!(place, Place::Web(_)) => {
            Err(ApiError::field(field, "belongs to web sites, and this source is none").hint("https://host/page"))
        }
        Some(_) | None => Ok(()),
    }
}

/// A server that the operator opened, named without a password that would stay on the log.
fn open_host(config: &ApiConfig, host: Option<&str>, shown: &str, body: &IngestBody) -> Result<String, ApiError> {
    if sources::literal_password(&body.source).is_some() {
        return Err(password_in_address(shown));
    }
    let is_open = |host: &str| {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        config.ingest_databases.iter().any(|open| open == host || open == name)
    };
    // A list of hosts is open when each of them is. Without a host it is a socket of this machine.
    if host.is_some_and(|hosts| hosts.split(',').all(is_open)) && !body.source.contains("host=") {
        return Ok(body.source.clone());
    }
    Err(ApiError::field("source", format!("{shown} is on a host that this server may not read from"))
        .code_as("source_not_allowed")
        .hint("start the server with RIVERRUN_INGEST_DATABASES set to the host, or use the command line on it"))
}

/// The refusal of a password that stands in an address.
pub fn password_in_address(shown: &str) -> ApiError {
    ApiError::field("source", format!("{shown} has its password in it, where it would stay on the log"))
        .code_as("password_in_address")
        .hint(
            "set RIVERRUN_SOURCE_PASSWORD where the ingester runs, and write ${RIVERRUN_SOURCE_PASSWORD} in its place",
        )
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(source: &str, query: Option<&str>) -> IngestBody {
        IngestBody {
            source: source.into(),
            collection: "c".into(),
            query: query.map(str::to_owned),
            ..IngestBody::default()
        }
    }

    fn config(root: &Path) -> ApiConfig {
        ApiConfig {
            ingest_roots: vec![root.to_owned()],
            ingest_databases: vec!["db.internal".into(), "mongo.internal:27017".into()],
            ..ApiConfig::default()
        }
    }

    #[test]
    fn given_sources_over_http_when_checked_then_only_what_the_server_was_opened_for_passes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("a.db"), "x").unwrap();
        let config = config(&root);
        let select = Some("SELECT 1");
        for (source, query) in [
            ("https://example.org/page".to_owned(), None),
            ("https://example.org/x.git".to_owned(), None),
            (format!("sqlite:{}", root.join("a.db").display()), select),
            ("postgres://u:${RIVERRUN_SOURCE_X}@db.internal:5432/d".to_owned(), select),
            ("mysql://u@db.internal/d".to_owned(), select),
            ("mongodb://mongo.internal:27017/d/c".to_owned(), Some("{}")),
        ] {
            assert_eq!(
                allowed_source(&config, &body(&source, query)).map_err(|error| error.problem().detail),
                Ok(source)
            );
        }
        for (source, query, code) in [
            ("/etc/passwd", None, "source_not_allowed"),
            ("sqlite:/etc/passwd", select, "source_not_allowed"),
            ("sqlite:../x.db", select, "invalid_body"),
            ("postgres://u@other/d", select, "source_not_allowed"),
            ("postgres://u@db.internal/d?host=/tmp", select, "source_not_allowed"),
            ("postgres:///d", select, "source_not_allowed"),
            ("postgres://u:hunter2@db.internal/d", select, "password_in_address"),
            ("mongodb://mongo.internal:27017,evil/d/c", None, "source_not_allowed"),
            ("mongodb://mongo.internal:27017/d/c", Some("{\"$where\":\"1\"}"), "query_refused"),
            ("mysql://u@db.internal/d", Some("DROP TABLE t"), "query_refused"),
            ("http://127.0.0.1/", None, "address_not_allowed"),
            ("http://2130706433/", None, "address_not_allowed"),
            ("http://0x7f.1/", None, "address_not_allowed"),
            ("http://[::]/", None, "address_not_allowed"),
            ("http://[fd00::1]/", None, "address_not_allowed"),
            ("http://169.254.169.254/latest/meta-data/", None, "address_not_allowed"),
            ("http://user@example.org/", None, "credentials_in_url"),
            ("https://10.0.0.1/x.git", None, "address_not_allowed"),
            ("file:///etc/passwd", None, "address_refused"),
            ("gopher://h/", None, "address_refused"),
            ("ftp://h/", None, "address_refused"),
            ("ext::sh -c id", None, "address_refused"),
            ("--upload-pack=touch /tmp/p", None, "address_refused"),
        ] {
            let error = allowed_source(&config, &body(source, query)).unwrap_err();
            let status = error.status().as_u16();
            assert!((400..500).contains(&status), "{source}: {status}");
            if code != "invalid_body" {
                assert_eq!(error.code(), code, "{source}");
            }
            assert!(!error.problem().detail.contains("hunter2"));
        }
    }

    #[test]
    fn given_options_that_do_not_go_with_a_source_when_checked_then_each_is_named() {
        let config = config(Path::new("/nowhere"));
        let page = IngestBody { depth: Some(1), ..body("/nowhere/a.txt", None) };
        let map = IngestBody { sitemap: true, ..body("/nowhere/a.txt", None) };
        for (body, field) in [
            (body("postgres://db.internal/d", None), "query"),
            (body("/nowhere/a.txt", Some("SELECT 1")), "query"),
            (page, "depth"),
            (map, "sitemap"),
        ] {
            let problem = allowed_source(&config, &body).unwrap_err().problem();
            assert_eq!((problem.status, problem.errors[0].field.as_str()), (422, field), "{body:?}");
        }
    }
}
