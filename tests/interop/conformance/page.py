"""docs/conformance.md: the table of all checks, written from what a run told."""

import re

from conformance.core import CHECKS
from conformance.contract import ELSEWHERE
from server import ROOT

PAGE = ROOT / "docs/conformance.md"
CELL = 400

HEAD = """# Conformance

The contract, line by line: routes, commands, options, settings, rules, errors and states, each asked of the built binary. `tests/interop/test_conformance.py` makes this table and fails where an
id or a rule here is not that of a check; what was sent and what came back is as a run told it, with `_…`, TIME, HASH and ADDRESS for what differs from run to run.
Where the product is known to differ, the row says so, and the test fails as soon as it does no more.

```
./x interop -k test_conformance                                # ask again, and compare
RIVERRUN_WRITE_CONFORMANCE=1 ./x interop -k test_conformance   # and write this page anew
```

Servers that are asked: one with the scripted model of `tests/interop/stub_model.py` for chats and real models for vectors; one with every setting changed; one that wants tokens; one whose model
runtime is away; and none, where the command hosts everything by itself.
"""


def cell(text):
    """Text as a table takes it."""
    text = text if len(text) <= CELL else text[:CELL] + "…"
    return text.replace("|", "\\|").replace("<", "&lt;")


def code(text):
    """What was sent or came back, as code where that can be."""
    text = cell(text).replace("&lt;", "<")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def rows(group, told):
    for check in CHECKS.values():
        if check.group == group:
            rule = cell(check.rule) + (f". **Differs**: {cell(check.differs)}" if check.differs else "")
            sent, came = (code(told[check.id].sent), code(told[check.id].came)) if check.id in told else ("", "")
            yield f"| {check.id} | {rule} | {sent} | {came} |"


def render(told):
    """The page, with what each check told by its id."""
    parts = [HEAD]
    for group in dict.fromkeys(check.group for check in CHECKS.values()):
        parts.append(f"## {group}\n\n| id | rule | sent | came back |\n|---|---|---|---|\n" + "\n".join(rows(group, told)) + "\n")
    elsewhere = [f"| {id} | {cell(why)} | `tests/interop/{test}` |" for id, (why, test) in ELSEWHERE.items()]
    parts.append("## Shown elsewhere\n\nWhat needs more than a server and a command line.\n\n| id | why | shown by |\n|---|---|---|\n" + "\n".join(elsewhere) + "\n")
    return "\n".join(parts)


def promises(text):
    """Ids and rules of a page, with the group that each stands in."""
    found, group = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
        elif len(cells := [one.strip() for one in re.split(r"(?<!\\)\|", line)]) >= 5 and cells[1] not in ("id", "---"):
            found[cells[1]] = (group, cells[2])
    return found
