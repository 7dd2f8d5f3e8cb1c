//! Rows on their way into documents: so many lines of JSON each.

use std::collections::HashSet;

use futures::{Stream, StreamExt};
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::super::document_store::EVERYTHING;
use super::super::gather::{Gathered, Item};
use super::super::place::{DatabaseAddress, Place, place};
use super::super::{Fault, SourceError, by_name};
use super::{MAX_ROWS, check_query, failed};

/// Rows of one document.
const BATCH_ROWS: usize = 100;

/// Bytes of rows from which on a document is full.
const BATCH_BYTES: usize = 1 << 20;

/// Bytes of rows that are held to be put in order; more come as the database gives them.
const MAX_SORTED_BYTES: usize = 64 << 20;

/// Most bytes of one row.
const MAX_ROW_BYTES: usize = 4 << 20;

/// Bytes of a query's hash in the names of its documents.
const HASH_BYTES: usize = 4;

/// How addresses begin whose documents are rows of a query.
const SCHEMES: [&str; 7] =
    ["postgres://", "postgresql://", "mysql://", "mariadb://", "sqlite:", "mongodb://", "mongodb+srv://"];

/// What the documents of a query's rows are named by, before their number.
fn base(shown: &str, query: &str) -> String {
    let hash: String = Sha256::digest(query).iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{shown}#{hash}")
}

/// What the documents of a request's query are named by, before their number (see [`batch_of`]); `None` for a source without a query,
/// and for a query that is refused.
pub fn batches_of(source: &str, forced: Option<&str>, query: Option<&str>) -> Option<String> {
    match place(source, forced).ok()? {
        Place::Database(address) => Some(base(&address.shown, &check_query(&address.shown, query?).ok()?)),
        Place::Documents(address) => Some(base(&address.shown, query.unwrap_or(EVERYTHING))),
        Place::Path | Place::Web(_) | Place::Git(_) | Place::Topic(_) => None,
    }
}

/// The query whose rows a document holds, as [`batches_of`] names it, and the document's number among those of that query, from 1 on;
/// `None` for every other document.
pub fn batch_of(source: &str) -> Option<(&str, usize)> {
    let (base, number) = source.rsplit_once('/')?;
    let (shown, hash) = base.rsplit_once('#')?;
    let scheme = shown.to_ascii_lowercase();
    let is_query = SCHEMES.iter().any(|known| scheme.starts_with(known))
        && hash.len() == 2 * HASH_BYTES
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    number.parse().ok().filter(|_| is_query).map(|number| (base, number))
}

/// The first name that comes twice in a row that a database wrote as JSON: whoever reads it keeps only one of the two.
fn repeated(json: &str) -> Option<String> {
    struct Names;

    impl<'de> Visitor<'de> for Names {
        type Value = Option<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a row")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut row: A) -> Result<Self::Value, A::Error> {
            let (mut seen, mut repeated) = (HashSet::new(), None);
            while let Some((name, IgnoredAny)) = row.next_entry::<String, IgnoredAny>()? {
                if !seen.insert(name.clone()) {
                    repeated.get_or_insert(name);
                }
            }
            Ok(repeated)
        }
    }

    serde_json::Deserializer::from_str(json).deserialize_map(Names).ok().flatten()
}

/// Whether a query says somewhere in which order its rows come.
fn is_ordered(query: &str) -> bool {
    let query = query.to_lowercase();
    let words: Vec<&str> =
        query.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| *pair == ["order", "by"])
}

/// Rows on their way into documents.
pub(in crate::sources) struct Batches<'o> {
    base: String,
    shown: String,
    out: &'o mpsc::Sender<Item>,
    lines: String,
    in_batch: usize,
    total: usize,
    sent: usize,
    /// Rows that are to be put in order first, and how many more bytes of them may be held.
    held: Option<Vec<String>>,
    room: usize,
}

impl<'o> Batches<'o> {
    /// The documents of one query have its hash in their names: another query makes others. Rows in no order of their own are put in
    /// one: a database may give them in another each time, and then every document would be a changed one.
    pub(super) fn new(address: &DatabaseAddress, query: &str, out: &'o mpsc::Sender<Item>) -> Self {
        let held = (!is_ordered(query)).then(Vec::new);
        Self { held, ..Self::named(&address.shown, query, out) }
    }

    pub(in crate::sources) fn named(shown: &str, query: &str, out: &'o mpsc::Sender<Item>) -> Self {
        Self {
            base: base(shown, query),
            shown: shown.to_owned(),
            out,
            lines: String::new(),
            in_batch: 0,
            total: 0,
            sent: 0,
            held: None,
            room: MAX_SORTED_BYTES,
        }
    }

    pub(super) async fn take_all(
        &mut self,
        address: &DatabaseAddress,
        rows: impl Stream<Item = Result<(usize, String), sqlx::Error>>,
    ) -> Result<(), SourceError> {
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = rows.next().await {
            let (size, json) = row.map_err(|error| failed(address, &error))?;
            self.take(size, &json).await?;
        }
        Ok(())
    }

