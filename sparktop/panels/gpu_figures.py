"""Figures of a GPU, the same wherever it is drawn: its margin, its power, what slows it, its instances."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.node import GpuReading, LostGpu, MigInstance
from sparktop.model.snapshot import SpeedState
from sparktop.panels.figures import bar_runs, figure, label
from sparktop.panels.rows import Row, Run, fit_row

TAIL = 22
"""Cells of the figures behind a GPU's bars."""
_WARM_C, _HOT_C = 10.0, 4.0
"""Degrees left to the thermal limit from which on they are drawn as a warning."""
_SPEED_ROLES = {
    "normal": "good",
    "idle": "muted",
    "unknown": "muted",
    "throttled": "warn",
    "slow clock": "bad",
    "slow steps": "bad",
}


def speed_role(speed: SpeedState) -> str:
    """Give the role of a speed state's word."""
    return _SPEED_ROLES.get(speed.word, "warn")


def short_reason(reason: str) -> str:
    """Give why a GPU is slowed as a column has room for it."""
    return reason.replace("software", "sw").replace("hardware", "hw")


def margin_role(margin_c: float | None) -> str:
    """Give the role of the degrees left to the thermal limit."""
    if margin_c is None or margin_c > _WARM_C:
        return "title"
    return "warn" if margin_c > _HOT_C else "bad"


def margin_of(gpu: GpuReading) -> float | None:
    """Give the degrees left to the thermal limit, or to the slowdown if only that is told."""
    if gpu.limit_margin_c is not None:
        return gpu.limit_margin_c
    if gpu.slowdown_c is None or gpu.temperature_c is None:
        return None
    return gpu.slowdown_c - gpu.temperature_c


def energy_text(energy_j: float) -> str:
    """Give an energy in kWh, or Wh where it is little."""
    wh = energy_j / 3600
    size, unit = (wh / 1000, "kWh") if wh >= 1000 else (wh, "Wh")
    return f"{size:.1f} {unit}" if size < 100 else f"{size:.0f} {unit}"


def clock_role(speed: SpeedState) -> str:
    """Give the role of the clock: it stands out where it is what is slow."""
    return "bad" if speed.word == "slow clock" else "title"


def lost_run(lost: Sequence[LostGpu]) -> Run:
    """Return which GPUs are lost in a few words: "GPU 3 lost", "GPUs 3, 5 lost"."""
    numbers_lost = ", ".join(str(gpu.index) for gpu in lost)
    return f"GPU{'s' if len(lost) > 1 else ''} {numbers_lost} lost", "bad"


def lost_rows(lost: Sequence[LostGpu], width: int) -> list[Row]:
    """Return a row for each lost GPU, with its name and the reason."""
    return [
        fit_row(
            [(f"{gpu.index:>2} lost ", "bad"), (f"{gpu.name or '–'}: {gpu.reason or '–'}", "text")], width
        )
        for gpu in lost
    ]


def mig_rows(gpu: GpuReading, width: int) -> list[Row]:
    """Give the instances of a GPU that is split."""
    if not gpu.mig:
        return []
    rows: list[Row] = [] if gpu.mig_instances else [[label("  └ MIG, no instance")]]
    return rows + [_instance(one, width) for one in gpu.mig_instances]


def _instance(one: MigInstance, width: int) -> Row:
    used, total = one.memory_used_bytes, one.memory_total_bytes
    name = f"  └ MIG {one.index} {one.name or '–'}"
    room = max(12, width - 26)
    return [
        (fit(name, room), "text"),
        *bar_runs(share(used, total), 4, "memory"),
        figure(numbers.data(used, 9), known=used is not None),
        label(f" of {numbers.data(total, 9).strip()}"),
    ]


def share(part: float | None, whole: float | None) -> float | None:
    """Give a part of a whole, 0 to 1; None where one is unknown or the whole is nothing."""
    return None if part is None or not whole else part / whole


def of_whole(whole: float | None, unit: str) -> str:
    """Give " of 3003 MHz", or the unit alone where the whole is unknown."""
    return unit if whole is None else f" of {numbers.count(whole, 5).strip()}{unit}"
