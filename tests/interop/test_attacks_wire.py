"""Whole kinds of attacks below the API's words: headers, bodies, names and frames as no honest client sends them, by bare sockets. Each is
refused or closed; after all of them the server answers as before."""

import contextlib
import json
import os
import socket
import struct

import pytest

import log_client
from server import wait_for
from test_poison import dead_letters, produce, schema_of

PATIENCE_S = 30


def exchange(port, sent, ends=False):
    """Everything that comes back until the other side closes. `ends` says that nothing follows, which an HTTP server takes for a client that left."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        got = b""
        try:
            connection.sendall(sent)
            if ends:
                with contextlib.suppress(OSError):  # the server may have closed it already
                    connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65_536):
                got += piece
        except (ConnectionError, TimeoutError):
            pass
        return got


def http(server, head, body=b"", length=True):
    lines = list(head)
    if body and length:
        lines.append(b"Content-Length: %d" % len(body))
    return exchange(server.api_port, b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body)


def status(answer):
    """The status; None for a connection that was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else None


# ---- who is asked, and from where ---------------------------------------------------------------------------------------

HOSTS = [
    "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example.localhost", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "169.254.169.254",
    "10.0.0.1:8000", "localhost.", "127.1", "2130706433", "0x7f000001", "", "localhost:80:80", "localhost, evil.example", "user@evil.example", "xn--lcalhost-cfg.example", "localhost/evil", "[::1].evil.example",
    "[::1]:80.evil.example", "[::1",
]

ORIGINS = [
    "https://evil.example", "https://evil.example:8000", "null", "http://localhost.evil.example", "http://127.0.0.1.evil.example", "file://", "chrome-extension://abc", "http://0.0.0.0:8000",
    "http://10.0.0.7", "http://localhost@evil.example", "http://evil.example/http://localhost", "localhost", "", "http://localhost evil", "javascript:alert(1)", "http://127.1", "http://[::ffff:127.0.0.1]",
    "http://localhost%00.evil.example", "https://", "http://localhost, http://evil.example", "http://[::1].evil.example",
]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("line", [b"GET /runs HTTP/1.1", b"POST /runs HTTP/1.1", b"GET /ws/agent HTTP/1.1"], ids=["read", "write", "socket"])
def test_another_host_is_not_answered_for(server, line, host):
    body = b'{"task": "x"}' if line.startswith(b"POST") else b""
    answer = http(server, [line, b"Host: " + host.encode(), b"Content-Type: application/json"], body)
    assert status(answer) in (400, 403), answer[:300]


def test_of_two_hosts_the_foreign_one_does_not_pass(server):
    answer = http(server, [b"GET /runs HTTP/1.1", b"Host: evil.example", b"Host: 127.0.0.1"])
    assert status(answer) in (400, 403), answer[:300]


