"""Files of deployment against the program: settings that it knows, figures that it has, values that exist. Nothing is started."""

import hashlib
import json
import re
import shutil
import subprocess

import pytest
import yaml

from server import ROOT

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
CHART = ROOT / "deploy/helm/riverrun"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))


def sources(pattern="*.rs"):
    return "\n".join(path.read_text() for crate in ("cli", "models", "workers", "api", "stores", "knowledge")
                     for path in (ROOT / crate / "src").rglob(pattern))


KNOWN = set(re.findall(r"RIVERRUN_[A-Z][A-Z0-9_]*[A-Z0-9]", sources()))


def is_known(name):
    # Whatever follows RIVERRUN_KAFKA_ is a setting of librdkafka.
    return name in KNOWN or name.startswith("RIVERRUN_KAFKA_")


def test_every_service_has_a_volume_but_those_that_keep_what_they_have_in_another():
    without = {name for name, service in SERVICES.items() if not service.get("volumes")}
    assert without == {"kafka-ui", "schema-registry", "langfuse", "langfuse-worker"}, "docs/deployment.md names them"


def test_every_setting_of_the_compose_file_is_one_of_the_program():
    used = {name for service in SERVICES.values() for name in service.get("environment", {}) if name.startswith("RIVERRUN_")}
    assert used, "riverrun is in it"
    assert not [name for name in sorted(used) if not is_known(name)]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_pinned_checked_and_on_loopback(name):
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert re.search(r"\d", tag) and tag != "latest", service["image"]
    assert service["healthcheck"]["test"], name
    assert service["profiles"] and set(service["profiles"]) <= {"core", "servers", "cluster", "cluster-tables", "cluster-tracing", "tracing", "models", "metrics"}
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), service.get("ports")
    for needed in service.get("depends_on", {}):
        missing = set(service["profiles"]) - set(SERVICES[needed]["profiles"])
        assert not missing, f"{name} needs {needed}, which {missing} does not start"
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("./"):
            assert (ROOT / source).exists(), volume
        elif not source.startswith("$"):
            assert source in COMPOSE["volumes"], volume


def test_no_two_services_take_the_same_port_but_those_that_stand_for_one_another():
    taken = [port.split(":")[1] for name, service in SERVICES.items() for port in service.get("ports", []) if name != "api"]
    assert len(taken) == len(set(taken)), taken
    # Two systems on one log, with stores of their own, would each do a part of the work.
    assert SERVICES["api"]["ports"] == SERVICES["riverrun"]["ports"]
    assert not set(SERVICES["api"]["profiles"]) & set(SERVICES["riverrun"]["profiles"])


def processes():
    """What runs riverrun's image."""
    return {name: service for name, service in SERVICES.items() if service["image"].startswith("riverrun:")}


def test_every_process_of_riverrun_is_closed_and_healthy_by_what_it_gets_done():
    for name, service in processes().items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"], name
        assert "GET /ready" in service["healthcheck"]["test"][-1], name


def test_the_cluster_has_a_process_of_each_kind_and_every_server_that_it_names():
    kinds = set(re.findall(r"^    ([A-Z]\w+),$", re.search(r"pub enum WorkerKind {(.*?)^}", (ROOT / "cli/src/commands/worker/mod.rs").read_text(), re.M | re.S).group(1), re.M))
    workers = {name: service for name, service in processes().items() if service["command"][0] == "worker"}
    assert {service["command"][1] for service in workers.values()} == {kind.lower() for kind in kinds} == set(workers)
    assert SERVICES["api"]["command"] == ["serve", "--no-workers"]
    for name, service in {**workers, "api": SERVICES["api"]}.items():
        places = re.findall(r"(?:@|//)([a-z-]+):\d+", " ".join(str(value) for setting, value in service["environment"].items() if not setting.startswith("RIVERRUN_TRACING")))
        assert {"postgres", "mongodb", "qdrant", "redis", "minio", "schema-registry"} == set(places), name
        if name != "tracer":
            assert set(places) | {"kafka"} == set(service["depends_on"]), name
    assert "/data/riverrun" in SERVICES["minio"]["entrypoint"][-1] and SERVICES["api"]["environment"]["RIVERRUN_S3_BUCKET"] == "riverrun"


