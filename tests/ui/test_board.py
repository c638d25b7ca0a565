"""The board walked through by keys and mouse, on simulated servers in virtual time."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input, Static

from sparktop.colors.palette import palettes
from sparktop.config.keys import KEYS
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.view import Preset, Sort, backend_number, order_names
from sparktop.ui.keys import clicked_key
from sparktop.ui.remembered import recall
from sparktop.ui.screens.dialogs import LimitsScreen, MarkScreen
from stage.rehearsal import Outage, Rehearsal, RouterPart
from tests.known import known
from tests.ui.board import SIZES, Board

SERVER_A, SERVER_B = PanelKey("backend", "spark-a"), PanelKey("backend", "spark-b")
NAMES = [f"spark-{letter}" for letter in "abcd"]


@cache
def four() -> Snapshot:
    """Return a snapshot of four servers, shared by all tests."""
    return Rehearsal(backends=len(NAMES)).play(30).snapshot()


@cache
def two() -> Snapshot:
    """Return a snapshot of two servers behind a router, shared by all tests."""
    return Rehearsal(router=RouterPart()).play(30).snapshot()


def listed(board: Board) -> list[str]:
    """Return the names of the selectable servers, in order."""
    return [key.name for key in board.overview._selectable if key.kind == "backend"]


async def test_the_picture_is_as_large_as_the_terminal_and_goes_on() -> None:
    """After each resize and each second; too small says needed and actual size; p holds the picture."""
    rehearsal = Rehearsal()
    rehearsal.play(10)
    async with Board(rehearsal.store.snapshot).on() as board:
        for size in SIZES:
            await board.resize(*size)
            rehearsal.play(1)
            board.overview.redraw()
            await board.pilot.pause()
            assert board.size == size
            assert [board.canvas.render_line(y).text for y in range(size[1])] == board.rows
            assert "spark-a" in board.text
            assert "spark-b" in board.text
        await board.resize(59, 15)
        assert "needs 60×16, has " in board.text
        assert "59×15" in board.text
        await board.resize(120, 36)
        await board.press("p")
        held = board.rows
        assert "REWIND −0:00" in held[0]
        rehearsal.play(20)
        board.overview.redraw()
        assert board.rows[1:-2] == held[1:-2]
        await board.press("p")
        assert "REWIND" not in board.text
        assert known(board.overview.shown).at == rehearsal.store.snapshot().at


async def test_keys_select_open_and_go_back() -> None:
    """Arrows select, z shows a panel alone, Enter its detail, esc goes back; PgUp and PgDn end in words."""
    async with Board(two).on() as board:
        await board.press("down", "j", "tab", "down")
        assert board.selected() == SERVER_A
        await board.press("z")
        assert "spark-b" not in board.text.replace("spark-b:", "")
        await board.press("escape", "enter")
        assert board.zoomed() == SERVER_A
        for size in ((80, 24), (120, 36), (200, 50)):
            await board.resize(*size)
            assert board.size == size
            assert " because " in board.text
            assert "─ latency ─" in board.text
            assert ("more row" in board.text) == (size == (80, 24))
        await board.press("escape", "k", "left")
        assert (board.zoomed(), " because " in board.text) == (None, False)
        assert board.selected() != SERVER_A
        for key, end in (("pageup", "first"), ("pagedown", "last")):
            await board.press(key)
            assert board.notes == [f"the {end} row is on the screen already"]


async def test_the_mouse_selects_opens_and_presses_keys() -> None:
    """A click selects, a second one opens; a label of the footer and each key in a frame act as their key."""
    async with Board(two).on() as board:
        for x, y, key, words in (
            (60, 33, SERVER_B, "─ latency ─"),
            (40, 3, PanelKey("node", "spark-a"), "─ unified memory ─"),
        ):
            await board.click(x, y)
            assert board.selected() == key
            await board.click(x, y)
            assert board.zoomed() == key
            assert words in board.text
            await board.press("escape", "escape")
        await board.click(board.footer.index("pause"), 35)
        assert board.overview.frozen
        await board.press("p")
        for size in ((80, 24), (120, 36)):
            await board.resize(*size)
            rows, places = board.canvas.rows[:-1], {}
            for y, row in enumerate(rows):
                x = 0
                for text, role in row:
                    if role == "key":
                        places[text] = (x, y)
                    x += len(text)
            assert {"²", "b", "w"} <= places.keys()
            for shown, (x, y) in places.items():
                name = shown.translate(str.maketrans("¹²³⁴", "1234"))
                assert clicked_key(rows, [], x, y) == name
                assert any(key.shown == name and key.action for key in KEYS)
            x, y = places["b"]
            await board.click(x + 3, y)
            assert board.zoomed() == PanelKey("balance", "proxy")
            await board.press("escape", "escape")
            await board.click(*places["²"])
            assert not board.overview.view.boxes.backends
            await board.press("2")


async def test_v_and_o_go_through_views_and_orders_and_numbers_hide_boxes() -> None:
    """Each view shows something else, each order is the list's; the last box stays and says why."""
    async with Board(four).on() as board:
        presets, pictures = [], {board.text}
        for _ in Preset:
            await board.press("v")
            presets.append(board.overview.view.preset)
            pictures.add(board.text)
        assert presets == [Preset.COMPACT, Preset.ONE, Preset.WALL, Preset.WATCH]
        assert len(pictures) == len(Preset)
        await board.press("v", "v")
        assert " spark-a┌" in board.text
        assert "spark-b" not in board.text
        await board.press("down")
        assert board.selected() == SERVER_B
        assert " spark-b┌" in board.text
        await board.press("up", "up")
        assert " spark-d┌" in board.text
        await board.resize(200, 50)
        await board.press("v", "v")
        sorts = []
        for _ in Sort:
            await board.press("o")
            sorts.append(board.overview.view.sort)
            numbers = {view.name: backend_number(view, sorts[-1]) for view in four().backends}
            assert listed(board) == order_names(numbers, sorts[-1])
        assert sorts == [*list(Sort)[1:], Sort.CONFIG]
        await board.press("3", "4")
        assert "alerts and events" in board.text
        assert "of one core" in board.text
        await board.press("3", "4", "1")
        assert "NVIDIA GB10" not in board.text
        await board.press("2")
        assert board.notes == ["this is the last box shown: show another one first (1 to 4)"]
        assert "spark-d" in board.text


