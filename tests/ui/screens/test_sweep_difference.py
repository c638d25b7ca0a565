"""Before and after on the screen: pairs, swapping, scrolling, at every size."""

from __future__ import annotations

from sparktop.sweep.compare.series import LevelSeries
from sparktop.ui.screens.sweep_history import DifferenceScreen
from sparktop.ui.styles import RoleStyles
from sparktop.ui.themes import chosen_palette
from tests.sweep.made_results import made_series
from tests.ui.board import SIZES, Alone, Driven

SLOW: dict[int, tuple[float, ...]] = {1: (10.0, 10.1, 9.9), 4: (30.0, 30.5, 29.5), 16: (80.0, 80.5, 79.0)}
FAST: dict[int, tuple[float, ...]] = {1: (10.1, 10.0, 9.8), 4: (36.0, 36.5, 35.5), 16: (90.0, 90.5, 89.0)}


class Difference(Driven):
    """The comparison alone."""

    def __init__(self, before: list[LevelSeries], after: list[LevelSeries], titles: tuple[str, str]) -> None:
        """Compare two results with these titles."""
        self.screen = DifferenceScreen(RoleStyles(chosen_palette("spark-dark")), titles, before, after)
        self.app = Alone(self.screen)


TITLES = ("quick 2026-11-20 18:04", "quick 2026-11-21 09:12")


async def test_the_comparison_fills_the_screen() -> None:
    """At every size: the verdict first, then each level with its change; v swaps, esc closes."""
    shown = Difference([made_series("solo", SLOW)], [made_series("solo", FAST)], TITLES)
    async with shown.on(SIZES[0]):
        for size in SIZES:
            await shown.resize(*size)
            assert shown.size == size
            assert "┐A → B┌" in shown.rows[0]
            assert "decode: faster at c4, c16" in shown.text
            assert "no clear difference at 1 more" in " ".join(shown.text.replace("│", "").split())
            assert "solo, quick 2026-11-20 18:04" in shown.text
            assert "+20 %" in shown.text
            assert "esc back" in shown.footer
            assert "next pair" not in shown.footer
        first = shown.text
        await shown.press("v")
        assert "decode: slower at c4, c16" in shown.text
        assert "▼ worse" in shown.text
        await shown.press("v")
        assert shown.text == first
        await shown.press("escape")
        assert shown.app.screen is not shown.screen


async def test_tab_goes_through_the_pairs_and_a_swap_stays_on_its_pair() -> None:
    """Namesakes first; the frame says which of them it is."""
    shown = Difference(
        [made_series("a", SLOW), made_series("b", SLOW)],
        [made_series("b", FAST), made_series("a", SLOW)],
        TITLES,
    )
    async with shown.on():
        assert "pair 1 of 2" in shown.rows[0]
        assert "A  a, quick" in shown.text
        await shown.press("v")
        assert "A  a, quick 2026-11-21" in shown.text
        await shown.press("v", "tab")
        assert "pair 2 of 2" in shown.rows[0]
        assert "A  b, quick 2026-11-20" in shown.text
        await shown.press("v")
        assert "A  b, quick 2026-11-21" in shown.text
        assert "decode: slower" in shown.text
        await shown.press("tab")
        assert "A  a, quick 2026-11-21" in shown.text
        await shown.press("shift+tab", "left")
        assert "A  a, quick 2026-11-21" in shown.text


async def test_nothing_in_common_and_the_same_title_twice_are_said() -> None:
    """Nothing is made up where there is nothing to compare; namesakes are called before and after."""
    shown = Difference([made_series("a", {1: (1.0, 1.1)})], [made_series("b", {2: (1.0, 1.1)})], TITLES)
    async with shown.on((80, 24)):
        assert "the two have no level in common" in shown.text
    shown = Difference([made_series("a", SLOW)], [made_series("a", FAST)], (TITLES[0], TITLES[0]))
    async with shown.on((200, 50)):
        assert "18:04 before" in shown.text
        assert "18:04 after" in shown.text
