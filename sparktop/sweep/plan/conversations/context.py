"""The length of a conversation's context, and when it is compacted."""

from __future__ import annotations

from msgspec import Struct

from sparktop.sweep.plan.conversations.preset import ConversationPreset
from sparktop.sweep.plan.conversations.script import Call, Script


class Prompt(Struct, frozen=True):
    """The prompt of the next call of a conversation."""

    tokens: int
    """Its length, as far as known before it is sent."""
    known_tokens: int
    """Tokens at its beginning that the server has computed before; see `ConversationCall.known_tokens`."""
    compacted: bool
    fits: bool
    """False if it is too long together with its answer, although the context was compacted."""


class ContextLength:
    """Counts the tokens of one conversation's context, and decides when it is compacted."""

    def __init__(self, preset: ConversationPreset, script: Script, max_model_len: int | None = None) -> None:
        """Start before the first call of `script`; `max_model_len` is the server's limit, None if unknown."""
        limit = preset.max_context_tokens
        self._limit = limit if max_model_len is None else min(limit, max_model_len)
        self._shared = preset.shared_tokens
        self._summary = preset.summary_tokens
        self._tokens = preset.shared_tokens + script.own_tokens
        """Tokens that the next prompt has before its new text."""
        self._known = preset.shared_tokens
        self.compactions = 0

    def prompt(self, call: Call) -> Prompt:
        """Return the prompt of `call`, the next one; compact the context first where it does not fit."""
        room = self._limit - call.output_tokens
        compacted = self._tokens + call.new_tokens > room
        if compacted:
            self.compactions += 1
            self._tokens, self._known = self._shared + self._summary, self._shared
        tokens = self._tokens + call.new_tokens
        return Prompt(tokens, min(self._known, tokens), compacted, tokens <= room)

    def answered(self, prompt_tokens: int, output_tokens: int) -> None:
        """Record the answer of the last call; both counts are the server's, where it reports them."""
        self._tokens = self._known = prompt_tokens + output_tokens
