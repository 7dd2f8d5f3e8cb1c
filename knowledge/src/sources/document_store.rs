//! MongoDB: the documents of a collection that match a filter, as JSON Lines. Only `find` is ever called.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Bson, Document};
use mongodb::options::{ClientOptions, ReadConcern};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::database::{Batches, MAX_ROWS};
use super::gather::Item;
use super::place::CollectionAddress;
use super::{Fault, SourceError};

/// How long finding a server may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// How long the server may work on the query.
const QUERY_TIME: Duration = Duration::from_secs(60);

/// Longest filter, in bytes.
const MAX_FILTER: usize = 64 << 10;

/// The filter where none is given.
pub(super) const EVERYTHING: &str = "{}";

/// Documents that the server sends at a time.
const BATCH: u32 = 100;

/// Operators that run code on the server.
const REFUSED_OPERATORS: [&str; 4] = ["$where", "$function", "$accumulator", "$eval"];

/// Finds the documents and sends them. `url` has the password in it, `address` has none.
pub(super) async fn read_documents(
    address: &CollectionAddress,
    url: &str,
    filter: Option<&str>,
    out: &mpsc::Sender<Item>,
) -> Result<(), SourceError> {
    let text = filter.unwrap_or(EVERYTHING);
    let filter = check_filter(&address.shown, text)?;
    let mut batches = Batches::named(&address.shown, text, out);
    match tokio::time::timeout(CONNECT_TIME + QUERY_TIME, find(address, url, filter, &mut batches)).await {
        Ok(result) => result?,
        Err(_) => {
            return Err(SourceError::fault(
                &address.shown,
                Fault::TimedOut,
                format!("takes more than {} s to answer", QUERY_TIME.as_secs()),
                "ask for less, or add an index",
            ));
        }
    }
    batches.finish().await
}

/// The filter as the driver has it, when it runs no code.
pub fn check_filter(shown: &str, filter: &str) -> Result<Document, SourceError> {
    let refused = |reason: String| {
        SourceError::fault(
            shown,
            Fault::QueryRefused,
            format!("gets no filter that {reason}"),
            "--query '{\"year\": {\"$gte\": 2020}}'",
        )
    };
    if filter.len() > MAX_FILTER {
        return Err(refused(format!("has more than {MAX_FILTER} bytes")));
    }
    let json: Value = serde_json::from_str(filter).map_err(|error| refused(format!("is not JSON: {error}")))?;
    if let Some(operator) = code_operator(&json) {
        return Err(refused(format!("runs code on the server ({operator})")));
    }
    if !json.is_object() {
        return Err(refused("is not a JSON object".to_owned()));
    }
    // By its text form, in which {"$oid": …} and {"$date": …} are values.
    serde_json::from_value(json).map_err(|error| refused(format!("can't be read: {error}")))
}

fn code_operator(value: &Value) -> Option<&'static str> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            REFUSED_OPERATORS
                .into_iter()
                .find(|refused| key.eq_ignore_ascii_case(refused))
                .or_else(|| code_operator(value))
        }),
        Value::Array(items) => items.iter().find_map(code_operator),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

async fn find(
    address: &CollectionAddress,
    url: &str,
    filter: Document,
    batches: &mut Batches<'_>,
) -> Result<(), SourceError> {
    // What the driver says of an address may hold the password.
    let bad = |_| {
        SourceError::fault(
            &address.shown,
            Fault::AddressRefused,
            "is no address that the driver takes",
            "mongodb://user:${RIVERRUN_SOURCE_PASSWORD}@host/database/collection",
        )
    };
    // The driver's own form of an address ends with the database.
    let own =
        url.replacen(&format!("/{}/{}", address.database, address.collection), &format!("/{}", address.database), 1);
    let mut options = ClientOptions::parse(&own).await.map_err(bad)?;
    options.app_name = Some("riverrun".to_owned());
    options.server_selection_timeout = Some(CONNECT_TIME);
    options.connect_timeout = Some(CONNECT_TIME);
    options.max_pool_size = Some(1);
    let client = Client::with_options(options).map_err(bad)?;
    let collection = client.database(&address.database).collection::<Document>(&address.collection);
    let most = i64::try_from(MAX_ROWS + 1).unwrap_or(i64::MAX);
    let found = collection
        .find(filter)
        .sort(mongodb::bson::doc! { "_id": 1 })
        .limit(most)
        .batch_size(BATCH)
        .max_time(QUERY_TIME)
        .read_concern(ReadConcern::local());
    let mut cursor = found.await.map_err(|error| failed(address, &error))?;
    while cursor.advance().await.map_err(|error| failed(address, &error))? {
        let document = cursor.deserialize_current().map_err(|error| failed(address, &error))?;
        let json = object(&document).to_string();
        batches.take(json.len(), &json).await?;
    }
    Ok(())
}

fn failed(address: &CollectionAddress, error: &mongodb::error::Error) -> SourceError {
    use mongodb::error::ErrorKind;
    let reason = match error.kind.as_ref() {
        ErrorKind::Command(said) => {
            format!("says: {}", said.message.chars().filter(|c| !c.is_control()).take(300).collect::<String>())
        }
        ErrorKind::Authentication { .. } => "refuses the account".to_owned(),
        ErrorKind::ServerSelection { .. } | ErrorKind::Io(_) | ErrorKind::DnsResolve { .. } => {
            "can't be reached".to_owned()
        }
        _ => "gave an answer that can't be read".to_owned(),
    };
    SourceError::fault(&address.shown, Fault::SourceFailed, reason, "check address, account and filter with mongosh")
}

fn object(document: &Document) -> Value {
    Value::Object(document.iter().map(|(key, value)| (key.clone(), json(value))).collect::<Map<_, _>>())
}

