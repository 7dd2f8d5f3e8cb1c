"""What a binary offers: the operations of its OpenAPI document, its commands, and their options as `--help` tells them."""

import re

METHODS = ("get", "post", "put", "patch", "delete")
# Every command has these.
GLOBAL = {"--json", "-v", "--verbose", "-h", "--help", "-V", "--version"}


def operations(document):
    return {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in METHODS if method in item}


def names(text):
    """The subcommands that a help text lists."""
    listed = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)
    return [name for name in re.findall(r"^  (\S+)", listed.group(1), re.M) if name != "help"] if listed else []


def options(text):
    """The options that a help text lists, each as the set of its spellings."""
    listed = re.search(r"^Options:\n(.*?)\Z", text, re.M | re.S)
    heads = re.findall(r"^ {2,6}((?:-\w, )?--[\w-]+|-\w)\b", listed.group(1), re.M) if listed else []
    return [frozenset(head.split(", ")) for head in heads]


def commands(cli, path=()):
    """Each command that does something by itself, with its options. `cli` runs the binary with arguments."""
    text = cli(*path, "--help").stdout
    below, own = names(text), [option for option in options(text) if not option & GLOBAL]
    usage = re.search(r"^Usage: (.*)$", text, re.M).group(1)
    # With subcommands, a command does something by itself where they may be left out.
    found = {" ".join(path): own} if path and (not below or "[COMMAND]" in usage or "[OPTIONS]" in usage and "<COMMAND>" not in usage) else {}
    for name in below:
        found |= commands(cli, (*path, name))
    return found
