"""Two recordings on one time axis: before and after a change, as if both had begun at the same time.

Times are those of the first recording: times of the second are shifted to the start of the first. Names of
sources get a suffix. Each recording is played into a store of its own, so that the sources of one are never
matched or judged with those of the other; the snapshots of both are put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, TypeVar, cast

from sparktop.model.engine import EngineSample
from sparktop.model.event import Alert, Event
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.fleet import SelfView
from sparktop.model.instant import Instant
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.model.targets import BackendTarget, RouterTarget, Target
from sparktop.recording.head import Announced, Head, Landmarks, key_of
from sparktop.recording.player import WARM_UP_S, Player, Recording
from sparktop.recording.record import Record
from sparktop.recording.time_line import FrameStart
from sparktop.store import SourceKey
from sparktop.store.figures import totals
from sparktop.store.journal import Call, Change
from sparktop.values import dataclass

SUFFIXES = ("@before", "@after")
"""Appended to the names of the sources of the first and of the second recording."""
_GRACE = timedelta(seconds=5)
"""A recording counts as ended where the moment shown is this much later than its last record."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Side:
    """How the sources and the times of one recording appear in a comparison."""

    recording: Recording
    suffix: str
    start: Instant
    """Where the recording begins on the common time axis."""

    @property
    def shift(self) -> timedelta:
        """Duration to add to the recording's wall-clock times to get times of the common time axis."""
        return self.start.wall - self.recording.frames[0].instant.wall

    def shift_s(self, instant: Instant) -> float:
        """Return the seconds to add to the recording's monotonic times to get those of the common time axis.

        Holds for the times between two boots of the recorded machine, of which `instant` is one.
        """
        passed = instant.wall + self.shift - self.start.wall
        return self.start.at + passed.total_seconds() - instant.at

    def key(self, key: SourceKey) -> SourceKey:
        """Return the key of a source with the suffix."""
        return SourceKey(key.kind, key.name + self.suffix)

    def _names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name + self.suffix for name in names)

    def target(self, target: Target) -> Target:
        """Return a target with the suffix on its name and on the names of targets that it refers to."""
        name = target.name + self.suffix
        if isinstance(target, BackendTarget):
            return replace(target, name=name, nodes=self._names(target.nodes))
        if isinstance(target, RouterTarget):
            behind = {one: backend + self.suffix for one, backend in target.deployments.items()}
            return replace(target, name=name, backends=self._names(target.backends), deployments=behind)
        return replace(target, name=name)

    def head(self, head: Head, shift_s: float) -> Head:
        """Return a copy of `head` whose source names have the suffix, with times on the common time axis.

        `shift_s` is added to its monotonic times.
        """
        targets = [self.target(one) for one in head.targets.values()]
        state, shift = head.announced, self.shift
        alerts = [
            replace(self._alert(one), since=one.since + shift, since_s=_later(one.since_s, shift_s))
            for one in state.alerts
        ]
        events = [
            replace(self._event(one), at=one.at + shift, at_s=_later(one.at_s, shift_s))
            for one in state.events
        ]
        verdicts = {
            group: (word, since + shift.total_seconds()) for group, (word, since) in state.verdicts.items()
        }
        return replace(
            head,
            targets={key_of(one): one for one in targets},
            identities={self.key(key): one for key, one in head.identities.items()},
            announced=Announced(tuple(alerts), tuple(events), verdicts, state.summary),
        )

    def landmarks(self, found: Landmarks) -> Landmarks:
        """Return the load and events in `found` with suffixed names and times of the common time axis."""
        events = ((at + self.shift, name + self.suffix, severity) for at, name, severity in found.events)
        return replace(found, events=tuple(events))

    def _alert(self, alert: Alert) -> Alert:
        if alert.subject.endswith(self.suffix):
            return alert
        subject = alert.subject + self.suffix
        return replace(alert, subject=subject, id=alert.id.replace(alert.subject, subject, 1))

    def _event(self, event: Event) -> Event:
        if event.subject.endswith(self.suffix):
            return event
        subject = event.subject + self.suffix
        about = None if event.about is None else event.about.replace(event.subject, subject, 1)
        return replace(event, subject=subject, about=about)

    def call(self, call: Call, shift_s: float) -> Call:
        """Return a call of the store with suffixes; `shift_s` is added to its monotonic times."""
        arguments = cast("tuple[Any, ...]", call.arguments)
        match call.change:
            case Change.ACCEPT:
                key, reading, took_ms = arguments
                reading = replace(reading, at=reading.at + shift_s)
                if isinstance(reading, EngineSample) and reading.start_time is not None:
                    reading = replace(reading, start_time=reading.start_time + self.shift.total_seconds())
                return Call(call.change, (self.key(key), reading, took_ms))
            case Change.IDENTIFY | Change.REMOVE:
                return Call(call.change, (self.key(arguments[0]), *arguments[1:]))
            case Change.ADD:
                return Call(call.change, tuple(self.target(one) for one in arguments))
            case Change.BEGIN_OWN_LOAD | Change.END_OWN_LOAD:
                return Call(call.change, (frozenset(self._names(sorted(arguments[0]))),))
            case Change.NOTE:
                return Call(call.change, (arguments[0] + self.suffix, *arguments[1:]))
        return call

    def snapshot(self, taken: Snapshot) -> Snapshot:
        """Return a copy of `taken` for the screen on which both recordings are shown together.

        Balance verdicts have suffixed group names. Backends have group names without the suffix, so that
        those of both recordings are drawn on one scale. After the recording's end, all its sources are
        shown as not answering.
        """
        end = self.recording.end + self.shift
        if self.recording.is_over and taken.taken_at > end + _GRACE:
            taken = _after_end(taken, end)
        return replace(
            taken,
            backends=tuple(replace(one, group=one.group.removesuffix(self.suffix)) for one in taken.backends),
            balance=tuple(
                replace(one, group=self._named(one.group), within=one.within and self._named(one.within))
                for one in taken.balance
            ),
            alerts=tuple(self._alert(one) for one in taken.alerts),
            events=tuple(self._event(one) for one in taken.events),
        )

    def _named(self, group: str) -> str:
        return group if group.endswith(self.suffix) else group + self.suffix


