"""Servers instead of embedded stores for every `riverrun serve` of the tests (`./x interop --servers`): to each data folder a database of
PostgreSQL, a bucket, a database of documents and a database of Redis of its own. What a test sets itself wins.

The log stays the embedded one, and so do vectors and keywords: their servers have suites of their own (stores/tests, `--kafka`)."""

import os
import shutil
import socket
import subprocess
import urllib.request
import uuid
from urllib.parse import urlsplit

NEEDED = ("RIVERRUN_TEST_DATABASE_URL", "RIVERRUN_TEST_S3_ENDPOINT", "RIVERRUN_TEST_MONGODB_URL", "RIVERRUN_TEST_REDIS_URL")
# These look into embedded stores, break them, or choose servers of their own.
PRESUPPOSE_EMBEDDED = {
    "test_blobs", "test_cache", "test_cluster", "test_documents", "test_faults", "test_finetune_moments", "test_kill", "test_links", "test_local", "test_memory", "test_model_cards",
    "test_rebuild", "test_secrets", "test_services", "test_transfer", "test_upgrade", "test_workers",
}
# Redis has sixteen databases; processes of tests, at most three of them, share none.
DATABASES_EACH = 5

wanted, made = False, {}


def missing():
    """What there has to be and is not; None when all is there."""
    lacking = [name for name in NEEDED if not os.environ.get(name)]
    if lacking:
        return f"{', '.join(lacking)}: run these by ./x interop --servers, or set what ./x services prints"
    return None if shutil.which("psql") else "psql"


def settings_of(folder):
    """The settings of the server whose folder it is: the same ones for as long as the tests run."""
    if not wanted:
        return {}
    if str(folder) not in made:
        made[str(folder)] = make(f"own_{uuid.uuid4().hex[:10]}", len(made))
    return made[str(folder)]


def make(name, number):
    database = os.environ["RIVERRUN_TEST_DATABASE_URL"]
    subprocess.run(["psql", database, "-qc", f"CREATE DATABASE {name}"], check=True, capture_output=True)
    store, bucket = os.environ["RIVERRUN_TEST_S3_ENDPOINT"], name.replace("_", "-")
    urllib.request.urlopen(urllib.request.Request(f"{store}/{bucket}", method="PUT"), timeout=30).close()
    return {
        "RIVERRUN_DATABASE_URL": urlsplit(database)._replace(path=f"/{name}").geturl(),
        "RIVERRUN_S3_BUCKET": bucket, "RIVERRUN_S3_ENDPOINT": store, "RIVERRUN_S3_ACCESS_KEY_ID": "test", "RIVERRUN_S3_SECRET_ACCESS_KEY": "s3cret",
        "RIVERRUN_MONGODB_URL": urlsplit(os.environ["RIVERRUN_TEST_MONGODB_URL"])._replace(path=f"/{name}").geturl(),
        "RIVERRUN_REDIS_URL": emptied(os.environ["RIVERRUN_TEST_REDIS_URL"], number),
    }


def emptied(redis, number):
    """A database of Redis in which nothing is left of the server that had it before."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    database = process % 3 * DATABASES_EACH + number % DATABASES_EACH
    parts = urlsplit(redis)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(f"SELECT {database}\r\nFLUSHDB\r\n".encode())
        answer = b""
        while answer.count(b"\r\n") < 2:
            piece = connection.recv(100)
            assert piece, f"Redis ended the connection after {answer!r}"
            answer += piece
    assert answer == b"+OK\r\n+OK\r\n", answer
    return parts._replace(path=f"/{database}").geturl()