def test_the_process_that_has_the_tables_is_asked_by_the_others_with_a_token_of_its_own():
    tables, api = SERVICES["tables"], SERVICES["api"]
    assert tables["command"] == ["serve"] and tables["environment"]["RIVERRUN_API_ALLOWED_HOSTS"] == "tables"
    assert any(volume.endswith(":/var/lib/riverrun") for volume in tables["volumes"]), "tables are files of its data folder"
    assert api["environment"]["RIVERRUN_WAREHOUSE_TOKEN"].startswith("${WAREHOUSE_TOKEN")
    made = subprocess.run([ROOT / "deploy/compose-env.sh"], capture_output=True, text=True, check=True).stdout
    drawn = dict(line.split("=", 1) for line in made.splitlines() if not line.startswith("#"))
    digest = hashlib.sha256(drawn["WAREHOUSE_TOKEN"].encode()).hexdigest()
    assert f"tables:{digest}:read" in drawn["API_TOKENS"].split(","), drawn["API_TOKENS"]
    assert "#WAREHOUSE_URL=http://tables:8000" in made


def test_prometheus_asks_every_process_of_riverrun():
    job, = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    asked = {name: place["port"] for place in job["dns_sd_configs"] for name in place["names"]}
    assert job["job_name"] == "riverrun" and set(asked) == set(processes())
    for name, service in processes().items():
        assert f"/127.0.0.1/{asked[name]};" in service["healthcheck"]["test"][-1], name


def test_no_secret_is_in_the_compose_file_and_the_script_draws_each(tmp_path):
    text = (ROOT / "docker-compose.yml").read_text()
    wanted = set(re.findall(r"\$\{([A-Z_]+)(?::\?[^}]*)?\}", text))
    made = subprocess.run([ROOT / "deploy/compose-env.sh"], capture_output=True, text=True, check=True)
    drawn = dict(line.split("=", 1) for line in made.stdout.splitlines() if not line.startswith("#"))
    assert wanted <= set(drawn), wanted - set(drawn)
    assert len(set(drawn.values())) == len(drawn)
    token = made.stderr.split()[-1]
    assert token.startswith("rr_") and token not in made.stdout
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|_AUTH$|SALT|ENCRYPTION_KEY|TOKENS", name):
                assert str(value).startswith("${"), name


