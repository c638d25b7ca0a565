"""The interface of all sources."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.model.router import RouterSample

Reading: TypeAlias = EngineSample | NodeSample | RouterSample | Failure
"""Result of one poll; identities are kept on the source."""


class Source(Protocol):
    """Something watched: each poll returns a sample or a `Failure`."""

    name: str

    async def poll(self, deadline_s: float) -> Reading:
        """Return one sample within `deadline_s` seconds.

        Outside trouble is returned as a `Failure`; only programming errors and `CancelledError` are raised.
        """
        ...

    async def close(self) -> None:
        """Release connections and tasks; no poll may follow."""
        ...