async def test_what_is_typed_ahead_belongs_to_the_line() -> None:
    """Keys that come in one burst, as over a slow connection: none after "/" is an action of the board."""
    async with Board(four).on() as board:
        view = board.overview.view
        for character in "/oasz":
            board.app.post_message(events.Key("slash" if character == "/" else character, character))
        await board.press()
        assert board.overview.query_one(Input).value == "oasz"
        assert (board.overview.view.sort, board.app.screen) == (view.sort, board.overview)
        await board.press("escape")
        for key in ("slash", "x", "s", "backspace", "enter"):
            board.app.post_message(events.Key(key, "/" if key == "slash" else key if len(key) == 1 else None))
        await board.press()
        assert not board.overview.query(Input)
        assert (board.overview.view.filter, board.zoomed()) == ("x", None)


async def test_a_filter_is_typed_kept_and_dropped() -> None:
    """Letters are text while it is typed and narrow at once; esc drops screen, filter, selection in turn."""
    async with Board(four).on() as board:
        overview = board.overview
        theme, view = board.app.theme, overview.view
        await board.press("slash", *"qpt", "question_mark")
        assert (overview.query_one(Input).value, listed(board)) == ("qpt?", [])
        assert str(overview.query_one(Static).content) == "filter:"
        assert (board.app.theme, overview.view.boxes, overview.frozen) == (theme, view.boxes, False)
        await board.press("escape")
        assert (list(overview.children), board.app.focused) == ([board.canvas], board.canvas)
        assert (overview.view.filter, listed(board)) == ("", NAMES)
        await board.press("slash", *"RK", "minus", "c")
        assert listed(board) == ["spark-c"]
        await board.press("backspace", "space", "b")
        assert overview.view.filter == "RK- b"
        assert "spark-b" in listed(board)
        await board.press("escape", "slash", "minus", "d", "enter")
        assert (overview.asked, listed(board)) == ("", ["spark-d"])
        assert "drops filter: -d" in board.text
        await board.press("slash")
        assert (overview.query_one(Input).value, listed(board)) == ("-d", ["spark-d"])
        await board.press("enter", "down", "z")
        assert board.zoomed() is not None
        for zoomed, words, selected in ((False, "-d", True), (False, "", True), (False, "", False)):
            await board.press("escape")
            state = (bool(board.zoomed()), overview.view.filter, bool(board.selected()))
            assert state == (zoomed, words, selected)


