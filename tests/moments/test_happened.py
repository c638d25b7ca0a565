"""What happened, on one page: every event and change is in it, merged by cause, whatever there is to say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from sparktop.cli import main
from sparktop.model.event import (
    Alert,
    Event,
    Finding,
    FindingKind,
    Phase,
    Progress,
    ProgressView,
    Severity,
    condition_label,
)
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity
from sparktop.model.snapshot import BackendState, BackendView, Limit, LimitKind, NodeView, Snapshot
from sparktop.model.sweep import SweepStatus, SweepView
from sparktop.model.targets import BackendTarget, Watch
from sparktop.moments.happened import (
    PAGE_LINES,
    change_words,
    compare_minutes,
    main_lines,
    pivot,
    what_happened,
)
from sparktop.moments.moment import (
    BACKEND,
    NODE,
    FactChange,
    Moment,
    MomentBuilder,
    Point,
    SweepSpan,
    moment_of,
    read_moment,
)
from sparktop.moments.page import happened_screen
from sparktop.moments.report import moment_report
from sparktop.panels.parts.text import row_text
from sparktop.recording.past import Past
from sparktop.recording.player import Recording, Span
from sparktop.recording.recorder import Recorder
from sparktop.report import cell
from sparktop.store import SourceKey, Store
from tests.known import known
from tests.moments.conftest import OUTAGE_S, Recorded, wall

BEGAN = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
HOSTILE = ("\x1b[2Jred\u202e", "a|b `c` **d**", "<script>", "[x](http://evil.example)", "\n\n# head", "")
RECORDING = Path(__file__).parents[1] / "data" / "recordings" / "0.3.0" / "changes.rec.zst"


def at(seconds: float) -> datetime:
    """Return a time so many seconds after the begin."""
    return BEGAN + timedelta(seconds=seconds)


def moment(
    *events: Event,
    seconds: float = 600.0,
    changes: tuple[FactChange, ...] = (),
    shown: Snapshot | None = None,
) -> Moment:
    """Return a span with these events and changes."""
    end = at(seconds)
    return Moment(
        BEGAN, end, BEGAN, shown or Snapshot(end, seconds, 1.0, 2.0), events=events, changes=changes
    )


def event(
    seconds: float,
    kind: str,
    subject: str = "a",
    phase: Phase | None = None,
    severity: Severity = Severity.WARNING,
    message: str | None = None,
) -> Event:
    """Return an event of a condition."""
    about = f"backend:{subject}:{kind}"
    return Event(at(seconds), severity, subject, message or f"{kind} of {subject}", about=about, phase=phase)


def any_events(seed: int, count: int) -> tuple[Event, ...]:
    """Return events of many kinds about many servers, some of them hostile, in order of time."""
    random = Random(seed)  # noqa: S311 - no secret
    kinds = ("kv-full", "unreachable", "state", "headroom", "xid", "stuck", *HOSTILE)
    made = [
        event(
            random.uniform(0, 600),
            random.choice(kinds),
            random.choice([*(f"spark-{n}" for n in range(30)), *HOSTILE]),
            random.choice([None, *Phase]),
            random.choice(list(Severity)),
            random.choice([None, *HOSTILE]),
        )
        for _ in range(count)
    ]
    return tuple(sorted(made, key=lambda one: one.at))


@pytest.mark.parametrize("count", [0, 1, 7, 60, 1000])
def test_everything_is_counted_on_one_page(count: int) -> None:
    """Whatever the events are: each is in exactly one line or in the count of those without a line."""
    for seed in range(4):
        changes = tuple(
            FactChange(at(10 * n), f"spark-{n % 7}", "limited by", "slots", "KV cache")
            for n in range(seed * 9)
        )
        span = moment(*any_events(seed, count), changes=changes)
        lines, rest = what_happened(span)
        every, nothing = what_happened(span, 10**9)
        assert nothing == ""
        assert sum(one.count for one in every) == count + len(changes)
        assert {one.subject for one in every} == {
            *(one.subject for one in span.events),
            *(one.subject for one in changes),
        }
        assert len(lines) == min(len(every), PAGE_LINES)
        assert bool(rest) is (len(every) > len(lines))
        left_out = sum(one.count for one in every) - sum(one.count for one in lines)
        counted = [
            int(part.split()[0]) for part in rest.removesuffix(".").partition(": ")[2].split(", ") if part
        ]
        if rest and not any("," in name for name in HOSTILE):
            assert sum(counted) == left_out
        text = moment_report(span, "md", at=BEGAN)
        assert text.count("\n") < 3 * PAGE_LINES
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\n# head" not in text
        assert "<script>" not in moment_report(span, "html", at=BEGAN)


def test_the_weightiest_keep_their_line_in_order_of_time() -> None:
    """A critical event among hundreds of small ones is not crowded out."""
    small = [event(one, f"kind-{one}", f"spark-{one}", severity=Severity.INFO) for one in range(600)]
    worst = event(301.5, "engine-dead", "spark-9", Phase.BEGIN, Severity.CRITICAL)
    lines, rest = what_happened(moment(*small, worst))
    assert [one.words for one in lines if one.severity is Severity.CRITICAL] == ["engine-dead of spark-9"]
    assert list(lines) == sorted(lines, key=lambda one: one.at)
    assert rest.startswith("Without a line of their own, since they weigh less: ")
    assert pivot(moment(*small, worst)) == pivot(moment(*small, worst), at(250)) == worst
    assert pivot(moment(*small, worst), at(240)) == small[240]
    last = event(300, "engine-dead", "spark-9")
    assert pivot(replace(moment(last), end=last.at)) == last


DEAD = event(301.5, "engine-dead", "spark-9", Phase.BEGIN, Severity.CRITICAL)
OUTAGE = (Alert("backend:a:unreachable", Severity.CRITICAL, "a", "nothing listens", at(250)), at(260))
FROM_THEN_ON, HELD = "event of the minute from then on", "condition that held then"


@pytest.mark.parametrize(
    ("asked_s", "event_then", "alerts", "what", "line", "time"),
    [
        (257, DEAD, (), FROM_THEN_ON, "`spark-9`: engine-dead of spark-9", "09:05:01"),
        (257, event(262, "restarted"), (OUTAGE,), HELD, "`a`: nothing listens", "09:04:10"),
        (261, event(262, "restarted"), (OUTAGE,), FROM_THEN_ON, "`a`: restarted of a", "09:04:22"),
        (257, replace(event(270, "paused"), duration_s=16.0), (), HELD, "`a`: paused of a", "09:04:14"),
    ],
    ids=["later", "in an outage", "after it", "before it was told"],
)
def test_a_report_that_is_asked_for_another_time_than_it_divides_says_so(
    asked_s: float,
    event_then: Event,
    alerts: tuple[tuple[Alert, datetime], ...],
    what: str,
    line: str,
    time: str,
) -> None:
    """With the event or condition that it took instead, since when that held, and the time asked for."""
    text = moment_report(replace(moment(event_then), alerts=alerts), "md", at=at(asked_s))
    asked = f"Asked for {cell.time_of(at(asked_s))}; the weightiest {what}"
    assert f"{asked}, {line}, divides the figures at {time}" in text
    assert "Asked for" not in moment_report(moment(DEAD), "md", at=at(301))


def test_a_standstill_is_named_with_its_cause_as_long_as_it_lasts() -> None:
    """Its event is the cause at any later moment; at the end the head line has it as the screen has."""
    why = "a kernel is being compiled (cicc)"
    begun = event(100, "paused", phase=Phase.BEGIN, severity=Severity.INFO, message=f"no progress: {why}")
    span = moment(begun, shown=Snapshot(at(600), 600.0, 1.0, 2.0, backends=(STANDING,)))
    assert f"09:01:40: no progress: {why}" in moment_report(span, "md", at=at(400)).splitlines()[2]
    assert f"`a` at the end: no progress for 500 s: {why};" in moment_report(span, "md")
    stuck = replace(begun, about="backend:a:stuck", severity=Severity.WARNING, message="may be stuck")
    assert [line.words for line in what_happened(moment(begun, stuck))[0]] == ["may be stuck"]


STANDING = BackendView(
    "a",
    "http://a",
    "g",
    state=BackendState.STILL,
    progress=ProgressView(Progress.STILL, 500.0, "a kernel is being compiled (cicc)"),
)


def test_one_cause_has_one_line() -> None:
    """Begin and end, a condition that comes and goes: a line each."""
    lines, _ = what_happened(
        moment(
            event(10, "kv-full", phase=Phase.BEGIN),
            event(70, "kv-full", phase=Phase.END, severity=Severity.INFO, message="ended after 60 s"),
            *(event(200 + 20 * one, "swap-in", "b", list(Phase)[2 * (one % 2)]) for one in range(8)),
            *(event(400 + 20 * one, "kv-full", "c", list(Phase)[2 * (one % 2)]) for one in range(4)),
            replace(
                event(500, "kv-full", "c", Phase.BEGIN, message="KV cache full 5 times in 20 s: 99 % full"),
                count=5,
                span_s=20.0,
            ),
        )
    )
    assert [(one.subject, one.words, one.count) for one in lines] == [
        ("a", "kv-full of a; ended after 60 s", 2),
        ("b", "swapping 4 times, last: swap-in of b; swap-in of b", 8),
        ("c", "KV cache full 7 times, last: 99 % full", 9),
    ]
    assert lines[0].until == at(70)


def test_a_sweep_has_one_line_with_what_its_end_told() -> None:
    """Its events are in its line, which is as severe as its end."""
    told = [event(second, "x", "sweep", message=words) for second, words in ((5, "started"), (65, "stopped"))]
    shown = replace(moment(*told), sweeps=(SweepSpan(at(5), at(65), "quick"),))
    (line,) = what_happened(shown)[0]
    assert (line.words, line.severity, line.until) == ("stopped", told[1].severity, at(65))


def test_a_state_is_told_beside_an_alert_that_does_not_name_it() -> None:
    """That requests wait and none runs is an alert; that the state became "no progress" is a change."""
    change = FactChange(at(20), "a", "state", "queueing", "no progress")
    lines, _ = what_happened(replace(moment(event(20, "blocked", phase=Phase.BEGIN)), changes=(change,)))
    assert [line.words for line in lines][-1] == "state: queueing → no progress"


def test_a_condition_begins_before_it_is_told() -> None:
    """An alert of an outage comes after some polls; its line and its duration name one beginning."""
    end = event(60, "unreachable", phase=Phase.END, message="answers again after 48 s")
    lines, _ = what_happened(
        moment(event(25, "unreachable", phase=Phase.BEGIN), replace(end, duration_s=48.0))
    )
    assert [(line.at, line.until) for line in lines] == [(at(12), at(60))]
    late = replace(event(70, "for-nobody", phase=Phase.BEGIN, message="2 for 30 s"), duration_s=30.0)
    ((line,), _) = what_happened(moment(late))
    assert (line.at, line.words) == (at(40), "2 for 30 s (noticed 30 s later)")


def test_a_line_with_a_count_has_the_time_of_its_occurrences_and_is_a_main_event() -> None:
    """An outage that is over is not forgotten where there were several; a report has one time for it."""
    down = replace(
        event(100, "unreachable", phase=Phase.END, severity=Severity.CRITICAL), count=3, span_s=80.0
    )
    kv_full = replace(event(200, "kv-full", "b", phase=Phase.BEGIN), count=4, span_s=26.0, duration_s=60.0)
    shown = moment(down, kv_full)
    assert [(line.at, line.until) for line in what_happened(shown)[0]] == [
        (at(20), at(100)),
        (at(114), at(140)),
    ]
    assert pivot(shown) is down
    assert f"At {cell.time_of(at(140))} `b`" in moment_report(moment(kv_full), "md")


@pytest.mark.parametrize("times", [1, 3])
def test_states_after_outages_are_told_unless_an_event_does(times: int) -> None:
    """Of one outage, events tell begin and end; a line for several tells no end, so the state is told."""
    down = replace(
        event(100, "unreachable", phase=Phase.END if times > 1 else Phase.BEGIN), count=times, span_s=80.0
    )
    up = [event(108, "unreachable", phase=Phase.END)] if times == 1 else []
    states = ("busy", "unreachable", "idle")
    changes = [FactChange(at(95 + 10 * one), "a", "state", states[one], states[one + 1]) for one in range(2)]
    lines, _ = what_happened(replace(moment(down, *up), changes=tuple(changes)))
    assert [line.words for line in lines if "state" in line.words] == (
        ["state: unreachable → idle"] if times > 1 else []
    )


def test_a_page_of_a_recording_has_every_event(recorded: Recorded) -> None:
    """The events of the span are on the page with their words, and its first line is the outage."""
    span = recorded.moment(20)
    text = moment_report(span, "md", at=wall(OUTAGE_S))
    assert span.events
    for one in span.events:
        words = one.message.split("(")[0].strip()
        assert words in text or condition_label(one.about or "") in text
    first = text.splitlines()[2]
    assert first.startswith("**09:02:1")
    assert "`spark-a`: nothing listens on" in first
    assert first.endswith("; `spark-a` is gone**")
    assert "| All figures | `spark-a` |  known | unknown |   gone |" in text


def with_series(
    span: Moment,
    values: dict[tuple[str, str, str], list[float]],
    bounds: Mapping[float, tuple[float, float]] = MappingProxyType({}),
) -> Moment:
    """Return a span with these figures, one a second from 240 s on; `bounds` are those of some of them."""
    series = {
        key: [Point(at(240 + second).timestamp(), one, bounds.get(one)) for second, one in enumerate(row)]
        for key, row in values.items()
    }
    return replace(span, series=series)


def test_figures_that_moved_are_compared_and_scatter_is_not() -> None:
    """A step is a row with both means; a steady figure, and one that swings as before, are none."""
    values = {
        (BACKEND, "a", "generation_tps"): [100.0] * 60 + [40.0] * 60,
        (BACKEND, "a", "running"): [8.0] * 120,
        (BACKEND, "a", "waiting"): [0.0, 30.0] * 60,
    }
    found = with_series(moment(), values)
    (moved,) = compare_minutes(found, at(300)).changes
    assert (moved.subject, moved.before, moved.after, moved.change) == ("a", "100", "40", "−60 %")
    text = moment_report(found, "md", at=at(300))
    assert "Generated tok/s of `a` 100 → 40 (−60 %)" in text


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (0.4, []),
        (0.9, ["TTFT p50 of a 250 to 500 ms → 900 ms (at least +80 %)"]),
        (0.1, ["TTFT p50 of a 250 to 500 ms → 100 ms (at least −60 %)"]),
        (6.0, ["TTFT p50 of a 250 to 500 ms → > 5.00 s (at least +900 %)"]),
    ],
)
def test_quantiles_between_bounds_change_by_what_their_bounds_prove(after: float, words: list[str]) -> None:
    """Estimates within one bucket may be the same; others are at least as far apart as their bounds."""
    key = (BACKEND, "a", "ttft_p50_s")
    bounds = {0.3: (0.25, 0.5), 0.4: (0.25, 0.5), 6.0: (5.0, inf)}
    found = with_series(moment(), {key: [0.3] * 60 + [after] * 60}, bounds)
    changes = compare_minutes(found, at(300)).changes
    assert [change.words("a") for change in changes] == words


def test_the_headline_has_the_cause_first_and_the_figure_that_moved_most() -> None:
    """A sweep fills the queue: the sweep, then the alert, then the queue; not 3.5 % that were 0 before."""
    values = {
        (BACKEND, "a", "waiting"): [0.7] * 60 + [77.5] * 60,
        (BACKEND, "a", "generation_tps"): [400.0] * 60 + [900.0] * 60,
        (NODE, "n", "throttled_percent"): [0.0] * 60 + [3.5] * 60,
    }
    sweep = SweepSpan(at(200), None, "load on a")
    other = (
        event(250, "setup", "b", severity=Severity.INFO),
        event(270, "state", "b", severity=Severity.INFO),
        event(300, "kv-full", "a"),
        event(310, "restarted", "a"),
    )
    found = with_series(replace(moment(*other), sweeps=(sweep,)), values)
    moved = compare_minutes(found, at(300)).changes
    assert [one.words(one.subject) for one in moved] == [
        "Waiting of a 0.7 → 77.5 (111 ×)",
        "Generated tok/s of a 400 → 900 (+125 %)",
        "Throttled between readings of n 0 % → 3.5 % (+3.5 points)",
    ]
    last = "`a`: kv-full of a; Waiting of `a` 0.7 → 77.5 (111 ×)**"
    text = moment_report(found, "md", at=at(300))
    assert f"**09:05:00 `b` 09:04:10: setup of b; {last}" in text
    text = moment_report(replace(found, events=found.events[2:]), "md", at=at(300))
    assert f"**09:05:00 `sweep` 09:03:20: load on a; {last}" in text
    ended = replace(found, events=found.events[2:], sweeps=(replace(sweep, end=at(230)),))
    assert f"**09:05:00 {last}" in moment_report(ended, "md", at=at(300))
    rows = [row_text(row) for row in happened_screen(replace(found, events=other[2:]), at(300), 160, 40)]
    began = f"{at(200).astimezone():%H:%M:%S}"
    assert f"sweep {began}: load on a; a: kv-full of a; Waiting of a 0.7 → 77.5 (111 ×)" in rows[1]
    change = FactChange(at(290), "proxy", "strategy", "least-busy", "round-robin")
    states = FactChange(at(295), "a", "state", "busy", "queueing")
    changed = replace(found, events=other[2:], sweeps=(), changes=(change, states))
    assert "`proxy` 09:04:50: strategy: least-busy → round-robin; `a`: kv-full" in moment_report(
        changed, "md", at=at(300)
    )


def test_the_headline_names_the_main_event_s_line_with_the_time_that_the_list_gives_it() -> None:
    """Two become critical at once: the first divides the minutes; its line, which began earlier, is named."""
    worse = [event(300, "hot", name, Phase.WORSE, Severity.CRITICAL, "now critical") for name in "ab"]
    found = moment(event(270, "hot", "a"), event(285, "hot", "b"), *worse)
    text = moment_report(found, "md", at=at(300))
    assert "**09:05:00 `a` 09:04:30: hot of a; 30 s later now critical**" in text
    assert "- 09:04:30 **critical** `a`: hot of a; 30 s later now critical" in text
    folded = moment(*(event(298 + 20 * number, "state", "a") for number in range(3)))
    text = moment_report(folded, "md", at=at(298))
    assert "`a` 09:04:58 to 09:05:38: state" in text.partition("###")[0]
    assert "- 09:04:58 to 09:05:38 **warning** `a`: state" in text


def record_sweeps(path: Path) -> None:
    """Record half an hour: a sweep from 100 s to 300 s; another, which the screen shows, from 400 s on."""
    second, watch = 0, Watch(backends=(BackendTarget("a", "http://127.0.0.1:1"),))
    recorder = Recorder(watch, next_path=lambda _: path)
    store = Store(watch, clock=lambda: float(second), now=lambda: at(second), journal=recorder)
    recorder.start(store)
    for second in range(0, 1801, 10):
        store.accept(SourceKey.backend("a"), Failure(FailureKind.REFUSED, "gone", float(second)), 1.0)
        if second in {100, 400}:
            store.begin_own_load(frozenset({"a"}))
        if second == 300:
            store.end_own_load(frozenset({"a"}))
        if second > 400:
            view = SweepView("quick", SweepStatus.RUNNING, "c = 4", started_at=at(400))
            recorder.sweep(Instant(float(second), at(second)), view)
        store.judge()
    recorder.stop("quit")


def test_a_sweep_that_began_before_the_page_is_on_it_while_it_runs(tmp_path: Path) -> None:
    """One that had ended is not; one whose begin is not read is known by what the screen showed of it."""
    record_sweeps(tmp_path / "a.rec.zst")
    recording, starts = Recording([tmp_path / "a.rec.zst"]), {}
    for second in (200, 350, 1500):
        found = read_moment(recording, Span(at(second), at(second + 40)))
        starts[second] = [one.start for one in found.sweeps]
        text = moment_report(found, "md", at=at(second + 20))
        assert ("`sweep`" in text) is bool(found.sweeps)
    recording.close()
    assert starts == {200: [at(100)], 350: [], 1500: [at(400)]}
    assert "**09:25:20 `sweep` 09:06:40: quick: c = 4" in text


def test_a_sweep_on_the_screen_is_a_cause_until_it_ends() -> None:
    """All its pictures are one sweep, though it knows its start only after the first level."""
    past, begin_s, first_level_s, end_s = Past(), 100, 150, 200
    views: dict[int, SweepView] = {}
    for second in range(0, 301, 10):
        start = at(begin_s) if second >= first_level_s else None
        if second >= end_s:
            views[second] = SweepView("quick", SweepStatus.DONE, "done", started_at=start)
        elif second >= begin_s:
            views[second] = SweepView("quick", SweepStatus.RUNNING, f"run {second}", started_at=start)
        past.add(Snapshot(at(second), float(second), 1.0, 2.0), partial(views.get, second))
    sweep = SweepSpan(at(begin_s), at(end_s), "quick: done")
    found = moment_of(known(past.newest), past)
    assert found.sweeps == (sweep,)
    lines, _ = what_happened(found)
    assert [one.label for one in main_lines(lines, at(end_s - 50), 30)] == ["sweep"]
    assert main_lines(lines, at(end_s + 90), 30) == ()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(100, 40, "−60 %"), (40, 100, "+150 %"), (30.1, 36.9, "+23 %"), (1, 40, "40 ×"), (0, 5, "from 0")],
)
def test_a_change_is_of_the_figure_before(before: float, after: float, words: str) -> None:
    """A rise and a fall have one base."""
    assert change_words(before, after) == words


@pytest.mark.parametrize(("before", "after"), [(2, 2), (100, 5), (5, 100), (0, 0)])
def test_a_span_too_short_for_a_comparison_says_so(before: int, after: int) -> None:
    """Seconds on a side are no minute: no figure is compared."""
    points = [Point(at(300 + one).timestamp(), float(one > 0)) for one in range(-before, after + 1)]
    span = replace(moment(), series={(BACKEND, "a", "running"): points})
    almost = [Point(at(300 + one).timestamp(), 1.0) for one in (-20.7, 19.6)]
    shown = compare_minutes(replace(span, series={(BACKEND, "a", "running"): almost}), at(300)).too_short
    assert "20 s are known before this moment and 19 s after it, and 20 s each" in shown
    compared = compare_minutes(span, at(300))
    assert compared.changes == ()
    assert f"{min(before, 60)} s are known before this moment" in compared.why_none
    text = moment_report(span, "md", at=at(300))
    assert "**09:05:00 too short to compare before and after**" in text
    assert compared.why_none in text
    rows = [row_text(row) for row in happened_screen(span, at(300), 160, 40)]
    assert "too short to compare before and after" in rows[1]
    assert "UTC" not in "".join(rows)
    alarm = replace(span, events=(event(300, "kv-full"),))
    row = next((one for one in moment_report(alarm, "md").splitlines() if one.startswith("| 09:05:00")), "")
    assert row == "" or "–" in row


def test_an_empty_span_is_a_page_too() -> None:
    """Nothing happened: that is said."""
    text = moment_report(moment(), "md", at=at(300))
    assert "**09:05:00 too short to compare before and after**" in text
    assert "### What happened" not in text
    gap = replace(moment(), gaps=((at(10), at(70)),))
    assert "09:00:10 to 09:01:10 **warning** `recording`: no readings" in moment_report(gap, "md", at=BEGAN)


def snapshot(seconds: float, *, server: BackendView, node: NodeView) -> Snapshot:
    """Return a snapshot of one server and one machine."""
    return Snapshot(at(seconds), seconds, 1.0, 2.0, backends=(server,), nodes=(node,))


def test_states_limits_identities_and_findings_are_changes() -> None:
    """Each has a line with what was before; what is unknown for a while, or only its figures, is none."""
    finding = Finding(FindingKind.PREFIX_UNUSED, "a", "prefix cache never hits: 0 of 10")
    server = BackendView("a", "http://a", "g", state=BackendState.IDLE, age_s=0.1, model="m1", version="0.31")
    node = NodeView("n", "local", age_s=0.1, identity=NodeIdentity(driver="580.1.2.3"))
    of_server = Finding(FindingKind.START_FITS, "n", "a: start fits", of_machine=True, key="a")
    slots, kv = Limit(LimitKind.SLOTS, "all in use"), Limit(LimitKind.KV, "all in use")
    newer = replace(server, state=BackendState.BUSY, version="0.32", model="m2")
    later, other = replace(finding, line="0 of 20"), NodeIdentity(driver="590.1.2.3")
    steps = [
        (server, node),
        (replace(server, state=BackendState.BUSY, limited_by=slots, version=None), node),
        (replace(newer, findings=(finding,)), replace(node, findings=(of_server,))),
        (replace(newer, findings=(later,), limited_by=kv), replace(node, identity=other)),
        (newer, NodeView("n", "local", age_s=0.1)),
    ]
    collector = MomentBuilder(BEGAN, at(60))
    for number, (one, two) in enumerate(steps):
        collector.add(snapshot(5.0 * number, server=one, node=two))
    found = collector.moment()
    assert [(one.subject, one.words) for one in found.changes] == [
        ("a", "state: idle → busy"),
        ("a", "version: 0.31 → 0.32"),
        ("a", "model: m1 → m2"),
        ("a", "finding: prefix cache never hits: 0 of 10"),
        ("a", "limited by: slots → KV cache"),
        ("n", "driver: 580.1.2.3 → 590.1.2.3"),
        ("a", "no longer: 0 of 20"),
    ]
    text = moment_report(found, "md", at=BEGAN)
    assert "- 09:00:15 `n`: driver: 580.1.2.3 → 590.1.2.3" in text
    assert "- 09:00:10 `a`: finding: prefix cache never hits: 0 of 10" in text


def test_a_time_outside_of_the_span_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """What is to divide the minutes lies in the span that the report has."""
    assert main(["report", str(RECORDING), "--at", "start", "--from", "2s"]) == 2
    assert "is not in --from to --to" in capsys.readouterr().err
