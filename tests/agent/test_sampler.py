"""When the agent takes samples, and which of these each request gets.

Parameters of a request for samples, in a query or as a JSON line: both are read alike, and checked.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.agent.reader import REST_S, Ask, AskError, Sampler, from_line, from_query
from sparktop.model.failure import Failure
from sparktop.model.node import NodeIdentity, NodeSample
from tests.agent.fake_machine import TABLE, FakeMachine, Timers, hung, settle


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
async def machine(timers: Timers) -> FakeMachine:
    return FakeMachine(timers)


@pytest.fixture
async def sampler(timers: Timers, machine: FakeMachine) -> AsyncIterator[Sampler]:
    made = Sampler(machine, clock=timers, later=timers.later)
    yield made
    machine.free.set()
    await made.close()


async def samples(sampler: Sampler, ask: Ask | None = None) -> tuple[NodeSample, ...]:
    found = await sampler.ask(ask or Ask())
    assert not isinstance(found, Failure)
    return found


async def test_samples_are_taken_for_a_minute_after_the_last_request(
    sampler: Sampler, machine: FakeMachine, timers: Timers
) -> None:
    """Nothing is read before a request; after it one sample a second for a minute, then none."""
    await timers.advance(3600.0)
    assert (machine.taken, sampler.identity) == ([], NodeIdentity())
    begun = timers.now
    await samples(sampler)
    await timers.advance(3600.0)
    assert machine.taken == [begun + second for second in range(int(REST_S) + 1)]
    (sample,) = await samples(sampler)
    assert sample.at == timers.now


async def test_a_time_of_before_a_restart_gives_the_newest(sampler: Sampler, timers: Timers) -> None:
    """A `since` in the future of this machine's clock is from before a restart: return the newest sample."""
    found = await samples(sampler, Ask(since=timers.now + 1e6))
    assert [one.at for one in found] == [timers.now]


async def test_a_machine_that_hangs_is_a_failure(
    sampler: Sampler, machine: FakeMachine, timers: Timers
) -> None:
    """A failure is returned, not an old sample; samples that the client has not seen come before it."""
    (first,) = await samples(sampler)
    await timers.advance(2.0)
    machine.failure = hung()
    await timers.advance(3.0)
    assert await sampler.ask(Ask()) == machine.failure
    assert [one.at - first.at for one in await samples(sampler, Ask(since=first.at))] == [1.0, 2.0]
    assert await sampler.ask(Ask(since=5002.0)) == machine.failure
    machine.failure = None
    assert [one.at for one in await samples(sampler)] == [timers.now]


async def test_the_process_table_comes_to_those_who_ask_for_it(
    sampler: Sampler, machine: FakeMachine, timers: Timers
) -> None:
    """The process table is read at the first request for it, and sent with the newest sample on request."""
    (first,) = await samples(sampler)
    assert first.processes is None
    (with_table,) = await samples(sampler, Ask(processes=True))
    assert with_table.processes == TABLE
    await timers.advance(2.0)
    found = await samples(sampler, Ask(since=first.at, processes=True))
    assert [one.processes for one in found] == [None] * (len(found) - 1) + [TABLE]
    assert {one.processes for one in await samples(sampler, Ask(since=first.at))} == {None}
    assert machine.show_processes


def test_query_and_line_say_the_same() -> None:
    """A query and a JSON line with the same parameters give the same request."""
    query = {"since": "5120.25", "processes": "1", "interval_s": "2", "later": "unknown"}
    line = b'{"since": 5120.25, "processes": true, "interval_s": 2, "later": {"unknown": []}}'
    assert from_query(query) == from_line(line) == Ask(5120.25, processes=True, interval_s=2.0)
    asked_s = [from_query({"interval_s": text}).interval_s for text in ("0.001", "1e9")]
    assert asked_s == [0.25, 60.0], "no viewer makes the agent sample faster or keep a wish for longer"


@pytest.mark.parametrize(
    "query",
    [
        {"since": "abc"},
        {"since": "nan"},
        {"interval_s": "-inf"},
        {"processes": "perhaps"},
        {"since": "\x1b[31m" + "9" * 5000},
    ],
    ids=str,
)
def test_what_is_no_wish_is_refused_in_one_clean_line(query: dict[str, str]) -> None:
    """A value that is not a finite number, or not a boolean, is refused in one printable line."""
    with pytest.raises(AskError) as refused:
        from_query(query)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 120


@given(
    st.binary(max_size=200)
    | st.from_type(dict[str, float | str | None]).map(lambda d: json.dumps(d).encode())
)
def test_any_line_is_a_request_or_refused(line: bytes) -> None:
    """Any bytes are either a request with finite numbers or refused."""
    try:
        ask = from_line(line)
    except AskError:
        return
    assert ask.since is None or math.isfinite(ask.since)
    assert ask.interval_s is None or 0.25 <= ask.interval_s <= 60.0


async def test_neither_a_client_that_leaves_nor_an_error_of_ours_ends_the_samples(
    sampler: Sampler, machine: FakeMachine
) -> None:
    """Simultaneous requests share one reading; an error is a failure in one clean line."""
    machine.free.clear()
    asking = [asyncio.ensure_future(sampler.ask(Ask())) for _ in range(3)]
    await settle()
    asking[0].cancel()
    machine.free.set()
    assert [isinstance(found, tuple) for found in await asyncio.gather(*asking[1:])] == [True, True]
    assert len(machine.taken) == 1
    machine.error = ValueError("bad \x1b[31m name")
    found = await sampler.ask(Ask(), fresh_s=0.0)
    assert isinstance(found, Failure)
    assert found.message.isprintable()
