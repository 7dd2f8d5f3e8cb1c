"""The bare peers: each a process of its own, in a folder of its own, or a floor that nothing durable can be under."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from measure import cpu_s, until


def floor(folder, size=512, count=400, laid_out=False):
    """Append, or overwrite what has been laid out before, and fdatasync: seconds each."""
    samples = []
    descriptor = os.open(folder / "floor", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if laid_out:
            os.write(descriptor, bytes(size * count))
            os.fsync(descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
        for _ in range(count):
            began = time.perf_counter()
            os.write(descriptor, b"x" * size)
            os.fdatasync(descriptor)
            samples.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
    return samples


def accepts(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """A server program; `None` from `find` where it is not installed."""

    program = ""

    @classmethod
    def find(cls, folder, port):
        return cls(folder, port) if shutil.which(cls.program) else None

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        folder.mkdir(parents=True, exist_ok=True)
        self.process = None

    def command(self):
        raise NotImplementedError

    def start(self):
        """Starts it; seconds until it accepts connections."""
        self.process = subprocess.Popen(self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        return until(lambda: accepts(self.port))

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)


class Redis(Process):
    """Streams, with every append synced to the disk before its acknowledgement."""

    program = "redis-server"
    name = "Redis Streams, appendfsync always"

    def command(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                "--appendonly", "yes", "--appendfsync", "always"]

    def hops(self, count, body):
        import redis
        writer, reader = redis.Redis(port=self.port), redis.Redis(port=self.port)
        # The round before has left one; the others begin with an empty stream, too.
        writer.delete("hops")
        last, samples = "0", []
        for _ in range(count):
            began = time.perf_counter()
            last_written = writer.xadd("hops", {"v": body})
            reader.xread({"hops": last}, count=1, block=5000)
            samples.append(time.perf_counter() - began)
            last = last_written
        return samples

    def rate(self, count, body, batch=500):
        import redis
        client = redis.Redis(port=self.port)
        client.delete("rate")
        began = time.perf_counter()
        for _ in range(count // batch):
            pipeline = client.pipeline(transaction=False)
            for _ in range(batch):
                pipeline.xadd("rate", {"v": body})
            pipeline.execute()
        return count / (time.perf_counter() - began)


class Nats(Process):
    """JetStream on files, as it is set up by default: it acknowledges before it syncs."""

    program = "nats-server"
    name = "NATS JetStream, file, default sync (every 2 min)"

    def command(self):
        return ["nats-server", "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]

    def hops(self, count, body):
        return asyncio.run(self._hops(count, body))

    async def _hops(self, count, body):
        import nats
        client = await nats.connect(f"nats://127.0.0.1:{self.port}")
        stream = client.jetstream()
        await stream.add_stream(name="hops", subjects=["hops.>"], storage="file")
        reader = await stream.subscribe("hops.x", ordered_consumer=True)
        samples = []
        for _ in range(count):
            began = time.perf_counter()
            await stream.publish("hops.x", body)
            await reader.next_msg(timeout=5)
            samples.append(time.perf_counter() - began)
        await stream.delete_stream("hops")
        await client.close()
        return samples

    def rate(self, count, body):
        return asyncio.run(self._rate(count, body))

    async def _rate(self, count, body, batch=500):
        import nats
        client = await nats.connect(f"nats://127.0.0.1:{self.port}")
        stream = client.jetstream(publish_async_max_pending=4000)
        await stream.add_stream(name="rate", subjects=["rate.>"], storage="file")
        began = time.perf_counter()
        for _ in range(count // batch):
            await asyncio.gather(*[stream.publish("rate.x", body) for _ in range(batch)])
        elapsed = time.perf_counter() - began
        await stream.delete_stream("rate")
        await client.close()
        return count / elapsed


class Hello:
    """A bare axum server, and the program that asks it and ours."""

    CONNECTIONS = 16

    def __init__(self, program, port):
        self.program, self.port, self.process = program, port, None

    @classmethod
    def at(cls, program, port):
        return cls(program, port) if program.exists() else None

    def start(self):
        self.process = subprocess.Popen([self.program, "serve", f"127.0.0.1:{self.port}"], stdin=subprocess.DEVNULL)
        return until(lambda: accepts(self.port))

    def stop(self):
        self.process.terminate()
        self.process.wait(20)

    def ask(self, port, path, pid, seconds):
        """Rate and time of requests, and what each took of the CPU of the process that answers."""
        before = cpu_s(pid)
        done = subprocess.run([self.program, "ask", f"127.0.0.1:{port}", path, str(self.CONNECTIONS), str(seconds)],
                              capture_output=True, text=True, timeout=seconds + 60, check=True)
        found = json.loads(done.stdout)
        return {"per_s": found["requests"] / found["seconds"], "cpu_s": (cpu_s(pid) - before) / found["requests"],
                "p50_s": found["p50_s"], "p99_s": found["p99_s"]}


def records(server):
    """How many records the topics of a server have had."""
    page = server.get("/metrics").body.decode()
    return sum(float(value) for value in re.findall(r'^riverrun_broker_log_end_offset{[^}]*topic="riverrun\.[^}]*} (\S+)$', page, re.MULTILINE))


class Embedded:
    """riverrun's embedded broker, with the stock client of Kafka's own users; it syncs before it acknowledges."""

    name = "riverrun, embedded broker, acks=all after fsync"

    def __init__(self, server):
        self.server = server

    def _topic(self, name):
        from confluent_kafka.admin import AdminClient, NewTopic
        admin = AdminClient({"bootstrap.servers": self.server.brokers})
        if name in admin.list_topics(timeout=10).topics:
            for done in admin.delete_topics([name]).values():
                done.result(10)
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)

    def _producer(self, linger_ms):
        from confluent_kafka import Producer
        return Producer({"bootstrap.servers": self.server.brokers, "acks": "all", "enable.idempotence": True,
                         "linger.ms": linger_ms, "queue.buffering.max.messages": 1_000_000})

    def hops(self, count, body):
        from confluent_kafka import Consumer, TopicPartition
        self._topic("bench.hops")
        reader = Consumer({"bootstrap.servers": self.server.brokers, "group.id": "bench", "fetch.wait.max.ms": 500,
                           "enable.auto.commit": False})
        reader.assign([TopicPartition("bench.hops", 0, 0)])
        producer, samples = self._producer(0), []
        for number in range(count + 20):
            began = time.perf_counter()
            producer.produce("bench.hops", body)
            producer.flush(10)
            record = reader.poll(10)
            if record is None or record.error():
                raise RuntimeError(f"no record came back: {record and record.error()}")
            # The first ones find the way to the broker.
            if number >= 20:
                samples.append(time.perf_counter() - began)
        reader.close()
        return samples

    def rate(self, count, body):
        self._topic("bench.rate")
        producer = self._producer(5)
        failed = []
        began = time.perf_counter()
        for _ in range(count):
            producer.produce("bench.rate", body, on_delivery=lambda error, _: error and failed.append(error))
        if producer.flush(60) or failed:
            raise RuntimeError(f"not everything was acknowledged: {failed[:1]}")
        return count / (time.perf_counter() - began)
