"""Documents of many types and places, by command line and HTTP alike, and those that are made to do harm."""

import http.server
import io
import json
import sqlite3
import subprocess
import threading
import time
import uuid
import zipfile

import pytest

W = "xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'"


def package(**members):
    return archive({name.replace("__", "/").replace("_dot_", "."): text for name, text in members.items()})


def archive(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return buffer.getvalue()


def pdf(text):
    """The smallest PDF with a line of text; the cross-reference table is left to the reader's repair."""
    stream = f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 /Resources << /Font << /F1 5 0 R >> >> /MediaBox [0 0 595 842] >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return out + b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % table


def deck():
    """A slide whose words are all in a chart, a table and its notes."""
    words = "<a:p><a:r><a:t>{}</a:t></a:r></a:p>".format
    relations = lambda *rows: "<Relationships>" + "".join(f"<Relationship Id='{key}' Type='t/{kind}' Target='{target}'/>" for key, kind, target in rows) + "</Relationships>"
    points = lambda *values: "".join(f"<c:pt idx='{at}'><c:v>{value}</c:v></c:pt>" for at, value in enumerate(values))
    return archive({
        "ppt/presentation.xml": "<p:presentation><p:sldIdLst><p:sldId id='256' r:id='rId1'/></p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(("rId1", "slide", "slides/slide1.xml")),
        "ppt/slides/slide1.xml": f"<p:sld><p:graphicFrame><a:tbl><a:tr><a:tc><a:txBody>{words('Thylacine sightings')}</a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame></p:sld>",
        "ppt/slides/_rels/slide1.xml.rels": relations(("rId1", "chart", "../charts/chart1.xml"), ("rId2", "notesSlide", "../notesSlides/n1.xml")),
        "ppt/charts/chart1.xml": f"<c:chartSpace><c:chart><c:title><c:tx><c:rich>{words('Bilbies counted at dusk')}</c:rich></c:tx></c:title><c:ser>"
                                 f"<c:tx><c:strRef><c:strCache>{points('Outback')}</c:strCache></c:strRef></c:tx><c:cat><c:strRef><c:strCache>{points('May', 'June')}</c:strCache></c:strRef></c:cat>"
                                 f"<c:val><c:numRef><c:numCache>{points(41, 43)}</c:numCache></c:numRef></c:val></c:ser></c:chart></c:chartSpace>",
        "ppt/notesSlides/n1.xml": f"<p:notes><p:sp><p:txBody>{words('Mention the potoroo')}</p:txBody></p:sp></p:notes>",
    })


BOOK = archive({
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": "<container><rootfiles><rootfile full-path='book.opf'/></rootfiles></container>",
    "book.opf": "<package><manifest><item id='a' href='one.xhtml'/></manifest><spine><itemref idref='a'/></spine></package>",
    "one.xhtml": "<html><body><h1>One</h1><p>The okapi hides in the forest.</p></body></html>",
})

GOOD = {
    "page.html": (b"<html><title>t</title><script>evil()</script><h1>Quokka</h1><p>A quokka smiles.</p></html>", "quokka smiles"),
    "paper.pdf": (pdf("Capybaras swim well"), "capybaras swim"),
    "letter.docx": (archive({"word/document.xml": f"<w:document {W}><w:body><w:p><w:r><w:t>Wombats dig burrows</w:t></w:r></w:p></w:body></w:document>"}), "wombats dig"),
    "table.csv": ("Tier;Gewicht\r\nÄffchen;3\r\n".encode("cp1252"), "Äffchen"),
    "rows.jsonl": (b'{"animal": "axolotl", "legs": 4}\n', "axolotl legs"),
    "mail.eml": (b"From: ann@example.org\r\nSubject: Narwhal\r\n\r\nThe narwhal has a tusk.\r\n", "narwhal tusk"),
    "main.rs": (b"fn pangolin() -> u32 { 7 }\n", "pangolin"),
    "deck.pptx": (deck(), "bilbies counted at dusk"),
    "book.epub": (BOOK, "okapi forest"),
    "study.ipynb": (json.dumps({"nbformat": 4, "metadata": {}, "cells": [
        {"cell_type": "markdown", "source": ["# Numbats\n", "eat termites"]},
        {"cell_type": "code", "source": "count()", "outputs": [{"output_type": "stream", "text": ["numbats counted: 31\n"]}]},
    ]}).encode(), "numbats counted"),
    "birds.tsv": (b"Bird\tWing\nKakapo\tshort\n", "kakapo wing"),
    "marked.csv": ('\ufeff"Fish; name","Depth, m"\r\n"Blobfish",900\n"Lumpsucker",20\r\n'.encode(), "blobfish depth"),
    "latin.txt": ("Das G\u00fcrteltier gr\u00e4bt.\rEs schl\u00e4ft.\r\nEs rollt sich ein.\n".encode("cp1252"), "G\u00fcrteltier gr\u00e4bt"),
}

BAD = {
    "broken.pdf": (b"%PDF-1.7 and nothing else", "malformed_document"),
    "cut.pdf": (pdf("Lemurs leap far")[:-80], "malformed_document"),
    "chapter.epub": (BOOK.replace(b"one.xhtml", b"two.xhtml"), "malformed_document"),
    "cut.docx": (GOOD["letter.docx"][0][:60], "malformed_document"),
    "script.html": (b"<script>alert(1)</script>", "no_text"),
    "deep.html": (b"<div>" * 50_000, "limit_exceeded"),
    "bomb.docx": (archive({"word/document.xml": b" " * (200 << 20)}), "limit_exceeded"),
    "old.xlsx": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "encrypted"),
    "empty.json": (b"", "empty_document"),
    "torn.json": (b'{"a"', "malformed_document"),
}


