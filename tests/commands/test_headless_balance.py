"""Recorded loads, watched by the headless command in virtual time: verdict, alert and event."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.commands.observation import observe
from sparktop.commands.snapshot import render
from sparktop.model.engine import EngineSample
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.sources.source import PollResult, Source
from tests.store.fed_traces import NAMES, lane, looks
from tests.virtual_loop import VirtualLoop
from tests.watch.monitor_fakes import FakeSource, FakeWays

pytestmark = pytest.mark.long

ANSWERS_MS = {2: 13.0, 1: 26.0}
"""What an answer costs decides how often a loaded group is looked at."""
LIVES_S = {"leastbusy-c16-b": 3.5, "cooldown-c64": 19.0, "shuffle-c16": 3.5, "shuffle-c64": 13.0}
"""How long a request of each trace lives."""


class RecordedWays(FakeWays):
    """Sources that read a recorded trace at the time of each poll."""

    def __init__(self, name: str, hz: int) -> None:
        """Replay `name` from the first poll on; answers are slow enough that `hz` polls a second are made."""
        super().__init__()
        self._looks, self._life_s, self._answer_ms = looks(name), LIVES_S[name], ANSWERS_MS[hz]
        self._began: float | None = None

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Return the sources of the two servers."""
        return [FakeSource(one.name, self._reader(NAMES.index(one.name)), None) for one in targets]

    def _reader(self, index: int) -> Callable[[], PollResult]:
        def read() -> PollResult:
            now = asyncio.get_running_loop().time()
            self._began = now if self._began is None else self._began
            passed_s = self._looks[0].at + now - self._began
            look = self._looks[max(0, bisect_right(self._looks, passed_s, key=lambda one: one.at) - 1)]
            figures = (look.running[index], look.waiting[index], look.tokens[index])
            # Finished requests, derived from tokens, would look like arrivals that never happened.
            told = replace(lane("0", *figures, life_s=self._life_s), finished={})
            return EngineSample(now, "vllm", (told,), models=("m",), answer_ms=self._answer_ms)

        return read


def watched(name: str, hz: int, *, glance: bool = False) -> dict[str, Any]:
    """Return the JSON of `sparktop snapshot` for a trace: of 2 minutes, or at once with `glance`."""
    strategy = "simple-shuffle" if name.startswith("shuffle") else "least-busy"
    watch = Watch(
        backends=tuple(BackendTarget(one, f"http://{one}:8000") for one in NAMES),
        routers=(RouterTarget("proxy", "http://proxy:4000", strategy, NAMES),),
    )
    rows = looks(name)
    seconds = None if glance else min(120.0, rows[-1].at - rows[0].at - 2.0)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        snapshot, interrupted, _ = runner.run(observe(watch, seconds, ways=RecordedWays(name, hz)))
    assert not interrupted
    found: dict[str, Any] = json.loads(render(snapshot, "json"))
    return found


@pytest.mark.parametrize(
    ("name", "hz", "right"),
    [
        ("leastbusy-c16-b", 1, {"oscillating"}),
        ("cooldown-c64", 1, {"oscillating"}),
        ("shuffle-c16", 2, {"balanced", "unknown"}),
    ],
)
def test_the_headless_word_is_right(name: str, hz: int, right: set[str]) -> None:
    """Without any snapshots in between, a verdict is announced, with an alert and an event if it is bad."""
    data = watched(name, hz)
    (found,) = data["balance"]
    assert found["verdict"] in right
    if name == "leastbusy-c16-b":
        assert found["sample_hz"] == pytest.approx(hz, abs=0.3)
    bad = found["verdict"] == "oscillating"
    assert [one["id"] for one in data["alerts"]] == ["balance:proxy:oscillating"] * bad
    begun = [one for one in data["events"] if one["subject"] == "proxy"]
    assert [one["values"]["verdict"] for one in begun] == ["oscillating"] * bad


def test_without_a_time_rates_cover_two_intervals() -> None:
    """Without --seconds, the report waits until rates cover two intervals, and states their window."""
    data = watched("shuffle-c64", 1, glance=True)
    for one in data["backends"]:
        assert 1.8 <= one["rate_window_s"] <= 4.0
        assert one["generation_tps"] is not None


def test_a_glance_says_how_much_longer_a_balance_takes() -> None:
    """A short report states how long a verdict on the balance takes, from samples that it has read."""
    data = watched("shuffle-c64", 1, glance=True)
    (found,) = data["balance"]
    assert found["verdict"] == "unknown"
    assert " s: a verdict takes " in found["reasons"][0]
