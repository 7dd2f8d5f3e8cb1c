//! Documents in MongoDB. Nothing needs a transaction, which a single server has none of: each change carries its offset and
//! gives way to a later one, and the position moves last (`DOC-2`).

use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, Database};
use riverrun_schemas::{Namespace, Topic};

use super::{Change, DocumentEntry, DocumentKey, DocumentKind, DocumentStore, DocumentsInfo, KeptDocument, after};
use crate::error::StoreError;
use crate::read_models::{Page, PageRequest};

/// How long finding a server may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long an answer may take. The driver itself would wait for ever for a server that is gone without a word, and with it whoever
/// writes. What it cuts off goes on in the server, and is asked for again.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The database of an address that names none.
const DATABASE: &str = "riverrun";
/// What the server says when a document of that id is there and did not match: one of a later offset.
const DUPLICATE_KEY: i32 = 11_000;

/// A MongoDB server.
#[derive(Clone)]
pub struct MongoDocuments {
    database: Database,
    place: String,
}

impl MongoDocuments {
    /// Connects when it is needed, and again when the connection is lost. The database is that of the address, or `riverrun`.
    ///
    /// # Errors
    /// When the address is none, such as `mongodb://user:password@host:27017/riverrun`.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        // What the driver says of an address may hold the password.
        let bad = |_: Error| StoreError::Server {
            service: "MongoDB",
            address: "the address in RIVERRUN_MONGODB_URL".to_owned(),
            reason: "it is none that the driver takes".to_owned(),
            fix: "set RIVERRUN_MONGODB_URL=mongodb://user:password@host:27017/riverrun, or unset it".to_owned(),
        };
        let mut options = ClientOptions::parse(url).await.map_err(bad)?;
        options.app_name = Some("riverrun".to_owned());
        options.server_selection_timeout = Some(CONNECT_TIME);
        options.connect_timeout = Some(CONNECT_TIME);
        let name = options.default_database.clone().unwrap_or_else(|| DATABASE.to_owned());
        let hosts = options.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let database = Client::with_options(options).map_err(bad)?.database(&name);
        Ok(Self { database, place: format!("mongodb://{hosts}/{name}") })
    }

    fn documents(&self) -> Collection<Document> {
        self.database.collection("documents")
    }

    fn positions(&self) -> Collection<Document> {
        self.database.collection("positions")
    }

    fn failed(&self) -> impl Fn(Error) -> StoreError + '_ {
        |error| StoreError::Server {
            service: "MongoDB",
            address: self.place.clone(),
            reason: reason(&error),
            fix: "start the MongoDB server, or check RIVERRUN_MONGODB_URL".to_owned(),
        }
    }

    fn unreadable(&self, id: &str, what: &str) -> StoreError {
        StoreError::Server {
            service: "MongoDB",
            address: self.place.clone(),
            reason: format!("document {id:?} has no field {what:?} of the right type"),
            fix: "drop the collections `documents` and `positions`: they are made again from the log".to_owned(),
        }
    }

    async fn put(&self, kept: &KeptDocument) -> Result<(), StoreError> {
        let filter = doc! { "_id": id_of(&kept.key), "log_offset": { "$lt": kept.offset } };
        let fields = doc! {
            "name": kept.name.as_str(),
            "revision": kept.revision,
            "saved_at": kept.at,
            "log_offset": kept.offset,
            "saves": kept.saves.clone(),
            "size_bytes": i64::try_from(kept.body.len()).unwrap_or(i64::MAX),
            "body": kept.body.as_str(),
        };
        match in_time(self.documents().update_one(filter, doc! { "$set": fields }).upsert(true)).await {
            Ok(_) => Ok(()),
            Err(error) if is_duplicate(&error) => Ok(()),
            Err(error) => Err(self.failed()(error)),
        }
    }

    fn integer(&self, document: &Document, field: &str) -> Result<i64, StoreError> {
        match document.get(field) {
            Some(Bson::Int64(value)) => Ok(*value),
            Some(Bson::Int32(value)) => Ok(i64::from(*value)),
            _ => Err(self.unreadable(document.get_str("_id").unwrap_or_default(), field)),
        }
    }

    fn text(&self, document: &Document, field: &str) -> Result<String, StoreError> {
        document
            .get_str(field)
            .map(str::to_owned)
            .map_err(|_| self.unreadable(document.get_str("_id").unwrap_or_default(), field))
    }
}

#[async_trait]
impl DocumentStore for MongoDocuments {
    fn info(&self) -> DocumentsInfo {
        DocumentsInfo { kind: "mongodb", place: self.place.clone() }
    }

    async fn version(&self) -> Result<String, StoreError> {
        let told = in_time(self.database.run_command(doc! { "buildInfo": 1 })).await.map_err(self.failed())?;
        Ok(told.get_str("version").unwrap_or("unknown").to_owned())
    }

    async fn next_offset(&self, topic: Topic, partition: i32) -> Result<i64, StoreError> {
        let filter = doc! { "_id": position_of(topic, partition) };
        match in_time(self.positions().find_one(filter)).await.map_err(self.failed())? {
            Some(found) => self.integer(&found, "next_offset"),
            None => Ok(0),
        }
    }

