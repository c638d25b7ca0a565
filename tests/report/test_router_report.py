"""Routers in the reports."""

from __future__ import annotations

import json
import re

import pytest

from sparktop.model.snapshot import Snapshot
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render
from stage.rehearsal import Rehearsal, RouterPart

pytestmark = pytest.mark.long


def snapshot(**part: object) -> Snapshot:
    return Rehearsal(router=RouterPart(**part)).play(30).snapshot()  # type: ignore[arg-type]  # a test's own words


def test_json_has_the_routers_of_the_schema() -> None:
    """Every key is present; a deployment without a backend here is null."""
    (router,) = json.loads(json.dumps(to_json(snapshot(strangers=1)), allow_nan=False))["routers"]
    assert router.pop("age_s") >= 0
    expected = {
        "name": "proxy",
        "url": "http://192.168.100.11:4000",
        "ok": True,
        "error": None,
        "kind": "litellm",
        "strategy": "least-busy",
        "backends": ["spark-a", "spark-b"],
        "deployments": {"spark-1": "spark-a", "spark-2": "spark-b", "cloud-1": None},
        "stuck": {},
        "deployment_troubles": {},
        "slow": None,
        "cooldown_s": None,
        "cooldowns_disabled": None,
        "failures": None,
        "cooldowns": None,
        "refusals": None,
        "queued": None,
        "in_flight": None,
        "sent": None,
    }
    assert {key: router.get(key, "absent") for key in expected} == expected


def test_json_of_a_router_that_tells_nothing() -> None:
    """Without a key, deployments are null instead of an empty list; a router that is down has its error."""
    (router,) = json.loads(json.dumps(to_json(snapshot(tells=False, down_at_s=10))))["routers"]
    assert (router["deployments"], router["strategy"], router["ok"]) == (None, "simple-shuffle", False)
    assert "connection refused" in router["error"]


@pytest.mark.parametrize("width", [60, 100])
def test_the_plain_report_tells_where_a_router_sends(width: int) -> None:
    """A row with state and strategy, and below it each backend with the router's name for it."""
    text = render(snapshot(strangers=1), width)
    assert max(map(len, text.splitlines())) <= width
    assert "sends to spark-a (spark-1), spark-b (spark-2)," in text
    assert "unmapped (cloud-1)" in text.replace("\n    ", " ")
    assert re.search("alive +litellm +least-busy", text)


def test_the_plain_report_says_what_is_missing() -> None:
    """A strategy from the config is marked, and the line that says what to do follows."""
    text = render(snapshot(tells=False), 100)
    assert "simple-shuffle (config)" in text
    assert "  needs a key to list its deployments" in text
    down = render(snapshot(down_at_s=10), 100)
    assert re.search("proxy +down", down)
    assert "connection refused" in down
