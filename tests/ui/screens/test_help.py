"""The help: in groups, wrapped with its indent, searched by typing; Enter runs what was found."""

from __future__ import annotations

from functools import cache

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Static

from sparktop.config.keys import KEYS
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.parts.figures import wrapped
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.help import HelpScreen
from sparktop.ui.screens.menu import MenuScreen
from stage.rehearsal import Rehearsal


@cache
def picture() -> Snapshot:
    """Return a snapshot shared by all tests: it is immutable."""
    return Rehearsal().play(10).snapshot()


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


def told(app: SparktopApp) -> list[str]:
    return str(app.screen.query_one("#help", Static).render()).splitlines()


def test_every_key_is_in_a_group() -> None:
    """Once, under a heading, whatever its name is."""
    found = [entry.key for section in HelpScreen.sections(KEYS) for entry in section.entries if entry.key]
    assert sorted(key.name for key in found) == sorted(key.name for key in KEYS)


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (200, 50)])
async def test_wrapped_lines_keep_their_indent(size: tuple[int, int]) -> None:
    """A line begins with a heading, a key or label, or the blanks of the second column.

    A label that is too long for its column stands in a row of its own.
    """
    app = SparktopApp(picture)
    async with app.run_test(size=size) as pilot:
        await press(pilot, "question_mark")
        lines = told(app)
        width = app.screen.query_one("#help", Static).content_region.width
        assert max(map(len, lines)) <= width
        headings = {part for one in HelpScreen.sections(KEYS) for part in wrapped(one.title, width - 1)}
        words = {entry.head for one in HelpScreen.sections(KEYS) for entry in one.entries}
        graphs = next(at for at, line in enumerate(lines) if line == "Graphs")
        for line in lines[:graphs]:
            assert not line or line in headings or line.startswith(" ")
            assert line[:13].strip() == "" or line in headings or line[12] == " " or line[1:] in words


async def test_typing_searches_and_esc_goes_back_step_by_step() -> None:
    """Only entries with all words stay; backspace and esc widen the search, esc then closes."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "question_mark")
        everything = told(app)
        await press(pilot, *"ktv ", *["backspace"] * 3, *"v")
        assert any("98 % of the KV cache" in line for line in told(app))
        assert len(told(app)) < len(everything) / 2
        await press(pilot, *"zzz")
        assert told(app) == ["nothing found: fewer letters find more"]
        await press(pilot, "escape")
        assert told(app) == everything
        await press(pilot, "escape")
        assert app.screen is app.overview


async def test_enter_runs_what_was_found() -> None:
    """The marked key's action happens on the screen below, as if the key had been pressed."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "ctrl+p", *"alerts full")
        assert told(app)[1].startswith("▸e")
        await press(pilot, "enter")
        assert app.screen is app.overview
        assert app.overview.zoomed == PanelKey("events", "")
        await press(pilot, "ctrl+p", *"quit", "escape", "escape", "escape")
        assert app.overview.zoomed is None


async def test_the_search_finds_settings_and_opens_the_menu_there() -> None:
    """A word of a setting finds it; Enter opens the options with that setting marked."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "question_mark", *"slow clock")
        assert any(line.startswith("Options") for line in told(app))
        assert any(line.startswith("▸slow clock: ") for line in told(app))
        await press(pilot, "enter")
        assert isinstance(app.screen, MenuScreen)
        assert app.screen._chosen.file_name == "alerts.slow_clock_mhz"


@pytest.mark.parametrize("size", [(60, 16), (80, 24)])
async def test_tab_goes_from_group_to_group(size: tuple[int, int]) -> None:
    """Each tab brings the next heading to the first line, shift and tab the one before."""
    app = SparktopApp(picture)
    async with app.run_test(size=size) as pilot:
        await press(pilot, "question_mark")
        for title in ("Sweeps (load tests)", "Move", "Back in time"):
            await press(pilot, "tab")
            box = app.screen.query_one(VerticalScroll)
            assert told(app)[round(box.scroll_y)] == title
        await press(pilot, "shift+tab", "shift+tab", "tab")
        assert told(app)[round(app.screen.query_one(VerticalScroll).scroll_y)] == "Move"


async def test_arrows_mark_another_of_the_keys_found() -> None:
    """Down goes to the next and round; Enter runs the one that is marked."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "ctrl+p", *"show or hide", "down")
        assert [line[1] for line in told(app) if line.startswith("▸")] == ["2"]
        await press(pilot, "enter")
        assert not app.overview.view.boxes.backends


async def test_q_closes_unless_it_is_searched() -> None:
    """As the first key q, ? and Enter close; after / they belong to the search."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("q", "question_mark", "enter", "f1"):
            await press(pilot, "question_mark", key)
            assert app.screen is app.overview
        await press(pilot, "question_mark", "slash", *"queueing")
        assert any("requests waited" in line for line in told(app))
