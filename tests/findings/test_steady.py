"""Findings near their limits: each stays or stays away, and does not come and go with the noise."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from msgspec.structs import replace

from sparktop.analysis.machines_compared import MachinesCompared
from sparktop.analysis.prefix_cache import PrefixCacheRule
from sparktop.model.engine import PrefixCache
from sparktop.model.event import Finding, Sure
from sparktop.model.node import ClockGap, MemoryAsk
from sparktop.model.snapshot import BackendView, EachServer, PrefixUse, Situation
from tests.findings import speculation
from tests.findings.links import Trouble, moments, play
from tests.findings.machines import Paced, machine, situation
from tests.findings.speculation import Draft, Phase
from tests.findings.start_memory import HELD, SHORT, Spark
from tests.findings.study import seeded
from tests.known import known

MOST_CHANGES = 2
"""Of ten minutes."""
WHEN = datetime(2026, 9, 1, tzinfo=UTC)


def changes(held: list[bool]) -> int:
    """Return how often a finding came or went."""
    return sum(before != after for before, after in pairwise(held))


def assert_steady(held: list[bool], most: int = MOST_CHANGES) -> None:
    """Assert that a finding was there, and came or went at most so often."""
    assert any(held)
    assert changes(held) <= most


def test_clocks_at_the_limit() -> None:
    """Half a second apart, read over ways of 2 to 50 ms."""
    dice, rule, held = seeded(1), MachinesCompared(), []
    first, second = machine(1), machine(2)
    for at in range(600):
        gaps = (ClockGap(0.0, 0.002), ClockGap(0.55 + dice.gauss(0, 0.02), dice.uniform(0.002, 0.05)))
        views = [
            replace(view, sample=replace(view.sample, clock=gap))
            for view, gap in zip((first, second), gaps, strict=True)
            if view.sample is not None
        ]
        found = rule.look(situation(views, float(at)))
        held.append(any(one.key.startswith("clocks") for one in found))
    assert_steady(held)


def test_a_link_that_was_always_slow_has_no_usual_power() -> None:
    """The power from which ranks compute is called that; no setting is named that has its own alert."""
    newest = play(seeded(1), Trouble(link=0.07e9, batches=(32, 48, 64, 96), always=True))[-1]
    assert (newest.values["usual_power_w"], newest.values["least_power_w"]) == (None, 60.0)
    assert "compute from 60 W on" in dict(newest.evidence)["ranks"]
    assert "MTU" not in known(newest.fix)


@pytest.mark.parametrize("idle_s", [0, 90])
def test_sm_clocks_at_the_limit(idle_s: int) -> None:
    """A tenth below the twin's, also where both rest for a minute and a half of every four."""
    dice, rule, held = seeded(1), MachinesCompared(), []
    shares = {Paced(1): 1.0, Paced(2): 0.9 if not idle_s else 0.85}
    for at in range(900):
        load = 95.0 if at % 240 >= idle_s else 0.0
        views = [track.at(at, 2400 * share * dice.gauss(1, 0.03), load) for track, share in shares.items()]
        found = rule.look(situation(views, float(at)))
        held.append(any(one.key.startswith("sm-clock") for one in found))
    assert_steady(held)


@pytest.mark.parametrize(
    ("accepted", "running"),
    [((0.45, 0.22, 0.087), [4.0]), ((0.5, 0.3, 0.08), [4.0]), ((0.3, 0.1, 0.02), [4.0, 8.0])],
    ids=["near the limit", "near an alert", "two batches"],
)
def test_drafts_at_the_limit(accepted: tuple[float, ...], running: list[float]) -> None:
    """Acceptance varies, and of one of two batches no other length is known."""
    drafting = [Phase(len(accepted), 30, running[turn % len(running)]) for turn in range(20)]
    phases = [Phase(0, running=running[0]), *drafting]
    seen = [
        [one for one in found if one.sure is not Sure.UNKNOWN]
        for found in speculation.moments(seeded(1), Draft(50, 10, accepted), phases, noise=0.03, luck=0.06)
    ]
    assert_steady([bool(now) for now in seen])
    assert changes([any(one.severity for one in now) for now in seen]) <= MOST_CHANGES