def test_the_image_runs_as_nobody_and_its_versions_are_those_of_the_build():
    text = (ROOT / "deploy/Dockerfile").read_text()
    toolchain = re.search(r'channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text()).group(1)
    assert f"FROM rust:{toolchain}-" in text and f"RUSTUP_TOOLCHAIN={toolchain}\n" in text
    duckdb = re.search(r"^DUCKDB_PACKAGE_VERSION=(\S+)", (ROOT / "x").read_text(), re.M).group(1)
    assert f"DUCKDB_PACKAGE_VERSION={duckdb}" in text
    assert re.search(r"^USER 10001$", text, re.M)
    assert SERVICES["riverrun"]["read_only"] and SERVICES["riverrun"]["cap_drop"] == ["ALL"]
    assert all(is_known(name) for name in re.findall(r"RIVERRUN_[A-Z_]+[A-Z]", text))


def resolve(path, values):
    for part in path.split("."):
        assert isinstance(values, dict) and part in values, f".Values.{path} is no value of the chart"
        values = values[part]


def test_every_value_that_a_template_names_exists():
    assert TEMPLATES
    helpers = CHART / "templates/_helpers.tpl"
    for template in [*TEMPLATES, helpers]:
        text = template.read_text()
        for path in re.findall(r"\$?\.Values\.([A-Za-z.]+)", text):
            resolve(path, VALUES)
        opened = len(re.findall(r"{{-? *(?:if|range|with|define)\b", text))
        assert opened == len(re.findall(r"{{-? *end\b", text)), f"{template.name}: a block is not closed"
    assert all(is_known(name) for name in VALUES["settings"])
    settings = re.findall(r'"(RIVERRUN_\w+)"', helpers.read_text())
    assert settings and all(is_known(name) for name in settings)


def documents_of(template):
    """What is left once blocks fall away and values become a word has to be documents of Kubernetes."""
    text = re.sub(r"^[ \t]*{{-? *(?:if|range|end|else)\b.*?}}[ \t]*\n", "", template.read_text(), flags=re.M)
    text = re.sub(r"{{ *toJson [^}]*}}", "{}", text)
    text = re.sub(r"{{[^}]*}}", "word", text)
    return [document for document in yaml.safe_load_all(text) if document]


def test_templates_are_yaml_once_their_expressions_stand_for_something():
    for template in TEMPLATES:
        documents = documents_of(template)
        assert documents, template.name
        for document in documents:
            assert document["apiVersion"] and document["kind"] and document["metadata"]["name"], template.name


def pods():
    """The pods of the chart, each with the name of its template."""
    for template in TEMPLATES:
        for document in documents_of(template):
            if document["kind"] in {"Deployment", "StatefulSet"}:
                yield template.name, document["spec"]["template"]


def test_every_pod_of_the_chart_is_closed_and_changes_with_its_settings():
    assert [name for name, _ in pods()] == ["api.yaml", "server.yaml", "workers.yaml"]
    for name, pod in pods():
        container, = pod["spec"]["containers"]
        # Variables that Kubernetes makes of the names of Services would be read as settings.
        assert pod["spec"]["enableServiceLinks"] is False and pod["spec"]["automountServiceAccountToken"] is False, name
        assert pod["spec"]["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"], name
        assert "checksum/settings" in pod["metadata"]["annotations"] and "resources" in container, name
        # A server ends when it can't go on; a worker that hangs has to be ended, for it keeps its partitions.
        live = "/live" if name == "workers.yaml" else "/health"
        assert [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")] == ["/health", live, "/ready"], name
        mounts = {mount["mountPath"] for mount in container["volumeMounts"] if "mountPath" in mount}
        assert mounts == {"/var/lib/riverrun", "/tmp"}, name


def test_every_pod_of_the_chart_is_scraped_under_the_name_that_the_alerts_ask_for():
    rules = CHART / "files/alerts.yml"
    assert rules.resolve() == ROOT / "deploy/prometheus/alerts.yml"
    assert set(re.findall(r'job="(\w+)"', rules.read_text())) == {"riverrun"}
    monitor = next(one for one in documents_of(CHART / "templates/monitoring.yaml") if one["kind"] == "PodMonitor")["spec"]
    scraped = {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]}
    assert scraped == {port["name"] for _, pod in pods() for port in pod["spec"]["containers"][0]["ports"]}
    for name, pod in pods():
        assert pod["metadata"]["labels"][monitor["jobLabel"]] == "riverrun", name
        assert set(monitor["selector"]["matchLabels"]) <= set(pod["metadata"]["labels"]), name


def test_the_chart_scales_only_groups_that_commit_and_reaches_a_kafka_that_asks_who_comes():
    text = (CHART / "templates/workers.yaml").read_text()
    trigger = text[text.index("{{- if and $.Values.autoscaling.enabled .topic }}"):]
    assert "ScaledObject" in trigger and "ScaledObject" not in text[:-len(trigger)]
    assert "{{- if not (and $.Values.autoscaling.enabled .topic) }}\n  replicas:" in text
    assert "authenticationRef" in trigger and "range $name, $value := $.Values.autoscaling.kafka" in trigger


def test_a_worker_of_the_chart_that_says_little_is_scaled_all_the_same():
    trigger = (CHART / "templates/workers.yaml").read_text()
    # Kubernetes refuses metadata of a trigger that are null.
    assert 'lagThreshold: {{ include "riverrun.text" (.lag | default 50) }}' in trigger
    assert "{{- if .maxReplicas }}\n  maxReplicaCount:" in trigger
    topics = set(re.findall(r'^name = "(.+)"$', (ROOT / "deploy/topics.toml").read_text(), re.M))
    assert set(re.findall(r"topic: ([a-z.]+)", (CHART / "values.yaml").read_text())) <= topics


def test_probes_ask_where_the_program_listens():
    usual = re.search(r'number\("RIVERRUN_API_PORT", (\d+)', sources()).group(1)
    for name, pod in pods():
        container, = pod["spec"]["containers"]
        port, = container["ports"]
        chosen = container["args"][container["args"].index("--health-port") + 1] if "--health-port" in container["args"] else usual
        assert str(port["containerPort"]) == chosen, name
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] == port["name"] and f'"{asked["path"]}"' in sources(), (name, probe)
    assert VALUES["settings"]["RIVERRUN_API_HOST"] == "0.0.0.0", "probes come from outside of the pod"


def test_the_api_of_the_chart_answers_under_the_names_of_its_service():
    helpers = (CHART / "templates/_helpers.tpl").read_text()
    hosts = re.search(r"\$hosts := list (.*) -}}", helpers).group(1)
    assert '.Release.Name (printf "%s.%s"' in hosts and "svc.cluster.local" in hosts and "append $hosts .Values.ingress.host" in helpers
    service = (CHART / "templates/service.yaml").read_text()
    assert re.search(r"^  name: {{ \.Release\.Name }}$", service, re.M)


