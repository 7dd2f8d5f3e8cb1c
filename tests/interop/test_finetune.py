"""Fine-tuning as its users meet it: datasets that are refused, methods that need a GPU, and, where the small model is on this
machine, a training that is killed and goes on to a version that chats."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from server import BINARY, wait_for

ROOT = Path(__file__).resolve().parents[2]
BASE = "smollm2-135m-instruct"
ENCODER = "all-minilm-l6-v2"
CITIES = ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Delhi", "Quito", "Accra", "Hanoi", "Kyiv", "Seoul", "Sofia"]


def lines():
    return "".join(json.dumps({"prompt": f"Name a city: {city}", "completion": f"CITY={city};"}) + "\n" for city in CITIES)


def has_base(server, name=BASE):
    listed = server.get("/models?provider=local").json["items"]
    return any(model["name"] == name and model["present"] for model in listed)


@pytest.fixture
def tuning(new_server, tmp_path):
    """The base is only read; what comes out goes to a folder of the test's own."""
    models = os.environ.get("RIVERRUN_MODELS_DIR") or str(Path.home() / ".cache/riverrun/models")
    return new_server(RIVERRUN_MODELS_DIR=models, RIVERRUN_MODELS_CACHE_DIR=str(tmp_path / "models")).start()


def hand_in(server, text, name="cities", *more):
    path = server.folder / f"{name}.jsonl"
    path.write_text(text, encoding="utf-8")
    return server.cli("finetune", "dataset", name, "--jsonl", str(path), *more)


def test_a_dataset_is_taken_wholly_or_not_at_all(tuning):
    done = hand_in(tuning, lines() + '{"prompt": "x"}\nnot json\n', "broken")
    assert done.returncode == 4 and "line 13.completion" in done.stderr, done
    assert tuning.get("/finetune/datasets/broken").status == 404
    done = hand_in(tuning, "\ufeff" + lines().replace("\n", "\r\n") + lines())
    assert done.returncode == 0, done
    view = tuning.get("/finetune/datasets/cities").json
    assert (view["examples"], view["eval_examples"], view["duplicates"]) == (12, 1, 12)
    assert [item["name"] for item in tuning.get("/finetune/datasets").json["items"]] == ["cities"]


@pytest.mark.parametrize("method", ["qlora", "rlhf"])
def test_what_needs_a_gpu_is_refused_before_a_job_exists(tuning, method):
    answer = tuning.post("/finetune/jobs", {"name": "x", "dataset": "nothing", "method": method})
    assert (answer.status, answer.json["code"]) == (422, "cuda_required")
    done = tuning.cli("finetune", "train", "--dataset", "nothing", "--name", "x", "--method", method)
    assert done.returncode == 4 and "CUDA GPU is required" in done.stderr, done
    assert tuning.get("/finetune/jobs").json["items"] == []


def test_rouge_is_measured_without_a_server(tuning, tmp_path):
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"prediction": "the cat sat", "reference": "the cat"}\n{"prediction": "x", "reference": "?"}\n')
    done = tuning.cli("finetune", "eval", str(samples), "--metrics", "rouge", "--json")
    report = json.loads(done.stdout)["rouge"]
    assert report["samples"] == 2 and len(report["unscored"]) == 1
    assert abs(report["scores"][0]["fmeasure"] - 0.8) < 1e-9


def test_words_count_by_their_stems_where_that_is_asked_for(tuning, tmp_path):
    samples = tmp_path / "samples.jsonl"
    samples.write_text(json.dumps({"prediction": "Launches\nagreed upon", "reference": "agreeing upon\nlaunching"}) + "\n")
    plain, stemmed = (json.loads(tuning.cli("finetune", "eval", str(samples), "--each", "--json", *more).stdout)["rouge"] for more in ([], ["--stem"]))
    scores = {score["metric"]: score["fmeasure"] for score in stemmed["scores"]}
    assert list(scores) == ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    assert plain["scores"][0]["fmeasure"] < 0.5 < scores["rouge1"] == scores["rougeLsum"] == 1, stemmed
    assert [(one["line"], one["metric"]) for one in stemmed["each"]] == [(1, name) for name in scores]
    done = tuning.cli("finetune", "eval", str(samples), "--metrics", "bleu")
    assert done.returncode == 2 and "bertscore" in done.stderr, done


