"""The event log: what is one line, what is announced, and that only monotonic time counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.event import Event, Phase, Severity
from sparktop.model.instant import Instant
from sparktop.store.event_log import EVENTS_KEPT, EventLog

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
DOWN = "backend:b:unreachable"


class Told:
    """A log with everything that it announced."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.announced: list[Event] = []
        self.end = self.log.listen(self.announced.append)

    def begin(self, at: float, about: str = DOWN, severity: Severity = Severity.CRITICAL) -> None:
        """Add the beginning of a condition."""
        self.log.add(Event(wall(at), severity, "b", "nothing listens", {}, at, about, Phase.BEGIN))

    def finish(self, at: float, about: str = DOWN) -> None:
        """Add the end of a condition."""
        message = "answers again after 8 s"
        worst = Severity.CRITICAL
        self.log.add(Event(wall(at), Severity.INFO, "b", message, {}, at, about, Phase.END, 8.0, worst))

    def cycle(self, start: int, times: int, every: int = 40) -> None:
        """Add outages of eight seconds."""
        for number in range(times):
            self.begin(start + every * number)
            self.finish(start + every * number + 8)

    @property
    def lines(self) -> list[str]:
        """The messages in the log."""
        return [event.message for event in self.log.view()]

    @property
    def messages(self) -> list[str]:
        """The messages that were announced."""
        return [event.message for event in self.announced]


def wall(at: float) -> datetime:
    return EPOCH + timedelta(seconds=at)


def instant(at: float) -> Instant:
    return Instant(at, wall(at))


def test_two_outages_are_four_lines() -> None:
    """Two that come apart are better read one by one; each is announced once."""
    told = Told()
    told.cycle(0, 2)
    assert told.lines == ["nothing listens", "answers again after 8 s"] * 2
    assert told.messages == told.lines


def test_a_flapping_source_is_one_line_with_a_count_and_a_rate() -> None:
    """Seven outages in four minutes: one line, announced once, with the count and the time as data."""
    told = Told()
    told.cycle(0, 7)
    assert told.lines == ["down 7 times in 4 min: nothing listens"]
    (line,) = told.log.view()
    assert (line.count, line.span_s, line.phase, line.worst) == (7, 240.0, Phase.END, Severity.CRITICAL)
    assert told.messages == [
        *["nothing listens", "answers again after 8 s"] * 2,
        "down 3 times in 80 s: nothing listens",
    ]


def test_what_flaps_for_hours_is_announced_every_ten_minutes() -> None:
    """The line counts the last ten minutes, and does not announce each change."""
    told = Told()
    told.cycle(0, 90)
    assert told.lines == ["down 16 times in 10 min: nothing listens"]
    assert len([one for one in told.messages if one.startswith("down")]) == 6


def test_what_settles_is_announced_with_the_state_that_remains() -> None:
    """It settles after twice the usual time without a change, at least a minute: up, or down for good."""
    told = Told()
    told.cycle(0, 5)
    for at in range(169, 300):
        told.log.settle(instant(at))
    assert told.lines == ["quiet for 1 min (down 5 times in 3 min before)"]
    assert told.announced[-1].importance is Severity.CRITICAL
    assert (told.announced[-1].phase, told.announced[-1].at_s) == (Phase.END, 248)
    told.cycle(1000, 3)
    told.begin(1120)
    for at in range(1121, 1300):
        told.log.settle(instant(at))
    assert told.lines[-1] == "down for 1 min now (down 4 times in 2 min): nothing listens"
    assert (told.announced[-1].severity, told.announced[-1].phase) == (Severity.CRITICAL, Phase.BEGIN)
    told.finish(1400)
    assert told.messages[-1] == "answers again after 8 s"


def test_conditions_do_not_mix() -> None:
    """Each condition of each source has its own count."""
    told = Told()
    for number in range(4):
        told.begin(10 * number)
        told.begin(10 * number, "backend:c:unreachable")
        told.begin(10 * number, "backend:b:kv-full", Severity.WARNING)
    assert sorted(one.partition(":")[0] for one in told.lines) == [
        "KV cache full 4 times in 30 s",
        "down 4 times in 30 s",
        "down 4 times in 30 s",
    ]


def test_what_becomes_worse_while_it_flaps_is_announced() -> None:
    """A filter that lets only critical events pass must see the first critical one."""
    told = Told()
    for number in range(5):
        told.begin(10 * number, severity=Severity.WARNING)
        told.finish(10 * number + 5)
    told.begin(50, severity=Severity.CRITICAL)
    assert [event.severity for event in told.announced if event.count > 1] == [
        Severity.WARNING,
        Severity.CRITICAL,
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(1, 500)), max_size=300))
def test_whatever_happens_the_log_is_bounded(steps: list[tuple[int, bool, int]]) -> None:
    """At most 200 lines, and at most an announcement for an event and one when it has settled."""
    told, at = Told(), 0
    for number, begins, seconds in steps:
        at += seconds
        about = f"backend:b{number}:unreachable"
        (told.begin if begins else told.finish)(at, about)
        told.log.settle(instant(at))
    assert len(told.log) <= EVENTS_KEPT
    assert len(told.announced) <= 2 * len(steps)
