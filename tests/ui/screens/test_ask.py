"""A question on the screen: what answers it, and how it looks at every size."""

from __future__ import annotations

from textual.app import App

from sparktop.ui.report import screen_svg
from sparktop.ui.screens.dialogs import AskScreen
from tests.ui.board import SIZES, Driven

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