def test_meaning_is_measured_by_an_encoder(tuning, tmp_path):
    if not has_base(tuning, ENCODER):
        pytest.skip(f"{ENCODER} is not on this machine; ./x models puts it there")
    samples, baseline = tmp_path / "samples.jsonl", tmp_path / "baseline.csv"
    lines = [("The cat sat on the mat.", "The cat sat on the mat."), ("A feline rested on the rug.", "The cat sat on the mat."),
             ("Interest rates rose again.", "The cat sat on the mat."), ("", "The cat sat on the mat."), ("A word.", " ")]
    samples.write_text("".join(json.dumps({"prediction": ours, "reference": theirs}) + "\n" for ours, theirs in lines))
    baseline.write_text("LAYER,P,R,F\n5,0.5,0.5,0.5\n")

    def measure(*more):
        done = tuning.cli("finetune", "eval", str(samples), "--metrics", "bertscore", "--encoder", ENCODER, "--each", "--json", *more)
        return done, json.loads(done.stdout)["bertscore"] if done.returncode == 0 else None

    done, report = measure()
    assert done.returncode == 0, done
    assert (report["encoder"], report["layer"], report["samples"]) == (ENCODER, 4, 5)
    assert [one["line"] for one in report["unscored"]] == [5]
    same, near, far, empty = (one["fmeasure"] for one in report["each"])
    assert abs(same - 1) < 1e-4 and same > near > far > empty == 0, report
    plain, rescaled, rare = (measure("--layer", "5", *more)[1] for more in ([], ["--baseline", str(baseline)], ["--idf"]))
    one, other = plain["each"][1]["precision"], rescaled["each"][1]["precision"]
    assert abs(other - (one - 0.5) / 0.5) < 1e-6 and rescaled["rescaled"] and rare["idf"]
    for more in (["--layer", "99"], ["--baseline", str(baseline)], ["--encoder", "no-such-encoder"]):
        done, _ = measure(*more)
        assert done.returncode != 0 and done.stderr.strip() and "panicked" not in done.stderr, done


DATA = ROOT / "training/tests/data"


@pytest.mark.parametrize("kind, options", [("usual", []), ("idf", ["--idf"]), ("layer 2", ["--layer", "2"])])
def test_meaning_is_measured_as_the_package_bert_score_does_it(tuning, kind, options):
    """A hundred samples, one by one, beside what scripts/bench/finetune_reference.py --write-bertscore has written down."""
    if not has_base(tuning, ENCODER):
        pytest.skip(f"{ENCODER} is not on this machine; ./x models puts it there")
    wanted = [json.loads(line)[kind] for line in (DATA / "bertscore.jsonl").read_text().splitlines()]
    done = tuning.cli("finetune", "eval", str(DATA / "texts.jsonl"), "--metrics", "bertscore", "--encoder", ENCODER, "--each", "--json", *options)
    assert done.returncode == 0, done
    report = json.loads(done.stdout)["bertscore"]
    assert (report["samples"], report["unscored"], report["truncated"]) == (100, [], 0)
    found = {one["line"]: [one["precision"], one["recall"], one["fmeasure"]] for one in report["each"]}
    assert sorted(found) == list(range(1, 101)) and len(wanted) == 100
    apart = {line: (found[line], numbers) for line, numbers in enumerate(wanted, 1)
             if not max(abs(ours - theirs) for ours, theirs in zip(found[line], numbers)) <= 1e-4}
    assert not apart, f"ours and the package's, by line: {apart}"


def test_a_judge_that_can_not_be_read_leaves_samples_unscored(tuning, tmp_path):
    if not has_base(tuning):
        pytest.skip(f"{BASE} is not on this machine; ./x models puts it there")
    samples = tmp_path / "samples.jsonl"
    samples.write_text(json.dumps({"question": "What is the fee?", "answer": "It is 7.50.", "contexts": ["A winch launch costs 7.50."]}) + "\n")
    done = tuning.cli("finetune", "eval", str(samples), "--metrics", "ragas", "--json")
    assert done.returncode == 0, done
    report = json.loads(done.stdout)["ragas"]
    assert report["samples"] == 1 and len(report["scores"]) == 4
    told = {one["metric"] for one in report["unscored"]}
    assert {"context_precision", "context_recall"} <= told, "both need a reference"
    assert all(score["scored"] + (score["metric"] in told) == 1 for score in report["scores"])


def ended(server, job_id):
    def look():
        view = server.get(f"/finetune/jobs/{job_id}")
        return view.json if view.status == 200 and view.json["status"] not in ("queued", "running") else None

    return wait_for(look, 600, "the training to end", every_s=0.5)


