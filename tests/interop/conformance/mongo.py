"""A server that speaks as much of MongoDB's wire protocol as a driver needs to find documents
(https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/, https://bsonspec.org/spec.html)."""

import socketserver
import struct
import threading
from contextlib import contextmanager

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
DOUBLE, STRING, OBJECT, ARRAY, BINARY, OBJECT_ID, BOOL, DATE, NULL, INT32, TIMESTAMP, INT64 = 1, 2, 3, 4, 5, 7, 8, 9, 10, 16, 17, 18


class Long(int):
    """A number that is written with 64 bits, however small it is."""


def encode(found):
    """An object as BSON."""
    body = b"".join(element(name, value) for name, value in found.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def element(name, value):
    match value:
        case bool():
            kind, raw = BOOL, bytes([value])
        case int():
            small = abs(value) < 1 << 31 and not isinstance(value, Long)
            kind, raw = (INT32, struct.pack("<i", value)) if small else (INT64, struct.pack("<q", value))
        case float():
            kind, raw = DOUBLE, struct.pack("<d", value)
        case str():
            text = value.encode() + b"\0"
            kind, raw = STRING, struct.pack("<i", len(text)) + text
        case list():
            kind, raw = ARRAY, encode({str(at): one for at, one in enumerate(value)})
        case dict():
            kind, raw = OBJECT, encode(value)
        case None:
            kind, raw = NULL, b""
    return bytes([kind]) + name.encode() + b"\0" + raw


def decode(data, at=0):
    """The object that begins at `at`."""
    end, found = at + struct.unpack_from("<i", data, at)[0] - 1, {}
    at += 4
    while at < end:
        kind, stop = data[at], data.index(b"\0", at + 1)
        name, at = data[at + 1:stop].decode(), stop + 1
        found[name], at = value_at(kind, data, at)
    return found


def value_at(kind, data, at):
    length = struct.unpack_from("<i", data, at)[0] if kind in (STRING, OBJECT, ARRAY, BINARY) else 0
    match kind:
        case 1:
            return struct.unpack_from("<d", data, at)[0], at + 8
        case 2:
            return data[at + 4:at + 3 + length].decode(), at + 4 + length
        case 3:
            return decode(data, at), at + length
        case 4:
            return list(decode(data, at).values()), at + length
        case 5:
            return data[at + 5:at + 5 + length], at + 5 + length
        case 7:
            return data[at:at + 12], at + 12
        case 8:
            return data[at] == 1, at + 1
        case 10:
            return None, at
        case 16:
            return struct.unpack_from("<i", data, at)[0], at + 4
        case 9 | 17 | 18:
            return struct.unpack_from("<q", data, at)[0], at + 8
    raise ValueError(f"type {kind} is not read here")


HELLO = {"ismaster": True, "isWritablePrimary": True, "helloOk": True, "maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000,
         "maxWriteBatchSize": 100_000, "minWireVersion": 0, "maxWireVersion": 21, "readOnly": False, "connectionId": 1, "ok": 1.0}


@contextmanager
def serving(collections):
    """Serves documents by `database.collection`: its address, and the commands that it was asked."""
    asked = []

    def answer(command):
        asked.append(command)
        if "find" in command:
            name = f"{command['$db']}.{command['find']}"
            wanted = command.get("filter", {}).items()
            found = [one for one in collections.get(name, []) if all(one.get(field) == value for field, value in wanted)]
            return {"cursor": {"firstBatch": found, "id": Long(0), "ns": name}, "ok": 1.0}
        return HELLO if {"hello", "ismaster", "isMaster"} & set(command) else {"ok": 1.0}

    class Connection(socketserver.BaseRequestHandler):
        def read(self, count):
            data = b""
            while len(data) < count:
                piece = self.request.recv(count - len(data))
                if not piece:
                    raise ConnectionError
                data += piece
            return data

        def handle(self):
            try:
                while True:
                    length, request, _, kind = struct.unpack("<iiii", self.read(16))
                    body = self.read(length - 16)
                    if kind == OP_QUERY:
                        command = decode(body, body.index(b"\0", 4) + 9)
                        reply, content = OP_REPLY, struct.pack("<iqii", 0, 0, 0, 1) + encode(answer(command))
                    else:
                        reply, content = OP_MSG, struct.pack("<I", 0) + b"\0" + encode(answer(decode(body, 5)))
                    self.request.sendall(struct.pack("<iiii", len(content) + 16, 0, request, reply) + content)
            except OSError:
                pass  # the driver has gone

    class Listener(socketserver.ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

    with Listener(("127.0.0.1", 0), Connection) as listener:
        threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{listener.server_address[1]}", asked
        listener.shutdown()
