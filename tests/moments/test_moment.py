"""What a report reads from a recording: figures, range, verdicts, events, gaps and damage."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import fmean

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.errors import UsageError
from sparktop.model.event import Severity
from sparktop.model.node import NodeSample
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.moments import moment as reading
from sparktop.moments.moment import (
    ALL,
    BACKEND,
    FIGURES,
    NODE,
    Moment,
    Point,
    figure_text,
    moment_of,
    read_moment,
    summary,
)
from sparktop.moments.report import moment_report, time_plots
from sparktop.recording.past import Past
from sparktop.recording.player import Player, Recording, Span
from sparktop.report.privacy import Privacy
from tests.known import known
from tests.moments.conftest import MARK, MARK_S, OUTAGE_S, PLAYED_S, Recorded, wall
from tests.recording.recorded import recorded_to

pytestmark = [pytest.mark.outside, pytest.mark.long]

BACKENDS: dict[str, Callable[[BackendView], float | None]] = {
    "generation_tps": lambda view: view.generation_tps_1s,
    "running": lambda view: view.running,
    "waiting": lambda view: view.waiting,
    "kv_cache_percent": lambda view: view.kv_cache_percent,
    "ttft_p50_s": lambda view: view.ttft.p50.seconds if view.ttft.p50 else None,
    "itl_p95_s": lambda view: view.itl.p95.seconds if view.itl.p95 else None,
}
NODES: dict[str, Callable[[NodeSample], float]] = {
    "headroom_gib": lambda sample: (sample.memory.headroom_bytes or 0) / 2**30,
    "gpu_percent": lambda sample: sample.gpus[0].utilization_percent or 0.0,
}


def sample_of(snapshot: Snapshot) -> NodeSample:
    """Return the newest sample of the first machine."""
    return known(snapshot.nodes[0].sample)


def figures(moment: Moment, kind: str, name: str) -> dict[str, tuple[float | None, ...]]:
    """Return (min, mean, max, last) by field of a server or machine."""
    return {
        figure.name: tuple(point.value for point in found)
        for figure, _, found in moment.figures(kind, names=[name])
    }


def test_figures_are_those_of_the_snapshots_of_the_same_moments(recorded: Recorded) -> None:
    """Every value of a table equals that computed from the snapshots of a replay, second by second."""
    moment = recorded.moment(30, 100)
    player = Player(Recording([recorded.path]))
    seen = []
    for second in range(30, 101):
        player.play(wall(second + 0.0) if second == 100 else wall(second + 0.5))
        if second < 100:
            seen.append(player.snapshot())
    last = player.snapshot()
    for name, read in BACKENDS.items():
        values = [read(one.backends[1]) for one in seen]
        known = [value for value in values if value is not None]
        least, mean, most, newest = figures(moment, BACKEND, "spark-b")[name]
        assert (least, most) == pytest.approx((min(known), max(known)))
        assert mean == pytest.approx(fmean(known))
        assert newest == read(last.backends[1])
    for name, of_node in NODES.items():
        found = [of_node(sample_of(one)) for one in seen]
        least, _, most, newest = figures(moment, NODE, "spark-a")[name]
        assert (least, most, newest) == pytest.approx((min(found), max(found), of_node(sample_of(last))))
    assert moment.shown.taken_at == wall(100)


def test_a_range_has_nothing_of_before_and_after(recorded: Recorded) -> None:
    """A range contains only its own times, events and marks."""
    early, late = recorded.moment(20, MARK_S - 5), recorded.moment(MARK_S - 5, PLAYED_S)
    for moment, start, end in ((early, 20, MARK_S - 5), (late, MARK_S - 5, PLAYED_S)):
        times = [point.at for points in moment.series.values() for point in points]
        assert min(times) >= wall(start).timestamp()
        assert max(times) <= wall(end).timestamp()
        assert all(wall(start) <= event.at <= wall(end) for event in moment.events)
    assert early.marks == ()
    assert [word for _, word in late.marks] == [MARK]
    assert {event.subject for event in late.events} >= {"spark-a"}
    assert not any(event.subject == "spark-a" for event in early.events)
    with pytest.raises(UsageError, match="nothing was recorded then"):
        recorded.moment(PLAYED_S + 60, PLAYED_S + 90)


def test_verdicts_have_times_and_evidence(recorded: Recorded) -> None:
    """A verdict has its beginning and the evidence of its last evaluation; states are shares of the time."""
    moment = recorded.moment(20, OUTAGE_S - 5)
    swing = next(one for one in moment.spells if one.word == "oscillating")
    live = recorded.live[OUTAGE_S - 6].balance[0]
    assert (swing.subject, swing.start) == (live.group, live.since)
    assert swing.end == moment.end
    assert known(swing.balance).reasons
    assert swing.shown_word == "oscillating"
    swept = replace(swing, balance=replace(known(swing.balance), in_sweep=True))
    assert swept.shown_word == "oscillating (sweep)"
    assert sum(moment.states["spark-a"].values()) == pytest.approx(1)


def test_a_long_range_has_summaries_and_replays_only_its_end_and_one_event(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long range has a point with extremes per frame; its end and the weightiest event are replayed."""
    monkeypatch.setattr(reading, "SHORT_S", 20.0)
    monkeypatch.setattr(reading, "AROUND_S", 5.0)
    moment = recorded.moment(0)
    assert moment.is_long
    assert moment.detail == wall(PLAYED_S - 20 + 0.35)
    for field in ("generation_tps", "requests", "headroom_gib"):
        key = (ALL, "", field)
        assert len(moment.series[key]) >= PLAYED_S / 10 - 3
        assert all(
            point.value is not None and point.ends[0] <= point.value <= point.ends[1]
            for point in moment.series[key]
        )
    outage = next(event.since for event in moment.events if event.severity is Severity.CRITICAL)
    for at, until_s in ((outage, 5), (wall(60), 10)):
        if at is not outage:  # of a page, around its minute instead
            recording = Recording([recorded.path])
            moment = read_moment(recording, Span(wall(0)), at=at)
            recording.close()
        times = [point.at - at.timestamp() for point in moment.series[BACKEND, "spark-b", "running"]]
        near = [time for time in times if time <= until_s]
        assert (min(near), max(near)) == pytest.approx((-5, until_s), abs=1.5)
        assert len(times) < 60
    swing = next(one for one in moment.spells if one.word == "oscillating")
    assert swing.start == recorded.live[100].balance[0].since


