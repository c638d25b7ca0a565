"""A sweep on the overview: its keys, its countdown, its band, and how it ends.

How a sweep on the screen ends: by itself, by an error, with the program.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.widgets import Static

from sparktop.errors import SparktopError
from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.panels.board.layout import PanelKey
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import earlier_results, load, stored_sweeps
from sparktop.sweep.session import Stage
from sparktop.ui.screens.dialogs import AskScreen, QuitScreen
from sparktop.ui.screens.help import HelpScreen
from sparktop.ui.screens.sweep import SweepScreen
from tests.known import known
from tests.ui.sweep_stage import PRESET, PlayedRunner, SweepStage

SWEEP = PanelKey("sweep", "")


@pytest.fixture
def stage(tmp_path: Path) -> SweepStage:
    return SweepStage(tmp_path)


async def test_s_counts_down_before_anything_is_sent(stage: SweepStage) -> None:
    """The band says what will happen to whom and how to stop it; no runner is made before the end."""
    async with stage.on((80, 24)):
        await stage.press("s")
        assert stage.at() is Stage.COUNTDOWN
        text = stage.text
        assert "┐sweep quick┌" in text
        assert "starts in 3 s" in text
        assert "spark-a (engine)" in text
        assert "proxy (router)" in text
        assert "42 + 14 warm-up requests" in text
        assert "esc stops it" in text
        assert "enter" not in text.splitlines()[-1]
        assert stage.runners == []
        assert stage.size == (80, 24)
        stage.countdowns[-1].set_result(None)
        await stage.pilot.pause()
        assert len(stage.runners) == 1
        assert [one.name for one in stage.runner.plan.targets] == ["spark-a", "proxy"]
        assert stage.at() is Stage.RUNNING


async def test_a_running_sweep_is_a_band_over_the_monitor(stage: SweepStage) -> None:
    """The band shows the running level, the header the progress; the monitor stays below."""
    async with stage.on((80, 24)):
        await stage.start()
        stage.play(("spark-a", 1)).run("spark-a", 2, 0, upto_s=1.5)
        stage.app._redraw()
        text = stage.text
        assert "┐running┌" in text
        assert "spark-a, c = 2: run 1 of 3" in text
        assert "¹node" in text
        assert stage.app.overview.selected == SWEEP
        assert " x stop " in stage.footer
        assert "sweep 17 %" in text.splitlines()[0]
        assert stage.size == (80, 24)


async def test_done_stays_as_a_band_until_it_is_dismissed(stage: SweepStage) -> None:
    """The band shows the end and the name of the file; esc removes the band, the file stays."""
    async with stage.on((80, 24)):
        await stage.start()
        stage.play()
        await stage.finish()
        assert stage.at() is Stage.OVER
        assert "┐done┌" in stage.text
        ((path, kept),) = stored_sweeps(stage.folder).items()
        assert isinstance(kept, SweepResult)
        assert kept.status == "done"
        assert path.name in stage.toasts()[-1]
        started, ended = stage.events()
        assert "started on spark-a, proxy" in started
        assert "done: 6 levels" in ended
        assert path.name in ended
        await stage.press("escape")
        assert stage.at() is Stage.NONE
        assert "┐done┌" not in stage.text
        assert path.exists()


async def test_x_twice_stops_and_says_what_is_kept(stage: SweepStage) -> None:
    """The first press only asks; the second ends the load, and the file holds what is done."""
    async with stage.running(("spark-a", 1), ("spark-a", 2), size=(80, 24)):
        await stage.press("x")
        assert not stage.stopped_by()
        assert stage.toasts()[-1] == "press x again to stop the sweep; what is done is kept"
        await stage.press("x")
        await stage.over()
        assert stage.stopped_by() == "stopped by hand"
        assert "┐cancelled┌" in stage.text
        path = known(stage.sweeping.path)
        assert load(path).status == "cancelled"
        assert "2 levels done; kept in" in stage.toasts()[-1]
        assert path.name in stage.toasts()[-1]


async def test_a_preset_key_starts_its_preset(stage: SweepStage) -> None:
    """A key of the configuration starts that preset on its targets; the help has it."""
    async with stage.on():
        await stage.press("question_mark")
        sections = HelpScreen.sections(stage.app.overview.key_table)
        assert any("start the sweep preset evening" in text for _, lines in sections for _, text, _ in lines)
        await stage.press("escape", "f5")
        assert "┐sweep evening┌" in stage.text
        await stage.counted_down()
        assert [one.name for one in stage.runner.plan.targets] == ["spark-b"]


def free() -> tuple[SweepSpec, ...]:
    """Return the default preset without targets of its own."""
    return (SweepSpec("quick", concurrency=(1, 2, 4), prompt_lengths=(100,), tg=4, runs=3),)


async def test_a_target_from_elsewhere_asks_first(tmp_path: Path) -> None:
    """What is neither configured nor on this machine gets no load without a yes."""
    stage = SweepStage(tmp_path, source="arguments", router=False, sweeps=free())
    async with stage.on():
        await stage.pilot.pause()
        stage.app.overview.selected = PanelKey("backend", "spark-b")
        await stage.press("s")
        assert isinstance(stage.top(), AskScreen)
        await stage.press("n")
        assert stage.at() is Stage.NONE
        await stage.press("s", "y")
        assert stage.at() is Stage.COUNTDOWN
        await stage.press("escape")


async def test_without_servers_s_says_so(tmp_path: Path) -> None:
    """With nothing watched, or nothing of a preset's name, there is nothing to sweep, and no error."""
    stage = SweepStage(tmp_path, drop=True, sweeps=())
    async with stage.on((80, 24)):
        await stage.press("s")
        assert stage.toasts() == ["nothing to sweep: no server or router is watched yet"]
    lost = SweepStage(tmp_path, sweeps=(PRESET, SweepSpec("lost", targets=("spark-z",), key="f6")))
    async with lost.on():
        await lost.press("f6")
        assert (lost.toasts(), lost.at()) == (["nothing of that name is watched: spark-z"], Stage.NONE)


