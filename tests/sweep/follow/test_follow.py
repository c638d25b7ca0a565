"""A run of another program, followed: the picture while it goes on, and its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sparktop.model.sweep_view import LevelKey, LevelState, SweepStatus
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.plan.plan import TargetKind
from tests.sweep.follow.followed_runs import Clocks, followed, played, running, snapshot, until, written
from tests.sweep.follow.progress_stream import RECORDED, RECORDED_RESULT, Stream, line


async def test_the_figures_of_a_recorded_run_are_llama_benchys_own() -> None:
    """By our definitions, its stamps give the decode rate and TTFT of its own table."""
    run = await played(RECORDED)
    theirs = json.loads(RECORDED_RESULT.read_text())["benchmarks"]
    rows = {row.key.concurrency: row for row in run.view().rows}
    assert sorted(rows) == [one["concurrency"] for one in theirs] == [1, 4]
    for one in theirs:
        figures = rows[one["concurrency"]].figures
        assert figures["decode_tps"].mean == pytest.approx(one["tg_throughput"]["mean"], rel=0.002)
        assert figures["ttft_ms"].mean == pytest.approx(one["e2e_ttft"]["mean"], abs=0.01)
        assert figures["decode_tps"].runs == 2
    assert run.result is not None
    assert run.result.status == "done"
    assert run.result.plan.preset == "llama-benchy 0.4.0"


async def test_a_finished_run_is_played_at_once(tmp_path: Path) -> None:
    """Its levels, figures and length are there, whenever it was made."""
    stream = Stream()
    stream.level(1)
    stream.level(2, runs=3)
    stream.complete()
    run = await played(written(tmp_path / "p", *stream.lines), Clocks(86_400.0))
    view = run.view()
    assert view.status is SweepStatus.DONE
    assert view.words == "done: 2 levels"
    assert view.elapsed_s == pytest.approx(stream.at_s)
    assert [(one.key.concurrency, one.state, one.runs_done) for one in view.levels] == [
        (1, LevelState.DONE, 2),
        (2, LevelState.DONE, 3),
    ]
    row = view.rows[1]
    assert row.key == LevelKey("127.0.0.1:8000", 2, 100)
    assert row.figures["ttft_ms"].mean == pytest.approx(500)
    assert row.figures["decode_tps"].mean == pytest.approx(20)  # 2 streams, a token each 0.1 s
    assert row.figures["prefill_tps"].mean == pytest.approx(400)
    assert view.live is not None
    assert view.live.step_s == 0.1  # a day between then and now did not squeeze it
    assert "own stamps" in view.plan_words
    assert any("own stamps" in one for one in view.doubts)
    assert any("one offset" in one for one in view.notices)


@pytest.mark.outside
async def test_a_real_writer_is_followed_as_it_writes(tmp_path: Path) -> None:
    """Another process writes line by line: each run is seen before the next one begins."""
    path, stream = tmp_path / "p", Stream()
    parts = [b"".join([*stream.lines, *stream.burst(2, 1)]), b"".join(stream.burst(2, 2)), stream.complete()]
    script = (
        "import sys, pathlib\n"
        "with pathlib.Path(sys.argv[1]).open('w', buffering=1) as out:\n"
        "    for one in sys.stdin:\n"
        "        out.write(one)\n"
    )
    run = followed(path)
    async with running(run):
        await until(lambda: "no such file yet" in run.view().words)
        # The one that runs these tests, with a script from above: nothing from outside; it starts at once.
        writer = subprocess.Popen([sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE)  # noqa: ASYNC220, S603
        try:
            assert writer.stdin is not None
            for done, part in enumerate(parts, 1):
                writer.stdin.write(part)
                writer.stdin.flush()
                if part is not parts[-1]:
                    await until(lambda: [one.runs_done for one in run.view().levels] == [done])  # noqa: B023 - awaited at once
                    assert run.view().status is SweepStatus.RUNNING
                    assert run.view().rows == ()
                    assert run.view().share is None
            await until(lambda: run.view().status.over)
        finally:
            writer.communicate(timeout=300)
    assert run.view().rows[0].ok == 4


async def test_a_running_level_tells_its_moment(tmp_path: Path) -> None:
    """In flight, tokens and the median so far follow from the lines, and its requests are bars."""
    stream, clocks = Stream(), Clocks()
    burst = stream.burst(2, 1)
    run = followed(written(tmp_path / "p", line("header", 0.0), *burst[:8]), clocks)
    async with running(run):
        await until(lambda: run.view().moment is not None)
        clocks.monotonic_s += 1.0
        view = run.view()
        assert view.moment is not None
        assert (view.moment.in_flight, view.moment.ended, view.moment.tokens) == (2, 0, 2)
        assert view.moment.ttft_p50_ms == pytest.approx(500)
        assert view.words == "127.0.0.1:8000, c = 2: run 1"
        evidence = run.evidence(LevelKey("127.0.0.1:8000", 2, 100))
        assert evidence is not None
        assert [bar.first_token_s for bar in evidence.timelines[0].bars] == pytest.approx([0.5, 0.5])
        assert evidence.timelines[0].bars[0].end_s is None


async def test_a_level_is_measured_when_the_next_one_begins(tmp_path: Path) -> None:
    """Its row appears while the run goes on, and later levels are assumed to have as many runs."""
    stream = Stream()
    stream.level(1, runs=3)
    stream.burst(4, 1)
    run = followed(written(tmp_path / "p", *stream.lines))
    async with running(run):
        await until(lambda: len(run.view().rows) == 1)
        levels = run.view().levels
        assert [(one.state, one.runs) for one in levels] == [(LevelState.DONE, None), (LevelState.RUNNING, 3)]
        assert run.view().share is None  # the number of levels to come is reported nowhere


async def test_failed_requests_are_counted_by_what_the_server_said(tmp_path: Path) -> None:
    """A failure with a status is counted by the status; one without it counts as broken off."""
    stream = Stream()
    stream.burst(3, 1, error="HTTP 503: \x1b[31moverloaded")
    stream.burst(3, 2, error="Server disconnected")
    stream.complete()
    run = await played(written(tmp_path / "p", *stream.lines))
    assert run.result is not None
    level = run.result.targets[0].levels[0]
    assert level.requests.errors == {"http:503": 1, "truncated": 1}
    assert (level.requests.ok, level.requests.failed) == (4, 2)
    assert level.uncounted is not None
    assert level.uncounted.ok == (False, False)


async def test_tokens_that_were_guessed_are_corrected_at_the_end(tmp_path: Path) -> None:
    """Without token ids a chunk counts as one token; the server's count is spread over them in the end."""
    stream = Stream()
    stream.level(1, runs=1)
    stream.complete()
    lines = [one.replace(b'"count": 1', b'"count": 1, "estimated": true') for one in stream.lines]
    lines = [one.replace(b'"total_tokens": 6', b'"total_tokens": 12') for one in lines]
    run = await played(written(tmp_path / "p", *lines))
    assert run.result is not None
    level = run.result.targets[0].levels[0]
    assert (level.tokens.generated, level.tokens_from) == (12, "usage")


