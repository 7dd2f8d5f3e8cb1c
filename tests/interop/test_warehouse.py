"""Tables and removals as their users meet them: over HTTP, and after the server was killed in the middle."""

import contextlib
import io
import sqlite3
import zipfile

import pytest

from server import wait_for
from test_sources import multipart

CSV = "\ufeff\"last, first\",born,fee\r\n\"Doe, Jane\",1970-01-31,1.50\r\n\"O'Hara \"\"Al\"\"\",,20\r\n"


def ingest(server, collection, name, text, **fields):
    path = server.folder / "files" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return ingest_from(server, collection, path, **fields)


def ingest_from(server, collection, source, **fields):
    answer = server.post("/ingest", {"source": str(source), "collection": collection} | fields)
    assert answer.status == 202, answer
    where = f"/ingest/{answer.json['ingest_id']}"

    def ended():
        view = server.get(where)
        return view.json if view.status == 200 and view.json["status"] != "running" else None

    return wait_for(ended, 120, "the ingest to end")


def query(server, sql):
    return server.post("/warehouse/query", {"sql": sql})


@pytest.fixture
def tables(new_server, tmp_path):
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
    view = ingest(server, "people", "people.csv", CSV, table="people")
    assert view["indexed"] == 1, view
    return server


def test_rows_are_a_table_and_documents(tables):
    found = query(tables, 'SELECT "last, first", born, fee FROM people ORDER BY fee').json
    assert [column["type"] for column in found["columns"]] == ["VARCHAR", "DATE", "DECIMAL(4,2)"]
    assert found["rows"] == [["Doe, Jane", "1970-01-31", "1.50"], ["O'Hara \"Al\"", None, "20.00"]]
    listed = tables.get("/warehouse/tables").json["items"]
    assert [(table["name"], table["rows"]) for table in listed] == [("people", 2)]
    hits = tables.post("/rag/search", {"query": "Jane Doe", "collection": "people"})
    assert "Jane" in hits.json["items"][0]["text"]
    shown = tables.cli("warehouse", "query", "SELECT count(*) AS n FROM people", "--csv")
    assert shown.stdout.split() == ["n", "2"], shown


@pytest.mark.parametrize("sql", [
    "DROP TABLE people", "SELECT 1; SELECT 2", "SELECT * FROM read_csv('/etc/passwd')", "COPY people TO '/tmp/riverrun-out'",
    "ATTACH '/tmp/x.db'", "SET threads = 1", "PRAGMA version", "INSTALL httpfs", "", "no sql", "SELECT * FROM nothing",
])
def test_anything_but_one_reading_statement_is_422(tables, sql):
    answer = query(tables, sql)
    assert answer.status == 422 and answer.json["code"] in ("statement_refused", "query_failed"), answer
    assert answer.json["hint"] and b"root:" not in answer.body
    assert query(tables, "SELECT count(*) FROM people").json["rows"] == [[2]]


def test_times_are_in_utc_wherever_the_machine_is(new_server):
    server = new_server(TZ="Asia/Kathmandu").start()
    found = query(server, "SELECT current_setting('TimeZone'), timestamptz '2026-01-01 00:00:00', [timestamptz '2026-01-01 00:00:00+05:45']")
    assert found.json["rows"] == [["UTC", "2026-01-01T00:00:00Z", ["2025-12-31T18:15:00Z"]]], found


def test_a_removal_goes_everywhere_and_holds_after_a_kill(tables):
    document = tables.get("/documents?collection=people").json["items"][0]["document_id"]
    receipt = tables.request("DELETE", f"/documents/{document}")
    assert receipt.status == 200, receipt
    gone = receipt.json
    assert (gone["documents"], gone["tables"], gone["rows"]) == (1, 1, 2) and gone["vectors"] == gone["keywords"] > 0
    assert tables.request("DELETE", f"/documents/{document}").status == 404
    assert tables.get("/warehouse/tables").json["items"] == []
    assert tables.post("/rag/search", {"query": "Jane", "collection": "people"}).status == 404

    # The same file again is taken in again, and survives a kill.
    assert ingest(tables, "people", "people.csv", CSV, table="people")["indexed"] == 1
    tables.kill()
    tables.start()
    assert query(tables, "SELECT count(*) FROM people").json["rows"] == [[2]]
    check = tables.get("/collections/people/check").json
    assert check["orphans"] == [] and check["vectors"] == check["keywords"] == check["chunks"] > 0
    swept = tables.request("DELETE", "/collections/people").json
    assert (swept["total"], swept["documents"], swept["tables"]) == (1, 1, 1)
    assert tables.get("/collections").json["items"] == []


def rows_of_tables(server):
    return {table["name"]: table["rows"] for table in server.get("/warehouse/tables").json["items"]}


def sources(server, collection):
    """Of the documents that are there; a collection that never had one indexed, or has none any more, is none."""
    return [document["source"] for document in server.get(f"/documents?collection={collection}").json.get("items", [])]


