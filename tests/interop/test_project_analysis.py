"""What analyses say of real small projects: the tools of others, dependencies, licences, known vulnerabilities, SARIF; and what is
left of a project that was removed."""

import itertools
import json
import shutil

import jsonschema
import pytest

numbers = itertools.count()

# The parts of SARIF 2.1.0 (OASIS, sections 3.13 to 3.30) that readers of it need.
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "pattern": "sarif-2\\.1\\.0"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "minItems": 1, "items": {
            "type": "object",
            "required": ["tool"],
            "properties": {
                "tool": {"type": "object", "required": ["driver"], "properties": {"driver": {
                    "type": "object", "required": ["name"], "properties": {
                        "name": {"type": "string", "minLength": 1},
                        "rules": {"type": "array", "uniqueItems": True, "items": {
                            "type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}},
                    }}}},
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "invocations": {"type": "array", "items": {
                    "type": "object", "required": ["executionSuccessful"], "properties": {
                        "executionSuccessful": {"type": "boolean"},
                        "toolExecutionNotifications": {"type": "array", "items": {
                            "type": "object", "required": ["message"], "properties": {
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}}}},
                    }}},
                "results": {"type": "array", "items": {
                    "type": "object",
                    "required": ["message", "ruleId", "locations"],
                    "properties": {
                        "ruleId": {"type": "string", "minLength": 1},
                        "level": {"enum": ["none", "note", "warning", "error"]},
                        "message": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
                        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                        "properties": {"type": "object", "required": ["severity", "fix"],
                                       "additionalProperties": {"type": "string", "minLength": 1}},
                        "locations": {"type": "array", "minItems": 1, "items": {
                            "type": "object", "required": ["physicalLocation"], "properties": {"physicalLocation": {
                                "type": "object", "required": ["artifactLocation", "region"], "properties": {
                                    "artifactLocation": {"type": "object", "required": ["uri"], "properties": {
                                        "uri": {"type": "string", "pattern": "^[A-Za-z0-9._~%/-]+$"}}},
                                    "region": {"type": "object", "required": ["startLine"], "properties": {
                                        "startLine": {"type": "integer", "minimum": 1},
                                        "startColumn": {"type": "integer", "minimum": 1}}},
                                }}}}},
                    }}},
            }}},
    },
}

MIXED = {
    "a.py": "import os\nx: int = 'a'\n",
    "c.js": "if (x = 1) { }\n",
    "b.ts": "const n: number = 'a';\nexport default n;\n",
    "go.mod": "module m\n\ngo 1.20\n",
    "d.go": 'package m\n\nimport "fmt"\n\nfunc F() { fmt.Printf("%d", "x") }\n',
    "Cargo.toml": '[package]\nname = "m"\nversion = "0.1.0"\nedition = "2021"\nlicense = "MIT"\n',
    "src/lib.rs": "pub fn f() -> i32 {\n    return 1;\n}\n",
}

# Which program each job is done by, the preferred one first.
JOBS = {"ruff": ["ruff"], "mypy": ["mypy", "pyright", "ty"], "eslint": ["eslint"], "tsc": ["tsc"], "go-vet": ["go"]}


def folder_of(server, files):
    folder = server.folder / f"analysis{next(numbers)}"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def imported(server, files, *more):
    done = server.cli("project", "import", str(folder_of(server, files)), "--json", *more)
    assert done.returncode == 0, done
    return json.loads(done.stdout)["project_id"]


def analyzed(server, files):
    project_id = imported(server, files)
    done = server.cli("project", "analyze", project_id, "--no-review", "--json")
    assert done.returncode == 0, done
    return project_id, json.loads(done.stdout)


def found(report, tool):
    return [(one["rule"], one["file"], one["line"]) for one in report["findings"] if one["tool"] == tool]


