"""Agents of the load generator, against a server that remembers its answers."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from sparktop.model.load import CallStart, ConversationCall, LoadMode, RequestStarted
from sparktop.sweep.plan.conversations import ConversationPreset, Draw
from tests.sweep.conftest import InProcess, Loaded
from tests.sweep.stream_server import Asked, Behave

SMALL = ConversationPreset(
    "small",
    new_tokens=Draw(30),
    output_tokens=Draw(6, 0.4, 12),
    human_requests=Draw(3),
    max_context_tokens=4_000,
    shared_tokens=100,
    own_tokens=Draw(60),
    tool_steps=Draw(2),
    tool_pause_s=Draw(0.01),
    human_pause_s=Draw(0.05),
    summary_tokens=40,
)


class _Memory:
    """Answers with words of its own, and stores them by the messages that they answer."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        """Each answer by the messages before it, as JSON."""
        self.conversations: list[list[dict[str, str]]] = []

    async def behave(self, asked: Asked) -> None:
        """Answer a call with words that need escapes in JSON and are not all ASCII."""
        messages = asked.body["messages"]
        self.conversations.append(messages)
        words = [f' w{asked.number}"\\{place}é\n' for place in range(asked.tokens)]
        self.known[json.dumps(messages)] = "".join(words)
        asked.start()
        for place, word in enumerate(words):
            last = place == len(words) - 1
            asked.event(asked.token(text=word, finish="length" if last else None))
            await asked.server.step()
        asked.event(asked.usage())
        asked.end()

    def check(self) -> int:
        """Assert that each prompt has this server's answers to its beginnings; return their number."""
        found = 0
        for messages in self.conversations:
            for place, message in enumerate(messages):
                before = json.dumps(messages[:place])
                if message["role"] == "assistant" and before in self.known:
                    assert message["content"] == self.known[before]
                    found += 1
        return found


async def _run(in_process: InProcess, *, behave: Behave | None = None, **changes: object) -> Loaded:
    salts = {"cache_salt": "salt", "draw_seed": "1"}
    usual = {"mode": LoadMode.AGENTS, "conversations": SMALL, "target": in_process.target, "concurrency": 3}
    return await in_process.load(behave, None, **salts, **(usual | changes))


def _calls(loaded: Loaded) -> list[tuple[RequestStarted, ConversationCall]]:
    starts = [event for event in loaded.events if isinstance(event, RequestStarted)]
    return [(start, start.call) for start in starts if start.call is not None]


async def test_a_prompt_holds_exactly_what_the_server_answered(in_process: InProcess) -> None:
    """Every answer that is sent back is the server's own, byte for byte, and in its place."""
    memory = _Memory()
    loaded = await _run(in_process, duration_s=1.0, behave=memory.behave)
    assert all(end.ok for end in loaded.ends if end.error is not None)
    assert memory.check() > 50
    starts = {messages[0]["content"][:400] for messages in memory.conversations}
    assert len(starts) == 1, "all conversations share their start"
    assert {body["cache_salt"] for body in in_process.server.bodies} == {"salt"}
    # Human and tool calls come as scripted, roles take turns, and answers have an exact length.
    calls = _calls(loaded)
    assert {call.start for _, call in calls if call.turn % 3} == {CallStart.TOOL}
    assert {call.start for _, call in calls if call.turn % 3 == 0} == {CallStart.HUMAN}
    assert max(call.turn for _, call in calls) == 8
    for messages in memory.conversations:
        roles = [message["role"] for message in messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    bodies = in_process.server.bodies
    assert all(body["min_tokens"] == body["max_tokens"] and body["ignore_eos"] for body in bodies)


async def test_prompts_have_the_length_of_their_script(in_process: InProcess) -> None:
    """The server's count is the expected one plus the template; a call comes its pause after the answer."""
    loaded = await _run(in_process, duration_s=1.0, concurrency=1)
    ends = {end.request_id: end for end in loaded.ends}
    for (before, _), (start, call) in pairwise(_calls(loaded)):
        end = ends[before.request_id]
        if call.turn and end.ok:
            assert call.known_tokens == (end.prompt_tokens or 0) + (end.generated_tokens or 0)
            assert call.new_tokens == 30
        if not call.turn:
            assert start.prompt_tokens == 190
    late = [
        start.at - ends[before.request_id].at - (0.01 if call.start is CallStart.TOOL else 0.05)
        for (before, _), (start, call) in pairwise(_calls(loaded)[1:])
    ]
    assert min(late) >= -0.002
    assert len(late) > 10


async def test_warm_up_calls_come_first_and_are_not_measured(in_process: InProcess) -> None:
    """Each conversation is under way: its past is one call; the measured ones start within the duration."""
    loaded = await _run(in_process, duration_s=0.5, ramp_s=0.2)
    calls = _calls(loaded)
    assert [call.lane for _, call in calls[:3]] == [0, 1, 2]
    assert not any(call.measured for _, call in calls[:3])
    assert all(call.turn >= 1 for _, call in calls[:3])
    measured = [start.at for start, call in calls if call.measured]
    assert max(measured) - min(measured) <= 0.5
    ends = {end.request_id: end for end in loaded.ends}
    assert all(ends[start.request_id].ok for start, call in calls if call.measured)


@pytest.mark.parametrize("limit", [None, 150], ids=["refused", "known"])
async def test_a_refused_long_context_ends_its_conversation(in_process: InProcess, limit: int | None) -> None:
    """Refused or known not to fit: the conversation ends with its reason, and a new one begins."""

    async def behave(asked: Asked) -> None:
        if len(asked.body["messages"]) > 5:
            asked.refuse(400, "maximum context length is 200 tokens")
        else:
            await asked.stream()

    loaded = await _run(in_process, duration_s=1.2, max_model_len=limit, behave=behave)
    calls = {start.request_id: call for start, call in _calls(loaded)}
    failed = [end for end in loaded.ends if end.error is not None]
    assert failed
    words = "maximum context length" if limit is None else "does not fit"
    assert all(end.error is not None and words in end.error.message for end in failed)
    assert max(call.conversation for call in calls.values()) >= 1
