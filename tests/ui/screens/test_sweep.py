"""A sweep on the whole screen: its pages, its table, and what its keys do."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from sparktop.config.keys import SWEEP_KEYS
from sparktop.model.sweep import LevelKey
from sparktop.panels.parts.text import row_width
from sparktop.sweep.plan.plan import Load
from sparktop.ui.screens.help import SweepHelpScreen
from sparktop.ui.screens.sweep import Page, SweepScreen
from tests.ui.sweep_stage import SIZES, SweepStage, key, notice, over, press

FULL = [(60, 16), *SIZES]


@pytest.fixture
def stage(tmp_path: Path) -> SweepStage:
    return SweepStage(tmp_path)


async def run_and_open(stage: SweepStage, pilot: Pilot[None]) -> None:
    """Play up to the middle of the third level, and open the full screen."""
    await stage.start(pilot)
    stage.play(("spark-a", 1), ("spark-a", 2)).run("spark-a", Load(100, 4), 0, upto_s=1.5)
    await stage.settled()
    await press(pilot, "z")


async def done_and_open(stage: SweepStage, pilot: Pilot[None]) -> None:
    """Play it to its end, and open the full screen."""
    await stage.start(pilot)
    stage.play()
    await stage.finish(pilot)
    await press(pilot, "z")


def page(stage: SweepStage) -> Page:
    """Return the page on the screen."""
    return stage.full.page


def chosen(stage: SweepStage) -> LevelKey | None:
    """Return the chosen level."""
    return stage.full.chosen


@pytest.mark.parametrize("size", FULL)
async def test_every_page_has_exactly_the_size_of_the_terminal(
    stage: SweepStage, size: tuple[int, int]
) -> None:
    """Main page, curves, targets, evidence and notices fill the screen, and their footers name their keys."""
    async with stage.app.run_test(size=size) as pilot:
        await done_and_open(stage, pilot)
        for keys, wanted in (
            ((), Page.MAIN),
            (("v",), Page.CURVES),
            (("T",), Page.TOPOLOGIES),
            (("n",), Page.NOTICES),
            (("escape", "down", "enter"), Page.EVIDENCE),
        ):
            await press(pilot, *keys)
            assert page(stage) is wanted
            rows = stage.full.canvas.rows
            assert len(rows) == size[1]
            assert {row_width(row) for row in rows} == {size[0]}
            assert " esc back" in stage.footer()


@pytest.mark.parametrize("size", SIZES)
async def test_a_running_sweep_redraws_itself(stage: SweepStage, size: tuple[int, int]) -> None:
    """Levels turn from running to done on the screen while it is open."""
    async with stage.app.run_test(size=size) as pilot:
        await run_and_open(stage, pilot)
        assert "┐running┌" in stage.text()
        assert "tok/s" in stage.text() or size == (80, 24)
        assert "running" in stage.text().splitlines()[-8:][0] or "0/3 runs" in stage.text()
        stage.play(("spark-a", 4))
        await stage.settled()
        assert "0/3 runs" not in stage.text()
        await stage.finish(pilot)
        assert "┐done┌" in stage.text()
        assert "Decode in" in stage.text()


async def test_arrows_choose_a_level_and_enter_says_why(stage: SweepStage) -> None:
    """The choice begins at the newest level, moves, and its evidence opens; esc goes back step by step."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await run_and_open(stage, pilot)
        await press(pilot, "down")
        assert chosen(stage) == key("spark-a", 4)
        await press(pilot, "up", "k", "k")
        assert chosen(stage) == key("spark-a", 1)
        await press(pilot, "j", "enter")
        assert "┐why?┌ spark-a c = 2" in stage.text()
        await press(pilot, "escape")
        assert page(stage) is Page.MAIN
        await press(pilot, "escape")
        assert stage.top() is stage.app.overview
        stage.runner.cancel()
        await over(stage, pilot)