async def test_context_loads_are_in_no_figure(tmp_path: Path) -> None:
    """With prefix caching a run is two bursts of one number: only the second one is measured."""
    stream = Stream()
    for run_number in (1, 2):
        for stream.tokens in (6, 3):
            stream.burst(2, run_number, context_size=1000, response_size=6)
    stream.complete()
    run = await played(written(tmp_path / "p", *stream.lines))
    row = run.view().rows[0]
    assert row.key.prompt_tokens == 1100
    assert row.ok == 4
    assert run.result is not None
    assert run.result.targets[0].levels[0].tokens.generated == 12
    assert any("load contexts" in one for one in run.view().notices)


async def test_several_lengths_models_and_addresses_are_told_apart(tmp_path: Path) -> None:
    """No two levels share a row, whatever differs between them."""
    stream = Stream()
    stream.level(1, prompt_size=100)
    stream.level(1, prompt_size=200)
    stream.level(1, prompt_size=100, context_size=100)
    stream.level(1, response_size=7)
    stream.level(1, model="other")
    stream.level(1, base_url="http://10.0.0.2:8000/v1")
    stream.level(1, target_label="mine")
    stream.complete()
    run = await played(written(tmp_path / "p", *stream.lines))
    assert [(row.key.target, row.key.prompt_tokens) for row in run.view().rows] == [
        ("127.0.0.1:8000", 100),
        ("127.0.0.1:8000", 200),
        ("127.0.0.1:8000 depth 100", 200),
        ("127.0.0.1:8000 tg 7", 100),
        ("127.0.0.1:8000 other", 100),
        ("10.0.0.2:8000", 100),
        ("mine", 100),
    ]


