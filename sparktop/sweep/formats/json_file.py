"""A result as JSON of the result file's own schema."""

from __future__ import annotations

import json

from sparktop.sweep.result.results import SweepResult


def render(result: SweepResult) -> str:
    """Return a result as JSON with every key."""
    return json.dumps(result.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
