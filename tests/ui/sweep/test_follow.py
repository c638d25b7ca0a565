"""A run of another program on the board: from its file to the band and the table, at three sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sparktop.model.targets import BackendTarget, Watch
from sparktop.panels.parts.rows import row_text, row_width
from sparktop.store import Store
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.overview import OverviewScreen
from sparktop.ui.screens.sweep import SweepScreen

RECORDED = (
    Path(__file__).parent.parent.parent / "data" / "results" / "llama-benchy-0.4.0-bursts-progress.jsonl"
)
SIZES = [(80, 24), (120, 36), (200, 50)]


def make_app(followed: Path) -> SparktopApp:
    """Return an application that watches one silent server and follows a file."""
    watch = Watch(backends=(BackendTarget("spark-a", "http://127.0.0.1:8000"),))
    store = Store(watch)
    app = SparktopApp(store.snapshot, store=store, watch=watch)
    app.followed = followed
    return app


def text_of(screen: OverviewScreen | SweepScreen) -> str:
    return "\n".join(row_text(row) for row in screen.canvas.rows)


async def shows(app: SparktopApp, *words: str, of: Callable[[], str] | None = None) -> None:
    """Draw until all the words are on the screen."""
    look = of or partial(text_of, app.overview)
    async with asyncio.timeout(300):
        while not all(word in look() for word in words):
            await asyncio.sleep(0.01)
            app._redraw()


@pytest.mark.parametrize("size", SIZES)
async def test_a_finished_run_stands_on_the_board(size: tuple[int, int]) -> None:
    """Its tool, its end and its answer are there, above the monitor."""
    app = make_app(RECORDED)
    async with app.run_test(size=size):
        await shows(app, "sweep llama-benchy 0.4.0", "best: c = 4", "spark-a")
        assert {row_width(row) for row in app.overview.canvas.rows} == {size[0]}


async def test_a_file_that_is_not_there_is_waited_for_on_the_board(tmp_path: Path) -> None:
    """The band says so; once written it is drawn, and so is a second run in the same file."""
    path = tmp_path / "progress.jsonl"
    app = make_app(path)
    lines = RECORDED.read_bytes().splitlines(keepends=True)
    async with app.run_test(size=(120, 36)):
        await shows(app, "no such file yet")
        path.write_bytes(b"".join(lines[:60]))
        await shows(app, "c = 4: run 1")
        with path.open("ab") as file:
            file.writelines(lines[60:])
        await shows(app, "┐done┌")
        path.write_bytes(lines[0].replace(b"0.4.0", b"0.4.1") + b"".join(lines[2:60]))
        await shows(app, "llama-benchy 0.4.1", "c = 4: run 1")


async def test_x_twice_ends_the_following(tmp_path: Path) -> None:
    """Only the following ends; the picture stays until it is dismissed."""
    path = tmp_path / "progress.jsonl"
    app = make_app(path)
    async with app.run_test(size=(120, 36)) as pilot:
        await shows(app, "no such file yet")
        path.write_bytes(b"".join(RECORDED.read_bytes().splitlines(keepends=True)[:60]))
        await shows(app, "c = 4: run 1")
        await pilot.press("x", "x")
        await shows(app, "followed no longer")
        assert not app.desk.busy


async def test_the_full_screen_has_its_table_and_its_requests() -> None:
    """As for a sweep of our own, each level has a row with its timeline behind it."""
    app = make_app(RECORDED)
    async with app.run_test(size=(120, 36)) as pilot:
        await shows(app, "┐done┌")
        await pilot.press("z")
        screen = app.screen
        assert isinstance(screen, SweepScreen)
        canvas = partial(text_of, screen)
        await shows(app, "c1", "c4", "own stamps", of=canvas)
        await pilot.press("enter")
        await shows(app, "why?", "requests", of=canvas)


async def test_esc_takes_a_finished_run_off_the_board() -> None:
    """A finished run does not prevent a sweep of our own, although a next run in its file would be shown."""
    app = make_app(RECORDED)
    async with app.run_test(size=(120, 36)) as pilot:
        await shows(app, "┐done┌")
        assert not app.desk.busy
        await pilot.press("escape")
        await pilot.pause()
        app._redraw()
        assert "llama-benchy" not in text_of(app.overview)
        assert app.desk.band() is None


async def test_a_sweep_of_our_own_takes_the_place_of_a_finished_run() -> None:
    """The countdown begins at once, and the end of the following does not end it."""
    app = make_app(RECORDED)
    async with app.run_test(size=(120, 36)) as pilot:
        await shows(app, "┐done┌")
        await pilot.press("s")
        await shows(app, "starts in")
        followed = app.desk.sweeping
        assert followed is not None
        assert followed._task is not None
        await followed._task
        await shows(app, "starts in")
        await pilot.press("escape")
        await pilot.pause()
        assert app.desk.band() is None
