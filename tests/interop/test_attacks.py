"""Whole kinds of attacks through every door: the command line, the API, and the tools that agents call. Nothing of what is tried may
be read, written or reached, and whoever tries is told so."""

import io
import json
import os
import struct
import time
import zipfile

import pytest

from test_sources import multipart

SECRET = "root:"

# Addresses of this machine and its neighbours in every spelling, and schemes that are no web.
ADDRESSES = [
    "http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/",
    "http://0177.0.0.1/", "http://127.1/", "http://127.0.0.1/", "http://0/", "http://0.0.0.0/", "http://[::]/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
    "http://[fd00::1]/", "http://[fe80::1]/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://224.0.0.1/",
    "http://user@127.0.0.1:80/", "http://localhost:1/", "https://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "dict://127.0.0.1/", "ftp://127.0.0.1/x",
    "jar:file:///x!/y", "http://[::ffff:7f00:1]/", "http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://192.0.2.1/", "http://240.0.0.1/",
    "http://255.255.255.255/", "http://169.254.170.2/v2/credentials", "http://127.0.0.1:22/", "http://127.000.000.001/", "HTTP://LOCALHOST/", "http://localhost./",
    "http://a:b@[::1]/", "data:text/plain,x", "ws://127.0.0.1/", "ssh://127.0.0.1/", "ldap://127.0.0.1/", "tftp://127.0.0.1/x", "netdoc:///etc/passwd",
]

# Statements that read files, reach out, change something or are more than one.
STATEMENTS = [
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM read_blob('/etc/passwd')", "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_parquet('http://169.254.169.254/x')", "SELECT * FROM sniff_csv('/etc/passwd')", "SELECT * FROM glob('/etc/*')", "SELECT * FROM '/etc/passwd'",
    "FROM '/etc/passwd'", "SELECT (SELECT content FROM read_text('/etc/passwd'))", "WITH x AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM x",
    "SELECT 1 WHERE EXISTS (SELECT * FROM read_text('/etc/passwd'))", "SELECT 1 UNION ALL SELECT content FROM read_text('/etc/passwd')", "SELECT * FROM duckdb_secrets()",
    "COPY (SELECT 1) TO '/tmp/riverrun-attack'", "EXPORT DATABASE '/tmp/riverrun-attack'", "ATTACH '/tmp/riverrun-attack.db'", "INSTALL httpfs", "LOAD httpfs",
    "SET enable_external_access = true", "RESET enable_external_access", "PRAGMA database_list", "CALL pragma_version()", "SELECT 1; DROP TABLE x", "CREATE TABLE x (a INTEGER)",
    "CREATE MACRO f() AS 1", "CREATE VIEW v AS SELECT 1", "INSERT INTO x VALUES (1)", "UPDATE x SET a = 1", "DELETE FROM x", "BEGIN TRANSACTION", "VACUUM", "CHECKPOINT",
    "SELECT * FROM pragma_database_list", "SELECT * FROM duckdb_settings()", "SELECT * FROM parquet_metadata('/etc/passwd')", "SELECT * FROM read_ndjson('/etc/passwd')",
    "SUMMARIZE SELECT * FROM read_text('/etc/passwd')", "DESCRIBE SELECT * FROM read_text('/etc/passwd')", "EXPLAIN SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM query('SELECT 1')", "IMPORT DATABASE '/tmp/riverrun-attack'", "USE memory", "PREPARE p AS SELECT 1", "ALTER TABLE x ADD COLUMN b INTEGER",
    "DROP SCHEMA riverrun CASCADE", "CREATE SECRET s (TYPE S3)", "SELECT 1; SELECT 2; COPY (SELECT 1) TO '/tmp/riverrun-attack'",
    "SELECT/**/*/**/FROM/**/read_text('/etc/passwd')", "select * from READ_TEXT('/etc/passwd')", "SELECT * FROM \"read_text\"('/etc/passwd')",
]

