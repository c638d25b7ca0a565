"""Keys that choose what is shown and in which order, and the line for the filter."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.view import Preset, Sort, backend_order
from sparktop.panels.parts.text import row_text
from sparktop.ui.app import SparktopApp
from sparktop.ui.remembered import recall
from stage.rehearsal import Rehearsal

NAMES = [f"spark-{letter}" for letter in "abcd"]


@cache
def picture() -> Snapshot:
    """Return a snapshot shared by all tests: it is immutable."""
    return Rehearsal(backends=len(NAMES)).play(30).snapshot()


def make_app(**options: object) -> SparktopApp:
    return SparktopApp(picture, **options)  # type: ignore[arg-type]  # each test gives what it names


def text(app: SparktopApp) -> str:
    return "\n".join(row_text(row) for row in app.overview.canvas.rows)


def shown(app: SparktopApp) -> list[str]:
    """Return the names of the selectable backends, in order."""
    return [key.name for key in app.overview._selectable if key.kind == "backend"]


def line(app: SparktopApp) -> Input:
    return app.overview.query_one("#filter", Input)


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def test_v_goes_through_the_views() -> None:
    """Watch, compact, one backend, wall, and back to watch; each shows something else."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        seen, pictures = [], {text(app)}
        for _ in Preset:
            await press(pilot, "v")
            seen.append(app.overview.view.preset)
            pictures.add(text(app))
        assert seen == [Preset.COMPACT, Preset.ONE, Preset.WALL, Preset.WATCH]
        assert len(pictures) == len(Preset)


async def test_one_backend_fills_the_board_and_the_selection_changes_it() -> None:
    """That view shows the first backend alone; the arrows go to the next one and round."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "v", "v")
        assert " spark-a┌" in text(app)
        assert "spark-b" not in text(app)
        await press(pilot, "down", "down")
        assert app.overview.selected == PanelKey("backend", "spark-b")
        assert " spark-b┌" in text(app)
        assert " spark-a┌" not in text(app)
        await press(pilot, "up", "up")
        assert " spark-d┌" in text(app)


async def test_o_goes_through_the_orders_and_the_board_follows() -> None:
    """Each order of the list is used, and backends stand as it says."""
    app = make_app()
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        seen = []
        for _ in Sort:
            await press(pilot, "o")
            seen.append(app.overview.view.sort)
            assert shown(app) == backend_order(picture().backends, seen[-1])
        assert seen == [*list(Sort)[1:], Sort.CONFIG]
        assert shown(app) == NAMES


async def test_typing_filters_at_once() -> None:
    """Each letter narrows the board; all words must occur, in any case; the line shows what was typed."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "slash")
        assert app.focused is line(app)
        assert line(app).display
        await press(pilot, *"RK", "minus", "c")
        assert shown(app) == ["spark-c"]
        await press(pilot, "backspace", "space", "b")
        assert app.overview.view.filter == "RK- b"
        assert "spark-b" in shown(app)


async def test_keys_of_the_board_are_letters_in_the_line() -> None:
    """While it is typed, q, p, t and ? are text and nothing else."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        theme, view = app.theme, app.overview.view
        await press(pilot, "slash", *"qpt", "question_mark")
        assert line(app).value == "qpt?"
        assert app.is_running
        assert (app.theme, app.overview.view.preset, app.overview.frozen) == (theme, view.preset, False)
        assert app.overview.view.boxes == view.boxes
        assert shown(app) == []


async def test_enter_keeps_the_filter() -> None:
    """After Enter the board has the keys again, stays filtered, and its footer says so; / goes on from it."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "slash", "minus", "d", "enter")
        assert app.focused is app.overview.canvas
        assert not line(app).display
        assert shown(app) == ["spark-d"]
        assert "drops filter: -d" in text(app)
        await press(pilot, "slash")
        assert line(app).value == "-d"
        assert shown(app) == ["spark-d"]


