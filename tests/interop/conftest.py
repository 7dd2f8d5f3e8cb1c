import signal

import pytest

import servers
from server import BINARY, ROOT, Server
from stub_model import StubModel


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=10, help="how often the kill test kills the server (default: 10)")
    parser.addoption("--scale", type=int, default=1, help="how many times their short form the fault and fuzz tests do (default: 1)")
    parser.addoption("--kafka", action="store_true", help="also run what needs Apache Kafka's console tools and a real Kafka")
    parser.addoption("--servers", action="store_true", help="Apache Kafka, PostgreSQL, S3, MongoDB, Redis and Qdrant's definitions instead of embedded parts, for every server that the tests start")
    parser.addoption("--phoenix", metavar="PROGRAM", help="a `phoenix` program to trace to (./x interop --phoenix has one)")
    parser.addoption("--open-webui", metavar="PROGRAM", help="an `open-webui` program to put in front of a server (./x interop --open-webui has one)")


def pytest_sessionstart(session):
    # Under nohup every server of the tests would inherit that a hang-up is ignored. What a handler takes is not inherited.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    if not BINARY.exists():
        raise pytest.UsageError(f"{BINARY} is missing; run these by ./x interop, or set RIVERRUN_BIN")
    servers.wanted = session.config.getoption("--servers")
    if servers.wanted and (lacking := servers.missing()):
        raise pytest.UsageError(f"--servers wants {lacking}")


def pytest_sessionfinish():
    servers.nodes().stop()


def pytest_collection_modifyitems(config, items):
    if config.getoption("--servers"):
        for item in items:
            if why := servers.presupposes_embedded(item.path.stem, item.name):
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    own = (item.funcargs or {}).get("tmp_path")
    done = yield
    if own:
        servers.give_back(own)
    if nextitem is None or nextitem.path != item.path:
        servers.give_back()
    return done


@pytest.fixture
def scale(request):
    """How many times its short form a test does."""
    return request.config.getoption("--scale")


@pytest.fixture(scope="session")
def model():
    stub = StubModel()
    yield stub
    stub.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory, model):
    """One server for the tests that leave it as it was; chats go to the scripted model, vectors come from a real one."""
    folder = tmp_path_factory.mktemp("serve")
    running = Server(folder, model.settings() | {"RIVERRUN_INGEST_ROOTS": f"{folder}:{ROOT / 'examples'}"}).start()
    yield running
    status = running.stop()
    assert status == 0, f"serve ended with {status} after SIGTERM: {running.log_tail()}"


@pytest.fixture
def new_server(tmp_path, model):
    """Makes servers of the test's own; whatever still runs at its end is stopped."""
    made = []

    def make(name="serve", **settings):
        made.append(Server(tmp_path / name, model.settings() | settings))
        return made[-1]

    yield make
    for one in made:
        one.stop()
