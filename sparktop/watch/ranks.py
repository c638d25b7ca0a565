"""Asks NCCL about the ranks of a backend, only on a key or once its engine seems to be stuck.

A verdict needs three answers over ten seconds, so a round asks several times; it ends as soon as there is a
verdict. Every answer goes to the store, which judges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.ranks import RanksReading, RanksReply, RanksWord
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.store import SourceKey, Store

if TYPE_CHECKING:
    from sparktop.sources.source import Source

EVERY_S = 5.0
"""Seconds from one query of a round to the next."""
MOST_QUERIES = 8
"""Most queries of a round: several jobs of one user answer in turn, at random."""
DEADLINE_S = 35.0
"""Seconds for one query, with the time to connect through ssh."""
AGAIN_S = 600.0
"""Seconds after which an engine that seems to be stuck is asked about again without a key press."""
_UNREADY = frozenset({BackendState.CONNECTING, BackendState.LOADING})
"""States in which a communicator may be starting."""


class RankAsker:
    """Runs rounds of queries about the ranks of backends, at most one round for each backend at a time."""

    def __init__(
        self,
        store: Store,
        sources: Mapping[SourceKey, Source],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Deliver to `store` what the nodes in `sources` answer; `spawn` starts a task."""
        self._store = store
        self._sources = sources
        self._spawn = spawn
        self._sleep = sleep
        self._running: set[str] = set()
        self._asked_at: dict[str, float] = {}

    def ask(self, name: str) -> str:
        """Begin to ask about the ranks of the backend `name`; return a message for the user.

        Nothing is asked while the server may be loading, and if none of its machines is watched.
        """
        view = next((backend for backend in self._store.snapshot().backends if backend.name == name), None)
        if view is None:
            return f"{name} is not watched"
        if name in self._running:
            return f"NCCL is being asked about {name}"
        if (why := why_not_ask(view)) is not None:
            return f"NCCL is not asked about {name}: {why}"
        samples = [machine.sample for machine in self._store.snapshot().nodes if machine.name in view.nodes]
        gpus = [len(sample.gpus) for sample in samples if sample is not None]
        if len(gpus) == len(view.nodes) and sum(gpus) == 1:  # all its machines are known
            return f"NCCL is not asked: {name} runs on one GPU and has no other ranks"
        nodes = [node for node in view.nodes if self._asker(node) is not None]
        if not nodes:
            return f"NCCL is not asked: no machine of {name} is watched (see [[nodes]])"
        self._running.add(name)
        self._spawn(self._run_round(name, nodes))
        return f"asking NCCL on {nodes[0]} about the ranks of {name}: 10 s or more"

    def ask_suspects(self, now: float) -> None:
        """Ask about each backend that seems to be stuck, once in `AGAIN_S` seconds; `now` is in seconds."""
        for name in self._store.standstills.suspects():
            if now - self._asked_at.get(name, -AGAIN_S) >= AGAIN_S:
                self._asked_at[name] = now
                self.ask(name)

    async def _run_round(self, name: str, nodes: list[str]) -> None:
        """Ask until there is a verdict; go on to the next node where one gives no answer."""
        failures = 0
        try:
            for count in range(MOST_QUERIES):
                if count:
                    await self._sleep(0.0 if failures else EVERY_S)
                answered = await self._query(name, nodes[0])
                failures = 0 if answered else failures + 1
                if not answered:
                    nodes = [*nodes[1:], nodes[0]]
                view = self._store.ranks.view(name, asyncio.get_running_loop().time())
                if failures == len(nodes) or view is None:
                    return
                if answered and view.verdict.word not in {RanksWord.ASKING, RanksWord.FAILED}:
                    return
        finally:
            self._running.discard(name)

    async def _query(self, name: str, node: str) -> bool:
        """Ask on one node and deliver its answer; return whether there is one."""
        key, ask = SourceKey.backend(name), self._asker(node)
        clock = asyncio.get_running_loop().time
        if ask is None:
            return False
        self._store.accept(key, RanksReading(clock(), node))
        answer = await ask(DEADLINE_S)
        if isinstance(answer, Failure):
            self._store.accept(key, RanksReading(clock(), node, problem=f"{node}: {answer.message}"))
            return False
        self._store.accept(key, RanksReading(clock(), node, answer.answer, warning=answer.warning))
        return True

    def _asker(self, node: str) -> Callable[[float], Awaitable[RanksReply | Failure]] | None:
        """Return what asks NCCL on a node within some seconds; None if it cannot, or is not watched."""
        return getattr(self._sources.get(SourceKey.node(node)), "ask_ranks", None)


def why_not_ask(view: BackendView) -> str | None:
    """Return why NCCL must not be asked about a backend now; None if it may be asked.

    A query while a communicator starts can end the job, so the server must have answered and must not be
    starting again.
    """
    if view.state in _UNREADY or view.age_s is None:
        return "it is loading, or it has not answered yet"
    if view.failure is not None and view.failure.kind is not FailureKind.TIMEOUT:
        return "it does not listen, so it may be loading"
    return None
