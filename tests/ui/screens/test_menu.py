"""The options menu: pages of settings with values and explanations, changed by keys and mouse, and saved."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.containers import Vertical
from textual.geometry import Size
from textual.widgets import OptionList, Static

from sparktop.config.options import VIEW
from sparktop.config.schema import check, load
from sparktop.config.toml_text import with_values
from sparktop.model.targets import ViewSettings, Watch
from sparktop.panels.board.view import WINDOWS_S, GraphStyle, View
from sparktop.panels.server.table import ColumnOrder
from sparktop.ui.remembered import settings_of, with_configured
from sparktop.ui.screens.menu import MenuScreen, MenuSetting
from stage.rehearsal import Rehearsal
from tests.ui.board import SIZES, Board, picture


class Menu(Board):
    """A board whose options are opened by `m`."""

    def __init__(self, home: Path | None = None, source: str = "x", **options: object) -> None:
        """Show a picture; what is saved goes to `source`, or below `home`."""
        env = None if home is None else {"HOME": str(home)}
        super().__init__(picture, **({"env": env, "watch": Watch(source=source)} | options))

    @property
    def screen(self) -> MenuScreen:
        """The menu, which is open."""
        assert isinstance(self.app.screen, MenuScreen)
        return self.app.screen

    @property
    def options(self) -> OptionList:
        """The settings of the open page."""
        return self.screen.query_one(OptionList)

    @property
    def settings(self) -> tuple[MenuSetting, ...]:
        """The same, as they are declared."""
        return tuple(self.screen._pages[self.screen._page])

    @property
    def lines(self) -> list[str]:
        """The line of each setting."""
        return [str(self.options.get_option_at_index(at).prompt) for at in range(self.options.option_count)]

    @property
    def about(self) -> str:
        """The explanation below the list."""
        return str(self.screen.query_one("#about", Static).render())

    async def choose(self, name: str, key: str = "enter") -> str:
        """Press a key on the setting `name` of the open page; return its line."""
        index = [setting.name for setting in self.settings].index(name)
        self.options.highlighted = index
        await self.press(key)
        return self.lines[index]

    async def click_line(self, x: int, y: int) -> str:
        """Click a line of the list; return it."""
        await self.pilot.click(OptionList, offset=(x, y))
        await self.pilot.pause()
        return self.lines[y]


async def test_every_page_fits() -> None:
    """At each size names, values and explanations are whole; at 80x24 and above no page scrolls."""
    menu = Menu()
    async with menu.on(SIZES[0]):
        for width, height in SIZES:
            await menu.resize(width, height)
            await menu.press("m")
            for tab in menu.screen._pages:
                box = menu.screen.query_one(Vertical).region
                assert box.right <= width
                assert box.bottom <= height
                titles = menu.screen.query_one("#tabs", Static)
                assert len(str(titles.render())) <= titles.content_region.width
                assert max(map(len, menu.lines)) <= menu.options.scrollable_content_region.width
                assert not any("…" in line for line in menu.lines)
                assert width < 80 or menu.options.max_scroll_y == 0
                for index in range(len(tab) if width <= 80 else 0):  # a wider dialog has as many rows
                    menu.options.highlighted = index
                    await menu.pilot.pause()
                    text = menu.screen.query_one("#about", Static)
                    size, region = Size(width, height), text.content_region
                    assert text.get_content_height(size, size, region.width) <= region.height, index
                await menu.press("tab")
            await menu.press("escape")


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


async def test_keys_and_mouse_change_values_and_pages() -> None:
    """Enter goes round, arrows stop at the ends, a click goes on; it holds at once."""
    menu = Menu()
    async with menu.on((80, 24)):
        await menu.press("m")
        for page, rounds in (("1", BOARD), ("6", PROGRAM)):
            await menu.press(page)
            for name, values in rounds.items():
                seen = [await menu.choose(name) for _ in values]
                assert [value in line for value, line in zip(values, seen, strict=True)] == [True] * len(
                    values
                )
        await menu.press("1")
        assert "hidden" in await menu.choose("box: nodes")
        assert "shown" in await menu.choose("box: backends")  # the last one cannot be hidden
        first = menu.app.theme
        assert first not in await menu.choose("theme")
        assert menu.app.theme in menu.lines[[one.name for one in menu.settings].index("theme")]
        await menu.choose("theme", "left")
        assert menu.app.theme == first
        await menu.pilot.click("#tabs", offset=(11, 0))
        await menu.pilot.pause()
        assert menu.settings[0].name == "memory left, warning"
        assert "13 GiB" in await menu.choose("memory left, warning", "right")
        assert "11 GiB" in [await menu.choose("memory left, warning", "left") for _ in range(2)][-1]
        seen = [await menu.choose("memory left, critical", "left") for _ in range(9)]
        assert " 1 GiB" in seen[-1] == seen[-2]
        await menu.press("up")
        assert "12 GiB" in await menu.click_line(3, 0)
        assert "2 GiB" in await menu.click_line(3, 1)
        for key in ("escape", "m", "q"):
            await menu.press(*([] if key == "escape" else ["m"]), key)
            assert menu.home
            assert menu.app.is_running


async def test_a_setting_is_explained_and_holds_at_once(tmp_path: Path) -> None:
    """Its meaning, its name in the file, and whether it waits; limits, bell and guard judge from then on."""
    live = Rehearsal()
    menu = Menu(tmp_path, watch=live.watch, store=live.store)
    async with menu.on((80, 24)):
        await menu.press("m", "2")
        await menu.choose("memory left, warning", "right")
        assert "next start" not in menu.about
        await menu.press("3")
        await menu.choose("busy from", "left")
        assert "next start" not in menu.about
        await menu.press("4")
        await menu.choose("bell")
        assert "Rings the terminal's bell" in menu.about
        assert "events.bell" in menu.about
        assert "next start" not in menu.about
        await menu.choose("severity")
        await menu.press("5")
        await menu.choose("least memory left")
        await menu.press("6", "down", "down")
        assert "takes effect at the next start" in menu.about
        assert menu.app.desk.watch.events.bell
        assert menu.app.desk.watch.events.severity == "critical"
        assert menu.app.desk.watch.guard.min_headroom_gib == 8
    assert live.store.thresholds.nodes.headroom_warn_gib == 13
    assert live.store.thresholds.states.busy_share == pytest.approx(0.45)


async def test_s_saves_what_was_changed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marked until it is saved; the file keeps its comments and other values; s again says nothing is new."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "mine.toml"
    text = '# mine\ntheme = "spark-light"  # the best\ninterval_s = 1.0\n\n[[nodes]]\nname = "n"\n'
    path.write_text(text, encoding="utf-8")
    path.chmod(0o640)
    menu = Menu(tmp_path, str(path))
    async with menu.on((80, 24), notices=True):
        await menu.press("m", "4")
        assert not any("*" in line for line in menu.lines)
        await menu.choose("bell")
        assert "not saved" in menu.about
        assert ["*" in line for line in menu.lines] == [setting.name == "bell" for setting in menu.settings]
        await menu.press("6")
        await menu.choose("poll every", "right")
        await menu.press("s")
        assert menu.notes == ["saved in ~/mine.toml: events.bell, interval_s"]
        await menu.press("s")
        assert menu.notes == ["nothing was changed since the last save"]
        await menu.press("4")
        assert "not saved" not in menu.about
        assert not any("*" in line for line in menu.lines)
        await menu.press("2")
        assert "default 12 GiB" in menu.about
    expected = text.replace("interval_s = 1.0", "interval_s = 2.0") + "\n[events]\nbell = true\n"
    assert path.read_text(encoding="utf-8") == expected
    assert path.stat().st_mode & 0o777 == 0o640


async def test_without_a_file_one_is_made_in_its_usual_place(tmp_path: Path) -> None:
    """In the user's configuration folder, with what was changed."""
    menu = Menu(tmp_path)
    async with menu.on((80, 24)):
        await menu.press("m", "2")
        await menu.choose("slow clock", "left")
        await menu.press("s")
    made = tmp_path / ".config" / "sparktop" / "sparktop.toml"
    assert tomllib.loads(made.read_text(encoding="utf-8")) == {"alerts": {"slow_clock_mhz": 900}}