def test_a_tool_that_is_not_there_is_said_to_have_not_run_and_one_that_is_there_runs(server):
    _, report = analyzed(server, MIXED)
    tools = {tool["name"]: tool for tool in report["tools"]}
    for name, programs in JOBS.items():
        present = next((program for program in programs if shutil.which(program)), None)
        tool = tools[name] if present in (None, programs[0], "go") else tools[present]
        if present is None:
            assert (tool["status"], tool["findings"]) == ("missing", 0) and tool["detail"] and tool["fix"], tool
        else:
            # What an old version says can't be read: that is a failure that is told, and never a clean answer.
            assert tool["status"] in ("ran", "failed"), tool
            assert tool["status"] == "ran" or (tool["detail"] and tool["fix"] and tool["findings"] == 0), tool
    # What it takes is nowhere but in the data folder, where nothing was installed.
    linter = tools["typescript-eslint"]
    assert (linter["status"], linter["fix"]) == ("missing", "riverrun project tools install typescript-eslint"), linter
    assert tools["clippy"]["status"] == "skipped" and "RIVERRUN_PROJECT_PROGRAMS" in tools["clippy"]["fix"], tools["clippy"]
    assert tools["advisories"]["status"] == "skipped" and "not checked" in tools["advisories"]["detail"], tools
    if tools["go-vet"]["status"] == "ran":
        assert ("printf", "d.go", 5) in found(report, "go-vet"), report
    if tools["ruff"]["status"] == "ran":
        assert ("F401", "a.py", 1) in found(report, "ruff"), report


def test_what_is_imported_and_not_declared_is_found_and_what_is_python_own_or_optional_is_not(server):
    _, report = analyzed(server, {
        "requirements.txt": "requests==2.31\nscikit-learn==1.4\n",
        "pkg/__init__.py": "", "pkg/tool.py": "from . import other\n",
        "main.py": "import os, requests\nimport yaml\nfrom sklearn import svm\nfrom pkg import tool\n"
                   "try:\n    import ujson as json\nexcept ImportError:\n    import json\n",
    })
    undeclared = [one for one in report["findings"] if one["rule"] == "undeclared-dependency"]
    assert [(one["file"], one["line"]) for one in undeclared] == [("main.py", 2)], undeclared
    assert "pyyaml" in undeclared[0]["fix"], undeclared
    graph = {one["file"]: one["imports"] for one in report["imports"]["files"]}
    assert graph == {"main.py": ["pkg/tool.py"], "pkg/tool.py": ["pkg/__init__.py"]} and report["imports"]["count"] == 2, graph
    assert "unused-dependency" not in {one["rule"] for one in report["findings"]}, report["findings"]


def test_licences_that_contradict_are_found(server):
    lock = {"packages": {"node_modules/viral": {"version": "1.0.0", "license": "GPL-3.0-only"},
                         "node_modules/choice": {"version": "1.0.0", "license": "(MIT OR GPL-3.0-only)"}}}
    _, report = analyzed(server, {
        "package.json": '{"name": "m", "license": "MIT"}', "package-lock.json": json.dumps(lock, indent=1),
        "a.js": "// SPDX-License-Identifier: AGPL-3.0-only\nexport const x = 1;\n",
        "b.js": "// SPDX-License-Identifier: not one\nexport const y = 1;\n",
    })
    assert sorted(found(report, "licences")) == [
        ("copyleft-dependency", "package-lock.json", 3), ("licence-conflict", "a.js", 1), ("unknown-licence", "b.js", 1)]


def test_a_report_is_sarif_on_stdout_and_in_a_file(server):
    project_id, report = analyzed(server, MIXED | {"tr\u00e4in one.py": "X = StandardScaler().fit_transform(X)\nparts = train_test_split(X, y)\n"})
    done = server.cli("project", "report", project_id, "--sarif")
    assert done.returncode == 0, done
    sarif = json.loads(done.stdout)
    jsonschema.validate(sarif, SARIF)
    results = [result for run in sarif["runs"] for result in run.get("results", [])]
    assert len(results) == len(report["findings"]), "each finding is one result"
    for run in sarif["runs"]:
        rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
        assert {result["ruleId"] for result in run.get("results", [])} <= rules, run["tool"]
    assert any("tr%C3%A4in%20one.py" in json.dumps(result) for result in results), results
    named = lambda status: {tool["name"] for tool in report["tools"] if tool["status"] == status}  # noqa: E731
    successful = lambda run: run.get("invocations", [{"executionSuccessful": True}])[0]["executionSuccessful"]  # noqa: E731
    runs = lambda good: {run["tool"]["driver"]["name"] for run in sarif["runs"] if successful(run) == good}  # noqa: E731
    assert (runs(True), runs(False)) == (named("ran"), named("failed")), "what is missing or was skipped is no run"
    assert all("results" in run for run in sarif["runs"] if successful(run))

    file = server.folder / f"report{next(numbers)}.sarif"
    done = server.cli("project", "report", project_id, "--sarif", str(file))
    assert done.returncode == 0 and done.stdout == "" and json.loads(file.read_text()) == sarif, done
    accepted = server.get(f"/projects/{project_id}/report", headers={"accept": "application/sarif+json"})
    assert accepted.headers["content-type"] == "application/sarif+json" and accepted.json == sarif
    assert server.get(f"/projects/{project_id}/report?format=xml").status == 422
    done = server.cli("project", "report", project_id, "--sarif", str(server.folder / "no-such-folder" / "x"))
    assert done.returncode == 1 and "can't be written" in done.stderr, done