FILES = {
    "2023/sales.csv": "n\n1\n2\n", "2024/sales.csv": "n\n1\n2\n3\n", "a b.csv": "n\n1\n", "a-b.csv": "n\n1\n2\n3\n4\n",
    "notes.md": "# Notes\n\nThe numbat has no rows.\n",
}


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_files_of_one_name_lose_no_row_and_those_without_rows_are_taken_in(tables, tmp_path, kind):
    folder = tmp_path / "many"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    source = folder
    if kind == "archive":
        source, packed = tmp_path / "many.zip", io.BytesIO()
        with zipfile.ZipFile(packed, "w") as made:
            for name, text in FILES.items():
                made.writestr(name, text)
        source.write_bytes(packed.getvalue())
    view = ingest_from(tables, "many", source, table="s")
    assert (view["indexed"], view["failed"]) == (len(FILES), 0), view
    before = {name: rows for name, rows in rows_of_tables(tables).items() if name.startswith("s_")}
    assert sorted(before.values()) == [1, 2, 3, 4] and (before["s_2023_sales"], before["s_2024_sales"]) == (2, 3), before
    assert "numbat" in tables.post("/rag/search", {"query": "numbat", "collection": "many"}).json["items"][0]["text"]
    view = ingest_from(tables, "many", source, table="s")
    assert (view["unchanged"], view["failed"]) == (len(FILES), 0), view
    assert {name: rows for name, rows in rows_of_tables(tables).items() if name.startswith("s_")} == before


def test_files_handed_in_together_lose_no_row_and_those_without_rows_are_taken_in(tables):
    files = [(name.replace("/", " "), text.encode()) for name, text in FILES.items()] + [("list.json", b"[1, 2]")]
    body, headers = multipart([("collection", "uploads"), ("table", "s")], files)
    answer = tables.request("POST", "/ingest", body, headers)
    assert answer.status == 202, answer
    view = tables.ingest_end(answer.json["ingest_id"])
    assert (view["indexed"], view["failed"]) == (len(files), 0), view
    assert sorted(rows for name, rows in rows_of_tables(tables).items() if name.startswith("s_")) == [1, 2, 3, 4]


def test_a_name_of_another_document_is_refused_and_a_document_has_the_tables_of_its_last_request(tables):
    view = ingest(tables, "others", "others.csv", "n\n1\n", table="People")
    assert view["failed"] == 1 and view["failures"][0]["error"]["code"] == "table_taken" and view["failures"][0]["error"]["hint"], view
    assert rows_of_tables(tables) == {"people": 2}
    assert ingest(tables, "others", "others.csv", "n\n1\n", table="others")["indexed"] == 1
    assert ingest(tables, "others", "others.csv", "n\n1\n2\n", table="renamed")["indexed"] == 1
    assert rows_of_tables(tables) == {"people": 2, "renamed": 2}
    assert ingest(tables, "others", "others.csv", "n\n1\n2\n3\n")["indexed"] == 1
    assert rows_of_tables(tables) == {"people": 2}


def test_a_query_has_one_table_and_what_it_gives_no_more_is_gone(tables, tmp_path):
    place = tmp_path / "shop.db"

    def change(*statements):
        with contextlib.closing(sqlite3.connect(place)) as shop, shop:
            for statement in statements:
                shop.execute(statement)

    def read():
        return ingest_from(tables, "shop", f"sqlite:{place}", query="SELECT id, name, price FROM products ORDER BY id", table="prod")

    change("CREATE TABLE products (id INTEGER, name TEXT, price REAL)",
           "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250) INSERT INTO products SELECT i, 'product ' || i, i / 4.0 FROM n")
    view = read()
    assert (view["indexed"], view["failed"]) == (3, 0), view
    assert rows_of_tables(tables) == {"people": 2, "prod": 250}
    assert query(tables, "SELECT count(DISTINCT id), max(id), sum(price) FROM prod").json["rows"][0][:2] == [250, 250]
    view = read()
    assert (view["unchanged"], view["failed"]) == (3, 0), view

    change("DELETE FROM products WHERE id > 120")
    assert read()["failed"] == 0
    assert rows_of_tables(tables) == {"people": 2, "prod": 120}
    wait_for(lambda: len(sources(tables, "shop")) == 2, 60, "the third document to go")
    found = tables.post("/rag/search", {"query": "product 240", "collection": "shop", "mode": "sparse"}).json["items"]
    assert not any("product 240" in item["text"] for item in found), found

    change("DELETE FROM products")
    view = read()
    assert (view["status"], view["failed"]) == ("done", 0), view
    wait_for(lambda: not sources(tables, "shop"), 60, "all documents to go")
    assert rows_of_tables(tables) == {"people": 2}
    answer = tables.post("/ingest", {"source": f"sqlite:{place}", "collection": "shop", "query": "SELECT id, name, price FROM products ORDER BY id"})
    assert wait_for(lambda: tables.get(f"/ingest/{answer.json['ingest_id']}").json.get("status") == "failed", 60, "the empty query to fail")
