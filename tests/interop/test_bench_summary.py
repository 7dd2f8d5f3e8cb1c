"""`./x bench all` sums up the figures of every part; here with figures as the parts write them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/bench"))

import every  # noqa: E402
import measure  # noqa: E402

WHERE = {"cores": 2, "cpu": "a processor", "load": 0.1}
OURS = {"rows": [{"what": "hop", "unit": "ms", "riverrun": "0.30 / 0.50", "peer": "0.10 / 0.25", "peer_name": "Redis Streams"},
                 {"what": "records", "unit": "1/s", "riverrun": "85,875", "peer": None, "peer_name": "none installed"}]}
FIGURES = {
    "turns": OURS, "build": OURS, "knowledge": OURS, "models": OURS,
    "broker": {"rows": [["produce, 1 KB", "riverrun", "records/s", "200,000"], ["produce, 1 KB", "Kafka", "records/s", "400,000"],
                        ["produce, 1 KB", "riverrun", "MB/s", "200.0"], ["bare append + fdatasync, p50 / p99", "-", "ms", "0.12 / 0.20"]]},
    "finetune": [{"method": "dpo", "step_s": [4.0, 2.0], "peak_mib": [900.0, 1800.0], "to_first_step_s": [1.0, 4.0], "last_loss": [0.5, 0.5]}],
    "projects": {"rows": {"import": 1.0, "deterministic": 0.2, "alone": 0.5, "whole": 9.0, "ruff by hand": 0.1, "mypy by hand": 9.9,
                          "ruff + mypy by hand, one after the other": 10.0}},
    "agents": {"model": "m", "outcomes": [{"agent": "react", "done": True}, {"agent": "react", "done": False}]},
}


def row(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


def test_every_part_is_in_the_table_with_the_ratio_of_ours_to_theirs():
    assert set(FIGURES) == set(every.PARTS) == set(every.QUICK) == set(every.READERS)
    text = every.summary(FIGURES, {}, WHERE)
    assert row(text, "| turns | hop").endswith("| 0.30 / 0.50 | 0.10 / 0.25 | Redis Streams | 3.00 / 2.00 |")
    assert row(text, "| turns | records").endswith("| 85,875 | not measured | none installed | – |")
    assert row(text, "| broker | produce, 1 KB | records/s").endswith("| 200,000 | 400,000 | Kafka | 0.50 |")
    assert "| broker | produce, 1 KB | MB/s | 200.0 | not measured |" in text
    assert row(text, "| finetune | dpo: a step").endswith("| PyTorch + PEFT | 2.00 |")
    assert row(text, "| projects | request to report").endswith("| 0.05 |")
    assert "| agents | tasks done by react, of 2 | tasks | 1 |" in text


def test_a_part_that_failed_is_named_with_the_reason_and_the_others_stand():
    why = every.reason(1, "==> installing\n\x1b[1merror: torch is not to be had\x1b[0m\n\nhint: a mirror\n")
    assert why == "ended with 1: error: torch is not to be had"
    text = every.summary({"turns": OURS}, {"finetune": why}, WHERE)
    assert "| turns | hop" in text and text.rstrip().endswith("- finetune: ended with 1: error: torch is not to be had")


@pytest.mark.parametrize(("ours", "theirs", "expected"), [
    ("1,155", "65", "17.77"), (2, 0, "–"), ("-", "3", "–"), ("1 / 2", "1", "–"), (None, 1.0, "–")])
def test_a_ratio_is_of_numbers_only(ours, theirs, expected):
    assert every.ratio(ours, theirs) == expected


@pytest.mark.parametrize(("begin", "end", "expected"), [(0, 0.1, [0.2, 20.0]), (0.9, 1, [0.4, 20.0]), (0, 1, [3.0, 200.0])])
def test_what_a_part_of_a_long_run_took_is_read_between_the_samples_beside_it(begin, end, expected):
    samples = [(0, 0.0, 0), (0, 0.0, 0), (50, 1.0, 100), (100, 3.0, 200)]
    assert measure.window(samples, begin, end) == pytest.approx(expected)
