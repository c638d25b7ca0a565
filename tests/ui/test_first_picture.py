"""The picture before Textual is loaded is the one that Textual draws, and leaves the terminal as it was."""

from __future__ import annotations

import os
import signal
import termios
from dataclasses import replace
from pathlib import Path

import pytest
from rich.color import ColorSystem

from sparktop.colors.palette import palettes
from sparktop.config.keys import KEYS
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.panels.board.view import Preset, View
from sparktop.panels.parts.rows import row_text
from sparktop.store import Store
from sparktop.ui.app import SparktopApp
from sparktop.ui.first_picture import can_draw, first_rows, sequences
from sparktop.ui.keys import key_table
from sparktop.ui.remembered import remember
from sparktop.ui.styles import RoleStyles
from sparktop.ui.terminal.frugal import _parts
from sparktop.watch.monitor import Monitor
from stage.rehearsal import Rehearsal
from tests.ui.pseudo_terminal import Terminal

WATCH = Watch(
    nodes=(NodeTarget("spark-a"), NodeTarget("spark-b")),
    backends=(BackendTarget("vllm-a", "http://a:8000"), BackendTarget("vllm-b", "http://b:8000")),
    keys={"zoom": "g"},
)
COLORS = {"COLORTERM": "truecolor"}


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 36), (200, 50)])
@pytest.mark.parametrize("preset", list(Preset))
async def test_the_rows_are_those_of_the_overview(
    tmp_path: Path, size: tuple[int, int], preset: Preset
) -> None:
    """At each size and preset, with a key of the user: all rows are equal except the row of keys."""
    snapshot, state = Store(WATCH).snapshot(), tmp_path / "view.json"
    assert remember(state, View(preset=preset)) is None
    app = SparktopApp(lambda: snapshot, watch=WATCH, keys=WATCH.keys, state=state)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        first = first_rows(snapshot, size, View(preset=preset), key_table(WATCH.keys, WATCH))
        assert first[:-1] == list(app.overview.canvas.rows)[:-1]
        assert len(first) == size[1]


class Quiet(Monitor):
    """A monitor that polls nothing: the test provides the pictures."""

    async def start(self) -> None:
        """Poll nothing."""


async def test_the_first_answer_is_drawn_before_the_next_drawing_is_due() -> None:
    """With a minute between two drawings, the first figures are on the screen as soon as they arrive."""
    answered = Rehearsal().play(30).snapshot()
    connecting = tuple(BackendView(view.name, view.url, view.group) for view in answered.backends)
    shown = replace(answered, backends=connecting, nodes=(), balance=())
    store = Store(WATCH)
    app = SparktopApp(lambda: shown, monitor=Quiet(WATCH, store), interval_s=60.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert not any("gpt-oss" in row_text(row) for row in app.overview.canvas.rows)
        shown = replace(shown, backends=answered.backends)
        for _ in range(200):
            await pilot.pause(0.02)
            if any("gpt-oss" in row_text(row) for row in app.overview.canvas.rows):
                return
    raise AssertionError("the figures are not drawn")


def test_a_terminal_that_is_too_small_is_left_to_textual() -> None:
    """Below 60×16 no rows are drawn."""
    assert first_rows(Store(WATCH).snapshot(), (59, 15), View(), KEYS) == []


def test_styles_are_those_of_textual() -> None:
    """Each role of each theme of 24-bit colours has the attributes and colours that Textual sends later."""
    compared = 0
    for palette in palettes().values():
        if palette.ansi or palette.transparent:
            continue
        styles = RoleStyles(palette)
        for role in (*palette.colors, *(f"{name}/3" for name in palette.gradients)):
            parts = _parts(styles[role], ColorSystem.TRUECOLOR)
            wanted = ";".join(["0", *(part for part in parts if part)])
            assert sequences([[("x", role)]], palette) == f"\x1b[1;1H\x1b[{wanted}mx\x1b[0m"
            compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    ("theme", "env"),
    [
        ("spark-dark", {}),
        ("spark-dark", {"COLORTERM": "truecolor", "NO_COLOR": "1"}),
        ("spark-ansi", COLORS),
        ("spark-dark", COLORS),  # the tests have no terminal
    ],
)
def test_other_terminals_and_themes_are_left_to_textual(theme: str, env: dict[str, str]) -> None:
    """Without a terminal of 24-bit colours, or with a theme of 16 colours, Textual draws first."""
    assert not can_draw(palettes()[theme], env)


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_start_that_is_interrupted_restores_the_terminal(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A signal while Textual is loaded: the screen, the cursor and the echo of keys are as before."""
    (tmp_path / "textual").mkdir()
    waits = "import threading\nthreading.Event().wait()"
    (tmp_path / "textual" / "__init__.py").write_text(waits, encoding="utf-8")
    terminal = Terminal(tmp_path)
    terminal.env |= {**COLORS, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "sparktop.toml").write_text('[[backends]]\nname = "b"\nurl = "http://127.0.0.1:9"\n')
    slave = os.dup(terminal.slave)
    before = termios.tcgetattr(slave)
    async with terminal.running("--config", str(tmp_path / "sparktop.toml")) as process:
        await terminal.until(b"connecting")
        process.send_signal(number)
        await terminal.until(b"\x1b[?25h\x1b[?1049l")
        assert await process.wait() == 128 + number
        assert terminal.seen.count(b"\x1b[?1049h") == 1
        assert termios.tcgetattr(slave) == before
    os.close(slave)