def test_damage_and_gaps_are_found(recorded: Recorded, tmp_path: Path) -> None:
    """An overwritten frame is reported as damage, and its seconds are a gap."""
    data = bytearray(recorded.path.read_bytes())
    frames = [one.offset for one in Recording([recorded.path]).frames]
    start, end = frames[6], frames[9]
    data[start + 200 : end] = bytes(end - start - 200)
    path = tmp_path / "damaged.rec.zst"
    path.write_bytes(bytes(data))
    moment = read_moment(Recording([path]), Span())
    assert moment.damage
    [(begun, ended)] = moment.gaps
    assert wall(50) < begun < wall(75)
    assert wall(85) < ended < wall(100)
    assert figures(moment, BACKEND, "spark-b")["running"][0] is not None


@pytest.mark.parametrize(
    ("cut", "age_s", "until", "said"),
    [
        (0, 60, None, ""),
        (100, 60, None, "it was cut off"),
        (100, -60, None, "it is still written, or was cut off a moment ago"),
        (100, 60, 80, ""),
    ],
    ids=["ended", "cut", "cut now", "before the cut"],
)
def test_a_recording_without_an_end_is_called_that(
    recorded: Recorded, tmp_path: Path, cut: int, age_s: float, until: float | None, said: str
) -> None:
    """Where the range reaches its last record."""
    data = recorded.path.read_bytes()
    path = tmp_path / "cut.rec.zst"
    path.write_bytes(data[: len(data) - cut])
    written = path.stat().st_mtime - age_s
    os.utime(path, (written, written))
    moment = read_moment(Recording([path]), Span(end=None if until is None else wall(until)))
    assert moment.no_end == said
    text = moment_report(moment, "md")
    assert (f"**The recording has no end**: {said}." in text) == bool(said)


