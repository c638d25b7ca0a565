"""Suggestion of the intended word for a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return ": did you mean 'x'?" with the most similar of `words`; "" if none is similar to `word`."""
    by_lower = {known.lower(): known for known in words}
    # difflib's time grows quadratically, so the length is limited.
    close = get_close_matches(word[:64].lower(), by_lower, n=1)
    return f": did you mean '{by_lower[close[0]]}'?" if close else ""
