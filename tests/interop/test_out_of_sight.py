"""Commands that name what a running server can't read: a folder mounted where only the command sees it, as with a server in a container."""

import json
import subprocess
import uuid

import pytest

from server import BINARY

# A file system of the command's own over the folder `$0`, with what `$1` holds; then the command.
SHELL = 'mount -t tmpfs none "$0" && cp -a "$1/." "$0" && shift && exec "$@"'


@pytest.fixture
def hidden(server, tmp_path):
    """Runs a command that sees `files` in a folder where the server sees nothing."""
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*alone, 'mount -t tmpfs none "$0"', tmp_path], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounts of one's own are not allowed here")
    folder, files = tmp_path / "seen", tmp_path / "files"
    folder.mkdir()
    for name, content in {
        "winch.md": "# Winch\n\nA quokka winds the winch on Sundays.\n", "sub/bilby.txt": "The bilby sleeps in the hangar.\n",
        "code/train.py": "def half(x):\n    return x / 2\n", "ignored.md": "Nobody reads this.\n", ".gitignore": "ignored.md\n",
    }.items():
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(content)

    def run(*arguments):
        command = [*alone, SHELL, folder, files, BINARY, *(str(one).replace("{folder}", str(folder)) for one in arguments)]
        return subprocess.run(command, cwd=server.folder, env=server.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)

    return run


def sources(server, collection):
    return {one["source"] for one in server.get(f"/documents?collection={collection}&limit=500").json["items"]}


def test_a_folder_that_only_the_command_sees_is_ingested_and_found_and_the_same_again(server, hidden):
    collection = f"unseen-{uuid.uuid4().hex[:8]}"
    for counts in ("indexed 3 · unchanged 0", "indexed 0 · unchanged 3"):
        done = hidden("ingest", "{folder}", "-c", collection)
        assert done.returncode == 0 and counts in done.stdout, done
        assert "the server can't read" in done.stderr and "upload/seen.zip!/PATH" in done.stderr, done
    assert sources(server, collection) == {f"upload/seen.zip!/{name}" for name in ("winch.md", "sub/bilby.txt", "code/train.py")}
    found = server.cli("search", "who winds the winch?", "-c", collection, "--json")
    assert "quokka" in json.loads(found.stdout)["items"][0]["text"], found


def test_a_file_that_only_the_command_sees_is_ingested_with_the_options_that_were_given(server, hidden):
    collection = f"unseen-{uuid.uuid4().hex[:8]}"
    done = hidden("ingest", "{folder}/winch.md", "-c", collection, "--metadata", '{"by": "ann"}', "--json")
    view = json.loads(done.stdout)
    assert done.returncode == 0 and (view["indexed"], view["failed"]) == (1, 0), done
    assert sources(server, collection) == {"upload/winch.md"}
    body = {"query": "quokka", "collection": collection, "filter": {"metadata": {"by": ["ann"]}}}
    assert server.post("/rag/search", body).json["items"], body


def test_what_can_not_be_handed_in_is_refused_with_the_fix(hidden):
    pruned = hidden("ingest", "{folder}", "-c", "unseen", "--prune")
    assert pruned.returncode == 1 and "no readable documents" in pruned.stderr and "hint:" in pruned.stderr, pruned
    forced = hidden("ingest", "{folder}", "-c", "unseen", "--type", "text")
    assert forced.returncode == 4 and "--type" in forced.stderr, forced


def test_a_project_that_only_the_command_sees_is_imported_and_analyzed(server, hidden):
    done = hidden("project", "import", "{folder}", "--json")
    assert done.returncode == 0, done
    project = json.loads(done.stdout)
    assert (project["name"], project["files"]) == ("seen", 4), project
    done = server.cli("project", "analyze", project["project_id"], "--no-review")
    assert done.returncode == 0 and "finding" in done.stdout, done
