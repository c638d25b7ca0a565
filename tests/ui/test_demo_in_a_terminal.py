"""The demo in a terminal of 80×24: it starts, shows what its scenario holds, and ends at `q`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ui.pseudo_terminal import Terminal
from tests.ui.test_hangups import children, outlived_by

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


@pytest.mark.parametrize(
    ("scenario", "names"),
    [
        ("topologies", (b"spark-a", b"spark-d", b"simple-shuffle")),
        ("recipes", (b"with-5-10", b"without-5-10")),
        ("long-context", (b"spark-131k", b"spark-20k")),
    ],
)
async def test_a_scenario_starts_shows_and_ends(
    tmp_path: Path, scenario: str, names: tuple[bytes, ...]
) -> None:
    """What fits is named on the screen, no traceback is written, and no process is left after `q`.

    Bytes before it that are no UTF-8, as of a Latin-1 terminal, are no keys.
    """
    terminal = Terminal(tmp_path, (80, 24))
    async with terminal.running("demo", "--scenario", scenario) as process:
        for name in names:
            await terminal.until(name)
        pids = children(process.pid)
        assert len(pids) == 1
        async with outlived_by(*pids):
            terminal.type(b"\xff\xe9q")
            assert await process.wait() == 0
    assert b"Traceback" not in terminal.seen
    assert "Traceback" not in terminal.logs()