@pytest.mark.parametrize("origin", ORIGINS)
class TestOrigins:
    def test_nothing_is_changed_for_a_foreign_page(self, server, origin):
        for line in (b"POST /runs HTTP/1.1", b"DELETE /collections/attacked HTTP/1.1"):
            answer = http(server, [line, b"Host: 127.0.0.1", b"Origin: " + origin.encode(), b"Content-Type: application/json"], b'{"task": "x"}')
            assert status(answer) == 403, answer[:300]

    def test_no_socket_is_opened_for_a_foreign_page(self, server, origin):
        answer = http(server, [b"GET /ws/agent HTTP/1.1", b"Host: 127.0.0.1", b"Origin: " + origin.encode(), b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
                               b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="])
        assert status(answer) == 403, answer[:300]

    def test_a_browser_is_not_told_that_it_may_ask(self, server, origin):
        answer = http(server, [b"OPTIONS /runs HTTP/1.1", b"Host: 127.0.0.1", b"Origin: " + origin.encode(), b"Access-Control-Request-Method: POST"])
        assert b"access-control-allow-origin" not in answer.lower(), answer[:300]


FORMS = ["text/plain", "text/plain; application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", "application/jsonp", "json", "*/*"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path, body", [("/runs", {"task": "x"}), ("/rag/ask", {"query": "x", "collection": "c"}), ("/warehouse/query", {"sql": "SELECT 1"}),
                                        ("/agent/run", {"task": "x"})])
def test_what_a_page_can_send_without_asking_is_no_json(server, path, body, form):
    reply = server.request("POST", path, json.dumps(body).encode(), {"content-type": form})
    assert reply.status == 415, reply


# ---- HTTP that is none --------------------------------------------------------------------------------------------------

HEAD = [b"POST /runs HTTP/1.1", b"Host: 127.0.0.1", b"Content-Type: application/json"]
BODY = b'{"task": "x"}'

REQUESTS = {
    "two lengths": (HEAD + [b"Content-Length: 13", b"Content-Length: 5"], BODY),
    "a negative length": (HEAD + [b"Content-Length: -1"], BODY),
    "a length that is no number": (HEAD + [b"Content-Length: 0x0d"], BODY),
    "a length of 2^64": (HEAD + [b"Content-Length: 18446744073709551616"], BODY),
    "a chunk of 2^68": (HEAD + [b"Transfer-Encoding: chunked"], b"fffffffffffffffff\r\n" + BODY),
    "a chunk that is no number": (HEAD + [b"Transfer-Encoding: chunked"], b"zz\r\n" + BODY),
    "a coding of another name": (HEAD + [b"Transfer-Encoding: chunked, identity"], BODY),
    "a header of 1 MB": (HEAD + [b"X: " + b"x" * (1 << 20)], BODY),
    "10,000 headers": (HEAD + [b"X-%d: x" % number for number in range(10_000)], BODY),
    "a name with a space": (HEAD + [b"X X: x"], BODY),
    "a value with NUL": (HEAD + [b"X: a\0b"], BODY),
    "a bare line feed within a line": (HEAD + [b"X: a\rb"], BODY),
    "another protocol": ([b"POST /runs HTTP/9.9", *HEAD[1:]], BODY),
    "no protocol": ([b"POST /runs", *HEAD[1:]], BODY),
    "a method with NUL": ([b"PO\0ST /runs HTTP/1.1", *HEAD[1:]], BODY),
    "a path with NUL": ([b"POST /ru\0ns HTTP/1.1", *HEAD[1:]], BODY),
    "a path of 200 KB": ([b"GET /" + b"a" * 200_000 + b" HTTP/1.1", *HEAD[1:]], b""),
    "no path": ([b"POST  HTTP/1.1", *HEAD[1:]], BODY),
    "TLS": ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)], b""),
    "nothing but NUL": ([bytes(4_096)], b""),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_that_is_none_starts_nothing(server, kind):
    head, body = REQUESTS[kind]
    answer = http(server, head, body, length=False)
    assert status(answer) is None or 400 <= status(answer) < 600 and status(answer) != 500, answer[:300]


