"""An agent of the demo's own load: conversations with tools, whose prompts hold the server's answers."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Awaitable, Callable

from sparktop.demo.engine.tokens import answer_words

Send = Callable[[dict[str, object]], Awaitable[str | None]]
"""Sends the body of a request; returns the text of the answer, None where it failed or broke off."""
_SHARED, _OWN = 6000, 2000
"""Tokens of the start that all conversations share, and of each one's own context."""
_REQUESTS, _STEPS = 3, 7
"""A person's requests in a conversation, and calls for each of them, with its tools."""
_HUMAN_S = 5.0
_DATA = "data: "


class DemoAgent:
    """Sends the calls of one agent; its lengths and pauses are those of the workload "coder-quick"."""

    def __init__(self, model: str, *, seed: int, number: int) -> None:
        """Prepare agent `number`; the same seed gives the same conversations."""
        self._model = model
        # Load needs no cryptographic randomness.
        self._random = random.Random(f"agent/{seed}/{number}")  # noqa: S311
        self._turn = self._random.randrange(_REQUESTS * _STEPS)
        """Number of the next call in its conversation: the first conversation is under way."""
        self._messages: list[dict[str, str]] = []

    def pause_s(self) -> float:
        """Return the seconds until the next call: a tool runs, or a person thinks."""
        return _HUMAN_S if self._turn % _STEPS == 0 else self._draw(0.3, 1.5, 10.0)

    async def call(self, send: Send) -> bool:
        """Send the next call and keep its answer; return True if it was complete."""
        new = round(self._draw(400, 1.0, 4000))
        if not self._messages:
            shared = "".join(answer_words("shared", _SHARED))
            self._messages = [{"role": "system", "content": shared}]
            new += _OWN + self._turn * 600
        words = answer_words(self._random.getrandbits(62), max(1, new))
        self._messages.append({"role": "user", "content": "".join(words)})
        tokens = max(1, round(self._draw(120, 0.8, 512)))
        body: dict[str, object] = {"model": self._model, "messages": self._messages, "max_tokens": tokens}
        answer = await send(body | {"ignore_eos": True, "stream": True})
        self._turn = (self._turn + 1) % (_REQUESTS * _STEPS) if answer is not None else 0
        if self._turn == 0:
            self._messages = []
        elif answer is not None:
            self._messages.append({"role": "assistant", "content": answer})
        return answer is not None

    def _draw(self, median: float, sigma: float, most: float) -> float:
        return min(most, self._random.lognormvariate(math.log(median), sigma))


def streamed_text(stream: bytes) -> str:
    """Return the text of a streamed chat answer."""
    parts = []
    for line in stream.decode(errors="replace").splitlines():
        if line.startswith(_DATA + "{"):
            choices = json.loads(line.removeprefix(_DATA)).get("choices") or [{}]
            parts.append((choices[0].get("delta") or {}).get("content") or "")
    return "".join(parts)
