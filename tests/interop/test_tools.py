"""Tools that users define: HTTP, programs, MCP servers, programs behind the log. And riverrun as an MCP server."""

import asyncio
import io
import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fastavro
import pytest
from confluent_kafka import Producer
from mcp import Client, StdioServerParameters

import log_client
from server import BINARY, ROOT, free_ports, wait_for
from test_poison import schema_of

EXAMPLES = ROOT / "examples/tools"


def written(folder, text):
    path = folder / "tools.toml"
    path.write_text(text)
    return {"RIVERRUN_TOOLS_FILE": str(path)}


def uses(tool, arguments, **script):
    """A task for the scripted model: call that tool once, then answer."""
    words = {"steps": 1, "tool": tool, "args": json.dumps(arguments, separators=(",", ":")), **script}
    return "[[" + " ".join(f"{name}={value}" for name, value in words.items()) + "]]"


def tool_step(run, kind="tool_result"):
    return next(step["tool"] for step in run["steps"] if step["kind"] == kind)


def call(server, tool, arguments, **more):
    return server.post(f"/tools/{tool}/call", {"arguments": arguments, **more})


# ---- MCP servers ---------------------------------------------------------------------------------------------------------

TIME = f"""
[[mcp]]
name = "time"
command = "{sys.executable}"
args = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
effect = "none"
"""