PAGES = [
    "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd", "/%252e%252e/etc/passwd", "/_next/../../../etc/passwd", "//etc/passwd", "/etc/passwd", "/.env", "/.git/config",
    "/..\\..\\etc\\passwd", "/%00", "/docs/../../../etc/passwd", "/proc/self/environ", "/%c0%ae%c0%ae/etc/passwd", "/openapi.json/../../etc/passwd",
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_one_of_ours_or_none(server, path):
    answer = http(server, [b"GET " + path.encode() + b" HTTP/1.1", b"Host: 127.0.0.1"])
    assert 300 <= status(answer) < 500 and b"root:" not in answer and b"RIVERRUN_" not in answer, answer[:300]


# ---- bodies ---------------------------------------------------------------------------------------------------------------

BODIES = {
    "a key twice": b'{"task": "a", "task": "b"}',
    "a key twice, once escaped": b'{"task": "a", "t\\u0061sk": "b"}',
    "a key twice further in": b'{"task": "a", "budget": {"tokens": 1, "tokens": 2}}',
    "lists 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "objects 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "lists deep in metadata": b'{"task": "x", "metadata": {"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}",
    "more items than a body holds": b'{"task": "x", "tools": [' + b'"a",' * 300_000 + b'"a"]}',
    "200,000 items": b'{"task": "x", "tools": [' + b"1," * 200_000 + b"1]}",
    "half a surrogate": b'{"task": "\\ud800"}',
    "a surrogate the wrong way round": b'{"task": "\\udc00\\ud800"}',
    "a raw control character": b'{"task": "a\x01b"}',
    "a byte order mark": b'\xef\xbb\xbf{"task": "x"}',
    "UTF-16": '{"task": "x"}'.encode("utf-16"),
    "overlong UTF-8": b'{"task": "\xc0\xaf"}',
    "not a number": b'{"task": "x", "temperature": NaN}',
    "a number without end": b'{"task": "x", "temperature": 1e999}',
    "a number of 100,000 digits": b'{"task": "x", "max_iters": ' + b"9" * 100_000 + b"}",
    "a whole number too many": b'{"task": "x", "max_iters": 2147483648}',
    "a comment": b'{"task": "x" /* y */}',
    "single quotes": b"{'task': 'x'}",
    "a comma too many": b'{"task": "x",}',
    "two values": b'{"task": "x"}{"task": "y"}',
    "a prototype": b'{"task": "x", "__proto__": {"admin": true}}',
    "a constructor": b'{"task": "x", "constructor": {"prototype": {}}}',
    "a field of another case": b'{"Task": "x"}',
    "a list for an object": b'["x", "react"]',
    "a number for a text": b'{"task": 0}',
    "an object for a text": b'{"task": {"$gt": ""}}',
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_is_none_is_refused(server, kind):
    reply = server.request("POST", "/runs", BODIES[kind])
    assert reply.status in (400, 413, 422) and reply.json["code"], reply


@pytest.mark.parametrize("kind", BODIES)
def test_a_message_that_is_none_closes_its_socket(server, kind):
    with Raw(server) as raw:
        raw.send(text_frame(BODIES[kind]))
        assert raw.closed() in (None, 1007, 1008, 1009)
        assert not raw.said, raw.said


# ---- names ----------------------------------------------------------------------------------------------------------------

NAMES = [
    "..", "../x", "a/b", "a\\b", "a b", "a\u0000b", "a\nb", "é", "а", "ａ", "ß", "ı", "\u202ea", "a\u200bb", "a\u0301", "☃", "💧", "a" * 64, "a.b", "a;b", "a'b", 'a"b', "a`b", "$(id)", "{{7*7}}", "<b>",
    "a%2fb", "%", "*", "a:b", "a|b", "a,b",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
class TestNames:
    def test_a_collection_is_not_called_so(self, server, name):
        assert server.post("/rag/search", {"query": "x", "collection": name}).status == 422
        assert server.post("/ingest", {"source": str(server.folder), "collection": name}).status == 422

    def test_nor_a_namespace(self, server, name):
        assert server.post("/runs", {"task": "x", "namespace": name}).status == 422
        assert server.post("/warehouse/query", {"sql": "SELECT 1", "namespace": name}).status == 422

    def test_nor_on_the_command_line(self, server, name):
        if "\0" in name:
            pytest.skip("no command line holds a NUL")
        done = server.cli("collections", "--namespace", name)
        assert done.returncode in (1, 2, 4) and done.stderr and "panicked" not in done.stderr, done


# ---- WebSocket frames -------------------------------------------------------------------------------------------------------

MASK = b"\x01\x02\x03\x04"


def frame(head, payload=b"", masked=True, length=None):
    """`length` is claimed instead of the true one, in eight bytes."""
    size = len(payload)
    bit = 0x80 if masked else 0
    if length is not None:
        told = bytes([bit | 127]) + struct.pack(">Q", length)
    elif size < 126:
        told = bytes([bit | size])
    elif size < 65_536:
        told = bytes([bit | 126]) + struct.pack(">H", size)
    else:
        told = bytes([bit | 127]) + struct.pack(">Q", size)
    if not masked:
        return bytes([head]) + told + payload
    return bytes([head]) + told + MASK + bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))


def text_frame(payload):
    return frame(0x81, payload)


def payload_at(got):
    """Where the payload of the first frame of a server begins and ends; None until all of it is there."""
    if len(got) < 2:
        return None
    start, size = {126: (4, got[2:4]), 127: (10, got[2:10])}.get(got[1], (2, got[1:2]))
    end = start + int.from_bytes(size, "big")
    return (start, end) if len(got) >= max(start, end) else None


class Raw:
    """A socket on /ws/agent behind its handshake, with frames made by hand."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.api_port), timeout=PATIENCE_S)
        self.socket.sendall(b"GET /ws/agent HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = self.socket.recv(4_096)
            assert piece, answer
            answer += piece
        assert answer.startswith(b"HTTP/1.1 101"), answer
        self.rest = answer.split(b"\r\n\r\n", 1)[1]
        self.said = b""  # of other frames than closes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except ConnectionError:
            pass  # it has seen enough

    def closed(self):
        """The close code that comes; None where the connection ends without one."""
        got = self.rest
        while True:
            while (size := payload_at(got)) is not None:
                start, end = size
                if got[0] & 0x0f == 8:
                    return struct.unpack(">H", got[start:start + 2])[0] if end - start >= 2 else None
                if got[0] & 0x0f in (1, 2):
                    self.said += got[start:end]
                got = got[end:]
            try:
                piece = self.socket.recv(65_536)
            except ConnectionError:
                return None
            if not piece:
                return None
            got += piece


TASK = b'{"task": "x"}'

FRAMES = {
    "not masked": frame(0x81, TASK, masked=False),
    "a reserved bit": frame(0xc1, TASK),
    "all reserved bits": frame(0xf1, TASK),
    "a reserved kind": frame(0x83, TASK),
    "a reserved control kind": frame(0x8b, TASK),
    "a ping in pieces": frame(0x09, b"x"),
    "a ping of 126 bytes": frame(0x89, b"x" * 126),
    "a close of one byte": frame(0x88, b"\x03"),
    "a close with a code that is none": frame(0x88, struct.pack(">H", 999)),
    "a close with a reserved code": frame(0x88, struct.pack(">H", 1005)),
    "a close with bytes that are no text": frame(0x88, struct.pack(">H", 1000) + b"\xff\xfe"),
    "a continuation of nothing": frame(0x80, TASK),
    "a second beginning": frame(0x01, b'{"task"') + frame(0x81, TASK),
    "bytes that are no text": frame(0x81, b'{"task": "\xff\xfe"}'),
    "half a character at the end": frame(0x81, b'{"task": "\xe2\x82'),
    "binary": frame(0x82, TASK),
    "binary zeros": frame(0x82, bytes(1_000)),
    "a byte over the limit": frame(0x81, b'{"task": "' + b"x" * 65_536 + b'"}'),
    "a gigabyte that is claimed": frame(0x81, b"", length=1 << 30),
    "2^63 bytes that are claimed": frame(0x81, b"", length=1 << 63),
    "a length with its first bit set": frame(0x81, b"", length=(1 << 64) - 1),
    "2,000 pieces": frame(0x01, b"x" * 100) + frame(0x00, b"x" * 100) * 2_000,
    "HTTP again": b"GET /runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "zeros": bytes(4_096),
    "ones": b"\xff" * 4_096,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_that_is_none_closes_its_socket(server, kind):
    with Raw(server) as raw:
        raw.send(FRAMES[kind])
        assert raw.closed() in (None, 1000, 1002, 1003, 1007, 1008, 1009)


def test_pings_without_end_are_answered_and_start_nothing(server):
    with Raw(server) as raw:
        raw.send(frame(0x89, b"x" * 100) * 10_000)
        raw.send(frame(0x88, struct.pack(">H", 1000)))
        assert raw.closed() in (None, 1000)


# ---- Kafka -----------------------------------------------------------------------------------------------------------------


def request(key, version, body):
    whole = struct.pack(">hhi", key, version, 1) + b"\x00\x01x" + body
    return struct.pack(">i", len(whole)) + whole


MANY = struct.pack(">i", 2**31 - 1)

KAFKA = {
    "a frame of -1": struct.pack(">i", -1),
    "a frame of 2^31 - 1": struct.pack(">i", 2**31 - 1) + bytes(100),
    "a frame of 0": struct.pack(">i", 0),
    "a header cut short": struct.pack(">i", 3) + b"abc",
    "an unknown request": request(999, 0, b""),
    "a negative request": request(-1, 0, b""),
    "a version of -1": request(3, -1, b""),
    "a version that is not there yet": request(1, 99, b""),
    "topics without end in Metadata": request(3, 1, MANY),
    "topics without end in Produce": request(0, 3, b"\xff\xff" + b"\xff\xff" + struct.pack(">i", 1_000) + MANY),
    "topics without end in Fetch": request(1, 4, struct.pack(">iiiib", -1, 1, 1, 1, 0) + MANY),
    "a name of 32,767 bytes that are not there": request(3, 1, struct.pack(">ih", 1, 32_767) + b"x"),
    "a name of a negative length": request(3, 1, struct.pack(">ih", 1, -2)),
    "a variable length of ten bytes": request(3, 9, b"\x00" + b"\xff" * 10),
    "a batch that is none": request(0, 3, b"\xff\xff\xff\xff" + struct.pack(">iih", 1_000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, 8) + b"\xff" * 8),
    "a client id that is no text": struct.pack(">i", 12) + struct.pack(">hhi", 18, 0, 1) + b"\x00\x02\xff\xfe",
    "HTTP": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "zeros": bytes(4_096),
    "ones": b"\xff" * 4_096,
}


@pytest.mark.parametrize("kind", KAFKA)
def test_a_kafka_request_that_is_none_ends_its_connection(server, kind):
    answer = exchange(server.broker_port, KAFKA[kind], ends=True)
    assert len(answer) < 65_536, len(answer)
    # Another one is answered: ApiVersions 0.
    assert len(exchange(server.broker_port, request(18, 0, b""), ends=True)) > 100


TOPICS = ["../../x", "a/b", ".", "..", "a b", "é", "a" * 250, "__consumer_offsets", "a:b", "$(id)"]


@pytest.mark.parametrize("topic", TOPICS, ids=ascii)
def test_a_topic_is_not_called_so(server, topic):
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": server.brokers})
    with pytest.raises((KafkaException, ValueError)):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)


def number(value):
    """Avro's way to write a whole number."""
    value = value << 1 ^ value >> 63
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7f | 0x80]), value >> 7
    return out + bytes([value])


