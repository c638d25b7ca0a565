"""Weights that are meant, and routers that the requests do not pass, judged by the store."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import verdict
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.snapshot import LimitKind, Snapshot
from sparktop.model.targets import RouterTarget
from sparktop.store import SourceKey
from tests.store.fed_traces import NAMES, START, Pair, lane

pytestmark = pytest.mark.long
LIFE_S = 5.0


def played(
    pair: Pair,
    seconds: int,
    parts: tuple[float, float],
    requests: float,
    sample: RouterSample | None = None,
) -> list[Snapshot]:
    """Return snapshots of two servers that get random requests at the ratio `parts`, `requests` at once."""
    dice = random.Random(repr(parts))  # noqa: S311 - repeatable chance, no secret
    ends: list[list[float]] = [[], []]
    done = [0, 0]
    shown: list[Snapshot] = []
    for second in range(seconds):
        pair.at = START + second
        for index in (0, 1):
            over = [end for end in ends[index] if end <= pair.at]
            done[index] += len(over)
            ends[index] = [end for end in ends[index] if end > pair.at]
        while sum(map(len, ends)) < requests:
            (index,) = dice.choices((0, 1), parts)
            ends[index].append(pair.at + LIFE_S * dice.uniform(0.5, 1.5))
        for index, name in enumerate(NAMES):
            held = float(len(ends[index]))
            pair.tell(name, lane("0", held, 0.0, 64.0 * done[index], life_s=LIFE_S))
        if sample is not None:
            pair.store.accept(SourceKey.router("proxy"), replace(sample, at=pair.at), 2.0)
        shown.append(pair.look())
    return shown


def balance(shown: Snapshot) -> Balance:
    """Return the only group's balance."""
    (found,) = shown.balance
    return found


@pytest.mark.parametrize("parts", [(3.0, 1.0), (9.0, 1.0)])
def test_weights_of_the_configuration_are_no_fault(parts: tuple[float, float]) -> None:
    """Loads at the ratio of the weights are balanced, and the ratio is among the reasons."""
    weights = dict(zip(NAMES, parts, strict=True))
    router = RouterTarget("proxy", "http://p:4000", "simple-shuffle", NAMES, weights=weights)
    shown = played(Pair(router), 150, parts, 40)
    assert {balance(one).word for one in shown} <= {BalanceWord.UNKNOWN, BalanceWord.BALANCED}
    assert not any(one.alerts for one in shown)
    assert f"weights {parts[0]:g} : 1, as the router has them" in balance(shown[-1]).reasons


def test_weights_that_litellm_reports_are_known() -> None:
    """They come with its deployments."""
    router = RouterTarget("proxy", "http://p:4000")
    deployments = tuple(
        Deployment(name, f"http://{name}:8000/v1", "m", weight=weight)
        for name, weight in zip(NAMES, (4.0, 1.0), strict=True)
    )
    sample = RouterSample(0.0, LITELLM, alive=True, deployments=deployments, strategy="simple-shuffle")
    shown = played(Pair(router), 150, (4.0, 1.0), 40, sample)
    assert balance(shown[-1]).word is BalanceWord.BALANCED
    assert "weights 4 : 1, as the router has them" in balance(shown[-1]).reasons


def test_a_steady_ratio_becomes_information() -> None:
    """First it is uneven, and never starved; after ten minutes the question is whether it is meant."""
    shown = played(Pair(), 640, (9.0, 1.0), 40)
    words = {balance(one).word for one in shown}
    assert BalanceWord.STARVED not in words
    assert BalanceWord.OSCILLATING not in words
    last = balance(shown[-1])
    assert last.word is BalanceWord.BALANCED
    assert any(": 1 for 10 min: meant?" in reason for reason in last.reasons)
    assert not shown[-1].alerts


@pytest.mark.parametrize(
    "counts",
    [
        RouterSample(0.0, LITELLM, alive=True, answered={"spark-a": 5.0, "spark-b": 5.0}),
        RouterSample(0.0, LITELLM, alive=True, in_flight=0.0),
        RouterSample(0.0, "dynamo", alive=True, sent={"spark-a": 0.0}),
    ],
)
def test_a_router_that_the_requests_do_not_pass_is_not_blamed(counts: RouterSample) -> None:
    """Its own counts stand still: neither an alert, nor a hint on its strategy, nor a limit names it."""
    shown = played(Pair(), 150, (9.0, 1.0), 40, counts)
    last = shown[-1]
    assert not any(one.alerts for one in shown)
    assert balance(last).router is None
    assert balance(last).hint is None
    assert "by its own counts their requests do not pass proxy" in balance(last).reasons
    assert LimitKind.ROUTER not in {view.limited_by.kind for view in last.backends if view.limited_by}


def test_few_requests_have_a_lasting_word_that_hides_nothing() -> None:
    """With five requests on two servers the balance says who has how many, and the top line stays calm."""
    last = played(Pair(), 120, (1.0, 1.0), 5)[-1]
    found = balance(last)
    assert found.word is BalanceWord.UNKNOWN
    assert found.title == "too few requests to judge"
    assert found.reasons[1].startswith("now spark-a ")
    words = verdict(last).words
    assert "balance not known yet" not in words
    assert words.endswith("proxy: too few requests to judge")
