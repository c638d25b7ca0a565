"""Nodes, backends and balances on the full screen at four sizes, checked over rows of text."""

from __future__ import annotations

import re

import pytest

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.parts.text import row_text
from stage.rehearsal import Rehearsal

pytestmark = pytest.mark.long

SIZES = [(60, 14), (80, 22), (120, 34), (200, 48)]
KINDS = ["node", "backend", "balance", "evidence"]
NAMED = re.compile(r"VLLM::|vllm server|systemd-journ|nvme Compo")
"""Rows with the names of processes and sensors, which may be longer than any column."""
MORE = re.compile(r"… \d+ more")


@pytest.fixture(scope="module", params=["idle router", "oscillation", "five"])
def seen(request: pytest.FixtureRequest) -> Snapshot:
    """Return two backends without a router, two that oscillate, and five."""
    if request.param == "oscillation":
        return Rehearsal(backends=2, nodes=2, scenario=SCENARIOS["oscillation"]).play(150).snapshot()
    count = 5 if request.param == "five" else 2
    return Rehearsal(backends=count, nodes=count).play(150).snapshot()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_and_no_quarter_is_empty(seen: Snapshot, kind: str, size: tuple[int, int]) -> None:
    """Values and sentences are whole, and the largest blank rectangle is at most a quarter of the screen."""
    name = {"node": seen.nodes[0].name, "backend": seen.backends[0].name}.get(kind, seen.balance[0].group)
    scene = Scene(seen, *size, zoomed=PanelKey(kind, name))
    rows = [row_text(row) for row in flatten(scene.draw(), size[0], scene.layout.height)]
    assert [row for row in rows if "…" in row and not NAMED.search(row) and not MORE.search(row)] == []
    assert largest_blank(rows[: size[1]]) <= size[0] * size[1] / 4


def largest_blank(lines: list[str]) -> int:
    """Return the area in cells of the largest rectangle of spaces."""
    best = 0
    heights = [0] * len(lines[0])
    for line in lines:
        heights = [height + 1 if char == " " else 0 for height, char in zip(heights, line, strict=True)]
        for start in range(len(heights)):
            lowest = heights[start]
            for end in range(start, len(heights)):
                lowest = min(lowest, heights[end])
                if not lowest:
                    break
                best = max(best, lowest * (end - start + 1))
    return best
