"""Collects the text of a streamed answer, for conversations in which it becomes part of the next prompt."""

from __future__ import annotations

import json
from typing import Any

from sparktop.sweep.generator.stream.event import DONE, without_prompt_ids

_LARGE_BYTES = 4096
"""Events from this size on may hold the token ids of the prompt."""


class AnswerText:
    """The text of one answer, event by event; reasoning is not part of it."""

    __slots__ = ("_parts", "has_reasoning")

    def __init__(self) -> None:
        """Start without text."""
        self._parts: list[str] = []
        self.has_reasoning = False
        """True if the answer has reasoning, which a client does not send back."""

    @property
    def text(self) -> str:
        """The text so far, exactly as the server sent it."""
        return "".join(self._parts)

    def add(self, data: bytes) -> None:
        """Add the text of an event; an event that is not JSON adds nothing."""
        if data.startswith(DONE):
            return
        try:
            found = json.loads(data if len(data) < _LARGE_BYTES else without_prompt_ids(data))
        except (ValueError, RecursionError):
            return
        choices = found.get("choices") if isinstance(found, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict):
            self._add_choice(choice)

    def _add_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        fields: dict[str, Any] = delta if isinstance(delta, dict) else {}
        text = choice.get("text") or fields.get("content")
        if isinstance(text, str):
            self._parts.append(text)
        if fields.get("reasoning_content") or fields.get("reasoning"):
            self.has_reasoning = True
