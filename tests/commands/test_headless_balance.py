"""Recorded loads, watched by the headless command in virtual time: verdict, alert and event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sparktop.commands.observation import observe
from sparktop.commands.snapshot import render
from sparktop.engines import read_page
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.sources.source import Reading, Source
from tests.commands.trace_pages import RIGHT, trace
from tests.virtual_loop import VirtualLoop
from tests.watch.monitor_fakes import FakeSource, FakeWays

pytestmark = pytest.mark.long

NAMES = ("spark-a", "spark-b")
ANSWERS_MS = {4: 2.0, 2: 13.0, 1: 26.0}
"""What an answer costs decides how often a loaded group is looked at."""


class RecordedWays(FakeWays):
    """Sources that read the pages of a recorded trace at the time of each poll."""

    def __init__(self, name: str, hz: int) -> None:
        """Replay `name` from the first poll on; answers are slow enough that `hz` polls a second are made."""
        super().__init__()
        self._trace, self._answer_ms = trace(name), ANSWERS_MS[hz]
        self._began: float | None = None

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Return the sources of the two servers."""
        return [FakeSource(one.name, self._reader(one.name[-1]), None) for one in targets]

    def _reader(self, side: str) -> Callable[[], Reading]:
        def read() -> Reading:
            now = asyncio.get_running_loop().time()
            self._began = now if self._began is None else self._began
            page = self._trace.page(side, now - self._began)
            return read_page(page, at=now, engine="vllm", answer_ms=self._answer_ms)

        return read


def watched(name: str, hz: int, form: str = "json", *, glance: bool = False) -> str:
    """Return the output of `sparktop snapshot` for a trace: of 2 minutes, or at once with `glance`."""
    strategy = "least-busy" if name.startswith(("leastbusy", "cooldown")) else "simple-shuffle"
    watch = Watch(
        backends=tuple(BackendTarget(one, f"http://{one}:8000") for one in NAMES),
        routers=(RouterTarget("proxy", "http://proxy:4000", strategy, NAMES),),
    )
    seconds = None if glance else min(120.0, trace(name).seconds - 2.0)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        snapshot, interrupted, _ = runner.run(observe(watch, seconds, ways=RecordedWays(name, hz)))
    assert not interrupted
    return render(snapshot, form)


@pytest.mark.parametrize(
    ("name", "hz"),
    [
        ("leastbusy-c16-b", 1),
        ("cooldown-c64", 1),
        ("shuffle-c16", 2),
    ],
)
def test_the_headless_word_is_right(name: str, hz: int) -> None:
    """Without any snapshots in between, a verdict is announced, with an alert and an event if it is bad."""
    data: dict[str, Any] = json.loads(watched(name, hz))
    (found,) = data["balance"]
    assert found["verdict"] in RIGHT[name]
    if name == "leastbusy-c16-b":
        assert found["sample_hz"] == pytest.approx(hz, abs=0.3)
    bad = found["verdict"] == "oscillating"
    assert [one["id"] for one in data["alerts"]] == ["balance:proxy:oscillating"] * bad
    begun = [one for one in data["events"] if one["subject"] == "proxy"]
    assert [one["values"]["verdict"] for one in begun] == ["oscillating"] * bad


def test_without_a_time_rates_cover_two_intervals() -> None:
    """Without --seconds, the report waits until rates cover two intervals, and states their window."""
    data: dict[str, Any] = json.loads(watched("shuffle-c64", 1, glance=True))
    for one in data["backends"]:
        assert 1.8 <= one["rate_window_s"] <= 4.0
        assert one["generation_tps"] is not None


def test_a_glance_says_how_much_longer_a_balance_takes() -> None:
    """A short report states how much more data the balance needs, from samples that it has read."""
    data: dict[str, Any] = json.loads(watched("shuffle-c64", 1, glance=True))
    (found,) = data["balance"]
    assert found["verdict"] == "unknown"
    assert " s more data: a verdict takes " in found["reasons"][0]
