//! What kind of place a source names. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use url::Url;

use super::{Fault, SourceError};

/// The names on the list of types that stand for places.
pub const PLACES: [&str; 5] = ["url", "git", "sql", "mongo", "kafka"];

/// Variables that addresses may name begin so: an address must not carry another secret of the process elsewhere.
pub const SECRET_PREFIX: &str = "RIVERRUN_SOURCE_";

/// Longest address, in bytes.
const MAX_ADDRESS: usize = 4_096;

/// What a source names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file or folder of this machine.
    Path,
    /// A page, or the first of a site.
    Web(Url),
    /// A repository.
    Git(GitAddress),
    /// A database that answers SQL.
    Database(DatabaseAddress),
    /// A collection of a document store.
    Documents(CollectionAddress),
    /// A topic of the log.
    Topic(String),
}

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitAddress {
    /// By https.
    Https(Url),
    /// In a folder of this machine.
    Local(PathBuf),
}

/// Kinds of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
}

/// A database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseAddress {
    /// Its kind.
    pub dialect: Dialect,
    /// How it is shown and how its documents are named: without password and options.
    pub shown: String,
    /// Host and port, for those that are reached by network; `None` where there is no host in the address.
    pub host: Option<String>,
    /// The file, for SQLite.
    pub file: Option<PathBuf>,
}

/// A collection of a document store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionAddress {
    /// How it is shown and how its documents are named.
    pub shown: String,
    /// Hosts and ports.
    pub host: String,
    /// The database.
    pub database: String,
    /// The collection.
    pub collection: String,
}

/// The place that a source names. A type that is forced has to go with it.
pub fn place(source: &str, forced: Option<&str>) -> Result<Place, SourceError> {
    let refused = |reason: &str, fix: &str| SourceError::fault(&shown(source), Fault::AddressRefused, reason, fix);
    if source.len() > MAX_ADDRESS {
        return Err(refused("is too long for an address", "give a shorter one"));
    }
    // Nothing that a program could take as its option is ever handed on.
    if source.starts_with('-') {
        return Err(refused(
            "begins with '-', as options of programs do",
            "for a file of that name, write ./ before it",
        ));
    }
    let forced = forced.filter(|name| PLACES.contains(name));
    let is_scheme = |text: &String| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let scheme = source.split_once("://").map(|(scheme, _)| scheme.to_lowercase()).filter(is_scheme).or_else(|| {
        // `sqlite:data.db` and `ext::command` have no slashes.
        source
            .split_once(':')
            .map(|(scheme, _)| scheme.to_lowercase())
            .filter(|scheme| matches!(scheme.as_str(), "sqlite" | "ext" | "jar" | "data" | "fd"))
    });
    let found = match scheme.as_deref() {
        None if forced == Some("git") => Place::Git(GitAddress::Local(PathBuf::from(source))),
        None if forced == Some("kafka") => Place::Topic(source.to_owned()),
        None if looks_like_scp(source) => {
            return Err(refused(
                "is a repository by ssh, which needs keys that riverrun does not have",
                "use its https address, or clone it yourself and ingest the folder",
            ));
        }
        None => Place::Path,
        Some("http" | "https") if is_git(source, forced) => git(source)?,
        Some("http" | "https") => Place::Web(parse(source)?),
        Some("git+https") => git(source.trim_start_matches("git+"))?,
        Some("file") if forced == Some("git") => Place::Git(GitAddress::Local(
            parse(source)?
                .to_file_path()
                .map_err(|()| refused("is no path of this machine", "give the path itself"))?,
        )),
        Some("kafka") => Place::Topic(source["kafka://".len()..].to_owned()),
        Some("postgres" | "postgresql") => network_database(source, Dialect::Postgres)?,
        Some("mysql" | "mariadb") => network_database(source, Dialect::MySql)?,
        Some("sqlite") => sqlite(source),
        Some("mongodb" | "mongodb+srv") => collection(source)?,
        Some(_) => {
            return Err(refused(
                "has a scheme that is not read",
                "schemes: http, https, git+https, postgres, mysql, sqlite, mongodb, kafka; a file is named by its path",
            ));
        }
    };
    match forced {
        Some(name) if name != found.name() => Err(SourceError::fault(
            &shown(source),
            Fault::BadOption,
            format!("is no address of type {name:?}"),
            hint_of(name),
        )),
        _ => Ok(found),
    }
}