/// A value as people write it; of bytes only how many they are.
fn json(value: &Bson) -> Value {
    match value {
        Bson::Double(value) => serde_json::Number::from_f64(*value).map_or(Value::Null, Value::Number),
        Bson::String(text) | Bson::Symbol(text) => Value::from(text.as_str()),
        Bson::Array(items) => Value::Array(items.iter().map(json).collect()),
        Bson::Document(document) => object(document),
        Bson::Boolean(value) => Value::from(*value),
        Bson::Int32(value) => Value::from(*value),
        Bson::Int64(value) => Value::from(*value),
        Bson::ObjectId(id) => Value::from(id.to_hex()),
        Bson::DateTime(time) => {
            Value::from(time.try_to_rfc3339_string().unwrap_or_else(|_| time.timestamp_millis().to_string()))
        }
        Bson::Decimal128(value) => Value::from(value.to_string()),
        Bson::Binary(bytes) => Value::from(format!("({} bytes)", bytes.bytes.len())),
        Bson::Timestamp(time) => Value::from(time.time),
        Bson::RegularExpression(_)
        | Bson::JavaScriptCode(_)
        | Bson::JavaScriptCodeWithScope(_)
        | Bson::DbPointer(_) => Value::from(value.to_string()),
        Bson::Null | Bson::Undefined | Bson::MaxKey | Bson::MinKey => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{doc, oid::ObjectId};
    use serde_json::json;

    use super::*;
    use crate::sources::place::{Place, place};

    #[test]
    fn given_filters_when_checked_then_only_those_that_run_no_code_pass() {
        for good in ["{}", r#"{"year":{"$gte":2020}}"#, r#"{"$or":[{"a":1},{"b":null}]}"#] {
            assert!(check_filter("m", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "[]",
            "1",
            "{\"a\"",
            r#"{"$where":"sleep(1000)"}"#,
            r#"{"a":{"$not":{"$where":"1"}}}"#,
            r#"{"$expr":{"$function":{"body":"x"}}}"#,
            r#"{"a":[{"$accumulator":{}}]}"#,
            r#"{"$WHERE":"1"}"#,
            &format!("{{\"a\":\"{}\"}}", "x".repeat(70_000)),
        ] {
            assert_eq!(check_filter("m", bad).unwrap_err().code(), "query_refused", "{bad:.40}");
        }
        let id = check_filter("m", r#"{"_id":{"$oid":"65f0a1b2c3d4e5f60718293a"}}"#).unwrap();
        assert!(matches!(id.get("_id"), Some(Bson::ObjectId(_))), "{id:?}");
    }

    #[test]
    fn given_documents_when_they_become_lines_then_values_read_as_people_write_them() {
        let id = ObjectId::parse_str("65f0a1b2c3d4e5f60718293a").unwrap();
        let line = object(&doc! { "_id": id, "n": 1_i64, "x": 1.5, "l": ["a", { "b": true }], "none": Bson::Null })
            .to_string();
        assert_eq!(line, r#"{"_id":"65f0a1b2c3d4e5f60718293a","n":1,"x":1.5,"l":["a",{"b":true}],"none":null}"#);
    }

    #[tokio::test]
    async fn given_a_server_that_is_not_an_address_when_asked_then_the_error_has_no_password() {
        let address = CollectionAddress {
            shown: "mongodb://u@h/d/c".into(),
            host: "h".into(),
            database: "d".into(),
            collection: "c".into(),
        };
        let (sender, _receiver) = mpsc::channel(1);
        let error = read_documents(&address, "mongodb://u:hunter2@h:99999/d/c", None, &sender).await.unwrap_err();
        assert_eq!(error.code(), "address_refused");
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    /// Where RIVERRUN_TEST_MONGODB_URL names a server.
    #[tokio::test]
    async fn given_a_server_when_asked_then_what_the_filter_finds_are_lines_in_the_order_of_their_ids() {
        let Some(server) = std::env::var("RIVERRUN_TEST_MONGODB_URL").ok().filter(|url| !url.is_empty()) else {
            return;
        };
        let name = format!("source_{}", std::process::id());
        let client = Client::with_uri_str(&server).await.unwrap();
        let animals = [
            doc! { "_id": 2, "name": "Quokka", "legs": 4 },
            doc! { "_id": 1, "name": "Axolotl", "legs": 4 },
            doc! { "_id": 3, "name": "Dugong", "legs": 0 },
        ];
        client.database(&name).collection::<Document>("animals").insert_many(animals).await.unwrap();
        let read = async |collection: &str, filter: &str| {
            let url = server.replacen("/?", &format!("/{name}/{collection}?"), 1);
            let Place::Documents(address) = place(&url, None).unwrap() else { panic!("{url}") };
            let (sender, mut receiver) = mpsc::channel(8);
            let result = read_documents(&address, &url, Some(filter), &sender).await;
            drop(sender);
            let mut lines: Vec<Value> = Vec::new();
            while let Some(item) = receiver.recv().await {
                let Item::Document(found) = item else { panic!("{item:?}") };
                let text = String::from_utf8(found.bytes).unwrap();
                lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
            }
            (result.map_err(|error| error.code()), lines)
        };
        let (result, lines) = read("animals", r#"{"legs":{"$gte":4}}"#).await;
        assert_eq!(result, Ok(()));
        let animal = |id: i32, name: &str| json!({"_id": id, "name": name, "legs": 4});
        assert_eq!(lines, [animal(1, "Axolotl"), animal(2, "Quokka")]);
        assert_eq!(read("nothing", "{}").await, (Err("no_text"), Vec::new()));
        client.database(&name).drop().await.unwrap();
    }
}
