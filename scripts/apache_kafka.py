#!/usr/bin/env python3
"""A real Apache Kafka of one node (KRaft) for comparisons, and its Java client and console tools, fetched by Maven once into
~/.cache/riverrun/kafka-VERSION.

    scripts/apache_kafka.py                 starts a node on a free port of 127.0.0.1, prints `RIVERRUN_TEST_KAFKA=address` and
                                     `ready`; ends it on SIGTERM, SIGINT or the end of standard input
    scripts/apache_kafka.py --secured FOLDER
                                     the same with TLS, passwords and an authorizer that lets nobody in without a rule: FOLDER gets
                                     `ca.pem` and `admin.properties`; users and passwords are those of USERS
    scripts/apache_kafka.py --class-path    prints the class path of its tools, for `java -cp`

Needs `java` 17 or newer and `mvn` (apt-get install openjdk-17-jre-headless maven); the version is KAFKA_VERSION.
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from services import Missing, free_port, until_told

KAFKA_VERSION = "4.1.0"
START_S = 90
STOP_S = 20
FETCH_S = 900
# What the tools and a broker need, and nothing of Connect or Streams beyond what those ask for themselves.
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>riverrun</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version></dependency>
  </dependencies>
</project>
"""
# A node keeps nothing that anybody needs: little memory, few threads, small internal topics.
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable={auto_create}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=2
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304
"""
# In front of the same node: nobody is let in without a password, and nobody to anything without a rule. The controller's own connections
# are nobody's, on a port that no client is told.
SECURED = """listeners=SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=SASL_SSL://127.0.0.1:{port}
listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=SASL_SSL
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={login}
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
"""
ADMIN = """security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={login}
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
"""
# Of a node that lives as long as a test; the names but the first are those of docs/security.md.
USERS = {"admin": "admin-secret", "riverrun": "correct horse", "dashboard": "battery", "tools": "staple"}
LOGGING = """<Configuration><Appenders><Console name="out"><PatternLayout pattern="%d %p %c{1} %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


def cache():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "riverrun"


def java():
    return shutil.which("java") or missing("apt-get install openjdk-17-jre-headless")


def missing(fix):
    raise Missing(fix)


def folder():
    """Where Kafka's jars are, or will be."""
    return cache() / f"kafka-{KAFKA_VERSION}"


def libraries():
    """The folder with Kafka's jars; they are fetched if it is not there."""
    kept = folder()
    if kept.is_dir():
        return kept
    maven = shutil.which("mvn") or missing("apt-get install maven")
    print(f"fetching Apache Kafka {KAFKA_VERSION}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="riverrun-kafka-") as scratch:
        (Path(scratch) / "pom.xml").write_text(POM)
        fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
        done = subprocess.run([maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"], cwd=scratch,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_S,
                              check=False)
    if done.returncode:
        shutil.rmtree(fresh, ignore_errors=True)
        raise Missing(f"Maven does not get Apache Kafka {KAFKA_VERSION}: {done.stdout[-600:]}")
    fresh.rename(kept)
    return kept


def class_path():
    return f"{libraries()}/*"


def login(name):
    return f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{name}" password="{USERS[name]}";'


def certify(folder):
    """An authority in `ca.pem`, and the node's key with what that authority says of it in `server.pem`."""
    openssl = shutil.which("openssl") or missing("apt-get install openssl")

    def run(*words):
        subprocess.run([openssl, *words], cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_S)
    days = ("-days", "2")
    run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=riverrun tests", *days)
    run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.crt", "-extfile", "names", *days)
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())


class Kafka:
    """A node in `folder`; `stop` ends it by its process id."""

    def __init__(self, folder, auto_create=False, secured=False):
        self.folder = Path(folder)
        self.port, self.controller = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        settings = PROPERTIES.format(port=self.port, controller=self.controller, data=self.folder / "data", auto_create=str(auto_create).lower())
        if secured:
            # Of a setting that is there twice, the last counts.
            settings += SECURED.format(port=self.port, controller=self.controller, folder=self.folder, login=login("admin"))
            certify(self.folder)
            (self.folder / "admin.properties").write_text(ADMIN.format(folder=self.folder, login=login("admin")))
        self.users = [f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in USERS.items()] if secured else []
        (self.folder / "server.properties").write_text(settings)
        (self.folder / "log4j2.xml").write_text(LOGGING)
        self.command = [java(), "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                        f"-Dlog4j2.configurationFile={self.folder}/log4j2.xml", "-cp", class_path()]
        self.process = None

    def start(self):
        properties = str(self.folder / "server.properties")
        users = [word for user in self.users for word in ("--add-scram", user)]
        subprocess.run([*self.command, "kafka.tools.StorageTool", "format", "-t", "cmlvZXJydW4tdGVzdHMtMQ", "-c", properties, *users],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=START_S)
        with open(self.folder / "kafka.log", "ab") as log:
            self.process = subprocess.Popen([*self.command, "kafka.Kafka", properties], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_S
        # The port is open before the node has registered; a client's own question tells.
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Kafka does not answer: {(self.folder / 'kafka.log').read_text(errors='replace')[-1200:]}")
            time.sleep(0.2)
        return self

    def answers(self):
        """Whether it has an answer to ApiVersions version 0, by hand: this file needs no client."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as plain, self.behind_tls(plain) as one:
                one.sendall(bytes.fromhex("0000000a" "0012" "0000" "00000001" "ffff"))
                return len(one.recv(4)) == 4
        except OSError:
            return False

    def behind_tls(self, plain):
        if not self.users:
            return plain
        return ssl.create_default_context(cafile=self.folder / "ca.pem").wrap_socket(plain, server_hostname="127.0.0.1")

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--class-path", action="store_true", help="print the class path and end")
    parser.add_argument("--auto-create", action="store_true", help="topics are made by being asked for")
    parser.add_argument("--secured", type=Path, metavar="FOLDER", help="with TLS, passwords and an authorizer; everything lies in that folder, which is there and empty")
    options = parser.parse_args()
    try:
        java()
        if options.class_path:
            print(class_path())
            return
        with contextlib.ExitStack() as kept:
            folder = options.secured or kept.enter_context(tempfile.TemporaryDirectory(prefix="riverrun-kafka-", ignore_cleanup_errors=True))
            node = Kafka(Path(folder).resolve(), options.auto_create, secured=options.secured is not None)
            try:
                print(f"RIVERRUN_TEST_KAFKA={node.start().address}", flush=True)
                until_told()
            finally:
                node.stop()
    except Missing as error:
        sys.exit(f"error: Apache Kafka is not there\n\nhint: {error}")


if __name__ == "__main__":
    main()
