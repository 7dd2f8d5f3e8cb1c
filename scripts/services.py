#!/usr/bin/env python3
"""Starts the real services that the tests are run against a second time, as far as this machine has them, each on a free
port with its data in a temporary folder. Prints a line `NAME=address` for each that answers, then a line `ready`; what is
not installed is told on stderr with the fix. Ends them, by process id, on SIGTERM, SIGINT or the end of standard input.

    scripts/services.py [postgres] [mysql] [redis] [mongodb] [s3] [vectors]      all of them without a name

There is no program of Qdrant in any package registry: `vectors` is scripts/qdrant_wire.py, which speaks its definitions and is not it.
"""

import importlib.util
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PATIENCE_S = 60
STOP_S = 10
# Those of the suite of caches.
CERTIFICATES = Path(__file__).resolve().parent.parent / "stores/tests/data"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def program(name, *more_folders):
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, more_folders)]))


class Missing(Exception):
    """A service is not installed; the text is the fix."""


class Services:
    def __init__(self, folder):
        self.folder, self.running = folder, []

    def start(self, command, port, name, ends_by=signal.SIGTERM, **more):
        log = open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **more)
        self.running.append((process, ends_by))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}: {self.tail(name)}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{name} does not listen on {port} after {PATIENCE_S} s: {self.tail(name)}") from None
                time.sleep(0.05)

    def tail(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")[-800:]

    def data(self, name):
        folder = self.folder / name
        folder.mkdir()
        return folder

    def stop(self):
        for process, ends_by in self.running:
            if process.poll() is None:
                process.send_signal(ends_by)
        deadline = time.monotonic() + STOP_S
        for process, _ in self.running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
                process.wait()

    def hand_over(self, data, user):
        """Gives a data folder to the user of a server that refuses to run as root; whether that was needed."""
        if os.getuid() != 0:
            return False
        try:
            owner = pwd.getpwnam(user)
        except KeyError:
            raise Missing(f"make a user {user}: it does not run as root") from None
        os.chmod(self.folder, 0o711)
        os.chown(data, owner.pw_uid, owner.pw_gid)
        return True

    def postgres(self):
        binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        initdb, server = (program(name, *binaries) for name in ("initdb", "postgres"))
        if not (initdb and server):
            raise Missing("apt-get install postgresql")
        data, port, more = self.data("postgres"), free_port(), {}
        if self.hand_over(data, "postgres"):
            more = {"user": "postgres", "group": "postgres", "extra_groups": [], "cwd": data}
        subprocess.run([initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"], check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C.UTF-8"}, **more)
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": data, "fsync": "off", "max_connections": "300"}
        flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
        # SIGTERM would wait for clients.
        self.start([server, "-D", data, "-p", str(port), *flags], port, "postgres-log", signal.SIGINT, **more)
        return {"RIVERRUN_TEST_DATABASE_URL": f"postgres://postgres@127.0.0.1:{port}/postgres"}

    def mysql(self):
        installer, server = (program(name, "/usr/bin", "/usr/sbin") for name in ("mariadb-install-db", "mariadbd"))
        if not (installer and server):
            raise Missing("apt-get install mariadb-server")
        data, port, more = self.data("mysql"), free_port(), []
        first = data.with_suffix(".sql")
        first.write_text("CREATE DATABASE riverrun;\nCREATE USER 'riverrun'@'127.0.0.1';\nGRANT ALL ON riverrun.* TO 'riverrun'@'127.0.0.1';\n")
        if self.hand_over(data, "mysql"):
            more = ["--user=mysql"]
        place = ["--no-defaults", f"--datadir={data}", *more]
        subprocess.run([installer, *place, "--auth-root-authentication-method=normal", "--skip-test-db"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        options = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={data}/socket", f"--pid-file={data}/pid", "--skip-name-resolve",
                   "--innodb-flush-log-at-trx-commit=0", f"--init-file={first}"]
        self.start([server, *place, *options], port, "mysql-log")
        return {"RIVERRUN_TEST_MYSQL_URL": f"mysql://riverrun@127.0.0.1:{port}/riverrun"}

    def redis(self):
        server = program("redis-server") or missing("apt-get install redis-server")
        port, tls_port = free_port(), free_port()
        tls = ["--tls-port", str(tls_port), "--tls-auth-clients", "no", "--tls-cert-file", CERTIFICATES / "server.pem",
               "--tls-key-file", CERTIFICATES / "server-key.pem", "--tls-ca-cert-file", CERTIFICATES / "ca.pem"]
        self.start([server, "--port", str(port), "--bind", "127.0.0.1", "--dir", self.data("redis"), "--save", "", "--databases", "64", *tls], port, "redis-log")
        return {"RIVERRUN_TEST_REDIS_URL": f"redis://127.0.0.1:{port}", "RIVERRUN_TEST_REDIS_TLS_URL": f"rediss://127.0.0.1:{tls_port}"}

    def mongodb(self):
        server = program("secantusd-py") or missing("pip install --pre secantusdb==0.7.0b3")
        port = free_port()
        self.start([server, "--host", "127.0.0.1", "--port", str(port), "--storage-path", self.data("mongodb")], port, "mongodb-log")
        return {"RIVERRUN_TEST_MONGODB_URL": f"mongodb://127.0.0.1:{port}/?directConnection=true"}

    def s3(self):
        server = program("moto_server") or missing("pip install 'moto[s3,server]'")
        port = free_port()
        self.start([server, "-H", "127.0.0.1", "-p", str(port)], port, "s3-log")
        # It takes any request to make a bucket, signed or not.
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/riverrun-test", method="PUT"), timeout=PATIENCE_S).close()
        return {"RIVERRUN_TEST_S3_ENDPOINT": f"http://127.0.0.1:{port}"}

    def vectors(self):
        if not importlib.util.find_spec("qdrant_client"):
            raise Missing("pip install qdrant-client==1.20.0")
        port = free_port()
        self.start([sys.executable, Path(__file__).with_name("qdrant_wire.py"), str(port)], port, "vectors-log")
        return {"RIVERRUN_TEST_QDRANT_WIRE_URL": f"http://127.0.0.1:{port}"}


def missing(fix):
    raise Missing(fix)


KINDS = {"postgres": Services.postgres, "mysql": Services.mysql, "redis": Services.redis, "mongodb": Services.mongodb, "s3": Services.s3,
         "vectors": Services.vectors}


def until_told():
    """Returns at a signal or at the end of standard input."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([read_end, sys.stdin], [], [])
        if read_end in ready or not sys.stdin.buffer.read1(4096):
            return


def main(names):
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        sys.exit(f"error: no service {unknown[0]}\n\nhint: one of {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory(prefix="riverrun-services-", ignore_cleanup_errors=True) as folder:
        services = Services(Path(folder))
        try:
            for name in names or KINDS:
                try:
                    for variable, address in KINDS[name](services).items():
                        print(f"{variable}={address}", flush=True)
                except Missing as error:
                    print(f"{name} is not installed, nothing is tested against it: {error}", file=sys.stderr)
            until_told()
        finally:
            services.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
