"""Asks NCCL on this machine on request, under a guard: one query at a time, and never an unsafe version.

A query can harm a job: NCCL 2.26.2 to 2.26.5 crash while a communicator starts, versions below 2.29.2 read
wrong memory while a rank is missing. So versions below 2.27.3 are never asked, and nothing is ever polled.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sparktop.hardware.ras.client import Address, QueryError, place, query
from sparktop.hardware.ras.library import LoadedNccl, Version, loaded_nccl, parse_version
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.ranks import RanksAnswer
from sparktop.model.text import clean
from sparktop.values import dataclass

OLDEST: Version = (2, 27, 3)
"""The oldest version that is asked."""
SAFE: Version = (2, 29, 2)
"""The oldest version without a known fault in its answer."""
DEADLINE_S = 12.0
"""Seconds for a query; NCCL itself gathers for 10 s at most."""
REST_S = 1.0
"""Seconds after a query within which another request gets the same result."""
_PORT = 28028
_LOCAL: tuple[Address, ...] = (("::1", _PORT), ("127.0.0.1", _PORT))
_MOST_ADDRESSES = 4


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of NCCL on this machine, with a remark on its version."""

    answer: RanksAnswer
    warning: str | None = None


class RasReader:
    """Asks NCCL's RAS thread on this machine, one query at a time."""

    def __init__(
        self,
        *,
        root: Path = Path("/"),
        env: Mapping[str, str] | None = None,
        addresses: Sequence[Address] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Search for processes below `root`/proc.

        `addresses` replaces the addresses at which NCCL is looked for: those of NCCL_RAS_ADDR in `env` (None:
        this process's environment) and in the processes that have loaded NCCL, else port 28028 of localhost.
        """
        self._root = root
        self._env = os.environ if env is None else env
        self._addresses = None if addresses is None else tuple(addresses)
        self._clock = clock
        self._running: asyncio.Task[Found | Failure] | None = None
        self._last: tuple[float, Found | Failure] | None = None
        self._refused: set[Address] = set()
        """Addresses at which a version that must not be asked has answered."""

    async def ask(self) -> Found | Failure:
        """Return the answer of NCCL, or a `Failure`; a request during a query gets the result of that query.

        Asking is the caller's decision: it must follow from a key press, or from the configuration while an
        engine stands still, never while an engine loads.
        """
        if self._last is not None and self._clock() - self._last[0] < REST_S:
            return self._last[1]
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._ask())
            self._running.add_done_callback(self._ended)
        return await asyncio.shield(self._running)

    def _ended(self, task: asyncio.Task[Found | Failure]) -> None:
        self._running = None
        if not task.cancelled() and task.exception() is None:
            self._last = (self._clock(), task.result())

    async def close(self) -> None:
        """End a running query; leaving early does no harm to the job."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _ask(self) -> Found | Failure:
        loaded = await asyncio.to_thread(loaded_nccl, self._root)
        versions = [one.version for one in loaded if one.version is not None]
        if versions and min(versions) < OLDEST:
            return self._too_old(min(versions))
        failure = Failure(FailureKind.REFUSED, _nobody(loaded), self._clock())
        end = self._clock() + DEADLINE_S
        for address in self._places(loaded):
            if address in self._refused:
                message = f"not asked: at {place(address)} answers NCCL below {_text(OLDEST)}"
                return Failure(FailureKind.UNSUPPORTED, message, self._clock())
            try:
                answer = await query(address, max(0.1, end - self._clock()))
            except QueryError as error:
                if error.kind is not FailureKind.REFUSED:
                    return Failure(error.kind, clean(error, 300), self._clock())
            else:
                return self._judged(address, answer)
        return failure

    def _places(self, loaded: Sequence[LoadedNccl]) -> list[Address]:
        """Return the addresses to try, in their order."""
        if self._addresses is not None:
            return list(self._addresses)
        named = [self._env.get("NCCL_RAS_ADDR"), *(one.ras_address for one in loaded)]
        found = [address for text in named if text for address in parse_address(text)]
        return list(dict.fromkeys((*found[:_MOST_ADDRESSES], *_LOCAL)))

    def _judged(self, address: Address, answer: RanksAnswer) -> Found | Failure:
        version = parse_version(answer.nccl)
        if version is not None and version < OLDEST:
            self._refused.add(address)
            return self._too_old(version)
        warning = None
        if version is None or version < SAFE:
            which = "of an unknown version" if version is None else _text(version)
            warning = f"NCCL {which}: below {_text(SAFE)} an answer about a missing rank can be wrong"
        return Found(answer, warning)

    def _too_old(self, version: Version) -> Failure:
        least = f"{_text(OLDEST)} and newer are asked"
        message = f"not asked: NCCL {_text(version)} can crash when it is asked; {least}"
        return Failure(FailureKind.UNSUPPORTED, message, self._clock())


def parse_address(text: str) -> tuple[Address, ...]:
    """Return the addresses that a value of NCCL_RAS_ADDR (host:port) means; () if it cannot be parsed.

    The name localhost means ::1 and 127.0.0.1: NCCL listens at the first of them that its resolver returns.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return ()
    host = host.strip("[]")
    if host == "localhost":
        return ("::1", int(port)), ("127.0.0.1", int(port))
    return ((host, int(port)),)


def _nobody(loaded: Sequence[LoadedNccl]) -> str:
    """Return why nothing listens, as far as that can be said."""
    message = "no RAS thread of NCCL listens on this machine"
    if loaded:
        return f"{message}, although it is loaded: is NCCL_RAS_ENABLE 0, or its network not the host's?"
    return f"{message}: one GPU alone needs no NCCL; a container needs the host's network"


def _text(version: Version) -> str:
    return ".".join(str(number) for number in version)