def _later(at_s: float | None, shift_s: float) -> float | None:
    return None if at_s is None else at_s + shift_s


def _after_end(taken: Snapshot, end: datetime) -> Snapshot:
    """Return a snapshot in which all sources have failed at `end`, because their recording ended."""
    failed: dict[str, Any] = {
        "failure": Failure(FailureKind.ENDED, "its recording ended", taken.at),
        "failing_since": end,
    }
    state: dict[str, Any] = {"state": BackendState.UNKNOWN, "state_rule": "its recording ended"}
    return replace(
        taken,
        nodes=tuple(replace(one, **failed) for one in taken.nodes),
        backends=tuple(replace(one, **failed, **state, state_window_s=None) for one in taken.backends),
        routers=tuple(replace(one, **failed) for one in taken.routers),
        balance=(),
        alerts=(),
    )


class _SidePlayer(Player):
    """Plays one recording of a comparison into a store with suffixed names and times of the common axis."""

    def __init__(self, side: Side) -> None:
        """Prepare to play from the start."""
        self.side = side
        self._shift_s = 0.0
        super().__init__(side.recording)

    def _new_store(self, head: Head, instant: Instant) -> None:
        self._shift_s = self.side.shift_s(instant)
        super()._new_store(self.side.head(head, self._shift_s), instant)

    def _catch_up(self, head: Head) -> None:
        super()._catch_up(self.side.head(head, self._shift_s))

    def _adopt(self, head: Head) -> None:
        super()._adopt(self.side.head(head, self._shift_s))

    @property
    def store_time(self) -> Instant:
        """The time that the store takes as now, on the common time axis."""
        return Instant(self.instant.at + self._shift_s, self.instant.wall + self.side.shift)

    def _call_of(self, record: Record) -> Call | None:
        call = super()._call_of(record)
        return None if call is None else self.side.call(call, self._shift_s)


class ComparisonPlayer:
    """Plays the recordings of a comparison side by side; times are those of the common time axis."""

    sweep = None
    """Sweeps of two recordings are not shown: the board has room for one."""

    def __init__(self, sides: Sequence[Side]) -> None:
        """Prepare to play from the common start."""
        self._players = [_SidePlayer(side) for side in sides]

    @property
    def instant(self) -> Instant:
        """The moment up to which all recordings have been played."""
        return min((one.store_time for one in self._players), key=lambda one: one.wall)

    @property
    def next_wall(self) -> datetime | None:
        """Wall time of the next record to play; None at the end of all recordings."""
        walls = [wall + one.side.shift for one in self._players if (wall := one.next_wall) is not None]
        return min(walls, default=None)

    def begin_before(self, wall: datetime, warm_up_s: float) -> None:
        """Prepare to play from about `warm_up_s` seconds before the moment `wall`; apply no record yet."""
        for one in self._players:
            one.begin_before(wall - one.side.shift, warm_up_s)

    def seek(self, wall: datetime, *, warm_up_s: float = WARM_UP_S) -> None:
        """Go to a moment: replay the `warm_up_s` seconds before it into new stores."""
        self.begin_before(wall, warm_up_s)
        for _ in self.steps(wall):
            pass

    def steps(self, until: datetime) -> Iterator[None]:
        """Apply all records up to `until`, and yield after each of them."""
        for one in self._players:
            yield from one.steps(until - one.side.shift)

    def snapshot(self) -> Snapshot:
        """Return the snapshots of all recordings as one."""
        return together([one.side.snapshot(one.snapshot()) for one in self._players])


