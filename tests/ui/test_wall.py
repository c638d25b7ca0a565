"""The fleet view of many servers by keys and mouse: groups, lists, filter, and what is loaded."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from msgspec.structs import replace

from sparktop.analysis.wall import Top
from sparktop.model.router import Fleet, FleetServer, FleetView
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.ui.screens.sweep_editor import SweepEditor, TargetList
from stage.fleet import RehearsedFleet
from tests.known import known
from tests.ui.board import Board, Size
from tests.ui.sweep_stage import noted_by, press

SMALL, LARGE = (80, 24), (200, 50)
GROUP, SERVER = PanelKey("members", "llama-70b"), PanelKey("backend", "llama-001")


@cache
def picture() -> Snapshot:
    """Return a snapshot of 120 servers and 30 machines, shared by all tests."""
    return RehearsedFleet(120, 30).play(14).snapshot()


def scraped_at(at: float, *servers: FleetServer) -> Snapshot:
    """Return a snapshot of servers that a Prometheus scrapes."""
    view = FleetView("main", "http://p:9090", Fleet(at, 15.0, servers), age_s=1.0)
    return replace(picture(), at=at, backends=(), nodes=(), balance=(), routers=(), fleets=(view,))


@cache
def scraped() -> Snapshot:
    """Return a snapshot of 300 servers in 12 groups that a Prometheus scrapes."""
    return scraped_at(
        100.0,
        *(
            FleetServer(f"s{n:03d}", f"http://s{n}", f"group-{n % 12:02d}", 100.0, waiting=float(n % 3))
            for n in range(300)
        ),
    )


def kind(key: PanelKey | None) -> str:
    return "" if key is None else key.kind


async def test_keys_open_a_group_and_a_server_and_esc_goes_back() -> None:
    """Enter marks, then opens; each step back marks what was open; machines open in the same way."""
    async with Board(picture).on(SMALL) as board:
        await board.press("enter")
        assert (board.zoomed(), board.selected()) == (None, PanelKey("wall", "llama-70b"))
        await board.press("enter")
        assert board.zoomed() == GROUP
        await board.press("down", "enter")
        assert board.zoomed() == SERVER
        await board.press("escape")
        assert (board.zoomed(), board.selected()) == (GROUP, SERVER)
        await board.press("escape")
        assert (board.zoomed(), board.selected()) == (None, PanelKey("wall", "llama-70b"))
        await board.press("up", "enter", "down", "enter")
        assert kind(board.zoomed()) == "node"
        await board.press("escape", "escape")
        assert (board.zoomed(), board.selected()) == (None, PanelKey("machines", ""))
        await board.resize(80, 16)
        await board.press("down", "down", "enter", *["pagedown"] * (len(board.overview._selectable) // 4))
        assert board.selected() == board.overview._selectable[-1]  # by pages, as far as it goes


async def test_lists_and_views_come_in_turn() -> None:
    """`l` shows each list and then the groups; v ends a list, and every view differs from the one before."""
    async with Board(picture).on(SMALL) as board:
        for top in Top:
            await board.press("l")
            assert board.overview.view.top is top
        await board.press("l", "l", "down", "enter")
        assert kind(board.zoomed()) == "backend"
        await board.press("escape")
        assert (board.zoomed(), board.overview.view.top) == (None, Top.WAITING)
        await board.press("escape", "l", "v")
        pictures = [board.text]
        for _ in range(5):
            await board.press("v")
            pictures.append(board.text)
        assert all(before != after for before, after in pairwise(pictures))
        assert ["120 servers" in text for text in pictures[:4]] == [False, False, True, False]
        assert board.overview.view.top is None
        await board.resize(*LARGE)
        kinds = []
        for _ in range(7):
            await board.press("tab")
            kinds.append(kind(board.selected()))
        assert kinds == ["wall", "machines", "need attention", *Top]
        await board.press("enter")
        assert kind(board.zoomed()) == "node"
        await board.press("escape")
        assert kind(board.selected()) == Top.CLOCK


async def test_a_filter_narrows_and_esc_drops_it_before_anything_else() -> None:
    """On the groups, in an opened group and in a list; a panel shown alone offers no filter to drop."""
    async with Board(picture).on(SMALL) as board:
        await board.press("slash", *"unreachable", "enter")
        assert "2 of 120 servers" in board.text
        await board.press("slash", *"zzz", "enter", "enter")
        assert board.zoomed() is None
        assert "esc drops the filter" in board.text
        await board.press("escape", "l", "l", "slash", *"llama", "enter", "down", "enter")
        assert kind(board.zoomed()) == "backend"
        assert "drops filter" not in board.text
        for top, words in ((Top.KV, "llama"), (Top.KV, ""), (None, "")):
            await board.press("escape")
            assert (board.overview.view.top, board.overview.view.filter) == (top, words)
    for take, steps in ((picture, ()), (scraped, ("down", "enter"))):
        async with Board(take).on(SMALL) as board:
            await board.press(*steps, "down", "enter")
            group, count = board.zoomed(), len(board.overview._selectable)
            await board.press("down", "slash", *board.overview._selectable[-1].name, "enter", "down")
            marked = board.selected()
            assert len(board.overview._selectable) == 1
            assert "drops filter" in board.text
            await board.press("escape")
            assert (board.zoomed(), board.selected()) == (group, marked)
            assert len(board.overview._selectable) == count
            await board.press("escape")
            assert board.zoomed() != group


@pytest.mark.parametrize("size", [(60, 20), SMALL, LARGE])
async def test_clicks_mark_open_and_filter(size: Size) -> None:
    """The row below a group's line belongs to it, a second click opens; a state's number is a filter."""
    async with Board(picture).on(size) as board:
        if size != (60, 20):
            name = "llama-70b " if size == SMALL else "llama-001"
            lines = "llama-70b " if size == SMALL else "✖ llama-002"
            await board.click_on(name, lambda row: lines in row and "│" in row)
            assert board.selected() == PanelKey("wall", "llama-70b")
            if size == LARGE:  # elsewhere no row is left for the machines' names
                await board.click_on("gpu-022", lambda row: "▼ gpu-022" in row)
                assert board.selected() == PanelKey("machines", "")
                await board.click_on(name, lambda row: lines in row)
            await board.click_on(name, lambda row: lines in row and "│" in row)
            assert board.zoomed() == GROUP
            await board.click_on("unreachable", lambda row: "busy" in row)
            assert [key.name for key in board.overview._selectable] == ["llama-001", "llama-002"]
            await board.press("escape")
            assert (board.overview.view.filter, board.zoomed()) == ("", GROUP)
            await board.press("escape", "escape")
        word = "queueing"
        count = sum(one.state.value == word for one in picture().backends)
        await board.click_on(word, lambda row: "busy" in row)
        assert (board.overview.view.filter, board.selected()) == (word, None)
        assert f"{count} of 120 servers" in board.rows[2]
        await board.click_on(word, lambda row: "filter:" not in row and f"{count} {word}" in row)
        assert board.overview.view.filter == ""
        board.overview._filter_by("glm")
        await board.click_on(word, lambda row: "filter:" not in row and f" {word}" in row)
        assert board.overview.view.filter == f"glm {word}"


async def test_a_board_without_a_fleet_says_where_its_key_for_lists_works() -> None:
    """And where nothing at all is watched, Enter opens nothing that would swallow keys."""
    few = replace(picture(), backends=picture().backends[:2], nodes=())
    async with Board(lambda: few).on(SMALL) as board:
        await board.press("l")
        assert board.overview.view.top is None
        assert board.notes == ["l is for the wall of many servers only"]
    empty = replace(few, backends=(), balance=(), routers=(), alerts=())
    async with Board(lambda: empty).on(SMALL) as board:
        await board.press("enter", "down", "enter", "down")
        assert board.zoomed() is None
        assert "No backend to watch" in board.text


async def test_a_fleet_of_a_prometheus_opens_group_and_samples() -> None:
    """Groups, their servers, then the group is read sample by sample; a list leads to a server's group."""
    wanted: list[str] = []

    def want(group: str) -> str:
        wanted.append(group)
        return f"reads {group}"

    async with Board(scraped).on(SMALL) as board:
        board.overview.want_group = want
        await board.press("down", "enter", "down", "enter")
        group = known(board.zoomed())
        assert group.kind == "scraped"
        await board.press("escape", "enter", "down", "enter")
        assert (wanted, board.zoomed()) == ([group.name], None)
        await board.resize(*LARGE)
        await board.press("escape", "down", "enter", "tab", "tab", "tab")
        assert kind(board.selected()) == Top.WAITING
        chosen = board.selected()
        await board.press("enter")
        assert board.zoomed() == PanelKey("scraped", f"group-{int(known(chosen).name[1:]) % 12:02d}")


