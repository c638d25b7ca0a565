"""Parser of requests for samples, from a URL's query (HTTP) or a JSON line (ssh)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from sparktop.model.instant import MAX_INTERVAL_S, MIN_INTERVAL_S
from sparktop.model.text import clean

_YES, _NO = frozenset({"1", "true", "yes"}), frozenset({"0", "false", "no", ""})


class AskError(ValueError):
    """A value in a viewer's request that cannot be parsed; the message names the value in one clean line."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A viewer's request for samples."""

    since: float | None = None
    """Time, by the node's clock in seconds, of the newest sample that the viewer has; None: return only the
    newest sample."""
    processes: bool = False
    """Whether to include the process table."""
    interval_s: float | None = None
    """Seconds between samples that the viewer wants; None: no preference."""
    ranks: bool = False
    """Whether to ask NCCL about the ranks of a job instead of returning samples; only over ssh, where every
    request is a line: over HTTP this is a path of its own."""


def from_query(query: Mapping[str, str]) -> Ask:
    """Parse the query of a URL; ignore unknown keys.

    Raises:
        AskError: a value is not a number, or the value of `processes` does not mean yes or no.
    """
    since, interval_s = (_number(key, query.get(key)) for key in ("since", "interval_s"))
    word = query.get("processes", "").lower()
    if word not in _YES | _NO:
        raise AskError(f"processes must be 1 or 0, not '{clean(word, 40)}'")
    return Ask(since, word in _YES, _bounded(interval_s))


def from_line(line: bytes) -> Ask:
    """Parse a line that holds a JSON object; ignore unknown keys.

    Raises:
        AskError: the line is not a JSON object, or a value has the wrong type.
    """
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        raise AskError("the line is not JSON") from None
    if not isinstance(given, dict):
        raise AskError("the line is not a JSON object")
    since, interval_s = (_number(key, given.get(key)) for key in ("since", "interval_s"))
    processes = given.get("processes")
    if processes is not None and not isinstance(processes, bool):
        raise AskError("processes must be true or false")
    return Ask(since, bool(processes), _bounded(interval_s), given.get("ranks") is True)


def _number(key: str, given: object) -> float | None:
    """Convert `given`, the value of the key `key`, to a finite float; None stays None.

    Raises:
        AskError: the value is not a finite number.
    """
    if given is None:
        return None
    try:
        value = (
            math.nan if isinstance(given, bool) or not isinstance(given, int | float | str) else float(given)
        )
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise AskError(f"{key} must be a number of seconds, not '{clean(given, 40)}'")
    return value


def _bounded(interval_s: float | None) -> float | None:
    return None if interval_s is None else min(MAX_INTERVAL_S, max(MIN_INTERVAL_S, interval_s))
