"""PromQL text: label matchers with quoted values, and selectors of metric names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable


def quoted(text: str) -> str:
    """Return `text` as a string literal of PromQL."""
    return json.dumps(text, ensure_ascii=False)


def any_of(values: Iterable[str]) -> str:
    """Return a quoted regular expression that matches exactly these values."""
    return quoted("|".join(re.escape(value) for value in values))


def selector(names: Iterable[str], *matchers: str) -> str:
    """Return a selector of series with one of these metric names and all these matchers.

    A matcher is text such as `job="vllm"`, or "" for none; a text with several is possible.
    """
    parts = [f"__name__=~{any_of(sorted(names))}", *(one.strip().strip(",") for one in matchers)]
    return "{" + ",".join(part for part in parts if part) + "}"
