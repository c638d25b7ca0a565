"""Prompt lengths that a server refuses, and the largest one that it takes.

A server has a context of so many tokens for prompt and answer together. A length beyond it is skipped, with
the server's words; the largest length that fits is looked for where that was asked.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from sparktop.model.snapshot import BackendView
from sparktop.sweep.generator.wire.messages import Calibrated
from sparktop.sweep.terms.request_errors import HTTP, RequestFailure

REFUSING = frozenset({f"{HTTP}:400", f"{HTTP}:413", f"{HTTP}:422"})
"""Words of failures by which a server refuses a request for what it asks, not for want of anything."""
ENOUGH_SHARE = 0.01
LEAST_APART = 16
"""Tokens: the search ends where the largest that fits is known to these, or to a hundredth."""
_CONTEXT = re.compile(r"context (?:length|size|window)\D{0,40}?(\d{3,8})", re.IGNORECASE)

Try = Callable[[int], Awaitable[Calibrated | RequestFailure]]
"""Asks a server for a prompt of so many tokens."""


@dataclass(frozen=True, slots=True)
class LongestPrompt:
    """The largest prompt that was found to fit, and how it was found."""

    tokens: int
    found: Calibrated
    within: int = 0
    """The largest that fits is larger by fewer tokens than this, 0 where it is exact."""

    @property
    def words(self) -> str:
        """The finding in words."""
        exact = "" if self.within <= 1 else f", or up to {self.within - 1} more"
        return f"{self.tokens} tokens fit{exact}"


def beyond_context(length: int, output_tokens: int, views: Iterable[BackendView]) -> str | None:
    """Return why a length cannot fit, by the context that the servers report; None where it may."""
    for view in views:
        if view.max_model_len is not None and length + output_tokens > view.max_model_len:
            return (
                f"{view.name} takes {view.max_model_len} tokens a request at most; "
                f"pp {length} and tg {output_tokens} are {length + output_tokens}"
            )
    return None


def is_refusal(failure: RequestFailure) -> bool:
    """Return whether a server refused the request for what it asks."""
    return failure.word in REFUSING


def reported_context(views: Iterable[BackendView], words: Iterable[str]) -> int | None:
    """Return the context in tokens that servers report, or that their refusals name; None for neither."""
    known = [view.max_model_len for view in views if view.max_model_len is not None]
    named = [int(found[1]) for one in words if (found := _CONTEXT.search(one)) is not None]
    return min(known or named, default=None)


async def longest_prompt(
    fits: int, refused: int, output_tokens: int, context: int | None, ask: Try
) -> LongestPrompt | None:
    """Find the largest prompt between one that `fits` (0 where none is known) and one that is `refused`.

    A reported context is tried first; else the interval is halved. `ask` must send prompt and answer as long
    as a level would. None where nothing fits, or the server does not count what it was sent.
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
