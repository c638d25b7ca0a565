"""Two recordings on one time axis, played side by side."""

from __future__ import annotations

import fcntl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.errors import UsageError
from sparktop.model.engine import EngineSample
from sparktop.model.failure import FailureKind
from sparktop.model.instant import Instant
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.recording.compare import Comparison, Side
from sparktop.recording.player import Recording
from sparktop.recording.recorder import Recorder
from sparktop.recording.replay import Replay
from sparktop.store import SourceKey
from sparktop.store.journal import Call, Change, Journals
from stage.rehearsal import Outage, Rehearsal, RouterPart

pytestmark = pytest.mark.outside

BEFORE_S, AFTER_S, LATER_S = 100, 70, 37


def taped(path: Path, seconds: float, *, later_s: float = 0.0, seed: int = 0, outage: bool = False) -> Path:
    """Record `seconds` seconds of a rehearsal that began `later_s` seconds before."""
    journal = Journals()
    live = Rehearsal(
        nodes=2,
        journal=journal,
        seed=seed,
        router=RouterPart(),
        outage=Outage(1, later_s + 30.0) if outage else None,
    )
    live.play(later_s)
    recorder = Recorder(live.watch, next_path=lambda _: path)
    journal.add(recorder)
    recorder.start(live.store)
    live.play(seconds)
    recorder.stop("quit")
    return path


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The longer recording."""
    return taped(tmp_path_factory.mktemp("compare") / "before.rec.zst", BEFORE_S)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording that begins later, with other load, in which a server stops answering."""
    path = tmp_path_factory.mktemp("compare") / "after.rec.zst"
    return taped(path, AFTER_S, later_s=LATER_S, seed=3, outage=True)


def compared(before: Path, after: Path) -> Comparison:
    """Open a comparison of two recordings."""
    return Comparison(Recording([before]), Recording([after]))


def snapshot_of(recording: Recording | Comparison, passed_s: float) -> Snapshot:
    """Return the snapshot `passed_s` seconds after the start."""
    player = recording.player()
    player.seek(recording.frames[0].instant.wall + timedelta(seconds=passed_s))
    return player.snapshot()


