"""The right word for a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Give ": did you mean 'x'?" with the one of `words` nearest to `word`; "" when none is near."""
    by_lower = {known.lower(): known for known in words}
    # difflib's time grows with the square of the length: nobody means a word of a thousand letters.
    close = get_close_matches(word[:64].lower(), by_lower, n=1)
    return f": did you mean '{by_lower[close[0]]}'?" if close else ""