impl Place {
    /// The name on the list of types; empty for paths.
    fn name(&self) -> &'static str {
        match self {
            Self::Path => "",
            Self::Web(_) => "url",
            Self::Git(_) => "git",
            Self::Database(_) => "sql",
            Self::Documents(_) => "mongo",
            Self::Topic(_) => "kafka",
        }
    }
}

fn hint_of(name: &str) -> &'static str {
    match name {
        "url" => "https://host/page",
        "git" => "https://host/repository.git",
        "sql" => "postgres://user@host/database, mysql://user@host/database or sqlite:/path, with --query 'SELECT …'",
        "mongo" => "mongodb://host/database/collection, with --query '{…}' to choose documents",
        _ => "the name of a topic, such as riverrun.documents",
    }
}

/// `user@host:path`, as git writes ssh addresses; `-oProxyCommand` hides in such.
fn looks_like_scp(source: &str) -> bool {
    source.split_once(':').is_some_and(|(host, path)| !path.is_empty() && host.contains('@') && !host.contains('/'))
}

fn is_git(source: &str, forced: Option<&str>) -> bool {
    forced == Some("git")
        || (forced.is_none() && source.split(['?', '#']).next().is_some_and(|path| path.ends_with(".git")))
}

fn parse(source: &str) -> Result<Url, SourceError> {
    Url::parse(source).map_err(|error| {
        SourceError::fault(
            &shown(source),
            Fault::AddressRefused,
            format!("is no address: {error}"),
            "check its spelling",
        )
    })
}

fn git(source: &str) -> Result<Place, SourceError> {
    let refused = |reason: &str, fix: &str| SourceError::fault(&shown(source), Fault::AddressRefused, reason, fix);
    let url = parse(source)?;
    if url.scheme() != "https" {
        return Err(refused("is a repository by plain http", "use its https address"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("carries a user name or password", "clone it yourself and ingest the folder"));
    }
    if url.host_str().is_none_or(|host| host.starts_with('-')) || url.path().starts_with("/-") {
        return Err(refused("names no host that can be used", "use the address that the server shows for cloning"));
    }
    Ok(Place::Git(GitAddress::Https(url)))
}

fn network_database(source: &str, dialect: Dialect) -> Result<Place, SourceError> {
    let url = parse(&masked(source))?;
    let host = url.host_str().filter(|host| !host.is_empty()).map(|host| match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    });
    Ok(Place::Database(DatabaseAddress { dialect, shown: shown(source), host, file: None }))
}

fn sqlite(source: &str) -> Place {
    let path = source.split_once(':').map_or("", |(_, path)| path);
    let path = path.strip_prefix("//").unwrap_or(path).split('?').next().unwrap_or_default();
    Place::Database(DatabaseAddress {
        dialect: Dialect::Sqlite,
        shown: format!("sqlite:{path}"),
        host: None,
        file: Some(PathBuf::from(path)),
    })
}

fn collection(source: &str) -> Result<Place, SourceError> {
    let refused = || {
        SourceError::fault(
            &shown(source),
            Fault::AddressRefused,
            "names no database and collection",
            "mongodb://host/database/collection",
        )
    };
    let rest = source.split_once("://").map(|(_, rest)| rest).ok_or_else(refused)?;
    let (hosts, path) = rest.split_once('/').ok_or_else(refused)?;
    let host = hosts.rsplit_once('@').map_or(hosts, |(_, host)| host).to_owned();
    let (database, collection) =
        path.split('?').next().unwrap_or_default().trim_end_matches('/').split_once('/').ok_or_else(refused)?;
    if host.is_empty() || database.is_empty() || collection.is_empty() {
        return Err(refused());
    }
    Ok(Place::Documents(CollectionAddress {
        shown: shown(source),
        host,
        database: database.to_owned(),
        collection: collection.to_owned(),
    }))
}

