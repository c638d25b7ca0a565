"""A figure on the board is whole or absent, and apart from its label, at all sizes of screens and values."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendHistory, BackendView, Latency, Quantile, Snapshot
from sparktop.panels.board.bars import header_row
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import Preset, View
from sparktop.panels.parts.text import row_text
from stage.rehearsal import Rehearsal

pytestmark = pytest.mark.long

CUT = re.compile(r"\d[\d.,]*( ?[A-Za-zµ%°/×]+)?…")
"""Matches a figure, or a figure and its unit, that ends in dots."""
LABELS = """tok/s max run wait cached computed prompt output gen KV load power GPU CPU TTFT ITL E2E queue mem
    req/s hits context rx tx swap headroom GiB tok req mean p50 p95 p99 limit last over of batch steps"""
GLUED = re.compile(rf"(?<![A-Za-z])({'|'.join(LABELS.split())})\d")
NAMES = re.compile(r"VLLM::|vllm server|sparkrun_")
"""Rows with names of processes and containers, whose ends may be left out."""
SIZES = [(60, 14), (80, 22), (93, 26), (120, 34), (160, 40), (200, 48)]
SCENES = ["oscillation", "memory", "kv-starved", "hang-a", "pd-fault", "tp2", "reboot"]
SCALES = [1.0, 37.7, 1234.5]


def large(view: BackendView, scale: float) -> BackendView:
    """Return a backend whose rates, counts, latencies and histories are `scale` times as large."""

    def latency(of: Latency) -> Latency:
        return replace(of, mean_s=scale, p50=Quantile(scale), p95=Quantile(9 * scale), count=90 * scale)

    table = HistoryTable(BackendHistory.__struct_fields__)
    for second in range(100):
        table.append(second, dict.fromkeys(table.series(), scale * (second % 7)))
    return replace(
        view,
        generation_tps=11.3 * scale,
        generation_tps_1s=10.7 * scale,
        prompt_tps=99.9 * scale,
        prompt_cached_tps=17.3 * scale,
        requests_per_s=1.1 * scale,
        running=round(3 * scale),
        waiting=round(2 * scale),
        slots=round(4 * scale),
        generation_tokens=1e4 * scale,
        history=BackendHistory(**table.series()),
        ttft=latency(view.ttft),
        itl=latency(view.itl),
        e2e=latency(view.e2e),
        queue=latency(view.queue),
    )


def texts(shown: Snapshot, size: tuple[int, int]) -> Iterator[str]:
    """Yield the rows of the header, of the board in each view, and of each kind of full screen."""
    width, height = size
    yield row_text(header_row(shown, width))
    scenes = [Scene(shown, width, height, View(preset=preset)) for preset in Preset]
    alone = [PanelKey("node", shown.nodes[0].name), PanelKey("backend", shown.backends[0].name)]
    alone += [PanelKey(kind, one.group) for one in shown.balance for kind in ("balance", "evidence")]
    scenes += [Scene(shown, width, height, zoomed=key) for key in alone]
    for scene in scenes:
        rows = flatten(scene.draw(), width, scene.layout.height)
        yield from (text for text in map(row_text, rows) if not NAMES.search(text))


@pytest.fixture(scope="module", params=SCENES)
def scene(request: pytest.FixtureRequest) -> Snapshot:
    """Return a scenario after a minute and a half."""
    count = 5 if request.param == "kv-starved" else 2
    return Rehearsal(backends=count, nodes=count, scenario=SCENARIOS[request.param]).play(90).snapshot()


@pytest.mark.parametrize("size", SIZES)
def test_no_figure_is_cut_and_none_touches_its_label(scene: Snapshot, size: tuple[int, int]) -> None:
    """Whatever the values, no digits or units end in dots, and a space stands before each figure."""
    for scale in SCALES:
        views = tuple(large(view, scale) if scale > 1 else view for view in scene.backends)
        shown = replace(scene, backends=views)
        wrong = [text for text in texts(shown, size) if CUT.search(text) or GLUED.search(text)]
        assert not wrong, (scale, wrong)
