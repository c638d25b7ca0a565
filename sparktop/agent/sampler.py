"""Samples one machine on demand: reads samples while requests arrive, and keeps them for a minute."""

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
"""Age in seconds up to which samples are kept."""
REST_S = 60.0
"""Seconds after the last request during which samples are still taken."""
DEFAULT_INTERVAL_S = 1.0
DEADLINE_S = 1.5
"""Longest time for taking one sample: a viewer with an interval of 1 or 2 s still notices a hang."""
_TABLE_S = 10.0
"""Seconds for which the process table is still read after the last request for it."""
_OLD_SHARE = 0.8
"""A request causes a new sample at once if the newest sample is older than this fraction of the interval. So
a viewer that polls at the same interval always gets a new sample, whatever its phase, and any number of
viewers cause at most 1.25 samples per interval."""
_STEP_S = 0.25
"""Requested intervals are rounded to multiples of this, so that the number of different intervals is
limited."""
_WISH_INTERVALS, _WISH_S = 3.0, 5.0
"""A requested interval of x seconds expires `_WISH_INTERVALS` times x seconds after the last request for it,
but not before `_WISH_S` seconds."""


class Timer(Protocol):
    """A scheduled call, as the event loop's `call_later` returns it."""

    def cancel(self) -> None:
        """Cancel the scheduled call."""
        ...


Later = Callable[[float, Callable[[], None]], Timer]


class NodeReader(Protocol):
    """Reads samples of a machine; `LocalSource` implements it."""

    show_processes: bool
    """Whether samples include the process table."""

    @property
    def identity(self) -> NodeIdentity | None:
        """Identity of the machine; None before the first sample."""
        ...

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return one sample within `deadline_s` seconds, or a `Failure`."""
        ...

    async def close(self) -> None:
        """Release resources; `poll` must not be called afterwards."""
        ...


class Sampler:
    """Samples a machine at the smallest requested interval; pauses while no requests arrive."""

    def __init__(
        self, reader: NodeReader, *, clock: Callable[[], float] = time.monotonic, later: Later | None = None
    ) -> None:
        """Read samples with `reader`, which dates them by `clock` (seconds).

        `later` schedules calls; None: the event loop's `call_later`.
        """
        self._reader = reader
        self._clock = clock
        self._later = later
        self._samples: deque[NodeSample] = deque()
        self._wishes: dict[float, float] = {}
        """By requested interval in seconds: time of the last request for that interval."""
        self._asked_at: float | None = None
        self._table_asked_at: float | None = None
        self._tried_at = clock()
        self._timer: Timer | None = None
        self._taking: asyncio.Task[Failure | None] | None = None
        self._closed = False

    @property
    def identity(self) -> NodeIdentity:
        """Identity of the machine; before the first sample all its fields are unknown."""
        return self._reader.identity or NodeIdentity()

    @property
    def interval_s(self) -> float:
        """Seconds between samples: the smallest interval of recent requests, else the default interval."""
        now = self._clock()
        recent = [
            each for each, at in self._wishes.items() if now - at <= max(_WISH_S, _WISH_INTERVALS * each)
        ]
        return min(recent, default=DEFAULT_INTERVAL_S)

    @property
    def resting(self) -> bool:
        """True if no further sample will be taken before the next request."""
        return self._timer is None and self._taking is None

    def now(self) -> float:
        """Return the current time of the clock that dates the samples."""
        return self._clock()

    async def ask(self, ask: Ask, *, fresh_s: float | None = None) -> tuple[NodeSample, ...] | Failure:
        """Return the samples newer than `ask.since`, oldest first.

        If `ask.since` is None, return only the newest sample. A new sample is read first if the newest one is
        older than `fresh_s` seconds or 80 % of the sampling interval, or if it lacks the process table that
        `ask` requests. Only the last sample returned has this table. If reading fails, return the `Failure`,
        unless there are samples newer than `ask.since`.
        """
        now = self._clock()
        missing = self._note(ask, now)
        limit_s = _OLD_SHARE * self.interval_s
        limit_s = limit_s if fresh_s is None else min(limit_s, fresh_s)
        old = not self._samples or now - self._samples[-1].at >= limit_s
        failure = await self._take() if old or missing else None
        if self._taking is None:
            self._arm()  # the interval may have changed
        found = self._newer_than(ask.since, self._clock())
        if failure is not None and (ask.since is None or not found):
            return failure
        return tuple(
            sample
            if sample.processes is None or (ask.processes and sample is found[-1])
            else replace(sample, processes=None)
            for sample in found
        )

    async def close(self) -> None:
        """Stop sampling and close the reader."""
        self._closed = True
        self._disarm()
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait({self._taking})
        await self._reader.close()

    def _note(self, ask: Ask, now: float) -> bool:
        """Record the request `ask`, which arrived at the time `now`.

        Return True if `ask` wants the process table and no other recent request wanted it.
        """
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
        """Return the samples newer than `since`, oldest first.

        If `since` is None or ahead of this machine's clock, return only the newest sample.
        """
        self._forget(now)
        if since is None or since > now:  # the requester's newest sample is from before a reboot
            return list(self._samples)[-1:]
        return [sample for sample in self._samples if sample.at > since]

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0].at > KEPT_S:
            self._samples.popleft()

    async def _take(self) -> Failure | None:
        """Read a new sample, or wait for the one that is being read.

        Return the `Failure` if reading failed, else None (also if the sampler is closed).
        """
        if self._taking is None:
            self._start()
        taking = self._taking
        # Shielded: a requester that disconnects must not cancel the sample for the others.
        return None if taking is None else await asyncio.shield(taking)

    def _start(self) -> None:
        """Start a task that takes a sample, unless the sampler is closed."""
        self._disarm()
        if not self._closed:
            self._taking = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> Failure | None:
        """Read and store a sample, and schedule the next sample; return the `Failure` if it failed."""
        self._tried_at = now = self._clock()
        self._reader.show_processes = self._wants_table(now)
        try:
            reading = await self._reader.poll(DEADLINE_S)
        except Exception as error:  # noqa: BLE001 - the one place that catches errors of every sample
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
        """Schedule the next sample one interval after the start of the last sample."""
        self._disarm()
        if not self._closed:
            later = self._later or asyncio.get_running_loop().call_later
            due = self._tried_at + self.interval_s
            self._timer = later(max(0.0, due - self._clock()), self._fire)

    def _fire(self) -> None:
        """Read the scheduled sample, or stop sampling if no request came in the last `REST_S` seconds."""
        self._timer = None
        if self._asked_at is None or self._clock() - self._asked_at > REST_S:
            self._wishes.clear()
        elif self._taking is None:
            self._start()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
