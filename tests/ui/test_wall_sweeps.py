"""The keys that load servers, on the wall: what is marked, else what the filter leaves."""

from __future__ import annotations

from msgspec.structs import replace
from textual.pilot import Pilot

from sparktop.panels.board.layout import PanelKey
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.editor.fields import TargetList
from sparktop.ui.screens.editor.screen import SweepEditor
from stage.fleet import RehearsedFleet
from tests.ui.sweep_stage import noted_by, press

SIZE = (120, 36)


def fleet_app(*, routers: bool = True) -> SparktopApp:
    """Return the application with a wall of 120 servers."""
    fleet = RehearsedFleet(120, 0)
    store = fleet.play(14)
    snapshot = store.snapshot()
    if routers:
        return SparktopApp(lambda: snapshot, store=store, watch=fleet.watch)
    bare = replace(snapshot, routers=())
    return SparktopApp(lambda: bare, store=store, watch=replace(fleet.watch, routers=()))


def meant(app: SparktopApp) -> list[str]:
    """Return the names of the targets that a key would load now."""
    return [one.name for one in app.desk.targets((), app.overview._meant) or ()]


async def filter_by(pilot: Pilot[None], words: str) -> None:
    """Type a filter."""
    await pilot.press("slash", *words, "enter")
    await pilot.pause()


async def test_a_filter_narrows_what_keys_load() -> None:
    """Those in sight, whether their groups have routers or not; esc drops the filter and its choice."""
    for routers in (True, False):
        app = fleet_app(routers=routers)
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()
            await filter_by(pilot, "unreachable")
            assert meant(app) == ["llama-001", "llama-002"]
            app.overview.selected = PanelKey("wall", "llama-70b")
            assert meant(app) == ["llama-001", "llama-002"]
            await pilot.press("escape")
            found = meant(app)
            assert found == ["llama-70b"] if routers else all(one.startswith("llama-") for one in found)
            assert len(found) == (1 if routers else 14)


async def test_the_keys_load_what_the_filter_leaves() -> None:
    """`s` announces a sweep, and `a` a search, of exactly these servers."""
    for key in ("s", "a"):
        app = fleet_app()
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()
            await filter_by(pilot, "full")
            await press(pilot, key)
            assert app.desk._names == ("glm-001", "glm-010")
            app.desk.call_off()


async def test_a_filter_that_leaves_too_many_or_none_is_told() -> None:
    """Nothing is loaded; the message says how many there are and that the filter can leave fewer."""
    app = fleet_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        notes = noted_by(app)
        await filter_by(pilot, "gpt")
        await pilot.press("s")
        await filter_by(pilot, "nothing like it")
        await pilot.press("a")
        assert "the 25 servers that the filter leaves" in notes[0]
        assert "filter (/)" in notes[0]
        assert notes[1] == "nothing to sweep: the filter leaves no server"
        assert app.desk._names == ()


async def test_the_editor_opens_where_a_key_loads_nothing() -> None:
    """The message of the keys names it: none of the many servers is chosen in it."""
    app = fleet_app(routers=False)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        notes = noted_by(app)
        await pilot.press("s")
        assert "this would load all 120 servers" in notes[0]
        assert "the editor (S)" in notes[0]
        await pilot.press("S")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert isinstance(app.screen, SweepEditor)
        assert app.screen.query_one(TargetList).names == ()
