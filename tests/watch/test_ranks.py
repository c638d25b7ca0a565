"""When NCCL is asked: on request, once the server has loaded, until there is a verdict, and never else."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.ranks import RanksReply, RanksView, RanksWord
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.sources.source import Source
from sparktop.store import SourceKey, Store
from sparktop.watch.ranks import RankAsker
from tests.hardware.ras.examples import answer
from tests.known import known
from tests.virtual_loop import VirtualLoop

NODES = ("spark-a", "spark-b")
WATCH = Watch(
    nodes=tuple(NodeTarget(name) for name in NODES),
    backends=(BackendTarget("b", "http://b:8000", nodes=NODES), BackendTarget("other", "http://o:8000")),
)
REFUSED = Failure(FailureKind.REFUSED, "no RAS thread of NCCL listens on this machine", 0.0)


class Node:
    """A source that can ask NCCL and answers with one thing after the other, the last one for ever."""

    def __init__(self, name: str, *answers: RanksReply | Failure) -> None:
        self.name = name
        self.answers = list(answers)
        self.asked_at: list[float] = []

    async def ask_ranks(self, deadline_s: float) -> RanksReply | Failure:
        """Answer the next query."""
        assert deadline_s > 0
        self.asked_at.append(asyncio.get_running_loop().time())
        return self.answers[min(len(self.asked_at), len(self.answers)) - 1]


class Watching:
    """A store whose backend stands still, its nodes, and the asker."""

    def __init__(self, *nodes: Node, tokens: Callable[[float], float] = lambda _: 100.0) -> None:
        loop = asyncio.get_running_loop()
        self.store = Store(WATCH, clock=loop.time)
        self.nodes = nodes
        self.tasks: list[asyncio.Task[None]] = []
        self._tokens = tokens
        sources = {SourceKey.node(node.name): cast("Source", node) for node in nodes}
        self.asker = RankAsker(self.store, sources, self._spawn)
        self._polls = loop.create_task(self._poll())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def _poll(self) -> None:
        while True:
            at = asyncio.get_running_loop().time()
            lane = LaneSample("0", running=3.0, generation_tokens=self._tokens(at))
            self.store.accept(SourceKey.backend("b"), EngineSample(at, "vllm", (lane,), models=("m",)))
            await asyncio.sleep(1.0)

    async def ended(self) -> RanksView:
        """Wait until all rounds have ended; return what is shown then."""
        await asyncio.gather(*self.tasks)
        self._polls.cancel()
        return known(self.store.ranks.view("b", asyncio.get_running_loop().time()))


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in virtual time."""

    @functools.wraps(test)
    def run(**values: object) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(**values))

    return run


def found(name: str) -> RanksReply:
    return RanksReply(answer(name))


@in_virtual_time
async def test_a_round_ends_with_the_verdict() -> None:
    """Three queries 5 s apart name the rank that lags."""
    node = Node("spark-a", found("lags-by-one"))
    watching = Watching(node, Node("spark-b", found("lags-by-one")))
    await asyncio.sleep(30)
    assert watching.asker.ask("b").startswith("asking NCCL on spark-a")
    shown = await watching.ended()
    assert shown.verdict.word is RanksWord.DIVERGED
    assert [round(at - node.asked_at[0]) for at in node.asked_at] == [0, 5, 10]
    assert watching.nodes[1].asked_at == []


@in_virtual_time
async def test_where_one_node_gives_no_answer_the_next_is_asked() -> None:
    """A stopped process does not answer, but those on other machines report on it."""
    silent, other = Node("spark-a", REFUSED), Node("spark-b", found("dead"))
    watching = Watching(silent, other)
    await asyncio.sleep(30)
    watching.asker.ask("b")
    assert (await watching.ended()).verdict.word is RanksWord.MISSING
    assert (len(silent.asked_at), len(other.asked_at)) == (1, 3)


@pytest.mark.parametrize(
    ("kind", "asks"),
    [
        (None, True),
        (FailureKind.REFUSED, False),
        (FailureKind.LOADING, False),
    ],
)
@in_virtual_time
async def test_a_server_that_may_be_loading_is_never_asked_about(
    kind: FailureKind | None, *, asks: bool
) -> None:
    """Starting communicators crash some versions: after a refused port or a 503, NCCL is not asked."""
    node = Node("spark-a", found("lags-by-one"))
    watching = Watching(node)
    await asyncio.sleep(30)
    if kind is not None:
        at = asyncio.get_running_loop().time()
        watching.store.accept(SourceKey.backend("b"), Failure(kind, "no page", at))
    words = watching.asker.ask("b")
    await asyncio.gather(*watching.tasks)
    assert (bool(node.asked_at), "is not asked" in words) == (asks, not asks)


@pytest.mark.parametrize(
    ("gpus", "asks"), [((1, 0), False), ((1, 1), True), ((2, 0), True), ((1, None), True)]
)
@in_virtual_time
async def test_a_server_on_one_gpu_is_not_asked_about(gpus: tuple[int | None, ...], *, asks: bool) -> None:
    """It has no other ranks: the message says so, and its panel stays; unknown GPUs may be more."""
    watching = Watching(Node("spark-a", found("healthy")))
    await asyncio.sleep(30)
    at = asyncio.get_running_loop().time()
    for name, count in zip(NODES, gpus, strict=True):
        if count is not None:
            sample = NodeSample(at, gpus=tuple(GpuReading(index, "GB10") for index in range(count)))
            watching.store.accept(SourceKey.node(name), sample)
    words = watching.asker.ask("b")
    assert words.startswith("asking NCCL") is asks
    assert ("one GPU" in words) is not asks
    assert bool(watching.tasks) is asks
