"""The truth server that the generator is judged by: its schedule, its stamps and the truth made of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import truth as measured
from truth import TruthProcess, generator_on
from truth_server import Batching, FixedPace, Stream, Timetable


def stream(tokens: int, at: float = 0.0, key: str = "") -> Stream:
    return Stream(key, at, tokens)


def play(timetable: Timetable) -> list[tuple[float, Stream]]:
    """Return every token with the time at which it is due."""
    found: list[tuple[float, Stream]] = []
    while (due_at := timetable.due_at()) is not None:
        found += [(due_at, one) for one in timetable.take(due_at)]
    return found


def stamped(arrived_at: float, *stamps: float) -> Stream:
    return Stream("", arrived_at, len(stamps), len(stamps), list(stamps))


def test_a_batch_admits_one_request_a_step() -> None:
    """Three in two slots: steps with a prefill take 0.3 s, others 0.1 s, and the third waits for a slot."""
    timetable = Batching(slots=2, step_s=0.1, prefill_s=0.2).timetable()
    a, b, c = (stream(3, key=key) for key in "abc")
    for one in (a, b, c):
        timetable.add(one)
    told = [(round(at, 6), one.key) for at, one in play(timetable)]
    assert told == [
        *((0.3, "a"), (0.6, "a"), (0.6, "b"), (0.7, "a"), (0.7, "b")),
        *((1.0, "b"), (1.0, "c"), (1.1, "c"), (1.2, "c")),
    ]


def test_the_truth_of_rates_is_counted_by_hand() -> None:
    """Two streams, from their stamps: 4 tokens after the first ones in 1.25 s."""
    streams = [stamped(0.0, 1.0, 1.5, 2.0), stamped(0.0, 1.25, 1.75, 2.25)]
    assert measured.ttft_s(streams[1]) == 1.25
    assert measured.decode_tps(streams) == pytest.approx(4 / 1.25)


@pytest.fixture
def server() -> Iterator[TruthProcess]:
    """Yield a running server; it has exited afterwards."""
    with TruthProcess() as found:
        yield found
    assert found.ended


@pytest.mark.process
async def test_a_load_is_laid_beside_its_truth(server: TruthProcess) -> None:
    """The generator's requests are found at the server, all of them, and no time precedes the true one."""
    core = min(os.sched_getaffinity(0))
    async with generator_on(server, core) as generator:
        load = await generator.burst(8, 10, FixedPace(0.05, 0.01))
        assert load.whole
        assert load.figures.requests.ok == 8
        assert set(load.streams) == set(load.traces)
        # Sent before it arrived, and read no sooner than it was due there.
        for key, trace in load.traces.items():
            assert trace.start <= load.streams[key].arrived_at
            assert (trace.ttft_s or 0.0) > 0.05
        del load.streams[next(iter(load.streams))]
        assert not load.whole
