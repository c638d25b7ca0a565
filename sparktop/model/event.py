"""Alerts, findings of rules, the events in the log, and whether an engine makes progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

Values = Mapping[str, float | str | None]
"""Numbers behind a message, by name; each name includes the unit. Where a number has a limit, the limit is
there too ("limit_percent"), and "window_s" is the time over which it was measured, 0 for a single reading."""


class Condition(NamedTuple):
    """What an alert or an event is about, as texts name it."""

    label: str = ""
    """Short name in the event log; "" for the words of its kind: "slow-clock" is "slow clock"."""
    summary: str = ""
    """Words in the summary of a snapshot, after a server's or machine's name; "" for the label."""
    hint: str = ""
    """What to try, a few words; "" where the finding or the speed state says it."""
    key: str = "e"
    """The key on the keyboard that shows more."""


_ALERTS: Mapping[str, Condition] = {
    "unreachable": Condition("down"),
    "engine-dead": Condition(hint="restart the server"),
    "dead-rank": Condition("a process of the engine ended", hint="restart the server"),
    "stuck": Condition(hint="restart the server", key="z"),
    "blocked": Condition("requests not served", key="z"),
    "restarts": Condition("restarting", "restarts again and again", "read its log"),
    "absent-model": Condition(
        "model not served", "asks for a model that is not served", "correct its deployment"
    ),
    "kv-full": Condition("KV cache full", hint="fewer requests at once, or shorter ones", key="z"),
    "preempting": Condition(summary="preempts requests", hint="fewer requests at once", key="z"),
    "refused": Condition(summary="refuses requests", hint="fewer requests at once"),
    "http-errors": Condition(summary="answers with HTTP 5xx", hint="read its log"),
    "aborted": Condition("clients leave", "its clients leave early", "is it too slow for their time limit?"),
    "lmcache-failures": Condition("LMCache fails", "has an LMCache that fails", "read its log", "z"),
    "lmcache": Condition("LMCache unhealthy", "has an unhealthy LMCache", "read its log", "z"),
    "deployments": Condition("deployment fails", "a deployment fails", "see which one"),
    "headroom": Condition("low memory", hint="see which process grows", key="P"),
    "headroom-limit": Condition("memory runs low", hint="see which process grows", key="P"),
    "swap-in": Condition("swapping", "swaps", "see which process grows", "P"),
    "thermal": Condition("hot GPU", hint="cooler air"),
    "sensors": Condition("hot sensor"),
    "throttled": Condition(),
    "power-cap": Condition("power-capped"),
    "slow-clock": Condition(),
    "slow-steps": Condition(),
    "slower-than-best": Condition(summary="is slower than its best"),
    "gpu-lost": Condition("GPU lost"),
    "gpus-gone": Condition("no GPU answers"),
    "not-judged": Condition(summary="cannot be judged", hint="report the error in its log"),
    "rdma-errors": Condition("RDMA errors", hint="check cable and port"),
    **dict.fromkeys(("machines-differ", "slow-link"), Condition()),
    "machine-setup": Condition(summary="has a setting to mend"),
    **dict.fromkeys(("oscillating", "starved", "uneven"), Condition()),
    "for-nobody": Condition("works for nobody"),
    "orphaned-engine": Condition(),
    "start-short": Condition("too little memory", "has too little memory"),
    "memory-held": Condition("memory held by nobody"),
    "prefix-unused": Condition("prefix cache unused"),
    "start-stuck": Condition("start hangs"),
    "draft-length": Condition("drafts too long"),
}
ALERT_KINDS = tuple(_ALERTS)
"""The kinds of alerts, which are the last parts of their ids (see `Event.kind`)."""
_EVENTS: Mapping[str, Condition] = {
    "paused": Condition("no progress"),
    "state": Condition("state changed"),
    "model": Condition("model changed"),
    "boot": Condition("machine restarted"),
    "engine-ended": Condition("engine ended"),
    "xid": Condition("Xid"),
}
"""Conditions that only leave events."""


def kind_of(about: str) -> str:
    """Return the kind in the id of an alert or a condition: "kv-full" of "backend:spark-a:kv-full".

    A number after the kind, as in "gpu-lost/0", is left out.
    """
    return about.rpartition(":")[2].partition("/")[0]


def condition_of(about: str) -> Condition:
    """Return the condition of an alert's or event's id, with label and summary."""
    kind = kind_of(about)
    condition = _ALERTS.get(kind) or _EVENTS.get(kind) or Condition()
    label = condition.label or kind.replace("-", " ")
    return condition._replace(label=label, summary=condition.summary or label)


def condition_label(about: str) -> str:
    """Return a short name for the condition of an alert's id: "KV cache full" for "backend:a:kv-full"."""
    label = condition_of(about).label
    return f"router {label}" if about.startswith("router:") else label


