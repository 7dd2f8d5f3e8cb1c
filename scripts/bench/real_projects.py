"""Real projects from package registries, and what the tools of others say of them by hand.

Python projects are source archives, taken from the index that pip is configured for and checked against their hashes; nothing of
them is built. The npm package comes by `npm pack`, the Rust crate by `cargo vendor`; neither runs anything of them.
"""

import collections
import hashlib
import html.parser
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Old versions, with known problems: about 107,000 lines of Python together. All of them parse as Python 3, since mypy says nothing of a
# project in which one file does not.
SDISTS = {
    "celery": ("celery-5.2.2.tar.gz", "2844eb040e915398623a43253a8e1016723442ece6b0751a3c416d8a2b34216f"),
    "jinja2": ("Jinja2-3.0.3.tar.gz", "611bb273cd68f3b993fabdc4064fc858c5b47a973cb5aa7999ec1ba405c87cd7"),
    "requests": ("requests-2.19.1.tar.gz", "ec22d826a36ed72a7358ff3fe56cbd4ba69dd7a6718ffd450ff0e9df7a47ce6a"),
}
NPM_PACKAGE = "lodash@4.17.20"
CRATE = ("semver-parser", "0.7.0")

RUFF = ["ruff", "check", "--isolated", "--no-cache", "--exit-zero", "--output-format", "json", "."]
MYPY = ["mypy", "--config-file=", "--no-incremental", "--ignore-missing-imports", "--show-column-numbers", "--no-error-summary",
        "--no-color-output", "--cache-dir=/dev/null", "."]
BY_FOLDERS = ["--explicit-package-bases", "--namespace-packages"]
CLIPPY = ["cargo-clippy", "clippy", "--offline", "--workspace", "--message-format=json", "--quiet"]


class Unavailable(Exception):
    """Something outside of this machine is not to be had: what, and why."""


# ---- from the registries --------------------------------------------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    """The links of an index that has pages alone (PEP 503)."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def index():
    if "PIP_INDEX_URL" in os.environ:
        return os.environ["PIP_INDEX_URL"].rstrip("/")
    done = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False)
    return (done.stdout.strip() or "https://pypi.org/simple").rstrip("/")


def sdist(name, folder):
    """The files of a source archive, in a folder of that name."""
    file, sha256 = SDISTS[name]
    page = f"{index()}/{name}/"
    request = urllib.request.Request(page, headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.1"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text, kind = answer.read().decode(), answer.headers.get("content-type", "")
        links = [one["url"] for one in json.loads(text)["files"]] if "json" in kind else Links(text).found
        link = next((one for one in links if one.split("#")[0].endswith("/" + file)), None)
        if link is None:
            raise Unavailable(f"{file} is not in the index {page}")
        with urllib.request.urlopen(urllib.parse.urljoin(page, link), timeout=300) as answer:
            content = answer.read()
    except OSError as error:
        raise Unavailable(f"{file} from {page}: {error}; set PIP_INDEX_URL to an index that answers") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise Unavailable(f"{file} has the hash {found} and not {sha256}")
    return unpacked(content, folder / name)


def unpacked(content, folder):
    """The files of an archive without its first folder. What an import leaves out is not laid out, so that all read the same."""
    folder.mkdir(parents=True)
    archive = folder.parent / "archive.tar.gz"
    archive.write_bytes(content)
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            parts = Path(member.name).parts[1:]
            if not member.isfile() or not parts or ".." in parts or parts[-1] == ".gitignore":
                continue
            path = folder.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tar.extractfile(member).read())
    archive.unlink()
    return folder


def npm_package(folder):
    place = folder / "npm"
    place.mkdir()
    done = run(["npm", "pack", "--silent", "--pack-destination", str(place), NPM_PACKAGE], place)
    archives = list(place.glob("*.tgz"))
    if done is None or not archives:
        raise Unavailable(f"{NPM_PACKAGE} by npm pack: {done.stderr[-200:] if done else 'no npm is on the PATH'}")
    return unpacked(archives[0].read_bytes(), folder / "npm-package")


