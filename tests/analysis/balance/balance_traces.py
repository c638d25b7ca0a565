"""The recorded traces of real servers behind real routers, as tracks."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path

from sparktop.analysis.balance.load_grid import LoadTrack
from tests.analysis.balance.routed_load import rates

TRACES = Path(__file__).resolve().parent.parent.parent / "data" / "traces"
LIFE_S = {
    "leastbusy-c16": 3.6,
    "leastbusy-c16-b": 3.2,
    "leastbusy-c16-busy": 4.9,
    "leastbusy-c16-busy-b": 4.9,
    "shuffle-c16": 3.6,
    "shuffle-c16-b": 3.6,
    "shuffle-c16-busy": 4.9,
    "shuffle-c16-busy-b": 4.9,
    "shuffle-c16-busy-c": 4.9,
    "shuffle-c16-busy-d": 4.9,
    "leastbusy-c2": 1.5,
    "cooldown-c64": 19.0,
    "leastbusy-warm-c64": 13.0,
    "shuffle-c64": 13.0,
}
"""How long a request lived, nearly, by trace."""


@cache
def trace(name: str) -> tuple[LoadTrack, LoadTrack]:
    """Read the tracks of a trace's two backends: samples at 4 Hz, tokens per second over the last second."""
    with (TRACES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            {key: float(value) if value else math.nan for key, value in row.items()}
            for row in csv.DictReader(file)
        ]
    times = [row["t_s"] for row in rows]

    def backend(side: str) -> LoadTrack:
        return LoadTrack(
            name=f"spark-{side}",
            times_s=times,
            running=[row[f"running_{side}"] for row in rows],
            waiting=[row[f"waiting_{side}"] for row in rows],
            generation_tps=rates(times, [row[f"generated_{side}"] for row in rows]),
        )

    return backend("a"), backend("b")
