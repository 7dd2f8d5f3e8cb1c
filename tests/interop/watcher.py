"""Clients of a run's WebSocket that are bare sockets: many of them are read by one thread, at a speed that a test chooses, or not at all."""

import contextlib
import json
import selectors
import socket
import struct
import time

from test_attacks_wire import payload_at

# What a connection that holds little on its way takes: the shortest segments and the least room that Linux gives.
LITTLE_ROOM_BYTES, SHORT_SEGMENT_BYTES = 2_048, 536
# About a message of a step.
FRAME_BYTES = 512
# An unasked pong with nothing in it. The server gives up whom it has not heard of for a minute.
PONG, PONG_EVERY_S = bytes([0x8A, 0x80, 0, 0, 0, 0]), 15


class Watcher:
    """A socket behind its handshake. What comes is kept with the time at which it came and is read later: others would wait for that."""

    def __init__(self, server, run_id, port=None, little_room=False):
        self.pieces, self.ended = [], False
        self.socket = socket.socket()
        if little_room:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE_ROOM_BYTES)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SHORT_SEGMENT_BYTES)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", port or server.api_port))
        self.socket.sendall(f"GET /ws/runs/{run_id} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        answer = b""
        # One after the other: what stands behind them is left where it is.
        while not answer.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)
            assert byte, answer
            answer += byte
        assert answer.startswith(b"HTTP/1.1 101"), answer
        self.socket.setblocking(False)

    def take(self, most=65_536):
        """Whatever is there, without waiting for it."""
        try:
            piece = self.socket.recv(most)
        except BlockingIOError:
            return
        except ConnectionError:
            piece = b""
        if piece:
            self.pieces.append((time.time(), piece))
        else:
            self.ended = True
            self.socket.close()

    def take_all(self, within_s):
        """Everything up to the end of the connection."""
        until = time.monotonic() + within_s
        while not self.ended:
            left = until - time.monotonic()
            assert left > 0, f"the connection is open after {within_s} s"
            self.socket.settimeout(left)
            with contextlib.suppress(TimeoutError):
                self.take()

    def tell(self):
        """That it is there."""
        with contextlib.suppress(OSError):  # closed, or no room: then it is heard of otherwise
            self.socket.send(PONG)

    def vanish(self):
        """Goes at once and without a farewell: what the server gets is RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read(self):
        """Each message with the time at which its last byte came, and the close code, None without one. Half a message at the end is none."""
        got, messages = b"", []
        for when, piece in self.pieces:
            got += piece
            while (size := payload_at(got)) is not None:
                start, end = size
                kind, payload, got = got[0] & 0x0f, got[start:end], got[end:]
                if kind == 8:
                    return messages, struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else None
                if kind == 1:
                    messages.append((when, json.loads(payload)))
        return messages, None


def read_until_closed(quick, slow, within_s, each_second):
    """Reads those that are quick as soon as something comes, and a frame a second of each slow one, until all quick ones are closed."""
    with selectors.DefaultSelector() as ready:
        for one in quick:
            ready.register(one.socket, selectors.EVENT_READ, one)
        began = second = told = time.monotonic()
        while ready.get_map():
            for key, _ in ready.select(0.2):
                socket_ = key.fileobj
                key.data.take()
                if key.data.ended:
                    ready.unregister(socket_)
            if time.monotonic() - second >= 1:
                second = time.monotonic()
                for one in slow:
                    if not one.ended:
                        one.take(FRAME_BYTES)
                if second - told >= PONG_EVERY_S:
                    told = second
                    for one in [*quick, *slow]:
                        one.tell()
                each_second()
                assert second - began < within_s, f"{len(ready.get_map())} watchers are not closed after {within_s} s"