async def test_the_view_is_remembered_and_the_filter_is_not(tmp_path: Path) -> None:
    """What was chosen by keys is there in the next run, from the file named."""
    state = tmp_path / "view.json"
    async with Board(four, state=state).on() as board:
        await board.press("v", "o", "3", "slash", "a")
    view = recall(state)
    assert (view.preset, view.sort, view.filter) == (Preset.COMPACT, Sort.NAME, "")
    async with Board(four, state=state).on() as board:
        assert board.overview.view == view
        assert board.overview.view.boxes.events


async def test_keys_from_the_configuration_take_the_place_of_the_usual_ones() -> None:
    """In effect, in the footer and in frames, where one without room is left out; a line stays usable."""
    keys = {"freeze": "ctrl+x", "view": "F", "nodes": "N", "processes": "ctrl+o", "faster": "a"}
    async with Board(four, keys={**keys, "back": "u", "palette": "y"}).on() as board:
        assert "┐Nnode spark-a┌" in board.text
        assert "¹" not in board.text
        assert "Processes" not in board.text
        assert " a poll 1 s + " in board.rows[0]
        await board.press("p", "v")
        assert (board.overview.frozen, board.overview.view.preset) == (False, Preset.WATCH)
        await board.press("ctrl+x", "F")
        assert (board.overview.frozen, board.overview.view.preset) == (True, Preset.COMPACT)
        assert "F view" in board.footer
        await board.press("slash", "u", "y")
        assert (board.overview.view.filter, board.home) == ("uy", True)
        await board.press("escape")
        assert (board.overview.view.filter, board.app.focused) == ("", board.canvas)


async def test_a_full_stop_turns_the_row_of_keys() -> None:
    """Keys that do not fit are on its next pages, also with the mouse; a panel alone has its own."""
    async with Board(two).on((80, 24)) as board:
        first = board.footer
        pages = []
        for _ in range(6):
            pages.append(board.footer)
            await board.press("full_stop")
        assert "history" not in first
        assert "history" in "".join(pages)
        assert "capacity" in "".join(pages)
        assert pages.count(first) > 1
        while board.footer != first:
            await board.press("full_stop")
        await board.click(first.index(" more"), 23)
        assert board.footer == pages[1]
        await board.press("b")
        assert board.footer != pages[1]


async def test_more_servers_than_fit_scroll() -> None:
    """Of 40 servers on 80x24 the table says how many it shows; the heading stays, the selection scrolls."""
    async with Board(Rehearsal(backends=40).play(6).snapshot).on((80, 24)) as board:
        await board.press("v")
        assert "of 40" in board.text
        assert "spark-40" not in board.text
        await board.press("up")
        assert "▶spark-40" in board.text
        assert "TTFT p95" in board.text
        assert board.rows[0].startswith(" SIMULATED")


async def test_a_dead_server_is_told_and_meant() -> None:
    """Its panel has the reason and since when, the header names it, and z without a selection shows it."""
    async with Board(Rehearsal(outage=Outage(1, 20)).play(30).snapshot).on((80, 24)) as board:
        assert re.search(r"✖ since \d\d:\d\d:\d\d, figures \d+ s old: nothing listens ", board.text)
        assert "unreachable" in board.text
        assert "✖ spark-b down (e)" in board.rows[0]
        await board.press("z")
        assert board.zoomed() == SERVER_B