def test_the_apis_of_the_chart_ask_the_server_for_tables_where_there_is_one():
    helpers = (CHART / "templates/_helpers.tpl").read_text()
    both = "{{- if and .Values.server.enabled .Values.api.enabled"
    part = helpers[helpers.index(both):]
    assert '"RIVERRUN_WAREHOUSE_URL" (printf "http://%s:%v" $server .Values.service.port)' in part and "append $hosts $server" in part
    text = (CHART / "templates/service.yaml").read_text()
    behind = text[text.index(both):]
    # Without APIs before it the server is behind the Service itself, and workers of their own ask it there.
    assert 'else if and .Values.server.enabled .Values.workers -}}\n{{- $_ := set $known "RIVERRUN_WAREHOUSE_URL" (printf "http://%s:%v" .Release.Name .Values.service.port)' in part
    assert "name: {{ .Release.Name }}-server" in behind and "app.kubernetes.io/component: server" in behind and is_known("RIVERRUN_WAREHOUSE_URL")


def test_agents_of_the_chart_are_scaled_by_runs_to_be_driven_and_not_by_those_that_wait_for_a_person():
    trigger = (CHART / "templates/workers.yaml").read_text()
    query = re.search(r"query: '(.*)'", trigger).group(1)
    assert 'status=~"queued|running"' in query and "waiting_approval" not in query
    assert set(re.findall(r"riverrun_[a-z_]+", query)) <= metrics()
    assert "if and $.Values.autoscaling.prometheus .openRuns" in trigger


def metrics():
    """Names that the program writes; a histogram has three more."""
    names = set(re.findall(r'"(riverrun_[a-z_]+)"', sources()))
    return names | {f"{name}{end}" for name in names for end in ("_bucket", "_sum", "_count")}


def test_dashboards_and_alerts_ask_for_figures_that_there_are():
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/riverrun.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    asked += [rule["expr"] for rule in rules]
    known = metrics()
    unknown = {name for expression in asked for name in re.findall(r"riverrun_[a-z_]+", expression)} - known
    assert not unknown
    kinds = {f"riverrun.{name}" for name in re.findall(r'NAME: &str = "([a-z-]+)"', sources())} | {"riverrun.agent"}
    for expression in asked:
        for start, names in re.findall(r'group!?=~"(riverrun)\.\(([a-z|-]+)\)"', expression):
            assert {f"{start}.{name}" for name in names.split("|")} <= kinds, expression
        words = {word for words in re.findall(r'(?:what|status)=~?"([a-z_|]+)"', expression) for word in words.split("|")}
        assert all(f'"{word}"' in sources() for word in words), expression
    for rule in rules:
        assert rule["annotations"]["description"] and rule["labels"]["severity"] in {"critical", "warning", "info"}


with_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not in PATH: ./x interop has it of Debian's package")


@with_promtool
def test_given_what_the_dashboard_and_the_chart_ask_when_prometheus_reads_it_then_it_is_a_query(tmp_path):
    panels = json.loads((ROOT / "deploy/grafana/dashboards/riverrun.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    query = re.search(r"query: '(.*)'", (CHART / "templates/workers.yaml").read_text()).group(1)
    asked.append(query.replace("{{ $.Release.Namespace }}", "prod"))
    rules = [{"record": f"asked:{number}", "expr": one} for number, one in enumerate(asked)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", "asked.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{len(asked)} rules found" in done.stdout, done.stdout + done.stderr
    sources = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert {panel["datasource"]["uid"] for panel in panels} <= {source["uid"] for source in sources}


@with_promtool
def test_given_figures_that_tell_of_trouble_when_the_alerts_are_tried_then_prometheus_fires_those_and_no_others():
    folder = ROOT / "deploy/prometheus"
    for arguments in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    tried = {case["alertname"] for test in yaml.safe_load((folder / "alerts_test.yml").read_text())["tests"] for case in test["alert_rule_test"]}
    assert {"RiverrunLagGrows", "RiverrunLagStands", "RiverrunDeadLetters", "RiverrunRunsSilent", "RiverrunDown", "RiverrunGone"} <= tried


def test_the_bill_of_materials_has_every_package_of_the_lock_file():
    made = subprocess.run(["python3", ROOT / "scripts/sbom.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    bill = json.loads(made.stdout)
    locked = len(re.findall(r"^\[\[package\]\]", (ROOT / "Cargo.lock").read_text(), re.M))
    rust = [part for part in bill["components"] if part["purl"].startswith("pkg:cargo/")]
    own = bill["metadata"]["component"]["name"]
    assert bill["bomFormat"] == "CycloneDX" and own == "riverrun"
    assert len(rust) == locked
    assert any(part["purl"].startswith("pkg:npm/") for part in bill["components"])
    known = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    for entry in bill["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= known
