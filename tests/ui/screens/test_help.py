"""The help: in groups, wrapped with its indent, searched by typing; Enter runs what was found."""

from __future__ import annotations

from textual.widgets import Static

from sparktop.config.keys import KEYS
from sparktop.model.event import FindingKind
from sparktop.model.explained import FINDINGS
from sparktop.panels.board.layout import PanelKey
from sparktop.ui.screens.help import HelpScreen
from tests.ui.board import Board, picture


def told(board: Board) -> list[str]:
    return str(board.app.screen.query_one("#help", Static).render()).splitlines()


def test_every_key_is_in_a_group() -> None:
    """Once, under a heading, whatever its name is."""
    found = [key for _, entries in HelpScreen.sections(KEYS) for _, _, key in entries if key]
    assert sorted(key.name for key in found) == sorted(key.name for key in KEYS)


async def test_typing_searches_and_enter_runs_what_was_found() -> None:
    """Only entries with all words stay; esc widens the search, then closes."""
    board = Board(picture)
    async with board.on((80, 24)):
        await board.press("question_mark")
        everything = told(board)
        await board.press(*"ktv ", *["backspace"] * 3, *"v")
        assert any("KV cache is at least 98 %" in line for line in told(board))
        assert len(told(board)) < len(everything) / 2
        await board.press("escape", *"machine-setup")
        remedies = [line.strip() for line in told(board) if "→" in line]
        assert len(remedies) == len(FINDINGS[FindingKind.MACHINE_SETUP].remedies)
        assert all(line.startswith("→ ") for line in remedies)
        await board.press("escape", *"zzz")
        assert told(board) == ["nothing found: fewer letters find more"]
        await board.press("escape")
        assert told(board) == everything
        await board.press("escape")
        assert board.home
        await board.press("ctrl+p", *"alerts full")
        assert told(board)[1].startswith("▸e")
        await board.press("enter")
        assert board.home
        assert board.zoomed() == PanelKey("events", "")
        await board.press("ctrl+p", *"quit", "escape", "escape", "escape")
        assert board.zoomed() is None
        await board.press("ctrl+p", *"show or hide", "down")
        assert [line[1] for line in told(board) if line.startswith("▸")] == ["2"]
        await board.press("enter")
        assert not board.overview.view.boxes.backends


async def test_q_closes_unless_it_is_searched() -> None:
    """As the first key q, ? and Enter close; after / they belong to the search."""
    board = Board(picture)
    async with board.on((80, 24)):
        for key in ("q", "question_mark", "enter", "f1"):
            await board.press("question_mark", key)
            assert board.home
        await board.press("question_mark", "slash", *"queueing")
        assert any("requests waited" in line for line in told(board))
