"""The course of a user or agent: calls, pauses, conversations under way, and conversations that end early."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest

from sparktop.model.conversation import CallStart
from sparktop.sweep.plan.conversations import Lane, parse_conversations, planned_turns

SMALL = """
shared_tokens = 100
own_tokens = 50
new_tokens = 10
output_tokens = 5
tool_steps = 1
human_requests = 2
tool_pause_s = 1
human_pause_s = 9
max_context_tokens = 3000
"""
PRESET = parse_conversations(SMALL, "small", "small.toml")


def test_a_conversation_under_way_starts_with_its_past() -> None:
    """One to three of its four calls are in its past, which is not measured."""
    lane = Lane(PRESET, 1, 0)
    past = list(lane.past())
    assert 1 <= len(past) <= 3
    assert not any(step.place.measured for step in past)
    step = lane.step()
    assert step.place.measured
    assert step.place.turn == len(past)
    assert step.prompt.tokens == 100 + 50 + 10 + len(past) * 15


def test_turns_follow_one_another_over_conversations() -> None:
    """Human and tool calls alternate; a new conversation follows a human pause and starts short."""
    turns = list(islice(planned_turns(PRESET, 1, 0), 12))
    assert [turn.place.conversation for turn in turns if turn.place.turn == 0][-2:] == [1, 2]
    for before, turn in pairwise(turns):
        assert turn.pause_s == (1 if turn.place.start is CallStart.TOOL else 9)
        assert before.place.then == (turn.place.start if turn.place.turn else None)
        if turn.place.turn:
            assert turn.place.known_tokens == before.prompt_tokens + before.output_tokens
        else:
            assert (turn.prompt_tokens, turn.place.known_tokens) == (160, 100)


def test_a_conversation_that_is_given_up_is_followed_by_a_new_one() -> None:
    """It begins after a human pause, with its first call."""
    lane = Lane(PRESET, 1, 0)
    lane.give_up()
    step = lane.step()
    assert (step.place.conversation, step.place.turn, step.pause_s) == (1, 0, 9)


@pytest.mark.parametrize(("length", "count"), [(120, 0), (3000, 5)])
def test_a_server_without_room_gets_no_turns(length: int, count: int) -> None:
    """Where even a compacted context does not fit, the turns end instead of going on without one."""
    turns = list(islice(planned_turns(PRESET, 1, 0, length), 5))
    assert len([turn for turn in turns if turn.place.measured]) == pytest.approx(count, abs=1 if count else 0)