async def test_a_level_that_has_not_begun_has_no_evidence(stage: SweepStage) -> None:
    """Enter on a level ahead says that nothing is known yet."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await run_and_open(stage, pilot)
        await press(pilot, "pagedown", "pagedown", "enter")
        assert chosen(stage) == key("proxy", 4)
        assert page(stage) is Page.MAIN
        assert stage.toasts()[-1] == "nothing is known of this level yet"
        stage.runner.cancel()
        await over(stage, pilot)


async def test_the_evidence_turns_through_the_runs(stage: SweepStage) -> None:
    """The tab and arrow keys show the requests of another run; the newest is shown first."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await done_and_open(stage, pilot)
        await press(pilot, "down", "enter")
        assert "run 3, 4 requests" in stage.text()
        assert "tab other run" in stage.footer()
        await press(pilot, "tab")
        assert "run 1, 4 requests" in stage.text()
        await press(pilot, "left")
        assert "run 3, 4 requests" in stage.text()


async def test_what_is_taller_than_the_screen_scrolls(stage: SweepStage) -> None:
    """On 80x24 the evidence goes on below: arrows, PgDn and the wheel bring it into sight."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await done_and_open(stage, pilot)
        await press(pilot, "down", "enter")
        assert "more rows" in stage.footer()
        assert "waiting is estimated" not in stage.text()
        await press(pilot, *["down"] * 5)
        assert "waiting is estimated" in stage.text()
        await press(pilot, "pageup")
        assert "┐why?┌" in stage.text()
        await press(pilot, "pagedown")
        assert "waiting is estimated" in stage.text()


@pytest.mark.parametrize("size", [(120, 36), (200, 50)])
async def test_a_click_chooses_the_level_and_a_second_opens_it(
    stage: SweepStage, size: tuple[int, int]
) -> None:
    """The row that is clicked is the row that is drawn there, beside the curves as well as below them."""
    async with stage.app.run_test(size=size) as pilot:
        await done_and_open(stage, pilot)
        lines = stage.text().splitlines()
        y = next(i for i, line in enumerate(lines) if "B proxy   c2" in line and "batch" not in line)
        x = lines[y].index("B proxy   c2")
        await pilot.click("#canvas", offset=(x, y))
        await pilot.pause()
        assert chosen(stage) == key("proxy", 2)
        await pilot.click("#canvas", offset=(x, y))
        await pilot.pause()
        assert "┐why?┌ proxy c = 2" in stage.text()


async def test_the_wheel_goes_through_the_table(stage: SweepStage) -> None:
    """Each turn of the wheel chooses the next level; it stops at the ends."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await done_and_open(stage, pilot)
        canvas = stage.full.canvas
        for _ in range(8):
            canvas.post_message(canvas.Wheeled(-1))
        await pilot.pause()
        assert chosen(stage) == key("spark-a", 1)


async def test_curves_and_tracks_come_in_turn(stage: SweepStage) -> None:
    """Of a sweep that is over g shows curves alone, then the tracks again, then curves with the table."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await done_and_open(stage, pilot)
        assert "Decode in" in stage.text()
        await press(pilot, "v")
        assert "┐curves┌" in stage.text()
        await press(pilot, "v")
        assert "in flight" in stage.text()
        assert "┐sweep quick┌" in stage.text()
        await press(pilot, "v", "v")
        assert "Decode in" in stage.text()
        assert "┐sweep quick┌" in stage.text()


async def test_before_the_first_level_there_are_no_curves(stage: SweepStage) -> None:
    """g, t and r say what they lack instead of showing an empty page."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await stage.start(pilot)
        await press(pilot, "z", "v", "T", "R")
        assert page(stage) is Page.MAIN
        assert stage.toasts() == [
            "no curves yet: no level is done",
            "only one target: nothing to compare",
            "no published table has figures for these curves",
        ]
        stage.runner.cancel()
        await over(stage, pilot)


async def test_published_tables_go_round(stage: SweepStage) -> None:
    """Key R lays one table after another over the curves, names it and its source, and ends with none."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await done_and_open(stage, pilot)
        seen = []
        while True:
            await press(pilot, "R")
            reference = stage.full.reference
            if reference is None:
                break
            seen.append(reference.name)
            assert f"ref:{reference.name}" in stage.text()
            assert f"Ref: {reference.name[:20]}" in stage.footer()
            assert reference.source in stage.toasts()[-1]
        assert len(seen) == len(set(seen)) >= 2
        assert "ref:" not in stage.text()


async def test_a_reference_stays_while_levels_come(stage: SweepStage) -> None:
    """What is laid over a running sweep's curves is still there after the next level."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await run_and_open(stage, pilot)
        await press(pilot, "R", "v")
        assert "ref:" in stage.text()
        stage.play(("spark-a", 4))
        await stage.settled()
        assert "ref:" in stage.text()
        stage.runner.cancel()
        await over(stage, pilot)


