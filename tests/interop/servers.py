"""Servers instead of embedded parts for every `riverrun serve` of the tests (`./x interop --servers`): to each data folder an Apache Kafka, a database
of PostgreSQL, a bucket, a database of documents, a database of Redis and a store of vectors and keywords of its own. What a test sets itself wins.

Vectors and keywords lie with scripts/qdrant_wire.py, which is not Qdrant."""

import functools
import os
import shutil
import socket
import subprocess
import urllib.request
import uuid
from pathlib import Path
from urllib.parse import urlsplit

NEEDED = ("RIVERRUN_TEST_DATABASE_URL", "RIVERRUN_TEST_S3_ENDPOINT", "RIVERRUN_TEST_MONGODB_URL", "RIVERRUN_TEST_REDIS_URL", "RIVERRUN_TEST_QDRANT_WIRE_URL")
# What can't hold with servers, and why: whole files, tests of a file, or one of a test's parameters.
PRESUPPOSE_EMBEDDED = {
    "test_blobs": "looks into the folder of blobs, and sets the times of its files back",
    "test_chaos": "the harness has a broker and processes of its own: the same either way",
    "test_cluster": "is a cluster on servers in every run",
    "test_finetune_moments": "holds the process at calls to its disk, those for embedded blobs among them",
    "test_rebuild": "takes away and damages the folders of vectors and keywords",
    "test_java": "is Kafka's own client at the embedded broker",
    "test_links": "is about the embedded broker's second listener",
    "test_attacks_wire::test_a_kafka_request_that_is_none_ends_its_connection": "is about the embedded broker",
    "test_fuzz::test_changed_kafka_requests_never_end_more_than_their_connection": "is about the embedded broker",
    "test_idle::test_given_groups_when_their_lag_is_asked_for_then_no_client_is_made_for_it": "counts the embedded broker's connections",
    "test_idle::test_given_nothing_to_read_then_readers_ask_seldom_and_hear_at_once": "counts the embedded broker's requests",
    "test_conformance::test_it_is_as_promised[setting.broker-port]": "is about the embedded broker",
    **{f"test_conformance::test_it_is_as_promised[setting.{name}]": "is about what is embedded without the setting" for name in (
        "database-url", "qdrant-url", "redis-url", "mongodb-url", "kafka-brokers")},
    "test_documents::test_what_is_known_of_sources_is_shown_version_by_version_and_goes_with_them": "looks into SQLite",
    "test_documents::test_reports_are_kept_and_go_with_their_project": "looks into SQLite",
    "test_documents::test_sources_and_reports_are_made_again_from_the_log": "takes rows from SQLite",
    "test_documents::test_sources_and_reports_are_the_same_in_mongodb": "looks into SQLite",
    "test_faults::test_read_models_that_are_gone_or_old_are_made_again_the_same": "takes away and puts back files of SQLite",
    "test_faults::test_damaged_files_are_told_or_made_again_and_nothing_wrong_is_shown": "damages files of embedded parts",
    "test_faults::test_given_a_data_folder_that_can_only_be_read_when_started_then_it_is_refused_with_the_fix_and_nothing_is_lost":
        "is about the log in the data folder",
    "test_faults::test_a_log_on_a_full_disk_refuses_with_the_fix_and_goes_on_when_there_is_room": "fills the embedded broker's disk",
    "test_faults::test_given_a_shell_that_allows_few_files_when_served_then_as_many_clients_as_are_promised_find_room": "its crowd is at the embedded broker",
    "test_kafka_clients::test_the_secure_listener_lets_users_in_and_nobody_else": "is about the embedded broker's second listener",
    "test_kafka_clients::test_the_kcat_of_this_system_is_let_in_whatever_its_librdkafka": "is about the embedded broker's second listener",
    "test_kafka_clients::test_given_a_log_behind_tls_and_a_password_when_a_worker_comes_then_it_works_and_one_with_a_wrong_password_does_not_start":
        "is about the embedded broker's second listener",
    "test_kafka_clients::test_metrics_and_diagnose_tell_of_the_broker": "asks for the embedded broker's figures",
    "test_kafka_clients::test_given_a_group_that_is_behind_when_asked_then_its_lag_and_the_size_of_its_topic_are_told": "asks for the embedded broker's figures",
    "test_transfer::test_what_is_exported_is_imported_with_the_same_counts_and_goes_on": "imports into a data folder that is not empty",
    "test_transfer::test_given_a_data_folder_when_it_is_moved_to_servers_and_back_then_counts_and_hashes_stay_and_rows_are_made_again":
        "moves a data folder to servers in every run",
    "test_workers::test_given_a_worker_whose_broker_is_away_when_it_is_asked_then_it_is_not_ready_and_stays_live": "takes away the embedded broker",
    "test_memory::test_memory_survives_kill_and_a_lost_database": "takes away files of SQLite",
    "test_model_cards::test_a_card_is_an_event_and_there_after_a_kill_and_without_the_read_model": "takes away files of SQLite",
}
# Databases of Redis that a process of tests has to itself; scripts/services.py starts it with enough of them for four processes.
DATABASES_EACH, PROCESSES = 16, 4

