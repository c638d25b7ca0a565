"""The options menu: pages of settings with values and explanations, changed by keys and mouse, and saved."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path

import pytest
from textual.containers import Vertical
from textual.geometry import Size
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from sparktop.config.keys import KEYS
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Watch
from sparktop.panels.parts.text import row_text
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.menu import MenuScreen, Setting
from stage.rehearsal import Rehearsal

SIZES = [(60, 16), (80, 24), (200, 50)]


@cache
def picture() -> Snapshot:
    """Return a snapshot shared by all tests: it is immutable."""
    return Rehearsal().play(10).snapshot()


def make_app(keys: dict[str, str] | None = None, home: Path | None = None, source: str = "x") -> SparktopApp:
    env = None if home is None else {"HOME": str(home)}
    return SparktopApp(picture, keys=keys, env=env, watch=Watch(source=source))


def menu(app: SparktopApp) -> MenuScreen:
    assert isinstance(app.screen, MenuScreen)
    return app.screen


def settings(app: SparktopApp) -> list[Setting]:
    """Return the settings of the page on the screen."""
    return list(menu(app)._tabs[menu(app)._page].settings)


def lines(app: SparktopApp) -> list[str]:
    options = menu(app).query_one(OptionList)
    return [str(options.get_option_at_index(i).prompt) for i in range(options.option_count)]


def about(app: SparktopApp) -> str:
    return str(menu(app).query_one("#about", Static).render())


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def choose(pilot: Pilot[None], app: SparktopApp, name: str, key: str = "enter") -> str:
    """Press a key on the setting `name` of the open page; return its line."""
    index = [setting.name for setting in settings(app)].index(name)
    menu(app).query_one(OptionList).highlighted = index
    await press(pilot, key)
    return lines(app)[index]


@pytest.mark.parametrize("size", SIZES)
async def test_every_page_fits(size: tuple[int, int]) -> None:
    """At each size names and values are whole, and each explanation is on the screen to its end."""
    app, size_of = make_app(), Size(*size)
    async with app.run_test(size=size) as pilot:
        await press(pilot, "m")
        for tab in menu(app)._tabs:
            box = menu(app).query_one(Vertical)
            assert box.region.right <= size[0]
            assert box.region.bottom <= size[1]
            titles = menu(app).query_one("#tabs", Static)
            assert len(str(titles.render())) <= titles.content_region.width
            options = menu(app).query_one(OptionList)
            assert max(map(len, lines(app))) <= options.scrollable_content_region.width
            assert not any("…" in line for line in lines(app))
            for index in range(len(tab.settings)):
                options.highlighted = index
                await pilot.pause()
                text = menu(app).query_one("#about", Static)
                region = text.content_region
                assert text.get_content_height(size_of, size_of, region.width) <= region.height, index
            await press(pilot, "tab")


async def test_at_80x24_no_page_scrolls() -> None:
    """Every setting of a page is on the screen at once."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m")
        for _ in menu(app)._tabs:
            assert menu(app).query_one(OptionList).max_scroll_y == 0
            await press(pilot, "tab")


BOARD = {
    "view": ["compact", "one backend", "wall", "watch"],
    "sorted by": ["name", "tok/s", "load", "memory", "state", "as configured"],
    "picture": ["past", "live"],
    "box: nodes": ["hidden", "shown"],
    "box: backends": ["hidden", "shown"],
    "box: alerts and events": ["shown", "hidden"],
    "box: self": ["shown", "hidden"],
}
PROGRAM = {"poll every": ["2 s", "5 s", "10 s", "0.25 s", "0.5 s", "1 s"], "low bandwidth": ["on", "off"]}


async def test_enter_goes_to_the_next_value_and_round() -> None:
    """Each Enter shows the setting's next value in its line, and the last is where it began."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m")
        for page, rounds in (("1", BOARD), ("6", PROGRAM)):
            await press(pilot, page)
            for name, values in rounds.items():
                seen = [await choose(pilot, app, name) for _ in values]
                assert [value in line for value, line in zip(values, seen, strict=True)] == [True] * len(
                    values
                )


async def test_arrows_go_up_and_down_and_stop_at_the_ends() -> None:
    """Right is the next value, left the one before; an alert's limit stops at its last value."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "2")
        assert "13 GiB" in await choose(pilot, app, "headroom, warning", "right")
        assert "11 GiB" in [await choose(pilot, app, "headroom, warning", "left") for _ in range(2)][-1]
        seen = [await choose(pilot, app, "headroom, critical", "left") for _ in range(9)]
        assert " 1 GiB" in seen[-1] == seen[-2]
        assert "13 GiB" not in seen[-1]


