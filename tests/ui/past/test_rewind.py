"""Live rewind: past moments on every screen while everything else goes on."""

from __future__ import annotations

import re

import pytest

from sparktop.model.event import Severity
from sparktop.model.snapshot import Snapshot
from stage.rehearsal import START, Outage, Rehearsal
from tests.known import known
from tests.ui.board import SIZES, Board

pytestmark = pytest.mark.outside

SECONDS = 90


class Stage(Board):
    """A board that draws each second of a rehearsal; the first server stops answering on the way."""

    def __init__(self) -> None:
        """Make the app; nothing is drawn yet."""
        self.rehearsal = Rehearsal(outage=Outage(0, 40.0))
        self.live: list[Snapshot] = []
        super().__init__(self.rehearsal.store.snapshot)

    def play(self, seconds: int) -> None:
        """Draw each second."""
        for _ in range(seconds):
            self.rehearsal.play(1.0)
            self.overview.redraw()
            self.live.append(self.rehearsal.store.snapshot())

    async def back(self, steps: int = 1) -> None:
        """Go back by steps of 10 s."""
        await self.press(*["left_square_bracket"] * steps)

    async def refused(self, *keys: str) -> str:
        """Press keys; return the only notice that follows."""
        self.app.clear_notifications()
        await self.press(*keys)
        (note,) = self.notes
        return note

    @property
    def shown(self) -> Snapshot:
        """The snapshot on the screen."""
        return known(self.overview.shown)


@pytest.fixture
def stage() -> Stage:
    """A stage before its first picture."""
    return Stage()


async def test_a_past_moment_fills_every_screen(stage: Stage) -> None:
    """At each size, board, zoomed panel, processes and events are whole and of the same moment."""
    async with stage.on(SIZES[0]):
        stage.play(SECONDS)
        await stage.press("right_square_bracket", "greater_than_sign")
        assert (stage.app.overview.frozen, stage.notes[-1]) == (False, "nothing later is kept")
        await stage.back(2)
        for size in [*SIZES, (100, 30), (120, 36)]:
            await stage.resize(*size)
            assert stage.size == size
            clock = f"{stage.shown.taken_at.astimezone():%H:%M:%S}"
            assert f"REWIND −0:20 {clock}" in stage.rows[0]
            assert "┃" in stage.rows[-2]
            assert f"{clock}─╯" in stage.text, "the end of a time axis is not now"
        await stage.back(4)
        assert stage.shown.at == pytest.approx(30, abs=1)
        assert all(view.ok for view in stage.shown.backends)
        for key in ("e", "escape", "P", "escape", "b", "w", "escape", "escape", "down", "z"):
            await stage.press(key)
            board = stage.rows[1:-2]
            stage.play(1)
            assert stage.rows[1:-2] == board
        assert "unreachable" not in stage.text


async def test_e_explains_the_moment_then_lists_events(stage: Stage) -> None:
    """At each size: what happened, figures before and after; stepping reads the minutes around again."""
    async with stage.on((80, 24)):
        stage.play(SECONDS)
        await stage.press("left_curly_bracket")
        assert "explain" in stage.footer
        await stage.press("e")
        await stage.worked()
        clock = f"{stage.shown.taken_at.astimezone():%H:%M}"
        for size in SIZES[1:]:
            await stage.resize(*size)
            assert stage.size == size
            assert re.search(rf"│ {clock}:\d\d spark-a: ", stage.rows[2])
            assert f"the minute before and after {clock}" in stage.text
            assert "─ what happened ─" in stage.text
            assert re.search(rf"✖ {clock}:\d\d", stage.text)
        await stage.press("home")
        await stage.worked()
        assert "nothing listens" not in stage.rows[2]
        await stage.press("e")
        assert "alerts and events" in stage.rows[1]
        await stage.press("e")
        assert stage.zoomed() is None
        await stage.press("e", "p")
        assert "alerts and events" in stage.rows[1]


