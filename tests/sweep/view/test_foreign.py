"""Another tool's result as the full screen shows it: all that its file holds, and nothing more.

Curves of agents with their limits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import LevelState, SweepStatus
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.screen import sweep_screen
from sparktop.sweep.compare.imports.files import read_file
from sparktop.sweep.view.result import StoredSource, imported_source
from tests.known import known

RESULTS = Path(__file__).parent.parent.parent / "data" / "results"
FILES = (
    "llama-benchy-0.4.0-c16.json",
    "aiperf-0.13.0-c16.json",
    "guidellm-0.8.1-c16.json",
    "vllm-bench-serve-0.32-c16-detailed.json",
)


def opened(name: str) -> StoredSource:
    return imported_source(read_file(RESULTS / name), title="theirs")


@pytest.mark.parametrize(
    ("name", "size"), [*((name, (80, 24)) for name in FILES), (FILES[0], (60, 16)), (FILES[0], (200, 50))]
)
def test_each_tools_file_fills_the_screen(name: str, size: tuple[int, int]) -> None:
    """The one level is a row with its state; rows are whole at every size."""
    source = opened(name)
    rows = sweep_screen(source.view(), *size)
    assert [row_width(row) for row in rows] == [size[0]] * size[1]
    text = "\n".join(row_text(row) for row in rows)
    assert "c16" in text
    assert "imported from" in text


def test_what_its_file_does_not_tell_is_unknown() -> None:
    """There are no tracks, percentiles or requests; the reason stands in place of the timeline."""
    source = opened(FILES[0])
    view = source.view()
    assert source.result is None
    assert (view.live, view.elapsed_s, view.status) == (None, None, SweepStatus.DONE)
    (level,), (row,) = view.levels, view.rows
    assert level.state is LevelState.DONE
    assert (row.ttft_p50_ms, row.ttft_p95_ms, row.stream_p50_tps) == (None, None, None)
    evidence = known(source.evidence(row.key))
    assert evidence.timelines == ()
    shown = "\n".join(row_text(one) for one in evidence_screen(evidence, 120, 36))
    assert "no timeline: of another tool's file figures are kept, no single requests" in shown
    assert source.evidence(Level("nobody", concurrency_point(1))) is None