async def test_the_band_opens_the_full_screen(stage: SweepStage) -> None:
    """z, Enter and a second click on the band show the sweep on the whole screen; esc goes back."""
    async with stage.running(("spark-a", 1)):
        for keys in (("z",), ("enter",)):
            await stage.press(*keys)
            assert isinstance(stage.top(), SweepScreen)
            await stage.press("escape")
            assert stage.top() is stage.app.overview
        await stage.press("down")
        assert stage.app.overview.selected != SWEEP
        for _ in range(2):
            await stage.click(20, 3)
        assert isinstance(stage.top(), SweepScreen)


async def test_it_asks_before_it_disturbs_requests_of_others(stage: SweepStage) -> None:
    """Where requests run on a target, every key that puts load on it asks first and names their number."""
    async with stage.on((80, 24)):
        running = round(sum(view.running or 0 for view in stage.store.snapshot().backends))
        assert running > 0
        for key in ("s", "a", "f5"):
            await stage.pilot.press(key)
            await stage.pilot.pause()
            assert isinstance(stage.top(), AskScreen)
            text = str(stage.top().query_one(Static).content)
            assert "running, " in text
            is_demo = stage.store.snapshot().simulated
            assert ("requests of others" in text) is not is_demo
            assert ("The demo's own load pauses meanwhile." in text) is is_demo
            levels = r"(, 1 to (at most )?\d+ (requests at once|agents))?"
            asked = rf"(Put load on [\w -]+{levels}|Put load on [\w -]+ to find the most agents)"
            assert re.search(rf"{asked}, for [\w, ]+(s|min)\?$", text)
            assert stage.at() is Stage.NONE
            await stage.press("n")
            assert stage.at() is Stage.NONE
            assert stage.countdowns == []


async def test_the_question_has_the_highest_level_of_the_countdown(stage: SweepStage) -> None:
    """Both are the forecast's, by the slots of the servers, not the highest level that a preset allows."""
    async with stage.on((120, 36)):
        one, several = SweepSpec("one", concurrency=(1,)), SweepSpec("s", climb_to=256, concurrency=(1, 4))
        stage.app.desk.watch = replace(stage.watch, sweeps=(one, several))
        stage.app.desk.start_preset(0, None)
        await stage.pilot.pause()
        assert ", 1 request at once, for" in str(stage.top().query_one(Static).content)
        await stage.press("n")
        stage.app.desk.start_preset(1, None)
        await stage.pilot.pause()
        question = str(stage.top().query_one(Static).content)
        asked = known(re.search(r"1 to 4 requests at once, then up to (\d+) while", question))[1]
        await stage.press("y")
        assert asked == known(re.search(r"may go on to c = (\d+)", stage.text))[1] != "256"


async def test_a_sweep_that_its_guard_would_stop_at_once_is_not_offered(stage: SweepStage) -> None:
    """No question and no countdown, but which limit is broken, and where it is set."""
    async with stage.on((120, 30)):
        stage.app.desk.watch = replace(stage.watch, guard=GuardLimits(min_headroom_gib=100.0))
        await stage.pilot.press("s")
        await stage.pilot.pause()
        assert not isinstance(stage.top(), AskScreen)
        assert stage.countdowns == []
        words = (
            r"no sweep: spark-a has [\d.]+ GiB of memory left, the limit is 100 GiB.* \(the editor, S, sets"
        )
        assert re.search(words, " ".join(stage.toasts()))


