"""Changed inputs for what only a whole program shows: documents of types that are read in a process of their own, and bytes on the wire. The other
targets are Rust tests (fuzz/README.md). `./x interop -k test_fuzz --scale 1000` tries a thousand times as many; a failure names its seed."""

import contextlib
import json
import os
import random
import socket
import subprocess

import pytest

from server import BINARY
from test_attacks_wire import KAFKA, Raw, exchange, frame
from test_attacks_wire import request as kafka_request
from test_sources import GOOD, archive

DEADLINE_S = 75  # a little more than the program gives such a process
# Of a hundred documents: that the program ends them keeps it whole, but each is a minute of a worker.
MOST_ENDED = 1
NUMBERS = [0, 1, 2, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 2**63 - 1, 2**64 - 1]

SHEET = archive({
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
                   'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
                       '<sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
                                  'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
    "xl/worksheets/sheet1.xml": '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData><row r="1"><c r="A1"><v>7</v></c></row></sheetData></worksheet>',
})

DOCUMENTS = {
    "html": [GOOD["page.html"][0], b"<table><tr><td>a<td>b</table><p>c" + b"<div>" * 50],
    "pdf": [GOOD["paper.pdf"][0]],
    "docx": [GOOD["letter.docx"][0]],
    "xlsx": [SHEET],
    "eml": [GOOD["mail.eml"][0], b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n--b--\r\n"],
}


def changed(corpus, moments):
    """One of the corpus, changed up to eight times, as fuzz/harness.rs does it."""
    data = bytearray(moments.choice(corpus))
    for _ in range(moments.randint(1, 8)):
        at = moments.randrange(len(data) + 1)
        match moments.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << moments.randrange(8)
            case 1:
                width = moments.choice([1, 2, 4, 8])
                value = moments.choice(NUMBERS) % 256**width
                data[at:at + width] = value.to_bytes(width, moments.choice(["big", "little"]))
            case 2:
                del data[at:]
            case 3:
                del data[at:at + moments.randint(1, 64)]
            case 4:
                data[at:at] = data[at:at + moments.randint(1, 64)] * moments.randint(1, 40)
            case 5:
                other = moments.choice(corpus)
                data[at:] = other[moments.randrange(len(other) + 1):]
            case _:
                data[at:at] = moments.randbytes(moments.randint(1, 4))
    return bytes(data[:65_536])


def inputs(corpus, count):
    """Numbered, so that a failure can be repeated."""
    return ((seed, changed(corpus, random.Random(seed))) for seed in range(count))


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_changed_document_is_an_answer_or_the_end_of_its_process_alone(kind, request):
    env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    name, count, ended = b"changed", 12 * request.config.getoption("--scale"), []
    for seed, content in inputs(DOCUMENTS[kind], count):
        try:
            done = subprocess.run([BINARY, "read-document", kind, "text"], input=len(name).to_bytes(4, "little") + name + content, env=env,
                                  capture_output=True, timeout=DEADLINE_S, check=False)
        except subprocess.TimeoutExpired:
            ended.append(seed)  # the program would have done it
            continue
        if done.returncode == 0:
            told = json.loads(done.stdout)
            assert told.get("Ok") or told["Err"]["code"] and told["Err"]["message"], (kind, seed, told)
        else:
            assert not done.stdout, (kind, seed, done)
    print(f"measured: {len(ended)} of {count} changed documents ({kind}) took more than {DEADLINE_S} s")
    assert len(ended) <= -(-count * MOST_ENDED // 100), (kind, "seeds", ended)


REQUESTS = [
    b'POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"task": ""}',
    b"GET /runs?limit=3&cursor=x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"POST /rag/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'1f\r\n{"query":"x","collection":"no"}\r\n0\r\n\r\n',
    b"POST /ingest HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 73\r\n\r\n"
    b'--b\r\nContent-Disposition: form-data; name="collection"\r\n\r\nA/../B\r\n--b--\r\n',
    b"GET /ws/agent HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    b"OPTIONS /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://localhost\r\n\r\n",
]


def test_changed_requests_are_never_a_defect_of_the_server(server, request):
    for seed, sent in inputs(REQUESTS, 150 * request.config.getoption("--scale")):
        answer = exchange(server.api_port, sent, ends=True)
        assert not answer.startswith(b"HTTP/1.1 500"), (seed, sent, answer[:500])
    assert server.get("/health").status == 200


def test_changed_frames_never_end_more_than_their_socket(server, request):
    corpus = [frame(0x81, b'{"task": ""}'), frame(0x89, b"ping"), frame(0x01, b'{"task"') + frame(0x80, b': ""}'), frame(0x88, b"\x03\xe8")]
    for seed, sent in inputs(corpus, 150 * request.config.getoption("--scale")):
        with Raw(server) as raw:
            raw.send(sent)
            # What is cut off in its middle would be waited for: nothing more comes.
            with contextlib.suppress(OSError):
                raw.socket.shutdown(socket.SHUT_WR)
            assert raw.closed() in (None, 1000, 1001, 1002, 1003, 1007, 1008, 1009), seed
    assert server.get("/health").status == 200


def test_changed_kafka_requests_never_end_more_than_their_connection(server, request):
    corpus = [sent for sent in KAFKA.values() if len(sent) < 200] + [kafka_request(3, 1, b"\x00\x00\x00\x01\x00\x01t")]
    for seed, sent in inputs(corpus, 150 * request.config.getoption("--scale")):
        assert len(exchange(server.broker_port, sent, ends=True)) < 1 << 20, seed
    assert server.get("/health").status == 200
