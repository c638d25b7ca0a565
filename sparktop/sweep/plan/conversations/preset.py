"""The shape of conversations: lengths, tool steps and pauses, as read from a preset's TOML file."""

from __future__ import annotations

from msgspec import Struct

from sparktop.sweep.plan.conversations.draw import Draw


class ConversationPreset(Struct, frozen=True):
    """How conversations go: a shared start, a context of their own, human requests and tool steps.

    A conversation has `human_requests` requests of a person. Each takes a model call, and one more for each
    of its `tool_steps`. A call appends `new_tokens` to the prompt, and its answer stays in the context.
    """

    name: str
    new_tokens: Draw
    """Tokens that a call appends to the prompt: a question, or the output of a tool."""
    output_tokens: Draw
    """Tokens of an answer, at least 1."""
    human_requests: Draw
    """Requests of a person in a conversation, at least 1."""
    max_context_tokens: int
    """Most tokens of prompt and answer together; before a call beyond it, the context is compacted."""
    description: str = ""
    shared_tokens: int = 0
    """Tokens at the beginning of every conversation, the same text for all: system prompt and tools."""
    own_tokens: Draw = Draw(0.0)
    """Tokens of the conversation's own context, sent with its first call."""
    tool_steps: Draw = Draw(0.0)
    """Model calls after a tool within one human request."""
    tool_pause_s: Draw = Draw(0.0)
    """Seconds from an answer that calls a tool to the call with the tool's output."""
    human_pause_s: Draw = Draw(0.0)
    """Seconds from the last answer of a human request to the next request."""
    summary_tokens: int = 2000
    """Tokens to which a compacted context shrinks, in addition to the shared start."""
    duration_s: float = 180.0
    """Seconds that a level of such conversations is measured, unless the user gives another duration."""

    @property
    def start_tokens(self) -> int:
        """Usual tokens of a conversation's first call, prompt and answer together."""
        new = self.new_tokens.typical + self.output_tokens.typical
        return round(self.shared_tokens + self.own_tokens.typical + new)

    @property
    def least_context_tokens(self) -> int:
        """Tokens of context that a server needs for the first call, and for one after a compaction."""
        new = self.new_tokens.typical + self.output_tokens.typical
        return max(self.start_tokens, round(self.shared_tokens + self.summary_tokens + new))

    @property
    def calls(self) -> float:
        """Mean number of model calls of a conversation, roughly."""
        return max(1.0, self.human_requests.typical) * (1.0 + self.tool_steps.typical)

    @property
    def pause_s(self) -> float:
        """Mean seconds between the answer to a call and the next call, roughly."""
        steps = self.tool_steps.typical
        return (self.human_pause_s.typical + steps * self.tool_pause_s.typical) / (1.0 + steps)