async def test_the_palette_offers_presets_whatever_they_are_called(tmp_path: Path) -> None:
    """A preset's name is text, not markup, in the command palette and in the help."""
    odd = SweepSpec("[/b] [red", targets=("spark-b",), key="f6")
    stage = SweepStage(tmp_path, sweeps=(PRESET, odd))
    async with stage.on():
        await stage.press("ctrl+p", *"sweep")
        await stage.worked()
        await stage.press("escape", "escape", "question_mark", "escape", "f6")
        assert stage.at() is Stage.COUNTDOWN
        assert "┐sweep [/b] [red┌" in stage.text
        await stage.press("escape")


async def test_a_countdown_can_be_stopped_and_not_shortened(stage: SweepStage) -> None:
    """Esc and the footer's first words stop it: nothing was sent or kept; no other key or click starts it."""
    async with stage.on((80, 24)):
        before = stage.text
        await stage.press("s", "escape")
        assert (stage.at(), stage.text == before) == (Stage.NONE, True)
        assert stage.countdowns[-1].cancelled()
        await stage.press("s")
        await stage.click(stage.footer.index("stops it"), 23)
        assert stage.at() is Stage.NONE
        assert not stage.folder.exists()
        await stage.press("s", "s", "enter", "enter", "z", "space", "f5", "a")
        await stage.pilot.click("#canvas", offset=(20, 3), times=2)
        await stage.pilot.pause()
        assert (stage.at(), stage.runners) == (Stage.COUNTDOWN, [])
        await stage.press("escape")


async def test_the_band_is_there_in_every_view_and_a_second_sweep_is_refused(stage: SweepStage) -> None:
    """At the top of watch, compact, one server and fleet view; p holds it still while the sweep goes on."""
    async with stage.on():
        await stage.press("x")
        assert stage.toasts() == ["no sweep is running"]
        await stage.start()
        stage.play(("spark-a", 1))
        for preset in range(4):
            assert "┐sweep quick┌" in stage.rows[1]
            assert "spark-b" in stage.text or preset == 2
            await stage.press("escape", "up", "down")
            assert "┐sweep quick┌" in stage.rows[1]
            await stage.press("v")
        await stage.press("s", "f5")
        assert stage.toasts()[-2:] == ["a sweep runs already: x twice stops it"] * 2
        assert len(stage.runners) == 1
        await stage.press("p")
        held = stage.text
        stage.play(("spark-a", 2))
        assert stage.text == held
        await stage.press("p")
        assert stage.text != held


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SparktopError("the load generator did not start: no room"), "did not start: no room"),
        (ZeroDivisionError("what is this"), "this is a bug: ZeroDivisionError: what is this"),
    ],
)
async def test_a_runner_that_fails_is_a_line(stage: SweepStage, error: Exception, words: str) -> None:
    """The band and a toast say what went wrong, no empty file is left, and the monitor goes on."""
    async with stage.running():
        stage.runner.fail(error)
        await stage.over()
        assert "┐failed┌" in stage.text
        assert all(word in stage.text for word in words.split())
        assert words in stage.toasts()[-1]
        assert list(stage.folder.iterdir()) == []
        await stage.press("escape")
        assert "spark-b" in stage.text


async def test_quitting_asks_while_a_sweep_runs(stage: SweepStage) -> None:
    """No goes on; yes stops the load, saves, and leaves."""
    async with stage.running(("spark-a", 1)):
        await stage.press("q", "n")
        assert not stage.stopped_by()
        await stage.press("ctrl+q", "ctrl+q")
        assert isinstance(stage.top(), AskScreen)
        assert stage.app.screen_stack == [stage.app.overview, stage.top()]
        await stage.press("y")
    assert stage.stopped_by() == "the program was left"
    (kept,) = earlier_results(stage.folder, 0)
    assert kept.status == "cancelled"


async def test_a_second_ctrl_c_quits_at_once(stage: SweepStage) -> None:
    """The first asks while a sweep runs, in a dialog too; the second stops the load and saves."""
    async with stage.running(("spark-a", 1), size=(80, 24)):
        await stage.press("question_mark", "ctrl+c")
        assert isinstance(stage.top(), QuitScreen)
        assert not stage.stopped_by()
        await stage.press("ctrl+c")
    assert stage.stopped_by() == "the program was left"
    assert len(stored_sweeps(stage.folder)) == 1


async def test_leaving_in_any_other_way_saves_too(stage: SweepStage) -> None:
    """An application that ends while a sweep runs calls it off and waits until it is saved."""
    async with stage.running(("spark-a", 1)):
        pass
    assert stage.stopped_by() == "the program ended"
    (kept,) = earlier_results(stage.folder, 0)
    assert kept.status == "cancelled"


async def test_a_generator_that_does_not_end_does_not_hold_the_program(
    stage: SweepStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is silent after it was cancelled is ended with the program."""
    monkeypatch.setattr("sparktop.sweep.session.LEAVE_S", 0.01)
    monkeypatch.setattr(PlayedRunner, "end", lambda *_: None)
    async with stage.running():
        pass
    assert stage.stopped_by() == "the program ended"
    assert known(stage.sweeping._task).cancelled()
