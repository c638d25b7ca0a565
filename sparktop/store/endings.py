"""Events about processes of engines that ended, and about faults in the kernel's log, with what is known."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from sparktop.model.event import Event, Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.node import GIB, OOM, XID, KernelLine, NodeSample, Workload, Workloads
from sparktop.model.snapshot import EngineProcess
from sparktop.store.sources import SourceKey

ENGINE_ENDED = "engine-ended"
"""Kind of the event that processes of an engine ended."""
_FRESH_S = 1e-6
"""Processes of a greater age were read with an earlier sample."""
_MOST_NAMED = 3
"""Most processes that a message names."""
_MOST_ENDED = 64
"""Engines whose newest end is remembered."""
_AT_WORK = frozenset({"engine core", "worker", "scheduler", "server", "runner"})
"""Roles without which an engine does not work."""


class Advice(StrEnum):
    """Advice of NVIDIA's catalogue of Xids, the numbered faults of a GPU in the kernel's log."""

    RESTART = "restart the program"
    RESET = "reset the GPU"
    REBOOT = "reboot the machine"
    FOLLOW_UP = "a follow-up: look at what came before it"
    PROCEDURE = "it has a procedure of its own: see NVIDIA's catalogue"
    INFORMATION = "for your information"


_MEANINGS: dict[int, tuple[str, Advice | None]] = {
    8: ("GPU stopped processing", Advice.RESTART),
    13: ("graphics engine exception", Advice.RESTART),
    31: ("GPU memory page fault", Advice.RESTART),
    32: ("invalid push buffer", Advice.RESTART),
    43: ("GPU stopped processing", Advice.FOLLOW_UP),
    45: ("preemptive cleanup", Advice.FOLLOW_UP),
    46: ("GPU stopped processing", Advice.RESET),
    48: ("double-bit ECC error", Advice.PROCEDURE),
    62: ("internal micro-controller halt", Advice.RESET),
    63: ("row remapping recorded", Advice.INFORMATION),
    64: ("row remapping failed", Advice.RESET),
    69: ("graphics engine class error", Advice.RESTART),
    74: ("NVLink error", Advice.PROCEDURE),
    79: ("GPU fell off the bus", Advice.REBOOT),
    92: ("high single-bit ECC error rate", Advice.INFORMATION),
    94: ("contained memory error", Advice.RESTART),
    95: ("uncontained memory error", Advice.RESET),
    109: ("context switch timeout", Advice.RESET),
    110: ("security fault", Advice.RESET),
    119: ("GSP timeout", Advice.RESET),
    120: ("GSP error", Advice.RESET),
    121: ("C2C link corrected error", Advice.INFORMATION),
    136: ("link training failed", Advice.RESET),
    137: ("NVLink flow control error", Advice.INFORMATION),
    140: ("unrecovered ECC error", Advice.RESET),
    143: ("GPU initialisation failed", Advice.RESET),
    **dict.fromkeys(range(144, 151), ("NVLink error", Advice.PROCEDURE)),
    154: ("recovery action changed", Advice.FOLLOW_UP),
    155: ("NVLink fault", Advice.RESET),
    156: ("resource retirement", Advice.RESET),
    157: ("resource retirement failed", Advice.INFORMATION),
    158: ("fatal timeout", Advice.RESET),
    160: ("channel retirement", Advice.INFORMATION),
    161: ("channel retirement failed", Advice.INFORMATION),
    167: ("PCIe fatal timeout", None),
    168: ("WPR fault", None),
    171: ("detail of Xid 48", Advice.FOLLOW_UP),
    172: ("detail of Xid 48", Advice.FOLLOW_UP),
}
"""Xids by number: (meaning, advice), None where NVIDIA's catalogue has no advice."""


