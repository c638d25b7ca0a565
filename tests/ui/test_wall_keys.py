"""Keys on the wall of many servers: mark, open, go back, filter, lists; the mouse does the same."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from msgspec.structs import replace
from textual.pilot import Pilot

from sparktop.analysis.state import Top
from sparktop.model.router import Fleet, FleetServer, FleetView
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.parts.text import row_text
from sparktop.ui.app import SparktopApp
from stage.fleet import RehearsedFleet

SIZE = (80, 24)
NOTHING = PanelKey("", "")


@cache
def picture() -> Snapshot:
    """Return a snapshot of 120 servers and 30 machines, shared by all tests."""
    return RehearsedFleet(120, 30).play(14).snapshot()


@cache
def scraped() -> Snapshot:
    """Return a snapshot of 300 servers that a Prometheus scrapes."""
    servers = tuple(
        FleetServer(
            f"s{n:03d}", f"http://s{n}", f"group-{n % 12:02d}", 100.0, running=1.0, waiting=float(n % 3)
        )
        for n in range(300)
    )
    view = FleetView("main", "http://p:9090", Fleet(100.0, 15.0, servers), age_s=1.0)
    return replace(picture(), backends=(), nodes=(), balance=(), routers=(), fleets=(view,))


def text(app: SparktopApp) -> str:
    """Return what is on the screen."""
    return "\n".join(row_text(row) for row in app.overview.canvas.rows)


def opened(app: SparktopApp) -> PanelKey | None:
    """Return the panel that is shown alone; None for the whole board."""
    return app.overview.zoomed


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, and wait for the picture."""
    await pilot.press(*keys)
    await pilot.pause()


async def test_enter_opens_a_group_then_a_server_and_esc_goes_back() -> None:
    """At each step back, what was opened is marked again."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(pilot, "down", "enter")
        assert opened(app) == PanelKey("members", "llama-70b")
        await press(pilot, "down", "enter")
        assert opened(app) == PanelKey("backend", "llama-001")
        await press(pilot, "escape")
        assert opened(app) == PanelKey("members", "llama-70b")
        assert app.overview.selected == PanelKey("backend", "llama-001")
        await press(pilot, "escape")
        assert opened(app) is None
        assert app.overview.selected == PanelKey("wall", "llama-70b")


async def test_a_click_marks_a_group_and_a_second_one_opens_it() -> None:
    """In the group, clicks mark and open a server in the same way."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        for expected in (PanelKey("members", "llama-70b"), PanelKey("backend", "llama-001")):
            name = "llama-70b " if expected.kind == "members" else "llama-001"
            rows = [row_text(row) for row in app.overview.canvas.rows]
            y = next(at for at, row in enumerate(rows) if name in row and at > 3)
            await pilot.click(offset=(10, y))
            await pilot.pause()
            await pilot.click(offset=(10, y))
            await pilot.pause()
            assert opened(app) == expected


async def test_machines_open_and_so_does_each_of_them() -> None:
    """The worst first: the one that does not answer."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(pilot, "up", "enter", "down", "enter")
        assert (opened(app) or NOTHING).kind == "node"
        await press(pilot, "escape", "escape")
        assert opened(app) is None
        assert app.overview.selected == PanelKey("machines", "")


async def test_l_shows_each_list_and_then_the_groups_again() -> None:
    """Enter on a line opens the server; esc goes back to the list, and then to the groups."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        for top in Top:
            await press(pilot, "l")
            assert app.overview.view.top is top
        await press(pilot, "l", "l", "down", "enter")
        assert (opened(app) or NOTHING).kind == "backend"
        await press(pilot, "escape")
        assert (opened(app), app.overview.view.top) == (None, Top.WAITING)
        await press(pilot, "escape")
        assert app.overview.view.top is None


async def test_tab_goes_from_the_groups_to_the_lists_beside_them() -> None:
    """At 200×50; enter on an entry opens what it names, esc goes back to it."""
    app = SparktopApp(picture)
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        kinds = []
        for _ in range(7):
            await press(pilot, "tab")
            assert app.overview.selected is not None
            kinds.append(app.overview.selected.kind)
        assert kinds == ["wall", "machines", "need attention", *Top]
        await press(pilot, "enter")
        assert (opened(app) or NOTHING).kind == "node"
        await press(pilot, "escape")
        assert app.overview.selected is not None
        assert app.overview.selected.kind == Top.CLOCK


async def test_the_filter_narrows_the_wall_while_one_types() -> None:
    """The number of matches stands in the totals; esc drops the filter."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(pilot, "slash", *"unreachable", "enter")
        assert "2 of 120 servers" in text(app)
        await press(pilot, "slash", "x", "enter")
        assert "esc drops the filter" in text(app)
        await press(pilot, "escape")
        assert "120 servers" in text(app)


async def test_esc_in_an_opened_group_drops_its_filter_first() -> None:
    """Then it leaves the group, as it leaves a filtered list; the marked line stays marked."""
    for shown, steps in ((picture, ()), (scraped, ("down", "enter"))):
        app = SparktopApp(shown)
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()
            await press(pilot, *steps, "down", "enter")
            group = opened(app)
            assert group is not None
            count = len(app.overview._selectable)
            await press(pilot, "down", "slash", *app.overview._selectable[-1].name, "enter", "down")
            assert len(app.overview._selectable) == 1
            marked = app.overview.selected
            assert "drops filter" in text(app)
            await press(pilot, "escape")
            assert opened(app) == group
            assert (len(app.overview._selectable), app.overview.selected) == (count, marked)
            assert "drops filter" not in text(app)
            await press(pilot, "escape")
            assert opened(app) != group


async def test_a_filtered_list_loses_its_filter_before_it_is_left() -> None:
    """A panel that is shown alone has no filter, and none is offered to drop."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(pilot, "l", "l", "slash", *"llama", "enter")
        await press(pilot, "down", "enter")
        assert (opened(app) or NOTHING).kind == "backend"
        assert "drops filter" not in text(app)
        await press(pilot, "escape")
        assert (app.overview.view.top, app.overview.view.filter) == (Top.KV, "llama")
        await press(pilot, "escape")
        assert (app.overview.view.top, app.overview.view.filter) == (Top.KV, "")
        await press(pilot, "escape")
        assert app.overview.view.top is None