def test_an_operator_names_the_programs_and_the_advisories(new_server, tmp_path):
    advisories = tmp_path / "osv"
    advisories.mkdir()
    (advisories / "GHSA-1.json").write_text(json.dumps({
        "id": "GHSA-1", "summary": "something bad", "database_specific": {"severity": "CRITICAL"},
        "affected": [{"package": {"ecosystem": "PyPI", "name": "Jinja2"},
                      "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.1.3"}]}]}],
    }))
    server = new_server(RIVERRUN_PROJECT_PROGRAMS="python3", RIVERRUN_PROJECT_ADVISORIES=str(advisories)).start()
    project_id, report = analyzed(server, {
        "requirements.txt": "jinja2==3.1.2\n", "old/requirements.txt": "jinja2==3.1.3\n", "a.py": "import jinja2\n"})
    tools = {tool["name"]: tool["status"] for tool in report["tools"]}
    assert tools["ruff"] == tools["mypy"] == "skipped" and tools["advisories"] == "ran", tools
    bad = [one for one in report["findings"] if one["rule"] == "known-vulnerability"]
    assert [(one["file"], one["line"], one["severity"]) for one in bad] == [("requirements.txt", 1, "critical")], bad
    assert "GHSA-1" in bad[0]["message"] and "3.1.3" in bad[0]["fix"], bad

    reply = server.post(f"/projects/{project_id}/improve", {"file": "a.py", "tests": ["sh", "-c", "true"]})
    assert (reply.status, reply.json["code"]) == (422, "tests_not_run"), reply
    if "only where the kernel confines" not in reply.json["detail"]:
        assert "RIVERRUN_PROJECT_PROGRAMS" in reply.json["hint"], reply


@pytest.mark.parametrize("name, value", [("RIVERRUN_PROJECT_PROGRAMS", "/bin/sh"), ("RIVERRUN_PROJECT_ADVISORIES", "/no/such/folder")])
def test_a_setting_that_can_not_be_meant_is_refused_by_its_name(server, name, value):
    done = server.cli("project", "ls", **{name: value})
    assert done.returncode == 2 and name in done.stderr, done


def test_a_project_is_removed_with_a_receipt_and_its_original_stays(server):
    project_id, report = analyzed(server, {"a.py": "x = 1\n", "b.py": "y = 2\n"})
    folder = server.folder / f"analysis{next(numbers) - 1}"
    assert report["summary"]["files"] == 2
    assert server.request("DELETE", f"/projects/{project_id}?namespace=someone-else").status == 404
    done = server.cli("project", "rm", project_id, "--json")
    assert done.returncode == 0, done
    receipt = json.loads(done.stdout)
    assert (receipt["project_id"], receipt["files"], receipt["analyses"]) == (project_id, 2, 1), receipt
    for path in ("", "/report", "/files", "/patch"):
        assert server.get(f"/projects/{project_id}{path}").status == 404, path
    assert project_id not in server.cli("project", "ls").stdout
    assert server.cli("project", "rm", project_id).returncode == 4
    assert sorted(one.name for one in folder.iterdir()) == ["a.py", "b.py"]


def test_a_removal_that_is_asked_for_twice_with_one_key_is_one_removal(server):
    project_id = imported(server, {"a.py": "x = 1\n"})
    first, again = (server.request("DELETE", f"/projects/{project_id}", headers={"idempotency-key": f"rm-{project_id}"})
                    for _ in range(2))
    assert first.status == again.status == 200 and first.json == again.json, (first, again)
    stranger = server.request("DELETE", f"/projects/{project_id}?namespace=other", headers={"idempotency-key": f"rm-{project_id}"})
    assert stranger.status == 404, stranger