@pytest.mark.parametrize("passed_s", [8.0, 25.0, 55.0])
def test_both_are_shown_as_each_alone(before: Path, after: Path, passed_s: float) -> None:
    """The same seconds after their starts; times of the second are those of the first's axis."""
    both = snapshot_of(compared(before, after), passed_s)
    alone = [snapshot_of(Recording([path]), passed_s) for path in (before, after)]
    assert [one.name for one in both.backends] == [
        f"spark-{letter}@{side}" for letter in "ab" for side in ("before", "after")
    ]
    assert both.taken_at == alone[0].taken_at
    for index, view in enumerate(both.backends):
        own = alone[index % 2].backends[index // 2]
        same = ("state", "running", "waiting", "generation_tps", "ttft", "uptime_s", "model")
        assert [getattr(view, name) for name in same] == [getattr(own, name) for name in same]
        assert view.nodes == tuple(name + view.name[7:] for name in own.nodes)
        series, of_own = ([*one.history.running.since(0.0)] for one in (view, own))
        assert [value for _, value in series] == [value for _, value in of_own]
        assert both.at - series[-1][0] == pytest.approx(alone[index % 2].at - of_own[-1][0])
    assert [one.name for one in both.nodes][::2] == ["spark-a@before", "spark-b@before"]
    assert both.totals.running.value == sum(one.totals.running.value or 0.0 for one in alone)


def test_groups_are_judged_apart_and_drawn_on_one_scale(before: Path, after: Path) -> None:
    """Routers and their backends keep to their side; the panels of both sides share a scale."""
    both = snapshot_of(compared(before, after), 60.0)
    assert len({one.group for one in both.backends}) == 1
    assert len({one.group for one in both.balance}) == 2
    for names in (*(one.backends for one in both.balance), *(one.backends for one in both.routers)):
        assert len({name.partition("@")[2] for name in names}) == 1
    assert {one.subject for one in both.alerts} == {"spark-b@after"}
    assert len({one.id for one in both.alerts}) == len(both.alerts) > 0
    assert [one.at for one in both.events] == sorted(one.at for one in both.events)
    assert all("@" in one.subject for one in both.events)


def test_the_shorter_one_ends(before: Path, after: Path) -> None:
    """The axis is as long as the longer one; after the end of the shorter one its sources have no figures."""
    comparison = compared(before, after)
    begin = comparison.frames[0].instant.wall
    assert (comparison.end - begin).total_seconds() == pytest.approx(BEFORE_S, abs=2)
    both = snapshot_of(comparison, 90.0)
    assert [one.ok for one in both.backends] == [True, False] * 2
    ended = both.backends[1]
    assert ended.state is BackendState.UNKNOWN
    assert ended.failure is not None
    assert (ended.failure.kind, ended.failure.message) == (FailureKind.ENDED, "its recording ended")
    assert ended.failing_since is not None
    assert (ended.failing_since - begin).total_seconds() == pytest.approx(AFTER_S, abs=2)
    assert not any(one.subject.endswith("@after") for one in both.alerts)


def test_it_is_replayed(before: Path, after: Path) -> None:
    """Jumps, events and the bar work as for one recording; the header says that it is a comparison."""
    replay = Replay(compared(before, after))
    for _ in range(10_000):
        replay.work(0.1)
        if not replay.busy:
            break
    assert replay.word().startswith("COMPARE ")
    assert replay.word().endswith(" end")
    begin = replay.bar().first
    assert replay.step_event(-1)
    for _ in range(10_000):
        replay.work(0.1)
        if not replay.busy:
            break
    assert (replay.snapshot().taken_at - begin).total_seconds() == pytest.approx(31, abs=4)
    assert replay.bar().events


def test_one_that_is_written_holds_the_other_back(before: Path, after: Path, tmp_path: Path) -> None:
    """The axis ends where the file still written ends, and grows with it."""
    path, data = tmp_path / "grows.rec.zst", after.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    writer = path.open("rb")
    fcntl.flock(writer, fcntl.LOCK_EX)
    comparison = compared(before, path)
    replay = Replay(comparison)
    for _ in range(10_000):
        replay.work(0.1)
        if not replay.busy:
            break
    assert replay.word().endswith("end, still written")
    early = comparison.end
    assert early - comparison.frames[0].instant.wall < timedelta(seconds=AFTER_S)
    assert all(one.failure is None for one in replay.snapshot().nodes)
    with path.open("ab") as file:
        file.write(data[len(data) // 2 :])
    assert comparison.look()
    writer.close()
    assert comparison.end > early
    assert comparison.is_over


def test_a_restart_of_the_recording_machine_keeps_the_axis(after: Path) -> None:
    """The monotonic clock of each boot is shifted by an amount of its own."""
    recording = Recording([after])
    side = Side(recording, "@after", Instant(1000.0, recording.frames[0].instant.wall + timedelta(days=1)))
    first = recording.frames[0].instant
    assert first.at + side.shift_s(first) == 1000.0
    rebooted = Instant(3.0, first.wall + timedelta(seconds=50))
    assert rebooted.at + side.shift_s(rebooted) == 1050.0


def test_everything_that_names_a_source_is_renamed(after: Path) -> None:
    """Calls of the store that the rehearsal does not make are renamed, too."""
    recording = Recording([after])
    side = Side(recording, "@x", recording.frames[0].instant)
    key = SourceKey.backend("a")
    sample = EngineSample(at=5.0, engine="vllm", lanes=(), start_time=100.0)
    for call, wanted in (
        (Call(Change.REMOVE, (key,)), (SourceKey.backend("a@x"),)),
        (Call(Change.BEGIN_OWN_LOAD, (frozenset({"a", "b"}),)), (frozenset({"a@x", "b@x"}),)),
        (Call(Change.NOTE, ("mark", "now", "info")), ("mark@x", "now", "info")),
        (Call(Change.JUDGE), ()),
        (Call(Change.ACCEPT, (key, sample, 1.0)), (SourceKey.backend("a@x"), replace(sample, at=7.0), 1.0)),
    ):
        assert side.call(call, 2.0).arguments == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["replay", "--compare", "AFTER"], "name a recording: BEFORE --compare AFTER"),
        (["replay"], "name a recording: FILE"),
        (["replay", "BEFORE", "--compare", "AFTER"], "sparktop snapshot --from FILE --at TIME"),
        (["snapshot", "--compare", "AFTER"], "--compare needs --from FILE"),
        (["replay", "BEFORE", "--compare", "/nonexistent"], "No such file"),
    ],
)
def test_what_does_not_fit_is_refused(
    before: Path, after: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unsuitable arguments end with exit code 2 and one line."""
    named = {"BEFORE": str(before), "AFTER": str(after)}
    assert main([named.get(word, word) for word in words]) == 2
    assert message in capsys.readouterr().err


def test_a_report_of_both(before: Path, after: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`snapshot --from BEFORE --compare AFTER` reports the sources of both recordings."""
    words = ["--from", str(before), "--compare", str(after), "--at", "60s ago", "--format", "md"]
    assert main(["snapshot", *words]) == 0
    text = capsys.readouterr().out
    assert "spark-a@before" in text
    assert "spark-b@after" in text


def test_a_comparison_with_something_else_is_refused(before: Path, tmp_path: Path) -> None:
    """A file that is not a recording."""
    path = tmp_path / "x"
    path.write_text("hello")
    with pytest.raises(UsageError, match="is not a recording"):
        compared(before, path)