async def test_v_still_goes_through_the_views() -> None:
    """Watch and wall are the wall, compact is the table, and one backend its details."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        walls = []
        for _ in range(4):
            walls.append("120 servers" in text(app))
            await press(pilot, "v")
        assert walls == [True, False, False, True]


async def test_a_page_moves_the_mark_by_a_page() -> None:
    """In an opened group that is longer than the screen; at its end the mark stays."""
    app = SparktopApp(picture)
    async with app.run_test(size=(80, 16)) as pilot:
        await pilot.pause()
        await press(pilot, "down", "down", "enter")
        members = len(app.overview._selectable)
        await press(pilot, *["pagedown"] * (members // 4))
        assert app.overview.selected == app.overview._selectable[-1]


async def test_l_on_a_board_without_a_wall_says_where_the_lists_are() -> None:
    """Nothing else changes."""
    few = replace(picture(), backends=picture().backends[:2], nodes=())
    app = SparktopApp(lambda: few)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(pilot, "l")
        assert app.overview.view.top is None
        assert [one.message for one in app._notifications] == ["the lists are on the wall of many servers"]


async def test_the_wall_of_a_prometheus_opens_in_the_same_way() -> None:
    """Groups, their servers, and then the group is read sample by sample; esc goes back."""
    app = SparktopApp(scraped)
    wanted: list[str] = []

    def want(group: str) -> str:
        wanted.append(group)
        return f"reads {group}"

    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        app.overview.want_group = want
        await press(pilot, "down", "enter", "down", "enter")
        group = app.overview.zoomed
        assert group is not None
        assert group.kind == "scraped"
        await press(pilot, "escape", "enter", "down", "enter")
        assert wanted == [group.name]
        assert opened(app) is None


async def test_a_list_of_a_prometheus_leads_to_the_group_of_a_server() -> None:
    """At 200×50, where the lists stand beside the groups."""
    app = SparktopApp(scraped)
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        await press(pilot, "down", "enter", "tab", "tab", "tab")
        chosen = app.overview.selected
        assert chosen is not None
        assert chosen.kind == Top.WAITING
        await press(pilot, "enter")
        assert opened(app) == PanelKey("scraped", f"group-{int(chosen.name[1:]) % 12:02d}")


async def test_groups_hold_their_places_for_seconds_and_a_filter_orders_them_at_once() -> None:
    """Two groups take turns in being the worst."""
    moment = [100.0, 0.0]

    def swinging() -> Snapshot:
        at, odd = moment
        servers = tuple(
            FleetServer(f"s{n}", f"http://s{n}", f"group-{n % 2}", at, waiting=90.0 if n % 2 == odd else 0.0)
            for n in range(100)
        )
        view = FleetView("main", "http://p:9090", Fleet(at, 15.0, servers), age_s=1.0)
        return replace(scraped(), at=at, fleets=(view,))

    app = SparktopApp(swinging)

    def groups() -> list[str]:
        lines = (row_text(row).split("│")[1].strip(" ▸►>▶") for row in app.overview.canvas.rows[4:-3])
        return [line.split()[0] for line in lines if line.startswith("group-")]

    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(pilot, "enter")
        seen = [groups()]
        for second, key in ((1.0, ""), (4.0, ""), (5.0, ""), (6.0, "/"), (6.0, "p")):
            moment[:] = [100.0 + second, 1.0 if second < 6 else 0.0]
            app.overview.redraw()
            await pilot.pause()
            if key:
                await press(pilot, key)
            seen.append(groups())
        first, second_first = ["group-0", "group-1"], ["group-1", "group-0"]
        assert seen == [first, first, first, second_first, second_first, first]


async def test_enter_on_an_empty_panel_does_nothing() -> None:
    """Without a server to watch, no state looks like the board and swallows keys; selected or not."""
    empty = replace(picture(), backends=(), nodes=(), balance=(), routers=(), alerts=())
    app = SparktopApp(lambda: empty)
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "enter")
        assert opened(app) is None
        await press(pilot, "down", "enter", "down")
        assert opened(app) is None
        assert "No backend to watch" in text(app)


async def test_enter_marks_the_first_line_where_none_is_marked() -> None:
    """Nothing opens that is not marked; a filter that leaves nothing leaves nothing to open."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(pilot, "enter")
        first = app.overview.selected
        assert (opened(app), first and first.kind) == (None, "wall")
        await press(pilot, "enter")
        assert first is not None
        assert opened(app) == PanelKey("members", first.name)
        await press(pilot, "escape", "slash", *"zzz", "enter", "enter")
        assert opened(app) is None


async def test_each_view_after_a_wall_is_another_one() -> None:
    """Panels and tiles are both the wall where it is one, so that one of them is passed over; lists end."""
    app = SparktopApp(picture)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(pilot, "l", "v")
        seen = [text(app)]
        for _ in range(5):
            await press(pilot, "v")
            seen.append(text(app))
        assert all(before != after for before, after in pairwise(seen))
        assert app.overview.view.top is None
