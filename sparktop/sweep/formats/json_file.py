"""A result as JSON: the file's own schema."""

from __future__ import annotations

import json

from sparktop.sweep.result.results import SweepResult


def render(result: SweepResult) -> str:
    """Give a result as JSON with every key there."""
    return json.dumps(result.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
