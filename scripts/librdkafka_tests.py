#!/usr/bin/env python3
"""Runs librdkafka's own tests, one by one, against a broker and prints what each came to as a Markdown table.

    scripts/librdkafka_tests.py SOURCE HOST:PORT [--without-creation HOST:PORT] [--limit 120] [--only 0081,0103] [--set NAME=VALUE]... [--full] [--logs FOLDER]

SOURCE is a checkout of librdkafka whose tests are built:
    ./configure --disable-gssapi && make -j2 libs && make -C tests test-runner
HOST:PORT is a broker that makes topics when they are asked for, with four partitions, as librdkafka's own set-up does
(`cargo run -p riverrun-broker --example broker -- 127.0.0.1:9092 DIR 4`). The tests that want one which does not
(`riverrun serve`) are run against the other, or left out. Tests that speak to no broker, or to librdkafka's mock of one, are
not run: they say nothing about a broker. Some call Kafka's console tools, which scripts/apache_kafka.py has. Exit status 1 if one failed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import apache_kafka as kafka
from services import Missing

# Not about a broker, or for hours; the last are share groups, which need Kafka 4.2.
LEFT_OUT = re.compile(r"TEST_F_LOCAL|TEST_F_MANUAL|TEST_F_KNOWN_ISSUE\b|TEST_BRKVER\(4, 2")
# The console tools that tests call.
TOOLS = {"kafka-topics": "org.apache.kafka.tools.TopicCommand", "kafka-configs": "kafka.admin.ConfigCommand",
         "kafka-acls": "org.apache.kafka.tools.AclCommand"}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def tests_of(source):
    """{scenario: [number]} of the tests that speak to a broker; the test program is told which by number."""
    text = re.sub(r"/\*.*?\*/", "", (source / "tests/test.c").read_text(), flags=re.DOTALL)
    table = text[text.index("struct test tests[]"):]
    found = {"default": [], "noautocreate": []}
    for entry in re.finditer(r"_TEST\((\w+),((?:[^()]|\([^()]*\))*)\)", table[:table.index("{NULL}")]):
        name, rest = entry.groups()
        numbers = found["noautocreate" if "noautocreate" in rest else "default"]
        if not LEFT_OUT.search(rest) and name[:4] not in numbers:
            numbers.append(name[:4])
    return found


def console_tools(folder):
    """A folder that looks like a Kafka distribution to the tests that call its console tools; none without Java or Maven."""
    try:
        program, class_path = kafka.java(), kafka.class_path()
    except Missing as error:
        print(f"tests that call Kafka's console tools will fail: {error}", file=sys.stderr)
        return None
    scripts = folder / "kafka/bin"
    scripts.mkdir(parents=True, exist_ok=True)
    for name, main_class in TOOLS.items():
        script = scripts / f"{name}.sh"
        script.write_text(f'#!/bin/sh\nexec {program} -XX:TieredStopAtLevel=1 -cp "{class_path}" {main_class} "$@"\n')
        script.chmod(0o755)
    return scripts.parent


def failure(output):
    """What the first failure says."""
    lines = output.splitlines()
    at = next((number for number, line in enumerate(lines) if line.startswith("### Test ")), None)
    return "" if at is None else f"{lines[at]} {' '.join(lines[at + 1:at + 2])}"


def run(source, number, scenario, address, options, folder):
    """Rows (test, outcome, seconds, why) of the tests of that number."""
    conf = folder / "test.conf"
    conf.write_text(f"metadata.broker.list={address}\ntest.topic.random=true\n" + "".join(f"{line}\n" for line in options.set))
    quick = [] if options.full else ["-Q"]
    env = os.environ | {"TESTS": number, "RDKAFKA_TEST_CONF": str(conf), "TEST_KAFKA_VERSION": kafka.KAFKA_VERSION,
                        "BROKERS": address, **({"KAFKA_PATH": str(options.tools)} if options.tools else {}),
                        "LD_LIBRARY_PATH": f"{source}/src:{source}/src-cpp:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    log = folder / f"{number}-{scenario}.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(["./test-runner", "-p1", *quick, "-L", "-s", scenario], cwd=source / "tests", env=env,
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            process.wait(options.limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
            process.wait()
            return [(number, "NOT DONE", options.limit, f"after {options.limit} s")]
    plain = COLOURS.sub("", log.read_text(errors="replace"))
    row = re.compile(rf"^\|\s*({number}_\w+)\s*\|\s*(\w+)\s*\|\s*([\d.]+)s\s*\|(.*)$", re.MULTILINE)
    rows = [(name, state, float(spent), reason.strip()) for name, state, spent, reason in row.findall(plain)]
    # What another scenario or no broker is for is skipped without a word.
    rows = [one for one in rows if one[1] != "SKIPPED" or one[3]]
    # A failure can take the program down before it sums up.
    return rows or [(number, "FAILED", 0, failure(plain))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--without-creation", metavar="HOST:PORT", help="a broker that makes no topics by itself")
    parser.add_argument("--limit", type=int, default=120, help="seconds for the tests of a number (default: 120)")
    parser.add_argument("--only", default="", help="numbers of tests, with commas")
    parser.add_argument("--full", action="store_true", help="without the tests' own quick mode")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the clients, such as security.protocol=sasl_plaintext")
    parser.add_argument("--logs", type=Path, help="folder to keep the tests' output in")
    options = parser.parse_args()
    source = options.source.resolve()
    if not (source / "tests/test-runner").exists():
        sys.exit(f"error: {source}/tests/test-runner is missing\n\nhint: ./configure --disable-gssapi && make libs && make -C tests test-runner")
    wanted = set(filter(None, options.only.split(",")))
    addresses = {"default": options.address, "noautocreate": options.without_creation}
    passed = failed = 0
    print("| test | outcome | s | why |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="librdkafka-tests-") as scratch:
        folder = options.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        options.tools = console_tools(folder)
        for scenario, numbers in tests_of(source).items():
            for number in numbers:
                if wanted and number not in wanted or addresses[scenario] is None:
                    continue
                for name, state, spent, reason in run(source, number, scenario, addresses[scenario], options, folder):
                    passed += state == "PASSED"
                    failed += state not in ("PASSED", "SKIPPED")
                    print(f"| {name} | {state} | {spent:.0f} | {reason.replace('|', '/')[:240]} |", flush=True)
    print(f"{passed} passed, {failed} did not", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
