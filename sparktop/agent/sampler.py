"""Samples of one machine for whoever asks: taken while somebody does, and kept for a minute."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from sparktop.agent.ask import Ask
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.text import clean

_log = logging.getLogger(__name__)

KEPT_S = 60.0
"""How far back samples are given."""
REST_S = 60.0
"""Samples are taken for this long after somebody asked."""
DEFAULT_INTERVAL_S = 1.0
DEADLINE_S = 1.5
"""For one sample: a viewer that asks each second or two hears in time that the machine hangs."""
_TABLE_S = 10.0
"""The process table is read for this long after somebody asked for it."""
_OLD_SHARE = 0.8
"""A newest sample older than this share of the interval is followed by one at once: an asker with the same
interval as ours finds something new each time, however the two fall, and n askers cost no more than 1.25
samples an interval."""
_STEP_S = 0.25
"""Wished intervals are counted in these steps, so that no asker can make the list of them long."""
_WISH_INTERVALS, _WISH_S = 3.0, 5.0
"""A wished interval holds for so many of itself, and for so long at least."""


class Timer(Protocol):
    """What `call_later` gives."""

    def cancel(self) -> None:
        """Take the call back."""
        ...


Later = Callable[[float, Callable[[], None]], Timer]


class NodeReader(Protocol):
    """A machine that can be read; `LocalSource` is one."""

    show_processes: bool
    """Whether a sample holds the process table."""

    @property
    def identity(self) -> NodeIdentity | None:
        """Who the machine is; None before the first sample."""
        ...

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Take one sample within `deadline_s`."""
        ...

    async def close(self) -> None:
        """Give back what it holds; no poll follows."""
        ...


class Sampler:
    """Reads a machine at the smallest interval that its askers want, and rests when nobody asks."""

    def __init__(
        self, reader: NodeReader, *, clock: Callable[[], float] = time.monotonic, later: Later | None = None
    ) -> None:
        """Read with `reader`, whose samples carry `clock`; `later` is the event loop's call_later if None."""
        self._reader = reader
        self._clock = clock
        self._later = later
        self._samples: deque[NodeSample] = deque()
        self._wishes: dict[float, float] = {}
        """When each interval was wished for last."""
        self._asked_at: float | None = None
        self._table_asked_at: float | None = None
        self._tried_at = clock()
        self._timer: Timer | None = None
        self._taking: asyncio.Task[Failure | None] | None = None
        self._closed = False

    @property
    def identity(self) -> NodeIdentity:
        """Who the machine is; all unknown before the first sample."""
        return self._reader.identity or NodeIdentity()

    @property
    def interval_s(self) -> float:
        """How often samples are taken: the smallest interval that was wished for of late."""
        now = self._clock()
        recent = [one for one, at in self._wishes.items() if now - at <= max(_WISH_S, _WISH_INTERVALS * one)]
        return min(recent, default=DEFAULT_INTERVAL_S)

    @property
    def resting(self) -> bool:
        """True when no further sample will be taken before somebody asks."""
        return self._timer is None and self._taking is None

    def now(self) -> float:
        """The clock that the samples carry."""
        return self._clock()

    async def ask(self, ask: Ask, *, fresh_s: float | None = None) -> tuple[NodeSample, ...] | Failure:
        """Give what is newer than the asker's newest, oldest first, or the newest; a `Failure` if neither is.

        A sample is taken at once when the newest is older than `fresh_s` or most of the interval, or lacks
        the process table. Only the newest one carries that table, and only where it was asked for.
        """
        now = self._clock()
        missing = self._note(ask, now)
        limit_s = _OLD_SHARE * self.interval_s
        limit_s = limit_s if fresh_s is None else min(limit_s, fresh_s)
        old = not self._samples or now - self._samples[-1].at >= limit_s
        failure = await self._take() if old or missing else None
        if self._taking is None:
            self._arm()  # the interval may have become another one
        found = self._newer_than(ask.since, self._clock())
        if failure is not None and (ask.since is None or not found):
            return failure
        return tuple(
            one
            if one.processes is None or (ask.processes and one is found[-1])
            else replace(one, processes=None)
            for one in found
        )

    async def close(self) -> None:
        """Take no more samples and close the reader."""
        self._closed = True
        self._disarm()
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait({self._taking})
        await self._reader.close()

    def _note(self, ask: Ask, now: float) -> bool:
        """Remember what is wanted; tell whether a process table is that was not before."""
        self._asked_at = now
        wished_s = DEFAULT_INTERVAL_S if ask.interval_s is None else ask.interval_s
        self._wishes[max(1, round(wished_s / _STEP_S)) * _STEP_S] = now
        had_table = self._wants_table(now)
        if ask.processes:
            self._table_asked_at = now
        return ask.processes and not had_table

    def _wants_table(self, now: float) -> bool:
        limit_s = max(_TABLE_S, _WISH_INTERVALS * self.interval_s)
        return self._table_asked_at is not None and now - self._table_asked_at <= limit_s

    def _newer_than(self, since: float | None, now: float) -> list[NodeSample]:
        """Give the samples after `since`, or the newest alone where that is no time of this machine's."""
        self._forget(now)
        if since is None or since > now:  # the asker's newest is of before a restart of the machine
            return list(self._samples)[-1:]
        return [one for one in self._samples if one.at > since]

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0].at > KEPT_S:
            self._samples.popleft()

    async def _take(self) -> Failure | None:
        """Take a sample, or wait for the one that is being taken; why there is none."""
        if self._taking is None:
            self._start()
        taking = self._taking
        # Shielded: an asker that leaves must not take the sample from the others.
        return None if taking is None else await asyncio.shield(taking)

    def _start(self) -> None:
        """Begin to take a sample."""
        self._disarm()
        if not self._closed:
            self._taking = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> Failure | None:
        """Take a sample and arrange for the next one."""
        self._tried_at = now = self._clock()
        self._reader.show_processes = self._wants_table(now)
        try:
            reading = await self._reader.poll(DEADLINE_S)
        except Exception as error:  # noqa: BLE001 - the one place that catches it, for every sample
            _log.exception("reading this machine failed")
            message = (
                f"an error in sparktop while the machine was read: {type(error).__name__}: {clean(error)}"
            )
            reading = Failure(FailureKind.INTERNAL, message, self._clock())
        finally:
            self._taking = None
        self._arm()
        if isinstance(reading, Failure):
            return reading
        self._samples.append(reading)
        self._forget(self._clock())
        return None

    def _arm(self) -> None:
        """Set the timer for the next sample."""
        self._disarm()
        if not self._closed:
            later = self._later or asyncio.get_running_loop().call_later
            due = self._tried_at + self.interval_s
            self._timer = later(max(0.0, due - self._clock()), self._fire)

    def _fire(self) -> None:
        """Take the sample that is due, or begin to rest where nobody asked for a while."""
        self._timer = None
        if self._asked_at is None or self._clock() - self._asked_at > REST_S:
            self._wishes.clear()
        elif self._taking is None:
            self._start()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
