"""A node of a cluster as a small panel beside the other nodes of the same backend."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.snapshot import NodeView, SpeedState
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.gpu_figures import (
    TAIL,
    clock_role,
    lost_run,
    margin_of,
    margin_role,
    of_total,
    share,
    speed_role,
)
from sparktop.panels.parts.rows import Row, fit_row, in_role, row_width
from sparktop.panels.parts.sections import bar_row, name_width, percent_run


def node_tile(name: str, view: NodeView | None, width: int) -> list[Row]:
    """Return the node `name` as seven rows of `width` cells; `view` is None if it is not watched."""
    speed = view.speed if view is not None else SpeedState()
    word = speed.word if view is not None and view.sample is not None else ""
    role = speed_role(speed)
    if view is not None and view.gpus_lost:
        word, role = lost_run(view.gpus_lost)
    title: Row = [("─ ", "border"), (fit(name, min(cell_width(name), width - 20)), "accent"), (" ", "border")]
    status: Row = [(f" {word} ", role), ("─", "border")] if word else []
    gap = width - row_width(title) - row_width(status)
    rows = [[*title, ("─" * gap, "border"), *status]]
    if view is None or view.sample is None:
        why = "not watched" if view is None else "no answer yet"
        rows += [[label(why)], *([[]] * 5)]
    else:
        rows += _tile_rows(view, width)
    fitted = [fit_row(row, width) for row in rows]
    stale = view is not None and view.failure is not None
    return [in_role(row, "stale") for row in fitted] if stale else fitted


def _tile_rows(view: NodeView, width: int) -> list[Row]:
    sample, history = view.sample, view.history
    assert sample is not None  # noqa: S101 - held by the caller
    if not sample.gpus:
        return [[label(sample.gpu_note or "no GPU")], *([[]] * 5)]
    use, heat = history.gpu_percent.last, history.temperature_c.last
    power, clock = history.power_w.last, history.sm_clock_mhz.last
    fastest = max((gpu.sm_clock_max_mhz or 0 for gpu in sample.gpus), default=0) or None
    margins = [left for left in map(margin_of, sample.gpus) if left is not None]
    margin = min(margins, default=None)
    limit = 100.0 if heat is None or margin is None else heat + margin
    memory = sample.memory
    after: Row = [figure(numbers.count(heat, 5), known=heat is not None, role=margin_role(margin))]
    after.append(label(" °C" if margin is None else f" °C, {margin:.0f} left"))
    ports = [link for link in sample.network if link.kind == "rdma" and link.up is not False]
    rx = [port.rx_bytes_per_s for port in ports if port.rx_bytes_per_s is not None]
    tx = [port.tx_bytes_per_s for port in ports if port.tx_bytes_per_s is not None]
    used_gib = None if memory.used_bytes is None else memory.used_bytes / 2**30
    total = "" if memory.total_bytes is None else f" of {memory.total_bytes / 2**30:.1f}"
    return [
        bar_row("GPU", None if use is None else use / 100, "gpu", percent_run(use, 5), width, TAIL),
        bar_row("temp", share(heat, limit), "load", after, width, TAIL),
        bar_row(
            "clock",
            share(clock, fastest),
            "cpu",
            [
                figure(numbers.clock(clock, 5), known=clock is not None, role=clock_role(view.speed)),
                label(of_total(fastest, " MHz")),
            ],
            width,
            TAIL,
        ),
        [label("power", width - TAIL), figure(numbers.count(power, 5), known=power is not None), label(" W")],
        bar_row(
            "memory",
            share(memory.used_bytes, memory.total_bytes),
            "memory",
            [
                figure("    –" if used_gib is None else f"{used_gib:5.1f}", known=used_gib is not None),
                label(f"{total} GiB"),
            ],
            width,
            TAIL,
        ),
        [
            label("RDMA", name_width(width)),
            *([label("no port")] if not ports else _in_out(sum(rx) if rx else None, sum(tx) if tx else None)),
        ],
    ]


def _in_out(rx: float | None, tx: float | None) -> Row:
    return [
        label("in "),
        figure(numbers.data_rate(rx, 9).strip(), known=rx is not None),
        label("  out "),
        figure(numbers.data_rate(tx, 9).strip(), known=tx is not None),
    ]
