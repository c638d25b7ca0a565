"""The history on the screen: keys, mouse, search, import, deletion and comparison, at every size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparktop.sweep.history import History
from sparktop.ui.screens.dialogs import AskScreen
from sparktop.ui.screens.help import KeysScreen
from sparktop.ui.screens.sweep import SweepScreen
from sparktop.ui.screens.sweep_history import HISTORY_KEYS, DifferenceScreen
from tests.ui.board import SIZES
from tests.ui.history_stage import RESULTS, Shown


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    return Shown(tmp_path, 5)


async def test_the_history_fills_the_screen(shown: Shown) -> None:
    """At every size: newest first, keys below, the chosen one in detail, a broken file with its reason."""
    (shown.folder / "bad.json").write_text("{")
    os.utime(shown.folder / "bad.json", (0, 0))
    async with shown.on(SIZES[0]):
        for width, height in SIZES:
            await shown.resize(width, height)
            await shown.press("home")
            assert shown.size == (width, height)
            assert "┐history┌ 6 results" in shown.rows[0]
            assert "▶" in shown.rows[2]
            assert [f"n0{4 - at}" in shown.rows[2 + at] for at in range(3)] == [True] * 3
            assert "enter open" in shown.footer
            assert "─ 04.json" in shown.text
            assert "level" in shown.text
            first = shown.text
            await shown.press("down")
            assert "level" in shown.text != first
            await shown.press("end")
            assert "unreadable" in shown.text
            assert "! is cut short or not JSON" in shown.text
        await shown.press("enter")
        assert shown.opened == []
        assert "is cut short or not JSON" in shown.notes[0]
        for size in ((59, 20), (80, 15)):
            await shown.resize(*size)
            assert "terminal too small" in shown.text


async def test_keys_and_mouse_move_the_cursor_and_open(tmp_path: Path) -> None:
    """Arrows, j, k, pages, ends, a click, the wheel; Enter, and a click on the chosen row, open it."""
    shown = Shown(tmp_path, 40)
    async with shown.on((80, 24)):
        seen = []
        for key in ("j", "down", "k", "pagedown", "end", "pageup", "home"):
            await shown.press(key)
            seen.append(shown.current)
            assert any("▶" in row for row in shown.rows)
        assert seen == [f"{at:02}.json" for at in (38, 37, 38, 31, 0, 7, 39)]
        await shown.click(10, 5)
        assert (shown.current, shown.opened) == ("36.json", [])
        await shown.click(10, 5)
        await shown.press("enter")
        assert len(shown.opened) == 2
        assert shown.opened[0].result is not None
        assert shown.opened[0].view().title.startswith("n36 2026-12-26")
        for _ in range(2):
            shown.canvas.post_message(shown.canvas.Wheeled(1))
        await shown.settled()
        assert shown.current == "33.json"
        assert "▶" in shown.rows[2]


async def test_deletions_are_asked_once_and_said(shown: Shown) -> None:
    """Enter alone deletes nothing; after yes the rows and their files are gone, one or all marked."""
    async with shown.on(SIZES[0]):
        await shown.press("down", "d")
        assert isinstance(shown.app.screen, AskScreen)
        await shown.press("enter")
        assert "5 results" in shown.rows[0]
        await shown.press("d", "y")
        assert "4 results" in shown.rows[0]
        assert "deleted n03 2026-11-23" in shown.text
        assert shown.current == "02.json"
        assert shown.size == SIZES[0]
        await shown.press("home", "space", "space", "delete", "y")
        assert "deleted 2 results" in shown.text
        assert sorted(path.name for path in shown.folder.glob("*.json")) == ["00.json", "01.json"]


async def test_two_results_are_compared_the_older_first(tmp_path: Path) -> None:
    """Whichever was marked first; one mark is enough beside the cursor; else a line says what is needed."""
    shown = Shown(tmp_path)
    shown.keep("old.json", preset="old", step=0.25)
    shown.keep("new.json", days=1, preset="new", step=0.2)
    shown.keep("other.json", days=2)
    async with shown.on():
        await shown.press("c")
        assert "mark one with space" in shown.text
        await shown.press("down", "space", "space", "c")
        assert isinstance(shown.app.screen, DifferenceScreen)
        assert "A  a, old 2026-11-20" in shown.text
        assert "B  a, new 2026-11-21" in shown.text
        assert "faster at c2" in shown.text
        await shown.press("escape", "home", "space", "c")
        assert shown.home
        assert "3 are marked: mark two" in shown.text
    async with shown.on(marked=["old.json"]):
        await shown.press("c")
        assert isinstance(shown.app.screen, DifferenceScreen)


async def test_a_result_that_is_stored_meanwhile_appears(shown: Shown) -> None:
    """The next scan of the folder finds it, and the cursor stays on its row."""
    async with shown.on():
        await shown.press("down")
        shown.keep("9.json", days=9)
        shown.screen._scan()
        await shown.settled()
        assert "6 results" in shown.rows[0]
        assert shown.current == "03.json"


async def test_the_words_below_are_buttons_and_escape_leaves_one_thing_a_press(shown: Shown) -> None:
    """The line, the search, the marks, the screen; f shows a path to copy, ? the keys of this screen."""
    async with shown.on():
        await shown.press("f")
        assert shown.notes == [str(shown.folder / "04.json")]
        await shown.press("question_mark")
        assert isinstance(shown.app.screen, KeysScreen)
        helps = {text for _, lines in KeysScreen.sections(HISTORY_KEYS) for _, text, _ in lines}
        assert helps.issuperset(key.help for key in HISTORY_KEYS)
        await shown.press("escape")
        await shown.click(shown.footer.index("space mark") + 2, 35)
        assert "●" in shown.rows[2]
        assert "▶" in shown.rows[3]
        await shown.press("slash", "n", "enter", "escape")
        assert "1 marked" in shown.text
        await shown.press("escape")
        assert "marked" not in shown.text
        await shown.press("h")
        assert not shown.home


async def test_a_search_is_answered_as_it_is_typed(shown: Shown) -> None:
    """Rows without the words go; letters are no keys; Enter keeps the search, Esc drops it."""
    async with shown.on(SIZES[0]):
        await shown.press("slash", *"n03")
        assert "1 result found for “n03”" in shown.rows[0]
        await shown.press("enter", "enter")
        assert len(shown.opened) == 1
        for size in SIZES:
            await shown.resize(*size)
            assert shown.size == size
            assert "found for “n03”" in shown.rows[0]
            assert "n03" in shown.rows[2]
        await shown.press("slash")
        assert shown.line.value == "n03"
        await shown.press("escape")
        assert "5 results" in shown.rows[0]
        await shown.press("slash", *"duck ic", "space")
        assert shown.line.value == "duck ic "
        await shown.press("enter")
        assert "nothing found for" in shown.text
        await shown.press("escape")
        assert "5 results" in shown.rows[0]
        assert shown.home


async def test_a_file_of_another_tool_is_brought_in_and_opened(shown: Shown) -> None:
    """Its path is asked, its row is chosen, opened, and compared as our own are."""
    async with shown.on(notices=True):
        await shown.press("i")
        await shown.type(str(shown.folder / "nothing.json"))
        await shown.press("enter")
        assert "cannot be read" in shown.text
        assert shown.notes == []
        assert shown.line.value.endswith("nothing.json")
        await shown.type(f"{RESULTS}/llama-benchy-0.4.0-c16.json")
        await shown.press("enter")
        assert shown.current == "imported/llama-benchy-0.4.0-c16.json"
        assert "llama-benchy 0.4.0" in shown.text
        assert "6 results" in shown.rows[0]
        await shown.press("enter")
        assert shown.opened[0].result is None
        await shown.press("space", "home", "c")
        assert isinstance(shown.app.screen, DifferenceScreen)


async def test_what_is_opened_fills_the_screen_of_a_sweep(shown: Shown) -> None:
    """A result of ours and one of another tool are shown with their levels, and why each is as it is."""
    key = History(shown.folder).import_file(RESULTS / "llama-benchy-0.4.0-c16.json")
    async with shown.on(SIZES[0]):
        for wanted, level in (("04.json", "c2"), (key, "c16")):
            await shown.press("home")
            while shown.current != wanted:
                await shown.press("down")
            await shown.press("enter")
            shown.app.push_screen(SweepScreen(shown.screen.canvas.role_styles, shown.opened[-1]))
            await shown.settled()
            for size in SIZES:
                await shown.resize(*size)
                assert level in shown.text
                assert shown.size == size
            await shown.press("enter")
            assert "Decode" in shown.text
            shown.app.pop_screen()
