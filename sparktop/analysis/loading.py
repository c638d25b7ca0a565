"""The phase in which a server's start is, seen from outside: by its memory, its CPU use and its GPU.

A start only goes forward through the phases of `PHASES`: no GPU memory; the GPU context; memory that grows
with the weights; memory that stands still while kernels are compiled and a step is tried; a jump, when the KV
pool is allocated; standing still again while CUDA graphs are captured. One exception: a pause in reading
weights, which looks like the begin of the next phase, ends without a jump.

On a machine without GPU the resident memory of the processes stands for the GPU's; the second phase begins
when the engine has a process of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

from msgspec import Struct

from sparktop.model.snapshot import GROWTH, LAST_TIME, PHASES, Loading, PastStart

START, CONTEXT, WEIGHTS, COMPILE, POOL, GRAPHS = range(len(PHASES))
DOWNLOAD = "download"
_MIB, _GIB = 2**20, 2**30
_WINDOW_S = 10.0
"""Growth is measured over this many seconds."""
_CONTEXT_BYTES = _GIB
"""More GPU memory than this is not the context alone, which takes 0.3 to 0.6 GiB."""
_STILL_BYTES, _STILL_SHARE = 64 * _MIB, 0.005
"""Memory that grew less in the window, in bytes or as a share, stands still."""
_JUMP_BYTES, _JUMP_SHARE = 512 * _MIB, 0.05
_JUMP_S = 6.0
"""Seconds within which the KV pool is allocated."""
_POOL_S = 4.0
"""Seconds that memory stands still after the jump until the pool counts as allocated."""
_DOWNLOAD_BYTES_PER_S = 20e6
_SEEN_FROM_S = 30.0
"""A start is seen from its begin if the first look is at most this many seconds after it."""


class Look(Struct, frozen=True):
    """What is visible of a server's processes at one time."""

    at: float
    """Monotonic seconds."""
    memory_bytes: int | None = None
    """GPU memory of the processes; where no GPU reports any, their resident memory."""
    on_gpu: bool = True
    """Whether `memory_bytes` is GPU memory."""
    has_engine: bool = False
    """Whether a process other than the server's belongs to it: engine core, worker, scheduler."""
    received_bytes_per_s: float | None = None
    """Network traffic of the machine."""


