"""Several chats at once with a real model in the process."""

import concurrent.futures

import pytest

from server import Server


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("parallel"),
                     {"RIVERRUN_MODEL_PARALLEL": "2", "RIVERRUN_MODEL_CONTEXT_TOKENS": "1024"}).start()
    yield running
    assert running.stop() == 0, running.log_tail()


def ask(server, text):
    body = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": text}], "max_tokens": 16, "temperature": 0}
    return server.post("/v1/chat/completions", body)


def test_more_chats_than_places_are_all_answered(local):
    texts = [f"Name {number} colours." for number in range(2, 7)]
    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        replies = list(pool.map(lambda text: ask(local, text), texts))
    for reply in replies:
        assert reply.status == 200, reply
        assert reply.json["choices"][0]["message"]["content"].strip(), reply
        assert 1 <= reply.json["usage"]["completion_tokens"] <= 16, reply


def test_an_impossible_number_of_places_is_refused_by_name(local):
    for value in ("0", "65", "many"):
        done = local.cli("models", RIVERRUN_MODEL_PARALLEL=value, RIVERRUN_DATA_DIR=str(local.folder / "other"))
        assert done.returncode != 0 and "RIVERRUN_MODEL_PARALLEL" in done.stderr, (value, done)
