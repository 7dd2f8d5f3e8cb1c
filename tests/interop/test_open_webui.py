"""Open WebUI, headless, in front of `/v1`, as somebody who opens its page has it: models and agents in its list, chats with the tools that it offers by
itself, titles, knowledge. Only with `--open-webui`, since it is large."""

import json
import os
import subprocess
import urllib.error
import urllib.request

import pytest

from server import free_ports, wait_for

START_TIMEOUT_S = 300
ANSWER_TIMEOUT_S = 120
MODEL = "ollama/stub"
EMBEDDING = "local/all-minilm-l6-v2"
AGENT = "agent/react"
ANSWER = "It is as the handbook says [1]."


class OpenWebui:
    """`open-webui serve` for one person, who needs no password, in a folder and on a port of its own. It asks nobody but `v1`."""

    def __init__(self, program, folder, v1):
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = folder / "open-webui.log"
        self.token, self.v1 = None, v1
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "DATA_DIR": str(folder / "data"), "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "of-a-test",
               "ENABLE_OLLAMA_API": "False", "ENABLE_OPENAI_API": "True", "OPENAI_API_BASE_URL": v1, "OPENAI_API_KEY": "unused",
               "RAG_EMBEDDING_ENGINE": "openai", "RAG_OPENAI_API_BASE_URL": v1, "RAG_OPENAI_API_KEY": "unused", "RAG_EMBEDDING_MODEL": "default",
               "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1", "ENABLE_VERSION_UPDATE_CHECK": "False", "ANONYMIZED_TELEMETRY": "False",
               "DO_NOT_TRACK": "1", "SCARF_NO_ANALYTICS": "1"}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([program, "serve", "--host", "127.0.0.1", "--port", str(port)], cwd=folder, env=env,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for(self.answers, START_TIMEOUT_S, "Open WebUI to answer", every_s=1)
            self.token = self.post("/api/v1/auths/signin", {"email": "", "password": ""})["token"]
        except BaseException:
            self.stop()
            raise

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"open-webui ended with {self.process.returncode}: {self.log_tail()}")
        try:
            return self.request("GET", "/health")
        except OSError:
            return False

    def log_tail(self):
        return self.log_path.read_text(errors="replace")[-3000:]

    def request(self, method, path, body=None):
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {self.token}"} if self.token else {})
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        with urllib.request.urlopen(asked, timeout=ANSWER_TIMEOUT_S) as answer:
            return answer.read().decode()

    def post(self, path, body):
        try:
            return json.loads(self.request("POST", path, body))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} answered {error.code}: {error.read().decode()[:1000]}; {self.log_tail()}") from error

    def get(self, path):
        return json.loads(self.request("GET", path))

    def page_chat(self, model, text, name):
        """Sends a message as the page does, which takes the answer out of the chat that is kept; gives that."""
        asked, answer = f"{name}-asked", f"{name}-answer"
        user = {"id": asked, "parentId": None, "childrenIds": [answer], "role": "user", "content": text, "timestamp": 1, "models": [model]}
        features = dict.fromkeys(["voice", "image_generation", "code_interpreter", "web_search"], False)
        chat = {"id": "", "title": "New Chat", "models": [model], "history": {"messages": {asked: user}, "currentId": asked}, "messages": [user]}
        chat_id = self.post("/api/v1/chats/new", {"chat": chat})["id"]
        self.post("/api/chat/completions", {
            "stream": True, "model": model, "messages": [{"role": "user", "content": text}], "params": {}, "features": features, "variables": {},
            "session_id": name, "chat_id": chat_id, "id": answer, "parent_id": asked, "user_message": user,
            "background_tasks": {"title_generation": True, "tags_generation": True, "follow_up_generation": True}})

        def whole():
            said = self.get(f"/api/v1/chats/{chat_id}")["chat"]["history"]["messages"].get(answer) or {}
            assert not said.get("error"), f"{said}; {self.log_tail()}"
            return said if said.get("done") and said.get("content") else None

        return wait_for(whole, ANSWER_TIMEOUT_S, f"the answer of {model} in the chat", every_s=0.5)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def webui(request, server, tmp_path_factory):
    program = request.config.getoption("--open-webui")
    if not program:
        pytest.skip("needs --open-webui")
    running = OpenWebui(program, tmp_path_factory.mktemp("open-webui"), f"{server.url}/v1")
    yield running
    running.stop()


def say(text):
    return [{"role": "user", "content": text}]


def test_models_and_agents_are_in_its_list(webui):
    listed = {model["id"]: model for model in webui.get("/api/models")["data"]}
    assert {AGENT, "agent/auto", MODEL, EMBEDDING} <= listed.keys(), sorted(listed)
    assert webui.post("/openai/verify", {"url": webui.v1, "key": "unused"})["data"], "what its settings' page asks"


@pytest.mark.parametrize(("asked", "text", "answer"), [(MODEL, "hello", ANSWER), (AGENT, "[[steps=1 id=open-webui]] count", "done after 1 steps")])
def test_a_chat_of_the_page_ends_with_an_answer_though_it_offers_tools(webui, asked, text, answer):
    said = webui.page_chat(asked, text, f"page-{asked.replace('/', '-')}")
    assert answer in said["content"], said


def test_a_chat_of_its_api_is_answered_whole_and_streamed(webui):
    whole = webui.post("/api/chat/completions", {"model": MODEL, "messages": say("hello"), "stream": False})
    assert whole["choices"][0]["message"]["content"] == ANSWER, whole
    stream = webui.request("POST", "/api/chat/completions", {"model": MODEL, "messages": say("hello"), "stream": True})
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk.get("choices")) == ANSWER, stream


@pytest.mark.parametrize("task", ["title", "tags", "queries", "follow_up", "emoji", "image_prompt"])
def test_what_it_has_written_beside_a_chat_is_written(webui, task):
    conversation = [*say("hello"), {"role": "assistant", "content": "hi"}]
    body = {"model": MODEL, "messages": conversation, "prompt": "hello", "type": "web_search", "chat_id": "a-chat"}
    assert webui.post(f"/api/v1/tasks/{task}/completions", body)["choices"][0]["message"]["content"].strip()


def test_knowledge_is_embedded_by_a_model_behind_v1(webui):
    kept = webui.post("/api/v1/retrieval/process/text", {"name": "note", "content": "Rivers run to the sea. " * 20})
    assert kept["status"] is True, kept
    vectors = webui.post("/api/embeddings", {"model": EMBEDDING, "input": ["a", "b"]})
    assert len(vectors["data"]) == 2 and vectors["data"][0]["embedding"], vectors


def test_a_server_that_refuses_says_so_in_the_chat(webui):
    body = {"model": MODEL, "messages": say("hello"), "stream": False, "logprobs": True}
    with pytest.raises(AssertionError, match="logprobs"):
        webui.post("/api/chat/completions", body)
