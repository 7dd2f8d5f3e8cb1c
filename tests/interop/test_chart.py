"""The chart as Helm renders it and as Kubernetes' own types read it, and the compose file as Compose's own loader does. Nothing is started.

`helm` and `deploy` (tests/deploy) are made by `./x interop` where there is a Go of 1.24 or later; a `helm` in PATH will do for what it can. Without
them these are skipped."""

import json
import os
import shutil
import subprocess

import pytest
import yaml

from server import ROOT

CHART = ROOT / "deploy/helm/riverrun"
TOOLS = os.environ.get("RIVERRUN_DEPLOY_TOOLS")

EVERYTHING = {
    "kafka": {"brokers": "kafka-0:9093,kafka-1:9093"},
    "settings": {"RIVERRUN_API_MAX_STREAMS": 11_000_000, "RIVERRUN_MODELS_OFFLINE": True, "RIVERRUN_LOG_FORMAT": "", "RIVERRUN_POLICY_FILE": "a: 'b' \"c\""},
    "volumes": [{"name": "kafka-ca", "secret": {"secretName": "kafka-ca"}}],
    "volumeMounts": [{"name": "kafka-ca", "mountPath": "/etc/riverrun/kafka", "readOnly": True}],
    "server": {"storageClass": "fast"},
    "api": {"enabled": True, "replicas": 3},
    "ingress": {"enabled": True},
    "workers": [
        {"name": "agent", "concurrency": 2, "maxReplicas": 6, "topic": "riverrun.agent.commands", "lag": 2_000_000, "openRuns": 32},
        {"name": "indexer", "topic": "riverrun.ingest.embeddings", "replicas": 0},
        {"name": "tracer", "replicas": 0, "resources": {"limits": {"memory": "1Gi"}}},
        {"name": "projector"},
    ],
    "autoscaling": {"enabled": True, "kafka": {"sasl": "scram_sha512", "tls": "enable"}, "authentication": "kafka-auth", "prometheus": "http://prometheus:9090"},
    "monitoring": {"enabled": True},
}
WITHOUT_SERVER = {"server": {"enabled": False}, "api": {"enabled": True}, "workers": [{"name": "ingester"}, {"name": "agent"}, {"name": "projector"}]}
WORKERS_ALONE = {"server": {"enabled": False}, "workers": [{"name": "embedder", "replicas": 4}]}
VALUES = {"default": {}, "everything": EVERYTHING, "without a server": WITHOUT_SERVER, "workers alone": WORKERS_ALONE}


def tool(name):
    place = shutil.which(name, path=TOOLS) if TOOLS else None
    # Programs of others are called `deploy`, too: ours is in no folder of PATH.
    place = place or (shutil.which(name) if name == "helm" else None)
    if not place:
        pytest.skip(f"{name} is not there: ./x interop makes it where there is a Go of 1.24 or later")
    return place