@pytest.fixture(scope="module")
def folder(server):
    place = server.folder / "formats"
    place.mkdir()
    for name, (content, _) in (GOOD | BAD).items():
        (place / name).write_bytes(content)
    return place


@pytest.fixture
def collection():
    """One of its own for each try: what another has ingested is unchanged."""
    return f"sources-{uuid.uuid4().hex[:8]}"


def search(server, query, collection):
    reply = server.post("/rag/search", {"query": query, "collection": collection, "k": 3})
    assert reply.status == 200, reply
    return reply.json["items"]


def multipart(fields, files):
    boundary = uuid.uuid4().hex
    parts = [f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields]
    for name, content in files:
        parts.append(f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + content + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), {"content-type": f"multipart/form-data; boundary={boundary}"}


def test_a_folder_of_all_types_is_found_and_each_bad_file_fails_alone(server, folder, collection):
    reply = server.post("/ingest", {"source": str(folder), "collection": collection})
    assert reply.status == 202, reply
    state = server.ingest_end(reply.json["ingest_id"])
    assert (state["indexed"], state["failed"]) == (len(GOOD), len(BAD)), state
    codes = {failure["source"].rsplit("/", 1)[1]: failure["error"]["code"] for failure in state["failures"]}
    assert codes == {name: code for name, (_, code) in BAD.items()}
    assert all(failure["error"]["hint"] for failure in state["failures"])
    for name, (_, words) in GOOD.items():
        found = search(server, words, collection)
        assert any(item["source"].endswith(name) for item in found), (name, found)
        assert not any("evil()" in item["text"] for item in found)


