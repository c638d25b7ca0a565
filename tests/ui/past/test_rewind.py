"""Live rewind: past moments on every screen while everything else goes on."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from sparktop.model.event import Severity
from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.text import row_text, row_width
from sparktop.ui.app import SparktopApp
from stage.rehearsal import START, Outage, Rehearsal

pytestmark = pytest.mark.outside

SECONDS = 90


class Stage:
    """An app that has drawn each second of a rehearsal; the first server stops answering on the way."""

    def __init__(self) -> None:
        """Make the app; nothing is drawn yet."""
        self.rehearsal = Rehearsal(outage=Outage(0, 40.0))
        self.live: list[Snapshot] = []
        self.app = SparktopApp(self.rehearsal.store.snapshot)

    def play(self, seconds: int) -> None:
        """Draw each second."""
        for _ in range(seconds):
            self.rehearsal.play(1.0)
            self.app.overview.redraw()
            self.live.append(self.rehearsal.store.snapshot())

    def texts(self) -> list[str]:
        """Return the rows on the screen."""
        return [row_text(row) for row in self.app.overview.canvas.rows]

    @property
    def shown(self) -> Snapshot:
        """The snapshot on the screen."""
        shown = self.app.overview.shown
        assert shown is not None
        return shown


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def type_time(pilot: Pilot[None], text: str) -> None:
    await press(pilot, "g")
    await press(pilot, *text, "enter")


@pytest.fixture
def stage() -> Stage:
    """A stage before its first picture."""
    return Stage()


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 36), (200, 50)])
async def test_a_past_moment_fills_the_terminal(stage: Stage, size: tuple[int, int]) -> None:
    """Header with moment and clock, board, bar and footer: as many rows and cells as the terminal has."""
    async with stage.app.run_test(size=size) as pilot:
        stage.play(SECONDS)
        await press(pilot, "left_square_bracket", "left_square_bracket")
        rows = stage.app.overview.canvas.rows
        assert (len(rows), {row_width(row) for row in rows}) == (size[1], {size[0]})
        clock = f"{stage.shown.taken_at.astimezone():%H:%M:%S}"
        assert f"REWIND −0:20 {clock}" in stage.texts()[0]
        assert "┃" in stage.texts()[-2]
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert {len(text) for text in stage.texts()} == {100}


async def test_every_screen_shows_the_past_snapshot(stage: Stage) -> None:
    """Board, zoomed panel, processes, events and the file that F2 writes are those of the same moment."""
    async with stage.app.run_test(size=(120, 36)) as pilot:
        stage.play(SECONDS)
        await press(pilot, *["left_square_bracket"] * 6)
        assert stage.shown.at == pytest.approx(30, abs=1)
        assert all(view.ok for view in stage.shown.backends)
        for key in ("e", "escape", "P", "escape", "b", "w", "escape", "escape", "down", "z"):
            await press(pilot, key)
            board = stage.texts()[1:-2]
            stage.play(1)
            assert stage.texts()[1:-2] == board
        assert "unreachable" not in "\n".join(stage.texts())


async def test_the_present_goes_on_and_comes_back_with_one_key(stage: Stage) -> None:
    """Pictures are kept while a past one is shown; p and end show the present at once."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        for key in ("p", "end"):
            stage.play(SECONDS // 2)
            await press(pilot, "left_square_bracket")
            stage.play(20)
            assert "REWIND −0:30" in stage.texts()[0]
            await press(pilot, key)
            assert stage.shown.at == stage.live[-1].at
            assert "REWIND" not in stage.texts()[0]
        await press(pilot, "left_square_bracket")
        assert stage.shown.at == pytest.approx(stage.live[-1].at - 10, abs=1)


async def test_a_step_beyond_what_is_kept_says_so(stage: Stage) -> None:
    """At the oldest picture the key for 10 s back says that nothing earlier is kept."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.play(SECONDS)
        await press(pilot, "home", "left_square_bracket")
        assert [notice.message for notice in stage.app._notifications] == ["nothing earlier is kept"]


async def test_steps_to_events(stage: Stage) -> None:
    """{ shows the first picture with the event, } goes on to the next; beyond them it says so."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.play(SECONDS)
        await press(pilot, "left_curly_bracket")
        found = stage.shown
        assert found.at == pytest.approx(42, abs=1.5)
        assert any(event.severity is Severity.CRITICAL for event in found.events)
        await press(pilot, "home", "right_curly_bracket")
        assert stage.shown.at == found.at
        await press(pilot, "home", "left_curly_bracket")
        assert [notice.message for notice in stage.app._notifications] == ["no earlier event is kept"]
        assert "✖" in stage.texts()[-2]


async def test_home_and_end_stay_on_a_page_that_scrolls(stage: Stage) -> None:
    """On a panel higher than the screen they go to its top and its end; elsewhere they choose the moment."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.play(SECONDS)
        await press(pilot, "P", "escape", "z")
        top = stage.texts()[1:-1]
        await press(pilot, "pagedown")
        assert stage.texts()[1:-1] != top
        for _ in range(2):
            await press(pilot, "home")
            assert stage.texts()[1:-1] == top
        await press(pilot, "end")
        assert stage.texts()[-2].startswith("╰")
        assert not stage.app.overview.frozen
        await press(pilot, "escape", "home")
        assert stage.app.overview.frozen


async def test_a_time_is_typed(stage: Stage) -> None:
    """It counts back from now or is a time of day; an invalid or unavailable time stays in the line."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.play(SECONDS)
        await type_time(pilot, "30s ago")
        assert stage.shown.at == pytest.approx(60, abs=1)
        await type_time(pilot, f"{START.astimezone():%H:%M}:20")
        assert stage.shown.at == pytest.approx(20, abs=1)
        await type_time(pilot, "soon")
        (notice,) = stage.app._notifications
        assert notice.message.startswith("'soon' is not a time: write it like 10m ago")
        await press(pilot, "escape")
        await type_time(pilot, "2h")
        (notice,) = stage.app._notifications
        assert "is before what is kept" in notice.message
        await press(pilot, "escape")
        assert stage.shown.at == pytest.approx(20, abs=1)
        assert not stage.app.overview._asks("time")


async def test_space_plays_on(stage: Stage) -> None:
    """From the moment shown as fast as it was; at the present the screen is live again."""
    clock = 1000.0
    stage.app.rewind._clock = lambda: clock
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.play(SECONDS)
        await press(pilot, *["left_square_bracket"] * 3, "space")
        clock += 12
        stage.app.overview.redraw()
        assert stage.shown.at == pytest.approx(72, abs=1)
        assert "REWIND ▶ −0:18" in stage.texts()[0]
        await press(pilot, "space")
        clock += 100
        stage.app.overview.redraw()
        assert stage.shown.at == pytest.approx(72, abs=1)
        await press(pilot, "space")
        clock += 100
        stage.app.overview.redraw()
        assert "REWIND" not in stage.texts()[0]


async def test_servers_are_left_alone(stage: Stage) -> None:
    """Sweeps and the poll interval are refused in words while a past moment is shown."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.play(20)
        await press(pilot, "p")
        for key in ("s", "S", "plus", "minus"):
            stage.app.clear_notifications()
            await press(pilot, key)
            (notice,) = stage.app._notifications
            assert notice.message == "a past moment is shown: p goes back to live"
        assert stage.app.interval_s == 1.0


async def test_a_click_on_the_bar_shows_its_time(stage: Stage) -> None:
    """The left end is the oldest moment, the right end the newest."""
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.play(SECONDS)
        await press(pilot, "p")
        await pilot.click("#canvas", offset=(10, 22))
        await pilot.pause()
        assert stage.shown.at < 5
        await pilot.click("#canvas", offset=(69, 22))
        await pilot.pause()
        assert stage.shown.at > SECONDS - 5