/// An address as people may see it: without password, options and fragment.
pub fn shown(source: &str) -> String {
    let Some((scheme, rest)) = source.split_once("://") else { return source.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // The last @ before the path ends the credentials: passwords may have one in them.
    let (authority, path) =
        rest.split_once('/').map_or((rest, String::new()), |(authority, path)| (authority, format!("/{path}")));
    match (authority.rsplit_once('@'), path.rsplit_once('@')) {
        // A slash in a password splits it in the wrong place; all of it goes.
        (None, Some((_, path))) if !scheme.starts_with("http") => format!("{scheme}://***@{path}"),
        (Some((user, host)), _) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{host}{path}")
        }
        (None, _) => format!("{scheme}://{authority}{path}"),
    }
}

/// Whether a password stands in an address, other than by the name of a variable.
pub fn literal_password(source: &str) -> Option<&str> {
    let (scheme, rest) = source.split_once("://")?;
    if scheme.starts_with("http") {
        return None; // refused for its own reason, and pages may have an @ in their address
    }
    let rest = rest.split('?').next().unwrap_or_default();
    let authority = &rest[..rest.find('/').filter(|slash| !rest[*slash..].contains('@')).unwrap_or(rest.len())];
    let (credentials, _) = authority.rsplit_once('@')?;
    let (_, password) = credentials.split_once(':')?;
    let named = password
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|name| name.starts_with(SECRET_PREFIX));
    (!password.is_empty() && !named).then_some(password)
}

/// The address with what stands for a secret replaced by something that can be parsed.
fn masked(source: &str) -> String {
    let mut masked = source.to_owned();
    while let Some((start, end)) = variable(&masked) {
        masked.replace_range(start..end, "x");
    }
    masked
}

/// Where the next `${…}` is.
fn variable(text: &str) -> Option<(usize, usize)> {
    let start = text.find("${")?;
    let end = text[start..].find('}')?;
    Some((start, start + end + 1))
}

/// Values of `RIVERRUN_SOURCE_…` variables. Never shown.
#[derive(Clone, Default)]
pub struct SourceSecrets(BTreeMap<String, String>);

