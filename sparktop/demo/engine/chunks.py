"""Builds the bodies of a simulated server's responses, with the fields and field order of vLLM 0.32."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from sparktop.demo.engine.asked import Asked
from sparktop.demo.engine.tokens import STOP, answer_words, word_id
from sparktop.model.load import RequestEnded

DONE = b"data: [DONE]\n\n"


class Reply(Struct):
    """A response in progress: chooses the words of the answer, and formats them as SSE events or as JSON."""

    request_id: str
    model: str
    created_unix_s: int
    asked: Asked
    output_tokens: int
    """Tokens to generate, including the stop token."""
    stops: bool
    """True if the last token is a stop token, which has no text."""
    written: int = 0
    """Number of tokens formatted so far."""
    _words: list[str] = field(default_factory=list)
    _ids: list[int] = field(default_factory=list)
    _head: bytes = b""

    def __post_init__(self) -> None:
        """Choose the words of the answer, at random or by the request's seed."""
        self._words = answer_words(self._seed, self.output_tokens - self.stops)
        self._ids = [word_id(word) for word in self._words]
        if self.stops:
            self._words.append("")
            self._ids.append(STOP)
        kind = "chat.completion.chunk" if self.asked.chat else "text_completion"
        self._head = f'data: {_json(self._top(kind))[:-1]},"choices":'.encode()

    @property
    def token_ids(self) -> Sequence[int]:
        """All token ids of the answer, including those that are not formatted yet."""
        return self._ids

    def chunk(self, tokens: int, *, last: bool) -> bytes:
        """Return the next `tokens` tokens of the answer as an SSE event.

        If `last`, the event carries the finish reason. In a chat, an event that names the role comes before
        the first event with tokens.
        """
        first, self.written = self.written, self.written + tokens
        text, ids = "".join(self._words[first : self.written]), self._ids[first : self.written]
        reason = self._reason() if last else None
        prompt = {"prompt_token_ids": list(self.asked.prompt)} if self.asked.return_token_ids else {}
        if not self.asked.chat:
            return self._event(self._choice({"text": text, **({} if first else prompt)}, ids, reason))
        content = self._event(self._choice({"delta": {"content": text}}, ids, reason))
        if first:
            return content
        role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._event({"index": 0, **role}, **prompt) + content

    def usage_chunk(self, ended: RequestEnded) -> bytes:
        """Return the SSE event with the token counts of the request, which follows all other events."""
        return self._event(None, usage=self._usage(ended))

    def whole(self, ended: RequestEnded) -> dict[str, Any]:
        """Return the JSON object of the complete response, for a request without streaming."""
        text = "".join(self._words)
        choice: dict[str, Any] = {"index": 0}
        if self.asked.chat:
            message: dict[str, Any] = {
                "role": "assistant",
                "content": text,
                "reasoning_content": None,
                "tool_calls": [],
            }
            choice["message"] = message
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": self._reason(), "stop_reason": None}
        choice["token_ids"] = list(self._ids) if self.asked.return_token_ids else None
        body = self._top("chat.completion" if self.asked.chat else "text_completion")
        body |= {"choices": [choice], "usage": self._usage(ended)}
        if self.asked.return_token_ids:
            holder = body if self.asked.chat else choice
            holder["prompt_token_ids"] = list(self.asked.prompt)
        return body

    @property
    def _seed(self) -> int | str:
        # Answers differ between requests, but a request's seed repeats its answer.
        return self.request_id if self.asked.seed is None else self.asked.seed

    def _top(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created_unix_s,
            "model": self.model,
        }

    def _reason(self) -> str:
        return "stop" if self.stops else "length"

    def _event(self, choice: dict[str, Any] | None, **beside: object) -> bytes:
        more = f",{_json(beside)[1:-1]}" if beside else ""
        return self._head + f"[{_json(choice) if choice else ''}]{more}}}\n\n".encode()

    def _choice(self, choice: dict[str, Any], ids: list[int], reason: str | None) -> dict[str, Any]:
        event = {"index": 0, **choice, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        return event | ({"token_ids": ids} if self.asked.return_token_ids else {})

    def _usage(self, ended: RequestEnded) -> dict[str, Any]:
        prompt, made = len(self.asked.prompt), ended.generated_tokens or 0
        cached = ended.cached_tokens or 0
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + made,
            "completion_tokens": made,
            "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
