"""The agents of the demo's own load."""

from __future__ import annotations

import json
from itertools import pairwise

from sparktop.demo.load import DemoAgent


async def test_each_prompt_holds_what_was_answered_before() -> None:
    """Each call repeats the messages of the call before and its answer, until the conversation ends."""
    sent: list[list[dict[str, str]]] = []

    async def send(body: dict[str, object]) -> str | None:
        sent.append(json.loads(json.dumps(body["messages"])))
        return f"answer {len(sent)}"

    agent = DemoAgent("m", seed=1, number=0)
    for _ in range(30):
        assert 0 <= agent.pause_s() <= 10
        assert await agent.call(send)
    goes_on = [
        after[: len(before) + 1] == [*before, {"role": "assistant", "content": f"answer {number}"}]
        for number, (before, after) in enumerate(pairwise(sent), start=1)
    ]
    assert goes_on.count(False) in {1, 2}
    assert all(messages[0] == sent[0][0] for messages in sent)


async def test_a_failed_call_ends_the_conversation() -> None:
    """After a failed call, the next one begins a new conversation."""
    lengths: list[int] = []

    async def send(body: dict[str, object]) -> str | None:
        lengths.append(len(json.loads(json.dumps(body["messages"]))))
        return None if len(lengths) == 2 else "yes"

    agent = DemoAgent("m", seed=2, number=1)
    assert [await agent.call(send) for _ in range(3)] == [True, False, True]
    assert lengths == [2, 4, 2]
