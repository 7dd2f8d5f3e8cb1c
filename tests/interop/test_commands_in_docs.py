"""Every `riverrun` command line in the docs, in the examples and in the hints of messages is one that the binary takes: its commands
and its options, as `--help` tells them. Nothing is run but `--help`."""

import re
import shlex
import subprocess

import pytest

from conformance.surface import GLOBAL, names
from server import BINARY, ROOT

# Produced by a run; long values are cut there.
PAGES = [page for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))) if page.name != "conformance.md"]
SCRIPTS = sorted((ROOT / "examples").rglob("*.sh"))
COMMAND = re.compile(r'(?:^\s*|[(;&|]\s*|\$ )(?:[A-Z_]+=\S* )*(?:riverrun|"\$riverrun"|"\$RIVERRUN") ((?:--json )?[a-z].*)')
# Where hints are written. Tests have command lines that are wrong on purpose.
SOURCES = sorted(file for crate in ("agents", "api", "broker", "cli", "knowledge", "log", "models", "projects", "stores", "training", "workers")
                 for file in (ROOT / crate / "src").rglob("*.rs") if "tests" not in file.stem) + sorted(
                     file for ending in ("*.ts", "*.tsx") for file in (ROOT / "web/src").rglob(ending) if ".test." not in file.name)
# What a sentence says of a command: "riverrun tokens ls shows them".
SAYS = re.compile(r"(?:\w+s|all|it|does|and|in|on|of|to|with|the|a|made|first|process|collection|binary|×|·)$")


def words(line):
    """A command line up to what a shell would do with its output; quotes that stay open end it."""
    line = re.split(r"\s[|>&]|\s#|\\?\s*\)|\\$", line.replace("\\|", "|"))[0]
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def of_page(text):
    shells = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, re.M | re.S)
    quoted = re.findall(r"`(riverrun [^`]+)`", text)
    return [line for block in shells for line in block.splitlines() if not line.lstrip().startswith(("#", "helm", "kubectl", "docker"))] + quoted


