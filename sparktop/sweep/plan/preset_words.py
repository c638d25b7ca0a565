"""What a preset of sweeps measures, in a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparktop.model.targets import SweepSettings
from sparktop.model.text import clean


def preset_line(preset: SweepSettings) -> str:
    """Return what a preset measures: its loads, lengths, runs and targets, each where it has one."""
    return clean("; ".join(_parts(preset)), 200) or "the usual load"


def _parts(preset: SweepSettings) -> Iterator[str]:
    yield from _load(preset)
    if preset.prompt_lengths:
        yield f"{_listed(preset.prompt_lengths)} tokens in"
    if preset.tg is not None:
        yield f"{preset.tg:,} out"
    if preset.prompts is not None:
        yield f"prompts of {Path(preset.prompts).name}"
    if preset.depths:
        yield f"after {_listed(preset.depths)} tokens of context"
    if preset.runs is not None:
        yield f"{preset.runs} run{'' if preset.runs == 1 else 's'}"
    if preset.targets:
        yield f"on {', '.join(preset.targets)}"


def _load(preset: SweepSettings) -> Iterator[str]:
    if preset.concurrency:
        more = "" if preset.climb_to is None else f" and on to {preset.climb_to} while tok/s rise"
        yield f"c = {_listed(preset.concurrency)}{more}"
    if preset.agents:
        yield f"agents {_listed(preset.agents)}"
    if preset.rate:
        yield f"{preset.rate} requests/s"
    if preset.trace:
        yield f"the traffic of {preset.trace}"
    if preset.workload:
        yield f"workload {preset.workload}"


def _listed(values: tuple[int, ...] | tuple[float, ...]) -> str:
    return ", ".join(f"{value:,g}" for value in values)
