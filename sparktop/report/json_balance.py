"""The balance of a group as JSON: part of the schema "sparktop.snapshot/1".

A balance is judged over a time window that ends now. `verdict` is the announced verdict, `verdict_now` the
verdict on the newest window; `reasons`, `hint` and all values are of that window. Shares are 0 to 1. The keys
of the schema's first release come first, then the evidence of the verdict, without the plots of the evidence
(spectrum and autocorrelation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sparktop.analysis.balance.rules import RULES, Check
from sparktop.model.balance import Balance, StepTime, Swing
from sparktop.report.json_node import fields_of

_PROMISED = ("confidence", "window_s", "sample_hz", "dispersion_z", "period_s", "lead_changes_per_min")
_EVIDENCE = (
    "cause",
    "strategy",
    "needed_s",
    "samples_percent",
    "sample_skew_ms",
    "looks_apart_ms",
    "mean_total",
    "mean_load",
    "variance_factor",
    "away_s",
    "lead_margin",
    "lead_changes",
    "swap_s",
    "free_slot_percent",
    "skew",
    "skew_backend",
    "steadiness",
    "turns",
    "turns_of_one",
    "turning_spread",
    "requests",
    "requests_share",
    "requests_chance",
    "errors",
    "e2e_s",
    "length_variation",
    "lanes_of",
    "within",
)
_SWING = (
    "backend",
    "relative_rms",
    "moving_share",
    "mutual",
    "period_s",
    "cycles",
    "variance_share",
    "chance",
    "rebound",
    "opposite",
    "score",
)


_ARRIVALS = ("requests", "pieces", "piece_s", "spread", "herds", "least_herds", "chance")
_CONVOYS = (
    "full_times",
    "part_times",
    "full_spread",
    "full_total",
    "part_spread",
    "part_share",
    "least_leads",
    "since_part_s",
    "period_s",
    "part_chance",
    "chance",
)


def balance_json(one: Balance, time: Callable[[datetime], str]) -> dict[str, object]:
    """Return a group's balance as a mapping of JSON keys; `time` formats a time as the schema requires."""
    return {
        "group": one.group,
        "router": one.router,
        "backends": one.backends,
        "verdict": one.word.value,
        "verdict_now": one.word_now.value,
        "also": [word.value for word in one.also],
        "since": None if one.since is None else time(one.since),
        **fields_of(one, _PROMISED),
        "starved_percent": one.starved_percent,
        "lost_percent": one.lost_percent,
        "lost_unknown": one.lost_unknown,
        "too_few": one.too_few,
        "lost_before_percent": one.lost_before_percent,
        "lost_before_s": one.lost_before_s,
        "reasons": one.reasons,
        "hint": one.hint,
        **fields_of(one, _EVIDENCE),
        "step_time": _step_time(one.step_time),
        "step_times": {name: _step_time(step) for name, step in one.step_times.items()},
        "swing": _swing(one.swing),
        "arrivals": None if one.arrivals is None else fields_of(one.arrivals, _ARRIVALS),
        "convoys": None if one.convoys is None else fields_of(one.convoys, _CONVOYS),
        "rules": [_rule(rule(one)) for rule in RULES],
    }


def _rule(checks: Sequence[Check]) -> dict[str, object]:
    """Return a rule as a mapping: its name, whether it holds, and its checks with their values and limits."""
    return {
        "name": checks[0].code,
        "holds": all(check.holds for check in checks),
        "checks": [
            {
                "name": check.name,
                "value": check.value,
                "unit": check.unit or None,
                "at_least": check.limit,
                "holds": check.holds,
                "missing": check.but or None,
            }
            for check in checks
        ],
    }


def _step_time(step: StepTime | None) -> dict[str, object] | None:
    if step is None:
        return None
    return {
        "base_ms": 1000 * step.base_s,
        "per_request_ms": 1000 * step.per_request_s,
        "pairs": step.pairs,
    }


def _swing(swing: Swing | None) -> dict[str, object] | None:
    return None if swing is None else fields_of(swing, _SWING)
