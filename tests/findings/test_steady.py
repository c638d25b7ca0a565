"""Findings near their limits: each stays or stays away, and does not come and go with the noise."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pytest
from msgspec.structs import replace

from sparktop.analysis.machines_compared import MachinesCompared
from sparktop.analysis.prefix_cache import PrefixCacheRule
from sparktop.analysis.slow_link import SlowLink
from sparktop.analysis.speculation import DraftLengthRule
from sparktop.model.engine import PrefixCache
from sparktop.model.event import Finding, Sure
from sparktop.model.node import ClockGap, GpuReading, MemoryAsk, NetworkReading, NodeSample
from sparktop.model.snapshot import BackendView, EachServer, LaneView, NodeView, PrefixUse, Situation
from tests.findings.links import Trouble, play
from tests.findings.machines import machine, situation
from tests.findings.start_memory import HELD, SHORT, Spark

MOST_CHANGES = 2
"""Of ten minutes."""
WHEN = datetime(2026, 9, 1, tzinfo=UTC)


def seeded(seed: int) -> Random:
    """Return a source of noise that is the same in each run."""
    return Random(seed)  # noqa: S311 - a simulation


def changes(held: list[bool]) -> int:
    """Return how often a finding came or went."""
    return sum(before != after for before, after in pairwise(held))


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
    assert any(held)
    assert changes(held) <= MOST_CHANGES


def test_a_link_that_was_always_slow_has_no_usual_power() -> None:
    """The power from which ranks compute is called that; no setting is named that has its own alert."""
    newest = play(seeded(1), Trouble(link=0.07e9, batches=(32, 48, 64, 96), always=True))[-1]
    assert (newest.values["usual_power_w"], newest.values["least_power_w"]) == (None, 60.0)
    assert "compute from 60 W on" in dict(newest.evidence)["ranks"]
    assert newest.fix is not None
    assert "MTU" not in newest.fix


@pytest.mark.parametrize("idle_s", [0, 90])
def test_sm_clocks_at_the_limit(idle_s: int) -> None:
    """A tenth below the twin's, also where both rest for a minute and a half of every four."""
    dice, rule, held = seeded(1), MachinesCompared(), []
    for at in range(900):
        busy = at % 240 >= idle_s
        views = []
        for number, share in ((1, 1.0), (2, 0.9 if not idle_s else 0.85)):
            view = machine(number)
            assert view.sample is not None
            gpus = tuple(
                replace(
                    one,
                    sm_clock_mhz=round(2400 * share * dice.gauss(1, 0.03)),
                    utilization_percent=95.0 if busy else 0.0,
                )
                for one in view.sample.gpus
            )
            views.append(replace(view, sample=replace(view.sample, gpus=gpus)))
        found = rule.look(situation(views, float(at)))
        held.append(any(one.key.startswith("sm-clock") for one in found))
    assert any(held)
    assert changes(held) <= MOST_CHANGES


