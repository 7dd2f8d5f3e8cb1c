"""The brokers that scripts/bench/broker.py measures, each in a process and a folder of its own, and what it does with them.

A broker has a name, the id of its process (none of one elsewhere), `write`, `hops`, `waiting` and `close`; those that can be started again over
a log have `fill`, `kill`, `stop` and `restart`. Times in seconds, sizes in bytes.
"""

import asyncio
import contextlib
import os
import re
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests/interop"))

import apache_kafka  # noqa: E402
import measure  # noqa: E402
from server import free_ports, wait_for  # noqa: E402
from services import Missing  # noqa: E402

START_S = 900
STOP_S = 120
WARM_UP = 20
# JetStream syncs with every write from here on (`sync_interval: always`).
NATS_AT_LEAST = (2, 10)


class Kafka:
    """Whatever speaks Kafka's protocol at an address. `settings` are those of the topics that are made."""

    def __init__(self, name, address, pid=None, settings=None):
        self.name, self.address, self.pid, self.settings = name, address, pid, settings or {}

    def admin(self):
        return AdminClient({"bootstrap.servers": self.address, "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 100, "log_level": 0})

    def topic(self):
        name, admin = f"bench-{uuid.uuid4().hex}", self.admin()
        admin.create_topics([NewTopic(name, 1, 1, config=self.settings)])[name].result(30)
        wait_for(lambda: self.is_led(admin, name), 30, f"a leader of {name}")
        return name

    @staticmethod
    def is_led(admin, topic):
        found = admin.list_topics(timeout=10).topics.get(topic)
        return found is not None and len(found.partitions) == 1 and found.partitions[0].leader >= 0

    def drop(self, topic):
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(60)

    def write(self, size, count):
        """Acknowledged records per second of one client, and the broker's CPU seconds for each, if they can be seen."""
        topic = self.topic()
        producer = self.producer()
        cpu, began = self.cpu_s(), time.perf_counter()
        self.produce(producer, topic, size, count)
        elapsed = time.perf_counter() - began
        used = (self.cpu_s() - cpu) / count if self.pid else None
        with self.reader(topic) as end:
            assert end() == count, f"{self.name}: {end()} of {count} records are there"
        self.drop(topic)
        return count / elapsed, used

    def producer(self, batch_bytes=1_000_000):
        # Everything may be queued at once: the client is not what is measured.
        return Producer({"bootstrap.servers": self.address, "acks": "all", "enable.idempotence": True, "linger.ms": 5,
                         "batch.size": batch_bytes, "message.max.bytes": 2_000_000, "queue.buffering.max.kbytes": 2_097_151,
                         "queue.buffering.max.messages": 10_000_000, "log_level": 0})

    def produce(self, producer, topic, size, count):
        batch = [{"value": b"x" * size} for _ in range(max(1, min(10_000, 10_000_000 // size)))]
        left = count
        while left:
            taken = producer.produce_batch(topic, batch[:left], partition=0)
            assert taken == min(left, len(batch)), f"{self.name}: the client took {taken} records"
            left -= taken
        assert producer.flush(300) == 0, f"{self.name}: not everything is acknowledged"

    @contextlib.contextmanager
    def reader(self, topic, timeout_s=30):
        """A function that asks for the offset of the next record."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": topic, "reconnect.backoff.ms": 5,
                             "reconnect.backoff.max.ms": 10, "log_level": 0})
        try:
            yield lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=timeout_s)[1]
        finally:
            consumer.close()

    def cpu_s(self):
        return measure.cpu_s(self.pid) if self.pid else None

    def hops(self, count):
        """Seconds from produce() of each record to its consumer."""
        topic = self.topic()
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": topic, "enable.auto.commit": False,
                             "fetch.wait.max.ms": 500})
        consumer.assign([TopicPartition(topic, 0, 0)])
        producer = Producer({"bootstrap.servers": self.address, "acks": "all", "linger.ms": 0})
        times = []
        for _ in range(count + WARM_UP):
            began = time.perf_counter()
            producer.produce(topic, b"x" * 100, partition=0)
            producer.poll(0)
            record = consumer.poll(20)
            assert record is not None and record.error() is None, f"{self.name}: no record came back: {record and record.error()}"
            times.append(time.perf_counter() - began)
        assert producer.flush(30) == 0
        consumer.close()
        self.drop(topic)
        return times[WARM_UP:]

    def waiting(self, count, seconds):
        """CPU share and memory of the broker while consumers wait for records, and how long the last one waits for one."""
        topic = self.topic()
        waiters = Waiters(self.address, topic, count)
        waiters.serve(5)  # until the connections are quiet
        memory = measure.memory_bytes(self.pid) if self.pid else None
        cpu = self.cpu_s()
        waiters.serve(seconds)
        idle = {"cpu_share": (self.cpu_s() - cpu) / seconds, "memory_bytes": memory} if self.pid else {}
        producer = Producer({"bootstrap.servers": self.address, "acks": "all", "linger.ms": 0})
        began = time.perf_counter()
        producer.produce(topic, b"x", partition=0)
        producer.flush(30)
        waiters.serve(60)
        idle["all_told_s"] = time.perf_counter() - began
        assert not waiters.without, f"{self.name}: {len(waiters.without)} consumers got nothing"
        waiters.close()
        self.drop(topic)
        return idle

    def close(self):
        pass


# A topic was just made, and the broker is not yet at its partition.
NOT_LEADER = 6


class Waiters:
    """Consumers that wait for the first record, as bare connections: a client library for each would need more of the machine than the broker."""

    def __init__(self, address, topic, count):
        name = topic.encode()
        name = struct.pack(">h", len(name)) + name
        # Fetch 4 of offset 0: held for up to 60 s for a first byte.
        asked = struct.pack(">iiiib", -1, 60_000, 1, 1 << 20, 0) + struct.pack(">i", 1) + name + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
        frame = struct.pack(">hhih", 1, 4, 7, 5) + b"bench" + asked
        self.request = struct.pack(">i", len(frame)) + frame
        self.error_at = 4 + 4 + 4 + len(name) + 4 + 4
        # Error, two offsets, no aborted transactions, no bytes of records.
        self.empty = self.error_at + 2 + 8 + 8 + 4 + 4
        self.selector, self.without = selectors.DefaultSelector(), set()
        host, port = address.rsplit(":", 1)
        for _ in range(count):
            one = socket.create_connection((host, int(port)), timeout=20)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.sendall(self.request)
            self.selector.register(one, selectors.EVENT_READ, bytearray())
            self.without.add(one)

    def serve(self, seconds):
        """Asks again after every answer without records, for so many seconds or until everyone has one."""
        deadline = time.monotonic() + seconds
        while self.without and (left := deadline - time.monotonic()) > 0:
            for key, _ in self.selector.select(left):
                chunk = key.fileobj.recv(1 << 16)
                assert chunk, "the broker closed the connection of a consumer"
                key.data.extend(chunk)
                self.take(key.fileobj, key.data)

    def take(self, one, buffer):
        """Answers that are whole."""
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
            answer = bytes(buffer[4:4 + size])
            del buffer[:4 + size]
            [error] = struct.unpack_from(">h", answer, self.error_at)
            assert error in (0, NOT_LEADER), f"a consumer was told error {error}"
            if error == 0 and size > self.empty:
                self.without.discard(one)
            else:
                one.sendall(self.request)

    def close(self):
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


class Restartable(Kafka):
    """A Kafka in a process of our own, which can be killed and started again over what it holds."""

    def __init__(self, name, address, settings=None):
        super().__init__(name, address, settings=settings)
        self.process = None

    def command(self):
        raise NotImplementedError

    def spawn(self):
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        self.pid = self.process.pid

    def until(self, holds, what):
        """Seconds until it is so; an error of the client is a no."""
        began = time.perf_counter()

        def asked():
            assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}"
            try:
                return holds()
            except KafkaException:
                return False
        wait_for(asked, START_S, f"{self.name} {what}", every_s=0.005)
        return time.perf_counter() - began

    def start(self):
        self.spawn()
        admin = self.admin()
        try:
            self.until(lambda: admin.list_topics(timeout=1).brokers, "to answer")
        except BaseException:
            self.close()
            raise
        return self

    def fill(self, gigabytes):
        """Writes a log of this size, of records of 1 KB in batches of 64 KB, for each of which an index has an entry; its topic and its end."""
        topic, producer, part = self.topic(), self.producer(64_000), 100_000
        end = max(1, round(gigabytes * 1_000_000 / part)) * part
        for _ in range(end // part):
            self.produce(producer, topic, 1_000, part)
        return topic, end

    def restart(self, topic, end):
        """Seconds after a start until it tells where the log ends."""
        self.spawn()
        with self.reader(topic, 1) as told:
            return self.until(lambda: told() == end, "to tell the end of its log")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it as its users do."""
        self.process.send_signal(self.ends_by)
        self.process.wait(STOP_S)

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()


class Ours(Restartable):
    """The broker of this repository by itself: the example of its crate."""

    ends_by = signal.SIGINT

    def __init__(self, program, folder, name="riverrun"):
        super().__init__(name, f"127.0.0.1:{free_ports(1)[0]}")
        self.program, self.folder = program, folder

    def command(self):
        return [self.program, self.address, str(self.folder)]


class ApacheKafka(Restartable):
    """Apache Kafka of one node, set up as its distribution does but for the internal topics, of which a node alone has few. It acknowledges
    before it syncs."""

    ends_by = signal.SIGTERM

    def __init__(self, folder):
        if not apache_kafka.folder().is_dir():
            raise Missing("./x interop --kafka gets it")
        node = apache_kafka.Kafka(folder)
        super().__init__(f"Apache Kafka {apache_kafka.KAFKA_VERSION}", node.address)
        self.properties = folder / "server.properties"
        # The node of the tests is to be small.
        text = self.properties.read_text().replace("num.network.threads=2", "num.network.threads=3").replace("num.io.threads=2", "num.io.threads=8")
        self.properties.write_text(text + "log.segment.delete.delay.ms=1000\nnum.recovery.threads.per.data.dir=2\n")
        self.java = [apache_kafka.java(), "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", f"-Dlog4j2.configurationFile={folder}/log4j2.xml", "-cp",
                     apache_kafka.class_path()]
        subprocess.run([*self.java, "kafka.tools.StorageTool", "format", "-t", "cmlvZXJydW4tYmVuY2gtMQ", "-c", str(self.properties)],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)

    def command(self):
        return [*self.java, "kafka.Kafka", str(self.properties)]

    def syncing(self):
        """The same node with topics that are synced with every batch."""
        return Kafka(f"{self.name}, flush.messages=1", self.address, self.pid, {"flush.messages": "1"})


class Nats:
    """JetStream on files, synced with every write, with its Python client, which is a part of the figures."""

    name = "NATS JetStream, sync_interval always"

    def __init__(self, program, folder):
        [self.port] = free_ports(1)
        settings = folder / "nats.conf"
        settings.write_text(f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{folder}/data", sync_interval: always }}\n')
        self.process = subprocess.Popen([program, "-c", str(settings)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.pid = self.process.pid
        measure.until(lambda: self.accepts(), 30)

    @staticmethod
    def find(wanted):
        """The program, where it is new enough."""
        for program in filter(None, [wanted, shutil.which("nats-server"), str(Path.home() / "go/bin/nats-server")]):
            if not os.access(program, os.X_OK):
                continue
            told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
            version = re.search(r"v(\d+)\.(\d+)", told)
            if version and tuple(map(int, version.groups())) >= NATS_AT_LEAST:
                return program
        raise Missing("it syncs with every write from 2.10 on; go install github.com/nats-io/nats-server/v2@v2.15.2")

    def accepts(self):
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def cpu_s(self):
        return measure.cpu_s(self.pid)

    def on_stream(self, work):
        async def run():
            import nats
            client = await nats.connect(f"nats://127.0.0.1:{self.port}")
            stream = client.jetstream(timeout=60, publish_async_max_pending=4_000)
            await stream.add_stream(name="bench", subjects=["bench.>"], storage="file")
            try:
                return await work(stream)
            finally:
                await stream.delete_stream("bench")
                await client.close()
        return asyncio.run(run())

    def write(self, size, count):
        # Every record is synced by itself: as many as the others write would take too long.
        count = max(100, count // 100)

        async def work(stream):
            body = b"x" * size
            cpu, began = self.cpu_s(), time.perf_counter()
            left = count
            while left:
                batch = min(left, 500)
                await asyncio.gather(*[stream.publish("bench.x", body) for _ in range(batch)])
                left -= batch
            return count / (time.perf_counter() - began), (self.cpu_s() - cpu) / count
        return self.on_stream(work)

    def hops(self, count):
        async def work(stream):
            reader = await stream.subscribe("bench.x", ordered_consumer=True)
            times = []
            for _ in range(count + WARM_UP):
                began = time.perf_counter()
                await stream.publish("bench.x", b"x" * 100)
                await reader.next_msg(timeout=20)
                times.append(time.perf_counter() - began)
            return times[WARM_UP:]
        return self.on_stream(work)

    def waiting(self, count, seconds):
        async def work(stream):
            readers = [await stream.subscribe("bench.x", ordered_consumer=True) for _ in range(count)]
            await asyncio.sleep(5)
            cpu = self.cpu_s()
            await asyncio.sleep(seconds)
            idle = {"cpu_share": (self.cpu_s() - cpu) / seconds, "memory_bytes": measure.memory_bytes(self.pid)}
            began = time.perf_counter()
            await stream.publish("bench.x", b"x")
            await asyncio.gather(*[reader.next_msg(timeout=60) for reader in readers])
            idle["all_told_s"] = time.perf_counter() - began
            return idle
        return self.on_stream(work)

    def close(self):
        self.process.terminate()
        self.process.wait(STOP_S)
