"""The course of a user or agent: calls, pauses, conversations under way, and conversations that end early."""

from __future__ import annotations

from itertools import islice, pairwise

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