def draft_steps(dice: Random, accepted: tuple[float, ...], running: list[float]) -> Iterator[BackendView]:
    """Yield a minute without drafts, then ten with them, whose acceptance varies from sample to sample."""
    generated = 0.0
    for second in range(660):
        length = len(accepted) if second >= 60 else 0
        batch = running[second // 30 % len(running)] if length else running[0]
        step_ms = (50 + 10 * length) * dice.gauss(1, 0.03)
        shares = [min(1.0, share * dice.gauss(1, 0.06)) for share in accepted[:length]]
        rate = batch * (1 + sum(shares)) * 1000 / step_ms
        generated += rate
        yield BackendView(
            "b", "http://b", "g", model="m", age_s=0.0, lanes=(LaneView("0"),), running=batch,
            kv_cache_percent=5.0, generation_tps=rate, generation_tokens=generated, prompt_tps=0.0,
            steps_per_s=1000 / step_ms, step_ms=step_ms, rate_window_s=10.0,
            spec_drafts_per_s=batch * 1000 / step_ms if length else 0.0,
            spec_draft_length=float(length) or None,
            spec_accepted_per_draft=sum(shares) if length else None,
            spec_accept_by_position=tuple(100 * share for share in shares),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("accepted", "running"),
    [((0.45, 0.22, 0.087), [4.0]), ((0.5, 0.3, 0.08), [4.0]), ((0.3, 0.1, 0.02), [4.0, 8.0])],
    ids=["near the limit", "near an alert", "two batches"],
)
def test_drafts_at_the_limit(accepted: tuple[float, ...], running: list[float]) -> None:
    """Acceptance varies, and of one of two batches no other length is known."""
    rule = EachServer(DraftLengthRule)
    found = [
        [
            one
            for one in rule.look(Situation(float(second), WHEN, {"b": view}))
            if one.sure is not Sure.UNKNOWN
        ]
        for second, view in enumerate(draft_steps(seeded(1), accepted, running))
    ]
    assert any(found)
    assert changes([bool(now) for now in found]) <= MOST_CHANGES
    assert changes([any(one.severity for one in now) for now in found]) <= MOST_CHANGES


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
    assert any(held)
    assert changes(held) <= MOST_CHANGES
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
    assert any(held)
    assert changes(held) <= 2 * MOST_CHANGES
    spark.hidden, spark.found = 2.0, []
    spark.run(5)
    assert spark.found == []


def link_views(dice: Random) -> Iterator[tuple[int, BackendView, dict[str, NodeView]]]:
    """Yield a healthy part, then one in which steps of large batches alone are slow for their bytes."""
    for at in range(1040):
        batch = (2, 4, 8, 16, 32)[at // 20 % 5]
        best = 0.06 + 0.0006 * batch + batch * 2e-4
        beyond = 0.0 if at < 140 else 0.07 * batch / 16
        step = best + beyond
        gpu = GpuReading(
            0,
            utilization_percent=96.0,
            power_w=38 * (1 - 0.55 * beyond / step) * dice.gauss(1, 0.03),
            sm_clock_mhz=2400,
        )
        rate = batch * 32e6 / step * dice.gauss(1, 0.03)
        port = NetworkReading(
            "r", "rdma", up=True, rx_bytes_per_s=rate, tx_bytes_per_s=rate, link_bits_per_s=2e11
        )
        nodes = {
            name: NodeView(name, "ssh", NodeSample(float(at), gpus=(gpu,), network=(port,)), age_s=0.5)
            for name in ("a", "b")
        }
        view = BackendView(
            "g", "http://g", "g", nodes=("a", "b"), age_s=0.5, running=float(batch),
            step_ms=1000 * step * dice.gauss(1, 0.03), best_step_ms=1000 * best,
        )  # fmt: skip
        yield at, view, nodes


@pytest.mark.parametrize("share", [0.08, 0.11])
def test_prefixes_found_at_the_limit(share: float) -> None:
    """An agent's turns, of which about a tenth of all tokens is found in the cache."""
    dice, rule, held = seeded(2), EachServer(PrefixCacheRule), []
    count = tokens = cached = due = 0.0
    length = 2000.0
    for second in range(7200):
        if second >= due:
            due = second + dice.uniform(8, 25)
            if length > 30_000 or dice.random() < 0.04:
                length = dice.uniform(1500, 6000)
            count, tokens, length = count + 1, tokens + length, length + dice.uniform(150, 900)
            cached += 0.9 * length if dice.random() < share else 0.0
        use = PrefixUse(PrefixCache(on=True, block_tokens=16), count, tokens, tokens, cached)
        view = BackendView("b", "http://b", "g", engine="vllm", generation_tokens=9e5, prefix=use)
        held.append(bool(list(rule.look(Situation(float(second), WHEN, {"b": view})))))
    assert any(held)
    assert changes(held) <= MOST_CHANGES + 1


@pytest.mark.parametrize("share", [0.35, 0.45, 0.55])
def test_turns_that_are_as_many_as_other_prompts(share: float) -> None:
    """About half of the prompts continue the one before, the others have any length; none is found."""
    dice, rule, held = seeded(5), EachServer(PrefixCacheRule), []
    count = tokens = length = 0.0
    for second in range(7200):
        if second % 6 == 0:
            length = length + dice.uniform(150, 900) if dice.random() < share else dice.uniform(1500, 20_000)
            count, tokens = count + 1, tokens + length
        use = PrefixUse(PrefixCache(on=True, block_tokens=16), count, tokens, tokens, 0.0)
        view = BackendView("b", "http://b", "g", engine="vllm", generation_tokens=9e5, prefix=use)
        found = list(rule.look(Situation(float(second), WHEN, {"b": view})))
        held.append(any(one.severity for one in found))
    assert any(held)
    assert changes(held) <= MOST_CHANGES + 1


def test_a_slow_link_whose_small_batches_are_not_slow() -> None:
    """The batches come by turns; the small ones hardly need the link."""
    rule, held, found = EachServer(SlowLink), [], list[Finding]()
    for at, view, nodes in link_views(seeded(1)):
        found = list(rule.look(Situation(float(at), WHEN, {"g": view}, nodes)))
        held.append(any(one.severity for one in found))
    assert any(held)
    assert changes(held) <= MOST_CHANGES