@pytest.fixture(scope="module")
def helps():
    """What `--help` says of a command, asked for once."""
    kept = {}

    def ask(*path):
        if path not in kept:
            kept[path] = subprocess.run([BINARY, *path, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
        return kept[path]

    return ask


def fault(helps, given):
    """What the binary would not take of a command line; nothing where it takes all of it."""
    path = ()
    for word in (word for word in given if word != "--json"):
        below = names(helps(*path))
        if not below:
            break
        if word not in below:
            return None if path and word.startswith(("-", "[", "…")) else f"there is no command {' '.join((*path, word))}"
        path = (*path, word)
    known = set(re.findall(r"(?<![\w-])--?[\w-]+", helps(*path))) | GLOBAL
    asked = [re.match(r"--[a-z][\w-]*", word.strip("[]")) for word in given]
    unknown = [option.group() for option in asked if option and option.group() not in known]
    if unknown:
        return f"riverrun {' '.join(path)} has no {', '.join(unknown)}"
    # A line with arguments is meant whole; the name of a command alone is not.
    whole = len([word for word in given if word != "--json"]) > len(path)
    lacks = [name for name, spelled in wanted(helps(*path)).items() if whole and not any(word.split("=")[0].strip("[]") in spelled for word in given)]
    return f"riverrun {' '.join(path)} wants {', '.join(lacks)}" if lacks else None


def wanted(text):
    """The options that a command can't do without, by their long names, each with its spellings; a help text's line of usage says which."""
    usage = re.search(r"^Usage: (.*)", text, re.M)
    bare = re.sub(r"\[[^]]*\]", "", usage.group(1)) if usage else ""
    spelled = {long: {long, short} - {""} for short, long in re.findall(r"^ {2,6}(-\w)?(?:, )?(--[\w-]+)", text, re.M)}
    return {name: spelled.get(name, {name}) for name in re.findall(r"--[\w-]+", bare)}


@pytest.mark.parametrize("file", PAGES + SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_binary_takes_every_command_line(helps, file):
    text = file.read_text()
    lines = of_page(text) if file.suffix == ".md" else text.splitlines()
    given = [found.group(1) for line in lines if not line.lstrip().startswith("#") and (found := COMMAND.search(line))]
    faults = {line: wrong for line in given if (wrong := fault(helps, words(line)))}
    assert not faults, faults


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_line_of_a_page_is_a_pipe_where_it_means_a_choice(file):
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", file.read_text(), re.M | re.S)
    bare = [re.sub(r"\s#.*|'[^']*'|\"[^\"]*\"", "", line) for block in blocks for line in block.splitlines()]
    assert not [line for line in bare if COMMAND.search(line) and re.search(r"\w\|\w", line)]


def hints(text):
    """Commands within literals; a literal that goes on in the next line is one."""
    text = re.sub(r"\\\n\s*", "", text)
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
    return re.findall(r"\briverrun ([a-z][\w-]*(?: [^`\"\\;,()\n]*)?)", text)


def fault_of_hint(helps, line):
    """As `fault`, for a command within a sentence."""
    given = re.split(r"[ ](?:or|and|,) | (?:makes|shows|lists|says|measures)\b", line.rstrip(". "))[0].split()
    first = names(helps())
    if given[0] not in first:
        return None if SAYS.match(given[0]) else f"there is no command {given[0]}"
    below = names(helps(given[0]))
    if len(given) > 1 and below and given[1] not in below and re.match(r"[a-z]+$", given[1]):
        return None if SAYS.match(given[1]) else f"there is no command {' '.join(given[:2])}"
    return fault(helps, given)


def test_the_binary_takes_every_command_of_a_hint(helps):
    found = {(str(file.relative_to(ROOT)), line) for file in SOURCES for line in hints(file.read_text())}
    assert len(found) > 100, found
    faults = {where: wrong for where in sorted(found) if (wrong := fault_of_hint(helps, where[1]))}
    assert not faults, faults


def test_a_hint_that_the_binary_would_refuse_is_found(helps):
    given = {"ingest --source <path>": "riverrun ingest has no --source", "runs list": "there is no command runs list", "tokens ls shows them": None,
             "is started": None, "collections rebuild {name} --namespace {namespace}": None,
             "tokens create makes one": None, "tokens create NAME": "riverrun tokens create wants --scope", "run x": "there is no command run"}
    assert {line: fault_of_hint(helps, line) for line in given} == given
    text = 'hint("riverrun runs \\\n      ls --limit 3");\n// riverrun nothing\nlet a = "see `riverrun agents`";'
    assert hints(text) == ["runs ls --limit 3", "agents"]


def test_a_line_that_the_binary_would_refuse_is_found(helps):
    given = {"runs ls --nope": "riverrun runs ls has no --nope", "run ls": "there is no command run", "runs list": "there is no command runs list",
             "--json runs ls --limit 3": None, "collections": None, "tokens create": None, "tokens create ci --scope=read": None,
             "tokens create NAME": "riverrun tokens create wants --scope", "runs fork RUN_ID": "riverrun runs fork wants --at-seq",
             "stream consume -c notes": None, "models --provider ollama": None, "chat hi | cat --nope": None}
    assert {line: fault(helps, words(line)) for line in given} == given


def test_the_page_of_commands_names_each(helps):
    page = (ROOT / "docs/cli.md").read_text()

    def leaves(path=()):
        below = names(helps(*path))
        return [path] if not below else [leaf for name in below for leaf in leaves((*path, name))]

    missing = [" ".join(path) for path in leaves() if not re.search(rf"[`|\\ ]{re.escape(path[-1])}\b", page)]
    assert not missing, missing


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_each_example_takes_the_program_and_the_address_from_the_same_variables(script):
    text = script.read_text()
    if '/http.sh"' in text:  # how they ask over HTTP, which they source
        text += (ROOT / "examples/http.sh").read_text()
    asked = {name for name in re.findall(r"\$\{(RIVERRUN(?:_\w+)?)", text)}
    assert "RIVERRUN" in asked or "RIVERRUN_URL" in asked, asked
    assert "RIVERRUN_BIN" not in asked and not re.search(r"^riverrun ", text, re.M), asked
