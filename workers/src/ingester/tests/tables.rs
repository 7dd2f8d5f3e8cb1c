//! Tables of documents: their names, whose they are, and when they go.

use riverrun_knowledge::sources::LeftOutFiles;
use riverrun_stores::Warehouse;
use riverrun_stores::warehouse::{QueryLimits, TableInfo};

use super::*;
use crate::ingester::reading::Origin;

/// What documents of the query of these tests are named by.
const BASE: &str = "sqlite:/shop.db#0123abcd";

struct Tabular {
    world: World,
    warehouse: DuckWarehouse,
}

impl Tabular {
    async fn new(files: &[(&str, &str)]) -> Self {
        let World { ingester, dir, stack, blobs } = World::new(&[]).await;
        let warehouse = DuckWarehouse::open(DuckConfig::at(dir.path().join("warehouse"))).unwrap();
        let world = World { ingester: ingester.with_warehouse(Arc::new(warehouse.clone())), dir, stack, blobs };
        let tabular = Self { world, warehouse };
        files.iter().for_each(|(name, text)| tabular.write(name, text));
        tabular
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.world.dir.path().join("docs").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn start(&self, source: &str, table: Option<&str>) -> StartIngest {
        StartIngest { table: table.map(str::to_owned), ..self.world.start(source) }
    }

    /// Reads a source and hands its documents in; what was said of each, by the end of its source.
    async fn ingest(&self, source: &str, table: Option<&str>) -> Vec<(String, Said)> {
        let started = self.world.handle(self.start(&self.world.path(source), table)).await;
        let mut said = Vec::new();
        for submit in started.submissions() {
            let name = submit.source.strip_prefix(&self.world.path("")).unwrap_or(&submit.source).to_owned();
            said.push((name, self.world.hand_in(submit.clone()).await));
        }
        said
    }

    async fn listed(&self) -> Vec<TableInfo> {
        self.warehouse.tables(&Namespace::default()).await.unwrap()
    }

    /// Names and numbers of rows of all tables.
    async fn tables(&self) -> Vec<(String, i64)> {
        self.listed().await.into_iter().map(|table| (table.name, table.rows)).collect()
    }

    /// What is said of a query that gives these documents of rows.
    async fn queried(&self, table: Option<&str>, parts: &[&str]) -> Said {
        let start = self.start("sqlite:/shop.db", table);
        let delivery = testkit::deliveries([IngestCommand::from(start.clone())]).remove(0);
        let mut outputs = Vec::new();
        for _ in ["handed in", "handed in again"] {
            let mut documents = Vec::new();
            for (number, part) in (1..).zip(parts) {
                let content =
                    self.world.blobs.put_bytes(Bytes::from((*part).to_owned()), "application/jsonl").await.unwrap();
                let source = format!("{BASE}/{number}");
                documents.push(Read::Stored { source, source_type: Some("jsonl".to_owned()), content, has_rows: true });
            }
            let read = match parts {
                [] => Err(Failure::new("no_text", "the query gives no rows")),
                _ => Ok(Reading { origin: Origin::Query, documents, left_out: LeftOutFiles::default() }),
            };
            outputs.push(self.world.ingester.queried(&start, BASE, read, &delivery.envelope).await.unwrap());
        }
        let ids = |outputs: &[Outgoing]| outputs.iter().map(Outgoing::event_id).collect::<Vec<_>>();
        assert_eq!(ids(&outputs[0]), ids(&outputs[1]));
        Said::of(&outputs[0])
    }

    /// Lets happen what was asked for; sources of the documents that were handed in, and of those that went.
    async fn follow(&self, said: &Said) -> (Vec<String>, Vec<String>) {
        let (mut taken, mut gone) = (Vec::new(), Vec::new());
        for command in &said.commands {
            match command {
                IngestCommand::SubmitDocument(submit) => {
                    assert_eq!(submit.table, None, "the table is made of all rows");
                    self.world.hand_in(submit.clone()).await;
                    taken.push(submit.source.clone());
                }
                IngestCommand::DeleteDocument(delete) => {
                    let said = self.world.handle(delete.clone()).await;
                    assert_eq!((said.kinds(), said.withdrawn.len()), (vec!["DocumentWithdrawn"], 1));
                    self.world.stack.send(&said.events).await;
                    gone.push(delete.source.clone());
                }
                other => panic!("{other:?}"),
            }
        }
        (taken, gone)
    }
}

fn table(name: &str, rows: i64) -> (String, i64) {
    (name.to_owned(), rows)
}

fn kinds(said: &[(String, Said)]) -> Vec<(&str, Vec<&'static str>)> {
    said.iter().map(|(name, said)| (name.as_str(), said.kinds())).collect()
}

const TAKEN: [&str; 2] = ["DocumentQueued", "DocumentChunked"];
const UNCHANGED: [&str; 2] = ["DocumentQueued", "DocumentUnchanged"];

#[tokio::test(flavor = "multi_thread")]
async fn given_files_of_one_name_and_some_without_rows_when_ingested_then_no_row_is_lost_and_each_is_taken_in() {
    let files = [
        ("2023/sales.csv", "n\n1\n2\n"),
        ("2024/sales.csv", "n\n1\n2\n3\n"),
        ("a b.csv", "n\n1\n"),
        ("a-b.csv", "n\n1\n2\n3\n4\n"),
        ("list.json", "[1, 2]"),
        ("notes.md", "# Notes\n\nWithout rows.\n"),
    ];
    let tabular = Tabular::new(&files).await;
    let said = tabular.ingest("", Some("s")).await;
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    assert_eq!(kinds(&said), names.iter().map(|name| (*name, TAKEN.to_vec())).collect::<Vec<_>>());
    let tables = tabular.tables().await;
    let mut rows: Vec<i64> = tables.iter().map(|(_, rows)| *rows).collect();
    rows.sort_unstable();
    assert_eq!(rows, [1, 2, 3, 4], "{tables:?}");
    assert!(tables.contains(&table("s_2023_sales", 2)) && tables.contains(&table("s_2024_sales", 3)), "{tables:?}");
    let said = tabular.ingest("", Some("s")).await;
    assert_eq!(kinds(&said), names.iter().map(|name| (*name, UNCHANGED.to_vec())).collect::<Vec<_>>());
    assert_eq!(tabular.tables().await, tables);
    // One that was named itself says that it has no rows.
    let said = tabular.ingest("list.json", Some("other")).await;
    assert_eq!(said[0].1.failure().code, "not_tabular");
    assert_eq!(tabular.tables().await, tables);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_folder_when_files_come_and_change_then_every_table_has_the_rows_of_its_file_and_none_is_left_behind() {
    let tabular = Tabular::new(&[("x/a.csv", "n\n1\n")]).await;
    tabular.ingest("", Some("s")).await;
    assert_eq!(tabular.tables().await, [table("s_a", 1)]);
    tabular.write("x/b.csv", "n\n1\n2\n");
    tabular.ingest("", Some("s")).await;
    assert_eq!(tabular.tables().await, [table("s_a", 1), table("s_b", 2)]);
    // Another of that name: both say where they are from, and the name that the first had is no one's.
    tabular.write("y/a.csv", "n\n1\n2\n3\n");
    tabular.ingest("", Some("s")).await;
    assert_eq!(tabular.tables().await, [table("s_b", 2), table("s_x_a", 1), table("s_y_a", 3)]);
    // A request without tables: what was loaded before would be the rows of an older version.
    tabular.write("x/b.csv", "n\n1\n2\n3\n4\n");
    let said = tabular.ingest("x/b.csv", None).await;
    assert_eq!(kinds(&said), [("x/b.csv", TAKEN.to_vec())]);
    assert_eq!(tabular.tables().await, [table("s_x_a", 1), table("s_y_a", 3)]);
    // By itself, under a name of its own.
    tabular.ingest("x/a.csv", Some("a")).await;
    assert_eq!(tabular.tables().await, [table("a", 1), table("s_y_a", 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_name_of_another_documents_table_when_asked_for_then_the_document_fails_and_both_keep_theirs() {
    let tabular = Tabular::new(&[("a.csv", "n\n1\n"), ("b.csv", "n\n1\n2\n")]).await;
    tabular.ingest("a.csv", Some("t")).await;
    tabular.ingest("b.csv", Some("b")).await;
    let said = tabular.ingest("b.csv", Some("T")).await;
    let failure = said[0].1.failure();
    let owner =
        document_id(&Collection::new(Namespace::default(), "docs".parse().unwrap()), &tabular.world.path("a.csv"));
    assert_eq!(failure.code, "table_taken");
    assert!(failure.hint.as_ref().is_some_and(|hint| hint.contains(&owner.to_string())), "{failure:?}");
    assert_eq!(tabular.tables().await, [table("b", 2), table("t", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_query_of_many_documents_when_a_table_is_wanted_then_it_is_one_of_all_rows_and_follows_them() {
    let tabular = Tabular::new(&[]).await;
    let (one, two) = ("{\"id\":1,\"price\":1}\n{\"id\":2,\"price\":2}\n", "{\"id\":3,\"price\":2.5,\"note\":\"x\"}\n");
    let said = tabular.queried(Some("prod"), &[one, two]).await;
    assert_eq!(said.kinds(), ["IngestScanned"]);
    let sources = |numbers: &[usize]| numbers.iter().map(|number| format!("{BASE}/{number}")).collect::<Vec<_>>();
    assert_eq!(tabular.follow(&said).await, (sources(&[1, 2]), sources(&[])));
    let listed = tabular.listed().await;
    let [prod] = listed.as_slice() else { panic!("{listed:?}") };
    let columns: Vec<(&str, &str)> =
        prod.columns.iter().map(|column| (column.name.as_str(), column.sql_type.as_str())).collect();
    assert_eq!((prod.name.as_str(), prod.rows), ("prod", 3));
    assert_eq!(columns, [("id", "BIGINT"), ("price", "DECIMAL(2,1)"), ("note", "VARCHAR")]);
    let ask = "SELECT sum(price) FROM prod WHERE note IS NULL";
    let found = tabular.warehouse.query(&Namespace::default(), ask, QueryLimits::default()).await.unwrap();
    assert_eq!(found.rows, [[serde_json::json!("3.0")]]);

    // Under another name, and of fewer rows.
    let said = tabular.queried(Some("products"), &[one]).await;
    assert_eq!(tabular.follow(&said).await, (sources(&[1]), sources(&[2])));
    assert_eq!(tabular.tables().await, [table("products", 2)]);
    // The same rows under another name.
    let said = tabular.queried(Some("things"), &[one]).await;
    assert_eq!(tabular.follow(&said).await, (sources(&[1]), sources(&[])));
    assert_eq!(tabular.tables().await, [table("things", 2)]);
    // More of them again, and none wanted as a table.
    let said = tabular.queried(None, &[one, two]).await;
    assert_eq!(tabular.follow(&said).await, (sources(&[1, 2]), sources(&[])));
    assert!(tabular.tables().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_query_whose_rows_are_gone_when_read_then_its_documents_and_table_go_and_one_that_never_had_any_fails()
{
    let tabular = Tabular::new(&[]).await;
    assert_eq!(tabular.queried(Some("prod"), &[]).await.failure().code, "no_text");
    let said = tabular.queried(Some("prod"), &["{\"id\":1}\n", "{\"id\":2}\n", "{\"id\":3}\n"]).await;
    tabular.follow(&said).await;
    assert_eq!(tabular.tables().await, [table("prod", 3)]);
    let said = tabular.queried(Some("prod"), &[]).await;
    let Some(IngestEvent::IngestScanned(scanned)) = said.events.first() else { panic!("{said:?}") };
    assert_eq!((scanned.documents, said.events.len()), (0, 1));
    let (taken, mut gone) = tabular.follow(&said).await;
    gone.sort();
    let sources: Vec<String> = (1..=3).map(|number| format!("{BASE}/{number}")).collect();
    assert_eq!((taken.len(), gone), (0, sources));
    assert!(tabular.tables().await.is_empty());
    assert_eq!(tabular.queried(Some("prod"), &[]).await.failure().code, "no_text");
}
