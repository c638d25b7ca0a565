"""Yardsticks: closed forms of the limit, published tables, own bests, and what has changed since."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from sparktop.analysis.yardsticks import (
    Yardsticks,
    allowed_growth,
    changes,
    is_same_batch,
    own_best,
    published_at,
    step_limit_tps,
    words,
    yardsticks,
)
from sparktop.model.node import ModelWeights
from sparktop.model.snapshot import BackendView, Situation
from sparktop.model.yardsticks import (
    FLAGS,
    PUBLISHED,
    PastSetup,
    PublishedRates,
    SteadyLoad,
    Yardstick,
    YardstickBasis,
)
from sparktop.watch.state_files import SHIPPED, read_recipe

GB10, TOKEN_GB = 273.0, 2.55
BLOG = json.loads((SHIPPED / "spark-vllm-blog.json").read_text())["facts"]["roofline"]


def best(running: float, tps: float, **facts: str) -> PastSetup:
    load = SteadyLoad(1762128000.0, running, running, 1000 * running / tps, tps)
    return PastSetup("b:8000", "vllm", "m", facts, 1762128000.0, (load,))


def published(name: str, target: str) -> PublishedRates:
    rates = read_recipe((SHIPPED / f"{name}.json").read_bytes())
    return next(one for one in rates if f"{one.source},".startswith(f"{name}: {target},"))


SOLO = published("spark-topologies-2026-03", "solo")
UNSTATED = published("gx10-concurrency-first", "ngc-hand-tuned")
"""Tables with and without the lengths of their requests."""


def test_the_limit_of_one_request_is_that_of_the_seed() -> None:
    """273 GB/s / 2.55 GB = 107 tokens/s; 40 of them are 37 %, as the post says."""
    basis = YardstickBasis(weights=ModelWeights(TOKEN_GB, mixture=True), bandwidth_gb_per_s=GB10)
    limit = yardsticks(basis, BLOG["playbook_tps"], 1.0)[2]
    assert limit.tps == pytest.approx(BLOG["limit_tps"], rel=0.01)
    assert limit.percent == pytest.approx(100 * BLOG["playbook_efficiency"], rel=0.01)


@pytest.mark.parametrize(
    ("machines", "cores", "running", "accepted", "expected"),
    [
        (1, 1, 1, 0, 17.0625),
        (1, 1, 16, 0, 273.0),
        (2, 1, 1, 0, 34.125),
        (2, 2, 8, 0, 136.5),
        (1, 2, 1, 0, 17.0625),
        (1, 2, 8, 0, 68.25),
        (1, 1, 1, 1.5, 42.656),
    ],
)
def test_the_limit_of_dense_weights(
    machines: int, cores: int, running: int, accepted: float, expected: float
) -> None:
    """Bandwidth of all machines / 16 GB x tokens of a step of a core, accepted drafts included."""
    basis = YardstickBasis(weights=ModelWeights(16.0), bandwidth_gb_per_s=machines * GB10, cores=cores)
    generated = running / min(running, cores) * (1 + accepted)
    assert yardsticks(basis, 5.0, running, generated=generated)[2].tps == pytest.approx(expected, rel=0.01)
    assert step_limit_tps(ModelWeights(16.0), machines * GB10, generated) == pytest.approx(expected, rel=0.01)


def test_limits_that_are_not_known_say_why() -> None:
    """No bandwidth, no weights, experts of several requests, weights that cannot be those that are read."""
    mixture = ModelWeights(TOKEN_GB, mixture=True)
    bases = (
        YardstickBasis(weights=mixture),
        YardstickBasis(bandwidth_gb_per_s=GB10),
        YardstickBasis(weights=mixture, bandwidth_gb_per_s=GB10),
        YardstickBasis(weights=ModelWeights(100.0), bandwidth_gb_per_s=GB10),
        YardstickBasis(servers=2),
    )
    sticks = [yardsticks(basis, 100.0, 8.0)[2] for basis in bases]
    assert [one.percent for one in sticks] == [None] * len(bases)
    said = " ".join(one.words for one in sticks)
    words = ("are a GB10", "bytes_per_token_gb", "experts", "faster than 100.00 GB", "not behind a")
    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize(
    ("name", "target", "running", "tps"),
    [
        ("spark-topologies-2026-03", "solo", 1, 57.5),
        ("spark-topologies-2026-03", "solo", 64, 315.2),
        ("spark-topologies-2026-03", "cluster-tp2", 16, 342.1),
        ("spark-topologies-2026-03", "simple-shuffle", 64, 567.9),
        ("gx10-concurrency-first", "gx10-patched", 256, 285.8),
        ("gx10-concurrency-first", "ngc-hand-tuned", 1, 34.8),
        ("spark-dgx-benchmark", "spark-batch-scaling", 16, 183.4),
        ("spark-dgx-benchmark", "spark-interactive", 1, 31.7),
        ("spark-vllm-blog", "spark-tuned", 64, 444.0),
    ],
)
def test_published_figures_are_those_of_the_tables(name: str, target: str, running: int, tps: float) -> None:
    """Each level of a shipped table is a yardstick, and half of it is 50 %."""
    rates = published(name, target)
    assert published_at(rates, running) == tps
    stick = yardsticks(YardstickBasis(published=(rates,), servers=rates.servers), tps / 2, running)[1]
    assert (stick.tps, stick.percent) == (tps, 50.0)
    assert stick.source.startswith(f"table {name}: {target}")


def test_between_two_levels_a_straight_line() -> None:
    """At 6 running half of the way from 4 to 8; beyond the last level nothing is known."""
    rates = PublishedRates("t", "m", "vllm", "GB10", levels=((4, 100.0), (8, 140.0)))
    assert [published_at(rates, at) for at in (3, 4, 6, 8, 9)] == [None, 100.0, 120.0, 140.0, None]
    assert "between two levels" in yardsticks(YardstickBasis(published=(rates,)), 60.0, 6.0)[1].source
    assert "no table reaches 9 running" in yardsticks(YardstickBasis(published=(rates,)), 60.0, 9.0)[1].words


def test_the_highest_of_several_tables_counts() -> None:
    """Of 57.5 and 34.8 tok/s for one request it is 57.5, and the other is named."""
    stick = yardsticks(YardstickBasis(published=(SOLO, UNSTATED)), 23.0, 1.0)[1]
    assert (stick.tps, stick.percent) == (57.5, 40.0)
    assert stick.source.endswith("solo, 1,024 → 128 tokens; best of 2 for 1 request, 34.8 to 57.5")


@pytest.mark.parametrize(
    ("lengths", "tps"),
    [
        ((None, None), 57.5),
        ((1024, 128), 57.5),
        ((1000, 120), 57.5),
        ((1024, 256), None),
        ((128, 64), None),
        ((None, 64), None),
    ],
)
def test_a_published_rate_of_other_lengths_is_no_yardstick(
    lengths: tuple[int | None, int | None], tps: float | None
) -> None:
    """Within 10 % they are the same, and what is not known is not held against it; a table without counts."""
    stick = yardsticks(YardstickBasis(published=(SOLO,)), 23.0, 1.0, lengths=lengths)[1]
    assert (stick.tps, stick.prompt_tokens, stick.output_tokens) == (tps, 1024, 128)
    other = "other lengths: table spark-topologies-2026-03: solo, 1,024 → 128 tokens"
    assert tps is not None or stick == Yardstick(PUBLISHED, other, None, None, 1024, 128)
    stick = yardsticks(YardstickBasis(published=(SOLO, UNSTATED)), 23.0, 1.0, lengths=lengths)[1]
    assert stick.tps == (tps or 34.8)


def test_the_own_best_is_of_this_version_flags_and_batch() -> None:
    """That of another version counts for nothing, nor do other batches."""
    flags = {FLAGS: "-tp 2"}
    setups = (
        best(8, 200.0, version="1", **flags),
        best(8, 150.0, version="2", **flags, driver="a"),
        best(16, 300.0, version="2", **flags),
    )
    basis = YardstickBasis({"version": "2", **flags, "driver": "b"}, setups=setups)
    stick = yardsticks(basis, 93.0, 8.0, 8.0)[0]
    assert (stick.tps, stick.percent) == (150.0, 62.0)
    assert stick.source == "8 running, 2025-11-03"
    assert own_best(basis, 4.0) is None
    assert own_best(basis, 8.0, before=1762128000.0) is None
    assert own_best(basis, 8.0, 64.0) is None
    assert words(yardsticks(basis, 93.0, 8.0, 8.0)) == "62 % of its own best"


def test_a_larger_batch_may_take_longer() -> None:
    """By as much as it is larger; a fuller cache by half of that; a smaller batch must not."""
    then = SteadyLoad(0.0, 10, 10, 50.0, kv_percent=20.0)
    for batch, kv_percent, factor in ((11, 20.0, 1.1), (10, 24.0, 1.1), (9, 10.0, 1.0)):
        now = SteadyLoad(0.0, batch, batch, 50.0, kv_percent=kv_percent)
        assert allowed_growth(now, then) == pytest.approx(factor)
    assert not is_same_batch(then, SteadyLoad(0.0, 10, 64, 50.0, kv_percent=20.0))
    assert not is_same_batch(then, SteadyLoad(0.0, 10, 10, 50.0))


def test_changes_are_those_that_are_known_of_both() -> None:
    """Flags one by one; what one of the setups lacks is not compared."""
    then = {"version": "1", FLAGS: "--max-num-seqs 64 -tp 1", "driver": "a", "kernel": "k"}
    now = {"version": "2", FLAGS: "--enforce-eager -tp 1", "driver": "a", "model revision": "r"}
    assert list(changes(then, now)) == ["without --max-num-seqs 64", "with --enforce-eager", "version 1 → 2"]
    assert list(changes({FLAGS: "none"}, {FLAGS: "-tp 2"})) == ["with -tp 2"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"name": 3}', b'{"name": "a", "model": "m"}'])
def test_a_file_that_is_no_table(content: bytes) -> None:
    """It is refused."""
    with pytest.raises(msgspec.DecodeError):
        read_recipe(content)


@pytest.mark.parametrize(("pause_s", "in_sweep"), [(400.0, False), (60.0, True)])
def test_slower_steps_before_a_pause_do_not_count_after_it(pause_s: float, *, in_sweep: bool) -> None:
    """Steps must be slower for half a minute, not seen so once before a sweep or a long pause, once after."""
    rule, steady = Yardsticks(), SteadyLoad(0.0, 8.0, 8.0, 80.0)
    basis = YardstickBasis(setups=(best(8.0, 150.0),), steady=steady, busy_s=1e4)
    view = BackendView("b", "http://b:8000", "b", age_s=0.0, yardstick_basis=basis)

    def is_found(at: float, view: BackendView) -> bool:
        now = Situation(at, datetime.fromtimestamp(1762128000.0 + at, UTC), {"b": view})
        return any(found.kind == "slower-than-best" for found in rule.look(now, view))

    assert not is_found(10.0, view)
    unseen = replace(view, in_sweep=True) if in_sweep else replace(view, yardstick_basis=YardstickBasis())
    assert not is_found(10.0 + pause_s / 2, unseen)
    assert not is_found(10.0 + pause_s, view)
    assert is_found(40.0 + pause_s, view)
