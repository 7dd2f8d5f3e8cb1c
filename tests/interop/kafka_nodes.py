"""Apache Kafka for the servers of the tests (`./x interop --servers`). Topics and groups have fixed names, so two logs are two nodes: a server has
one to itself, and the next server has it empty. A process of tests so has as many nodes as it has servers at a time, which are two or three."""

import selectors
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/apache_kafka.py"
START_S, ASK_S = 180, 20
LEAVE_GROUP, CLIENT_ID = 13, b"riverrun-tests"


class Node:
    """A node of its own process, which ends with its standard input: also when whoever runs the tests is killed."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, SCRIPT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.address = self.told("RIVERRUN_TEST_KAFKA=")
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def told(self, prefix):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline().decode().strip() if selector.select(START_S) else ""
        if not line.startswith(prefix):
            self.stop()
            raise RuntimeError(f"scripts/apache_kafka.py said {line!r} instead of {prefix}…: it says why on stderr")
        return line.removeprefix(prefix)

    def empty(self):
        """Takes away every topic and every group, members that nobody missed yet included."""
        groups = [group.group_id for group in self.admin.list_consumer_groups().result(ASK_S).valid]
        for group in groups:
            members = self.admin.describe_consumer_groups([group])[group].result(ASK_S).members
            if members:
                self.leave(group, [(member.member_id, member.group_instance_id) for member in members])
        for group, deleted in (self.admin.delete_consumer_groups(groups) if groups else {}).items():
            settled(deleted, KafkaError.GROUP_ID_NOT_FOUND)
        topics = self.topics()
        for topic, deleted in (self.admin.delete_topics(topics, operation_timeout=ASK_S) if topics else {}).items():
            settled(deleted, KafkaError.UNKNOWN_TOPIC_OR_PART)
        deadline = time.monotonic() + ASK_S
        while left := self.topics():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{left} are there {ASK_S} s after they were deleted")
            time.sleep(0.05)

    def topics(self):
        return [name for name in self.admin.list_topics(timeout=ASK_S).topics if not name.startswith("__")]

    def leave(self, group, members):
        """LeaveGroup, version 3: a static member that was stopped keeps its place for a while, and so does one that was killed."""
        body = text(group) + struct.pack(">i", len(members)) + b"".join(text(member) + text(instance) for member, instance in members)
        sent = struct.pack(">hhi", LEAVE_GROUP, 3, 1) + text(CLIENT_ID.decode()) + body
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=ASK_S) as connection:
            connection.sendall(struct.pack(">i", len(sent)) + sent)
            with connection.makefile("rb") as answers:
                size, = struct.unpack(">i", answers.read(4))
                answer = answers.read(size)
        code, = struct.unpack(">h", answer[8:10])  # behind the number of the request and the throttling
        if code:
            raise RuntimeError(f"LeaveGroup of {group} was answered with error {code}")

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def text(value):
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def settled(future, *harmless):
    """Waits for the answer; that it is gone already is one."""
    try:
        future.result(ASK_S)
    except KafkaException as error:
        if error.args[0].code() not in harmless:
            raise


class Nodes:
    """The nodes of a process of tests, and who has which."""

    def __init__(self, make=Node):
        self.make, self.free, self.lent = make, [], {}

    def lend(self, owner):
        """The address of an empty node, which the owner has until it is given back."""
        node = self.emptied()
        self.lent[owner] = node
        return node.address

    def emptied(self):
        while self.free:
            node = self.free.pop()
            try:
                node.empty()
                return node
            except (KafkaException, OSError, RuntimeError, TimeoutError) as error:
                print(f"a node of Kafka that can't be emptied is replaced: {error}", file=sys.stderr)
                node.stop()
        return self.make()

    def give_back(self, owner):
        if node := self.lent.pop(owner, None):
            self.free.append(node)

    def stop(self):
        for node in [*self.free, *self.lent.values()]:
            node.stop()
        self.free, self.lent = [], {}
