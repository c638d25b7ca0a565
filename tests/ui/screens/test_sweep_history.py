"""The history on the screen: keys, mouse, deletion and comparison, at every size."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from textual.app import App

from sparktop.colors.palette import find_palette
from sparktop.config.keys import Key
from sparktop.panels.parts.text import row_text, row_width
from sparktop.sweep.history import History
from sparktop.sweep.view.result import StoredView
from sparktop.ui.screens.dialogs import AskScreen
from sparktop.ui.screens.help import KeysScreen
from sparktop.ui.screens.sweep_history import DIFFERENCE_KEYS, HISTORY_KEYS, DifferenceScreen, HistoryScreen
from sparktop.ui.styles import RoleStyles
from tests.ui.history_stage import BEGAN, SIZES, Shown, five_results


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    return Shown(tmp_path)


@pytest.fixture
def filled(tmp_path: Path) -> Shown:
    return five_results(tmp_path)


@pytest.mark.parametrize("size", SIZES)
async def test_the_history_fills_the_screen(filled: Shown, size: tuple[int, int]) -> None:
    """The rows are whole, the newest first, with the keys below; the chosen result is shown in detail."""
    async with filled.on(size):
        assert [row_width(row) for row in filled.screen.canvas.rows] == [size[0]] * size[1]
        assert "┐history┌ 5 results" in filled.rows[0]
        assert "▶" in filled.rows[2]
        assert [f"n{4 - at}" in filled.rows[2 + at] for at in range(5)] == [True] * 5
        assert "enter open" in filled.rows[-1]
        assert "─ 4.json" in filled.text


@pytest.mark.parametrize("size", SIZES)
async def test_an_empty_history_says_how_to_make_one(shown: Shown, size: tuple[int, int]) -> None:
    """Nothing is there and no key does harm."""
    async with shown.on(size):
        assert "no sweep is stored yet: s starts one" in shown.text
        await shown.press("enter", "space", "c", "d", "f", "down", "end", "pagedown")
        assert "no sweep is stored yet" in shown.text
        assert shown.opened == []


@pytest.mark.parametrize("size", SIZES)
async def test_an_unreadable_file_says_its_problem(filled: Shown, size: tuple[int, int]) -> None:
    """Its row has the reason; Enter shows a notice and opens nothing."""
    (filled.folder / "9.json").write_text("{")
    os.utime(filled.folder / "9.json", ((BEGAN + timedelta(days=9)).timestamp(),) * 2)
    async with filled.on(size):
        assert "unreadable" in filled.rows[2]
        assert "! is cut short or not JSON" in filled.text
        await filled.press("enter")
        assert filled.opened == []
        (toast,) = filled.pilot.app._notifications
        assert "is cut short or not JSON" in toast.message


@pytest.mark.parametrize("size", [(59, 20), (80, 15)])
async def test_a_terminal_that_is_too_small_is_told(filled: Shown, size: tuple[int, int]) -> None:
    """What is needed stands there instead of half a table."""
    async with filled.on(size):
        assert "terminal too small" in filled.text


async def test_a_result_opens_as_a_source(filled: Shown) -> None:
    """Enter gives the result to whoever shows it, with name and time for a title."""
    async with filled.on():
        await filled.press("down", "enter")
        (source,) = filled.opened
        assert isinstance(source, StoredView)
        assert source.view().title.startswith("n3 2026-11-23")


async def test_keys_move_the_cursor(shown: Shown) -> None:
    """Arrows, j and k, pages, home and end; what is chosen stays in sight."""
    for number in range(40):
        shown.keep(f"{number:02}.json", days=number)
    async with shown.on((80, 24)):
        seen: list[str | None] = []
        for key in ("j", "down", "k", "pagedown", "end", "pageup", "home"):
            await shown.press(key)
            seen.append(shown.current)
            assert any("▶" in row for row in shown.rows)
        assert seen == ["38.json", "37.json", "38.json", "31.json", "00.json", "07.json", "39.json"]


async def test_the_mouse_chooses_opens_and_scrolls(shown: Shown) -> None:
    """A click chooses, another one opens, the wheel scrolls with the cursor on the screen."""
    for number in range(40):
        shown.keep(f"{number:02}.json", days=number)
    async with shown.on((80, 24)):
        await shown.pilot.click(offset=(10, 5))
        await shown.settled()
        assert shown.current == "36.json"
        assert shown.opened == []
        await shown.pilot.click(offset=(10, 5))
        await shown.settled()
        assert len(shown.opened) == 1
        shown.screen.canvas.post_message(shown.screen.canvas.Wheeled(1))
        shown.screen.canvas.post_message(shown.screen.canvas.Wheeled(1))
        await shown.settled()
        assert shown.current == "33.json"
        assert "▶" in shown.rows[2]


async def test_the_words_of_the_footer_are_buttons(filled: Shown) -> None:
    """A click on one does what its key does."""
    async with filled.on():
        at = filled.rows[-1].index("space mark")
        await filled.pilot.click(offset=(at + 2, 35))
        await filled.settled()
        assert "▶" in filled.rows[3]
        assert "●" in filled.rows[2]
        assert "1 marked" in filled.text


@pytest.mark.parametrize("size", SIZES)
async def test_a_deletion_is_asked_once_and_told(filled: Shown, size: tuple[int, int]) -> None:
    """Enter alone deletes nothing; after yes the row and its file are gone, and a line says so."""
    async with filled.on(size):
        await filled.press("down", "d")
        assert isinstance(filled.pilot.app.screen, AskScreen)
        await filled.press("enter")
        assert "5 results" in filled.rows[0]
        await filled.press("d", "y")
        assert "4 results" in filled.rows[0]
        assert "deleted n3 2026-11-23" in filled.text
        assert filled.current == "2.json"
        assert not (filled.folder / "3.json").exists()
        assert [row_width(row) for row in filled.screen.canvas.rows] == [size[0]] * size[1]


async def test_marked_results_are_deleted_together(filled: Shown) -> None:
    """One question names all of them."""
    async with filled.on():
        await filled.press("space", "space", "delete", "y")
        assert "3 results" in filled.rows[0]
        assert "deleted 2 results" in filled.text
        assert sorted(path.name for path in filled.folder.glob("*.json")) == ["0.json", "1.json", "2.json"]


async def test_two_marked_results_are_compared_the_older_first(shown: Shown) -> None:
    """Whichever was marked first: the older one is before."""
    shown.keep("old.json", preset="old", step=0.25)
    shown.keep("new.json", days=1, preset="new", step=0.2)
    shown.keep("other.json", days=2)
    async with shown.on():
        await shown.press("down", "space", "space", "c")
        screen = shown.pilot.app.screen
        assert isinstance(screen, DifferenceScreen)
        text = "\n".join(row_text(row) for row in screen.canvas.rows)
        assert "before  a, old 2026-11-20" in text
        assert "after  a, new 2026-11-21" in text
        assert "faster at c2" in text
        await shown.press("escape")
        assert shown.pilot.app.screen is shown.screen


async def test_one_marked_result_is_compared_with_the_current_one(filled: Shown) -> None:
    """A mark that was given from outside is enough: c takes the row under the cursor besides."""
    async with filled.on(marked=["0.json"]):
        await filled.press("c")
        assert isinstance(filled.pilot.app.screen, DifferenceScreen)


@pytest.mark.parametrize(
    ("keys", "words"), [("c", "mark one with space"), (("space",) * 3, "3 are marked: mark two")]
)
async def test_a_comparison_says_what_it_needs(filled: Shown, keys: tuple[str, ...], words: str) -> None:
    """None marked, and more than two, are lines that say what to do."""
    async with filled.on():
        await filled.press(*keys, "c")
        assert words in filled.text
        assert isinstance(filled.pilot.app.screen, HistoryScreen)


async def test_a_sweep_that_is_kept_meanwhile_appears(filled: Shown) -> None:
    """The next scan of the folder finds it, and the cursor stays on its row."""
    async with filled.on():
        await filled.press("down")
        filled.keep("9.json", days=9)
        filled.screen._scan_again()
        await filled.settled()
        assert "6 results" in filled.rows[0]
        assert filled.current == "3.json"


async def test_a_comparison_is_drawn_in_the_present_theme(filled: Shown) -> None:
    """After another theme was chosen, what opens has its colours too."""
    palette = find_palette("spark-light")
    assert palette is not None
    styles = RoleStyles(palette)
    async with filled.on(marked=["0.json"]):
        filled.screen.canvas.restyle(styles)
        await filled.press("c")
        screen = filled.pilot.app.screen
        assert isinstance(screen, DifferenceScreen)
        assert screen.canvas.role_styles is styles


async def test_the_path_is_told(filled: Shown) -> None:
    """The whole path is there to be copied."""
    async with filled.on():
        await filled.press("f")
        (toast,) = filled.pilot.app._notifications
        assert toast.message == str(filled.folder / "4.json")


@pytest.mark.parametrize("size", SIZES)
async def test_the_result_under_the_cursor_has_a_preview(filled: Shown, size: tuple[int, int]) -> None:
    """Its levels stand below the table, at every size; another row has another preview."""
    async with filled.on(size):
        assert "level" in filled.text
        first = filled.text
        await filled.press("down")
        await filled.pilot.app.workers.wait_for_complete()
        await filled.pilot.pause()
        assert "level" in filled.text
        assert filled.text != first


async def test_a_mistake_in_the_program_is_a_line(filled: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is logged and shown; the screen stays."""

    def broken(_: History, __: str) -> None:
        raise ZeroDivisionError

    async with filled.on():
        monkeypatch.setattr(History, "source", broken)
        await filled.pilot.press("enter")
        for _ in range(3):
            await filled.pilot.pause()
        assert "unexpected error: see the log" in filled.text