def crate(folder):
    name, version = CRATE
    place = folder / "cargo"
    (place / "src").mkdir(parents=True)
    (place / "Cargo.toml").write_text(f'[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n{name} = "={version}"\n')
    (place / "src/lib.rs").write_text("")
    done = run(["cargo", "vendor", "--quiet", "vendor"], place)
    found = place / "vendor" / name
    if done is None or done.returncode != 0 or not found.is_dir():
        raise Unavailable(f"{name} {version} by cargo vendor: {done.stderr[-200:] if done else 'no cargo is on the PATH'}")
    for extra in found.glob(".cargo*"):
        extra.unlink()
    return found


def run(command, folder, environment=None):
    """What a program answers; None when it is not there."""
    try:
        return subprocess.run(command, cwd=folder, env=environment or os.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
    except FileNotFoundError:
        return None


# ---- what tools say by hand -------------------------------------------------------------------------------------------------------
# Each gives a Counter of (rule, file, line); None when the tool is not there or breaks off.


def shortened(file, folder):
    return os.path.relpath(file, folder) if os.path.isabs(file) else file.removeprefix("./")


def by_ruff(folder, environment):
    done = run(RUFF, folder, environment)
    if done is None or done.returncode != 0:
        return None
    return collections.Counter((one["code"] or "syntax", shortened(one["filename"], folder), (one["location"] or {}).get("row", 1))
                               for one in json.loads(done.stdout))


def by_mypy(folder, environment):
    done = run(MYPY, folder, environment)
    if done is not None and done.returncode == 2:
        done = run(MYPY + BY_FOLDERS, folder, environment)
    if done is None or done.returncode not in (0, 1):
        return None
    found = re.findall(r"^(.+):(\d+):\d+: error: .*?(?:  \[([^\]\n]+)\])?$", done.stdout, re.M)
    return collections.Counter((rule or "error", shortened(file, folder), int(line)) for file, line, rule in found)


def eslint_rules():
    """The rules that analyses ask for: they are written down once, in the table of tools."""
    table = (ROOT / "projects/src/analyzers/external/table.rs").read_text()
    return re.findall(r'"([a-z-]+)"', re.search(r"ESLINT_RULES.*?= \[(.*?)\];", table, re.S).group(1))


def by_eslint(program, folder, environment):
    rules = [word for rule in eslint_rules() for word in ("--rule", f"{rule}: error")]
    done = run([*program, "--no-config-lookup", "--no-error-on-unmatched-pattern", "--format", "json", "--ext", ".jsx",
                "--parser-options", "ecmaFeatures:{jsx:true}", *rules, "."], folder, environment)
    if done is None or done.returncode not in (0, 1) or not done.stdout:
        return None
    return collections.Counter((message["ruleId"], shortened(one["filePath"], folder), message["line"])
                               for one in json.loads(done.stdout) for message in one["messages"]
                               if message["ruleId"] and not message["message"].startswith("Definition for rule "))


def by_clippy(folder, environment):
    # As a report asks it: without what the caller's shell says to Cargo.
    kept = ("CARGO_HOME", "RUSTUP_HOME")
    plain = {name: value for name, value in environment.items() if name in kept or not name.startswith(("CARGO", "RUST"))}
    done = run(CLIPPY, folder, plain)
    if done is None or done.returncode not in (0, 101) or not done.stdout:
        return None
    found = collections.Counter()
    for line in done.stdout.splitlines():
        one = json.loads(line)
        message = one["message"] if one["reason"] == "compiler-message" else {}
        # An error without a code is one of the syntax, or of a macro.
        code = (message.get("code") or {}).get("code") or ("error" if message.get("level") == "error" else None)
        span = next((span for span in message["spans"] if span["is_primary"]), None) if code else None
        if span:
            found[code, shortened(span["file_name"], folder), span["line_start"]] += 1
    return found


def reported(report, tool):
    """The same of a report; None when the tool did not run."""
    run_of = next((one for one in report["tools"] if one["name"] == tool), None)
    if run_of is None or run_of["status"] != "ran":
        return None
    return collections.Counter((one["rule"], one["file"], one["line"]) for one in report["findings"] if one["tool"] == tool)


def lines_of(folder, endings=(".py",)):
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*") if path.is_file() and path.suffix in endings)