class Endings:
    """What was running on one node, and which lines of the kernel's log are known."""

    def __init__(self) -> None:
        """Start without a sample."""
        self._workloads: Mapping[int, Workload] | None = None
        self._read_at: float | None = None
        self._backends: dict[int, str] = {}
        """Backend by process ID."""
        self._engines: dict[int, Hashable] = {}
        """Engine (process group) by process ID: children of a server that ended have no server any more."""
        self._ended_before: dict[Hashable, frozenset[int]] = {}
        """Processes of an engine that ran or ended when its newest end was reported: one end, one event."""
        self._last: NodeSample | None = None
        self._oom_kills: int | None = None
        self._line_s: float | None = None
        """Time of the newest known line of the kernel's log, in seconds since boot."""

    def note(
        self, key: SourceKey, sample: NodeSample, engines: Sequence[EngineProcess], when: Instant
    ) -> list[Event]:
        """Return events about what ended since the last sample of the node.

        `engines` are the processes of engines, with the backends that they serve.
        """
        lines = self._new_lines(sample)
        events = [_line_event(key, line, when) for line in lines if line.kind != OOM]
        if sample.workloads is not None and not (sample.workloads.age_s or 0.0) > _FRESH_S:
            events += self._events_of_ends(key, sample, sample.workloads, when)
        self._backends |= {engine.pid: engine.backend for engine in engines if engine.backend is not None}
        self._last = sample
        return events

    def _new_lines(self, sample: NodeSample) -> list[KernelLine]:
        """Return the lines of the kernel's log that are new; none in the first sample."""
        result = () if sample.kernel is None else sample.kernel.lines
        known_s = self._line_s
        if sample.kernel is not None:
            self._line_s = max([line.since_boot_s for line in result], default=known_s or 0.0)
        return [] if known_s is None else [line for line in result if line.since_boot_s > known_s]

    def _events_of_ends(
        self, key: SourceKey, sample: NodeSample, workloads: Workloads, when: Instant
    ) -> list[Event]:
        """Return the events about engines whose processes ended since the reading before."""
        before, self._workloads = self._workloads, {process.pid: process for process in workloads.processes}
        read_at, self._read_at = self._read_at, sample.at
        kills, self._oom_kills = self._oom_kills, sample.memory.oom_kills
        fresh = self._workloads.keys() - (before or {}).keys()
        began = {pid: _engine_key(self._workloads[pid]) for pid in fresh}
        self._engines |= began
        self._ended_before = {engine: pids - began.keys() for engine, pids in self._ended_before.items()}
        if before is None or read_at is None:
            return []
        groups: dict[Hashable, list[Workload]] = {}
        for pid, process in before.items():
            if pid not in self._workloads and process.role in _AT_WORK:
                groups.setdefault(self._engines.get(pid, _engine_key(process)), []).append(process)
        groups = {engine: ended for engine, ended in groups.items() if self._is_new(engine, ended)}
        new_kills = None if kills is None or self._oom_kills is None else max(0, self._oom_kills - kills)
        events = [
            self._end_event(key, sample, ended, new_kills, when.at - read_at, when)
            for ended in groups.values()
        ]
        self._backends = {pid: name for pid, name in self._backends.items() if pid in self._workloads}
        self._engines = {pid: engine for pid, engine in self._engines.items() if pid in self._workloads}
        return events

    def _is_new(self, engine: Hashable, ended: Sequence[Workload]) -> bool:
        """Return whether these processes ended otherwise than by an end of their engine that was reported."""
        pids = {process.pid for process in ended}
        if pids <= self._ended_before.get(engine, frozenset()):
            return False
        running_pids = (pid for pid, other_engine in self._engines.items() if other_engine == engine)
        self._ended_before[engine] = frozenset((*pids, *running_pids))
        while len(self._ended_before) > _MOST_ENDED:
            del self._ended_before[next(iter(self._ended_before))]
        return True

    def _end_event(
        self,
        key: SourceKey,
        sample: NodeSample,
        ended: Sequence[Workload],
        kills: int | None,
        within_s: float,
        when: Instant,
    ) -> Event:
        """Return the event that these processes of one engine ended in the last `within_s` seconds."""
        names = [self._backends[process.pid] for process in ended if process.pid in self._backends]
        subject = names[0] if len(set(names)) == 1 else key.name
        left = self._workloads or {}
        server = ended[0].server
        half = server is not None and server in left
        what = ", ".join(f"{process.about} (pid {process.pid})" for process in ended[:_MOST_NAMED])
        more = f" and {len(ended) - _MOST_NAMED} more" if len(ended) > _MOST_NAMED else ""
        causes = _causes_text(sample, ended, kills)
        message = f"{ended[0].engine} ended: {what}{more}, between {_clock_text(when.wall, within_s)} and "
        message += f"{_clock_text(when.wall)}; {causes}"
        if half:
            message += f"; its server (process {server}) still runs"
        if last_seen := last_words(self._last):
            message += f"; the machine before that: {last_seen}"
        values: Values = {
            "ended": f"{what}{more}",
            "processes": float(len(ended)),
            "oom_kills": None if kills is None else float(kills),
            "window_s": within_s,
        }
        severe = half or bool(kills)
        about = f"{key.label}:{ENGINE_ENDED}"
        severity = Severity.CRITICAL if severe else Severity.WARNING
        return Event(when.wall, severity, subject, message, values, when.at, about)