# Repositories that are a program, an option, a file or this machine.
REPOSITORIES = [
    "--upload-pack=touch /tmp/riverrun-attack", "-u./x.git", "ext::sh -c touch% /tmp/riverrun-attack", "git@-oProxyCommand=x:y", "ssh://-oProxyCommand=x/y",
    "file:///etc", "https://127.0.0.1/x.git", "https://[::1]/x.git", "git://127.0.0.1/x.git", "http://169.254.169.254/x.git",
    "--config=core.fsmonitor=touch /tmp/riverrun-attack", "-x", "fd::17/x", "https://user:word@127.0.0.1/x.git", "git+file:///etc", "transport::https://h/x.git",
]

DOCUMENTS = ["../../etc/passwd", "/etc/passwd", "doc_../../etc/passwd", "%2e%2e%2fpasswd", "doc_", "' OR 1=1 --", "doc_\0"]


def call(server, tool, arguments):
    return server.post(f"/tools/{tool}/call", {"arguments": arguments, "confirm": True})


def check_refused(server, reply):
    """Refused at once, or taken in and failed with nothing found."""
    assert SECRET.encode() not in reply.body, reply
    if reply.status == 202:
        state = server.ingest_end(reply.json["ingest_id"])
        assert state["indexed"] == 0, state
        return
    assert 400 <= reply.status < 500 and reply.json["detail"], reply


def check_told(done):
    assert done.returncode not in (0, 101) and done.returncode > 0, done
    assert done.stderr.strip() and SECRET not in done.stdout + done.stderr, done


@pytest.mark.parametrize("address", ADDRESSES)
class TestAddresses:
    def test_by_http(self, server, address):
        check_refused(server, server.post("/ingest", {"source": address, "collection": "attacked"}))

    def test_on_the_command_line(self, server, address):
        check_told(server.cli("ingest", "-c", "attacked", "--", address))

    def test_by_a_tool(self, server, address):
        reply = call(server, "web_fetch", {"url": address})
        assert reply.status == 422 and SECRET.encode() not in reply.body, reply


@pytest.mark.parametrize("statement", STATEMENTS)
class TestStatements:
    def test_by_http(self, server, statement):
        reply = server.post("/warehouse/query", {"sql": statement})
        assert reply.status == 422 and SECRET.encode() not in reply.body, reply

    def test_on_the_command_line(self, server, statement):
        check_told(server.cli("warehouse", "query", statement))

    def test_by_a_tool(self, server, statement):
        reply = call(server, "warehouse_query", {"sql": statement})
        assert reply.status == 422 and SECRET.encode() not in reply.body, reply


@pytest.mark.parametrize("repository", REPOSITORIES)
class TestRepositories:
    def test_by_http(self, server, repository):
        check_refused(server, server.post("/ingest", {"source": repository, "type": "git", "collection": "attacked"}))

    def test_on_the_command_line(self, server, repository):
        check_told(server.cli("ingest", "-t", "git", "-c", "attacked", "--", repository))


@pytest.fixture(scope="module")
def traps(server):
    """A folder that may be read, with ways out of it."""
    folder = server.folder / "traps"
    folder.mkdir(exist_ok=True)
    (folder / "link.txt").symlink_to("/etc/passwd")
    (folder / "etc").symlink_to("/etc")
    os.mkfifo(folder / "fifo.txt")
    return folder


PATHS = [
    "/etc/passwd", "//etc/passwd", "/etc/./passwd", "../../etc/passwd", "%2e%2e%2fetc%2fpasswd", "/dev/zero", "/dev/stdin", "/proc/self/environ", "~/.ssh/id_rsa", "/",
    "{traps}/../../../../../../etc/passwd", "{traps}/link.txt", "{traps}/etc/passwd", "{traps}/fifo.txt", "{traps}/a\0b", "{traps}/" + "x" * 4_096, "{traps}/missing.md",
]


