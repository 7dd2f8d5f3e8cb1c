"""Tokens of the API by the command line: made, used, bound to a namespace, revoked while the server runs."""

import json
import os
import stat

from server import wait_for


def make(server, *arguments):
    done = server.cli("tokens", "create", *arguments)
    assert done.returncode == 0, done
    token = done.stdout.strip()
    assert token.startswith("rr_") and token not in done.stderr, done
    return token


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_a_token_does_what_it_is_for_until_it_is_revoked(new_server):
    server = new_server("tokens")
    reader = make(server, "reader", "--scope", "read")
    bound = make(server, "team", "--scope", "read", "--scope", "run", "-n", "team")
    server.start()
    assert server.get("/runs").status == 401
    assert server.get("/runs", headers=bearer(reader)).status == 200
    refused = server.post("/runs", {"task": "x"}, headers=bearer(reader))
    assert refused.status == 403 and refused.json["code"] == "scope_missing", refused
    assert server.post("/runs", {"task": "x", "agent": "react"}, headers=bearer(bound)).status == 202
    refused = server.post("/runs", {"task": "x", "namespace": "other"}, headers=bearer(bound))
    assert refused.status == 403 and refused.json["code"] == "namespace_not_allowed", refused

    # The command line presents the token of the environment.
    assert server.cli("runs", "ls").returncode == 2
    assert server.cli("runs", "ls", "--json", RIVERRUN_API_TOKEN=reader).returncode == 0

    listed = json.loads(server.cli("tokens", "ls", "--json").stdout)["items"]
    assert [entry["name"] for entry in listed] == ["reader", "team"]
    assert server.cli("tokens", "revoke", "reader").returncode == 0
    wait_for(lambda: server.get("/runs", headers=bearer(reader)).status == 401, 20, "the token to be refused")
    assert server.get("/runs", headers=bearer(bound)).status == 200
    refused = server.cli("runs", "ls", RIVERRUN_API_TOKEN=reader)
    assert refused.returncode == 4 and "set RIVERRUN_API_TOKEN to one of its tokens" in refused.stderr, refused

    file = server.folder / "data" / "tokens.json"
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    everything = file.read_text() + server.log_tail(10_000)
    assert reader not in everything and bound not in everything
    audit = [line for line in server.log_tail(10_000).splitlines() if "riverrun::audit" in line]
    assert any("who=\"team\"" in line and "status=202" in line for line in audit), audit
    assert any("who=\"reader\"" in line and "status=403" in line for line in audit), audit


def test_a_bound_token_ingests_where_it_is_bound_whatever_the_server_may_read(new_server, tmp_path):
    server = new_server("bound")
    bound = make(server, "team", "--scope", "read", "--scope", "ingest", "-n", "team")
    server.start()
    (server.folder / "inside.md").write_text("# Winch\n\nA quokka winds the winch.\n")
    (tmp_path / "outside.md").write_text("# Hangar\n\nThe bilby sleeps in the hangar.\n")
    for path in (server.folder / "inside.md", tmp_path / "outside.md"):
        done = server.cli("ingest", str(path), "-c", "notes", "--json", RIVERRUN_API_TOKEN=bound)
        view = json.loads(done.stdout)
        assert done.returncode == 0 and (view["namespace"], view["indexed"]) == ("team", 1), done


def test_what_can_not_be_is_refused_by_name(new_server):
    server = new_server("refused")
    make(server, "ann", "--scope", "read")
    for arguments, code in [
        (["create", "ann", "--scope", "read"], 4),
        (["create", "Ann", "--scope", "read"], 2),
        (["create", "bob", "--scope", "write"], 2),
        (["create", "bob"], 2),
        (["create", "bob", "--scope", "read", "-n", "a__b"], 2),
        (["revoke", "bob"], 4),
    ]:
        done = server.cli("tokens", *arguments)
        assert done.returncode == code, f"{arguments}: {done}"
