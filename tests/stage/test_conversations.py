"""Simulated conversations: hit rates of the prefix cache, pauses, and what is measured."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from sparktop.model.load import (
    CallStart,
    ConversationCall,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    RunStarted,
    Turn,
)
from sparktop.simulation.calibration import KV_BLOCKS, SOLO
from sparktop.simulation.engine import Engine
from sparktop.sweep.plan.conversations import find_conversations
from stage.clients import DirectDestination, VirtualTime
from stage.conversations import Conversations, planned_turns, turn_hashes

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


def test_hashes_change_with_conversation_compaction_and_salt() -> None:
    """The shared start is equal for all; everything after it differs."""
    place = ConversationCall(0, 0, 1, 0, CallStart.HUMAN, None, 100, 28)
    turn = Turn(place, 0.0, 128, 32, 64, 0)
    hashes = turn_hashes(turn, 16)
    assert len(hashes) == 10
    other = turn_hashes(replace(turn, place=replace(place, conversation=1)), 16)
    compacted = turn_hashes(replace(turn, compactions=1), 16)
    for one in (other, compacted):
        assert one[:4] == hashes[:4]
        assert not set(one[4:]) & set(hashes[4:])
    longer = turn_hashes(replace(turn, prompt_tokens=500), 16)
    assert longer[:10] == hashes
    assert not set(turn_hashes(turn, 16, salt=1)) & set(hashes)


def test_a_prompt_beyond_the_context_ends_with_its_reason() -> None:
    """The engine refuses it, and the lane goes on with its next turn after half a second at least."""
    engine = Engine(replace(ENGINE, max_model_len=1_000), token_events=False)
    time = VirtualTime([engine])
    place = ConversationCall(0, 0, 0, 0, CallStart.HUMAN, None, 0, 2_000)
    agents = Conversations(
        time, DirectDestination(time), [[Turn(place, 0.0, size, 8, 0, 0) for size in (2_000, 90)]]
    )
    agents.start(10.0)
    time.run(100)
    ends = [one for one in agents.events if isinstance(one, RequestEnded)]
    assert [end.ok for end in ends] == [False, True]
    assert ends[0].error is not None
    assert "more than the model's context" in ends[0].error.message
    assert ends[1].at > 0.5