async def test_x_twice_stops_from_here_too(stage: SweepStage) -> None:
    """The same two presses; one that is over cannot be stopped, and the footer offers it no more."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await run_and_open(stage, pilot)
        assert "x stop" in stage.footer()
        await press(pilot, "x", "x")
        await over(stage, pilot)
        assert "┐cancelled┌" in stage.text()
        assert "x stop" not in stage.footer()
        await press(pilot, "x")
        assert stage.toasts()[-1] == "this sweep is over"


async def test_notices_are_listed_newest_first(stage: SweepStage) -> None:
    """Key n shows all that was said, and goes back."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await run_and_open(stage, pilot)
        for words in ("the first thing", "the second thing"):
            stage.runner.take(notice(words))
        await press(pilot, "n")
        text = stage.text()
        assert text.index("the second thing") < text.index("the first thing")
        await press(pilot, "n")
        assert page(stage) is Page.MAIN
        stage.runner.cancel()
        await over(stage, pilot)


async def test_the_help_has_every_key_of_this_screen(stage: SweepStage) -> None:
    """It is made from the one table; what that binds is an action of the screen or the application."""
    text = SweepHelpScreen.text(SWEEP_KEYS).plain
    assert all(one.help in text for one in SWEEP_KEYS)
    keys = [name for one in SWEEP_KEYS for name in one.keys]
    assert len(keys) == len(set(keys))
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await run_and_open(stage, pilot)
        for one in SWEEP_KEYS:
            name = one.action.partition("(")[0]
            owner = stage.app if name.startswith("app.") else stage.full
            assert hasattr(owner, f"action_{name.removeprefix('app.')}")
        await press(pilot, "question_mark")
        assert isinstance(stage.top(), SweepHelpScreen)
        await press(pilot, "escape")
        assert isinstance(stage.top(), SweepScreen)
        stage.runner.cancel()
        await over(stage, pilot)


async def test_the_footer_is_a_row_of_buttons(stage: SweepStage) -> None:
    """A click on a label of the footer, such as "other run", does what its key does."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await done_and_open(stage, pilot)
        for word, seen in (("why", "┐why?┌"), ("other run", "run 1, "), ("back", "┐sweep quick┌")):
            await pilot.click("#canvas", offset=(stage.footer().index(word), 35))
            await pilot.pause()
            assert seen in stage.text()


async def test_too_small_says_so_and_comes_back(stage: SweepStage) -> None:
    """Below 60x16 it says what is needed; larger again it shows the sweep again."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await done_and_open(stage, pilot)
        await pilot.resize_terminal(59, 15)
        await pilot.pause()
        assert "needs 60×16, has " in stage.text()
        await press(pilot, "down", "enter", "escape")
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "┐sweep quick┌" in stage.text()


async def test_another_theme_repaints_this_screen(stage: SweepStage) -> None:
    """A theme chosen while it is open holds here and on the board below."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await done_and_open(stage, pilot)
        before = stage.full.canvas.render_line(0)
        stage.app.theme = "spark-light"
        await pilot.pause()
        after = stage.full.canvas.render_line(0)
        assert before.text == after.text
        assert [one.style for one in before] != [one.style for one in after]


async def test_history_and_comparison_lead_to_the_results(stage: SweepStage) -> None:
    """Key c opens the list of results with this one marked; h from a result goes back to the same list."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        await done_and_open(stage, pilot)
        await press(pilot, "c")
        assert type(stage.top()).__name__ == "HistoryScreen"
        assert "c lays them side by side" in stage.toasts()[-1]
        await stage.app.workers.wait_for_complete()
        depth = len(stage.app.screen_stack)
        await press(pilot, "enter")
        await stage.app.workers.wait_for_complete()
        await pilot.pause()
        assert isinstance(stage.top(), SweepScreen)
        await press(pilot, "h")
        assert type(stage.top()).__name__ == "HistoryScreen"
        assert len(stage.app.screen_stack) == depth