async def test_groups_hold_their_places_for_seconds_and_a_filter_orders_them_at_once() -> None:
    """Two groups take turns in being the worst."""
    moment = [100.0, 0.0]

    def swinging() -> Snapshot:
        at, odd = moment
        return scraped_at(
            at,
            *(
                FleetServer(f"s{n}", f"http://{n}", f"group-{n % 2}", at, waiting=90.0 * (n % 2 == odd))
                for n in range(100)
            ),
        )

    board = Board(swinging)

    def groups() -> list[str]:
        lines = (row.split("│")[1].strip(" ▸►>▶") for row in board.rows[4:-3])
        return [line.split()[0] for line in lines if line.startswith("group-")]

    async with board.on(SMALL):
        await board.press("enter")
        orders = [groups()]
        for second, keys in ((1.0, ()), (4.0, ()), (5.0, ()), (6.0, ("/",)), (6.0, ("p",))):
            moment[:] = [100.0 + second, 1.0 if second < 6 else 0.0]
            board.overview.redraw()
            await board.press(*keys)
            orders.append(groups())
        first, second_first = ["group-0", "group-1"], ["group-1", "group-0"]
        assert orders == [first, first, first, second_first, second_first, first]


def loading(*, routers: bool) -> Board:
    """Return a board of 120 servers that can be loaded."""
    fleet = RehearsedFleet(120, 0)
    store, watch = fleet.play(14), fleet.watch
    snapshot = store.snapshot()
    if not routers:
        snapshot, watch = replace(snapshot, routers=()), replace(watch, routers=())
    return Board(lambda: snapshot, store=store, watch=watch)


