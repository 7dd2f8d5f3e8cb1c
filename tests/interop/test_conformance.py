"""The contract, line by line: every route, command, option, setting, rule, error and state is asked of the built binary, and
docs/conformance.md is the table of what was sent and what came back."""

import importlib
import os

import pytest

for part in ("exchange", "world", "routes", "routes_fields", "commands", "flags", "settings", "rules", "rules_work", "rules_form", "rules_keys", "rules_access",
             "errors", "errors_wire", "states"):
    pytest.register_assert_rewrite(f"conformance.{part}")
    importlib.import_module(f"conformance.{part}")

from conformance import beyond, contract, page, surface  # noqa: E402 behind what makes their asserts speak
from conformance.core import CHECKS, told_by  # noqa: E402
from conformance.exchange import plain  # noqa: E402
from conformance.world import World  # noqa: E402
from server import ROOT  # noqa: E402

WRITES = os.environ.get("RIVERRUN_WRITE_CONFORMANCE") == "1"
COVERED = {item for check in CHECKS.values() for item in check.covers}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("conformance"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def told():
    """What the checks of this run told, by their ids."""
    return {}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_it_is_as_promised(world, told, check):
    told[check.id] = told_by(check, world, plain)


def test_the_page_has_every_check_with_its_rule(told):
    if WRITES:
        missing = set(CHECKS) - set(told)
        assert not missing, f"not written: these told nothing in this run: {sorted(missing)}"
        page.PAGE.write_text(page.render(told), encoding="utf-8")
    found, wanted = page.promises(page.PAGE.read_text(encoding="utf-8")), page.promises(page.render({}))
    assert found == wanted, "docs/conformance.md is not of these checks: RIVERRUN_WRITE_CONFORMANCE=1 ./x interop -k test_conformance"


def test_every_promise_has_its_check():
    lacking = [item for item in contract.items() if item not in COVERED]
    lacking += [promise for promise in contract.PROMISES if promise not in CHECKS and promise not in contract.ELSEWHERE]
    assert not lacking, f"no check is there for {lacking}"
    unknown = set(contract.ELSEWHERE) - set(contract.PROMISES)
    assert not unknown and not set(contract.ELSEWHERE) & set(CHECKS), unknown
    for place, test in (shown.split("::") for _, shown in contract.ELSEWHERE.values()):
        assert f"def {test}(" in (ROOT / "tests/interop" / place).read_text(), f"{place} has no {test}"


def test_every_operation_has_a_check_or_a_reason(world):
    there, besides = surface.operations(world.main.server.get("/openapi.json").json), beyond.listed(beyond.ROUTES)
    checked = {item for item in COVERED if item.split()[0] in ("GET", "POST", "PUT", "PATCH", "DELETE")}
    assert not there - checked - besides, "neither checked nor in beyond.py"
    assert not besides - there and not besides & checked, "beyond.py lists what is not there, or what is checked"


def test_every_command_and_option_has_a_check_or_a_reason(world):
    there = surface.commands(world.main.server.cli)
    besides, flags = beyond.listed(beyond.COMMANDS), beyond.listed(beyond.FLAGS)
    assert not set(there) - COVERED - besides, "neither checked nor in beyond.py"
    assert not besides - set(there) and not besides & COVERED, "beyond.py lists what is not there, or what is checked"
    spellings = {command: [{f"{command} {name}" for name in option} for option in options] for command, options in there.items() if command not in besides}
    bare = [sorted(option) for options in spellings.values() for option in options if not option & (COVERED | flags)]
    assert not bare, f"neither checked nor in beyond.py: {bare}"
    known = {name for options in spellings.values() for option in options for name in option}
    assert not flags - known, f"beyond.py lists options that are not there: {sorted(flags - known)}"
    twice = [name for name in flags if any(name in option and option & COVERED for options in spellings.values() for option in options)]
    assert not twice, f"beyond.py lists options that are checked: {sorted(twice)}"