def together(sides: Sequence[Snapshot]) -> Snapshot:
    """Return one snapshot with the sources, alerts and events of all snapshots in `sides`.

    Its sources alternate: the first source of each snapshot, then the second of each, and so on.
    """
    backends = _alternating([one.backends for one in sides])
    return Snapshot(
        taken_at=sides[0].taken_at,
        at=max(one.at for one in sides),
        interval_s=max(one.interval_s for one in sides),
        node_interval_s=max(one.node_interval_s for one in sides),
        nodes=_alternating([one.nodes for one in sides]),
        backends=backends,
        routers=_alternating([one.routers for one in sides]),
        balance=tuple(
            sorted(_alternating([one.balance for one in sides]), key=lambda one: one.within is not None)
        ),
        alerts=tuple(alert for one in sides for alert in one.alerts),
        events=tuple(sorted((event for one in sides for event in one.events), key=lambda event: event.at)),
        totals=totals(backends),
        self_cost=SelfView(poll_ms={name: ms for one in sides for name, ms in one.self_cost.poll_ms.items()}),
        simulated=any(one.simulated for one in sides),
    )


def _alternating(each: Sequence[Sequence[Item]]) -> tuple[Item, ...]:
    """Return the first items of all sequences, then the second ones, and so on."""
    return tuple(item for items in zip_longest(*each) for item in items if item is not None)


class Comparison:
    """Two recordings shifted to the same start; has the methods of a single `Recording`."""

    word = "COMPARE"

    def __init__(self, before: Recording, after: Recording) -> None:
        """Shift `after` to the start of `before`."""
        start = before.frames[0].instant
        self._sides = [
            Side(one, suffix, start) for one, suffix in zip((before, after), SUFFIXES, strict=True)
        ]
        self._read = [0 for _ in self._sides]
        self.frames: list[FrameStart] = []
        """The beginnings of all frames on the common time axis, in the order in which they were found.

        The first one is the earliest."""
        self._add_frames()

    def _add_frames(self) -> None:
        for index, side in enumerate(self._sides):
            new = side.recording.frames[self._read[index] :]
            self._read[index] += len(new)
            self.frames += [_shifted(one, side) for one in new]

    @property
    def is_over(self) -> bool:
        """Whether no more will be written to any of the recordings."""
        return all(one.recording.is_over for one in self._sides)

    @property
    def was_cut(self) -> bool:
        """Whether any of the recordings is over without having been ended."""
        return any(one.recording.was_cut for one in self._sides)

    @property
    def end(self) -> datetime:
        """Wall time up to which the comparison can be played, on the common time axis.

        If both recordings are over, this is the end of the later one. Otherwise it is the time of the last
        record so far in the recording that is still being written; if both are, the earlier of the two times.
        """
        written = [one.recording.end + one.shift for one in self._sides if not one.recording.is_over]
        return min(written) if written else max(one.recording.end + one.shift for one in self._sides)

    def look(self) -> bool:
        """Read the records that were appended to the recordings; return whether there were any."""
        found = [one.recording.look() for one in self._sides]
        self._add_frames()
        return any(found)

    def player(self) -> ComparisonPlayer:
        """Return a new player, which stands at the start."""
        return ComparisonPlayer(self._sides)

    def close(self) -> None:
        """Close all files."""
        for one in self._sides:
            one.recording.close()


def _shifted(frame: FrameStart, side: Side) -> FrameStart:
    """Return the start of a frame with its times on the common time axis."""
    shift_s = side.shift_s(frame.instant)
    return replace(
        frame,
        instant=Instant(frame.instant.at + shift_s, frame.instant.wall + side.shift),
        read_head=lambda: side.head(frame.read_head(), shift_s),
        read_landmarks=lambda: side.landmarks(frame.read_landmarks()),
    )
