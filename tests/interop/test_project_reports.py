"""What reports of projects show besides findings of single lines: code that nothing uses, public names, licences, what changed between
two analyses, and a page that stands alone."""

import base64
import html.parser
import json

from test_project_changes import block, folder_of, imported, improve

MIT = b'[project]\nname = "m"\nlicense = "MIT"\n'


def analyzed(server, project_id):
    done = server.cli("project", "analyze", project_id, "--no-review", "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def project_of(server, files):
    return imported(server, folder_of(server, files))["project_id"]


def found(report, tool):
    return sorted((one["rule"], one["file"], one["line"]) for one in report["findings"] if one["tool"] == tool)


def test_code_that_nothing_uses_is_found_in_each_language_and_what_is_used_elsewhere_is_not(server):
    report = analyzed(server, project_of(server, {
        "app.py": b"import os\nimport helpers\n\ndef lone():\n    x = 1\n\nhelpers.used()\n",
        "helpers.py": b"def used():\n    return _part()\n\ndef _part():\n    return 1\n\ndef _dead():\n    return 2\n",
        "src/lib.rs": b"pub fn f() { g() }\nfn g() {}\nfn h() {}\n",
        "web/a.ts": b"import { x, y } from './b';\nexport const z = x;\nfunction k() {}\n",
        "go/a.go": b"package a\n\nfunc F() { g() }\n\nfunc h() {}\n",
        "go/b.go": b"package a\n\nfunc g() {}\n",
        "README.md": b"Nothing is said here.\n",
    }))
    assert found(report, "dead-code") == [
        ("unused-import", "app.py", 1), ("unused-import", "web/a.ts", 1), ("unused-private", "go/a.go", 5),
        ("unused-private", "helpers.py", 7), ("unused-private", "src/lib.rs", 3), ("unused-private", "web/a.ts", 3),
        ("unused-public", "app.py", 4), ("unused-variable", "app.py", 5)], found(report, "dead-code")


def test_licences_are_those_that_installed_packages_and_the_table_say_and_others_are_said_to_be_unknown(server, new_server, tmp_path):
    files = {
        "pyproject.toml": MIT, "requirements.txt": b"viral==2.0\nstrange==1.0\nlisted==1.0\n",
        ".gitignore": b".venv\n",
        ".venv/lib/python3.12/site-packages/viral-2.0.dist-info/METADATA":
            b"Metadata-Version: 2.1\nName: viral\nVersion: 2.0\nLicense-Expression: GPL-3.0-only\n\nA page.\n",
        ".venv/lib/python3.12/site-packages/viral/code.py": b"import os\n",
        "Cargo.lock": b'[[package]]\nname = "boxed"\nversion = "1.0.0"\nsource = "registry+x"\n',
        "vendor/boxed/Cargo.toml": b'[package]\nname = "boxed"\nversion = "1.0.0"\nlicense = "MIT/Apache-2.0"\n',
    }
    report = analyzed(server, project_of(server, files))
    assert found(report, "licences") == [
        ("copyleft-dependency", "requirements.txt", 1), ("licence-not-known", "requirements.txt", 2)], found(report, "licences")
    unknown = next(one for one in report["findings"] if one["rule"] == "licence-not-known")
    assert "strange" in unknown["message"] and "listed" in unknown["message"], unknown
    assert not [one for one in report["findings"] if one["file"].endswith("code.py")], "installed code is no part of the project"

    table = tmp_path / "licences.txt"
    table.write_text("# what we asked for\nPyPI listed AGPL-3.0-only\nPyPI strange@1.0 MIT\n")
    other = new_server(RIVERRUN_PROJECT_LICENCES=str(table)).start()
    report = analyzed(other, project_of(other, files))
    assert found(report, "licences") == [("copyleft-dependency", "requirements.txt", line) for line in (1, 3)], found(report, "licences")

    table.write_text("PyPI listed\n")
    report = analyzed(other, project_of(other, files))
    run = next(tool for tool in report["tools"] if tool["name"] == "licences")
    assert "line 1" in run["detail"] and "RIVERRUN_PROJECT_LICENCES" in run["fix"], run
    done = server.cli("project", "ls", RIVERRUN_PROJECT_LICENCES="/no/such/file")
    assert done.returncode == 2 and "RIVERRUN_PROJECT_LICENCES" in done.stderr, done


def test_what_changed_between_two_analyses_is_told_by_findings_and_names_although_lines_moved(server):
    before = b"import os\npassword = 'hunter2hunter2'\n\ndef f():\n    return 1\n    print(2)\n\nprint(f())\n"
    project_id = project_of(server, {"a.py": before})
    first = analyzed(server, project_id)
    assert "surface_change" not in first and first["surface"]["count"] == first["metrics"]["public_names"] == 2, first["surface"]
    after = ("# Moved.\nimport os\npassword = 'hunter2hunter2'\n\ndef f():\n    return 1\n\n"
             "def more():\n    return 3\n\nprint(f(), more())\n")
    _, proposal = improve(server, project_id, "a.py", block(after))
    assert proposal["status"] == "proposed", proposal
    assert server.cli("project", "apply", project_id, "--file", "a.py", "--yes").returncode == 0
    second = analyzed(server, project_id)
    assert second["surface_change"] == {"added_count": 1, "removed_count": 0, "added": [{"file": "a.py", "name": "more"}],
                                        "removed": []}, second["surface_change"]
    done = server.cli("project", "trend", project_id, "--json")
    trend = json.loads(done.stdout)
    assert (trend["from"], trend["to"]) == (first["analysis_id"], second["analysis_id"])
    own = [[one["rule"] for one in trend[side] if one["tool"] in ("syntax", "dead-code", "secrets")] for side in ("new", "fixed")]
    assert own == [[], ["unreachable-code"]], trend
    assert trend["surface"] == second["surface_change"], trend
    done = server.cli("project", "trend", project_id)
    assert done.returncode == 0 and "unreachable-code" in done.stdout and "a.py: more" in done.stdout, done
    back = json.loads(server.cli("project", "trend", project_id, "--from", second["analysis_id"], "--to", first["analysis_id"],
                                 "--json").stdout)
    assert [one["name"] for one in back["surface"]["removed"]] == ["more"], back
    # Of one that is not the last, too, it is the one before it; before the first there is none.
    third = analyzed(server, project_id)
    for to, start in ((third, second), (second, first), (first, first)):
        trend = server.get(f"/projects/{project_id}/trend?to={to['analysis_id']}").json
        assert (trend["from"], trend["to"]) == (start["analysis_id"], to["analysis_id"]), trend
    assert server.get(f"/projects/{project_id}/trend?namespace=other").status == 404


def test_a_review_cites_findings_by_file_and_line_and_what_it_invents_is_struck_out(server):
    words = base64.b64encode(b"Do [2] first, then [1]; [77] and z.py:9 are made up.").decode()
    project_id = project_of(server, {"a.py": f"import os  # [[id=review1 says={words}]]\n".encode(),
                                     "b.py": b"def f():\n    return 1\n    print(2)\n\nprint(f())\n",
                                     "c.py": b"password = 'hunter2hunter2'\n"})
    done = server.cli("project", "analyze", project_id, "--json")
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    review = report["review"]
    places = {(one["file"], one["line"]) for one in report["findings"]}
    assert [one["n"] for one in review["citations"]] == [1, 2], review
    assert review["text"].startswith("Do [2] first, then [1];") and "[77]" not in review["text"], review
    assert "z.py" not in review["text"] and "(no such place) are made up" in review["text"], review
    assert all((one["file"], one["line"]) in places and one["file"] != "c.py" for one in review["citations"]), review
    assert "hunter2" not in done.stdout, "a secret is not shown to a model, nor told by it"
    done = server.cli("project", "report", project_id)
    cited = review["citations"][0]
    assert f"[1] {cited['file']}:{cited['line']}" in done.stdout and "Review (" in done.stdout, done


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "rect", "line", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in ("rect", "line", "polyline"):
            assert self.open.pop() == tag


def test_a_report_is_a_page_that_loads_and_runs_nothing_whatever_a_project_calls_its_files(server):
    evil = "</style><script>alert(1)<"
    project_id = project_of(server, {
        "<img src=x onerror=alert(1)>.py": b"X = StandardScaler().fit_transform(X)\nparts = train_test_split(X, y)\n",
        "a&'b\".py": f"import os  # {evil}\nclass C: pass\n".encode()})
    analyzed(server, project_id)
    analyzed(server, project_id)
    file = server.folder / "report.html"
    done = server.cli("project", "report", project_id, "--html", str(file))
    assert done.returncode == 0 and done.stdout == "", done
    text = file.read_text()
    page = Page(text)
    assert not page.open, page.open
    assert {"svg", "rect", "polyline", "table"} <= set(page.tags), set(page.tags)
    assert not {"script", "img", "link", "iframe", "a", "form", "object", "base"} & set(page.tags), set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "href", "style")], names
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert [label.split(";")[0] for label in labels] == [
        "findings of each severity by analyzer", "findings of each severity by file", "findings over time"], labels
    assert evil not in text and "fit-before-split" in text
    reply = server.get(f"/projects/{project_id}/report?format=html")
    assert reply.headers["content-type"].startswith("text/html") and reply.body.decode() == text
    assert "default-src 'none'" in reply.headers["content-security-policy"], reply.headers
    assert server.cli("project", "report", project_id, "--html").stdout.strip() == text.strip()
    done = server.cli("project", "report", project_id, "--html", "--sarif")
    assert done.returncode == 2, done