async def test_the_chosen_setting_is_explained() -> None:
    """Below the list stand its meaning, its name in the file, and that it waits for the next start."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "4", "down")
        assert "Rings the terminal's bell" in about(app)
        assert "events.bell" in about(app)
        assert "next start" not in about(app)
        await press(pilot, "6", "down", "down")
        assert "takes effect at the next start" in about(app)


async def test_what_is_live_holds_at_once() -> None:
    """Bell and guard are what later events and sweeps are given."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "4")
        await choose(pilot, app, "bell")
        await choose(pilot, app, "severity")
        await press(pilot, "5")
        await choose(pilot, app, "least headroom")
        assert app.desk.watch.events.bell
        assert app.desk.watch.events.severity == "critical"
        assert app.desk.watch.guard.min_headroom_gib == 8


async def test_limits_of_alerts_and_states_hold_at_once(tmp_path: Path) -> None:
    """The store judges by the changed limits, and no explanation speaks of the next start."""
    live = Rehearsal()
    app = SparktopApp(live.store.snapshot, store=live.store, watch=live.watch, env={"HOME": str(tmp_path)})
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "2")
        await choose(pilot, app, "headroom, warning", "right")
        assert "next start" not in about(app)
        await press(pilot, "3")
        await choose(pilot, app, "busy from", "left")
        assert "next start" not in about(app)
    assert live.store.thresholds.nodes.headroom_warn_gib == 13
    assert live.store.thresholds.states.busy_share == pytest.approx(0.45)


async def test_what_is_changed_and_not_saved_is_marked(tmp_path: Path) -> None:
    """A star beside the name and words below it, until it is saved; before, the default is there."""
    app = make_app(home=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "2")
        assert "default 12 GiB" in about(app)
        assert not any("*" in line for line in lines(app))
        assert [line for line in lines(app) if "◂ 12 GiB ▸" in line] == [lines(app)[0]]
        await press(pilot, "right")
        assert "not saved" in about(app)
        assert [index for index, line in enumerate(lines(app)) if "*" in line] == [0]
        await press(pilot, "s")
        await press(pilot, "down", "up")
        assert "not saved" not in about(app)
        assert not any("*" in line for line in lines(app))


async def test_a_click_on_the_left_arrow_goes_back() -> None:
    """On the marked setting, the arrow left of its value chooses the one before, the rest the next."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "2")
        at = lines(app)[0].index("◂")
        await pilot.click(OptionList, offset=(at, 0))
        await pilot.pause()
        assert "11 GiB" in lines(app)[0]
        await pilot.click(OptionList, offset=(at + 4, 0))
        await pilot.pause()
        assert "12 GiB" in lines(app)[0]


async def test_the_mouse_chooses_pages_and_settings() -> None:
    """A click on a title opens its page; a click on a line changes it."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m")
        await pilot.click("#tabs", offset=(11, 0))
        await pilot.pause()
        assert settings(app)[0].name == "headroom, warning"
        await pilot.click(OptionList, offset=(3, 1))
        await pilot.pause()
        assert "9 GiB" in lines(app)[1]


