"""Arranges the GPUs of one machine in sections: a single GPU in full or several as a table, and the speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from sparktop.graphics import numbers
from sparktop.model.node import GpuReading
from sparktop.model.snapshot import NodeView
from sparktop.panels.node.gpu.table import gpu_table
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.gpu_figures import (
    TAIL,
    clock_role,
    energy_text,
    lost_rows,
    margin_of,
    margin_role,
    mig_rows,
    of_total,
    share,
    short_reason,
    speed_role,
)
from sparktop.panels.parts.rows import Row, fit_row
from sparktop.panels.parts.sections import Section, bar_row, beside, name_width, percent_run

NOW = "now"
_MOST_WORDS = 6
"""Most lines of the explanation of a speed state; the rest is cut."""


def gpu_sections(view: NodeView, width: int) -> list[Section]:
    """Return a list with the section on the GPUs: a single GPU with all values, or several as a table.

    Without a GPU the section says why there is none.
    """
    sample = view.sample
    gpus = sample.gpus if sample is not None else ()
    if not gpus:
        note = sample.gpu_note if sample is not None else None
        return [Section("GPU", [[label(note or "–")], *lost_rows(view.gpus_lost, width)])]
    if len(gpus) > 1 or view.gpus_lost:
        rows = [*gpu_table(gpus, view.throttled_percent, width), *lost_rows(view.gpus_lost, width)]
        return [Section(f"GPUs · {fleet_name(gpus)}", rows, NOW)]
    window = "now · throttled of 60 s" if view.throttled_percent else NOW
    return [Section(f"GPU · {gpus[0].name or '–'}", _gpu(gpus[0], view, width), window)]


def fleet_name(gpus: Sequence[GpuReading]) -> str:
    """Return the number and name of the GPUs, such as "8 × NVIDIA H200", for each name that occurs."""
    names: dict[str, int] = {}
    for gpu in gpus:
        names[gpu.name or "–"] = names.get(gpu.name or "–", 0) + 1
    return ", ".join(f"{count} × {name}" for name, count in names.items())


def speed_section(view: NodeView, width: int) -> list[Section]:
    """Return a list with the section on the GPUs' speed state (rule, cause, remedy); empty without a GPU."""
    speed = view.speed
    if view.sample is not None and not view.sample.gpus:
        return []
    names = name_width(width)
    rows = _sentence("", [(speed.word, speed_role(speed))], speed.reason, names, width)
    if speed.cause:
        rows += _sentence("likely", [], speed.cause, names, width)
    if speed.fix:
        rows += _sentence("to do", [], speed.fix, names, width)
    return [Section("speed", rows, "against its load")]


def _sentence(name: str, first: Row, text: str, names: int, width: int) -> list[Row]:
    """Return `text` wrapped into rows, behind the styled text `first` or, if this is empty, the label `name`.

    `names` is the width of the labels in cells.
    """
    used = sum(len(run[0]) for run in first)
    indent = max(names, used + 1) if first else names
    lines = wrap(text, max(8, width - indent))[:_MOST_WORDS] or [""]
    head: Row = [*first, label(" " * (indent - used))] if first else [label(name, names)]
    rows: list[Row] = [[*head, (lines[0], "text")]]
    rows += [[label(" " * indent), (line, "text")] for line in lines[1:]]
    return rows


def _gpu(gpu: GpuReading, view: NodeView, width: int) -> list[Row]:
    use, clock, fastest = gpu.utilization_percent, gpu.sm_clock_mhz, gpu.sm_clock_max_mhz
    rows = [
        bar_row("load", None if use is None else use / 100, "gpu", percent_run(use, 6), width, TAIL),
        _temperature(gpu, width),
        bar_row(
            "clock",
            share(clock, fastest),
            "cpu",
            [
                figure(numbers.clock(clock, 6), known=clock is not None, role=clock_role(view.speed)),
                label(of_total(fastest, " MHz")),
            ],
            width,
            TAIL,
        ),
        _power(gpu, width),
    ]
    if gpu.memory_total_bytes is not None or gpu.memory_used_bytes is not None:
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        after: Row = [
            figure(numbers.data(used, 9), known=used is not None),
            label(f" of {numbers.data(total, 9).strip()}"),
        ]
        rows.append(bar_row("memory", share(used, total), "memory", after, width, TAIL))
    return [
        *rows,
        *_energy(gpu, width),
        *_throttling(gpu, view.throttled_percent, width),
        *mig_rows(gpu, width),
    ]


def _power(gpu: GpuReading, width: int) -> Row:
    """Return a row with the GPU's power, as a bar up to the power limit if the driver reports a limit."""
    power, limit = gpu.power_w, gpu.power_limit_w
    watts = figure(numbers.rate(power, 6), known=power is not None)
    if limit is None:
        return [label("power", width - TAIL), watts, label(" W, limit –")]
    return bar_row("power", share(power, limit), "load", [watts, label(of_total(limit, " W"))], width, TAIL)


def _energy(gpu: GpuReading, width: int) -> list[Row]:
    """Return a list with a row for the energy that the GPU used; empty if the driver does not report it."""
    if gpu.energy_j is None:
        return []
    return [
        [
            label("energy", name_width(width)),
            figure(energy_text(gpu.energy_j)),
            label(" since the driver was loaded"),
        ]
    ]


def _temperature(gpu: GpuReading, width: int) -> Row:
    """Return a row with the GPU's temperature as a bar up to its limit (temperature plus thermal margin)."""
    heat, margin = gpu.temperature_c, margin_of(gpu)
    limit = None if heat is None or margin is None else heat + margin
    role = margin_role(margin)
    words = " to limit" if gpu.limit_margin_c is not None else " to slow"
    after: Row = [figure(numbers.count(heat, 6), known=heat is not None, role=role), label(" °C")]
    after += [label(", margin –")] if margin is None else [label(", "), (f"{margin:.0f}", role), label(words)]
    return bar_row("temp", share(heat, limit or 100.0), "load", after, width, TAIL)


def _throttling(gpu: GpuReading, minute: Mapping[str, float], width: int) -> list[Row]:
    """Return rows with the current throttle reasons, then with each reason's share of the last minute."""
    reasons = gpu.throttle_reasons
    words = "not reported by the driver" if reasons is None else ", ".join(reasons) or "nothing slows it down"
    rows: list[Row] = [[label("throttled", name_width(width)), (words, "warn" if reasons else "muted")]]
    return rows + _shares(gpu, minute, width)


def _shares(gpu: GpuReading, minute: Mapping[str, float], width: int) -> list[Row]:
    """Return rows with each throttle reason's percentage of the last minute, two reasons per row.

    If the last minute is not known yet, percentages are those of the last sampling interval.
    """
    known: Mapping[str, float | None] = minute or gpu.throttled_percent
    each = width // 2
    cells = [
        fit_row(
            [
                label(short_reason(reason), each - 7),
                *percent_run(percent, 5, role="warn" if percent else "text"),
            ],
            each,
        )
        for reason, percent in known.items()
    ]
    return beside(cells, 2)