async def test_the_present_goes_on_and_comes_back_with_one_key(stage: Stage) -> None:
    """Pictures are kept while a past one is shown; p and end show the present at once."""
    async with stage.on((80, 24)):
        for key in ("p", "end"):
            stage.play(SECONDS // 2)
            await stage.back()
            stage.play(20)
            assert "REWIND −0:30" in stage.rows[0]
            await stage.press(key)
            assert stage.shown.at == stage.live[-1].at
            assert "REWIND" not in stage.rows[0]
        await stage.back()
        assert stage.shown.at == pytest.approx(stage.live[-1].at - 10, abs=1)


async def test_keys_typed_times_and_clicks_choose_the_moment(stage: Stage) -> None:
    """Events, a time back or of day, the bar; what is not kept, no time, or work on servers is refused."""
    async with stage.on((80, 24)):
        stage.play(SECONDS)
        await stage.press("left_curly_bracket")
        event_at = stage.shown.at
        assert event_at == pytest.approx(42, abs=1.5)
        assert any(event.severity is Severity.CRITICAL for event in stage.shown.events)
        (named,) = stage.notes
        assert re.match(r"✖ event \d of \d: \d\d:\d\d:\d\d spark-a: nothing listens", named)
        await stage.press("home", "right_curly_bracket")
        assert stage.shown.at == event_at
        assert await stage.refused("home", "left_square_bracket") == "nothing earlier is kept"
        assert await stage.refused("left_curly_bracket") == "no earlier event is kept"
        assert "✖" in stage.rows[-2]
        await stage.press("g", *"30s ago", "enter")
        assert stage.shown.at == pytest.approx(60, abs=1)
        await stage.press("g", *f"{START.astimezone():%H:%M}:20", "enter")
        assert stage.shown.at == pytest.approx(20, abs=1)
        refusal = await stage.refused("g", *"soon", "enter")
        assert refusal.startswith("'soon' is not a time: write it like 10m ago")
        await stage.press("backspace")
        assert stage.notes == []  # it would cover what is typed
        await stage.press("escape")
        assert "is before what is kept" in await stage.refused("g", *"2h", "enter")
        await stage.press("escape")
        assert stage.shown.at == pytest.approx(20, abs=1)
        assert not stage.overview.asked
        for key in ("s", "S"):
            assert await stage.refused(key) == "a past moment is shown: p goes back to live"
        stage.app.action_next_interval()
        assert await stage.refused("plus") == "plays 2 times as fast"
        assert await stage.refused("minus") == "plays 1 times as fast"
        assert stage.app.interval_s == 1.0
        await stage.press("end", "less_than_sign", "less_than_sign")
        assert stage.shown.at == pytest.approx(SECONDS - 0.2 * SECONDS, abs=2)
        await stage.press("greater_than_sign")
        assert stage.shown.at == pytest.approx(SECONDS - 0.1 * SECONDS, abs=2)
        await stage.click(10, 22)
        assert stage.shown.at < 5
        await stage.click(69, 22)
        assert stage.shown.at > SECONDS - 5


async def test_space_plays_on(stage: Stage) -> None:
    """From the moment shown as fast as it was; at the present the screen is live again."""
    clock = 1000.0
    stage.app.rewind._clock = lambda: clock

    def pass_time(seconds: float) -> None:
        nonlocal clock
        clock += seconds
        stage.overview.redraw()

    async with stage.on((80, 24)):
        stage.play(SECONDS)
        await stage.back(3)
        await stage.press("space")
        pass_time(12)
        assert stage.shown.at == pytest.approx(72, abs=1)
        assert "REWIND ▶ −0:18" in stage.rows[0]
        assert "space pause" in stage.footer
        await stage.press("plus", "plus")
        pass_time(2)
        assert stage.shown.at == pytest.approx(80, abs=1)
        assert "REWIND ▶ 4× −0:10" in stage.rows[0]
        await stage.press("minus", "minus", "left_square_bracket", "space", "space")
        assert "space play" in stage.footer
        assert stage.shown.at == pytest.approx(70, abs=2)
        await stage.press("space")
        pass_time(2)
        await stage.press("space")
        pass_time(100)
        assert stage.shown.at == pytest.approx(72, abs=1)
        await stage.press("space")
        pass_time(100)
        assert "REWIND" not in stage.rows[0]
