"""A question on the screen: what answers it, and how it looks at every size."""

from __future__ import annotations

from functools import partial

import pytest
from textual.app import App

from sparktop.ui.report import screen_svg
from sparktop.ui.screens.dialogs import AskScreen

LINES = ("10.0.0.3:8000 is neither on this machine nor in the configuration.", "Put load on [red]it[/red]?")
SIZES = [(60, 16), (80, 24), (120, 36), (200, 50)]


class Asking(App[None]):
    """Asks one question and keeps the answer."""

    def __init__(self, *, careful: bool = False) -> None:
        super().__init__()
        self.answer: bool | None = None
        self._careful = careful

    def on_mount(self) -> None:
        """Ask."""
        ask = AskScreen("load on a [stranger]", LINES, yes="put load on it", careful=self._careful)
        self.push_screen(ask, partial(setattr, self, "answer"))


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["y"], True),
        (["n"], False),
        (["escape"], False),
        (["q"], False),
        (["enter"], True),
        (["down", "enter"], False),
        (["right", "enter"], False),
        (["right", "left", "enter"], True),
    ],
)
async def test_keys_answer(keys: list[str], answer: bool) -> None:  # noqa: FBT001 - a column of the table
    """Letters answer at once, Enter gives the marked answer, Esc is no."""
    app = Asking()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        assert app.answer is answer
        assert not isinstance(app.screen, AskScreen)


async def test_a_careful_question_marks_no_first() -> None:
    """Enter alone answers no; yes takes a letter or an arrow."""
    app = Asking(careful=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        assert app.answer is False


@pytest.mark.parametrize(("row", "answer"), [(0, True), (1, False)])
async def test_a_click_answers(row: int, answer: bool) -> None:  # noqa: FBT001 - a column of the table
    """The mouse chooses an answer as the keys do."""
    app = Asking()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.click("OptionList", offset=(3, row))
        await pilot.pause()
        assert app.answer is answer


@pytest.mark.parametrize("size", SIZES)
async def test_everything_is_on_the_screen(size: tuple[int, int]) -> None:
    """Title, question, both answers and the keys, with markup of others as they wrote it."""
    app = Asking()
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        drawn = screen_svg(app).replace("&#160;", " ")
        for words in ("load on a [stranger]", "[red]it[/red]", "put load on it", "cancel", "enter answers"):
            assert words in drawn
        box = app.screen.query_one("AskScreen > Vertical").region
        assert app.screen.region.contains_region(box)
        options = app.screen.query_one("OptionList").region
        assert box.contains_region(options)


async def test_a_long_question_scrolls_and_leaves_the_answers() -> None:
    """Forty lines at 60 x 16: the answers stay in sight, and the keys scroll."""
    app = App[None]()
    async with app.run_test(size=(60, 16)) as pilot:
        ask = AskScreen("much", [f"line {number}" for number in range(40)], yes="go on")
        app.push_screen(ask)
        await pilot.pause()
        options = app.screen.query_one("OptionList").region
        scroll = app.screen.query_one("VerticalScroll")
        assert scroll.region.bottom <= options.y
        assert options.bottom < 16
        assert scroll.max_scroll_y > 20
        await pilot.press("pagedown")
        await pilot.pause()
        assert scroll.scroll_y > 0