BOMBS = [
    number(2**31), number(2**40), number(2**62), number(-1), number(-(2**62)), b"\xff" * 9 + b"\x01", b"\xff" * 20, b"\x80" * 10_000, number(5) + b"\xff" * 5, number(64 << 20) + b"x" * 1_000,
    number(3) + b"run" + number(99), b"\x00" * 100_000, (number(2**30) + b"x") * 1_000,
]


@pytest.mark.parametrize("topic, record", [("riverrun.agent.commands", "riverrun.agent.StartRun"), ("riverrun.ingest.commands", "riverrun.ingest.StartIngest")])
def test_an_avro_body_that_claims_more_than_there_is_becomes_a_dead_letter(server, topic, record):
    schema, _ = schema_of(record)
    sent = sorted({log_client.frame(schema, bomb) for bomb in BOMBS})
    before = len(dead_letters(server, topic))
    for at, value in enumerate(sent):
        produce(server, topic, at % 6, value)
    wait_for(lambda: len(dead_letters(server, topic)) >= before + len(sent), 60, "the dead letters", every_s=0.3)
    assert sorted(letter.value() for letter in dead_letters(server, topic)[before:]) == sent


def test_after_all_that_the_server_answers_and_holds_nothing_open(server):
    assert server.get("/health").status == 200
    assert server.run_end(server.start_run("[[steps=1 id=after-frames]]"))["status"] == "succeeded"
    handles = f"/proc/{server.process.pid}/fd"
    wait_for(lambda: len(os.listdir(handles)) < 500, 60, "the connections to be closed", every_s=0.5)
    server.settle()
