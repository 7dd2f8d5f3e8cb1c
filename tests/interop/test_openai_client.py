"""OpenAI's own clients against `/v1`, unchanged, in Python and in JavaScript: models, agents, streams, tools, vectors, errors."""

import json
import shutil
import subprocess
from pathlib import Path

import openai
import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60)


def say(text):
    return [{"role": "user", "content": text}]


def test_models_and_agents_are_listed(client):
    names = [model.id for model in client.models.list()]
    assert "agent/react" in names and "agent/auto" in names and "ollama/stub" in names, names
    assert client.models.retrieve("agent/react").owned_by == "riverrun"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


def test_a_chat_answers_whole_and_streamed(client):
    whole = client.chat.completions.create(model="default", messages=say("hello"), temperature=0, max_tokens=20)
    assert whole.object == "chat.completion" and whole.choices[0].finish_reason == "stop"
    assert whole.choices[0].message.content == "It is as the handbook says [1]."
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (10, 5, 15)
    chunks = list(client.chat.completions.create(
        model="ollama/stub", messages=say("hello"), stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    # The client's helpers join the texts of a field: a role in every chunk would be "assistantassistant".
    assert [role for chunk in chunks if chunk.choices and (role := chunk.choices[0].delta.role)] == ["assistant"]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens == 15 and len({chunk.id for chunk in chunks}) == 1


TOOL = {"type": "function", "function": {"name": "calculator", "description": "calculates", "parameters": {
    "type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}


def test_tools_are_called_and_their_results_read(client):
    messages = say("[[steps=1 id=openai-tools]] go")
    first = client.chat.completions.create(model="default", messages=messages, tools=[TOOL])
    assert first.choices[0].finish_reason == "tool_calls"
    call = first.choices[0].message.tool_calls[0]
    assert call.function.name == "calculator" and json.loads(call.function.arguments) == {"expression": "0 + 1"}
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "1"}]
    last = client.chat.completions.create(model="default", messages=messages, tools=[TOOL])
    assert last.choices[0].message.content == "done after 1 steps"
    streamed = list(client.chat.completions.create(
        model="default", messages=say("[[steps=1 id=openai-streamed]] go"), tools=[TOOL], stream=True))
    calls = [call for chunk in streamed for call in chunk.choices[0].delta.tool_calls or []]
    assert [call.function.name for call in calls] == ["calculator"]


def test_an_answer_can_have_a_schema(client):
    schema = {"type": "json_schema", "json_schema": {"name": "action", "schema": {"type": "object"}}}
    done = client.chat.completions.create(model="default", messages=say("x"), response_format=schema)
    assert json.loads(done.choices[0].message.content)["tool"] == "answer"


def test_an_agent_is_a_run_on_the_log(client, server):
    task = "[[steps=2 id=openai-agent]] count"
    done = client.chat.completions.create(model="agent/react", messages=say(task))
    assert done.choices[0].message.content and done.usage.total_tokens > 0
    run_id = done.choices[0].message.model_extra["run_id"]
    run = server.get(f"/runs/{run_id}").json
    assert run["status"] == "succeeded" and run["answer"] == done.choices[0].message.content and run["task"] == task
    chunks = list(client.chat.completions.create(
        model="agent/react", messages=say("[[steps=2 id=openai-agent-streamed]] count"), stream=True))
    thoughts = [text for chunk in chunks if (text := (chunk.choices[0].delta.model_extra or {}).get("reasoning_content"))]
    assert any("[tool_call] calculator" in thought for thought in thoughts), thoughts
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_vectors_are_the_same_in_both_encodings(client):
    # The client asks for base64 unless it is told otherwise.
    encoded = client.embeddings.create(model="default", input=["a river", "a log"])
    plain = client.embeddings.create(model="default", input=["a river", "a log"], encoding_format="float")
    assert [item.index for item in encoded.data] == [0, 1] and len(encoded.data[0].embedding) == 384
    for one, other in zip(encoded.data, plain.data):
        assert max(abs(a - b) for a, b in zip(one.embedding, other.embedding)) < 1e-6
    assert encoded.usage.total_tokens > 0


def test_errors_are_those_that_the_client_knows(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="default", messages=say("x"), n=2)
    assert refused.value.param == "n" and refused.value.code == "invalid_request"
    for name, value in {"logprobs": True, "top_logprobs": 2, "logit_bias": {"1": -100}, "presence_penalty": 3, "reasoning_effort": "much"}.items():
        for model in ("default", "agent/react"):
            with pytest.raises(openai.BadRequestError) as refused:
                client.chat.completions.create(model=model, messages=say("x"), **{name: value})
            assert refused.value.param == name and name in refused.value.message, refused.value
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="agent/react", messages=say("x"), frequency_penalty=1)
    assert refused.value.param == "frequency_penalty"
    penalties = {"frequency_penalty": 0.5, "presence_penalty": -0.5}
    assert client.chat.completions.create(model="default", messages=say("hello"), **penalties).choices[0].message.content
    defaults = {"n": 1, "logprobs": False, "logit_bias": {}, "presence_penalty": 0, "user": "ann", "store": False}
    assert client.chat.completions.create(model="default", messages=say("hello"), **defaults).choices[0].message.content
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="agent/nobody", messages=say("x"))
    with pytest.raises(openai.NotFoundError) as missing:
        client.embeddings.create(model="nobody-has-this", input="x")
    assert missing.value.code == "model_not_found" and "riverrun models pull" in missing.value.message
    with pytest.raises(openai.BadRequestError) as empty:
        client.chat.completions.create(model="default", messages=[])
    assert empty.value.param == "messages"


def test_a_token_is_what_the_client_sends_as_its_key(new_server):
    import hashlib
    token = "canary-token"
    guarded = new_server("guarded", RIVERRUN_API_TOKENS=f"ann:{hashlib.sha256(token.encode()).hexdigest()}").start()
    with pytest.raises(openai.AuthenticationError) as refused:
        openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong", max_retries=0).models.list()
    assert refused.value.type == "authentication_error"
    assert list(openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=token, max_retries=0).models.list())


@pytest.fixture(scope="module")
def javascript(tmp_path_factory):
    if not shutil.which("npm"):
        pytest.skip("npm is not there")
    folder = tmp_path_factory.mktemp("openaijs")
    for name in ("package.json", "client.mjs"):
        shutil.copy(HERE / "openaijs" / name, folder)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True, timeout=300)
    return folder / "client.mjs"


def test_a_javascript_program_does_what_a_python_one_does(server, javascript):
    done = subprocess.run(["node", javascript, f"{server.url}/v1"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert {"agent/react", "agent/auto", "ollama/stub"} <= set(seen["models"])
    assert seen["whole"] == ["It is as the handbook says [1].", "stop", 15] and seen["streamed"] == [seen["whole"][0], 15]
    assert seen["tools"] == ["calculator", {"expression": "0 + 1"}, "done after 1 steps"]
    thoughts, answer = seen["agent"]
    assert "[tool_call] calculator" in thoughts and answer
    assert seen["embedded"] == [384, 384]
    assert seen["refused"] == [True, "n", "invalid_request"] and seen["missing"] == [True, "model_not_found"]
