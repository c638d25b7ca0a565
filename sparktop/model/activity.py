"""What simulated agents do at a time: wait for a server, get an answer, run a tool, or think."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Doing(StrEnum):
    """What an agent does at a moment."""

    DECODE = "decode"
    """Its answer is being generated."""
    PREFILL = "prefill"
    """Its request was sent and has no token yet."""
    WAITING = "waiting"
    """The same, while the server's queue holds the request."""
    TOOL = "tool"
    """The answer called a tool, which runs."""
    THINK = "think"
    """A person reads the answer and thinks, or nothing has begun."""


LETTERS = {one: one.value[0] for one in (Doing.DECODE, Doing.PREFILL, Doing.WAITING, Doing.TOOL)} | {
    Doing.THINK: "h"
}
"""The letter of each activity in `Activities.each`."""


class Activities(Struct, frozen=True, eq=False):
    """What the agents of a running level have done in time slots of equal length, oldest first."""

    step_s: float
    counts: tuple[tuple[int, ...], ...]
    """For each slot the numbers of agents, in the order of `Doing`; the last slot is now."""
    each: tuple[str, ...] = ()
    """For each agent a text with one of `LETTERS` for each slot; empty where they are many."""
    queue_known: bool = False
    """True if the servers report how many requests wait; else prefill includes waiting."""

    @property
    def now(self) -> dict[Doing, int]:
        """The numbers of agents by what they do now."""
        newest = self.counts[-1] if self.counts else (0,) * len(Doing)
        return dict(zip(Doing, newest, strict=True))