_MINUTES_FROM_S = 90.0
"""Spans are written in minutes from so many seconds on."""


def span_text(seconds: float) -> str:
    """Return a time in which something happened several times: "40 s", "2 min"."""
    return f"{seconds / 60:.0f} min" if seconds >= _MINUTES_FROM_S else f"{seconds:.0f} s"


class Severity(StrEnum):
    """How important an alert or event is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Return 0 for INFO, 1 for WARNING, 2 for CRITICAL."""
        return _RANKS[self]


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Phase(StrEnum):
    """Whether an event reports that the condition of an alert began, became worse or ended."""

    BEGIN = "begin"
    WORSE = "worse"
    """The condition holds and its severity has risen."""
    END = "end"


class Alert(Struct, frozen=True):
    """An alert: a condition of a backend, node, router or group that holds now and needs attention."""

    id: str
    severity: Severity
    subject: str
    """Name of the backend, node, router or group."""
    message: str
    since: datetime
    """UTC."""
    values: Values = {}
    since_s: float | None = None
    """`since` in monotonic seconds, so that a duration does not depend on the wall clock."""
    worst: Severity | None = None
    """Highest severity since it began; None where that is not known."""
    worst_since: datetime | None = None
    """Time since when `worst` is its highest severity, UTC; None where that is not known."""

    def since_words(self, time: Callable[[datetime], str]) -> str:
        """Return when it began, and where that was later, when it became as severe as it is, by `time`."""
        began = time(self.since)
        if self.worst_since is None or self.worst_since <= self.since or self.severity is not self.worst:
            return began
        return f"{began}, {self.severity.value} since {time(self.worst_since)}"


_LATE_S = 20.0
"""A beginning that was noticed so many seconds later is not dated without saying so."""


class Event(Struct, frozen=True):
    """An event in the log on the screen, such as an alert that began or a server that restarted."""

    at: datetime
    severity: Severity
    subject: str
    message: str
    values: Values = {}
    at_s: float | None = None
    """Time of the reading that caused it, in monotonic seconds; None where that is not known."""
    about: str | None = None
    """What it is about, such as "backend:spark-a:kv-full": the id of an alert, or of another condition that
    can occur repeatedly; None for a plain message."""
    phase: Phase | None = None
    """None for an event without duration, such as a restart."""
    duration_s: float | None = None
    """Seconds that the condition held before `at`: to its end, or until it was noticed; None if unknown."""
    worst: Severity | None = None
    """Highest severity that the condition had; None unless `phase` is END."""
    count: int = 1
    """Number of occurrences that this event stands for."""
    span_s: float | None = None
    """Seconds from the first to the newest of the occurrences; None for a single occurrence."""

    @property
    def kind(self) -> str | None:
        """The kind of what it is about (see `kind_of`); None for a plain message."""
        return None if self.about is None else kind_of(self.about)

    @property
    def since(self) -> datetime:
        """The time of what it tells: that of its end, else that since when the condition holds."""
        held_s = 0.0 if self.phase is Phase.END else self.duration_s or 0.0
        return self.at - timedelta(seconds=held_s)

    @property
    def dated_message(self) -> str:
        """The message for a place beside `since`: its figures are of `at`, which it says if that is later."""
        late_s = self.duration_s if self.phase is Phase.BEGIN and self.count == 1 else None
        return self.message if (late_s or 0.0) < _LATE_S else f"{self.message} (noticed {late_s:.0f} s later)"

    @property
    def counted(self) -> str:
        """The condition with the number of its occurrences: "down 7 times in 10 min"."""
        return f"{condition_label(self.about or '')} {self.count} times in {span_text(self.span_s or 0.0)}"

    @property
    def importance(self) -> Severity:
        """Return the severity to filter by: the end of a critical alert is as important as its beginning."""
        return self.severity if self.worst is None else self.worst


