"""What NCCL answers about the ranks of a backend: judged by its progress, announced, shown, and replayed."""

from __future__ import annotations

import pytest

from sparktop.model.engine import LaneSample
from sparktop.model.node import NodeIdentity
from sparktop.model.ranks import RanksAnswer, RanksReading, RanksView, RanksWord
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey
from tests.hardware.ras.examples import answer
from tests.known import known
from tests.store.conftest import START, World, page

WATCH = Watch(
    nodes=(NodeTarget("spark-a"), NodeTarget("spark-b")),
    backends=(BackendTarget("b", "http://b:8000", nodes=("spark-a", "spark-b")),),
)


def still(world: World, since_s: float, until_s: float, tokens: float = 500.0) -> None:
    """Feed pages of a server that holds 3 requests and has made no token since `since_s`."""
    for second in range(int(since_s), int(until_s) + 1):
        world.feed(page(START + second, LaneSample("0", running=3.0, generation_tokens=tokens)))
        world.store.judge()


def asked(world: World, name: str | None, second: float) -> RanksView:
    """Feed an answer (None: the beginning of a query) and return what is shown."""
    found: RanksAnswer | None = None if name is None else answer(name)
    return known(world.feed(RanksReading(START + second, "spark-a", found)).ranks)


@pytest.fixture
def stuck() -> World:
    """Return a world whose server has stood still for 30 s, on two machines with addresses."""
    world = World(WATCH)
    for name, address in (("spark-a", "192.168.100.11"), ("spark-b", "192.168.100.12")):
        world.store.identify(SourceKey.node(name), NodeIdentity(addresses=(address,)))
    still(world, 0, 30)
    return world


def test_a_lagging_rank_is_named_with_its_machine(stuck: World) -> None:
    """Three answers over 10 s while the server stands still: the rank, its machine, its count."""
    assert asked(stuck, None, 31).asking
    words = [asked(stuck, "lags-by-one", second).verdict.word for second in (31, 36, 41)]
    assert words == [RanksWord.ASKING, RanksWord.ASKING, RanksWord.DIVERGED]
    stuck.store.judge()
    assert stuck.view().state is BackendState.STUCK
    shown = known(stuck.view().ranks)
    assert shown.verdict.sentence.startswith("rank 1 on spark-b is behind at AllReduce 27,910")
    assert stuck.store.ranks.ranks_apart("b") == shown.verdict.sentence


def test_progress_takes_the_verdict_back(stuck: World) -> None:
    """A server that makes tokens again is not held to be stuck because of old answers."""
    for second in (31, 36, 41):
        asked(stuck, "lags-by-one", second)
    still(stuck, 42, 42, tokens=510.0)
    assert stuck.store.ranks.ranks_apart("b") is None
    shown = known(stuck.view().ranks)
    assert shown.verdict.word is RanksWord.NO_VERDICT