async def test_esc_drops_the_filter_while_it_is_typed() -> None:
    """Esc in the line closes it and shows everything again."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "slash", "z")
        assert shown(app) == []
        await press(pilot, "escape")
        assert app.focused is app.overview.canvas
        assert not line(app).display
        assert (app.overview.view.filter, shown(app)) == ("", NAMES)


async def test_esc_drops_a_filter_that_was_kept() -> None:
    """On the board Esc first leaves the full screen, then drops the filter, then the selection."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "slash", "minus", "d", "enter", "down", "z")
        overview = app.overview
        assert overview.zoomed is not None
        await press(pilot, "escape")
        assert overview.view.filter == "-d"
        assert not overview.zoomed
        await press(pilot, "escape")
        assert overview.view.filter == ""
        assert overview.selected is not None
        await press(pilot, "escape")
        assert overview.selected is None


async def test_the_view_is_remembered_and_the_filter_is_not(tmp_path: Path) -> None:
    """What was chosen by keys is there in the next run, from the file named."""
    state = tmp_path / "view.json"
    app = make_app(state=state)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "v", "o", "3", "slash", "a")
    view = recall(state)
    assert (view.preset, view.sort, view.filter) == (Preset.COMPACT, Sort.NAME, "")
    again = make_app(state=state)
    async with again.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert again.overview.view == view
        assert again.overview.view.boxes.events


async def test_moved_keys_do_what_their_entry_does() -> None:
    """A key from the configuration works, the usual one no longer does, and the footer shows the new one."""
    app = make_app(keys={"freeze": "ctrl+x", "view": "F"})
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "p", "v")
        assert (app.overview.frozen, app.overview.view.preset) == (False, Preset.WATCH)
        await press(pilot, "ctrl+x", "F")
        assert (app.overview.frozen, app.overview.view.preset) == (True, Preset.COMPACT)
        assert "F view" in text(app).splitlines()[-1]


async def test_frames_name_the_keys_that_work() -> None:
    """The key in a panel's frame is the one from the configuration; one that has no room is left out."""
    app = make_app(keys={"nodes": "N", "processes": "ctrl+o", "faster": "a"})
    async with app.run_test(size=(120, 36)):
        assert "┐Nnode spark-a┌" in text(app)
        assert "¹" not in text(app)
        assert "Processes" not in text(app)
        assert "²" in text(app)
        assert " a 1 s + " in text(app).splitlines()[0]


async def test_moved_keys_leave_the_line_usable() -> None:
    """Esc leaves the line wherever "back" was put; a palette on a letter does not steal it."""
    app = make_app(keys={"back": "u", "palette": "y"})
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "slash", "u", "y")
        assert line(app).value == "uy"
        assert app.screen is app.overview
        await press(pilot, "escape")
        assert app.focused is app.overview.canvas
        assert app.overview.view.filter == ""


@pytest.mark.parametrize("low", [False, True])
async def test_low_bandwidth_is_said_in_the_header(low: bool) -> None:  # noqa: FBT001 - parametrized
    """With low bandwidth the header says how often it is drawn, and a column stands for more."""
    app = make_app(low_bandwidth=low)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        app._redraw()
        assert ("drawn every 4 s" in text(app).splitlines()[0]) is low
        assert app.overview.coarse == (4 if low else 1)


async def test_a_key_asks_about_the_ranks_of_the_selected_backend() -> None:
    """The selected backend is meant; without one, nothing is asked, and a notice says so."""
    app, asked = make_app(), list[str]()

    def ask(name: str) -> str:
        asked.append(name)
        return f"asked about {name}"

    async with app.run_test(size=(120, 36)) as pilot:
        app.overview.ask_ranks = ask
        await pilot.press("N")
        assert asked == []
        app.overview.selected = PanelKey("backend", "spark-c")
        await pilot.press("N")
        assert asked == ["spark-c"]


async def test_a_full_stop_turns_the_row_of_keys() -> None:
    """Keys that do not fit are on its next pages, also with the mouse; a panel alone has its own."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        first = text(app).splitlines()[-1]
        assert "history" not in first
        pages = [first]
        for _ in range(5):
            await press(pilot, "full_stop")
            pages.append(text(app).splitlines()[-1])
        assert "history" in "".join(pages)
        assert "how many?" in "".join(pages)
        assert pages.count(first) > 1
        at = first.index(" more")
        while text(app).splitlines()[-1] != first:
            await press(pilot, "full_stop")
        await pilot.click(offset=(at, 23))
        await pilot.pause()
        assert text(app).splitlines()[-1] == pages[1]
        await press(pilot, "b")
        assert text(app).splitlines()[-1] != pages[1]
