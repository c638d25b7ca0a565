"""What the scheduler polls."""

from __future__ import annotations

from typing import Protocol, TypeAlias

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
