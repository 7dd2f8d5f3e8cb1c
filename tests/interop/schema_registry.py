"""A schema registry by the rules of Confluent's, in memory: ids and versions as they are said in mode IMPORT, its own else."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.status, self.code = (code if code < 1000 else code // 100), code


class SchemaRegistry:
    """`modes=False` is one that can't be told ids. `address` keeps the port of one that was closed."""

    def __init__(self, user=None, modes=True, port=0, like=None):
        self.lock = threading.Lock()
        # (subject, version) -> (id, schema)
        self.versions = {} if like is None else like.versions
        self.modes, self.has_modes, self.writes = {}, modes, 0
        self.wanted = user and "Basic " + base64.b64encode(user.encode()).decode()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # a connection ends with its answer: none outlives `close`

            def answer(self):
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length) or b"null")
                try:
                    if registry.wanted and self.headers.get("authorization") != registry.wanted:
                        raise Refused(401, "Unauthorized")
                    path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
                    with registry.lock:
                        status, found = 200, registry.answer(self.command, path, body)
                except Refused as refused:
                    status, found = refused.status, {"error_code": refused.code, "message": str(refused)}
                answer = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True

        self.listener = Listener(("127.0.0.1", port), Handler)
        self.port = self.listener.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.listener.shutdown()
        self.listener.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def answer(self, method, path, body):
        match (method, path):
            case ("GET", ["v1", "metadata", "version"]):
                return {"version": "7.9.1-test"}
            case ("GET", ["subjects"]):
                return sorted({subject for subject, _ in self.versions})
            case ("GET", ["schemas", "ids", id]):
                for known, schema in self.versions.values():
                    if known == int(id):
                        return {"schema": schema}
                raise Refused(40403, "Schema not found")
            case ("GET", ["subjects", subject, "versions", version]):
                if (found := self.versions.get((subject, int(version)))) is None:
                    raise Refused(40402, "Version not found")
                return {"subject": subject, "version": int(version), "id": found[0], "schema": found[1]}
            case ("POST", ["compatibility", "subjects", subject, "versions", "latest"]):
                if not any(known == subject for known, _ in self.versions):
                    raise Refused(40402, "Version not found")
                return {"is_compatible": True}
            case ("POST", ["subjects", subject, "versions"]):
                return self.register(subject, body)
            case ("GET", ["mode"]) if self.has_modes:
                return {"mode": "READWRITE"}
            case ("GET", ["mode", subject]) if self.has_modes:
                if subject not in self.modes:
                    raise Refused(40409, "Subject does not have subject-level mode configured")
                return {"mode": self.modes[subject]}
            case ("PUT", ["mode", subject]) if self.has_modes:
                self.writes += 1
                self.modes[subject] = body["mode"]
                return body
            case ("DELETE", ["mode", subject]) if self.has_modes:
                return self.modes.pop(subject, "READWRITE")
            case _:
                raise Refused(404, "HTTP 404 Not Found")

    def register(self, subject, body):
        self.writes += 1
        imports = self.modes.get(subject) == "IMPORT"
        if "id" in body and not imports:
            raise Refused(42205, f"Subject {subject} is not in import mode")
        id, version, schema = body["id"], body["version"], body["schema"]
        if any(known == id and text != schema for known, text in self.versions.values()):
            raise Refused(42205, f"Overwrite new schema with id {id} is not permitted.")
        self.versions[subject, version] = (id, schema)
        return {"id": id}
