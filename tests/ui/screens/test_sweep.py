"""A sweep on the whole screen: its pages, its table, and what its keys do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktop.model.load import Level
from sparktop.panels.sweep.table import default_key
from sparktop.ui.screens.sweep import SweepPage, SweepScreen
from tests.known import known
from tests.ui.board import SIZES, Size
from tests.ui.sweep_stage import SweepStage, key


@pytest.fixture
def stage(tmp_path: Path) -> SweepStage:
    return SweepStage(tmp_path)


@asynccontextmanager
async def run_and_opened(stage: SweepStage, size: Size = (120, 36)) -> AsyncIterator[None]:
    """Play up to the middle of the third level, and open the full screen."""
    async with stage.running(size=size):
        stage.play(("spark-a", 1), ("spark-a", 2)).run("spark-a", 4, 0, upto_s=1.5)
        await stage.settled()
        await stage.press("z")
        yield


@asynccontextmanager
async def done_and_opened(stage: SweepStage, size: Size = (120, 36)) -> AsyncIterator[None]:
    """Play it to its end, and open the full screen."""
    async with stage.running(size=size):
        stage.play()
        await stage.finish()
        await stage.press("z")
        yield


def page(stage: SweepStage) -> SweepPage:
    """Return the page on the screen."""
    return stage.full.page


def chosen(stage: SweepStage) -> Level | None:
    """Return the chosen level."""
    return stage.full.chosen


async def test_every_page_has_exactly_the_size_of_the_terminal(stage: SweepStage) -> None:
    """All pages fill every terminal; below 60x16 it says what it needs."""
    async with done_and_opened(stage, (80, 24)):
        for keys, wanted in (
            ((), SweepPage.MAIN),
            (("v",), SweepPage.CURVES),
            (("T",), SweepPage.TOPOLOGIES),
            (("n",), SweepPage.NOTICES),
            (("n",), SweepPage.MAIN),
            (("down", "enter"), SweepPage.EVIDENCE),
            (("enter",), SweepPage.MAIN),
            (("enter",), SweepPage.EVIDENCE),
        ):
            await stage.press(*keys)
            assert page(stage) is wanted
            for size in SIZES:
                await stage.resize(*size)
                assert stage.size == size
                assert " esc back" in stage.footer
        await stage.resize(59, 15)
        assert "needs 60×16, has " in stage.text
        await stage.press("escape", "down", "enter", "escape")
        await stage.resize(80, 24)
        assert "┐sweep quick┌" in stage.text
        before = stage.full.canvas.render_line(0)
        stage.app.theme = "spark-light"
        await stage.pilot.pause()
        after = stage.full.canvas.render_line(0)
        assert before.text == after.text
        assert [one.style for one in before] != [one.style for one in after]


async def test_a_running_sweep_redraws_itself(stage: SweepStage) -> None:
    """Levels turn from running to done on the screen while it is open."""
    async with run_and_opened(stage, (200, 50)):
        assert "┐running┌" in stage.text
        assert "tok/s" in stage.text
        assert "running" in stage.text.splitlines()[-8:][0] or "0/3 runs" in stage.text
        stage.play(("spark-a", 4))
        await stage.settled()
        assert "0/3 runs" not in stage.text
        await stage.finish()
        assert "┐done┌" in stage.text
        assert "Decode in" in stage.text


async def test_arrows_choose_a_level_and_enter_says_why(stage: SweepStage) -> None:
    """From the newest level, by keys and wheel; none of one ahead; a reference stays while levels come."""
    async with run_and_opened(stage):
        await stage.press("down")
        assert chosen(stage) == key("proxy", 1)
        await stage.press("up")
        assert chosen(stage) == key("spark-a", 4)
        await stage.press("up", "k", "k")
        assert chosen(stage) == key("spark-a", 1)
        await stage.press("j", "enter")
        assert "┐why?┌ spark-a c = 2" in stage.text
        await stage.press("escape", "pagedown", "pagedown", "enter")
        assert (chosen(stage), page(stage)) == (key("proxy", 4), SweepPage.MAIN)
        assert stage.toasts()[-1] == "nothing is known of this level yet"
        for _ in range(8):
            stage.canvas.post_message(stage.canvas.Wheeled(-1))
        await stage.press("enter")
        assert chosen(stage) == key("spark-a", 1)
        await stage.press("escape")
        assert page(stage) is SweepPage.MAIN
        await stage.press("R", "v")
        assert "ref:" in stage.text
        stage.play(("spark-a", 4))
        await stage.settled()
        assert "ref:" in stage.text
        await stage.press("escape", "escape")
        assert stage.top() is stage.app.overview


@pytest.mark.parametrize("size", [(120, 36), (200, 50)])
async def test_a_click_chooses_the_level_and_a_second_opens_it(
    stage: SweepStage, size: tuple[int, int]
) -> None:
    """The row that is clicked is the row that is drawn there, beside the curves as well as below them."""
    async with done_and_opened(stage, size):
        lines = stage.text.splitlines()
        y = next(i for i, line in enumerate(lines) if "B proxy   c2" in line and "batch" not in line)
        x = lines[y].index("B proxy   c2")
        await stage.click(x, y)
        assert chosen(stage) == key("proxy", 2)
        await stage.click(x, y)
        assert "┐why?┌ proxy c = 2" in stage.text


async def test_a_click_on_the_highlighted_level_opens_it(stage: SweepStage) -> None:
    """The level that is highlighted before any was chosen is selected as one that was."""
    async with done_and_opened(stage):
        view = known(stage.full._view)
        level = default_key(view)
        assert chosen(stage) is None
        y = next(row for row, drawn in stage.full._level_by_row.items() if drawn == level)
        await stage.click(stage.full._levels_left_edge, y)
        assert page(stage) is SweepPage.EVIDENCE


async def test_published_tables_go_round(stage: SweepStage) -> None:
    """Key R lays one table after another over the curves, names it and its source, and ends with none."""
    async with done_and_opened(stage):
        seen = []
        while True:
            await stage.press("R")
            reference = stage.full.reference
            if reference is None:
                break
            seen.append(reference.name)
            assert f"ref:{reference.name}" in stage.text
            assert f"published: {reference.name[:20]}" in stage.footer
            assert reference.source in stage.toasts()[-1]
        assert len(seen) == len(set(seen)) >= 2
        assert "ref:" not in stage.text


async def test_the_footer_is_a_row_of_buttons(stage: SweepStage) -> None:
    """A click on a label does what its key does: evidence of the newest run, of the other ones, and back."""
    async with done_and_opened(stage):
        for word, seen in (("why", "run 3, 4 requests"), ("other run", "run 1, "), ("back", "┐sweep quick┌")):
            await stage.click(stage.footer.index(word), 35)
            assert seen in stage.text


async def test_history_and_comparison_lead_to_the_results(stage: SweepStage) -> None:
    """Key c opens the list of results with this one marked; h from a result goes back to the same list."""
    async with done_and_opened(stage):
        await stage.press("c")
        assert type(stage.top()).__name__ == "HistoryScreen"
        assert "c compares them" in stage.toasts()[-1]
        await stage.worked()
        depth = len(stage.app.screen_stack)
        await stage.press("enter")
        await stage.worked()
        assert isinstance(stage.top(), SweepScreen)
        await stage.press("h")
        assert type(stage.top()).__name__ == "HistoryScreen"
        assert len(stage.app.screen_stack) == depth


async def test_other_limits_are_answered_by_its_levels(stage: SweepStage) -> None:
    """`l` asks for limits and shows the answer on a screen of its own; a wrong limit is named."""
    async with done_and_opened(stage):
        await stage.press("l", *"ttft_p50_ms=1500", "enter")
        await stage.settled()
        told = ("at least", "best estimate", "perhaps")
        assert any(f"{words} 4 requests at once" in stage.text for words in told)
        assert "nothing was sent: first token p50 ≤ 1.5 s" in " ".join(stage.text.split())
        await stage.press("h")
        assert type(stage.top()).__name__ == "HistoryScreen"
        await stage.press("escape", "escape")
        assert "nothing was sent" not in stage.text
        await stage.press("l", *"speed=9", "enter")
        await stage.settled()
        assert any("there is no figure 'speed'" in one for one in stage.notes)
        await stage.press("l", "escape")
        assert page(stage) is SweepPage.MAIN
