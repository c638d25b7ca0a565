"""Notices are one row at the bottom; the keys that end the program; the selection without colours."""

from __future__ import annotations

from functools import cache

import pytest
from textual.geometry import Region
from textual.widgets._toast import Toast, ToastHolder

from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.text import row_text
from sparktop.ui.app import SparktopApp
from stage.rehearsal import Rehearsal


@cache
def picture() -> Snapshot:
    """Return a snapshot shared by all tests: it is immutable."""
    return Rehearsal().play(30).snapshot()


async def shown_at(
    app: SparktopApp, messages: list[tuple[str, str]], size: tuple[int, int]
) -> list[tuple[str, Region]]:
    """Return each message on the screen and its region."""
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        for message, severity in messages:
            app.notify(message, severity=severity, markup=False)  # type: ignore[arg-type]  # one of its words
        await pilot.pause(0.1)
        return [(str(toast.render()), toast.region) for toast in app.screen.query(Toast)]


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (200, 50)])
async def test_a_notice_is_the_bottom_row(size: tuple[int, int]) -> None:
    """It takes the row of the keys, over the whole width, and nothing of the graphs."""
    ((_, region),) = await shown_at(SparktopApp(picture), [("sorted: load", "information")], size)
    assert region == Region(0, size[1] - 1, size[0], 1)


async def test_a_new_notice_takes_the_place_of_the_old() -> None:
    """Five in a row leave one, the newest; a warning stays beside what is said after it."""
    told = [(f"notice {number}", "information") for number in range(5)]
    ((text, _),) = await shown_at(SparktopApp(picture), told, (80, 24))
    assert text == "notice 4"
    both = await shown_at(SparktopApp(picture), [("not saved", "warning"), *told], (80, 24))
    assert [(text, region.y) for text, region in both] == [("not saved", 22), ("notice 4", 23)]


async def test_a_notice_that_is_wider_than_the_screen_is_not_cut() -> None:
    """It takes the rows that it needs, from the bottom up."""
    words = "a message that needs more than one row " * 3
    ((_, region),) = await shown_at(SparktopApp(picture), [(words, "error")], (80, 24))
    assert region == Region(0, 22, 80, 2)


async def test_the_last_box_says_why_it_stays() -> None:
    """A key that can do nothing says so."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("1", "2")
        await pilot.pause()
        assert [one.message for one in app._notifications] == [
            "this is the last box shown: show another one first (1 to 4)"
        ]


async def test_each_change_of_the_interval_is_said() -> None:
    """`+` and `-` say what they changed, beside an alert too, and where there is no longer or shorter one."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        for key, words in (
            (
                "plus",
                ["polls every 2 s", "polls every 5 s", "polls every 10 s", "10 s is the longest interval"],
            ),
            ("minus", [f"polls every {one} s" for one in ("5", "2", "1", "0.5", "0.25")]),
            ("minus", ["0.25 s is the shortest interval"]),
        ):
            for word in words:
                await pilot.press(key)
                await pilot.pause()
                assert [one.message for one in app._notifications] == [word]


async def test_ctrl_c_quits() -> None:
    """Where nothing runs, at once, from a dialog too."""
    for keys in (["ctrl+c"], ["question_mark", "ctrl+c"], ["slash", "a", "ctrl+c"]):
        app = SparktopApp(picture)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press(*keys)
            await pilot.pause()
            assert app.return_code == 0


async def test_the_selection_shows_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under NO_COLOR the selected panel alone has a heavy frame."""
    monkeypatch.setenv("NO_COLOR", "1")
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        canvas = app.overview.canvas
        assert not any("┏" in canvas.render_line(y).text for y in range(24))
        await pilot.press("down")
        await pilot.pause()
        drawn = [canvas.render_line(y).text for y in range(24)]
        assert [text[0] for text in drawn].count("┏") == 1
        assert {row_text(row)[0] for row in canvas.rows} & set("┏┃┗") == set()


@pytest.mark.parametrize(("size", "pause_s"), [((60, 16), 0.0), ((80, 24), 0.05), ((200, 50), 0.15)])
async def test_the_last_of_many_notices_is_on_the_screen(size: tuple[int, int], pause_s: float) -> None:
    """Twenty of each severity, replaced at once, or just before or after their end, each take the bottom row.

    What they replace leaves nothing behind.
    """
    app = SparktopApp(picture)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        for severity in ("information", "warning", "error"):
            for number in range(20):
                app.notify(f"{severity} {number}", severity=severity, timeout=0.1, markup=False)
                await pilot.pause(pause_s)
            app.notify(f"last {severity}", severity=severity, timeout=60, markup=False)
            await pilot.pause(0.2)
            (shown,) = [one for one in app.screen.query(Toast) if f"last {severity}" in str(one.render())]
            assert shown.region == Region(0, size[1] - 1, size[0], 1)
            assert app.screen.get_widget_at(0, size[1] - 1)[0] is shown
        holders = app.screen.query(ToastHolder)
        assert len(holders) == len(app.screen.query(Toast)) <= 3


async def test_notices_in_front_of_a_dialog_leave_nothing_behind_it() -> None:
    """What is said in a dialog and on the board takes the bottom row on both, again and again."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.pause()
        for number in range(5):
            for key, place in (("question_mark", "dialog"), ("escape", "board")):
                await pilot.press(key)
                app.notify(f"{place} {number}", timeout=60, markup=False)
                await pilot.pause(0.1)
                (shown,) = app.screen.query(Toast)
                assert str(shown.render()) == f"{place} {number}"
                assert app.screen.get_widget_at(0, 23)[0] is shown
