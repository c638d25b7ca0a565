"""A question on the screen: what answers it, and how it looks at every size."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from textual.app import App
from textual.screen import Screen

from sparktop.model.event import Event, Severity
from sparktop.model.snapshot import Snapshot
from sparktop.ui.report import screen_svg
from sparktop.ui.screens.dialogs import AskScreen, LimitsScreen, MarkScreen
from tests.ui.board import SIZES, Board, Driven

LINES = ("10.0.0.3:8000 is neither on this machine nor in the configuration.", "Put load on [red]it[/red]?")


class Asking(Driven):
    """Asks questions and keeps the answers."""

    def __init__(self) -> None:
        self.app = App[None]()
        self.answers: list[bool | None] = []

    async def ask(self, *keys: str, careful: bool = False) -> bool | None:
        """Ask, and press keys; return the answer."""
        screen = AskScreen("load on a [stranger]", LINES, yes="put load on it", careful=careful)
        self.app.push_screen(screen, self.answers.append)
        await self.press()
        await self.press(*keys)
        return self.answers[-1] if self.answers else None


async def test_keys_and_clicks_answer() -> None:
    """Letters answer at once, Enter the marked answer, Esc no; Enter alone is no to a careful question."""
    asking = Asking()
    async with asking.on((80, 24)):
        for keys, answer in (
            (["y"], True),
            (["n"], False),
            (["escape"], False),
            (["q"], False),
            (["enter"], True),
            (["down", "enter"], False),
            (["down", "up", "enter"], True),
        ):
            assert await asking.ask(*keys) is answer
            assert not isinstance(asking.app.screen, AskScreen)
        assert await asking.ask("enter", careful=True) is False
        for row, answer in ((0, True), (1, False)):
            await asking.ask()
            await asking.pilot.click("OptionList", offset=(3, row))
            await asking.pilot.pause()
            assert asking.answers[-1] is answer


async def test_everything_is_on_the_screen() -> None:
    """Title, question, both answers and the keys, with markup of others as they wrote it, at every size."""
    asking = Asking()
    async with asking.on(SIZES[0]):
        await asking.ask()
        for size in SIZES:
            await asking.resize(*size)
            drawn = screen_svg(asking.app).replace("&#160;", " ")
            for words in (
                "load on a [stranger]",
                "[red]it[/red]",
                "put load on it",
                "cancel",
                "enter confirm",
            ):
                assert words in drawn
            screen = asking.app.screen
            box = screen.query_one("AskScreen > Vertical").region
            assert screen.region.contains_region(box)
            assert box.contains_region(screen.query_one("OptionList").region)


async def test_a_long_question_scrolls_and_leaves_the_answers() -> None:
    """Forty lines at 60 x 16: the answers stay in sight, and the keys scroll."""
    asking = Asking()
    async with asking.on((60, 16)):
        screen = AskScreen("much", [f"line {number}" for number in range(40)], yes="go on")
        asking.app.push_screen(screen)
        await asking.press()
        options = screen.query_one("OptionList").region
        scroll = screen.query_one("VerticalScroll")
        assert scroll.region.bottom <= options.y
        assert options.bottom < 16
        assert scroll.max_scroll_y > 20
        await asking.press("pagedown")
        assert scroll.scroll_y > 0


async def test_the_board_goes_on_behind_every_dialog() -> None:
    """It stays in sight while a word is typed, and what changes in it is seen."""
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    events = [Event(at, Severity.INFO, "spark-a", "began to serve")]
    board = Board(lambda: Snapshot(at, 100.0, 1.0, 2.0, events=tuple(events)))
    async with board.on():
        await board.press("3")
        dialogs: list[Screen[Any]] = [MarkScreen(), LimitsScreen(), AskScreen("quit", LINES, yes="go")]
        for number, dialog in enumerate(dialogs):
            board.app.push_screen(dialog)
            await board.press()
            events.append(Event(at, Severity.INFO, "spark-b", f"restarted for the {number}. time"))
            board.overview.redraw()
            await board.press()
            drawn = screen_svg(board.app).replace("&#160;", " ")
            assert "began to serve" in drawn
            assert f"restarted for the {number}. time" in drawn
            await board.press("escape")
