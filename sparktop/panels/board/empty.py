"""Draws the board without backends: where servers were searched, and what the user can do."""

from __future__ import annotations

from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import SEARCHED_PORTS
from sparktop.panels.parts.frame import framed, name_tab
from sparktop.panels.parts.rows import Row, row_width

_USUAL_WIDTH = 64
"""Least width in cells for which the lines are centred."""


def empty_rows(snapshot: Snapshot, width: int, height: int) -> list[Row]:
    """Draw the panel for a screen without backends: where servers were searched, and what the user can do."""
    if snapshot.searching:
        ports = ", ".join(str(port) for port in SEARCHED_PORTS)
        lines: list[Row] = [
            [("No inference server found yet", "title"), (f" on {', '.join(snapshot.searching)}", "text")],
            [(f"tried ports {ports}", "muted")],
            [("looking again every 30 s", "muted")],
            [],
            [("start one:      ", "muted"), ("vllm serve MODEL", "key")],
            [("or name it:     ", "muted"), ("sparktop http://HOST:8000", "key")],
            [("or just look:   ", "muted"), ("sparktop demo", "key")],
        ]
    else:
        lines = [
            [("No backend to watch", "title")],
            [
                ("name one: ", "muted"),
                ("sparktop http://HOST:8000", "key"),
                (" or in sparktop.toml", "muted"),
            ],
        ]
    inside = height - 2
    above = max(0, (inside - len(lines)) // 2)
    margin = max(1, (width - 2 - max(_USUAL_WIDTH, *map(row_width, lines))) // 2)
    rows: list[Row] = [[]] * above + [[(" " * margin, "text"), *line] for line in lines]
    return framed(rows, width, height, title=name_tab("backend", "", "backends"))
