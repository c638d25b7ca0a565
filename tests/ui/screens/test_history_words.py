"""The history on the screen: keys, mouse, deletion and comparison, at every size."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from sparktop.panels.parts.text import row_text, row_width
from sparktop.sweep.history import History
from sparktop.sweep.view.result import ForeignView
from sparktop.ui.path_completion import completed
from sparktop.ui.screens.sweep import SweepScreen
from sparktop.ui.screens.sweep_history import DifferenceScreen, HistoryScreen
from tests.ui.history_stage import RESULTS, SIZES, Shown, five_results


@pytest.fixture
def filled(tmp_path: Path) -> Shown:
    return five_results(tmp_path)


async def test_a_search_is_answered_as_it_is_typed(filled: Shown) -> None:
    """Rows that do not have the words go; Enter keeps the search, Esc drops it and stays on the row."""
    async with filled.on():
        await filled.press("slash", "n", "3")
        assert "1 result found for “n3”" in filled.rows[0]
        await filled.press("enter", "enter")
        assert len(filled.opened) == 1
        await filled.press("slash")
        assert filled.screen.query_one(Input).value == "n3"
        await filled.press("escape")
        assert "5 results" in filled.rows[0]
        await filled.press("slash", "x", "x", "enter")
        assert "nothing found for “xx”" in filled.text
        await filled.press("escape")
        assert "5 results" in filled.rows[0]
        assert isinstance(filled.pilot.app.screen, HistoryScreen)


@pytest.mark.parametrize("size", SIZES)
async def test_a_searched_history_fills_the_screen(filled: Shown, size: tuple[int, int]) -> None:
    """The title says what was searched for, at every size."""
    async with filled.on(size):
        await filled.press("slash", "n", "3", "enter")
        assert [row_width(row) for row in filled.screen.canvas.rows] == [size[0]] * size[1]
        assert "found for “n3”" in filled.rows[0]
        assert "n3" in filled.rows[2]


async def test_what_is_typed_is_no_key(filled: Shown) -> None:
    """Letters of a search delete, mark and open nothing."""
    async with filled.on():
        await filled.press("slash", *"duck ic", "space")
        assert filled.screen.query_one(Input).value == "duck ic "
        await filled.press("escape")
        assert "5 results" in filled.rows[0]


async def test_a_file_of_another_tool_is_brought_in_and_opened(filled: Shown) -> None:
    """Its path is asked, its row is chosen, Enter opens it, and it is compared as our own are."""
    async with filled.on():
        await filled.press("i")
        await filled.type(str(RESULTS / "llama-benchy-0.4.0-c16.json"))
        await filled.press("enter")
        assert filled.current == "imported/llama-benchy-0.4.0-c16.json"
        assert "llama-benchy 0.4.0" in filled.text
        assert "6 results" in filled.rows[0]
        await filled.press("enter")
        assert isinstance(filled.opened[0], ForeignView)
        await filled.press("space", "home", "c")
        assert isinstance(filled.pilot.app.screen, DifferenceScreen)


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_opened_fills_the_screen_of_a_sweep(filled: Shown, size: tuple[int, int]) -> None:
    """A result of ours and one of another tool are shown with their levels, and why each is as it is."""
    key = History(filled.folder).import_file(RESULTS / "llama-benchy-0.4.0-c16.json")
    async with filled.on(size):
        for wanted, level in (("4.json", "c2"), (key, "c16")):
            await filled.press("home")
            while filled.current != wanted:
                await filled.press("down")
            await filled.press("enter")
            filled.pilot.app.push_screen(SweepScreen(filled.screen.canvas.role_styles, filled.opened[-1]))
            await filled.settled()
            screen = filled.pilot.app.screen
            assert isinstance(screen, SweepScreen)
            text = "\n".join(row_text(row) for row in screen.canvas.rows)
            assert level in text
            assert {row_width(row) for row in screen.canvas.rows} == {size[0]}
            await filled.press("enter")
            text = "\n".join(row_text(row) for row in screen.canvas.rows)
            assert "Decode" in text
            filled.pilot.app.pop_screen()


async def test_a_wrong_path_keeps_the_line(filled: Shown, tmp_path: Path) -> None:
    """One line says what is wrong, and what was typed is still there to be corrected."""
    async with filled.on():
        await filled.press("i")
        await filled.type(str(tmp_path / "nothing.json"))
        await filled.press("enter")
        (toast,) = filled.pilot.app._notifications
        assert "cannot be read" in toast.message
        assert filled.screen.query_one(Input).has_class("asking")
        assert filled.screen.query_one(Input).value.endswith("nothing.json")


async def test_tab_completes_a_path(filled: Shown) -> None:
    """As much as is certain is added; what it could be stands below."""
    async with filled.on():
        await filled.press("i")
        await filled.type(f"{RESULTS}/llama")
        await filled.press("tab")
        assert filled.screen.query_one(Input).value == f"{RESULTS}/llama-benchy-0.4.0-"
        assert "llama-benchy-0.4.0-c16.json" in filled.text
        await filled.press("c", "tab")
        assert filled.screen.query_one(Input).value == f"{RESULTS}/llama-benchy-0.4.0-c16.json"


def test_a_path_is_completed_as_far_as_certain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders end in a slash, hidden names need their dot, a tilde stays as typed."""
    for name in ("one.json", "other.json", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert completed(f"{tmp_path}/f").text == f"{tmp_path}/folder/"
    assert completed("~/o").names == ("one.json", "other.json")
    assert completed("~/on").text == "~/one.json"
    assert completed("~").text == "~/"
    assert completed("~/.h").text == "~/.hidden"
    assert completed("/nowhere/at/all").text == "/nowhere/at/all"
    assert len(completed("~/").names) == 3
