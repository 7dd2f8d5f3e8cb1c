"""What `./x fuzz` takes for a failure, of reports that are written down here; and that its page names the targets that there are."""

import json
import re
import sys

import pytest

from server import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import fuzz_report  # noqa: E402


def left(folder, name, inputs=50_000, failures=()):
    report = {"target": name, "inputs": inputs, "seconds": 1, "slowest_ms": 1, "seed": 1, "failures": list(failures)}
    (folder / f"{name}.json").write_text(json.dumps(report))


@pytest.mark.parametrize(("inputs", "failures", "wanted", "expected"), [
    (50_000, [], {"tables"}, 0), (49_999, [], {"tables"}, 1), (50_000, [7], {"tables"}, 1), (50_000, [], {"tables", "archives"}, 1),
])
def test_given_reports_when_they_are_read_then_each_target_has_to_be_there_whole(tmp_path, inputs, failures, wanted, expected):
    left(tmp_path, "tables", inputs, failures)
    assert fuzz_report.main(tmp_path, 50_000, wanted) == expected


def test_given_a_target_that_ended_its_process_when_reports_are_read_then_it_is_told(tmp_path, capsys):
    left(tmp_path, "tables")
    (tmp_path / "archives.now").write_text("431")
    assert fuzz_report.main(tmp_path) == 1 and "RIVERRUN_FUZZ_ONLY=431" in capsys.readouterr().out


def test_the_page_names_the_targets_that_there_are():
    sources = [text for path in ROOT.glob("*/src/**/*.rs") if "fuzz_tests" in path.as_posix() + (text := path.read_text())]
    named = fuzz_report.listed(ROOT / "fuzz/README.md")
    targets = {name for text in sources for name in re.findall(r'Target {\s*name: "([a-z_]+)"', text)}
    assert len(targets) >= 15 and targets <= named, targets - named
    missing = {name for name in named if not any(f"fn {name}_" in text for text in sources)}
    assert not missing, f"no test has the name of {missing}"