def test_a_start_that_is_short_of_what_is_within_the_noise() -> None:
    """Other programs leave a GiB less than it takes, and vary."""
    spark = Spark(seeded(3), asks=MemoryAsk(share=0.5))
    spark.start(50, 3)
    spark.run(60)
    spark.end()
    spark.others = spark.headroom - 0.5 * 121.6 - 2.6 + 1.0
    held = []
    for _ in range(60):
        spark.found = []
        spark.run(5)
        held.append(any(one.kind == SHORT and one.severity for one in spark.found))
    assert_steady(held)
    spark.others -= 0.8
    spark.found = []
    spark.run(5)
    assert not [one for one in spark.found if one.kind == SHORT and one.severity]


def test_memory_of_nobody_at_the_limit() -> None:
    """8.1 GiB, give or take 0.1; gone once it is clearly less."""
    spark = Spark(seeded(3))
    spark.hidden = 5.1
    held = []
    for _ in range(240):
        spark.found = []
        spark.run(5)
        held.append(any(one.kind == HELD for one in spark.found))
    assert_steady(held, 2 * MOST_CHANGES)
    spark.hidden, spark.found = 2.0, []
    spark.run(5)
    assert spark.found == []


def after_each(prompts: Iterator[tuple[float, float, float]]) -> Iterator[list[Finding]]:
    """Yield what is found each second of two hours of prompts: (when, tokens, tokens found in the cache)."""
    rule, count, tokens, cached = EachServer(PrefixCacheRule), 0.0, 0.0, 0.0
    due = next(prompts)
    for second in range(7200):
        if second >= due[0]:
            count, tokens, cached = count + 1, tokens + due[1], cached + due[2]
            due = next(prompts)
        use = PrefixUse(PrefixCache(on=True, block_tokens=16), count, tokens, tokens, cached)
        view = BackendView("b", "http://b", "g", engine="vllm", generation_tokens=9e5, prefix=use)
        yield list(rule.look(Situation(float(second), WHEN, {"b": view})))


@pytest.mark.parametrize("share", [0.08, 0.11])
def test_prefixes_found_at_the_limit(share: float) -> None:
    """An agent's turns, of which about a tenth of all tokens is found in the cache."""
    dice = seeded(2)

    def turns() -> Iterator[tuple[float, float, float]]:
        at, length = 0.0, 2000.0
        while True:
            if length > 30_000 or dice.random() < 0.04:
                length = dice.uniform(1500, 6000)
            yield at, length, 0.9 * length if dice.random() < share else 0.0
            at, length = at + dice.uniform(8, 25), length + dice.uniform(150, 900)

    held = [bool(found) for found in after_each(turns())]
    assert_steady(held, MOST_CHANGES + 1)


@pytest.mark.parametrize("share", [0.35, 0.45, 0.55])
def test_turns_that_are_as_many_as_other_prompts(share: float) -> None:
    """About half of the prompts continue the one before, the others have any length; none is found."""
    dice = seeded(5)

    def mixed() -> Iterator[tuple[float, float, float]]:
        at, length = 0.0, 0.0
        while True:
            length = length + dice.uniform(150, 900) if dice.random() < share else dice.uniform(1500, 20_000)
            yield at, length, 0.0
            at += 6

    held = [any(one.severity for one in found) for found in after_each(mixed())]
    assert_steady(held, MOST_CHANGES + 1)


def test_a_slow_link_whose_small_batches_are_not_slow() -> None:
    """The batches come by turns; the small ones hardly need the link."""
    found = [found for _, found in moments(seeded(1), Trouble(link=1.2e9), trouble_s=900)]
    held = [any(one.severity for one in now) for now in found]
    assert_steady(held)
