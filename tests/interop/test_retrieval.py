"""How good retrieval is must not get worse: a small collection with judgements of its own, by words and by both searches.

`scripts/bench/cranfield.py` measures a large one."""

import json
import pathlib
import re

import pytest

from server import ROOT, Server

HERE = pathlib.Path(__file__).parent / "retrieval"


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    place = Server(tmp_path_factory.mktemp("judged"))
    done = place.cli("ingest", str(ROOT / "examples/handbook"), "-c", "handbook", "--json")
    assert done.returncode == 0, done.stderr
    return place


def measured(place, *configs):
    words = [word for config in configs for word in ("--config", config)]
    done = place.cli("rag", "eval", "-c", "handbook", "--qrels", str(HERE / "qrels.tsv"), "--queries", str(HERE / "queries.tsv"),
                     *words, "--json")
    assert done.returncode == 0, done.stderr
    return {line["config"]: line for line in json.loads(done.stdout)["items"]}


def test_the_quality_of_retrieval_does_not_fall(judged):
    found = measured(judged, "sparse", "hybrid")
    for config, least in (("sparse", 0.85), ("hybrid", 0.85)):
        line = found[config]
        assert line["queries"] == 16 and line["ndcg_at_10"] >= least and line["recall_at_10"] >= 0.95, found


def test_files_that_match_nothing_are_told_and_not_measured(judged, tmp_path):
    qrels, queries = tmp_path / "qrels.tsv", tmp_path / "queries.tsv"
    evaluate = lambda: judged.cli("rag", "eval", "-c", "handbook", "--qrels", str(qrels), "--queries", str(queries), "--config", "sparse", "--json")
    queries.write_text("1\twhat does a winch launch cost\n2\tnobody judged this\n")
    qrels.write_text("1 charges 2\n1 nowhere 1\n9 charges 1\n")
    part = evaluate()
    assert part.returncode == 0 and json.loads(part.stdout)["unmatched"] == {"queries": 1, "judged_queries": 1, "documents": 1, "judgements": 2}, part
    assert "1 judged document is not in the collection" in part.stderr and "1 judged query is not in --queries" in part.stderr, part
    qrels.write_text("1 nowhere 1\n1 neither 1\n")
    none = evaluate()
    assert none.returncode == 4 and none.stdout == "" and "2 judged documents" in none.stderr and "hint:" in none.stderr, none
    qrels.write_text("9 charges 1\n")
    assert evaluate().returncode == 2


def test_a_collection_is_tuned_to_judgements_where_that_helps_and_says_so(judged, tmp_path):
    files = ["--qrels", str(HERE / "qrels.tsv"), "--queries", str(HERE / "queries.tsv")]
    done = judged.cli("collections", "tune", "handbook", *files, "--json")
    assert done.returncode == 0, done.stderr
    tuning = json.loads(done.stdout)
    gains = {gain["search"]: gain["ndcg_at_10_after"] - gain["ndcg_at_10_before"] for gain in tuning["gains"]}
    assert tuning["queries"] == 16 and set(gains) == {"dense", "hybrid", "scores"}, tuning
    # It is used exactly when it raises the mean.
    assert tuning["tuned"] == (sum(gains.values()) > 0), tuning
    found = judged.cli("search", "winch launch", "-c", "handbook", "--no-rerank", "--json")
    assert json.loads(found.stdout).get("tuned", False) == tuning["tuned"], found.stdout
    shown = judged.cli("collections", "tune", "handbook", *files)
    assert shown.returncode == 0 and "16 judged questions" in shown.stdout and "hybrid" in shown.stdout, shown
    off = judged.cli("collections", "tune", "handbook", "--off")
    assert off.returncode == 0 and "searched as without tuning" in off.stdout, off
    found = judged.cli("search", "winch launch", "-c", "handbook", "--no-rerank", "--json")
    assert "tuned" not in json.loads(found.stdout), found.stdout
    few = tmp_path / "few.tsv"
    few.write_text("".join((HERE / "queries.tsv").read_text().splitlines(keepends=True)[:9]))
    refused = judged.cli("collections", "tune", "handbook", "--qrels", str(HERE / "qrels.tsv"), "--queries", str(few))
    assert refused.returncode != 0 and "between 10 and 2000" in refused.stderr, refused


def test_the_command_line_has_the_options_of_a_search(judged):
    search = ("search", "winch launch", "-c", "handbook", "-k", "2", "--mode", "sparse", "--no-rerank", "--wording", "aerotow", "--context", "200")
    done = judged.cli(*search, "--json")
    assert done.returncode == 0, done.stderr
    items = json.loads(done.stdout)["items"]
    assert len(items) == 2, items
    for item in items:
        assert item["scores"]["dense"] is None and item["scores"]["sparse"] is not None, item
        assert item["text"] in item["context"]["text"] and item["context"]["span"]["start"] <= item["span"]["start"], item
    shown = judged.cli(*search)
    # Each line below the number of its result.
    lines = lambda text: "\n".join(line.strip() for line in text.strip().splitlines())
    assert shown.returncode == 0 and lines(items[0]["context"]["text"]) in lines(shown.stdout), shown.stdout
    assert all(line.startswith("   ") for line in shown.stdout.splitlines() if line.strip() and not re.match(r"\d+\. ", line)), shown.stdout