@pytest.mark.parametrize("path", PATHS, ids=[path[:40].replace("\0", "NUL") for path in PATHS])
def test_a_path_leads_nowhere_by_http(server, traps, path):
    check_refused(server, server.post("/ingest", {"source": path.replace("{traps}", str(traps)), "collection": "attacked"}))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full", "{traps}/fifo.txt", "{traps}/missing.md", "{traps}/" + "x" * 4_096], ids=["zero", "full", "fifo", "missing", "long"])
def test_what_is_no_file_is_refused_on_the_command_line(server, traps, path):
    check_told(server.cli("ingest", path.replace("{traps}", str(traps)), "-c", "attacked", timeout=60))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_that_is_a_path_is_none(server, document):
    reply = call(server, "document_read", {"document_id": document})
    assert reply.status == 422 and SECRET.encode() not in reply.body, reply


def packed(name, content="words", mode=0o100644):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def encrypted():
    """Says that it is, in both places where an archive says so."""
    archive = bytearray(packed("a.txt"))
    archive[6] |= 1
    archive[archive.index(b"PK\x01\x02") + 8] |= 1
    return bytes(archive)


ARCHIVES = {
    "up": packed("../evil.txt"),
    "far up": packed("../../evil.txt"),
    "up from inside": packed("a/../../evil.txt"),
    "up with dots": packed("..././evil.txt"),
    "up with backslashes": packed("a\\..\\..\\evil.txt"),
    "drive": packed("C:\\evil.txt"),
    "encrypted": encrypted(),
    "absolute": packed("/abs.txt"),
    "system file": packed("/etc/passwd"),
    "archive in it": packed("inner.zip", packed("x.txt")),
    "link": packed("link.txt", "/etc/passwd", 0o120777),
    "bomb": packed("zeros.txt", b"\0" * (32 << 20)),
    "cut": packed("a.txt", "words " * 1_000)[:60],
    "no archive": b"PK\x03\x04 but not really",
}


@pytest.mark.parametrize("kind", ARCHIVES)
class TestArchives:
    def test_by_http(self, server, kind):
        body, headers = multipart([("collection", "attacked")], [("trap.zip", ARCHIVES[kind])])
        check_refused(server, server.request("POST", "/ingest", body, headers))
        assert not (server.folder / "evil.txt").exists() and not (server.folder.parent / "evil.txt").exists()

    def test_on_the_command_line(self, server, kind):
        place = server.folder / f"{kind.replace(' ', '-')}.zip"
        place.write_bytes(ARCHIVES[kind])
        check_told(server.cli("ingest", str(place), "-c", "attacked"))
        assert not (server.folder / "evil.txt").exists() and not (server.folder.parent / "evil.txt").exists()


BODIES = [b"", b"\x02", b"\xff" * 9, b"\x80" * 20, b"\xfe\xff\xff\xff\x0f", b"\x01" * 5]
FRAMES = [b"\0" + struct.pack(">I", schema) + body for schema in (0, 1, 16, 2**31 - 1, 2**32 - 1) for body in BODIES]


def test_frames_that_are_no_documents_never_become_one(server):
    from confluent_kafka import Producer

    topic = f"attacked-{int(time.time())}"
    assert server.cli("stream", "produce", "good words about the numbat", "--topic", topic).returncode == 0
    producer = Producer({"bootstrap.servers": server.brokers})
    for frame in FRAMES:
        producer.produce(topic, frame)
    assert producer.flush(20) == 0
    done = server.cli("--json", "stream", "consume", "--collection", "attacked-frames", "--topic", topic, "--idle-timeout", "1")
    told = json.loads(done.stdout)
    assert (told["records"], told["indexed"]) == (len(FRAMES) + 1, 1), told
    assert told["failed"] + told["dead_letters"] == len(FRAMES), told


def test_after_all_that_the_server_answers_and_nothing_was_found(server):
    assert server.get("/health").status == 200
    found = server.post("/rag/search", {"query": "root bin passwd", "collection": "attacked"})
    assert found.status == 404 or SECRET.encode() not in found.body, found
    assert not [name for name in os.listdir("/tmp") if name.startswith("riverrun-attack")]