@pytest.mark.parametrize("routers", [True, False])
async def test_keys_load_what_is_marked_else_what_the_filter_leaves(*, routers: bool) -> None:
    """`s` and `a` mean exactly these; too many or none are told, and none is chosen in the editor."""
    async with loading(routers=routers).on() as board:
        desk, notes = board.app.desk, noted_by(board.app)

        def meant() -> list[str]:
            return [one.name for one in desk.targets((), board.overview._panel_to_load) or ()]

        await board.press("slash", *"unreachable", "enter")
        assert meant() == ["llama-001", "llama-002"]
        board.overview.selected = PanelKey("wall", "llama-70b")
        assert meant() == ["llama-001", "llama-002"]
        await board.press("escape")
        assert meant() == (["llama-70b"] if routers else [one for one in meant() if one.startswith("llama")])
        assert len(meant()) == (1 if routers else 14)
        await board.press("escape")
        notes.clear()
        if routers:
            for key in ("s", "a"):
                await board.press("slash", *"full", "enter")
                await press(board.pilot, key)
                assert desk._names == ("glm-001", "glm-010")
                desk.call_off()
            await board.press("escape", "slash", *"gpt", "enter")
            notes.clear()
            await board.press("s", "slash", *["backspace"] * 3, *"nothing like it", "enter", "a")
            assert "the 25 servers that the filter leaves" in notes[0]
            assert notes[1] == "nothing to sweep: the filter leaves no server"
        else:
            await board.press("s")
            assert "this would load all 120 servers" in notes[0]
            assert "the editor (S)" in notes[0]
            await board.press("S")
            await board.worked()
            assert isinstance(board.app.screen, SweepEditor)
            assert board.app.screen.query_one(TargetList).names == ()