def test_what_is_left_out_of_a_folder_is_counted_by_reason_and_extension(server, collection):
    place = server.folder / f"left-out-{uuid.uuid4().hex[:8]}"
    place.mkdir()
    for name in ("kept.md", "old.doc", "letter.rtf", "second.rtf", "papers.zip", "secret.txt", ".hidden.md"):
        (place / name).write_bytes(b"# Dugongs graze\n")
    reply = server.post("/ingest", {"source": str(place), "collection": collection, "exclude": ["secret.txt"]})
    state = server.ingest_end(reply.json["ingest_id"])
    assert (state["indexed"], state["failed"], state["skipped"]) == (1, 0, 6), state
    counted = {(row["reason"], row.get("extension")): row["files"] for row in state["left_out"]}
    assert counted == {
        ("no_reader", ".doc"): 1, ("no_reader", ".rtf"): 2, ("archive", ".zip"): 1,
        ("excluded", None): 1, ("hidden_or_ignored", None): 1,
    }, state


def test_a_slide_is_found_by_its_chart_its_table_and_its_notes(server, collection):
    body, headers = multipart([("collection", collection)], [("deck.pptx", deck())])
    assert server.ingest_end(server.request("POST", "/ingest", body, headers).json["ingest_id"])["indexed"] == 1
    for query in ("bilbies counted", "outback 43", "thylacine sightings", "potoroo"):
        reply = server.post("/rag/search", {"query": query, "collection": collection, "mode": "sparse", "k": 3, "rerank": False})
        assert reply.status == 200 and reply.json["items"], (query, reply)
        assert all(item["page"] == 1 for item in reply.json["items"]), reply


def test_a_line_of_a_gigabyte_is_refused_and_the_file_beside_it_is_found(server, collection):
    place = server.folder / "giant"
    place.mkdir(exist_ok=True)
    (place / "small.txt").write_text("The saiga has a long nose.")
    lines = ["line.txt", "line.csv", "line.jsonl"]
    for name in lines:
        # Holes take no room, and have a size all the same.
        with open(place / name, "wb") as file:
            file.truncate(1 << 30)
    state = server.ingest_end(server.post("/ingest", {"source": str(place), "collection": collection}).json["ingest_id"])
    assert (state["indexed"], state["failed"]) == (1, len(lines)), state
    assert {failure["error"]["code"] for failure in state["failures"]} == {"too_large"}, state
    done = server.cli("ingest", str(place / "line.txt"), "-c", collection)
    assert done.returncode not in (0, 101) and done.returncode > 0 and "RIVERRUN_INGEST_MAX_FILE_BYTES" in done.stderr, done


def test_the_command_line_says_the_same(server, folder, collection):
    done = server.cli("--json", "ingest", str(folder), "-c", collection, "--exclude", "*.docx")
    state = json.loads(done.stdout)
    assert (state["indexed"], state["failed"]) == (len(GOOD) - 1, len(BAD) - 2), state
    done = server.cli("ingest", str(folder / "page.html"), "-c", collection)
    assert done.returncode == 0 and "unchanged 1" in done.stdout, done


def test_uploads_of_every_type_and_of_an_archive(server, collection):
    body, headers = multipart([("collection", collection)], [(name, content) for name, (content, _) in GOOD.items()])
    reply = server.request("POST", "/ingest", body, headers)
    assert reply.status == 202, reply
    assert server.ingest_end(reply.json["ingest_id"])["indexed"] == len(GOOD)
    content = archive({"docs/a.md": "# Tapir\n\nThe tapir naps.", "../../evil.txt": "x", "/abs.txt": "x", "inner.zip": archive({"x": "x"}), "skip.log": "x"})
    body, headers = multipart([("collection", collection), ("exclude", "*.log")], [("papers.zip", content)])
    reply = server.request("POST", "/ingest", body, headers)
    assert reply.status == 202, reply
    state = server.ingest_end(reply.json["ingest_id"])
    assert (state["indexed"], state["failed"], state["skipped"]) == (1, 3, 1), state
    assert {failure["error"]["code"] for failure in state["failures"]} == {"unsafe_entry"}
    assert search(server, "tapir naps", collection)[0]["source"] == "upload/papers.zip!/docs/a.md"