async def test_the_help_tells_the_keys_of_this_screen(filled: Shown) -> None:
    """The question mark shows the same table that binds the keys."""
    async with filled.on():
        await filled.press("question_mark")
        assert isinstance(filled.pilot.app.screen, KeysScreen)
        told = KeysScreen.text(HISTORY_KEYS).plain
        assert all(key.help in told for key in HISTORY_KEYS)


async def test_escape_leaves_one_thing_a_press(filled: Shown) -> None:
    """The line, the search, the marks, the screen."""
    async with filled.on():
        await filled.press("space", "slash", "n", "enter", "escape")
        assert "1 marked" in filled.text
        await filled.press("escape")
        assert "marked" not in filled.text
        await filled.press("escape")
        assert not isinstance(filled.pilot.app.screen, HistoryScreen)


@pytest.mark.parametrize(
    ("screen", "keys"), [(HistoryScreen, HISTORY_KEYS), (DifferenceScreen, DIFFERENCE_KEYS)]
)
def test_every_key_does_something(screen: type, keys: tuple[Key, ...]) -> None:
    """No key is in the table twice, and each has its action."""
    names = [name for key in keys for name in key.keys]
    assert len(names) == len(set(names))
    for key in keys:
        owner, _, action = key.action.rpartition(".")
        where = App if owner == "app" else screen
        assert hasattr(where, f"action_{action.partition('(')[0]}"), key.action
