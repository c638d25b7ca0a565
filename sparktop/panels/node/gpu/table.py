"""Several GPUs as a compact table: a row for each GPU, and their totals at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.node import GpuReading
from sparktop.panels.parts.figures import bar_runs, figure, label, share_role
from sparktop.panels.parts.gpu_figures import energy_text, margin_of, margin_role, mig_rows, short_reason
from sparktop.panels.parts.rows import Row, row_width
from sparktop.panels.parts.sections import percent_run

_WITH_MARGIN = 52
"""Width in cells from which on the thermal margin has a column; below, it only colours the temperature."""


def gpu_table(gpus: Sequence[GpuReading], minute: Mapping[str, float], width: int) -> list[Row]:
    """Return a table of GPUs: a row per GPU and MIG instance, a row of totals, and throttle reasons.

    `minute` maps throttle reasons to the percentage of the last minute in which they were active.
    """
    unified = all(gpu.memory_total_bytes is None for gpu in gpus)
    left = width >= _WITH_MARGIN
    room = width - (30 if unified else 41) + (0 if left else 5)
    bar = max(3, min(16, room - 20))
    last = max(4, room - bar)
    memory = "" if unified else f"{'memory GiB':>10} "
    head = f"{'':3}{'use':<{bar + 7}}{memory}{'W':>5}{'°C':>4}{'left' if left else '':>{5 if left else 0}}"
    rows: list[Row] = [[label(f"{head}{'MHz':>5} {'slowed by' if last >= len('slowed by') else 'why'}")]]
    for gpu in gpus:
        rows.append(_table_row(gpu, bar, last, unified=unified, left=left))
        rows += mig_rows(gpu, width)
    rows.append(_totals(gpus, width))
    worst = [
        f"{short_reason(name)} {numbers.percent(share).strip()}" for name, share in minute.items() if share
    ]
    if minute:
        rows.append(
            [
                label("throttled, worst GPU, 60 s: "),
                (", ".join(worst) or "never", "warn" if worst else "muted"),
            ]
        )
    return rows


def _table_row(gpu: GpuReading, bar: int, last: int, *, unified: bool, left: bool) -> Row:
    use, margin, reasons = gpu.utilization_percent, margin_of(gpu), gpu.throttle_reasons
    heat, clock, role = gpu.temperature_c, gpu.sm_clock_mhz, margin_role(margin)
    words = "–" if reasons is None else ", ".join(reason.removeprefix("software ") for reason in reasons)
    row: Row = [
        label(f"{gpu.index:>2} "),
        *bar_runs(None if use is None else use / 100, bar, "gpu"),
        *percent_run(use, 6),
        (" ", "text"),
    ]
    if not unified:
        row += [*_used_of(gpu), (" ", "text")]
    row += [
        figure(numbers.count(gpu.power_w, 5), known=gpu.power_w is not None),
        figure(numbers.count(heat, 4), known=heat is not None, role=role),
    ]
    if left:
        row.append(figure(numbers.count(margin, 5), known=margin is not None, role=role))
    return [
        *row,
        figure(numbers.clock(clock, 5), known=clock is not None),
        (f" {fit(words.replace('hardware', 'hw'), last)}", "warn" if reasons else "muted"),
    ]


def _used_of(gpu: GpuReading) -> Row:
    """Return used and total memory of a GPU in GiB, such as "94.6/141", in ten cells."""
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    first = numbers.UNKNOWN if used is None else f"{used / 2**30:.1f}"
    second = numbers.UNKNOWN if total is None else f"{total / 2**30:.0f}"
    percent = None if used is None or not total else 100 * used / total
    text = f"{first}/{second}"
    return [(fit(text, 10, "right"), "muted" if used is None else share_role(percent, 97, 101))]


def _totals(gpus: Sequence[GpuReading], width: int) -> Row:
    """Return the table's last row in `width` cells: mean use, power and energy of the GPUs that report them.

    If not all GPUs report their power, the number of those that do stands behind the power.
    """
    power = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    use = [gpu.utilization_percent for gpu in gpus if gpu.utilization_percent is not None]
    energy = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
    mean = sum(use) / len(use) if use else None
    row: Row = [label("all "), figure(numbers.percent(mean).strip(), known=mean is not None)]
    row.append(label(" mean, "))
    watts = sum(power) if power else None
    row += [figure(numbers.count(watts, 6).strip(), known=watts is not None), label(" W")]
    if len(power) < len(gpus) and power:
        row.append(label(f" of {len(power)}"))
    if energy:
        words = f", {energy_text(sum(energy))}"
        row.append(label(f"{words} so far" if row_width(row) + len(f"{words} so far") <= width else words))
    return row
