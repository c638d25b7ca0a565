"""What every way in looks like from outside."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.model.router import RouterSample

Reading: TypeAlias = EngineSample | NodeSample | RouterSample | Failure
"""What one poll gives; identities travel apart."""


class Source(Protocol):
    """One watched thing: asked again and again, it answers with a sample or with why there is none."""

    name: str

    async def poll(self, deadline_s: float) -> Reading:
        """Take one sample within `deadline_s`.

        Outside trouble comes back as a `Failure`; only programming errors and `CancelledError` are raised.
        """
        ...

    async def close(self) -> None:
        """Give back connections and tasks; no poll follows."""
        ...