@pytest.mark.parametrize("text", ["[alerts", "[[alerts]]\n"])
async def test_a_file_that_cannot_be_changed_stays_as_it_is(tmp_path: Path, text: str) -> None:
    """A broken file, and one that has no table of that name, cost a message and are not written to."""
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    menu = Menu(tmp_path, str(path))
    async with menu.on((80, 24), notices=True):
        await menu.press("m", "2")
        await menu.choose("slow clock", "left")
        await menu.press("s")
        (note,) = menu.notes
        assert note.startswith("not saved: ")
    assert path.read_text(encoding="utf-8") == text


async def test_how_graphs_and_lists_are_drawn(tmp_path: Path) -> None:
    """At once, on every screen, after a change of the theme, and at the next start."""
    state = tmp_path / "view.json"

    def drawn(menu: Menu) -> str:
        return "".join(menu.overview.canvas.render_line(y).text for y in range(36))

    def heading(menu: Menu) -> str:
        return next(text for text in menu.rows if " backend " in text and " state " in text)

    menu = Menu(state=state)
    async with menu.on():
        await menu.press("m")
        assert "blocks" in await menu.choose("graphs")
        await menu.press("escape", "t")
        assert "█" in drawn(menu)
        assert "⣀" not in drawn(menu)
        assert "⣀" in menu.text
        await menu.press("m")
        assert "120" in await menu.choose("seconds of the graphs")
        await menu.press("escape")
        assert "−120 s" in menu.rows[-2]
        await menu.press("v")
        assert heading(menu).index("tok/s") < heading(menu).index("run")
        assert "TTFT p95" not in heading(menu)
        await menu.press("m")
        assert "latency first" in await menu.choose("columns of the list")
        await menu.press("escape")
        assert heading(menu).index("state") < heading(menu).index("TTFT p95") < heading(menu).index("tok/s")
    menu = Menu(state=state)
    async with menu.on():
        assert menu.app.role_styles.blocks
        assert "−120 s" in menu.rows[-2]


