"""Notices are one row at the bottom."""

from __future__ import annotations

import asyncio

import pytest
from textual.geometry import Region
from textual.notifications import SeverityLevel
from textual.widgets._toast import Toast, ToastHolder

from tests.ui.board import Board, picture


async def shown(*messages: tuple[SeverityLevel, str]) -> list[tuple[str, Region]]:
    """Return each message on the screen and its region."""
    async with Board(picture).on((80, 24), notices=True) as board:
        for severity, message in messages:
            board.app.notify(message, severity=severity, markup=False)
        await board.pilot.pause()
        return [(str(toast.render()), toast.region) for toast in board.app.screen.query(Toast)]


async def test_a_new_notice_takes_the_place_of_the_old() -> None:
    """Five in a row leave one, the newest; a warning stays beside what is said after it."""
    told: list[tuple[SeverityLevel, str]] = [("information", f"notice {number}") for number in range(5)]
    ((text, _),) = await shown(*told)
    assert text == "notice 4"
    both = await shown(("warning", "not saved"), *told)
    assert [(text, region.y) for text, region in both] == [("not saved", 22), ("notice 4", 23)]


async def test_a_notice_that_is_wider_than_the_screen_is_not_cut() -> None:
    """It takes the rows that it needs, from the bottom up."""
    words = "a message that needs more than one row " * 3
    ((_, region),) = await shown(("error", words))
    assert region == Region(0, 22, 80, 2)


@pytest.mark.parametrize(("size", "pause_s"), [((60, 16), 0.0), ((80, 24), 0.05), ((200, 50), 0.15)])
async def test_the_last_of_many_notices_is_on_the_screen(size: tuple[int, int], pause_s: float) -> None:
    """Eight of each severity, replaced at once, or just before or after their end, each take the bottom row.

    What they replace leaves nothing behind.
    """
    async with Board(picture).on(size, notices=True) as board:
        app, pilot = board.app, board.pilot
        for severity in ("information", "warning", "error"):
            for number in range(8):
                app.notify(f"{severity} {number}", severity=severity, timeout=0.1, markup=False)
                await pilot.pause(pause_s)
            app.notify(f"last {severity}", severity=severity, timeout=60, markup=False)
            await pilot.pause(0.2)
            (last,) = [one for one in app.screen.query(Toast) if f"last {severity}" in str(one.render())]
            assert last.region == Region(0, size[1] - 1, size[0], 1)
            assert app.screen.get_widget_at(0, size[1] - 1)[0] is last
        holders = app.screen.query(ToastHolder)
        assert len(holders) == len(app.screen.query(Toast)) <= 3


async def test_notices_in_front_of_a_dialog_leave_nothing_behind_it() -> None:
    """What is said in a dialog and on the board takes the bottom row on both, again and again."""
    async with Board(picture).on((80, 24), notices=True) as board:
        app, pilot = board.app, board.pilot
        for number in range(5):
            for key, place in (("question_mark", "dialog"), ("escape", "board")):
                await pilot.press(key)
                app.notify(f"{place} {number}", timeout=60, markup=False)
                await pilot.pause()
                (shown,) = app.screen.query(Toast)
                assert str(shown.render()) == f"{place} {number}"
                async with asyncio.timeout(300):
                    while app.screen.get_widget_at(0, 23)[0] is not shown:  # it is laid out in a later turn
                        await pilot.pause()


async def test_a_notice_that_expires_as_it_is_shown_does_not_stop_the_screen() -> None:
    """Textual's timers never return from a negative interval: a toast's is never one."""
    async with Board(picture).on((80, 24), notices=True) as board:
        app, pilot = board.app, board.pilot
        app.notify("late", timeout=30.0)
        await pilot.pause()
        (notice,) = list(app._notifications)
        notice.raised_at -= 31
        assert notice.has_expired
        await app.screen.mount(Toast(notice))
        await pilot.pause()
