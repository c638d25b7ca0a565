"""Exceptions that end a command, with a one-line message and an exit code; the word that a typo meant.

SparktopError
 ├── UsageError        2   arguments that cannot be used
 ├── ConfigError       2   a configuration file that cannot be used
 ├── UnreachableError  3   nothing that was asked for could be reached
 └── OutputError       1   a result that could not be written
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


class SparktopError(Exception):
    """Base of the errors that end a command.

    The message for the user names the thing, the fault and the remedy.
    """

    exit_code = 1


class UsageError(SparktopError):
    """Command-line arguments cannot be used."""

    exit_code = 2


class ConfigError(SparktopError):
    """A configuration file cannot be used; the message has a line for each fault."""

    exit_code = 2


class UnreachableError(SparktopError):
    """None of the requested servers or machines could be reached."""

    exit_code = 3


class OutputError(SparktopError):
    """A result could not be written."""


_LEAST_BEGIN = 3
"""Fewest letters that are taken for the beginning of a word."""


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return ": did you mean 'x' or 'y'?" with the most similar of `words`; "" if none is similar to `word`.

    Several are named if they are as similar, or begin with `word`; without a similar one, such as begin with
    its `_LEAST_BEGIN` letters or more. A number resembles no other number.
    """
    by_lower = {candidate.lower(): candidate for candidate in words}
    # difflib's time grows quadratically, so the length is limited.
    lower = word[:64].lower()
    close = [] if lower.isdecimal() else get_close_matches(lower, by_lower)
    ratios = [SequenceMatcher(None, near, lower).ratio() for near in close]
    near = {near for near, ratio in zip(close, ratios, strict=True) if ratio == ratios[0]}
    is_begin = bool(near) or (len(lower) >= _LEAST_BEGIN and not lower.isdecimal())
    begun = {candidate for candidate in by_lower if is_begin and candidate.startswith(lower)}
    names = [f"'{name}'" for candidate, name in by_lower.items() if candidate in near | begun]
    several = ", ".join(names[:-1])
    return f": did you mean {several}{several and ' or '}{names[-1]}?" if names else ""
