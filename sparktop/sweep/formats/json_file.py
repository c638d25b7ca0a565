"""A sweep's result as JSON text, in the schema of the result file."""

from __future__ import annotations

import json

from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.view.result import findings


def render(result: SweepResult) -> str:
    """Return a sweep's result and headline as indented JSON text with every key; unknown values are null."""
    answered = result.model_copy(update={"headline": findings(result).headline})
    return json.dumps(answered.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
