"""A run of another program, followed: files that misbehave, clocks that differ, runs without an end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparktop.model.sweep_view import LevelKey, LevelState, SweepStatus
from sparktop.sweep.follow import fold as follow_fold
from sparktop.sweep.follow.file import MOST_AT_ONCE
from sparktop.sweep.follow.follow import QUIET_S, FollowedRun
from tests.sweep.follow.followed_runs import Clocks, followed, played, running, snapshot, until, written
from tests.sweep.follow.progress_stream import Stream, line


async def test_a_run_without_an_end_counts_as_broken_off_until_it_goes_on(tmp_path: Path) -> None:
    """After minutes without a line the existing lines are measured; with another line the run goes on."""
    stream, clocks = Stream(), Clocks(3600.0)
    stream.level(1)
    stream.burst(2, 1)
    path = written(tmp_path / "p", *stream.lines)
    run = followed(path, clocks)
    async with running(run):
        await until(lambda: len(run.view().rows) == 2)
        view = run.view()
        assert view.status is SweepStatus.BROKEN_OFF
        assert "no end was reported" in view.words
        assert view.live is not None
        assert view.live.step_s == 0.1
        written(path, *stream.burst(2, 2))
        await until(lambda: run.view().status is SweepStatus.RUNNING)
        clocks.monotonic_s += QUIET_S + 1
        await until(lambda: run.view().status is SweepStatus.BROKEN_OFF)
        written(path, stream.complete())
        await until(lambda: run.view().status is SweepStatus.DONE)
    assert [row.runs for row in run.view().rows] == [2, 2]


@pytest.mark.parametrize("how", ["rewritten", "appended"])
async def test_a_file_that_begins_anew_is_another_run(tmp_path: Path, how: str) -> None:
    """The second run in a file replaces the first one, finished or not, and a notice says so."""
    first, second = Stream(), Stream(label="second", lines=[line("header", 0.5)])
    first.level(1)
    second.level(3)
    path = written(tmp_path / "p", *first.lines)
    run = followed(path)
    async with running(run):
        await until(lambda: [one.key.concurrency for one in run.view().levels] == [1])
        if how == "rewritten":
            path.write_bytes(b"")
        written(path, *second.lines, second.complete())
        await until(lambda: run.view().status is SweepStatus.DONE)
        view = run.view()
        assert [one.key for one in view.levels] == [LevelKey("second", 3, 100)]
        if how == "appended":
            assert any("begins anew" in one for one in view.notices)
        third = Stream(label="third")
        third.level(2)
        path.write_bytes(b"".join(third.lines))
        await until(lambda: [one.key.target for one in run.view().levels] == ["third"])
        assert run.view().status is SweepStatus.RUNNING
        assert any("begins anew" in one for one in run.view().notices)


async def test_rubbish_between_lines_is_told_once(tmp_path: Path) -> None:
    """A single notice counts all of it, by reason, and the figures are those of the rest."""
    stream = Stream()
    stream.level(1)
    stream.complete()
    mixed = [part for one in stream.lines for part in (one, b"\x1b[31mrubbish\n", line("weather", 1.0))]
    run = await played(written(tmp_path / "p", *mixed))
    (told,) = [one for one in run.view().notices if "passed over" in one]
    count = len(stream.lines)
    assert told == f"{2 * count} lines passed over: {count} no JSON, {count} of an unknown type"
    assert run.view().rows[0].ok == 2


async def test_lines_that_fit_nothing_are_passed_over(tmp_path: Path) -> None:
    """Tokens of no request, a repeated request or end, and a line of another month do not break a picture."""
    stream = Stream()
    strays = [
        line("tokens", 0.0, request_id=99, count=1),
        stream.end(98, 0.0),
        line("request_first_token", 0.0, request_id=97, ttft_s=1.0),
    ]
    burst = stream.burst(1, 1)
    later = line("tokens", 1e8, request_id=0, count=1)
    begun = [stream.lines[0], *strays, burst[0], burst[0], later]
    lines = [*begun, *burst[1:], stream.complete(), stream.end(0, 9.0)]
    run = await played(written(tmp_path / "p", *lines))
    (told,) = [one for one in run.view().notices if "passed over" in one]
    assert told.startswith("6 lines passed over")
    assert "1 of another month" in told
    assert run.view().rows[0].ok == 1


async def test_a_stream_without_its_first_line_is_followed(tmp_path: Path) -> None:
    """It works although the beginning of the file was cut off."""
    stream = Stream()
    stream.level(1)
    stream.complete()
    run = await played(written(tmp_path / "p", *stream.lines[1:]))
    assert run.view().title == "llama-benchy"
    assert run.view().rows[0].ok == 2


async def test_a_writer_whose_clock_is_ahead_is_placed_by_its_lines(tmp_path: Path) -> None:
    """Its first line counts as now, and a notice says so."""
    stream, clocks = Stream(), Clocks(-600.0)
    run = followed(written(tmp_path / "p", *stream.lines, *stream.burst(1, 1)), clocks)
    async with running(run):
        await until(lambda: run.view().levels != ())
        view = run.view()
        assert any("600 s ahead" in one for one in view.notices)
        assert view.live is not None
        assert view.live.start_at == pytest.approx(clocks.monotonic_s, abs=0.11)


async def test_a_writer_whose_clock_is_behind_is_drawn_without_servers(tmp_path: Path) -> None:
    """Its lines come now and say they are an hour old: the picture goes on with them, and says so."""
    stream, clocks = Stream(), Clocks(3600.0)
    path = tmp_path / "p"
    run = followed(path, clocks)
    async with running(run):
        await until(lambda: "no such file yet" in run.view().words)
        written(path, stream.lines[0], *stream.burst(2, 1))
        await until(lambda: run.view().levels != ())
        clocks.monotonic_s += 1.0
        run.look(snapshot(clocks.monotonic_s))
        view = run.view()
        assert view.status is SweepStatus.RUNNING
        assert view.elapsed_s == pytest.approx(2.0)  # a second since the burst of one second
        assert view.live is not None
        assert view.live.step_s == 0.1
        assert any("60 min after their time" in one for one in view.notices)


async def test_what_servers_tell_now_is_not_laid_beside_an_old_run(tmp_path: Path) -> None:
    """What servers report now is not added to the picture of yesterday's run."""
    stream = Stream()
    stream.level(1)
    stream.complete()
    clocks = Clocks(86_400.0)
    run = await played(written(tmp_path / "p", *stream.lines), clocks)
    run.look(snapshot(clocks.monotonic_s))
    assert run.view().live is not None
    assert run.view().live.step_s == 0.1  # type: ignore[union-attr]  # asserted in the line above


