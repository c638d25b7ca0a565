"""Prompt lengths that a server refuses, and the search for the largest that it accepts.

A server's context is the limit in tokens of prompt and answer together. A prompt length beyond it is skipped,
and the server's error is kept; on request the largest length that fits is searched for.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from sparktop.model.snapshot import BackendView
from sparktop.sweep.generator.wire.messages import Calibrated
from sparktop.sweep.terms.request_errors import HTTP, RequestFailure

REFUSING = frozenset({f"{HTTP}:400", f"{HTTP}:413", f"{HTTP}:422"})
"""Failures by which a server refuses what a request asks for, as opposed to failing to serve it."""
ENOUGH_SHARE = 0.01
LEAST_APART = 16
"""The search ends when the largest length that fits is known to within `LEAST_APART` tokens, or to within
`ENOUGH_SHARE` of the shortest refused length if that is less."""
_CONTEXT = re.compile(r"context (?:length|size|window)\D{0,40}?(\d{3,8})", re.IGNORECASE)

Try = Callable[[int], Awaitable[Calibrated | RequestFailure]]
"""Sends a request with a prompt of the given length in tokens."""


@dataclass(frozen=True, slots=True)
class LongestPrompt:
    """The largest prompt that was found to fit."""

    tokens: int
    found: Calibrated
    within: int = 0
    """Bound of the error in tokens: the true maximum is less than `tokens + within`; 0 where it is exact."""

    @property
    def words(self) -> str:
        """The result as text."""
        exact = "" if self.within <= 1 else f", or up to {self.within - 1} more"
        return f"{self.tokens} tokens fit{exact}"


def beyond_context(length: int, output_tokens: int, views: Iterable[BackendView]) -> str | None:
    """Return why a length exceeds the context that a server reports; None where it may fit."""
    for view in views:
        if view.max_model_len is not None and length + output_tokens > view.max_model_len:
            return (
                f"{view.name} takes {view.max_model_len} tokens a request at most; "
                f"pp {length} and tg {output_tokens} are {length + output_tokens}"
            )
    return None


def is_refusal(failure: RequestFailure) -> bool:
    """Return whether the server refused what the request asks for, rather than failed to serve it."""
    return failure.word in REFUSING


def reported_context(views: Iterable[BackendView], words: Iterable[str]) -> int | None:
    """Return the least context in tokens that servers report, else that refusals mention; None if unknown."""
    known = [view.max_model_len for view in views if view.max_model_len is not None]
    named = [int(found[1]) for one in words if (found := _CONTEXT.search(one)) is not None]
    return min(known or named, default=None)


async def longest_prompt(
    fits: int, refused: int, output_tokens: int, context: int | None, ask: Try
) -> LongestPrompt | None:
    """Search for the largest prompt between one that `fits` (0: none known) and one that was `refused`.

    A reported context is tried first, then the interval is bisected. `ask` must send a prompt and request an
    answer as long as those of a level. None if nothing fits, or if the server does not report how many tokens
    it received.
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