impl std::fmt::Debug for SourceSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl SourceSecrets {
    /// Names with their values; others than those of [`SECRET_PREFIX`] are left out.
    pub fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(values.into_iter().filter(|(name, _)| name.starts_with(SECRET_PREFIX)).collect())
    }

    /// The same with another secret.
    pub fn with(mut self, name: &str, value: String) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The address with every variable replaced. Values are encoded as parts of an address.
    pub(super) fn fill(&self, source: &str) -> Result<String, SourceError> {
        let mut filled = String::new();
        let mut rest = source;
        while let Some((start, end)) = variable(rest) {
            let name = &rest[start + 2..end - 1];
            let value = self.0.get(name).ok_or_else(|| {
                SourceError::fault(
                    &shown(source),
                    Fault::BadOption,
                    format!("names the variable {name}, which the ingester does not have"),
                    format!(
                        "set it where the ingester runs; only variables that begin with {SECRET_PREFIX} are looked at"
                    ),
                )
            })?;
            filled.push_str(&rest[..start]);
            filled.extend(url::form_urlencoded::byte_serialize(value.as_bytes()).map(|part| part.replace('+', "%20")));
            rest = &rest[end..];
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(source: &str, forced: Option<&str>) -> Result<&'static str, String> {
        place(source, forced).map(|place| place.name()).map_err(|error| error.code().to_owned())
    }

    #[test]
    fn given_sources_when_told_apart_then_each_is_of_its_kind() {
        for (source, forced, expected) in [
            ("/data/a.pdf", None, ""),
            ("notes:today.md", None, ""),
            ("https://host/page.html", None, "url"),
            ("https://host/repo.git", None, "git"),
            ("https://host/repo.git", Some("url"), "url"),
            ("https://host/repo", Some("git"), "git"),
            ("git+https://host/repo", None, "git"),
            ("/repo", Some("git"), "git"),
            ("postgres://u@h:5/db", None, "sql"),
            ("postgresql:///db?host=/tmp", Some("sql"), "sql"),
            ("mysql://u:${RIVERRUN_SOURCE_P}@h/db", None, "sql"),
            ("sqlite:/a/b.db", None, "sql"),
            ("sqlite:///a/b.db?mode=rwc", None, "sql"),
            ("mongodb://a,b:27017/db/coll?x=1", None, "mongo"),
            ("mongodb+srv://u@h/db/coll", Some("mongo"), "mongo"),
            ("riverrun.documents", Some("kafka"), "kafka"),
            ("kafka://riverrun.documents", None, "kafka"),
        ] {
            assert_eq!(kind(source, forced), Ok(expected), "{source}");
        }
    }

    #[test]
    fn given_addresses_that_could_do_something_else_when_told_apart_then_they_are_refused() {
        for source in [
            "--upload-pack=touch /tmp/p",
            "-u./x.git",
            "ext::sh -c touch% /tmp/p",
            "git@-oProxyCommand=x:y",
            "git@host:repo.git",
            "file:///etc/passwd",
            "gopher://h/",
            "dict://h/",
            "ftp://h/x",
            "jar:file:///x!/y",
            "data:text/html,x",
            "ssh://h/x.git",
            "http://h/x.git",
            "https://u:p@h/x.git",
            "https://-oX/x.git",
            "mongodb://h",
            "mongodb://h/db",
            "javascript://x",
            &format!("https://h/{}", "x".repeat(5_000)),
        ] {
            assert_eq!(kind(source, None), Err("address_refused".to_owned()), "{source}");
        }
        for (source, forced) in
            [("/a/b", "sql"), ("/a/b", "mongo"), ("https://h/", "sql"), ("mongodb://h/d/c", "sql"), ("/a", "url")]
        {
            assert_eq!(kind(source, Some(forced)), Err("bad_option".to_owned()), "{source}");
        }
    }

    #[test]
    fn given_addresses_with_passwords_when_shown_then_none_is_in_them() {
        for (source, expected) in [
            ("postgres://u:hunter2@h:5/db?sslpassword=hunter2", "postgres://u@h:5/db"),
            ("postgres://u:hun@ter2@h/db", "postgres://u@h/db"),
            ("mysql://:hunter2@h/db", "mysql://@h/db"),
            ("postgres://u:hun/ter2@h/db", "postgres://***@h/db"),
            ("https://h/a?token=hunter2#x", "https://h/a"),
            ("/a/b", "/a/b"),
        ] {
            assert_eq!(shown(source), expected);
        }
        assert_eq!(literal_password("postgres://u:hunter2@h/db"), Some("hunter2"));
        assert_eq!(literal_password("postgres://u:hun/ter2@h/db"), Some("hun/ter2"));
        assert_eq!(literal_password("postgres://u:${RIVERRUN_SOURCE_X}@h/db"), None);
        assert_eq!(literal_password("postgres://u:${HOME}@h/db"), Some("${HOME}"));
        assert_eq!(literal_password("postgres://u@h/db"), None);
        assert_eq!(literal_password("https://h:80/a@b"), None);
    }

    #[test]
    fn given_variables_when_filled_then_only_those_of_sources_are() {
        let secrets = SourceSecrets::new([
            ("RIVERRUN_SOURCE_P".to_owned(), "p@ss word/1".to_owned()),
            ("HOME".to_owned(), "/root".to_owned()),
        ]);
        assert_eq!(
            secrets.fill("postgres://u:${RIVERRUN_SOURCE_P}@h/db").unwrap(),
            "postgres://u:p%40ss%20word%2F1@h/db"
        );
        assert_eq!(secrets.fill("postgres://u:${HOME}@h/db").unwrap_err().code(), "bad_option");
        assert!(!format!("{secrets:?}").contains("p@ss"));
    }
}