    async fn write(
        &self,
        topic: Topic,
        partition: i32,
        changes: &[Change],
        next_offset: i64,
    ) -> Result<(), StoreError> {
        for change in changes {
            match change {
                Change::Put(document) => self.put(document).await?,
                Change::Remove { key, offset } => {
                    let filter = doc! { "_id": id_of(key), "log_offset": { "$lt": *offset } };
                    in_time(self.documents().delete_one(filter)).await.map_err(self.failed())?;
                }
                Change::RemoveBelow { key, offset } => {
                    let (prefix, (from, to)) = (prefix_of(key.kind, &key.namespace), key.range_below());
                    let ids = doc! { "$gt": format!("{prefix}{from}"), "$lt": format!("{prefix}{to}") };
                    let filter = doc! { "_id": ids, "log_offset": { "$lt": *offset } };
                    in_time(self.documents().delete_many(filter)).await.map_err(self.failed())?;
                }
            }
        }
        let filter = doc! { "_id": position_of(topic, partition) };
        let update = doc! { "$max": { "next_offset": next_offset } };
        match in_time(self.positions().update_one(filter, update).upsert(true)).await {
            Ok(_) => Ok(()),
            // Two projectors began at the same time; the next batch moves it.
            Err(error) if is_duplicate(&error) => Ok(()),
            Err(error) => Err(self.failed()(error)),
        }
    }

    /// Positions go last: cut off between the two, the store is again ahead of the log and is cleared again.
    async fn clear(&self) -> Result<(), StoreError> {
        in_time(self.documents().delete_many(doc! {})).await.map_err(self.failed())?;
        in_time(self.positions().delete_many(doc! {})).await.map_err(self.failed())?;
        Ok(())
    }

    async fn get(&self, key: &DocumentKey) -> Result<Option<KeptDocument>, StoreError> {
        let found = in_time(self.documents().find_one(doc! { "_id": id_of(key) })).await.map_err(self.failed())?;
        let Some(found) = found else { return Ok(None) };
        let saves = found.get_array("saves").map(Vec::as_slice).unwrap_or_default();
        Ok(Some(KeptDocument {
            key: key.clone(),
            name: self.text(&found, "name")?,
            revision: self.integer(&found, "revision")?,
            at: self.integer(&found, "saved_at")?,
            offset: self.integer(&found, "log_offset")?,
            saves: saves.iter().filter_map(Bson::as_str).map(str::to_owned).collect(),
            body: self.text(&found, "body")?,
        }))
    }

    async fn list(
        &self,
        kind: DocumentKind,
        namespace: &Namespace,
        page: &PageRequest,
    ) -> Result<Page<DocumentEntry>, StoreError> {
        let (prefix, limit) = (prefix_of(kind, namespace), page.limit());
        let mut range = within(kind, namespace);
        range.insert("$gt", format!("{prefix}{}", after(kind, page)?));
        let documents = self.documents();
        let found = documents
            .find(doc! { "_id": range })
            .sort(doc! { "_id": 1 })
            .limit(limit + 1)
            .projection(doc! { "body": 0, "saves": 0 });
        let mut cursor = in_time(found).await.map_err(self.failed())?;
        let mut entries = Vec::new();
        while in_time(cursor.advance()).await.map_err(self.failed())? {
            let one = cursor.deserialize_current().map_err(self.failed())?;
            let id = self.text(&one, "_id")?;
            entries.push(DocumentEntry {
                id: id.strip_prefix(&prefix).unwrap_or(&id).to_owned(),
                name: self.text(&one, "name")?,
                revision: self.integer(&one, "revision")?,
                at: self.integer(&one, "saved_at")?,
                size_bytes: self.integer(&one, "size_bytes")?,
            });
        }
        Ok(Page::of(entries, limit, |entry| entry.id.clone()))
    }

    async fn count(&self, kind: DocumentKind, namespace: &Namespace) -> Result<u64, StoreError> {
        in_time(self.documents().count_documents(doc! { "_id": within(kind, namespace) })).await.map_err(self.failed())
    }
}

/// What the server answers, unless it takes too long.
async fn in_time<T>(question: impl IntoFuture<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(ANSWER_TIME, question.into_future()).await.unwrap_or_else(|late| Err(Error::custom(late)))
}

/// `<kind>/<namespace>/`; no part has a slash in it.
fn prefix_of(kind: DocumentKind, namespace: &Namespace) -> String {
    format!("{}/{namespace}/", kind.as_str())
}

fn id_of(key: &DocumentKey) -> String {
    format!("{}{}", prefix_of(key.kind, &key.namespace), key.id)
}

fn position_of(topic: Topic, partition: i32) -> String {
    format!("{}/{partition}", topic.name())
}

/// The ids with that prefix: the digit 0 comes right behind the slash.
fn within(kind: DocumentKind, namespace: &Namespace) -> Document {
    doc! { "$gt": prefix_of(kind, namespace), "$lt": format!("{}/{namespace}0", kind.as_str()) }
}

fn is_duplicate(error: &Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.code == DUPLICATE_KEY,
        ErrorKind::Command(command) => command.code == DUPLICATE_KEY,
        _ => false,
    }
}

/// In words without an address, which may hold the password.
fn reason(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(said) => {
            format!("it says: {}", said.message.chars().filter(|c| !c.is_control()).take(300).collect::<String>())
        }
        ErrorKind::Authentication { .. } => "it refuses the account".to_owned(),
        ErrorKind::ServerSelection { .. } | ErrorKind::Io(_) | ErrorKind::DnsResolve { .. } => {
            "it can't be reached".to_owned()
        }
        ErrorKind::Custom(_) => format!("it gave no answer within {} s", ANSWER_TIME.as_secs()),
        ErrorKind::Write(_) => "it did not take what was written".to_owned(),
        _ => "it gave an answer that can't be read".to_owned(),
    }
}
