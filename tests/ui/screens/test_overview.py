"""The interface driven by keys and mouse, on the demo in virtual time."""

from __future__ import annotations

import re

import pytest
from textual.pilot import Pilot

from sparktop.colors.palette import palettes
from sparktop.config.keys import KEYS
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.parts.text import row_text, row_width
from sparktop.ui.app import SparktopApp
from sparktop.ui.keys import clicked_key
from sparktop.ui.report import screen_svg
from sparktop.ui.screens.help import HelpScreen
from stage.rehearsal import Outage, Rehearsal, RouterPart

SIZES = [(80, 24), (120, 36), (200, 50)]


class Stage:
    """A rehearsal with an app on it."""

    def __init__(
        self,
        *,
        outage: Outage | None = None,
        seconds: float = 30,
        backends: int = 2,
        router: RouterPart | None = None,
    ) -> None:
        """Play `seconds`, then make the app."""
        self.rehearsal = Rehearsal(outage=outage, backends=backends, router=router)
        self.rehearsal.play(seconds)
        self.app = SparktopApp(self.rehearsal.store.snapshot)

    def texts(self) -> list[str]:
        """Return the rows on the screen."""
        return [row_text(row) for row in self.app.overview.canvas.rows]

    def text(self) -> str:
        """Return the text of the screen."""
        return "\n".join(self.texts())


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES)
async def test_the_screen_is_exactly_as_large_as_the_terminal(size: tuple[int, int]) -> None:
    """At each size there are as many rows as lines, each as wide as the terminal."""
    stage = Stage()
    async with stage.app.run_test(size=size) as pilot:
        await pilot.pause()
        rows = stage.app.overview.canvas.rows
        assert len(rows) == size[1]
        assert {row_width(row) for row in rows} == {size[0]}
        assert "spark-a" in stage.text()
        assert "spark-b" in stage.text()


async def test_what_is_painted_is_what_the_rows_say() -> None:
    """The strips that Textual gets hold the same text as the rows, before and after a redraw."""
    stage = Stage()
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        for _ in range(3):
            stage.rehearsal.play(1)
            stage.app.overview.redraw()
            await pilot.pause()
            canvas = stage.app.overview.canvas
            assert [canvas.render_line(y).text for y in range(36)] == stage.texts()


async def test_a_resize_lays_out_again() -> None:
    """After a resize everything has the new size; too small says needed and actual size."""
    stage = Stage()
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert {len(text) for text in stage.texts()} == {80}
        await pilot.resize_terminal(59, 15)
        await pilot.pause()
        assert "needs 60×16, has " in stage.text()
        assert "59×15" in stage.text()
        await pilot.resize_terminal(200, 50)
        await pilot.pause()
        assert {len(text) for text in stage.texts()} == {200}


async def test_freeze_keeps_the_picture_and_goes_on_collecting() -> None:
    """While frozen the figures stand still and say so; after it the picture is of now."""
    stage = Stage()
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "p")
        frozen = stage.texts()
        assert "REWIND −0:00" in frozen[0]
        stage.rehearsal.play(20)
        stage.app.overview.redraw()
        assert stage.texts()[1:-2] == frozen[1:-2]
        await press(pilot, "p")
        assert "REWIND" not in stage.text()
        shown = stage.app.overview.shown
        assert shown is not None
        assert shown.at > 49


async def test_boxes_toggle_and_the_last_one_stays() -> None:
    """1 to 4 show and hide boxes; the last visible one cannot be hidden."""
    stage = Stage()
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "3", "4")
        assert "alerts and events" in stage.text()
        assert "of one core" in stage.text()
        await press(pilot, "3", "4", "1")
        assert "NVIDIA GB10" not in stage.text()
        await press(pilot, "2")
        assert "spark-b" in stage.text()


async def test_selection_zoom_and_back() -> None:
    """Arrow keys select, z shows the selected panel alone, esc goes back."""
    stage = Stage()
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "down", "j", "tab")
        assert stage.app.overview.selected == PanelKey("backend", "spark-a")
        await press(pilot, "z")
        assert "spark-b" not in stage.text().replace("spark-b:", "")
        await press(pilot, "escape")
        assert "spark-b" in stage.text()
        await press(pilot, "k", "left")
        assert stage.app.overview.selected == PanelKey("node", "spark-a")


