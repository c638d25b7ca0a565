"""The rules, the dashboard and the jobs of docs/fleets.md: promtool's tests, and a real Prometheus."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktop.agent.exposition import page as node_page
from sparktop.demo.machine import IDENTITY, node_sample
from tests.agent.agent_process import ROOT
from tests.export.full_stack import RULES, asked, full_stack
from tests.export.snapshots import snapshot, text
from tests.export.test_page import level
from tests.sources.installed import installed

DASHBOARD = ROOT / "docs" / "grafana" / "sparktop.json"
RULE_TESTS = Path(__file__).with_name("rules_test.yml")
VARIABLES = {"job": ".*", "model_name": ".*", "instance": ".*", "machine": ".*", "__rate_interval": "15s"}
PATIENCE_S = 240.0


def board() -> dict[str, Any]:
    """Return the dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Yield (title of the panel, query) for each query of the dashboard, with variables filled in."""
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            query: str = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(f"${name}", value)
            assert "$" not in query, query
            yield panel["title"], query


def known_names() -> set[str]:
    """Return the names of all metrics that export and agent can have, from full pages."""
    from sparktop.export.metrics import named_level

    pages = text(snapshot(), (named_level("t", level(8), 512),))
    body = node_page(IDENTITY, node_sample(100.0, 1.0))
    return set(re.findall(r"^(sparktop_\w+)[ {]", pages + body.decode(), re.MULTILINE))


def named(content: str) -> set[str]:
    """Return the names of sparktop's metrics in a text."""
    return set(re.findall(r"\bsparktop_[a-z0-9_]+", content))


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    """Each of sparktop's metrics in the rules, their tests and the dashboard is on a page."""
    known = known_names()
    for path in (RULES, RULE_TESTS, DASHBOARD):
        used = named(path.read_text(encoding="utf-8"))
        assert used, path
        assert used - known == set(), path


def test_rules_and_dashboard_name_metrics_that_a_real_vllm_has() -> None:
    """Each metric of vLLM in the rules and the dashboard is on a page of vLLM 0.32."""
    pages = (ROOT / "tests" / "data" / "vllm-0.32").glob("*.prom")
    known = {name for path in pages for name in re.findall(r"^(vllm:\w+)", path.read_text(), re.MULTILINE)}
    assert known
    for path in (RULES, DASHBOARD):
        used = set(re.findall(r"vllm:[a-z_]+", path.read_text(encoding="utf-8")))
        assert len(used) > 5
        assert used - known == set(), path


def test_every_alert_has_a_test() -> None:
    """rules_test.yml makes each alert fire."""
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8"))
    tested = set(re.findall(r"- alertname: (\w+)", RULE_TESTS.read_text(encoding="utf-8")))
    assert len(alerts) == len(set(alerts)) >= 16
    assert set(alerts) == tested


def assert_accepted(folder: Path, *words: str) -> None:
    """Assert that promtool succeeds with these words."""
    command = [installed("promtool", "prometheus"), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - on our own files
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.outside
def test_promtool_accepts_the_rules_and_their_tests_pass(tmp_path: Path) -> None:
    """`promtool check rules` reports nothing, and each alert fires exactly where its test expects it."""
    for path in (RULES, RULE_TESTS):
        shutil.copy(path, tmp_path)
    assert_accepted(tmp_path, "check", "rules", "--lint=all", "--lint-fatal", RULES.name)
    assert_accepted(tmp_path, "test", "rules", RULE_TESTS.name)


def test_the_dashboard_is_one_that_grafana_can_draw() -> None:
    """Ids are unique, panels do not overlap, each query has a datasource, and each variable is defined."""
    found = board()
    panels = found["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    cells = [
        (x, y)
        for one in panels
        for x in range(one["gridPos"]["x"], one["gridPos"]["x"] + one["gridPos"]["w"])
        for y in range(one["gridPos"]["y"], one["gridPos"]["y"] + one["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    variables = {one["name"] for one in found["templating"]["list"]}
    assert variables == {"datasource", "job", "model_name", "instance", "machine"}
    for panel in panels:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= {*variables, "__rate_interval"}


def answered(url: str, query: str) -> bool:
    """Return whether the query returns a number."""
    found = asked(url, "query", query=query)
    return any(not math.isnan(float(one["value"][1])) for one in found["result"])


@pytest.mark.prometheus
@pytest.mark.timeout(2 * PATIENCE_S)
def test_a_real_prometheus_answers_every_query(tmp_path: Path) -> None:
    """A real Prometheus scrapes all parts, evaluates the rules, and has a value for every query."""
    installed("prometheus", "prometheus")
    waiting = list(queries())
    assert len(waiting) > 40
    labels = [one["definition"] for one in board()["templating"]["list"] if one["type"] == "query"]
    with full_stack(tmp_path) as url:
        end = time.monotonic() + PATIENCE_S
        health: list[str] = []
        while (waiting or set(health) != {"ok"}) and time.monotonic() < end:
            threading.Event().wait(1.0)
            waiting = [(title, query) for title, query in waiting if not answered(url, query)]
            health = [one["health"] for part in asked(url, "rules")["groups"] for one in part["rules"]]
        assert waiting == []
        assert health == ["ok"] * 20
        assert asked(url, "query", query="max_over_time(up[10m]) == 0")["result"] == []
        for definition in labels:
            series = definition.removeprefix("label_values(").rpartition(",")[0]
            for name in VARIABLES:
                series = series.replace(f"${name}", ".*")
            assert asked(url, "query", query=series)["result"], definition


PAGE = ROOT / "docs" / "fleets.md"


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_job_of_an_export_with_a_token_and_tls_is_valid(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    """The other job of export is valid in place of the first, with its token and certificate there."""
    plain, with_tls = blocks("yaml")
    others, _, _ = plain.partition("  - job_name: sparktop-export")
    (tmp_path / "prometheus.yml").write_text(
        others.replace("rule_files: [sparktop.rules.yml]\n", "") + with_tls
    )
    (tmp_path / "token").write_text("0123456789abcdef\n")
    shutil.copy(certificate[0], tmp_path / "cert.pem")
    assert_accepted(tmp_path, "check", "config", "prometheus.yml")
    assert "scheme: https" in with_tls
