"""Tables and removals as their users meet them: over HTTP, and after the server was killed in the middle."""

import pytest

from server import wait_for

CSV = "\ufeff\"last, first\",born,fee\r\n\"Doe, Jane\",1970-01-31,1.50\r\n\"O'Hara \"\"Al\"\"\",,20\r\n"


def ingest(server, collection, name, text, **fields):
    path = server.folder / "files" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    answer = server.post("/ingest", {"source": str(path), "collection": collection} | fields)
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
