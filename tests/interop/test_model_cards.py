"""A model is measured: its card is an event that outlives the process, is shown, and counts for the supervisor."""

import json

from server import wait_for


def shown(server, *more):
    done = server.cli("models", "show", "stub", "--provider", "ollama", *more)
    assert done.returncode == 0, done
    return json.loads(done.stdout) if "--json" in more else done.stdout


def test_a_card_is_an_event_and_there_after_a_kill_and_without_the_read_model(new_server):
    server = new_server().start()
    assert shown(server, "--json")["cards"] == [] and "riverrun models probe" in shown(server)
    done = server.cli("models", "probe", "stub", "--provider", "ollama", "--json")
    assert done.returncode == 0, done
    card = json.loads(done.stdout)
    assert (card["provider"], card["model"], card["questions"]) == ("ollama", "stub", 4), card
    assert (card["valid_json"], card["context_tokens"]) == (0, 8192) and card["machine"], card
    assert shown(server, "--json")["cards"] == [card]
    assert f"valid JSON: {card['valid_json']} of 4" in shown(server)
    events = server.cli("topics", "--json").stdout
    assert "ModelProbed" in events, events

    server.kill()
    for file in (server.folder / "data").glob("read.db*"):
        file.unlink()
    server.start()
    wait_for(lambda: shown(server, "--json")["cards"] == [card], 60, "the card to be made again from the log")
    again = json.loads(server.cli("models", "probe", "ollama/stub", "--json").stdout)
    assert again["measured_at"] > card["measured_at"]
    assert server.get("/models/cards").json["items"] == [again], "the last one counts"


def test_a_command_without_a_server_keeps_a_card_too(new_server):
    server = new_server("alone")
    done = server.cli("models", "probe", "stub", "--json")
    assert done.returncode == 0, done
    assert shown(server, "--json")["cards"] == [json.loads(done.stdout)]


def test_what_can_not_be_measured_has_no_card_and_says_the_fix(new_server):
    server = new_server("none")
    missing = server.cli("models", "probe", "local/nobody-has-this")
    assert missing.returncode == 3 and "hint:" in missing.stderr, missing
    unknown = server.cli("models", "show", "nobody-has-this")
    assert unknown.returncode != 0 and "riverrun models" in unknown.stderr, unknown
