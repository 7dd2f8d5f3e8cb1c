"""Chunks counted in tokens, embedded within their document, and embedded anew with another model: real models, no server."""

import json
import os
import subprocess

import pytest

from server import BINARY, ROOT, Server

HANDBOOK = ROOT / "examples/handbook"
OTHER = "all-mpnet-base-v2"  # the server's own is the small one


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return Server(tmp_path_factory.mktemp("embedding"))


def asked(alone, *arguments, **settings):
    done = alone.cli(*arguments, "--json", **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def best(alone, collection, **settings):
    return asked(alone, "search", "what does a winch launch cost", "-c", collection, "-k", "3", **settings)


def test_sizes_in_tokens_are_kept_and_too_large_ones_refused(alone):
    done = asked(alone, "ingest", str(HANDBOOK), "-c", "tokens", "--chunk-unit", "tokens", "--chunk-size", "60")
    assert done["failed"] == 0 and done["indexed"] > 0, done
    assert any(item["source"].endswith("charges.md") for item in best(alone, "tokens")["items"])
    again = asked(alone, "ingest", str(HANDBOOK), "-c", "tokens", "--chunk-unit", "tokens", "--chunk-size", "60")
    assert again["unchanged"] == done["indexed"], again
    large = alone.cli("ingest", str(HANDBOOK), "-c", "large", "--chunk-unit", "tokens", "--chunk-size", "2999")
    assert large.returncode == 1 and "chunks of 2999 tokens are asked for" in large.stderr and "--chunk-size" in large.stderr, large.stderr
    for field, *arguments in (("chunk_size", "--chunk-size", "0"), ("chunk_overlap", "--chunk-size", "10", "--chunk-overlap", "10"), ("chunk_unit", "--chunk-unit", "lines")):
        refused = alone.cli("ingest", str(HANDBOOK), "-c", "bad", *arguments)
        assert refused.returncode == 4 and refused.stderr.startswith(f"error: {field}: "), refused.stderr


def test_late_chunks_are_found_and_cite_their_bytes(alone):
    done = asked(alone, "ingest", str(HANDBOOK), "-c", "late", "--strategy", "late", "--embed-backend", "hf")
    assert done["failed"] == 0, done
    items = best(alone, "late")["items"]
    assert any(item["source"].endswith("charges.md") for item in items), items
    for item in items:
        start, end = item["span"]["start"], item["span"]["end"]
        assert (HANDBOOK / item["source"].rsplit("/", 1)[-1]).read_bytes()[start:end].decode() == item["text"]


def test_a_collection_goes_over_to_another_model(alone):
    done = asked(alone, "ingest", str(HANDBOOK), "-c", "anew")
    before = best(alone, "anew")["items"]
    other = alone.cli("ingest", str(HANDBOOK), "-c", "anew", RIVERRUN_DEFAULT_EMBED_MODEL=OTHER)
    assert other.returncode == 4 and f"riverrun collections reembed anew -n default --model {OTHER}" in other.stderr, other.stderr
    view = asked(alone, "collections", "reembed", "anew", "--model", OTHER)
    assert (view["status"], view["embed_model"], view["dimensions"], view["chunks"]) == ("done", OTHER, 768, done["chunks"]), view
    after = best(alone, "anew")["items"]
    assert {item["chunk_id"] for item in after} & {item["chunk_id"] for item in before}, (before, after)
    # With the new model the same sources are no work: chunks do not follow from the model.
    again = asked(alone, "ingest", str(HANDBOOK), "-c", "anew", RIVERRUN_DEFAULT_EMBED_MODEL=OTHER)
    assert again["unchanged"] == done["indexed"], again
    assert alone.cli("collections", "check", "anew").returncode == 0
    nothing = alone.cli("collections", "reembed", "anew", "--model", OTHER)
    assert nothing.returncode == 4 and "already" in nothing.stderr, nothing.stderr


def test_the_example_runs(tmp_path):
    place = Server(tmp_path)
    program = tmp_path / "bin"
    program.mkdir()
    (program / "riverrun").symlink_to(BINARY)
    done = subprocess.run([ROOT / "examples/reembed.sh"], cwd=tmp_path, env=place.env | {"RIVERRUN_DEFAULT_EMBED_MODEL": OTHER, "PATH": f"{program}:{os.environ['PATH']}"},
                          capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("charges.md") >= 1, done.stdout
