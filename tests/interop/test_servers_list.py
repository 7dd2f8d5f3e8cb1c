"""What is left out with servers (`./x interop --servers`) is there, and nothing is left out twice."""

import ast
from pathlib import Path

import servers
from kafka_nodes import Nodes

HERE = Path(__file__).parent


def test_given_the_list_of_what_presupposes_embedded_parts_then_each_file_and_test_is_there_once():
    for name, why in servers.PRESUPPOSE_EMBEDDED.items():
        file, _, test = name.partition("::")
        path = HERE / f"{file}.py"
        assert path.is_file() and why, name
        known = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
        assert not test or test.partition("[")[0] in known, f"{file} has no {test}"
        assert not test or file not in servers.PRESUPPOSE_EMBEDDED, f"{name} is left out with its whole file"


def test_given_a_test_that_is_listed_or_whose_file_is_then_its_reason_is_told_and_of_no_other():
    listed = [name.split("::") for name in servers.PRESUPPOSE_EMBEDDED if "::" in name]
    whole = [name for name in servers.PRESUPPOSE_EMBEDDED if "::" not in name]
    assert all(servers.presupposes_embedded(file, test) for file, test in listed)
    assert all(servers.presupposes_embedded(file, "test_anything[of it]") for file in whole)
    assert servers.presupposes_embedded("test_idle", "test_given_groups_when_their_lag_is_asked_for_then_no_client_is_made_for_it[x]")
    assert servers.presupposes_embedded("test_conformance", "test_it_is_as_promised[setting.agent-temperature]") is None
    assert servers.presupposes_embedded("test_runs", "test_anything") is None


def test_given_settings_that_are_not_wanted_then_nothing_is_lent(monkeypatch):
    monkeypatch.setattr(servers, "wanted", False)
    assert servers.settings_of(None) == {}


class Node:
    """A node that says what was done to it."""

    made = []

    def __init__(self, breaks=False):
        self.address, self.emptied, self.ended, self.breaks = f"127.0.0.1:{len(Node.made)}", 0, False, breaks
        Node.made.append(self)

    def empty(self):
        self.emptied += 1
        if self.breaks:
            raise RuntimeError("a group has members")

    def stop(self):
        self.ended = True


def test_given_nodes_of_kafka_when_servers_come_and_go_then_two_never_share_one_and_the_next_has_it_empty():
    Node.made = []
    nodes = Nodes(Node)
    first, second = nodes.lend("a"), nodes.lend("b")
    assert first != second and [node.emptied for node in Node.made] == [0, 0], "those that are new are empty"
    nodes.give_back("a")
    nodes.give_back("a")
    assert nodes.lend("c") == first and Node.made[0].emptied == 1
    assert nodes.lend("d") not in (first, second) and len(Node.made) == 3
    nodes.stop()
    assert all(node.ended for node in Node.made)


def test_given_a_node_of_kafka_that_can_not_be_emptied_when_the_next_server_comes_then_it_has_another():
    Node.made = []
    nodes = Nodes(Node)
    nodes.lend("a")
    Node.made[0].breaks = True
    nodes.give_back("a")
    assert nodes.lend("b") == Node.made[1].address and Node.made[0].ended and not Node.made[1].ended