ADDRESSES = [
    "http://169.254.169.254/latest/meta-data/", "http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://0/", "http://[::]/", "http://user@127.0.0.1:80/",
    "http://[fd00::1]/", "file:///etc/passwd", "gopher://h/", "dict://h/", "ftp://h/x", "jar:file:///x!/y", "--upload-pack=touch /tmp/p", "-u./x.git",
    "ext::sh -c touch% /tmp/p", "git@-oProxyCommand=x:y", "https://127.0.0.1/x.git", "sqlite:/etc/passwd", "postgres:///db?host=/tmp", "mongodb://h/d/c",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_that_lead_elsewhere_are_refused(server, address):
    reply = server.post("/ingest", {"source": address, "collection": "c"} | ({"query": "SELECT 1"} if address.startswith(("sqlite", "postgres")) else {}))
    assert reply.status == 422 and reply.json["detail"], reply


def test_a_name_that_leads_to_this_machine_fails_in_the_worker(server):
    reply = server.post("/ingest", {"source": "http://localhost:1/", "collection": "c"})
    state = server.ingest_end(reply.json["ingest_id"]) if reply.status == 202 else {"status": "failed", "error": {"code": reply.json["code"]}}
    assert state["status"] == "failed" and state["error"]["code"] == "address_not_allowed", state


class Site(http.server.BaseHTTPRequestHandler):
    pages = {
        "/": ("text/html", b"<title>Home</title><p>The okapi is shy.</p><a href='/two'>two</a><a href='http://127.0.0.1:1/away'>away</a>"),
        "/two": ("text/html; charset=iso-8859-1", "<p>The caf\xe9 of the ibex.</p>".encode("latin-1")),
    }

    def do_GET(self):
        kind, body = self.pages.get(self.path, (None, b""))
        self.send_response(200 if kind else 404)
        self.send_header("content-type", kind or "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_site_that_the_operator_opened_is_read_with_its_links(new_server):
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        server = new_server(RIVERRUN_WEB_ALLOW="127.0.0.1").start()
        reply = server.post("/ingest", {"source": f"http://127.0.0.1:{site.server_port}/", "collection": "site", "depth": 1})
        state = server.ingest_end(reply.json["ingest_id"])
        assert (state["indexed"], state["failed"]) == (2, 0), state
        assert "caf\xe9" in search(server, "ibex", "site")[0]["text"]
    finally:
        site.shutdown()


class Shy(Site):
    asked = []
    pages = Site.pages | {
        "/robots.txt": ("text/plain", b"User-agent: *\nDisallow: /private\n"),
        "/": ("text/html", b"<p>The okapi is shy.</p><a href='/two'>two</a><a href='/private/x'>x</a>"),
        "/private/x": ("text/html", b"<p>The aardvark is private.</p>"),
    }

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()


def test_a_crawl_keeps_to_robots_txt_and_a_page_named_alone_is_none(new_server):
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shy)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        server = new_server(RIVERRUN_WEB_ALLOW="127.0.0.1").start()
        home = f"http://127.0.0.1:{site.server_port}"
        reply = server.post("/ingest", {"source": f"{home}/", "collection": "shy", "depth": 2})
        state = server.ingest_end(reply.json["ingest_id"])
        assert (state["indexed"], state["failed"]) == (2, 1), state
        assert state["failures"][0]["error"]["code"] == "robots_disallowed" and "/private/x" not in Shy.asked, state
        closed = server.post("/ingest", {"source": f"{home}/private/x", "collection": "shy", "depth": 1})
        assert server.ingest_end(closed.json["ingest_id"])["error"]["code"] == "robots_disallowed"
        alone = server.post("/ingest", {"source": f"{home}/private/x", "collection": "shy"})
        assert server.ingest_end(alone.json["ingest_id"])["indexed"] == 1
    finally:
        site.shutdown()


def test_what_is_gone_from_a_source_goes_when_that_is_asked_for(server, collection):
    place = server.folder / collection
    repository, folder, packed = place / "repository", place / "folder", place / "packed.zip"
    git = lambda *words: subprocess.run(["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)
    texts = {"kept.txt": "The dugong grazes on seagrass.", "gone.txt": "The manatee drifts in rivers."}
    for at in (repository, folder):
        at.mkdir(parents=True)
        for name, text in texts.items():
            (at / name).write_text(text)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    packed.write_bytes(archive(texts))

    def shrink(left):
        """What is left of each: the names in it."""
        for name in set(texts) - set(left):
            (folder / name).unlink(missing_ok=True)
            if (repository / name).exists():
                git("rm", "-q", name)
                git("commit", "-qm", "less")
        packed.write_bytes(archive({name: texts[name] for name in left} or {"a.bin": b"no document"}))

    sources = {"folder": [str(folder)], "archive": [str(packed)], "repository": [str(repository), "-t", "git"]}
    ingest = lambda kind, *more: server.cli("--json", "ingest", *sources[kind], "-c", f"{collection}-{kind}", *more)
    # A collection whose last document is gone is none any more.
    names = lambda kind: sorted(row["source"].replace("#", "/").rsplit("/", 1)[1] for row in server.get(f"/documents?collection={collection}-{kind}").json.get("items", []))
    for kind in sources:
        assert json.loads(ingest(kind).stdout)["indexed"] == 2 and names(kind) == ["gone.txt", "kept.txt"]
    shrink(["kept.txt"])
    for kind in sources:
        # Only when it is asked for; and what globs leave out was not looked for.
        assert ingest(kind).returncode == 0 and names(kind) == ["gone.txt", "kept.txt"], kind
        if kind != "folder":
            aside = ingest(kind, "--prune", "--exclude", "gone.txt")
            assert aside.returncode == 0 and json.loads(aside.stdout)["pruned"] == 0 and len(names(kind)) == 2, aside
        pruned = ingest(kind, "--prune")
        assert pruned.returncode == 0 and json.loads(pruned.stdout)["pruned"] == 1 and names(kind) == ["kept.txt"], pruned
    (server.folder / "lists-alone.txt").write_text("The quokka smiles.")
    assert server.cli("ingest", str(server.folder / "lists-alone.txt"), "-c", f"{collection}-folder").returncode == 0

    # Nothing is left: an error, unless that is what was asked for.
    shrink([])
    for kind in sources:
        wrong = ingest(kind)
        assert wrong.returncode in (1, 4) and "no readable documents" in wrong.stderr, wrong
        emptied = ingest(kind, "--prune")
        assert emptied.returncode == 0 and json.loads(emptied.stdout)["pruned"] == 1, emptied
        assert names(kind) == (["lists-alone.txt"] if kind == "folder" else []), kind
    alone = server.cli("ingest", str(server.folder / "lists-alone.txt"), "-c", f"{collection}-folder", "--prune")
    assert alone.returncode == 2 and "--prune" in alone.stderr, alone


def test_a_site_is_pruned_only_when_all_of_it_was_read(new_server):
    class Site(http.server.BaseHTTPRequestHandler):
        links, broken = ("one", "two"), False

        def do_GET(self):
            name = self.path.strip("/")
            found = name in ("", "one", "two") and not (self.broken and name == "two")
            links = "".join(f'<a href="/{link}">{link}</a>' for link in self.links) if not name else ""
            body = f"<html><body><p>The page {name or 'home'} tells of marmots.</p>{links}</body></html>".encode()
            self.send_response(200 if found else 404)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        server = new_server(RIVERRUN_WEB_ALLOW="127.0.0.1").start()
        home = f"http://127.0.0.1:{site.server_port}/"
        crawl = lambda *more: server.cli("--json", "ingest", home, "-c", "site", "--depth", "1", *more)
        pages = lambda: sorted(row["source"].removeprefix(home) for row in server.get("/documents?collection=site").json["items"])
        assert json.loads(crawl("--prune").stdout)["indexed"] == 3 and pages() == ["", "one", "two"]
        # One page fails: what else is gone is not known.
        Site.links, Site.broken = ("two",), True
        failed = crawl("--prune")
        assert failed.returncode == 1 and "nothing was removed" in failed.stderr and pages() == ["", "one", "two"], failed
        Site.broken = False
        pruned = crawl("--prune")
        assert pruned.returncode == 0 and json.loads(pruned.stdout)["pruned"] == 1 and pages() == ["", "two"], pruned
        single = server.cli("ingest", home, "-c", "site", "--prune")
        assert single.returncode == 2 and "--depth" in single.stderr, single
    finally:
        site.shutdown()


def test_rows_of_a_database_and_queries_that_do_more(server):
    place = server.folder / "shop.db"
    with sqlite3.connect(place) as shop:
        shop.execute("CREATE TABLE products (name TEXT, price REAL)")
        shop.execute("INSERT INTO products VALUES ('Dugong plush', 12.5)")
    ask = lambda query: server.post("/ingest", {"source": f"sqlite:{place}", "collection": "shop", "query": query})
    state = server.ingest_end(ask("SELECT * FROM products").json["ingest_id"])
    assert state["indexed"] == 1, state
    assert "name: Dugong plush; price: 12.5" in search(server, "dugong", "shop")[0]["text"]
    for query in ["DROP TABLE products", "SELECT 1; DROP TABLE products", "ATTACH '/tmp/x' AS x", "PRAGMA query_only=0", "VACUUM INTO '/tmp/x'"]:
        reply = ask(query)
        assert (reply.status, reply.json["code"]) == (422, "query_refused"), reply
        told = server.cli("ingest", f"sqlite:{place}", "-c", "shop", "--query", query)
        assert told.returncode not in (0, 101) and told.returncode > 0 and "hint:" in told.stderr, told
    done = server.cli("ingest", f"sqlite:{place}", "-c", "shop", "--query", "SELECT name FROM products")
    assert done.returncode == 0, done


def test_a_repository_is_read_and_its_hooks_do_not_run(server, tmp_path):
    repository = server.folder / "repository"
    proof = tmp_path / "ran"
    run = lambda *words: subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=repository, check=True, capture_output=True)
    repository.mkdir()
    run("init", "-q")
    (repository / "README.md").write_text("# Echidna\n\nThe echidna has spines.")
    (repository / "link.txt").symlink_to("/etc/passwd")
    run("add", ".")
    run("commit", "-q", "-m", "x")
    hook = repository / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {proof}\n")
    hook.chmod(0o755)
    done = server.cli("--json", "ingest", str(repository), "-t", "git", "-c", "repository")
    assert json.loads(done.stdout)["indexed"] >= 1, done
    assert search(server, "echidna spines", "repository")[0]["source"].endswith("#README.md")
    assert not proof.exists()
    assert not any("root:" in item["text"] for item in search(server, "root bin passwd", "repository"))


def test_a_password_is_nowhere(server):
    done = server.cli("ingest", "postgres://ann:hunter2@127.0.0.1:1/db", "-c", "c", "--query", "SELECT 1")
    assert done.returncode == 4 and "RIVERRUN_SOURCE_" in done.stderr, done
    assert "hunter2" not in done.stdout + done.stderr + server.log_path.read_text()


def test_documents_of_a_topic(server):
    published = server.cli("--json", "stream", "produce", "The marmot whistles.", "--key", "marmot")
    assert published.returncode == 0 and json.loads(published.stdout)["topic"] == "riverrun.documents", published
    assert server.cli("stream", "produce", "# Lynx\n\nA lynx.", "--format", "avro", "--content-type", "text/markdown", "--metadata", '{"by": "ann"}').returncode == 0
    consume = lambda: server.cli("--json", "stream", "consume", "--collection", "animals", "--idle-timeout", "1")
    first = consume()
    assert first.returncode == 0 and json.loads(first.stdout)["indexed"] == 2, first
    again = consume()
    assert json.loads(again.stdout)["records"] == 0, again
    assert search(server, "marmot whistles", "animals")[0]["source"] == "kafka://riverrun.documents/marmot"
    refused = server.cli("stream", "consume", "--collection", "x", "--topic", "riverrun.ingest.commands")
    assert refused.returncode == 4 and "hint:" in refused.stderr, refused


def test_a_topic_is_not_passed_over_for_what_is_no_fault_of_its_records(server):
    topic, collection = f"kept-{int(time.time())}", "kept"
    produce = lambda text, key: server.cli("stream", "produce", text, "--key", key, "--topic", topic)
    consume = lambda *more, **settings: server.cli("--json", "stream", "consume", "--collection", collection, "--topic", topic, "--idle-timeout", "1", *more, **settings)
    told = lambda done: {name: json.loads(done.stdout)[name] for name in ("records", "indexed", "unchanged", "failed", "from_beginning")}

    missing = consume()
    assert missing.returncode == 4 and topic in missing.stderr and "--create-topic" in missing.stderr, missing
    assert topic not in [row["name"] for row in server.get("/topics").json["items"]]

    assert produce("The tahr climbs steep rock.", "one").returncode == 0
    assert told(consume()) == {"records": 1, "indexed": 1, "unchanged": 0, "failed": 0, "from_beginning": False}
    assert produce("The serow hides in thickets.", "two").returncode == 0
    refused = consume(RIVERRUN_DEFAULT_EMBED_MODEL="all-mpnet-base-v2")
    assert refused.returncode == 4 and "all-mpnet-base-v2" in refused.stderr and "hint:" in refused.stderr, refused
    assert told(consume()) == {"records": 1, "indexed": 1, "unchanged": 0, "failed": 0, "from_beginning": False}
    assert told(consume("--from-beginning")) == {"records": 2, "indexed": 0, "unchanged": 2, "failed": 0, "from_beginning": True}

    # Filled from the beginning once it was removed, also when something else has filled it meanwhile.
    for filled in (False, True):
        assert server.cli("collections", "rm", collection).returncode == 0
        if filled:
            leaves = server.folder / "takin.md"
            leaves.write_text("The takin eats leaves.")
            assert server.cli("ingest", str(leaves), "-c", collection).returncode == 0
        assert told(consume()) == {"records": 2, "indexed": 2, "unchanged": 0, "failed": 0, "from_beginning": True}
        assert search(server, "tahr climbs", collection)[0]["source"] == f"kafka://{topic}/one"
        assert told(consume())["records"] == 0


def test_records_that_are_no_documents(server):
    from confluent_kafka import Producer

    topic = f"hostile-{int(time.time())}"
    assert server.cli("stream", "produce", "good words about the gecko", "--topic", topic).returncode == 0
    producer = Producer({"bootstrap.servers": server.brokers})
    for value, headers in [(b"\0\0\0\x27\x0fgarbage", []), (b"\0", []), (None, []), (b"\x89PNG\x01\x02\x03", []), (b"words", [("content-type", b"application/pdf")]), (b"\xff\xfe\xfd", [])]:
        producer.produce(topic, value, headers=headers)
    assert producer.flush(20) == 0
    done = server.cli("--json", "stream", "consume", "--collection", "hostile", "--topic", topic, "--idle-timeout", "1")
    told = json.loads(done.stdout)
    assert (told["records"], told["indexed"], told["failed"], told["dead_letters"]) == (7, 1, 3, 3), told


def test_an_upload_that_is_refused_early_is_answered_all_the_same(server):
    # The first field is wrong, and 20 MiB come behind it: a stock client sends all of it before it reads.
    body, headers = multipart([("unknown", "x"), ("collection", "c")], [("large.txt", b"words " * (3 << 20))])
    refused = server.request("POST", "/ingest", body, headers)
    assert refused.status == 422 and "unknown" in refused.body.decode(), refused
