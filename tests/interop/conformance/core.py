"""What a check is, and the one list of them."""

import re
from collections.abc import Callable
from dataclasses import dataclass

CHECKS = {}
ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)+")


@dataclass(frozen=True)
class Told:
    """What was sent and what came back, each in a line."""

    sent: str
    came: str


class Difference(AssertionError):
    """The product answers, and not as promised. What it told instead is kept."""

    def __init__(self, told):
        super().__init__(str(told))
        self.told = told


def promised(holds, *told):
    """What was told, where it is as promised."""
    if not holds:
        raise Difference(list(told))
    return list(told)


@dataclass(frozen=True)
class Check:
    id: str
    rule: str
    group: str
    # What it exercises of the surface: "GET /health", "WS /ws/agent", "ingest", "ingest --table", "RIVERRUN_API_PORT".
    covers: frozenset
    # How the product is known to differ from the rule: then the check must come to a `Difference`, and the page says so.
    differs: str | None
    act: Callable


class Group:
    """A kind of promise: a heading of the page."""

    def __init__(self, title):
        self.title = title

    def check(self, id, rule, *covers, differs=None):
        """Makes the function below it a check. It takes the world and gives one `Told` or a list of them."""
        assert ID.fullmatch(id), f"{id!r} is no id of a check"
        assert id not in CHECKS, f"two checks are called {id}"

        def register(act):
            CHECKS[id] = Check(id, rule, self.title, frozenset(covers), differs, act)
            return act

        return register


def told_by(check, world, plain):
    """Runs a check: what it told, as one `Told`; what is the same in all but ids stands there once."""
    try:
        found = check.act(world)
        assert check.differs is None, f"{check.id} is as promised: it differs no more"
    except Difference as difference:
        if check.differs is None:
            raise
        found = difference.told
    parts = found if isinstance(found, list) else [found]
    assert parts and all(isinstance(part, Told) for part in parts), f"{check.id} tells nothing"
    pairs = list(dict.fromkeys((plain(part.sent), plain(part.came)) for part in parts))
    return Told("; ".join(sent for sent, _ in pairs), "; ".join(came for _, came in pairs))
