"""The menu: every setting with its value, changed by Enter."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from sparktop.config.keys import KEYS
from sparktop.model.snapshot import Snapshot
from sparktop.ui.app import SparktopApp
from sparktop.ui.settings import settings
from stage.rehearsal import Rehearsal


@cache
def picture() -> Snapshot:
    """Return a snapshot shared by all tests: it is immutable."""
    return Rehearsal().play(10).snapshot()


def make_app(keys: dict[str, str] | None = None) -> SparktopApp:
    return SparktopApp(picture, keys=keys)


def menu(app: SparktopApp) -> OptionList:
    return app.screen.query_one(OptionList)


def lines(app: SparktopApp) -> list[str]:
    options = menu(app)
    return [str(options.get_option_at_index(i).prompt) for i in range(options.option_count)]


async def choose(pilot: Pilot[None], app: SparktopApp, name: str) -> str:
    """Press Enter on the setting `name` of the open menu; give its line."""
    index = [setting.name for setting in settings(app, app)].index(name)
    menu(app).highlighted = index
    await pilot.press("enter")
    await pilot.pause()
    return lines(app)[index]


async def test_the_menu_fits_the_smallest_usual_terminal() -> None:
    """At 80x24 every setting is on the screen at once, each in one line that is not cut."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("m")
        await pilot.pause()
        region = menu(app).region
        assert (region.x >= 0, region.y >= 0, region.right <= 80, region.bottom <= 24) == (True,) * 4
        assert menu(app).max_scroll_y == 0
        assert len(lines(app)) == len(settings(app, app)) == menu(app).virtual_size.height
        assert max(map(len, lines(app))) <= menu(app).scrollable_content_region.width


ROUNDS = {
    "view": ["compact", "one backend", "wall", "watch"],
    "sorted by": ["name", "tokens/s", "load", "memory", "state", "as configured"],
    "poll every": ["2 s", "5 s", "10 s", "0.25 s", "0.5 s", "1 s"],
    "low bandwidth": ["on", "off"],
    "picture": ["past", "live"],
    "box: nodes": ["hidden", "shown"],
    "box: backends": ["hidden", "shown"],
    "box: alerts and events": ["shown", "hidden"],
    "box: self": ["shown", "hidden"],
}


async def test_enter_goes_to_the_next_value_and_round() -> None:
    """Each Enter shows the setting's next value in its line, and the last is where it began."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("m")
        for name, values in ROUNDS.items():
            seen = [await choose(pilot, app, name) for _ in values]
            assert [value in line for value, line in zip(values, seen, strict=True)] == [True] * len(values)
            assert {one.name: one.value() for one in settings(app, app)}[name] == values[-1]


async def test_enter_on_the_theme_goes_to_the_next() -> None:
    """The theme's line names the theme that is in use after each Enter."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("m")
        first = app.theme
        line = await choose(pilot, app, "theme")
        assert app.theme != first
        assert app.theme in line


async def test_the_last_box_cannot_be_hidden() -> None:
    """With all other boxes hidden the menu goes on to say that the last one is shown."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("m")
        assert "hidden" in await choose(pilot, app, "box: nodes")
        assert "shown" in await choose(pilot, app, "box: backends")


async def test_the_filter_is_asked_on_the_board() -> None:
    """Enter on the filter closes the menu and opens the line; the menu then shows what was typed."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("m")
        menu(app).highlighted = 2
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is app.overview
        assert isinstance(app.focused, Input)
        await pilot.press("b", "u", "s", "enter", "m")
        await pilot.pause()
        assert "bus" in lines(app)[2]


def saved(folder: Path) -> object:
    (path,) = folder.iterdir()
    return json.loads(path.read_text(encoding="utf-8"))


async def test_a_snapshot_is_saved_from_the_menu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter on the last line writes the picture into the current folder; the menu stays."""
    monkeypatch.chdir(tmp_path)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("m")
        await choose(pilot, app, "save a snapshot")
    data = saved(tmp_path)
    assert isinstance(data, dict)
    assert data["schema"] == "sparktop.snapshot/1"


async def test_the_menu_shows_moved_keys() -> None:
    """Beside a setting stands the key that does the same, wherever the configuration has put it."""
    usual = {key.name: key.shown for key in KEYS}
    app = make_app({"freeze": "f9", "menu": "Q"})
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("Q")
        await pilot.pause()
        by_name = {setting.name: setting.key for setting in settings(app, app)}
        assert by_name["picture"] == "f9"
        assert by_name["view"] == usual["view"]
        assert any(line.rstrip().endswith("f9") for line in lines(app))


async def test_the_menu_closes() -> None:
    """Esc, m and q leave the menu, and no more than the menu."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("escape", "m", "q"):
            await pilot.press("m", key)
            await pilot.pause()
            assert app.screen is app.overview
            assert app.is_running