wanted, made = False, {}


@functools.cache
def nodes():
    """Nodes of Kafka to lend. Whoever measures starts servers, too, and has no client of Kafka to make them with."""
    from kafka_nodes import Nodes

    return Nodes()


def missing():
    """What there has to be and is not; None when all is there."""
    lacking = [name for name in NEEDED if not os.environ.get(name)]
    if lacking:
        return f"{', '.join(lacking)}: run these by ./x interop --servers, or set what ./x services prints"
    return next((program for program in ("psql", "java") if not shutil.which(program)), None)


def presupposes_embedded(file, test):
    """Why a test of a file, with its parameter, can't hold with servers; None when it can."""
    names = (file, f"{file}::{test.partition('[')[0]}", f"{file}::{test}")
    return next((PRESUPPOSE_EMBEDDED[name] for name in names if name in PRESUPPOSE_EMBEDDED), None)


def settings_of(server):
    """The settings of a server, by its folder: the same ones until its test, or what has it for longer, is over."""
    if not wanted:
        return {}
    folder = server.folder.resolve()
    if folder not in made:
        made[folder] = Made(f"own_{uuid.uuid4().hex[:10]}", folder)
    made[folder].users.append(server)
    return made[folder].settings


def give_back(within=None):
    """What is lent to servers that run no more is free for others: of those with folders `within` that of a test that is over, or of all."""
    for folder, one in list(made.items()):
        if (within is None or folder.is_relative_to(Path(within).resolve())) and not any(user.runs() for user in one.users):
            nodes().give_back(folder)
            del made[folder]


class Made:
    """What a folder's servers have: a node of Kafka and a database of Redis are lent to it, all else is its own."""

    def __init__(self, name, folder):
        used = {one.database for one in made.values()}
        self.database = next(number for number in range(DATABASES_EACH) if number not in used)
        self.settings = make(name, self.database) | {"RIVERRUN_KAFKA_BROKERS": nodes().lend(folder)}
        self.users = []


def make(name, redis_database):
    database = os.environ["RIVERRUN_TEST_DATABASE_URL"]
    subprocess.run(["psql", database, "-qc", f"CREATE DATABASE {name}"], check=True, capture_output=True)
    store, bucket = os.environ["RIVERRUN_TEST_S3_ENDPOINT"], name.replace("_", "-")
    urllib.request.urlopen(urllib.request.Request(f"{store}/{bucket}", method="PUT"), timeout=30).close()
    return {
        "RIVERRUN_DATABASE_URL": urlsplit(database)._replace(path=f"/{name}").geturl(),
        "RIVERRUN_S3_BUCKET": bucket, "RIVERRUN_S3_ENDPOINT": store, "RIVERRUN_S3_ACCESS_KEY_ID": "test", "RIVERRUN_S3_SECRET_ACCESS_KEY": "s3cret",
        "RIVERRUN_MONGODB_URL": urlsplit(os.environ["RIVERRUN_TEST_MONGODB_URL"])._replace(path=f"/{name}").geturl(),
        "RIVERRUN_REDIS_URL": emptied(os.environ["RIVERRUN_TEST_REDIS_URL"], redis_database),
        # Each key has a store of its own there.
        "RIVERRUN_QDRANT_URL": os.environ["RIVERRUN_TEST_QDRANT_WIRE_URL"], "RIVERRUN_QDRANT_API_KEY": name,
    }


def emptied(redis, number):
    """A database of Redis in which nothing is left of the server that had it before."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    database = process % PROCESSES * DATABASES_EACH + number
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
