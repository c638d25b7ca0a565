"""Values of a GPU, the same in every panel: thermal margin, throttle reasons, energy, MIG instances."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.node import GpuReading, LostGpu, MigInstance
from sparktop.model.snapshot import SpeedState
from sparktop.panels.parts.figures import bar_runs, figure, label
from sparktop.panels.parts.rows import Row, Run, fit_row

TAIL = 22
"""Width in cells of the values to the right of a GPU's bars."""
_WARM_C, _HOT_C = 10.0, 4.0
"""Degrees left to the thermal limit from which on they are drawn as a warning, and as bad."""
_SPEED_ROLES = {
    "normal": "good",
    "idle": "muted",
    "unknown": "muted",
    "throttled": "warn",
    "slow clock": "bad",
    "slow steps": "bad",
}


def speed_role(speed: SpeedState) -> str:
    """Return the role (colour name) of a GPU's speed state."""
    return _SPEED_ROLES.get(speed.word, "warn")


def short_reason(reason: str) -> str:
    """Return a throttle reason with "software" and "hardware" abbreviated, for narrow columns."""
    return reason.replace("software", "sw").replace("hardware", "hw")


def margin_role(margin_c: float | None) -> str:
    """Return the role (colour name) for a GPU's thermal margin in degrees: "bad" or "warn" if it is small.

    "text" if the margin is large or unknown.
    """
    if margin_c is None or margin_c > _WARM_C:
        return "text"
    return "warn" if margin_c > _HOT_C else "bad"


def margin_of(gpu: GpuReading) -> float | None:
    """Return by how many degrees a GPU is below its thermal limit; None if unknown.

    If the limit is not reported, use the temperature at which the GPU slows down.
    """
    if gpu.limit_margin_c is not None:
        return gpu.limit_margin_c
    if gpu.slowdown_c is None or gpu.temperature_c is None:
        return None
    return gpu.slowdown_c - gpu.temperature_c


def energy_text(energy_j: float) -> str:
    """Format an energy of `energy_j` joules in Wh, or in kWh from 1 kWh on."""
    wh = energy_j / 3600
    size, unit = (wh / 1000, "kWh") if wh >= 1000 else (wh, "Wh")
    return f"{size:.1f} {unit}" if size < 100 else f"{size:,.0f} {unit}"


def clock_role(speed: SpeedState) -> str:
    """Return the role (colour name) of a GPU's clock: "bad" if `speed` is "slow clock", else "text"."""
    return "bad" if speed.word == "slow clock" else "text"


def lost_run(lost: Sequence[LostGpu]) -> Run:
    """Return which GPUs are lost as a styled text segment: "GPU 3 lost" or "GPUs 3, 5 lost"."""
    numbers_lost = ", ".join(str(gpu.index) for gpu in lost)
    return f"GPU{'s' if len(lost) > 1 else ''} {numbers_lost} lost", "bad"


def lost_rows(lost: Sequence[LostGpu], width: int) -> list[Row]:
    """Return a row for each lost GPU with its index, its name and the reason."""
    return [
        fit_row(
            [(f"{gpu.index:>2} lost ", "bad"), (f"{gpu.name or '–'}: {gpu.reason or '–'}", "text")], width
        )
        for gpu in lost
    ]


def mig_rows(gpu: GpuReading, width: int) -> list[Row]:
    """Return a row for each MIG instance of a GPU; empty for a GPU that is not split."""
    if not gpu.mig:
        return []
    rows: list[Row] = [] if gpu.mig_instances else [[label("  └ MIG, no instance")]]
    return rows + [_instance(instance, width) for instance in gpu.mig_instances]


def _instance(instance: MigInstance, width: int) -> Row:
    used, total = instance.memory_used_bytes, instance.memory_total_bytes
    name = f"  └ MIG {instance.index} {instance.name or '–'}"
    room = max(12, width - 26)
    return [
        (fit(name, room), "text"),
        *bar_runs(share(used, total), 4, "memory"),
        figure(numbers.data(used, 9), known=used is not None),
        label(f" of {numbers.data(total, 9).strip()}"),
    ]


def share(part: float | None, total: float | None) -> float | None:
    """Return `part` / `total`; None if either is unknown or the total is 0."""
    return None if part is None or not total else part / total


def of_total(total: float | None, unit: str) -> str:
    """Format a total as text that follows a value, such as " of 3003 MHz"; only the unit if it is unknown."""
    shown = numbers.clock if unit.endswith("Hz") else numbers.count
    return unit if total is None else f" of {shown(total, 5).strip()}{unit}"