async def test_c_shows_machines_compared() -> None:
    """How many settings are alike, also where nothing differs, at each size; one machine has no such key."""
    async with Board(Rehearsal(nodes=2).play(30).snapshot).on((200, 50)) as board:
        assert "compare" in board.footer
        await board.press("c")
        for size in SIZES[1:]:
            await board.resize(*size)
            assert re.search(r"machines spark-a, spark-b ─+ \d+ alike", board.text)
            assert "not known" in board.text
        await board.press("c")
        assert board.zoomed() is None
    async with Board(Rehearsal().play(5).snapshot).on((200, 50)) as board:
        assert "compare" not in board.footer


@pytest.mark.parametrize("asks", [MarkScreen, LimitsScreen])
async def test_what_is_typed_into_a_line_is_seen(asks: type[MarkScreen]) -> None:
    """The focused line has its row for the text, not a frame around none."""
    async with Board(two).on((80, 24)) as board:
        await board.app.push_screen(asks())
        await board.pilot.pause()
        assert board.app.screen.query_one(Input).content_size.height == 1


async def test_a_key_asks_about_the_ranks_of_the_selected_server() -> None:
    """Without a selected one the server of the top line is asked about."""
    asked: list[str] = []

    def ask(name: str) -> str:
        asked.append(name)
        return f"asked about {name}"

    async with Board(four).on() as board:
        board.overview.ask_ranks = ask
        await board.press("N")
        assert asked.pop() == "spark-a"
        board.overview.selected = PanelKey("backend", "spark-c")
        await board.press("N")
        assert asked == ["spark-c"]


async def test_each_change_of_the_interval_is_said() -> None:
    """`+` and `-` say what they changed, and where there is no longer or shorter one."""
    async with Board(two).on() as board:
        for key, answers in (
            ("plus", [*(f"polls every {one} s" for one in (2, 5, 10)), "10 s is the longest interval"]),
            ("minus", [f"polls every {one} s" for one in ("5", "2", "1", "0.5", "0.25")]),
            ("minus", ["0.25 s is the shortest interval"]),
        ):
            for words in answers:
                await board.press(key)
                assert board.notes == [words]


@pytest.mark.parametrize("low", [False, True])
async def test_low_bandwidth_is_said_in_the_header(*, low: bool) -> None:
    """With low bandwidth the header says how often it is drawn, and a column stands for more."""
    async with Board(two, low_bandwidth=low).on() as board:
        board.app._redraw()
        assert ("drawn every 4 s" in board.rows[0]) is low
        assert board.overview.coarse == (4 if low else 1)


async def test_themes_go_round_and_restyle_everything() -> None:
    """T goes through all themes and comes back; each repaints in its own background."""
    async with Board(two).on((80, 24)) as board:
        themes = []
        for _ in palettes():
            await board.press("t")
            style = known(next(iter(board.canvas.render_line(0))).style)
            assert style.bgcolor is not None
            themes.append(board.app.theme)
        assert sorted(themes) == sorted(palettes())


async def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR no style has a colour, weight remains; the selected panel alone has a heavy frame."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with Board(two).on((80, 24)) as board:
        styles = [part.style for y in range(24) for part in board.canvas.render_line(y)]
        assert all(style is not None and style.color is None and style.bgcolor is None for style in styles)
        assert any(style is not None and style.bold for style in styles)
        assert not any("┏" in board.canvas.render_line(y).text for y in range(24))
        await board.press("down")
        assert [board.canvas.render_line(y).text[0] for y in range(24)].count("┏") == 1
        assert not {row[0] for row in board.rows} & set("┏┃┗")


@pytest.mark.parametrize("keys", [("ctrl+c",), ("question_mark", "ctrl+c"), ("slash", "a", "ctrl+c")])
async def test_ctrl_c_quits(keys: tuple[str, ...]) -> None:
    """Where nothing runs, at once, from a dialog too."""
    board = Board(two)
    async with board.app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        assert board.app.return_code == 0
