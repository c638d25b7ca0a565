"""A server that loads its model: phase, time since its process started, and time left."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

PHASES = ("start", "GPU context", "weights", "compile", "KV pool", "CUDA graphs")
"""The phases of a start in order, as they can be distinguished from outside."""
LAST_TIME, GROWTH = "last time", "growth of GPU memory"
"""What an expected time is based on."""


class PastStart(Struct, frozen=True):
    """A start of a model that was seen from the start of its process to the first answer."""

    host: str
    """Name of the machine."""
    engine: str
    model: str
    total_s: float
    """Seconds from the start of the process to the first answer."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by name of the phase; empty if not all were seen."""
    boot_id: str | None = None
    """The boot of the machine in which it happened."""
    warm: bool = False
    """Whether an earlier start of the model was seen since the machine booted, which leaves files cached."""
    ended_at: float = 0.0
    """When it answered, as Unix time."""
    reported: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase that the server itself reports afterwards."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return (host, engine, model)."""
        return self.host, self.engine, self.model


class PastStarts(Struct, frozen=True):
    """Earlier starts, as files hold them."""

    starts: tuple[PastStart, ...] = ()


class Loading(Struct, frozen=True):
    """What is known about a server that loads its model."""

    elapsed_s: float | None = None
    """Since its process started; None where the process is not visible."""
    phase: str | None = None
    """One of `PHASES`, or "download"; None where the process is not visible."""
    step: int | None = None
    """Number of the phase, from 1; None with `phase` or without a number."""
    steps: int = len(PHASES)
    phase_s: float | None = None
    """Seconds in this phase."""
    left_s: float | None = None
    """Seconds until it answers, as far as earlier starts or the growth of GPU memory show it."""
    expected_s: float | None = None
    """Duration of the whole start by an earlier start of the model on this machine."""
    basis: str | None = None
    """What `left_s` is based on: `LAST_TIME` or `GROWTH` (of this phase only)."""
    warm: bool | None = None
    """Whether the earlier start, and this one, found files in the machine's cache; None without one."""
    memory_bytes: int | None = None
    """GPU memory of its processes, or their memory where no GPU reports any."""
    node: str | None = None
    pid: int | None = None
    """Process ID of the server on `node`."""

    @property
    def share(self) -> float | None:
        """Return the share of the expected time that has passed, at most 1; None without an earlier start."""
        if self.expected_s is None or self.elapsed_s is None or self.expected_s <= 0:
            return None
        return min(1.0, self.elapsed_s / self.expected_s)

    @property
    def words(self) -> str:
        """Return the phase and the times in words: "weights, phase 3 of 6, 3:10 of ~4:40 last time"."""
        parts = [self.phase] if self.phase else []
        if self.step is not None:
            parts.append(f"phase {self.step} of {self.steps}")
        if self.elapsed_s is None:
            return ", ".join(parts)
        passed = minutes(self.elapsed_s)
        if self.expected_s is None:
            more = f", ~{minutes(self.left_s)} left in it" if self.left_s is not None else ""
            return ", ".join([*parts, f"{passed} so far"]) + more
        last = f"{minutes(self.expected_s)} last time"
        longer = self.elapsed_s > self.expected_s
        return ", ".join([*parts, f"{passed}, longer than {last}" if longer else f"{passed} of ~{last}"])

    @property
    def short(self) -> str:
        """Return the number of the phase and the times: "3/6 3:10/~4:40"."""
        step = "" if self.step is None else f"{self.step}/{self.steps} "
        passed = "" if self.elapsed_s is None else minutes(self.elapsed_s)
        return f"{step}{passed}" + ("" if self.expected_s is None else f"/~{minutes(self.expected_s)}")


def minutes(seconds: float) -> str:
    """Format seconds as minutes and seconds: "4:40"; with hours from one hour on: "1:02:03"."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
