"""Rows as they are seen on a terminal: text, widths, and the largest place without a character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.parts.text import Row, row_text, row_width

SIZES = [(60, 14), (80, 22), (120, 34), (200, 48)]
"""Boards of screens of 60×16, 80×24, 120×36 and 200×50 cells, without header and footer."""


def texts(rows: Iterable[Row]) -> list[str]:
    """Return the text of each row."""
    return [row_text(row) for row in rows]


def text_of(rows: Iterable[Row]) -> str:
    """Return the text of all rows, a line each."""
    return "\n".join(texts(rows))


def fitted(rows: Sequence[Row], width: int, height: int | None = None) -> list[str]:
    """Return the text of each row, each checked to be so wide, and there are so many where it is told."""
    assert {row_width(row) for row in rows} == {width}
    assert height in {None, len(rows)}
    return texts(rows)


def flat(scene: Scene) -> list[Row]:
    """Return the rows of a scene, each checked to be as wide as the board."""
    rows = flatten(scene.draw(), scene.width, scene.layout.height)
    assert {row_width(row) for row in rows} == {scene.width}
    return rows


def board(snapshot: Snapshot, size: tuple[int, int], *view: Any, **more: Any) -> list[Row]:  # noqa: ANN401 - what `Scene` takes
    """Return the rows of a snapshot on a board of this size, each checked to be as wide as the board."""
    return flat(Scene(snapshot, *size, *view, **more))


def largest_blank(lines: Sequence[str]) -> int:
    """Return the area in cells of the largest rectangle of spaces."""
    best = 0
    heights = [0] * max(map(len, lines))
    for line in lines:
        blank = (line[at : at + 1] in {"", " "} for at in range(len(heights)))
        heights = [height + 1 if is_blank else 0 for height, is_blank in zip(heights, blank, strict=True)]
        for start, low in enumerate(heights):
            lowest = low
            for end in range(start, len(heights)):
                lowest = min(lowest, heights[end])
                if not lowest:
                    break
                best = max(best, lowest * (end - start + 1))
    return best
