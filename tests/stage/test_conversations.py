"""Simulated conversations: hit rates of the prefix cache, pauses, and what is measured."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from sparktop.model.load import (
    ConversationCall,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    RunStarted,
)
from sparktop.simulation.calibration import KV_BLOCKS, SOLO
from sparktop.simulation.engine import Engine
from sparktop.sweep.plan.conversations import find_conversations
from stage.clients import DirectDestination, VirtualTime
from stage.conversations import Conversations, planned_turns

ENGINE = replace(SOLO, max_model_len=65_536)
BLOCK = ENGINE.block_tokens
QUICK = find_conversations("coder-quick")


@dataclass(frozen=True, slots=True)
class _Ran:
    engine: Engine
    starts: dict[str, RequestStarted]
    ends: dict[str, RequestEnded]
    begin_s: float


def _run(lanes: int, kv_blocks: int, duration_s: float = 120.0) -> _Ran:
    engine = Engine(replace(ENGINE, kv_blocks=kv_blocks), token_events=False)
    time = VirtualTime([engine])
    turns = [planned_turns(QUICK, 1, lane, ENGINE.max_model_len) for lane in range(lanes)]
    agents = Conversations(time, DirectDestination(time), turns, block_tokens=BLOCK)
    agents.start(duration_s, ramp_s=5.0)
    time.run(duration_s + 3_000)
    assert agents.done
    events: list[LoadEvent] = agents.events
    return _Ran(
        engine,
        {one.request_id: one for one in events if isinstance(one, RequestStarted)},
        {one.request_id: one for one in events if isinstance(one, RequestEnded)},
        next(one.at for one in events if isinstance(one, RunStarted)),
    )


def _place(start: RequestStarted) -> ConversationCall:
    assert start.call is not None
    return start.call


def test_a_large_pool_hits_all_that_an_endless_cache_would_hit() -> None:
    """Each call finds its conversation's earlier blocks, or those of the shared start; counters agree."""
    ran = _run(4, KV_BLOCKS)
    answered: set[tuple[int, int, int]] = set()
    checked = 0
    for request_id, start in list(ran.starts.items())[1:]:
        end, place = ran.ends[request_id], _place(start)
        conversation = (place.lane, place.conversation)
        if end.ok and (not place.turn or (*conversation, place.turn - 1) in answered):
            # The newest token of an answer is in no block yet.
            stored = place.known_tokens - bool(place.turn)
            assert end.cached_tokens == stored // BLOCK * BLOCK
            checked += 1
        if end.ok:
            answered.add((*conversation, place.turn))
    assert checked > 50
    tally = ran.engine.tally
    admitted = [end for end in ran.ends.values() if end.generated_tokens]
    assert tally.prefix_hits == sum(end.cached_tokens or 0 for end in admitted)
    assert tally.prefix_queries == sum(end.prompt_tokens or 0 for end in admitted)