@pytest.mark.parametrize("router", [False, True])
async def test_a_watched_address_has_its_watched_name(tmp_path: Path, *, router: bool) -> None:
    """The addresses localhost and 127.0.0.1 are the same place: the table has the name of the monitor."""
    stream, clocks = Stream(), Clocks()
    stream.level(1)
    run = followed(written(tmp_path / "p", *stream.lines), clocks)
    run.look(snapshot(clocks.monotonic_s, router=router))
    async with running(run):
        await until(lambda: run.view().levels != ())
        run.look(snapshot(clocks.monotonic_s, router=router))
        written(tmp_path / "p", stream.complete())
        await until(lambda: run.view().status.over)
    assert run.result is not None
    (target,) = run.result.targets
    assert target.name == ("proxy" if router else "spark-a")
    assert target.kind is (TargetKind.ROUTER if router else TargetKind.ENGINE)


@pytest.mark.parametrize("router", [False, True])
async def test_a_simulated_server_makes_a_simulated_result(tmp_path: Path, *, router: bool) -> None:
    """The figures of a demo cannot be mistaken for those of a machine."""
    stream, clocks = Stream(), Clocks(10.0)
    stream.level(1)
    run = followed(written(tmp_path / "p", *stream.lines), clocks)
    picture = snapshot(clocks.monotonic_s, router=router)
    simulated = replace(picture, backends=(replace(picture.backends[0], version="0.32+simulated"),))
    run.look(simulated)
    async with running(run):
        await until(lambda: run.view().levels != ())
        run.look(simulated)
        assert run.view().simulated
        clocks.monotonic_s += 1.0
        live = run.view().live
        assert live is not None
        told = {one.name: one.running for one in live.backends}
        assert 3.0 in told["spark-a"]  # its reported value is shown beside the load


async def test_a_start_is_the_tools_own_and_not_the_line_ahead_of_it(tmp_path: Path) -> None:
    """In a burst all start lines come before the first request is sent: the request's own stamps count."""
    stream = Stream()
    lines = [
        stream.lines[0],
        stream.start(0, 0.0, 2, 1),
        stream.start(1, 0.0, 2, 1),
        line("request_first_response", 0.5, request_id=0, ttfr_s=0.5),
        line("request_first_token", 0.5, request_id=0, ttft_s=0.5),
        line("tokens", 0.5, request_id=0, count=6),
        line("request_first_response", 0.6, request_id=1, ttfr_s=0.4),
        line("request_first_token", 0.7, request_id=1, ttft_s=0.5),
        line("tokens", 0.7, request_id=1, count=6),
        stream.end(0, 1.0),
        stream.end(1, 1.0).replace(b'"prompt_tokens": 100', b'"prompt_tokens": 0'),
        line("bench_complete", 1.0, status="ok"),
    ]
    run = await played(written(tmp_path / "p", *lines))
    assert run.result is not None
    each = run.result.targets[0].levels[0].each
    assert each is not None
    assert each.start_ms == pytest.approx((0.0, 200.0), abs=0.1)
    assert each.ttft_ms == pytest.approx((500.0, 500.0), abs=0.1)
    assert each.e2e_ms == pytest.approx((1000.0, 800.0), abs=0.1)
    assert each.prompt_tokens == (100, 100)  # without a report of the server, the requested number


@pytest.mark.parametrize(("asked", "marked"), [(110, False), (400, True)])
async def test_lengths_of_the_tools_own_tokenizer_are_estimates(
    tmp_path: Path, asked: int, *, marked: bool
) -> None:
    """The server counts 100 tokens: of 110 that is the same prompt, of 400 it was cut."""
    stream = Stream()
    for concurrency in (1, 2):
        stream.level(concurrency, prompt_size=asked)
    stream.complete()
    path = written(tmp_path / "run.jsonl", *stream.lines)
    async with running(followed(path)) as run:
        await until(lambda: run.result is not None and run.result.status == "done")
        assert run.result is not None
        levels = run.result.targets[0].levels
        assert [level.has_other_prompt for level in levels] == [marked, marked]
        (series,) = series_of(run.result)
        assert {level.load.pp for level in series.levels} == {100 if marked else asked}
