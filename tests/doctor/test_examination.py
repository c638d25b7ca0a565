"""Everything that is watched is checked once, with one line for each check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.doctor.check import Check, Status, failed, to_json, to_text
from sparktop.doctor.examination import examine_network
from sparktop.doctor.network import Resolved
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.watch.discovery import Found

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class Search:
    """A search with a given result."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.hosts: list[str] = []

    async def __call__(self, hosts: Iterable[str]) -> Found:
        """Record the hosts; return the result."""
        self.hosts += hosts
        return self.found


async def test_all_that_is_watched_is_checked(fake: Any) -> None:  # noqa: ANN401 - the class of the fixture
    """Names are checked first, then nodes, backends and routers in the configuration's order."""
    watch = Watch(
        nodes=(NodeTarget("here"), NodeTarget("n", "agent", "http://spark-a:9750")),
        backends=(BackendTarget("b", "http://spark-a:8000"), BackendTarget("c", "http://spark-b:8000")),
        routers=(RouterTarget("r", "http://10.0.0.9:4000"),),
    )
    network = fake(names={"spark-a": Resolved(("10.0.0.1",), 0.0)}, closed=(8000, 9750, 4000))
    checks = await examine_network(watch, network, wanted=False)
    assert [(check.name, check.status.value) for check in checks] == [
        ("name spark-a", "ok"),
        ("name spark-b", "fail"),
        ("n agent port", "fail"),
        ("b port", "fail"),
        ("c port", "fail"),
        ("r port", "fail"),
    ]


async def test_what_is_found_is_checked_too(fake: Any) -> None:  # noqa: ANN401 - as above
    """Found servers are checked unless they are configured; hosts that do not resolve are not searched."""
    found = Found(
        backends=(BackendTarget("new", "http://10.0.0.1:1"), BackendTarget("again", "http://10.0.0.1:2")),
        routers=(RouterTarget("r", "http://10.0.0.1:3"),),
        agents=("10.0.0.1:9750",),
    )
    search = Search(found)
    watch = Watch(backends=(BackendTarget("b", "http://10.0.0.1:2"),), discover=("10.0.0.1", "dead.local"))
    checks = await examine_network(watch, fake(closed=(1, 2, 3)), wanted=True, search=search)
    assert search.hosts == ["10.0.0.1"]
    assert [check.name for check in checks] == ["name dead.local", "search", "b port", "new port", "r port"]


async def test_nothing_found_fails_only_where_it_was_named(fake: Any) -> None:  # noqa: ANN401 - as above
    """Finding nothing fails for a host that the user named; for this machine it is skipped."""
    search = Search(Found(notes=("10.0.0.1: nothing listens there",)))
    watch = Watch(discover=("10.0.0.1",))
    named = await examine_network(watch, fake(), wanted=True, search=search)
    usual = await examine_network(watch, fake(), wanted=False, search=search)
    assert ([one.status for one in named], [one.status for one in usual]) == ([Status.FAIL], [Status.SKIP])


def test_a_check_is_one_line() -> None:
    """A line has status, name, result and advice; FAIL is in capitals."""
    checks = [
        Check("port", Status.OK, "open"),
        Check("clock", Status.WARN, "5 s ahead", "set it"),
        Check("a\nb", Status.FAIL, "no\x1b[31m", "do\r\nthis"),
    ]
    assert to_text({"servers": checks}).splitlines()[1:4] == [
        "ok    port: open",
        "warn  clock: 5 s ahead — set it",
        "FAIL  a b: no [31m — do this",
    ]
    assert failed(checks)
    assert not failed(checks[:2])


ADVISED = Check("port", Status.FAIL, "nothing listens on 10.0.0.1:8000 (connection refused)", "start it")


def test_groups_have_headings_and_the_last_line_sums_up() -> None:
    """Empty groups are left out; the last line counts the statuses of all groups."""
    well = Check("memory", Status.OK, "122 GiB")
    lines = to_text({"sparktop": [well], "this machine": [], "servers": [ADVISED, well]}).splitlines()
    assert [line for line in lines if line and line[:4] not in {"ok  ", "FAIL"}] == [
        "sparktop",
        "servers",
        "2 ok, 1 failed",
    ]
    warned = Check("clock", Status.WARN, "5 s ahead")
    assert to_text({"a": [warned]}).endswith("\n1 warning\n")
    assert to_text({"a": [warned, warned], "b": [well]}).endswith("\n1 ok, 2 warnings\n")


def test_on_a_terminal_lines_are_wrapped_and_statuses_coloured() -> None:
    """Lines are wrapped to the terminal with an indent, and each colour is reset after its status."""
    text = to_text({"servers": [ADVISED]}, width=60, color=True)
    assert "\x1b[1;31mFAIL\x1b[0m  port: nothing listens" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
    assert max(map(len, plain)) <= 60
    assert plain[2].startswith("      ")
    assert " ".join(" ".join(plain[1:3]).split()).endswith("— start it")


@settings(max_examples=60)
@given(st.text(max_size=500), st.text(max_size=500), st.text(max_size=500))
def test_any_text_stays_on_its_line(name: str, message: str, advice: str) -> None:
    """A check with any text is one printable line, and JSON has the same text."""
    check = Check(name, Status.WARN, message, advice)
    text = to_text({"": [check]}).splitlines()[1]
    assert text.isprintable()
    (plain,) = json.loads(json.dumps(to_json([check], NOW)))["checks"]
    assert text.startswith(f"warn  {plain['name']}: {plain['message']}")


def test_json_has_its_schema() -> None:
    """JSON has schema, time and number of failures; missing advice is null."""
    body = to_json([Check("port", Status.FAIL, "closed")], NOW)
    assert (body["schema"], body["taken_at"], body["failed"]) == (
        "sparktop.doctor/1",
        "2026-01-02T03:04:05.678Z",
        1,
    )
    assert body["checks"] == [{"name": "port", "status": "fail", "message": "closed", "advice": None}]