def _engine_key(process: Workload) -> Hashable:
    """Return what the processes of one engine on a machine have in common."""
    return (
        process.server if process.server is not None else (process.engine, process.model, process.container)
    )


def _causes_text(sample: NodeSample, ended: Sequence[Workload], kills: int | None) -> str:
    """Return what the kernel says about the end of these processes, or what cannot be read."""
    log = sample.kernel
    pids = {process.pid for process in ended}
    lines = () if log is None else log.lines
    own_lines = [line for line in lines if line.pid in pids]
    if any(line.kind == OOM for line in own_lines):
        return "the kernel killed it for lack of memory (OOM)"
    result = [xid_words(line.code) for line in own_lines if line.kind == XID]
    if kills:
        result.append(
            f"the kernel killed {kills} process{'es' if kills > 1 else ''} for lack of memory (OOM)"
        )
    if result:
        return ", ".join(result)
    causes = ["no OOM kill"] if kills == 0 else []
    if log is None or log.unreadable is not None:
        return "; ".join([*causes, *([log.unreadable] if log is not None and log.unreadable else [])]) or (
            "its log says why"
        )
    return ", ".join([*causes, "no Xid"]) + ": its own log says why, or a user ended it"


def _line_event(key: SourceKey, line: KernelLine, when: Instant) -> Event:
    if line.kind == XID:
        message = xid_words(line.code) + (f" (process {line.pid})" if line.pid is not None else "")
        severity = Severity.CRITICAL if is_severe(line.code) else Severity.WARNING
    else:
        message, severity = f"kernel: {line.text}", Severity.CRITICAL
    values: Values = {
        "xid": None if line.code is None else float(line.code),
        "since_boot_s": line.since_boot_s,
    }
    return Event(when.wall, severity, key.name, message, values, when.at, f"{key.label}:{line.kind}")


def xid_words(code: int | None) -> str:
    """Return number, meaning and advice: "Xid 79: GPU fell off the bus; reboot the machine"."""
    if code is None:
        return "Xid"
    meaning, advice = _MEANINGS.get(code, ("", None))
    return f"Xid {code}" + (f": {meaning}" if meaning else "") + (f"; {advice}" if advice else "")


def is_severe(code: int | None) -> bool:
    """Return whether an Xid calls for a reset, a reboot or a procedure of its own."""
    _, advice = _MEANINGS.get(code or 0, ("", None))
    return advice in {Advice.RESET, Advice.REBOOT, Advice.PROCEDURE}


def last_words(sample: NodeSample | None) -> str:
    """Return memory, temperature and power of a sample: "118.9 of 121.6 GiB, 71 °C, 84 W"."""
    if sample is None:
        return ""
    memory = sample.memory
    parts = []
    if memory.used_bytes is not None and memory.total_bytes is not None:
        parts.append(f"{memory.used_bytes / GIB:.1f} of {memory.total_bytes / GIB:.1f} GiB")
    parts += [] if sample.hottest_c is None else [f"{sample.hottest_c:.0f} °C"]
    parts += [] if sample.gpu_power_w is None else [f"{sample.gpu_power_w:.0f} W"]
    return ", ".join(parts)


def _clock_text(wall: datetime, before_s: float = 0.0) -> str:
    return f"{(wall - timedelta(seconds=before_s)).astimezone():%H:%M:%S}"
