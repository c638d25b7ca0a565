"""Recorded traffic on a simulated cluster in virtual time: the same trace gives the same result."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.model.load import Level, LoadKind, LoadMode, LoadPoint
from sparktop.simulation.calibration import KV_BLOCKS, SOLO
from sparktop.simulation.clients import DirectWay, Recorded, Replay, VirtualTime
from sparktop.simulation.engine import Engine
from sparktop.sweep.plan.traces.request import TracedRequest
from sparktop.sweep.plan.traces.summary import summarise
from sparktop.sweep.plan.traces.trace import Trace, TraceChoice
from sparktop.sweep.result.level import cached_tokens, level_result, phases
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.open_loop import windows
from sparktop.sweep.result.results import LevelResult

PROFILE = replace(SOLO, max_model_len=65_536)
REQUESTS = 300


def write(path: Path, seed: int, per_s: float = 1.0) -> TraceChoice:
    """Write Mooncake lines of a service with a common start and 20 conversations."""
    dice = random.Random(seed)  # noqa: S311 - a load
    at_ms, lengths = 0.0, dict.fromkeys(range(20), 1)
    with path.open("w") as file:
        for _ in range(REQUESTS):
            at_ms += 1000 * dice.expovariate(per_s)
            conversation = dice.randrange(20)
            lengths[conversation] = lengths[conversation] % 8 + 1
            ids = [0, *(100 * conversation + block for block in range(1, lengths[conversation]))]
            length = 512 * (len(ids) - 1) + dice.randrange(1, 513)
            row = {"timestamp": round(at_ms), "input_length": length, "output_length": dice.randrange(10, 80)}
            file.write(json.dumps({**row, "hash_ids": ids}) + "\n")
    return TraceChoice(str(path))


def hashes(one: TracedRequest) -> tuple[int, ...]:
    """Return a hash for each full block of the engine; ids of a trace are of 512 tokens."""
    size, length = PROFILE.block_tokens, one.prompt_tokens or 0
    whole = (hash((one.blocks[at // one.block_tokens], at)) for at in range(0, length - size + 1, size))
    return tuple(whole)


def played(choice: TraceChoice, seed: int, kv_blocks: int = KV_BLOCKS) -> tuple[LevelResult, Engine]:
    """Replay a trace on one engine, until all its requests have ended."""
    engine = Engine(replace(PROFILE, kv_blocks=kv_blocks), seed=seed)
    time = VirtualTime([engine])
    requests = [
        Recorded(one.due_s, one.prompt_tokens or 0, one.output_tokens, one.after, one.delay_s, hashes(one))
        for one in Trace(choice)
    ]
    replay = Replay(time, DirectWay(time), requests)
    time.run(100_000)
    traces = collect(replay.events)
    spans = windows(replay.events, traces)
    rate = LoadPoint(LoadKind.RATE, summarise(choice).per_s, trace="day.jsonl")
    level = level_result(Level("a", 512, 1000, 40, LoadMode.OPEN, 1, None, rate), traces, spans)
    assert cached_tokens(traces) == (engine.tally.prefix_queries, engine.tally.prefix_hits)
    parts = phases(traces, spans, 0.0, choice.speed, stable=True)
    assert sum(one.requests for one in parts) == REQUESTS
    return level, engine


def test_the_same_trace_gives_the_same_result(tmp_path: Path) -> None:
    """All requests are answered; with another seed of the engine the latencies differ."""
    choice = write(tmp_path / "day.jsonl", 1)
    first, again, other = (played(choice, seed)[0] for seed in (1, 1, 2))
    assert first == again
    assert first.ttft_due_ms != other.ttft_due_ms
    assert first.requests.ok == REQUESTS
    assert first.open_loop is not None
    assert first.open_loop.arrived_per_s == pytest.approx(summarise(choice).per_s, rel=0.01)


def test_hits_are_those_that_the_trace_allows(tmp_path: Path) -> None:
    """A large cache has almost all tokens that earlier requests hold, a small one far fewer."""
    choice = write(tmp_path / "day.jsonl", 2)
    most = summarise(choice).repeated_share
    assert most is not None
    shares = [
        engine.tally.prefix_hits / engine.tally.prefix_queries
        for _, engine in (played(choice, 1, blocks) for blocks in (KV_BLOCKS, 600))
    ]
    assert most - 0.03 < shares[0] <= most
    assert shares[1] < 0.5 * most


def test_twice_the_speed_is_twice_the_rate(tmp_path: Path) -> None:
    """Beyond the limit of the server the queue grows, and the level says so."""
    choice = write(tmp_path / "day.jsonl", 3, per_s=2.0)
    slow, fast = (played(replace(choice, speed=speed), 1)[0].open_loop for speed in (0.5, 40.0))
    assert slow is not None
    assert fast is not None
    assert (fast.arrived_per_s or 0) == pytest.approx(80 * (slow.arrived_per_s or 0), rel=0.01)
    assert (fast.in_flight_max or 0) > 10 * (slow.in_flight_max or 0)
    assert not slow.unstable
    assert fast.unstable


def test_a_conversation_waits_for_its_answers() -> None:
    """The second request is due its pause after the end of the first, not before its own time."""
    engine = Engine(PROFILE, seed=1)
    time = VirtualTime([engine])
    requests = [
        Recorded(0.0, 1000, 20),
        Recorded(None, 1200, 10, after=0, delay_s=2.0),
        Recorded(60.0, 1400, 10, after=1),
    ]
    replay = Replay(time, DirectWay(time), requests)
    time.run(1000)
    first, second, third = collect(replay.events)
    assert second.start == second.due == pytest.approx(first.end + 2.0)
    assert third.start == 60.0
