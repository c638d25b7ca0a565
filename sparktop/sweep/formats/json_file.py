"""A sweep's result as JSON text, in the schema of the result file."""

from __future__ import annotations

import json

from sparktop.sweep.result.results import SweepResult


def render(result: SweepResult) -> str:
    """Return a sweep's result as indented JSON text with every key; unknown values are null."""
    return json.dumps(result.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