def test_a_training_that_is_killed_goes_on_and_its_model_chats(tuning):
    if not has_base(tuning):
        pytest.skip(f"{BASE} is not on this machine; ./x models puts it there")
    assert hand_in(tuning, lines()).returncode == 0
    body = {"name": "cities", "dataset": "cities", "base_model": BASE, "max_steps": 40, "batch_size": 2, "seq_len": 96, "learning_rate": 1e-3}
    estimate = tuning.post("/finetune/estimate", body).json
    assert estimate["fits"] and estimate["seconds"] > 0 and estimate["memory_bytes"] > 500e6, estimate
    accepted = tuning.post("/finetune/jobs", body, headers={"Idempotency-Key": "one"})
    assert accepted.status == 202, accepted
    job_id = accepted.json["job_id"]
    assert tuning.post("/finetune/jobs", body, headers={"Idempotency-Key": "one"}).json["job_id"] == job_id
    wait_for(lambda: tuning.get(f"/finetune/jobs/{job_id}").json["step"] >= 27, 600, "27 steps")
    before = tuning.get(f"/finetune/jobs/{job_id}").json["loss"]
    tuning.kill()
    tuning.start()
    job = ended(tuning, job_id)
    assert job["status"] == "succeeded" and job["step"] == 40 and job["model"] == "cities@1", job
    assert job["loss"] < before + 1
    version = tuning.get("/finetune/registry").json["items"][0]
    assert version["metrics"]["eval_loss"] < version["metrics"]["eval_loss_base"], version
    assert version["metrics"]["parity_max_difference"] <= 0.05, version
    answer = tuning.post("/chat", {"provider": "local", "model": version["chat_model"], "stream": False, "temperature": 0, "max_tokens": 20,
                                   "messages": [{"role": "user", "content": "Name a city: Vienna"}]})
    assert answer.status == 200 and "CITY=" in json.dumps(answer.json), answer
    # An agent is answered by it too; whether so small a model keeps to the agent's format is its own matter.
    run_id = tuning.start_run("Name a city: Vienna", provider="local", model=version["chat_model"], temperature=0, max_iters=2, tools=[])
    tuning.run_end(run_id, 300)
    sums = {item["key"]: item for item in tuning.get("/usage?by=model").json["items"]}
    own = sums[f"local/{version['chat_model']}"]
    assert own["runs"] == 1 and own["usage"]["completion_tokens"] > 0, sums
    folder = tuning.folder / "adapter"
    done = tuning.cli("finetune", "export", "cities@1", "--to", str(folder))
    assert done.returncode == 0 and json.loads((folder / "adapter_config.json").read_text())["peft_type"] == "LORA"
    assert not (folder / "model.gguf").exists(), done
    done = tuning.cli("finetune", "export", "cities@1", "--to", str(folder), "--merged")
    kept = Path(tuning.env["RIVERRUN_MODELS_CACHE_DIR"]) / "cities@1" / "model.gguf"
    assert done.returncode == 0 and (folder / "model.gguf").read_bytes() == kept.read_bytes(), done
    kept.unlink()
    done = tuning.cli("finetune", "export", "cities@1", "--to", str(folder), "--merged")
    assert done.returncode != 0 and "RIVERRUN_MODELS_CACHE_DIR" in done.stderr, done


def test_a_cancelled_training_registers_nothing(tuning):
    if not has_base(tuning):
        pytest.skip(f"{BASE} is not on this machine; ./x models puts it there")
    assert hand_in(tuning, lines()).returncode == 0
    body = {"name": "never", "dataset": "cities", "base_model": BASE, "max_steps": 5000, "batch_size": 2, "seq_len": 96}
    job_id = tuning.post("/finetune/jobs", body).json["job_id"]
    wait_for(lambda: tuning.get(f"/finetune/jobs/{job_id}").json["step"] >= 1, 600, "a step")
    assert tuning.post(f"/finetune/jobs/{job_id}/cancel", {}).status == 202
    assert ended(tuning, job_id)["status"] == "cancelled"
    assert tuning.get("/finetune/registry").json["items"] == []
    assert tuning.post(f"/finetune/jobs/{job_id}/cancel", {}).status == 409


def test_the_example_runs(tuning):
    if not has_base(tuning):
        pytest.skip(f"{BASE} is not on this machine; ./x models puts it there")
    done = subprocess.run([ROOT / "examples/finetune.sh"], env=os.environ | tuning.env | {"RIVERRUN": str(BINARY), "STEPS": "4"},
                          capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and "cities@1" in done.stdout, done
