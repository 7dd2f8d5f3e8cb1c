"""A run seen whole in a real tracing service, through its own API: Arize Phoenix. Only with `--phoenix`, since it is large
and slow to start."""

import json
import os
import subprocess
import urllib.error
import urllib.request

import pytest

from server import free_ports, wait_for

PROJECT = "interop"
START_TIMEOUT_S = 300


class Phoenix:
    """`phoenix serve` in a folder and on ports of its own."""

    def __init__(self, program, folder):
        port, grpc_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = folder / "phoenix.log"
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1",
               "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(grpc_port), "PHOENIX_TELEMETRY_ENABLED": "false"}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([program, "serve"], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(self.answers, START_TIMEOUT_S, "Phoenix to answer", every_s=1)

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"phoenix ended with {self.process.returncode}: {self.log_path.read_text()[-2000:]}")
        try:
            return self.get("/v1/projects") is not None
        except OSError:
            return False

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.load(answer)

    def spans(self, trace_id):
        """The spans of a trace; none while Phoenix does not know the project yet."""
        try:
            found = self.get(f"/v1/projects/{PROJECT}/spans?limit=1000")["data"]
        except urllib.error.HTTPError as error:
            assert error.code == 404, error
            return []
        return [span for span in found if span["context"]["trace_id"] == trace_id]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="module")
def phoenix(request, tmp_path_factory):
    program = request.config.getoption("--phoenix")
    if not program:
        pytest.skip("needs --phoenix")
    service = Phoenix(program, tmp_path_factory.mktemp("phoenix"))
    yield service
    service.stop()


def tracing_row(server):
    return next(row for row in server.get("/diagnose").json["services"] if row["name"] == "tracing")


def test_a_run_is_seen_whole(phoenix, new_server):
    server = new_server(RIVERRUN_TRACING_ENDPOINT=phoenix.url, RIVERRUN_TRACING_PROJECT=PROJECT,
                        RIVERRUN_TRACING_CONTENT="true").start()
    wait_for(lambda: tracing_row(server)["status"] == "up", 30, "the tracing row to be up")
    run = server.run_end(server.start_run("add up [[steps=3 id=phoenix]]", session="s-1"))
    assert run["status"] == "succeeded" and run["trace_id"], run
    rooted = lambda: (spans := phoenix.spans(run["trace_id"])) and any(not span["parent_id"] for span in spans) and spans  # noqa: E731
    spans = wait_for(rooted, 60, "the root of the trace", every_s=0.5)

    by_name = {}
    for span in spans:
        by_name.setdefault(span["name"], []).append(span)
    [root] = by_name["invoke_agent react"]
    ids = {span["context"]["span_id"] for span in spans}
    assert len(ids) == len(spans)
    assert all(span["parent_id"] in ids for span in spans if span is not root), "every span hangs from another"
    assert root["status_code"] == "OK" and root["span_kind"] == "AGENT"
    assert root["attributes"]["input.value"].startswith("add up") and root["attributes"]["output.value"] == run["answer"]

    results = [step for step in run["steps"] if step["kind"] == "tool_result"]
    tools = by_name["execute_tool calculator"]
    assert len(tools) == len(results) == 3 and all(span["span_kind"] == "TOOL" for span in tools)
    chats = by_name["chat stub"]
    assert sum(span["attributes"]["gen_ai.usage.input_tokens"] for span in chats) == run["usage"]["prompt_tokens"]
    assert sum(span["attributes"]["llm.token_count.completion"] for span in chats) == run["usage"]["completion_tokens"]
    assert all(span["span_kind"] == "LLM" for span in chats)
    assert all(span["attributes"]["session.id"] == "s-1" for span in spans)


def test_a_run_goes_on_without_the_service(new_server):
    [port] = free_ports(1)
    server = new_server(RIVERRUN_TRACING_ENDPOINT=f"http://127.0.0.1:{port}").start()
    run = server.run_end(server.start_run("add up [[steps=1 id=phoenix-down]]"))
    assert run["status"] == "succeeded" and run["trace_id"] is None
    row = tracing_row(server)
    assert (row["status"], row["required"]) == ("down", False) and row["fix"]
    assert server.get("/health").json["status"] == "ok"