async def test_s_saves_what_was_changed_and_nothing_else(tmp_path: Path) -> None:
    """The file keeps its comments and its other values; a second s has nothing to save."""
    path = tmp_path / "mine.toml"
    text = '# mine\ntheme = "spark-light"  # the best\ninterval_s = 1.0\n\n[[nodes]]\nname = "n"\n'
    path.write_text(text, encoding="utf-8")
    path.chmod(0o640)
    app = make_app(home=tmp_path, source=str(path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await press(pilot, "m", "6")
        await choose(pilot, app, "poll every", "right")
        await press(pilot, "4")
        await choose(pilot, app, "bell")
        await press(pilot, "s")
        assert [note.message for note in app._notifications] == [
            "saved in ~/mine.toml: events.bell, interval_s"
        ]
        await press(pilot, "s")
        assert [note.message for note in app._notifications] == ["nothing was changed since the last save"]
    expected = text.replace("interval_s = 1.0", "interval_s = 2.0") + "\n[events]\nbell = true\n"
    assert path.read_text(encoding="utf-8") == expected
    assert path.stat().st_mode & 0o777 == 0o640


async def test_without_a_file_one_is_made_in_its_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the user's configuration folder, with what was changed."""
    monkeypatch.chdir(tmp_path)
    app = make_app(home=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "2")
        await choose(pilot, app, "slow clock", "left")
        await press(pilot, "s")
    made = tmp_path / ".config" / "sparktop" / "sparktop.toml"
    assert tomllib.loads(made.read_text(encoding="utf-8")) == {"alerts": {"slow_clock_mhz": 900}}


async def test_a_file_that_cannot_be_changed_stays_as_it_is(tmp_path: Path) -> None:
    """A broken file, and one that has no table of that name, cost a message and are not written to."""
    path = tmp_path / "mine.toml"
    for text in ("[alerts", "[[alerts]]\n"):
        path.write_text(text, encoding="utf-8")
        app = make_app(home=tmp_path, source=str(path))
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            await press(pilot, "m", "2")
            await choose(pilot, app, "slow clock", "left")
            await press(pilot, "s")
            (note,) = app._notifications
            assert note.message.startswith("not saved: ")
        assert path.read_text(encoding="utf-8") == text


async def test_the_theme_changes_at_once() -> None:
    """The theme's line names the theme that is in use after each Enter."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "m")
        first = app.theme
        line = await choose(pilot, app, "theme")
        assert app.theme != first
        assert app.theme in line
        await choose(pilot, app, "theme", "left")
        assert app.theme == first


async def test_the_last_box_cannot_be_hidden() -> None:
    """With all other boxes hidden the menu goes on to say that the last one is shown."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "m")
        assert "hidden" in await choose(pilot, app, "box: nodes")
        assert "shown" in await choose(pilot, app, "box: backends")


async def test_the_filter_is_asked_on_the_board() -> None:
    """Enter on the filter closes the menu and opens the line; the menu then shows what was typed."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "down", "down", "enter")
        assert app.screen is app.overview
        assert isinstance(app.focused, Input)
        await press(pilot, "b", "u", "s", "enter", "m")
        assert "bus" in lines(app)[2]


def schema(folder: Path) -> object:
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text(encoding="utf-8"))["schema"]


async def test_a_snapshot_is_saved_from_the_menu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter on its line writes the picture into the current folder; the menu stays."""
    monkeypatch.chdir(tmp_path)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "m", "6")
        await choose(pilot, app, "save a snapshot")
        await app.workers.wait_for_complete()
    assert schema(tmp_path) == "sparktop.snapshot/1"


async def test_the_menu_shows_moved_keys() -> None:
    """Beside a setting stands the key that does the same, wherever the configuration has put it."""
    usual = {key.name: key.shown for key in KEYS}
    app = make_app({"freeze": "f9", "menu": "Q"})
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "Q")
        by_name = {setting.name: setting.key for setting in settings(app)}
        assert by_name["picture"] == "f9"
        assert by_name["view"] == usual["view"]
        assert any(line.rstrip().endswith("f9") for line in lines(app))


async def test_the_menu_closes() -> None:
    """Esc, m and q leave the menu, and no more than the menu."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("escape", "m", "q"):
            await press(pilot, "m", key)
            assert app.screen is app.overview
            assert app.is_running


async def test_graphs_are_drawn_with_blocks(tmp_path: Path) -> None:
    """At once, on every screen, after a change of the theme, and at the next start."""
    state = tmp_path / "view.json"
    for start in range(2):
        app = SparktopApp(picture, state=state)
        async with app.run_test(size=(120, 36)) as pilot:
            await pilot.pause()
            assert app.role_styles.blocks is bool(start)
            if not start:
                await press(pilot, "m")
                assert "blocks" in await choose(pilot, app, "graphs")
                await press(pilot, "escape", "t")
            drawn = "".join(app.overview.canvas.render_line(y).text for y in range(36))
            assert "█" in drawn
            assert "⣀" not in drawn
            assert "⣀" in "".join(row_text(row) for row in app.overview.canvas.rows)


async def test_graphs_show_a_longer_time() -> None:
    """The axis of the board shows at least the time that was chosen; the first choice is a minute."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "m")
        assert "120" in await choose(pilot, app, "seconds of the graphs")
        await press(pilot, "escape")
        assert "−120 s" in row_text(app.overview.canvas.rows[-2])


async def test_columns_of_the_list_have_another_order() -> None:
    """Latencies follow the state where they were chosen; what no longer fits is left out at the end."""
    app = make_app()

    def heading() -> str:
        texts = (row_text(row) for row in app.overview.canvas.rows)
        return next(text for text in texts if " backend " in text and " state " in text)

    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "v")
        assert heading().index("tok/s") < heading().index("run")
        assert "TTFT p95" not in heading()
        await press(pilot, "m")
        assert "latency first" in await choose(pilot, app, "columns of the list")
        await press(pilot, "escape")
        assert heading().index("state") < heading().index("TTFT p95") < heading().index("tok/s")
