"""Before and after on the screen: pairs, swapping, scrolling, at every size."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.pilot import Pilot

from sparktop.colors.palette import find_palette
from sparktop.panels.parts.text import row_text, row_width
from sparktop.sweep.compare.series import Series
from sparktop.sweep.view.difference import Compared
from sparktop.ui.canvas import Canvas
from sparktop.ui.screens.sweep_history import DifferenceScreen
from sparktop.ui.styles import RoleStyles, textual_theme
from tests.sweep.made_results import made_series

SIZES = [(60, 16), (80, 24), (120, 36), (200, 50)]
SLOW: dict[int, tuple[float, ...]] = {1: (10.0, 10.1, 9.9), 4: (30.0, 30.5, 29.5), 16: (80.0, 80.5, 79.0)}
FAST: dict[int, tuple[float, ...]] = {1: (10.1, 10.0, 9.8), 4: (36.0, 36.5, 35.5), 16: (90.0, 90.5, 89.0)}


class DifferenceApp(App[None]):
    """An application that has only the comparison."""

    def __init__(self, before: list[Series], after: list[Series]) -> None:
        super().__init__()
        palette = find_palette("spark-dark")
        assert palette is not None
        self.register_theme(textual_theme(palette))
        self.theme = palette.name
        self.shown = DifferenceScreen(
            RoleStyles(palette),
            Compared("quick 2026-11-20 18:04", tuple(before)),
            Compared("quick 2026-11-21 09:12", tuple(after)),
        )

    def on_mount(self) -> None:
        """Show it."""
        self.push_screen(self.shown)

    @property
    def rows(self) -> list[str]:
        """What is on the screen."""
        return [row_text(row) for row in self.shown.canvas.rows]

    @property
    def text(self) -> str:
        """The same, in one."""
        return "\n".join(self.rows)


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


def one_pair() -> DifferenceApp:
    return DifferenceApp([made_series("solo", SLOW)], [made_series("solo", FAST)])


@pytest.mark.parametrize("size", SIZES)
async def test_the_comparison_fills_the_screen(size: tuple[int, int]) -> None:
    """The verdict comes first, then each level with its change, in whole rows; keys stand below."""
    app = one_pair()
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert [row_width(row) for row in app.shown.canvas.rows] == [size[0]] * size[1]
        assert "┐before and after┌" in app.rows[0]
        assert "decode: faster at c4, c16" in app.text
        assert "no clear difference at 1 more" in " ".join(app.text.replace("│", "").split())
        assert "solo, quick 2026-11-20 18:04" in app.text
        assert "+20 %" in app.text
        assert "esc back" in app.rows[-1]
        assert "next pair" not in app.rows[-1]


async def test_r_swaps_before_and_after() -> None:
    """What was faster is slower then; once more, and it is as it was."""
    app = one_pair()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        first = app.text
        await press(pilot, "v")
        assert "decode: slower at c4, c16" in app.text
        assert "▼ worse" in app.text
        await press(pilot, "v")
        assert app.text == first


async def test_tab_goes_through_the_pairs_and_a_swap_stays_on_its_pair() -> None:
    """Namesakes first; the frame says which of them it is."""
    app = DifferenceApp(
        [made_series("a", SLOW), made_series("b", SLOW)], [made_series("b", FAST), made_series("a", SLOW)]
    )
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert "pair 1 of 2" in app.rows[0]
        assert "before  a, quick" in app.text
        await press(pilot, "v")
        assert "before  a, quick 2026-11-21" in app.text
        await press(pilot, "v", "tab")
        assert "pair 2 of 2" in app.rows[0]
        assert "before  b, quick 2026-11-20" in app.text
        await press(pilot, "v")
        assert "before  b, quick 2026-11-21" in app.text
        assert "decode: slower" in app.text
        await press(pilot, "tab")
        assert "before  a, quick 2026-11-21" in app.text
        await press(pilot, "shift+tab", "left")
        assert "before  a, quick 2026-11-21" in app.text


async def test_what_is_taller_than_the_screen_scrolls() -> None:
    """Arrows, pages, home, end and the wheel move it, never past its end; the frame counts the rows below."""
    many: dict[int, tuple[float, ...]] = dict.fromkeys(range(1, 41), (10.0, 10.5))
    app = DifferenceApp([made_series("a", many)], [made_series("a", many)])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        top = app.text
        assert "↓ " in app.rows[-2]
        assert "more rows" in app.rows[-2]
        await press(pilot, "j")
        assert "↑ 1 above" in app.rows[-2]
        assert app.rows[2] == top.splitlines()[3]
        await press(pilot, "end")
        assert "c40" in app.text
        assert "more rows" not in app.rows[-2]
        bottom = app.text
        await press(pilot, "pagedown", "down")
        assert app.text == bottom
        await press(pilot, "home")
        assert app.text == top
        app.shown.canvas.post_message(Canvas.Wheeled(1))
        await pilot.pause()
        assert app.rows[1] == top.splitlines()[4]


async def test_results_without_a_common_level_say_so() -> None:
    """Nothing is made up where there is nothing to compare."""
    app = DifferenceApp([made_series("a", {1: (1.0, 1.1)})], [made_series("b", {2: (1.0, 1.1)})])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "the two have no level in common" in app.text


async def test_the_same_result_twice_is_told_apart() -> None:
    """Two of the same name and minute are called before and after."""
    app = one_pair()
    app.shown._after = Compared(app.shown._before.title, app.shown._after.series)
    app.shown._make()
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        assert "18:04 before" in app.text
        assert "18:04 after" in app.text


async def test_escape_closes_it() -> None:
    """What was below it is there again."""
    app = one_pair()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "escape")
        assert app.screen is not app.shown


async def test_no_change_stands_in_the_middle() -> None:
    """The point of a change of 0 % lies on the line that means no change, at every width with bars."""
    app = DifferenceApp([made_series("a", SLOW)], [made_series("a", SLOW)])
    for width in (100, 101, 120, 200):
        async with app.run_test(size=(width, 36)) as pilot:
            await pilot.pause()
            (bar,) = [row for row in app.rows if " c16 " in row]
            assert not {"│", "┿"} & set(bar.strip("│"))
            assert bar.count("●") == 1
        app = DifferenceApp([made_series("a", SLOW)], [made_series("a", SLOW)])
