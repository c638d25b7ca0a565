"""The board before any server is found: whole at 80 columns, with the ports that are searched."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.targets import SEARCHED_PORTS
from sparktop.panels.board.scene import empty_rows
from sparktop.panels.parts.text import row_text, row_width
from sparktop.watch.discovery import USUAL_PORTS
from stage.rehearsal import Rehearsal


@pytest.mark.parametrize("width", [80, 120, 200])
def test_all_ports_and_the_pause_are_named(width: int) -> None:
    """No row of the panel is cut, and the ports are those of the search, the router's too."""
    shown = replace(Rehearsal().store.snapshot(), backends=(), searching=("localhost",))
    rows = empty_rows(shown, width, 12)
    assert {row_width(row) for row in rows} == {width}
    text = "\n".join(map(row_text, rows))
    assert "…" not in text
    assert "looking again every 30 s " in text
    assert f"tried ports {', '.join(map(str, SEARCHED_PORTS))} " in text
    assert set(SEARCHED_PORTS) == set(USUAL_PORTS.http)
