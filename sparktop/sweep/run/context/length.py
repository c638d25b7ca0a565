"""Prompt lengths that a server refuses, and the search for the largest that it accepts.

A server's context length is its limit in tokens of prompt and answer together. A sweep skips prompt lengths
beyond this limit and keeps the server's error message. If the plan asks for it, the sweep searches for the
largest prompt length that fits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from sparktop.model.snapshot import BackendView
from sparktop.sweep.generator.refusals import stated_context
from sparktop.sweep.generator.wire.messages import Calibrated
from sparktop.sweep.plan.conversations.preset import ConversationPreset
from sparktop.sweep.plan.conversations.reading import BUILT_IN, find_conversations
from sparktop.sweep.terms.request_errors import RequestFailure

ENOUGH_SHARE = 0.01
LEAST_APART = 16
"""The search ends when the largest length that fits is known to within `LEAST_APART` tokens, or to within
`ENOUGH_SHARE` of the shortest refused length if that is less."""

Try = Callable[[int], Awaitable[Calibrated | RequestFailure]]
"""Sends a request with a prompt of the given length in tokens; returns its calibration result or failure."""


class LongestPrompt(Struct, frozen=True):
    """The largest prompt that was found to fit into a server's context."""

    tokens: int
    found: Calibrated
    within: int = 0
    """Bound of the error in tokens: the true maximum is less than `tokens + within`; 0 where it is exact."""

    @property
    def words(self) -> str:
        """The result as text, such as "8000 tokens fit, or up to 15 more"."""
        exact = "" if self.within <= 1 else f", or up to {self.within - 1} more"
        return f"{self.tokens} tokens fit{exact}"


def beyond_context(
    length: int,
    output_tokens: int,
    views: Iterable[BackendView],
    conversations: ConversationPreset | None = None,
) -> str | None:
    """Return a message if prompt `length` and output tokens together exceed the context of a server.

    The same for the first call of `conversations`, if these are sent. Return None if no server reports a
    context length that is exceeded.
    """
    for view in views:
        start = 0 if conversations is None else conversations.start_tokens
        if conversations is not None and view.max_model_len is not None and start > view.max_model_len:
            others = (
                one.name
                for one in map(find_conversations, BUILT_IN)
                if one.least_context_tokens <= view.max_model_len
            )
            return (
                f"{view.name} takes at most {view.max_model_len:,} tokens a request; a conversation of "
                f"{conversations.name} begins with about {start:,} (workloads that fit: "
                f"{', '.join(others) or 'none'})"
            )
        if view.max_model_len is not None and length + output_tokens > view.max_model_len:
            return (
                f"{view.name} takes at most {view.max_model_len:,} tokens a request; "
                f"pp {length:,} and tg {output_tokens:,} need {length + output_tokens:,}"
            )
    return None


def reported_context(views: Iterable[BackendView], words: Iterable[str]) -> int | None:
    """Return the smallest context length in tokens that the servers in `views` report.

    If no server reports a context length, return the smallest one that the error messages `words` mention;
    None if they mention none.
    """
    known = [view.max_model_len for view in views if view.max_model_len is not None]
    named = [limit for one in words if (limit := stated_context(one)) is not None]
    return min(known or named, default=None)


async def longest_prompt(
    fits: int, refused: int, output_tokens: int, context: int | None, ask: Try
) -> LongestPrompt | None:
    """Return the largest prompt that a server accepts, longer than `fits` and shorter than `refused` tokens.

    `fits` is 0 if no accepted length is known. The first length to try is the server's reported `context`
    minus `output_tokens`; then the range is bisected. `ask` sends a trial request with a prompt of the given
    length. The search ends early if prompts of exact length cannot be made. Return None if the server
    accepted no length that was tried.
    """
    best: LongestPrompt | None = None
    low, high = fits, refused
    wanted = None if context is None else context - output_tokens
    while high - low > max(1, min(LEAST_APART, round(ENOUGH_SHARE * high))):
        length = wanted if wanted is not None and low < wanted < high else (low + high) // 2
        is_exact = length == wanted
        wanted = None
        found = await ask(length)
        if isinstance(found, Calibrated) and found.failure is None:
            if found.prompt is None or not found.prompt.exact:
                return best
            low, best = length, LongestPrompt(length, found)
            if is_exact:
                return best
        else:
            high = length
    return None if best is None else LongestPrompt(best.tokens, best.found, high - low)