def test_an_agent_uses_a_real_mcp_server(new_server, tmp_path):
    server = new_server(**written(tmp_path, TIME)).start()
    run_id = server.start_run(uses("time__convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}))
    run = server.run_end(run_id)
    assert run["status"] == "succeeded", run
    assert "21:00" in json.dumps(tool_step(run)["result"]), run
    listed = {tool["name"]: tool for tool in server.get("/tools").json["items"]}
    assert listed["time__get_current_time"]["source"] == "mcp" and listed["time__get_current_time"]["effect"] == "none"


def test_a_killed_mcp_server_is_started_again(new_server, tmp_path):
    server = new_server(**written(tmp_path, TIME)).start()
    arguments = {"timezone": "UTC"}
    assert call(server, "time__get_current_time", arguments).status == 200
    children = subprocess.run(["pgrep", "-P", str(server.process.pid), "-f", "mcp_server_time"], capture_output=True,
                              text=True, check=True).stdout.split()
    subprocess.run(["kill", "-9", *children], check=True)
    wait_for(lambda: call(server, "time__get_current_time", arguments).status == 200, 30, "the server to be back")


# The protocol's own server over streamable HTTP.
SHOP = """
import sys
from mcp.server import MCPServer

shop = MCPServer("shop")

@shop.tool()
def price(part: str) -> str:
    "What a part costs."
    return f"{part} costs 7 crowns"

shop.run("streamable-http", port=int(sys.argv[1]))
"""


def opened(port):
    return subprocess.Popen([sys.executable, "-c", SHOP, str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_an_agent_uses_a_real_mcp_server_over_http_that_goes_and_comes_back(new_server, tmp_path):
    [port] = free_ports(1)
    tools = f'[[mcp]]\nname = "shop"\nurl = "http://127.0.0.1:{port}/mcp"\neffect = "none"\n'
    server = new_server(**written(tmp_path, tools), RIVERRUN_WEB_ALLOW="127.0.0.1").start()
    asked = lambda: call(server, "shop__price", {"part": "A7"})
    assert asked().status != 200, "nobody is there yet"
    shop = opened(port)
    try:
        wait_for(lambda: asked().status == 200, 60, "the server to be found")
        run = server.run_end(server.start_run(uses("shop__price", {"part": "A7"})))
        assert run["status"] == "succeeded" and "A7 costs 7 crowns" in json.dumps(tool_step(run)["result"]), run
        shop.kill()
        shop.wait()
        gone = server.run_end(server.start_run(uses("shop__price", {"part": "A7"})))
        assert "mcp server shop" in tool_step(gone)["error"], gone
        shop = opened(port)
        wait_for(lambda: asked().status == 200, 60, "the server to be back")
    finally:
        shop.kill()
        shop.wait()


def test_diagnose_shows_a_broken_definition_with_its_fix(new_server, tmp_path):
    server = new_server(**written(tmp_path, '[[mcp]]\nname = "gone"\ncommand = "/no/such/program"\n' + TIME)).start()
    rows = [row for row in server.get("/diagnose").json["services"] if row["name"] == "tool gone"]
    assert rows and rows[0]["status"] == "down" and "line 2" in rows[0]["detail"] and rows[0]["fix"], rows
    checked = server.cli("tools", "check", "--json")
    assert checked.returncode == 2, checked
    assert json.loads(checked.stdout)["problems"][0]["line"] == 2


# ---- riverrun as an MCP server -------------------------------------------------------------------------------------------

async def speak(where):
    async with Client(where) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"run_agent", "search_collection", "ask_collection", "list_collections", "calculator"} <= tools, tools
        calculated = await client.call_tool("calculator", {"expression": "6*7"})
        assert not calculated.is_error and "42" in json.dumps(calculated.structured_content), calculated
        run = await client.call_tool("run_agent", {"task": "[[steps=2]]", "agent": "react"})
        assert run.structured_content["status"] == "succeeded", run
        wrong = await client.call_tool("calculator", {"expression": 7})
        assert wrong.is_error, wrong
        unknown = await client.call_tool("no_such_tool", {})
        assert unknown.is_error, unknown


def test_a_real_mcp_client_lists_and_calls_over_http(server):
    asyncio.run(speak(f"{server.url}/mcp"))


def test_a_real_mcp_client_lists_and_calls_over_stdio(server):
    asyncio.run(speak(StdioServerParameters(command=str(BINARY), args=["mcp"], env=server.env, cwd=str(server.folder))))


def test_mcp_is_guarded_as_every_route_is(server):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"accept": "application/json, text/event-stream"}
    assert server.post("/mcp", body, headers=headers | {"origin": "https://evil.example"}).status == 403
    assert server.post("/mcp", body, headers=headers | {"host": "evil.example"}).status == 403
    assert server.post("/mcp/a__b", body, headers=headers).status == 422


# ---- Kafka tools ---------------------------------------------------------------------------------------------------------

@contextmanager
def example_tool(server):
    process = subprocess.Popen([sys.executable, str(EXAMPLES / "kafka_tool.py"), server.brokers, server.url],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == "serving"
        yield process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_the_example_serves_a_kafka_tool(new_server):
    server = new_server(RIVERRUN_TOOLS_FILE=str(EXAMPLES / "tools.toml")).start()
    with example_tool(server):
        run = server.run_end(server.start_run(uses("stock", {"part": "C9"})))
        assert run["status"] == "succeeded" and tool_step(run)["result"] == {"part": "C9", "pieces": 340}, run
        run = server.run_end(server.start_run(uses("stock", {"part": "X"})))
        assert "no part X" in tool_step(run)["error"], run


def test_the_examples_program_runs_confined(new_server):
    server = new_server(RIVERRUN_TOOLS_FILE=str(EXAMPLES / "tools.toml")).start()
    counted = call(server, "count_words", {"text": "one two three\n"})
    assert counted.status == 200 and counted.json["result"]["output"].split() == ["1", "3", "14"], counted
    checked = server.cli("tools", "check", str(EXAMPLES / "tools.toml"))
    assert checked.returncode == 0, checked


class Counterpart:
    """Reads calls and writes answers by hand."""

    def __init__(self, server):
        self.schema_id, self.schema = schema_of("riverrun.tools.ToolAnswered")
        self.producer = Producer({"bootstrap.servers": server.brokers})
        self.decode = log_client.decoder(server.url)
        self.brokers = server.brokers

    def calls(self):
        return [self.decode(record) for record in log_client.read_topic(self.brokers, "riverrun.tools.calls")]

    def answer(self, call_id, result):
        body = io.BytesIO()
        answer = {"call_id": call_id, "result_json": json.dumps(result), "error": None, "at": 0}
        fastavro.schemaless_writer(body, fastavro.parse_schema(self.schema), answer)
        self.producer.produce("riverrun.tools.results", key=call_id, value=log_client.frame(self.schema_id, body.getvalue()))
        assert self.producer.flush(15) == 0


SLOW = '[[tool]]\nname = "slow"\ndescription = "d"\neffect = "idempotent"\ntimeout_s = {}\nkafka = {{}}\n'


def test_the_first_answer_counts_and_a_call_survives_a_kill(new_server, tmp_path):
    server = new_server(**written(tmp_path, SLOW.format(120))).start()
    counterpart = Counterpart(server)
    run_id = server.start_run(uses("slow", {}))
    asked = wait_for(counterpart.calls, 30, "the call")
    server.kill()
    server.start()
    counterpart.answer(asked[0]["call_id"], "first")
    counterpart.answer(asked[0]["call_id"], "second")
    run = server.run_end(run_id)
    assert run["status"] == "succeeded" and tool_step(run)["result"] == "first", run
    assert {call["call_id"] for call in counterpart.calls()} == {asked[0]["call_id"]}, "one call, however often it was asked"


def test_a_call_that_nobody_answers_ends_in_time(new_server, tmp_path):
    server = new_server(**written(tmp_path, SLOW.format(1))).start()
    run = server.run_end(server.start_run(uses("slow", {})))
    assert "no result within 1000 ms" in tool_step(run)["error"], run


def test_given_an_outside_call_without_an_answer_in_time_when_a_person_has_it_made_again_then_the_late_answer_counts(new_server, tmp_path):
    server = new_server(**written(tmp_path, SLOW.format(3).replace("idempotent", "external"))).start()
    counterpart = Counterpart(server)
    run_id = server.start_run(uses("slow", {}), approval="never")
    [pending] = wait_for(lambda: server.get(f"/runs/{run_id}").json.get("pending_approvals"), 60, "the run to ask what to do")
    assert pending["outcome_unknown"] is True and "no result within 3000 ms" in pending["reason"], pending
    [asked] = counterpart.calls()
    counterpart.answer(asked["call_id"], "done after all")
    approved = server.cli("runs", "approve", run_id)
    assert approved.returncode == 0, approved
    run = server.run_end(run_id)
    assert run["status"] == "succeeded" and tool_step(run)["result"] == "done after all", run
    assert len(counterpart.calls()) == 1, "the call stands there once"


def test_given_runs_in_every_state_when_they_are_cancelled_then_each_ends_long_before_what_it_waits_for(new_server, tmp_path):
    server = new_server(**written(tmp_path, SLOW.format(120))).start()
    hangs = "[[steps=1 delay_ms=120000 id=cancel-{}]]"
    runs = {
        "its model writes": server.start_run(hangs.format("model"), session="busy"),
        "its tool runs": server.start_run(uses("slow", {}, id="cancel-tool")),
        "a person is asked": server.start_run("count [[steps=1 id=cancel-asked]]", approval="always"),
        "an agent is chosen": server.start_run(hangs.format("route") + " Write a letter about 2 + 2, step by step", agent=None),
        "its session is busy": server.start_run(hangs.format("turn"), session="busy"),
    }

    def state(which):
        run = server.get(f"/runs/{runs[which]}")
        return (run.json["status"], [step["kind"] for step in run.json["steps"]]) if run.status == 200 else None

    def arrived():
        # A run of a session has read its conversation before its model is asked.
        return (state("its tool runs") == ("running", ["thought", "tool_call"]) and state("its model writes") == ("running", ["tool_call", "tool_result"])
                and (state("a person is asked") or [""])[0] == "waiting_approval" and state("its session is busy") == ("queued", []))
    wait_for(arrived, 60, "every run to be where it is cancelled")
    # The one that waits for the session first: else it would get its turn.
    for run_id in reversed(runs.values()):
        assert server.post(f"/runs/{run_id}/cancel", {"reason": "enough"}).status == 202
    for which, run_id in runs.items():
        run = server.run_end(run_id, 30)
        assert (run["status"], run["stop_reason"]) == ("cancelled", "cancelled"), (which, run)


# ---- HTTP tools ----------------------------------------------------------------------------------------------------------

@contextmanager
def orders():
    """Repeats whatever it is sent, the key included."""
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            status = 500 if "fail" in self.path else 200
            body = json.dumps({"path": self.path, "key": self.headers["authorization"]}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


HTTP = """
[[tool]]
name = "order"
description = "d"
effect = "none"
arguments.id = {{ type = "string" }}
http = {{ url = "{}/orders/{{id}}", headers = {{ authorization = {{ env = "ORDERS_KEY", prefix = "Bearer " }} }} }}
"""


def test_an_http_tool_escapes_its_values_and_shows_no_secret(new_server, tmp_path):
    with orders() as url:
        server = new_server(**written(tmp_path, HTTP.format(url)), RIVERRUN_WEB_ALLOW="127.0.0.1", ORDERS_KEY="canary-4711").start()
        run = server.run_end(server.start_run(uses("order", {"id": "../x?y"})))
        assert tool_step(run)["result"]["body"] == {"path": "/orders/..%2Fx%3Fy", "key": "Bearer ***"}, run
        failed = call(server, "order", {"id": "fail"})
        assert failed.status == 422 and "answered 500" in failed.json["detail"], failed
        everything = json.dumps(run) + failed.body.decode() + server.log_tail(1000) + server.get("/tools").body.decode()
        everything += "".join(str(record.value()) for record in log_client.read_topic(server.brokers, "riverrun.agent.events"))
        assert "canary" not in everything


def test_an_address_inside_is_refused_unless_it_was_opened(new_server, tmp_path):
    with orders() as url:
        server = new_server(**written(tmp_path, HTTP.format(url)), ORDERS_KEY="canary-4711").start()
        assert call(server, "order", {"id": "1"}).status == 404, "the definition is left out"
        for address in (url, "http://localhost:1/", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd"):
            fetched = call(server, "web_fetch", {"url": address})
            assert fetched.status == 422, (address, fetched)


# ---- programs ------------------------------------------------------------------------------------------------------------

def program(name, script, **more):
    """A tool that runs a fixed script of a real interpreter; the model only chooses the one argument behind it."""
    extra = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    return f"""
[[tool]]
name = "{name}"
description = "d"
effect = "none"
timeout_s = 3
max_result_bytes = 2000
arguments.x = {{ type = "string" }}
[tool.command]
program = "/usr/bin/python3"
args = ["-c", {json.dumps(script.replace("{", "{{").replace("}", "}}"))}, "--", "{{x}}"]
{extra}"""


PROGRAMS = "".join([
    program("echo", "import sys; print(sys.argv[2])"),
    program("env", "import os; print(sorted(os.environ))"),
    program("read", "import sys; print(open(sys.argv[2]).read())"),
    program("write", "import sys; open(sys.argv[2], 'w').write('x'); print('written')"),
    program("connect", "import socket; socket.create_connection(('127.0.0.1', 1)); print('connected')"),
    program("flood", "print('x' * 100000)"),
    program("hog", "x = bytearray(4 << 30); print(len(x))"),
    program("sleep", "import os, sys, time\nif os.fork() == 0:\n    os.execv('/bin/sleep', ['sleep', sys.argv[2]])\ntime.sleep(600)"),
    program("leave", "import os; os.setsid(); print('left')"),
])


@pytest.fixture(scope="module")
def programs(tmp_path_factory, model):
    from server import Server
    folder = tmp_path_factory.mktemp("programs")
    running = Server(folder, model.settings() | written(folder, PROGRAMS) | {"RIVERRUN_OPENAI_API_KEY": "canary-key"}).start()
    yield running
    running.stop()


@pytest.mark.parametrize("value", ["; rm -rf /", "$(id)", "`id`", "| cat /etc/passwd", "a b\nc", "'\"", "--help", "{x}", "%s"])
def test_no_value_is_more_than_one_word(programs, value):
    said = call(programs, "echo", {"x": value})
    assert said.status == 200 and said.json["result"]["output"] == value + "\n", said


def test_a_program_gets_nothing_of_ours(programs, tmp_path):
    names = call(programs, "env", {"x": ""}).json["result"]["output"]
    assert "RIVERRUN" not in names and "LD_LIBRARY" not in names, names
    sandbox = json.loads(programs.cli("tools", "check", "--json").stdout)["sandbox"]
    if "seccomp enforced" in sandbox:
        for tool in ("connect", "leave"):
            refused = call(programs, tool, {"x": ""})
            assert refused.status == 422 and "not permitted" in refused.json["detail"], refused
    if "landlock enforced" in sandbox:
        secret = tmp_path / "secret"
        secret.write_text("canary")
        for tool in ("read", "write"):
            for path in (str(secret), "/etc/shadow", "../../etc/shadow"):
                refused = call(programs, tool, {"x": path})
                assert refused.status == 422 and "ermission" in refused.json["detail"], refused
        assert secret.read_text() == "canary"
    assert call(programs, "write", {"x": "own.txt"}).status == 200, "its own folder is its own"


def test_limits_end_a_program_and_all_that_it_started(programs):
    assert "2000 bytes" in call(programs, "flood", {"x": ""}).json["detail"]
    hog = call(programs, "hog", {"x": ""})
    assert hog.status == 422 and "MemoryError" in hog.json["detail"], hog
    mark = f"{time.time():.6f}".replace(".", "7")[-9:]
    slow = call(programs, "sleep", {"x": mark})
    assert slow.status == 422 and slow.json["code"] == "tool_timed_out", slow
    left = lambda: subprocess.run(["pgrep", "-f", f"sleep {mark}"], capture_output=True).returncode != 0
    wait_for(left, 10, "every process of the tool to be gone")
