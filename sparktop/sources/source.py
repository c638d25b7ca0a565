"""What the scheduler polls, and what several sources share: long answers are read in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias, TypeVar

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.model.router import Fleet, RouterSample

PollResult: TypeAlias = EngineSample | NodeSample | RouterSample | Fleet | Failure
"""Result of one poll. The identity of the polled machine or server is an attribute of its source instead."""


class Source(Protocol):
    """A watched server, router or machine: each poll returns a sample or a `Failure`."""

    name: str

    async def poll(self, deadline_s: float) -> PollResult:
        """Return one sample, or a `Failure`, within `deadline_s` seconds.

        Network errors, server errors and timeouts are returned as a `Failure`; only programming errors and
        `CancelledError` are raised.
        """
        ...

    async def close(self) -> None:
        """Release connections and tasks; no poll may follow."""
        ...


# Reads long answers in a thread, so that keys and other sources never wait for a page of megabytes, nor for
# what is computed of 10,000 series of a Prometheus.


AT_ONCE_BYTES = 64 << 10
"""An answer up to this size is read at once: a page of vLLM with one engine takes a millisecond."""

Found = TypeVar("Found")


_READER = ThreadPoolExecutor(1, "reader")
"""Reads answers one after the other: two of one server never at the same time, even if the first caller has
given up."""


async def in_reader(work: Callable[[], Found]) -> Found:
    """Return `work()`, which is computed in a thread of its own, after what others wait for there."""
    return await asyncio.get_running_loop().run_in_executor(_READER, work)


async def read_beside(
    read: Callable[[], Found], size: int, *, at_once: int = AT_ONCE_BYTES, turn: asyncio.Lock | None = None
) -> Found:
    """Return `read()`, which reads an answer of `size` bytes; a longer one than `at_once` in a thread.

    Only one thread reads, and in the order of the calls. A caller that is cancelled does not wait for it.
    `turn` is held while a short answer is read.
    """
    if size > at_once:
        return await in_reader(read)
    if turn is None:
        return read()
    async with turn:
        await asyncio.sleep(0)  # yield first: a key press or another answer's time stamp comes before
        return read()


# Detection of a LiteLLM router by a route that needs no key and starts no work.


LIVELINESS = "/health/liveliness"
"""The route to request. Never `/health`, which sends completions to every deployment."""
_LONGEST = 64
"""Bytes of that answer, at most: a metrics page, which exporters send on any route, has such words, too."""


def is_litellm(body: bytes) -> bool:
    """Return whether `body` is LiteLLM's answer on the route `LIVELINESS`, "I'm alive!"."""
    return len(body) <= _LONGEST and b"alive" in body.lower()