async def test_the_loop_gets_its_turn_while_a_long_file_is_read(tmp_path: Path) -> None:
    """Between two turns of the loop at most a slice of lines is read, however many there are."""
    stream = Stream(tokens=100)
    stream.level(32, runs=1)
    stream.complete()
    path = written(tmp_path / "p", *stream.lines)
    looks = 0

    def slow_clock() -> float:
        nonlocal looks
        looks += 1
        return 5000.0 + 0.01 * looks  # a call takes 10 ms: every slice is over at the first one

    run = FollowedRun(path, clock=slow_clock, wall=Clocks().wall, poll_s=0.002, first_look_s=0)
    seen = set()
    async with running(run), asyncio.timeout(60):
        while not run.view().status.over:
            if (moment := run.view().moment) is not None:
                seen.add(moment.tokens)
            await asyncio.sleep(0)
    pieces = path.stat().st_size / MOST_AT_ONCE
    assert len(seen) > 10 * pieces


async def test_following_may_be_ended_at_any_time(tmp_path: Path) -> None:
    """The picture stays as it is and says why it moves no more."""
    stream = Stream()
    stream.burst(1, 1)
    run = followed(written(tmp_path / "p", *stream.lines))
    async with running(run):
        await until(lambda: run.view().levels != ())
    view = run.view()
    assert view.status is SweepStatus.BROKEN_OFF
    assert "cancelled" in view.words
    assert view.moment is None


async def test_what_is_interrupted_says_so(tmp_path: Path) -> None:
    """The level that was being made is cut short; what was done before is kept."""
    stream = Stream()
    stream.level(1)
    stream.burst(2, 1)
    stream.complete("interrupted")
    run = await played(written(tmp_path / "p", *stream.lines))
    view = run.view()
    assert view.status is SweepStatus.CANCELLED
    assert [one.state for one in view.levels] == [LevelState.DONE, LevelState.CUT_SHORT]
    assert "interrupted" in view.words


async def test_no_file_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens beyond the limit of a level are counted and not kept; a level that is measured is let go."""
    monkeypatch.setattr(follow_fold, "MOST_READS", 8)
    stream = Stream()
    stream.level(1)
    stream.level(2, runs=1)
    stream.complete()
    run = await played(written(tmp_path / "p", *stream.lines))
    (told,) = [one for one in run.view().notices if "passed over" in one]
    assert told == "8 lines passed over: 8 of too many tokens"
    assert run.result is not None
    levels = run.result.targets[0].levels
    assert [one.tokens.generated for one in levels] == [12, 12]
    assert all("hidden_tokens" in {one.code for one in level.validity} for level in levels)


async def test_a_load_that_comes_again_replaces_its_level(tmp_path: Path) -> None:
    """No table has two rows for one load; the newer figures count."""
    stream = Stream()
    stream.level(1)
    stream.level(2)
    stream.level(1, runs=3)
    stream.complete()
    run = await played(written(tmp_path / "p", *stream.lines))
    assert sorted((row.key.concurrency, row.ok >= 3) for row in run.view().rows) == [(1, True), (2, True)]