async def test_how_graphs_are_drawn_is_saved_and_holds_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not in the file is as it was last; what is set there holds, whatever was last."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "mine.toml"
    path.write_text("interval_s = 1.0\n", encoding="utf-8")
    menu = Menu(tmp_path, str(path))
    async with menu.on((80, 24), notices=True):
        await menu.press("m")
        await menu.choose("graphs", "right")
        await menu.choose("seconds of the graphs", "right")
        assert "file: view.window_s" in menu.about
        await menu.press("s")
        assert menu.notes == ["saved in ~/mine.toml: view.graphs, view.window_s"]
    assert path.read_text(encoding="utf-8").endswith('[view]\ngraphs = "blocks"\nwindow_s = 120\n')
    watch = load(path).watch({})
    shown = with_configured(replace(View(), columns=ColumnOrder.CACHE, window_s=900), watch.view)
    assert (shown.graphs, shown.window_s, shown.columns) == (GraphStyle.BLOCKS, 120, ColumnOrder.CACHE)
    assert settings_of(View(), watch.view) == ViewSettings("braille dots", 60)
    for option in VIEW:  # the words of the file are those of the menu
        for value in option.choices:
            check(Path("x.toml"), with_values("", {option.place: value}))
    assert VIEW[1].choices == WINDOWS_S
