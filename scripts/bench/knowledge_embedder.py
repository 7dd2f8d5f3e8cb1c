"""An embedding model that costs next to nothing, in a process of its own: what remains of the time and CPU of an ingest is not the model's.

    knowledge_embedder.py DIMENSIONS

Prints its address and serves Ollama's `/api/embed` until it is ended. A vector is eight blocks, each one of 256 that were made before;
which, the text's hash says: the same text has the same vector, other texts have others, and nothing is computed but the hash.
"""

import hashlib
import json
import random
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCKS = 8
VARIANTS = 256


def blocks(dimensions):
    """Each block as JSON without brackets. Vectors come to a length of about 1."""
    dice, spread = random.Random(1), dimensions ** -0.5
    size = dimensions // BLOCKS
    return [[",".join(f"{dice.gauss(0, spread):.5f}" for _ in range(size)) for _ in range(VARIANTS)] for _ in range(BLOCKS)]


def vector(made, text):
    places = hashlib.blake2b(text.encode(), digest_size=BLOCKS).digest()
    return "[" + ",".join(made[block][place] for block, place in enumerate(places)) + "]"


def handler(made):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, *_):
            pass

        def answer(self, body):
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def do_GET(self):
            if self.path == "/api/version":
                self.answer(b'{"version": "0.0.0-bench"}')
            elif self.path == "/api/tags":
                self.answer(b'{"models": [{"name": "bench", "model": "bench", "size": 1, "digest": "bench", "details": {}}]}')
            else:
                self.send_error(404)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path != "/api/embed":
                self.send_error(404)
                return
            texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
            vectors = ",".join(vector(made, text) for text in texts)
            self.answer(f'{{"model": "bench", "embeddings": [{vectors}], "prompt_eval_count": {len(texts)}}}'.encode())

    return Handler


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(blocks(int(sys.argv[1]))))
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
