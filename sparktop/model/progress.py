"""Whether an engine that holds requests makes progress, as screens and reports show it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from sparktop.model.event import NO_VALUES, Values


class Progress(StrEnum):
    """What is known about the progress of an engine that holds requests."""

    MOVING = "moving"
    """It makes progress, or it holds no request."""
    STILL = "no progress"
    """A fact without a verdict."""
    LONG_STEP = "long step"
    """Nothing is finished, but its GPUs work."""
    SUSPECT = "stuck?"
    STUCK = "stuck"


class ProgressView(Struct, frozen=True):
    """An engine that has held requests without any progress for some time."""

    word: Progress
    seconds: float
    """Seconds without progress."""
    why: str
    """What speaks for `word`, in words: what the GPUs do, or why the engine rests; "" if nothing is known."""
    evidence: Values = field(default_factory=lambda: NO_VALUES)
    """Figures behind it: power, utilization and clock of the GPUs, RDMA traffic, KV cache, requests."""

    @property
    def fact(self) -> str:
        """The standstill in words, such as "no progress for 74 s", or "long step: no progress for 74 s"."""
        long = "long step: " if self.word is Progress.LONG_STEP else ""
        return f"{long}no progress for {self.seconds:.0f} s"

    @property
    def sentence(self) -> str:
        """The standstill and what speaks for its verdict, in words."""
        return f"{self.fact}: {self.why}" if self.why else self.fact