# Whether an engine that holds requests makes progress, as screens and reports show it.


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

    @property
    def in_words(self) -> str:
        """The word within a sentence, where "stuck?" would read as its end."""
        return "may be stuck" if self is Progress.SUSPECT else self.value


class ProgressView(Struct, frozen=True):
    """An engine that has held requests without any progress for some time."""

    word: Progress
    seconds: float
    """Seconds without progress."""
    why: str
    """What speaks for `word`, in words: what the GPUs do, or why the engine rests; "" if nothing is known."""
    evidence: Values = {}
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


class Sure(StrEnum):
    """How sure a finding is."""

    KNOWN = "known"
    """It was read: from the kernel, the driver, the server's page."""
    LIKELY = "likely"
    """It follows from figures that could have another cause."""
    UNKNOWN = "unknown"
    """Evidence is missing; the finding says which."""


class FindingKind(StrEnum):
    """What a finding is about; `FINDINGS` in `model/explained.py` explains each."""

    FOR_NOBODY = "for-nobody"
    ORPHANED_ENGINE = "orphaned-engine"
    YARDSTICKS = "yardsticks"
    """What a server gives in percent of what it should."""
    SLOWER_THAN_BEST = "slower-than-best"
    START_SHORT = "start-short"
    START_FITS = "start-fits"
    MEMORY_HELD = "memory-held"
    DRAFT_LENGTH = "draft-length"
    PREFIX_UNUSED = "prefix-unused"
    MACHINES_DIFFER = "machines-differ"
    MACHINE_SETUP = "machine-setup"
    SLOW_LINK = "slow-link"
    START_STUCK = "start-stuck"


class Finding(Struct, frozen=True):
    """What a rule found about a server or a machine."""

    kind: FindingKind
    """With a severity also the kind of its alert."""
    subject: str
    """Name of the server or machine."""
    line: str
    """The verdict with its figures in one line: "prefix cache never hits: 0 of 48,210 prompt tokens"."""
    of_machine: bool = False
    """Whether `subject` is a machine."""
    fix: str | None = None
    """What to do; None where nothing is known to help."""
    sure: Sure = Sure.KNOWN
    severity: Severity | None = None
    """Severity of its alert; None for a fact that needs no attention."""
    evidence: tuple[tuple[str, str], ...] = ()
    """What was judged as (name, text) rows, with limits."""
    values: Values = {}
    """Figures for JSON and hooks, names with units."""
    lasted_s: float | None = None
    """Seconds for which it has held; None: since it was found."""
    key: str = ""
    """Distinguishes findings of one kind about one subject; "" if there is at most one."""

    @property
    def alert_id(self) -> str:
        """The id of its alert: "backend:spark-a:machines-differ/mtu"."""
        part = f"/{self.key.replace(':', '.')}" if self.key else ""
        return f"{'node' if self.of_machine else 'backend'}:{self.subject}:{self.kind}{part}"

    @property
    def doubt(self) -> str:
        """How sure it is, as the end of the line: " (likely)"; "" where it was read or the line says so."""
        is_said = self.sure is Sure.UNKNOWN and any(word in self.line for word in ("known", "perhaps"))
        return "" if is_said or self.sure is Sure.KNOWN else f" ({self.sure.value})"

    @property
    def said(self) -> str:
        """The line and how sure it is: the message of its alert."""
        return f"{self.line}{self.doubt}"

    @property
    def words(self) -> str:
        """The line, how sure it is, and the fix."""
        return f"{self.said} → {self.fix}" if self.fix else self.said