async def test_the_mouse_selects_zooms_and_presses_the_footer() -> None:
    """A click selects a panel, a second one zooms; a click on a label of the footer acts as its key."""
    stage = Stage()
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        await pilot.click("#canvas", offset=(60, 33))
        assert stage.app.overview.selected == PanelKey("backend", "spark-b")
        await pilot.click("#canvas", offset=(60, 33))
        assert stage.app.overview.zoomed == PanelKey("backend", "spark-b")
        await press(pilot, "escape")
        x = stage.texts()[-1].index("pause")
        await pilot.click("#canvas", offset=(x, 35))
        await pilot.pause()
        assert stage.app.overview.frozen


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_a_click_on_a_key_in_a_frame_presses_it(size: tuple[int, int]) -> None:
    """A click on a hot key or its label in a frame does what the key does; a click beside it selects."""
    stage = Stage(router=RouterPart())
    async with stage.app.run_test(size=size) as pilot:
        await pilot.pause()
        rows = stage.app.overview.canvas.rows[:-1]
        found = {}
        for y, row in enumerate(rows):
            x = 0
            for text, role in row:
                if role == "key":
                    found[text] = (x, y)
                x += len(text)
        known = {key.shown: key for key in KEYS}
        assert {"²", "b", "w"} <= found.keys()
        for shown, (x, y) in found.items():
            name = shown.translate(str.maketrans("¹²³⁴", "1234"))
            assert clicked_key(rows, [], x, y) == name
            assert known[name].action
        x, y = found["b"]
        await pilot.click("#canvas", offset=(x + 3, y))
        await pilot.pause()
        assert stage.app.overview.zoomed is not None
        assert stage.app.overview.zoomed.kind == "balance"
        await press(pilot, "escape", "escape")
        await pilot.click("#canvas", offset=found["²"])
        await pilot.pause()
        assert not stage.app.overview.view.boxes.backends


async def test_a_page_key_without_more_rows_says_so() -> None:
    """At the first and at the last row, PgUp and PgDn are answered in one line."""
    stage = Stage()
    async with stage.app.run_test(size=(120, 36), notifications=True) as pilot:
        for key, end in (("pageup", "first"), ("pagedown", "last")):
            await press(pilot, key)
            (note,) = stage.app._notifications
            assert note.message == f"the {end} row is on the screen already"


async def test_more_backends_than_fit_scroll() -> None:
    """Of 40 backends on 80x24 the table says how many it shows; the selection brings the last one."""
    stage = Stage(backends=40, seconds=6)
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "v")
        assert "of 40" in stage.text()
        assert "spark-40" not in stage.text()
        await press(pilot, "up")
        assert "spark-40" in stage.text()
        assert stage.texts()[0].startswith(" SIMULATED")


async def test_help_lists_every_key() -> None:
    """The help is made from the table of keys and closes with esc."""
    stage = Stage()
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "question_mark")
        assert type(stage.app.screen).__name__ == HelpScreen.__name__
        text = HelpScreen.text(KEYS).plain
        assert all(key.help in text for key in KEYS)
        await press(pilot, "escape")
        assert stage.app.screen is stage.app.overview


async def test_themes_go_round_by_key_and_restyle_everything() -> None:
    """T goes through all themes and comes back; each repaints in its own background."""
    stage = Stage()
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        seen = []
        for _ in palettes():
            await press(pilot, "t")
            seen.append(stage.app.theme)
            style = next(iter(stage.app.overview.canvas.render_line(0))).style
            assert style is not None
            assert style.bgcolor is not None
        assert sorted(seen) == sorted(palettes())


async def test_the_interval_keys_step() -> None:
    """Plus lengthens the interval, minus shortens it, and the header shows it."""
    rehearsal = Rehearsal()
    rehearsal.play(10)
    app = SparktopApp(rehearsal.store.snapshot)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "plus")
        assert app.interval_s == 2.0
        await press(pilot, "minus", "minus")
        assert app.interval_s == 0.5


def test_no_key_is_bound_twice() -> None:
    """Every key of the table does one thing."""
    keys = [name for key in KEYS for name in key.keys]
    assert len(keys) == len(set(keys))


async def test_a_dead_backend_says_so_on_its_panel() -> None:
    """The panel of a backend that stopped answering stays, with the reason and since when."""
    stage = Stage(outage=Outage(1, 20))
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert re.search(r"✖ nothing listens .* since \d\d:\d\d:\d\d", stage.text())
        assert "unreachable" in stage.text()
        assert "✖ spark-b down (e)" in stage.texts()[0]


async def test_the_svg_is_the_same_each_time_and_loads_no_font() -> None:
    """Two drawings of one state are the same bytes, without a web font, with fonts that have braille."""
    pictures = []
    for _ in range(2):
        stage = Stage()
        async with stage.app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            pictures.append(screen_svg(stage.app))
    assert pictures[0] == pictures[1]
    assert "@font-face" not in pictures[0]
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg|192\.168\.100\.1)", pictures[0]) == []
    assert "url(http" not in pictures[0]
    assert "DejaVu Sans Mono" in pictures[0]


async def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR no style has a colour; weight remains."""
    monkeypatch.setenv("NO_COLOR", "1")
    stage = Stage()
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        styles = [s.style for y in range(24) for s in stage.app.overview.canvas.render_line(y)]
        assert all(style is not None and style.color is None and style.bgcolor is None for style in styles)
        assert any(style is not None and style.bold for style in styles)


async def test_zoom_shows_what_the_header_is_about() -> None:
    """Without a selection, z shows the backend that the header names, not the first one."""
    stage = Stage(outage=Outage(1, 20))
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "z")
        assert stage.app.overview.zoomed == PanelKey("backend", "spark-b")