@pytest.fixture
def helm(tmp_path):
    """Helm with values, on the chart; its result."""
    program = tool("helm")

    def run(values, *arguments):
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        environment = os.environ | {f"HELM_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        return subprocess.run([program, *arguments, CHART, "--namespace", "prod", "--values", file], capture_output=True, text=True, check=False, env=environment)

    return run


@pytest.fixture
def rendered(helm):
    """The documents of the chart under a release `rr`."""
    def render(values):
        done = helm(values, "template", "rr")
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return render


def only(documents, kind, name):
    found, = [one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_given_values_when_the_chart_is_linted_then_helm_has_nothing_to_say(helm, values):
    done = helm(values, "lint", "--strict")
    assert done.returncode == 0 and "[ERROR]" not in done.stdout and "[WARNING]" not in done.stdout, done.stdout


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_given_values_when_the_chart_is_rendered_then_kubernetes_knows_every_field(helm, values):
    done = helm(values, "template", "rr")
    assert done.returncode == 0, done.stderr
    checked = subprocess.run([tool("deploy"), "manifests"], input=done.stdout, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    # KEDA's own are known to it by name only.
    assert int(checked.stdout) == sum(document["kind"] != "ScaledObject" for document in documents) >= 2


def test_given_settings_that_are_no_strings_when_rendered_then_the_program_gets_them_as_they_were_written(rendered):
    data = only(rendered(EVERYTHING), "ConfigMap", "rr-settings")["data"]
    assert data["RIVERRUN_API_MAX_STREAMS"] == "11000000" and data["RIVERRUN_MODELS_OFFLINE"] == "true" and data["RIVERRUN_LOG_FORMAT"] == ""
    assert data["RIVERRUN_POLICY_FILE"] == EVERYTHING["settings"]["RIVERRUN_POLICY_FILE"]
    assert data["RIVERRUN_API_HOST"] == "0.0.0.0" and data["RIVERRUN_KAFKA_BROKERS"] == "kafka-0:9093,kafka-1:9093"
    assert data["RIVERRUN_API_ALLOWED_HOSTS"].split(",") == ["rr", "rr.prod", "rr.prod.svc", "rr.prod.svc.cluster.local", "riverrun.example", "rr-server"]
    assert data["RIVERRUN_WAREHOUSE_URL"] == "http://rr-server:8000"


def test_given_workers_with_topics_when_rendered_then_keda_has_their_number_and_the_others_keep_theirs(rendered):
    documents = rendered(EVERYTHING)
    agent = only(documents, "ScaledObject", "rr-agent")["spec"]
    assert agent["scaleTargetRef"] == {"name": "rr-agent"} and (agent["minReplicaCount"], agent["maxReplicaCount"]) == (1, 6)
    lag, runs = agent["triggers"]
    assert lag["metadata"]["lagThreshold"] == "2000000" and lag["metadata"]["consumerGroup"] == "riverrun.agent"
    assert lag["metadata"]["sasl"] == "scram_sha512" and lag["authenticationRef"] == {"name": "kafka-auth"}
    assert runs["metadata"]["threshold"] == "32" and 'namespace="prod"' in runs["metadata"]["query"]
    indexer = only(documents, "ScaledObject", "rr-indexer")["spec"]
    assert indexer["minReplicaCount"] == 0 and "maxReplicaCount" not in indexer and len(indexer["triggers"]) == 1
    replicas = {name: only(documents, "Deployment", f"rr-{name}")["spec"].get("replicas") for name in ("agent", "indexer", "tracer", "projector", "api")}
    assert replicas == {"agent": None, "indexer": None, "tracer": 0, "projector": 1, "api": 3}


def test_given_what_can_not_be_when_rendered_then_it_is_refused_with_the_fix(helm):
    beside = {"workers": [{"name": "ingester"}]}
    refused = {
        "leave it out, or set server.enabled=false": beside,
        'there is no kind of worker "agents"; name one of': {"workers": [{"name": "agents"}]},
        "leave its concurrency out": {"workers": [{"name": "projector", "concurrency": 2}]},
        "nothing is to run": {"server": {"enabled": False}},
    }
    for said, values in refused.items():
        done = helm(values, "template", "rr")
        assert done.returncode != 0 and said in done.stderr, done.stderr


def test_given_services_when_rendered_then_each_has_pods_behind_it(rendered):
    for name, values in VALUES.items():
        documents = rendered(values)
        pods = [one["spec"]["template"]["metadata"]["labels"] for one in documents if one["kind"] in {"Deployment", "StatefulSet"}]
        for service in (one for one in documents if one["kind"] == "Service"):
            assert any(service["spec"]["selector"].items() <= labels.items() for labels in pods), (name, service)


def test_given_the_alerts_when_rendered_then_they_are_those_of_the_file(rendered):
    rule = only(rendered(EVERYTHING), "PrometheusRule", "rr")
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())


# ---- compose --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def composed():
    """The project of some profiles, with what compose-env.sh draws, as Compose's loader makes it."""
    program = tool("deploy")
    drawn = subprocess.run([ROOT / "deploy/compose-env.sh"], capture_output=True, text=True, check=True).stdout
    environment = dict(line.split("=", 1) for line in drawn.splitlines() if not line.startswith("#"))

    def load(*profiles, env=None):
        return subprocess.run([program, "compose", ROOT / "docker-compose.yml", *profiles], capture_output=True, text=True, check=False,
                              env={"PATH": os.environ["PATH"]} | (environment if env is None else env))

    return load


CLUSTER = {"api", "ingester", "embedder", "indexer", "agent", "trainer", "analyzer", "projector"}
KEPT_BY = {"kafka", "kafka-ui", "schema-registry", "postgres", "mongodb", "qdrant", "redis", "minio"}
LANGFUSE = {"langfuse", "langfuse-worker", "clickhouse", "minio", "postgres", "redis"}
PROFILES = {
    ("core",): {"riverrun", "kafka", "kafka-ui"},
    ("core", "tracing", "models"): {"riverrun", "kafka", "kafka-ui", "ollama"} | LANGFUSE,
    ("servers",): KEPT_BY - {"minio"},
    ("cluster",): CLUSTER | KEPT_BY,
    ("cluster", "cluster-tables"): CLUSTER | KEPT_BY | {"tables"},
    ("cluster", "tracing", "cluster-tracing"): CLUSTER | KEPT_BY | LANGFUSE | {"tracer"},
    ("metrics",): {"prometheus", "grafana"},
}


@pytest.mark.parametrize("profiles", PROFILES, ids="+".join)
def test_given_profiles_when_compose_loads_the_file_then_it_starts_what_the_page_says(composed, profiles):
    done = composed(*profiles)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert set(services) == PROFILES[profiles]
    for name, service in services.items():
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports") or []), name
        assert all(value is not None for value in (service.get("environment") or {}).values()), name
        if service["image"].startswith("riverrun:"):
            assert service["read_only"] and service["build"]["dockerfile"] == "deploy/Dockerfile" and service["environment"]["RIVERRUN_KAFKA_BROKERS"] == "kafka:9092", name


def test_given_no_passwords_when_compose_loads_the_file_then_it_says_what_draws_them(composed):
    done = composed("core", env={})
    assert done.returncode != 0 and "run deploy/compose-env.sh >.env" in done.stderr, done.stderr