def test_the_pictures_of_the_screen_make_the_same_moment(recorded: Recorded) -> None:
    """The screen's snapshots give the recording's figures and events, also from before the first one."""
    past = Past()
    for snapshot in recorded.live[60:]:
        past.add(snapshot)
    moment = moment_of(known(past.newest), past)
    whole = recorded.moment()
    found, wanted = (figures(one, BACKEND, "spark-b")["running"] for one in (moment, whole))
    assert found == pytest.approx(wanted)
    assert {one.word for one in moment.spells} >= {"oscillating"}
    assert any(event.subject == "spark-a" for event in moment.events)


def late(path: Path, scenario: str, before_s: float, after_s: float) -> tuple[Moment, Snapshot]:
    """Record a scenario that has run for a while; return what is read of it, and the last live snapshot."""
    with recorded_to(path, before_s=before_s, nodes=2, scenario=SCENARIOS[scenario]) as (live, _):
        seen = live.play(after_s).snapshot()
    return read_moment(Recording([path]), Span(None, None)), seen


def test_a_recording_that_begins_in_a_swing_says_since_when_it_swings(tmp_path: Path) -> None:
    """The verdict, its alert and its events are those of the program that recorded, not of the replay."""
    moment, seen = late(tmp_path / "late.rec.zst", "oscillation", 100, 130)
    (spell,) = (spell for spell in moment.spells if spell.subject == "proxy")
    assert (spell.word, spell.start, spell.since) == ("oscillating", moment.start, seen.balance[0].since)
    assert moment.shown.alerts[0].since == seen.balance[0].since
    assert "oscillating since 09:00:50" in moment_report(moment, "md")
    assert not [event for event in moment.events if "begins" in event.message and event.at > moment.start]


@pytest.mark.parametrize(
    ("scenario", "before_s", "after_s"),
    [("kv-wait", 65, 90), ("mixed-pair", 4, 100), ("oscillation", 30, 80)],
)
def test_alerts_and_the_last_figures_are_those_of_the_screen(
    tmp_path: Path, scenario: str, before_s: float, after_s: float
) -> None:
    """Alerts and verdicts have the times that the screen had; figures end with those of the last poll."""
    moment, seen = late(tmp_path / "late.rec.zst", scenario, before_s, after_s + 0.6)
    assert seen.alerts
    for part, fields in (
        ("alerts", ("id", "since")),
        ("events", ("at", "about")),
        ("balance", ("word", "since")),
    ):
        found, wanted = (list(map(attrgetter(*fields), getattr(one, part))) for one in (moment.shown, seen))
        assert found == wanted, part
    for server in seen.backends:
        assert server.state_text in moment_report(moment, "md")
        for name in ("running", "waiting"):
            assert figures(moment, BACKEND, server.name)[name][-1] == getattr(server, name)


def test_quantiles_of_wide_buckets_have_their_bounds(recorded: Recorded) -> None:
    """No digit of them is sure; a mean of several lies between the outermost."""
    figure = next(figure for figure in FIGURES if figure.name == "ttft_p50_s")
    low, high = Point(1.0, 0.3, (0.25, 0.5)), Point(2.0, 0.6, (0.5, 1.0))
    texts = ("250 to 500 ms", "0.25 to 1 s", "0.5 to 1 s", "250 to 500 ms")
    assert tuple(figure_text(figure, point) for point in summary([high, low])) == texts
    assert figure_text(figure, summary([Point(1.0, 0.1, (0.0, 0.1))])[1]) == "< 100 ms"
    assert figure_text(figure, Point(1.0, 20.0, (20.0, inf))) == "> 20 s"
    moment = recorded.moment()
    for privacy in (Privacy(), Privacy(anonymous=True)):
        rows = moment_report(moment, "md", privacy).splitlines()
        row = next(row for row in rows if "TTFT p50" in row)
        assert "100 to 250 ms | 100 to 500 ms | 250 to 500 ms" in row
    assert figures(moment, BACKEND, "spark-b")["ttft_mean_s"][-1] == moment.shown.backends[1].ttft.mean_s
    (plot,) = (plot for plot in time_plots(moment) if plot.title == "TTFT mean")
    bands = [line for line in plot.lines if line.is_band]
    assert bands
    met = {point.between for point in moment.series[BACKEND, "spark-b", "ttft_p95_s"]}
    edges = {(point.low / 1000, point.high / 1000) for point in bands[-1].known}
    assert {(round(low, 6), round(high, 6)) for low, high in edges} <= met
    assert "bands: p95 between its bounds" in moment_report(moment, "html")