class StartClock:
    """Follows one start of one server, from look to look."""

    def __init__(self, started_at: float, first_at: float) -> None:
        """Follow a process that started at `started_at` and is first seen at `first_at` (monotonic s)."""
        self.started_at = started_at
        self.from_begin = first_at - started_at <= _SEEN_FROM_S
        """Whether all phases were seen."""
        self._step = START
        self._began: list[tuple[float, int]] = [(started_at, START)]
        """(time, phase) of each change; a phase can occur twice."""
        self._looks: deque[tuple[float, int]] = deque()
        self._downloads = False
        self._still_bytes: int | None = None
        """Memory when the weights seemed complete."""
        self.memory_bytes: int | None = None

    @property
    def step(self) -> int:
        """Index of the phase in `PHASES`."""
        return self._step

    def note(self, look: Look) -> None:
        """Update the phase with what is visible now."""
        self.memory_bytes = look.memory_bytes
        memory = look.memory_bytes or 0
        self._looks.append((look.at, memory))
        while self._looks[-1] is not self._looks[0] and self._looks[1][0] <= look.at - _WINDOW_S:
            self._looks.popleft()
        receives = (look.received_bytes_per_s or 0.0) >= _DOWNLOAD_BYTES_PER_S
        self._downloads = receives and self._step <= CONTEXT and self._grown(look.at) < _STILL_BYTES
        step = self._next(look, memory)
        if step != self._step:
            self._step = step
            self._began.append((look.at, step))

    def _next(self, look: Look, memory: int) -> int:
        step, at = self._step, look.at
        if step <= CONTEXT:
            has_context = memory > 0 if look.on_gpu else look.has_engine
            beyond = memory > _CONTEXT_BYTES and has_context
            return WEIGHTS if beyond else CONTEXT if has_context else step
        if step == WEIGHTS and self._is_still(at, memory):
            self._still_bytes = memory
            return COMPILE
        if step == COMPILE and self._still_bytes is not None:
            grown = memory - self._still_bytes
            if self._jumps(at, memory) and grown > max(_JUMP_BYTES, _JUMP_SHARE * memory):
                return POOL
            if grown > max(_STILL_BYTES, _STILL_SHARE * memory) and self._covers(at, _WINDOW_S):
                slow = memory - self._at(at - _JUMP_S) < max(_JUMP_BYTES, _JUMP_SHARE * memory)
                return WEIGHTS if slow and not self._is_still(at, memory) else step
        if step == POOL and memory - self._at(at - _POOL_S) < _STILL_BYTES:
            return GRAPHS
        return step

    def _jumps(self, at: float, memory: int) -> bool:
        return memory - self._at(at - _JUMP_S) > max(_JUMP_BYTES, _JUMP_SHARE * memory)

    def _is_still(self, at: float, memory: int) -> bool:
        return self._covers(at, _WINDOW_S) and self._grown(at) < max(_STILL_BYTES, _STILL_SHARE * memory)

    def _covers(self, at: float, seconds: float) -> bool:
        return bool(self._looks) and self._looks[0][0] <= at - 0.9 * seconds

    def _grown(self, at: float) -> int:
        return self._looks[-1][1] - self._at(at - _WINDOW_S) if self._looks else 0

    def _at(self, at: float) -> int:
        """Return the memory at the time `at`: the last known before it, else the first known."""
        known = self._looks[0][1]
        for when, memory in self._looks:
            if when > at:
                break
            known = memory
        return known

    def phases(self, at: float) -> Mapping[str, float]:
        """Return the seconds spent in each phase up to `at`; empty unless all were seen."""
        if not self.from_begin:
            return {}
        times: dict[str, float] = {}
        for (began_at, step), (ended_at, _) in pairwise([*self._began, (at, self._step)]):
            times[PHASES[step]] = times.get(PHASES[step], 0.0) + max(0.0, ended_at - began_at)
        return times

    def loading(
        self, at: float, past: PastStart | None = None, *, checkpoint_bytes: float | None = None
    ) -> Loading:
        """Return what is known at `at`; `past` is an earlier start like this one.

        `checkpoint_bytes` is the size of the weights that the machine loads.
        """
        elapsed_s, phase_s = at - self.started_at, at - self._began[-1][0]
        left_s, basis = None, None
        if past is not None:
            left_s, basis = self._left_s(elapsed_s, phase_s, past), LAST_TIME
        elif self._step == WEIGHTS and checkpoint_bytes is not None:
            rate = self._grown(at) / _WINDOW_S
            if rate > 0:
                left_s, basis = max(0.0, checkpoint_bytes - (self.memory_bytes or 0)) / rate, GROWTH
        return Loading(
            elapsed_s=elapsed_s,
            phase=DOWNLOAD if self._downloads else PHASES[self._step],
            step=self._step + 1,
            phase_s=phase_s,
            left_s=left_s,
            expected_s=None if past is None else past.total_s,
            basis=basis,
            warm=None if past is None else past.warm,
            memory_bytes=self.memory_bytes,
        )

    def _left_s(self, elapsed_s: float, phase_s: float, past: PastStart) -> float:
        """Return the seconds left by an earlier start: the rest of this phase and all later phases."""
        here = past.phases.get(PHASES[self._step])
        if here is None:
            return max(0.0, past.total_s - elapsed_s)
        later = sum(past.phases.get(name, 0.0) for name in PHASES[self._step + 1 :])
        return max(0.0, here - phase_s) + later


def best_past(starts: list[PastStart], boot_id: str | None) -> PastStart | None:
    """Return the newest earlier start that was as this one is: warm or cold; else the newest of all.

    A start is warm if an earlier one was seen since the machine booted.
    """
    if not starts:
        return None
    warm = is_warm(starts, boot_id)
    alike = [one for one in starts if one.warm is warm]
    return max(alike or starts, key=lambda one: one.ended_at)


def is_warm(starts: list[PastStart], boot_id: str | None) -> bool:
    """Return whether one of these earlier starts happened since the boot `boot_id` of the machine."""
    return boot_id is not None and any(one.boot_id == boot_id for one in starts)
