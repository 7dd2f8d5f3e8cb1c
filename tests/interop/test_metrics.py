"""What the dashboard and the alerts ask for, against the page that a running server answers with: names and labels."""

import json
import re

import yaml

from server import ROOT, wait_for

# Labels that Prometheus adds to what it has scraped, or that histograms have.
OTHERS = {"job", "instance", "le"}
# What each API reads from the same log or database: it is on the page of each, and summed it would be too much.
OF_EVERY_API = r"riverrun_(runs|run|tool|model|consumer)_"


def asked():
    """Every expression of the dashboard and of the alerts."""
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/riverrun.json").read_text())
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return panels + [rule["expr"] for group in rules for rule in group["rules"]]


def series_of(expressions):
    """The names of series and the labels that are asked of each: those of its selector and of the aggregation around it."""
    wanted = {}
    for expression in expressions:
        grouped = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(",")}
        for name, selector in re.findall(r"(riverrun_\w+)(?:\{([^}]*)\})?", expression):
            wanted.setdefault(name, set()).update(re.findall(r"(\w+)\s*[=!]~?", selector), grouped)
    return wanted


def page(server):
    """The labels of each series of the page."""
    found = {}
    for name, labels in re.findall(r"^(riverrun_\w+)(?:\{(.*)\})? \S+$", server.get("/metrics").body.decode(), re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def test_given_a_server_at_work_when_its_page_is_read_then_all_is_there_that_dashboard_and_alerts_ask_for(new_server):
    # Nobody listens there: spans are dropped, and counted.
    server = new_server(RIVERRUN_TRACING_ENDPOINT="http://127.0.0.1:9", RIVERRUN_TRACING_PATIENCE_SECONDS="0").start()
    file = server.folder / "winch.md"
    file.write_text("# Winch\n\nA winch launch costs 9 crowns.\n")
    server.ingest(file, "notes")
    assert server.post("/rag/search", {"query": "winch", "collection": "notes"}).json["items"]
    server.run_end(server.start_run("[[steps=1 id=figures]]"))
    # What is open is a figure only while something is.
    server.start_run("[[steps=50 delay_ms=2000 id=open]]", max_iters=60)
    wanted = series_of(asked())
    assert len(wanted) >= 20, wanted
    found = wait_for(lambda: (seen := page(server)).keys() >= wanted.keys() and seen, 60, f"all of {sorted(wanted)}")
    lacking = {name: labels - found[name] - OTHERS for name, labels in wanted.items()}
    assert not {name: labels for name, labels in lacking.items() if labels}


def test_given_figures_that_every_api_has_then_they_are_never_summed_over_processes():
    summed = re.compile(rf"\bsum(?: by \((?![^)]*\binstance\b)[^)]*\))? ?\((?:\w+\()?{OF_EVERY_API}")
    assert summed.search("sum by (status) (rate(riverrun_runs_open[5m]))") and summed.search("sum(riverrun_runs_open)")
    assert not [expression for expression in asked() if summed.search(expression)]
