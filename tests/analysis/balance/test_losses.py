"""What uneven loads cost, with the time that prompts take, and what random routing would gain."""

from __future__ import annotations

from itertools import accumulate

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadTrack, lay_out
from sparktop.analysis.balance.spread import Lost, lost_share
from sparktop.analysis.balance.step_time import fit_pairs, lost_by_chance, throughput
from sparktop.analysis.balance.words import _random_routing_advice
from sparktop.model.balance import Balance, StepTime, balance_cost
from tests.known import known

STEP = StepTime(base_s=0.036, per_request_s=0.0024, pairs=100)
TURN_S, HZ, CLIENTS = 8, 4, 32


def turns(name: str, first: int, decoding: float, *, together: bool) -> LoadTrack:
    """Return a server that has all requests every second turn, and decodes for this share of its time.

    Its requests arrive with its turn, or one by one in it.
    """
    count = 12 * TURN_S * HZ
    full = [index // (TURN_S * HZ) % 2 == first for index in range(count)]
    tps = decoding * throughput(STEP, None)(CLIENTS)
    begins = [index % (TURN_S * HZ) == 0 and has for index, has in enumerate(full)]
    came = [
        CLIENTS * begin if together else CLIENTS / (TURN_S * HZ) * has
        for begin, has in zip(begins, full, strict=True)
    ]
    return LoadTrack(
        name,
        [index / HZ for index in range(count)],
        [float(CLIENTS * has) for has in full],
        [0.0] * count,
        [tps * has for has in full],
        arrived=list(accumulate(came)),
    )


def lost_by(decoding: float, step: StepTime, *, together: bool = False) -> Lost:
    """Return what two servers lose that have all requests in turn."""
    grid = known(
        lay_out(
            [turns(name, first, decoding, together=together) for first, name in enumerate("ab")], 96.0, 96.0
        )
    )
    return known(lost_share(grid, range(len(grid.totals)), step))


def even_tps(decoding: float, longer: float = 1.0) -> float:
    """Return what two servers with half of the requests make; prompts take `longer` times as long as now."""
    prompt_s = (1 / decoding - 1) / throughput(STEP, None)(CLIENTS)
    slower = replace(STEP, per_request_s=STEP.per_request_s + longer * prompt_s)
    return 2 * throughput(slower, None)(CLIENTS / 2)


@pytest.mark.parametrize("decoding", [1.0, 0.7, 0.4])
def test_time_that_prompts_take_is_lost_with_any_split(decoding: float) -> None:
    """An even split computes the prompts, too: the loss is that of the decode steps between them."""
    lost = lost_by(decoding, STEP)
    made = decoding * throughput(STEP, None)(CLIENTS)
    assert lost.share == pytest.approx(1 - made / even_tps(decoding), abs=0.005)
    assert lost.error < 0.005


@pytest.mark.parametrize(
    ("together", "exponent", "beyond"), [(True, 1.0, True), (True, 0.5, False), (False, 1.0, False)]
)
def test_prompts_of_herds_may_take_longer_singly(*, together: bool, exponent: float, beyond: bool) -> None:
    """The interval says so where requests come together now; else an even split changes nothing.

    Where step times grow with the root of the batch, the figure itself is the middle with prompts that come
    singly.
    """
    step = replace(STEP, per_request_s=STEP.per_request_s * CLIENTS ** (1 - exponent), exponent=exponent)
    lost = lost_by(0.7, step, together=together)
    assert (lost.within > lost.error + 0.02) == beyond
    assert beyond or lost.within == pytest.approx(lost.error)
    assert (lost.error > 0.02) == together


@pytest.mark.parametrize(
    ("seen", "exponent", "told_apart"),
    [((2, 32), 1.0, False), ((2, 32), 0.5, False), ((1, 2, 8, 32), 1.0, True), ((1, 2, 8, 32), 0.5, True)],
)
def test_a_loss_holds_each_curve_of_step_times_that_fits(
    seen: tuple[int, ...], exponent: float, *, told_apart: bool
) -> None:
    """Step times at few and at many requests do not say what they are between, where equal loads are."""
    true = StepTime(0.03, 0.06 / CLIENTS**exponent, 0, exponent=exponent)
    fit = known(fit_pairs([(float(batch), true.seconds(batch)) for batch in seen for _ in range(20)]))
    assert [curve.exponent for curve in fit.curves] == ([exponent] if told_apart else [1.0, 0.5])
    decoding = CLIENTS / true.seconds(CLIENTS) / throughput(STEP, None)(CLIENTS)
    lost = lost_by(decoding, fit)
    really = 1 - true.seconds(CLIENTS / 2) / true.seconds(CLIENTS)
    assert lost.share == pytest.approx(really, abs=lost.error + 0.001)
    assert (lost.error < 0.03) == told_apart


@pytest.mark.parametrize(("clients", "slots"), [(32, None), (32, 16), (128, None)])
def test_random_routing_loses_what_its_chain_says(clients: int, slots: int | None) -> None:
    """The loss is the mean over the birth-death chain with pi(n+1) / pi(n) = T(C-n) / T(n+1)."""
    makes = throughput(STEP, slots)
    weights = [1.0]
    for load in range(clients):
        weights.append(weights[-1] * makes(clients - load) / makes(load + 1))
    mean_tps = sum(weight * makes(load) for load, weight in enumerate(weights)) / sum(weights)
    found = lost_by_chance(clients, 2, STEP, slots)
    assert found == pytest.approx(1 - mean_tps / makes(clients / 2), rel=1e-6)


@pytest.mark.parametrize(
    ("lost", "error", "chance", "hint", "cost"),
    [
        (24.0, 8.0, 2.0, "try simple-shuffle or round-robin", "−24 ± 8 % tok/s"),
        (24.0, 16.0, 2.0, "try simple-shuffle or round-robin", "−24 ± 16 % tok/s"),
        (24.0, 24.0, 2.0, "compare with simple-shuffle in a sweep: what it gains is not known", "every 9 s"),
        (0.0, 48.0, 2.0, "compare with simple-shuffle in a sweep: what it gains is not known", "every 9 s"),
        (None, None, None, "compare with simple-shuffle in a sweep: what it gains is not known", "every 9 s"),
        (20.0, 6.0, 16.0, "compare with simple-shuffle in a sweep: it may gain nothing", "−20 ± 6 % tok/s"),
        (8.0, 3.5, 14.0, None, "−8 ± 4 % tok/s"),
    ],
)
def test_random_routing_is_advised_where_it_gains(
    lost: float | None, error: float | None, chance: float | None, hint: str | None, cost: str
) -> None:
    """It is to be compared where its gain is not known, and not named where it loses as much."""
    swing = Balance(
        "proxy",
        ("a", "b"),
        period_s=9.0,
        lost_estimate_percent=lost,
        lost_error_points=error,
        lost_by_chance_percent=chance,
    )
    assert _random_routing_advice(swing) == hint
    assert balance_cost(swing) == cost
