"""Prefill and decode workers, a sweep of this program's own, and failures that are not counted."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from sparktop.model.balance import BalanceWord as Is
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import RouterTarget
from sparktop.report.json_snapshot import to_json
from tests.store.fed_traces import START, Pair, lives, looks

pytestmark = pytest.mark.long

WORKERS = ("p1", "p2", "d1", "d2")
LIFE_S, PROMPT, ANSWER = 4.0, 2048.0, 200.0


def worked(seconds: float) -> Snapshot:
    """Feed four workers behind one router: 2 and 0 requests at the prefill ones, 14 and 14 at the others."""
    pair = Pair(router=RouterTarget("pd", "http://p:4000", "round-robin", WORKERS), backends=WORKERS)
    load: Mapping[str, float] = {"p1": 2.0, "p2": 0.0, "d1": 14.0, "d2": 14.0}
    for step in range(int(seconds)):
        pair.at = START + step
        ended = 3.0 * step
        for name in WORKERS:
            prefill = name.startswith("p")
            lane = LaneSample(
                "0",
                running=load[name],
                waiting=0.0,
                prompt_tokens=PROMPT * ended if prefill else 0.0,
                generation_tokens=ended if prefill else ANSWER * ended,
                finished={"length": ended},
                e2e=lives(int(ended), LIFE_S),
            )
            pair.tell(name, lane)
        pair.store.judge()
    return pair.store.snapshot()


def test_workers_are_judged_within_their_role() -> None:
    """Idle prefill workers do not count as starved beside decode workers: each kind is a group of its own."""
    seen = worked(120)
    assert [(one.group, one.backends, one.router) for one in seen.balance] == [
        ("pd prefill", ("p1", "p2"), "pd"),
        ("pd decode", ("d1", "d2"), "pd"),
    ]
    assert {one.word for one in seen.balance} <= {Is.BALANCED, Is.IDLE, Is.UNKNOWN}
    assert seen.alerts == ()
    told = json.loads(json.dumps(to_json(seen)))["backends"]
    assert [one["role"] for one in told] == ["prefill", "prefill", "decode", "decode"]


def test_workers_that_report_their_role_are_judged_within_it_at_once() -> None:
    """Roles apply before anything was counted; a worker that reports none is in neither group."""
    pair = Pair(router=RouterTarget("pd", "http://p:4000", "round-robin", WORKERS), backends=WORKERS)
    reported = {"p1": "prefill", "p2": "prefill", "d1": "backend", "d2": None}
    for step in range(3):
        pair.at = START + step
        for name in WORKERS:
            sample = EngineSample(
                pair.at, "vllm", (LaneSample("0", running=1.0, waiting=0.0),), role=reported[name]
            )
            pair.give(name, sample)
        pair.store.judge()
    seen = pair.store.snapshot()
    assert [(one.group, one.backends) for one in seen.balance] == [("pd prefill", ("p1", "p2"))]
    assert [one.role for one in seen.backends] == ["prefill", "prefill", "decode", None]


def swinging(pair: Pair) -> Snapshot:
    return [*pair.play(looks("leastbusy-c16"), life_s=3.6)][-1]


def test_a_sweep_raises_no_alarm_about_its_own_load() -> None:
    """While this program loads the router the swing is shown, and no alert or event comes of it."""
    pair = Pair()
    with pair.store.loaded_from_here(frozenset({"proxy"})):
        seen = swinging(pair)
        assert (seen.balance[0].word, seen.alerts, seen.events) == (Is.OSCILLATING, (), ())
    pair.at += 61
    seen = swinging(pair)
    assert [one.id for one in seen.alerts] == ["balance:proxy:oscillating"]
