"""The truth server that the generator is judged by: its schedule, its stamps and the truth made of them."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import truth as measured
from generator import Row, percent_off
from truth import TruthProcess, generator_on
from truth_server import Batching, FixedPace, Pace, Stream, Timetable

LIMIT_S = 100.0


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


def test_a_fixed_pace_counts_from_the_arrival() -> None:
    """Token k of a request is due at its arrival + first + k gaps."""
    timetable = FixedPace(0.3, 0.1).timetable()
    early, late = stream(3, at=1.0), stream(2, at=1.05)
    timetable.add(early)
    timetable.add(late)
    times = [(round(at, 6), one) for at, one in play(timetable)]
    assert times == [(1.3, early), (1.35, late), (1.4, early), (1.45, late), (1.5, early)]


def test_what_is_late_once_is_not_late_for_ever() -> None:
    """A server that slept through two tokens gives both at once, and the next one when it was due anyway."""
    timetable = FixedPace(0.3, 0.1).timetable()
    slow = stream(4)
    timetable.add(slow)
    assert timetable.take(0.45) == [slow, slow]
    assert timetable.due_at() == pytest.approx(0.5)


def test_a_lost_stream_gets_no_more_tokens() -> None:
    """A stream whose client hung up is forgotten, by either pace."""
    for pace in (FixedPace(0.3, 0.1), Batching(2, 0.1, 0.2)):
        timetable = pace.timetable()
        gone = stream(4)
        timetable.add(gone)
        gone.lost_at = 0.1
        assert play(timetable) == []


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


def test_free_slots_are_filled_one_a_step() -> None:
    """With three slots for three requests the third still waits for a step of its own."""
    timetable = Batching(slots=3, step_s=0.1, prefill_s=0.2).timetable()
    for key in "abc":
        timetable.add(stream(2, key=key))
    told = [(round(at, 6), one.key) for at, one in play(timetable)]
    assert told == [(0.3, "a"), (0.6, "a"), (0.6, "b"), (0.9, "b"), (0.9, "c"), (1.0, "c")]


def test_an_idle_batch_begins_with_the_next_arrival() -> None:
    """No steps are made without a request."""
    timetable = Batching(slots=2, step_s=0.1, prefill_s=0.2).timetable()
    timetable.add(stream(1))
    assert [round(at, 6) for at, _ in play(timetable)] == [0.3]
    timetable.add(stream(1, at=5.0))
    assert [round(at, 6) for at, _ in play(timetable)] == [5.3]


def test_a_pace_survives_its_json() -> None:
    """What is posted to the server is the pace that it keeps."""
    for pace in (FixedPace(0.25, 0.02), Batching(16, 0.02, 0.03)):
        assert msgspec.json.decode(msgspec.json.encode(pace), type=Pace) == pace


def test_the_truth_of_rates_is_counted_by_hand() -> None:
    """Two streams, from their stamps: 4 tokens after the first ones in 1.25 s."""
    streams = [stamped(0.0, 1.0, 1.5, 2.0), stamped(0.0, 1.25, 1.75, 2.25)]
    assert measured.ttft_s(streams[1]) == 1.25
    assert measured.decode_tps(streams) == pytest.approx(4 / 1.25)


def test_the_sustained_truth_ends_where_nothing_was_replaced() -> None:
    """Two clients and one replacement at 2.0: from the second arrival to the first end after the last."""
    streams = [stamped(0.0, 1.0, 2.0), stamped(0.5, 1.5, 2.5, 3.5), stamped(2.0, 3.0, 4.0)]
    assert measured.sustained_tps(streams, 2) == pytest.approx(6 / 3.0)


def test_a_missed_goal_is_told_as_missed() -> None:
    """A median beyond its goal on either side misses it, as does no value; without a goal it is None."""
    assert Row("x", 0.5, ours=[-0.4, -0.6, -0.7]).met is False
    assert Row("x", 0.5, ours=[-0.4, 0.3, -0.7]).met is True
    assert Row("x", 100, at_least=True, ours=[99.0]).met is False
    assert Row("x", 0.5).met is False
    assert Row("x", ours=[9.0]).met is None
    assert "**missed**" in Row("x", 0.5, ours=[1.0]).cells
    assert percent_off(None, 5.0) == -100.0
    assert percent_off(4.0, 5.0) == pytest.approx(-20.0)


@pytest.fixture
def server() -> Iterator[TruthProcess]:
    """Yield a running server; it has exited afterwards."""
    with TruthProcess() as found:
        yield found
    assert found.ended


def ask(server: TruthProcess, tokens: int, key: str) -> list[str]:
    """Request a completion; return the data of its events."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    body = {
        "model": "truth",
        "messages": [{"role": "user", "content": "three plain words"}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_salt": key,
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    text = connection.getresponse().read().decode()
    connection.close()
    return [part.removeprefix("data: ") for part in text.split("\n\n") if part]


@pytest.mark.process
def test_an_answer_is_what_vllm_would_send(server: TruthProcess) -> None:
    """A role, each token with its id, the reason of the end, the usage and the end of the stream."""
    *events, usage, done = ask(server, 3, "a")
    choices = [json.loads(event)["choices"][0] for event in events]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["token_ids"] for choice in choices[1:]] == [[1000], [1001], [1002]]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]
    told = json.loads(usage)["usage"]
    assert (told["prompt_tokens"], told["completion_tokens"]) == (3, 3)
    assert done == "[DONE]"


@pytest.mark.process
def test_stamps_lie_between_question_and_answer(server: TruthProcess) -> None:
    """Arrival, then each token no sooner than it was due, all between our own clock's readings."""
    server.keep_to(FixedPace(first_token_s=0.05, token_gap_s=0.02))
    before = time.perf_counter()
    ask(server, 4, "a")
    after = time.perf_counter()
    (found,) = server.streams()
    assert found.key == "a"
    assert before < found.arrived_at < found.stamps[0] < found.stamps[-1] < after
    assert list(found.stamps) == sorted(found.stamps)
    for number, stamp in enumerate(found.stamps):
        assert stamp >= found.arrived_at + 0.05 + number * 0.02


@pytest.mark.process
def test_a_pace_begins_with_no_requests(server: TruthProcess) -> None:
    """What came before the pace was set is forgotten."""
    ask(server, 1, "old")
    server.keep_to(FixedPace(0.01, 0.01))
    assert server.streams() == []
    ask(server, 1, "new")
    assert [one.key for one in server.streams()] == ["new"]


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


@pytest.mark.process
async def test_a_cancelled_load_is_lost_at_the_server(server: TruthProcess) -> None:
    """Cancelling closes every stream there, and the time that it took is returned."""
    core = min(os.sched_getaffinity(0))
    async with generator_on(server, core) as generator:
        assert await generator.cancel_s(4, 10_000, FixedPace(0.05, 0.05)) > 0
        assert all(one.lost_at is not None for one in server.streams())