    /// Takes one row as JSON in one line.
    pub(in crate::sources) async fn take(&mut self, size: usize, json: &str) -> Result<(), SourceError> {
        let over = |reason: String, fix: &str| Err(SourceError::fault(&self.shown, Fault::LimitExceeded, reason, fix));
        self.total += 1;
        if self.total > MAX_ROWS {
            return over(
                format!("gives more than {MAX_ROWS} rows, the limit of one request"),
                "choose fewer with the query, for example part by part",
            );
        }
        if let Some(column) = (self.total == 1).then(|| repeated(json)).flatten() {
            return Err(SourceError::fault(
                &self.shown,
                Fault::QueryRefused,
                format!("gives two columns with the name {column:?}, of which a row can have one"),
                "give each a name of its own: SELECT a.id AS a_id, b.id AS b_id …",
            ));
        }
        if size > MAX_ROW_BYTES {
            return over(format!("gives a row of more than {MAX_ROW_BYTES} bytes"), "leave large columns out");
        }
        match &mut self.held {
            None => self.add(json).await,
            Some(held) if json.len() <= self.room => {
                self.room -= json.len();
                held.push(json.to_owned());
                Ok(())
            }
            Some(_) => {
                self.release().await?;
                self.add(json).await
            }
        }
    }

    /// Lets go of the rows that are held, as they stand.
    async fn release(&mut self) -> Result<(), SourceError> {
        for json in self.held.take().unwrap_or_default() {
            self.add(&json).await?;
        }
        Ok(())
    }

    async fn add(&mut self, json: &str) -> Result<(), SourceError> {
        self.lines.push_str(json);
        self.lines.push('\n');
        self.in_batch += 1;
        if self.in_batch >= BATCH_ROWS || self.lines.len() >= BATCH_BYTES {
            self.send().await?;
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), SourceError> {
        let kind = by_name("jsonl")?;
        self.in_batch = 0;
        self.sent += 1;
        let document = Gathered {
            source: format!("{}/{}", self.base, self.sent),
            bytes: std::mem::take(&mut self.lines).into_bytes(),
            kind,
        };
        // A receiver that is gone wants no more.
        let _ = self.out.send(Item::Document(document)).await;
        Ok(())
    }

    /// Sends what is left. A query without rows is an error.
    pub(in crate::sources) async fn finish(mut self) -> Result<(), SourceError> {
        if let Some(held) = &mut self.held {
            held.sort_unstable();
        }
        self.release().await?;
        if self.in_batch > 0 {
            self.send().await?;
        }
        if self.total == 0 {
            return Err(SourceError::fault(
                &self.shown,
                Fault::NoText,
                "gives no rows",
                "check the query with the database's own client",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_queries_when_their_documents_are_named_then_each_tells_its_query_and_no_other_document_has_such_a_name() {
        for (source, query) in [
            ("postgres://u:${RIVERRUN_SOURCE_X}@h:5432/d?sslmode=require", Some("SELECT 1;")),
            ("mysql://u@h/d", Some("VALUES (1)")),
            ("sqlite:/a b/x#1.db", Some("SELECT 1")),
            ("mongodb://h/d/c", None),
        ] {
            let base = batches_of(source, None, query).unwrap();
            assert_eq!(batch_of(&format!("{base}/12")), Some((base.as_str(), 12)), "{base}");
        }
        let query = |query| batches_of("sqlite:/x.db", None, Some(query));
        assert_eq!(query("SELECT 1"), query(" SELECT 1 ; "));
        assert_ne!(query("SELECT 1"), query("SELECT 2"));
        assert_eq!(batches_of("mongodb://h/d/c", None, None), batches_of("mongodb://h/d/c", None, Some("{}")));
        for (source, text) in [
            ("/x.csv", None),
            ("https://h/p", Some("SELECT 1")),
            ("sqlite:/x.db", None),
            ("sqlite:/x.db", Some("DROP TABLE t")),
        ] {
            assert_eq!(batches_of(source, None, text), None, "{source}");
        }
        for other in [
            "/d/x#0123abcd/1",
            "upload/x#0123abcd/1",
            "https://h/r.git#0123abcd/1",
            "sqlite:/x.db#0123abcd",
            "sqlite:/x.db#0123abcd/x",
            "sqlite:/x.db#0123abc/1",
            "sqlite:/x.db/1",
        ] {
            assert_eq!(batch_of(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn given_more_rows_than_can_be_held_when_read_then_none_is_lost_and_they_come_as_they_are_given() {
        let (sender, mut receiver) = mpsc::channel(10);
        let mut batches =
            Batches { held: Some(Vec::new()), room: 20, ..Batches::named("postgres://h/d", "q", &sender) };
        for json in [r#"{"i":3}"#, r#"{"i":1}"#, r#"{"i":2}"#, r#"{"i":0}"#] {
            batches.take(json.len(), json).await.unwrap();
        }
        batches.finish().await.unwrap();
        let Some(Item::Document(found)) = receiver.recv().await else { panic!("no document") };
        assert_eq!(String::from_utf8(found.bytes).unwrap(), "{\"i\":3}\n{\"i\":1}\n{\"i\":2}\n{\"i\":0}\n");
    }
}
