"""A node's processes, opened, sorted and filtered by key; and when they are asked for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.view import Sort
from sparktop.panels.machine.processes import ProcessSort
from sparktop.panels.parts.text import row_text, row_width
from sparktop.ui.app import SparktopApp
from sparktop.ui.remembered import recall
from stage.rehearsal import Rehearsal

DETAIL = PanelKey("node", "spark-a")
ALONE = PanelKey("processes", "spark-a")


@cache
def picture() -> Snapshot:
    """Return a snapshot shared by all tests: it is immutable."""
    return Rehearsal(nodes=2).play(60).snapshot()


class Asked:
    """Stands for the monitor's part that is given the tables to read."""

    def __init__(self) -> None:
        """Begin without calls."""
        self.names: list[tuple[str, ...]] = []

    def show_processes(self, names: tuple[str, ...]) -> None:
        """Store the nodes given."""
        self.names.append(tuple(names))


def make_app(asked: Asked | None = None, state: Path | None = None) -> SparktopApp:
    app = SparktopApp(picture, state=state)
    if asked is not None:
        app._monitor = asked  # type: ignore[assignment]  # only this method of it is used before the start
        app._painted = True  # the sources are not to be started
    return app


def text(app: SparktopApp) -> str:
    return "\n".join(row_text(row) for row in app.overview.canvas.rows)


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def detach(app: SparktopApp) -> None:
    app._monitor = None


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 36), (200, 50)])
async def test_the_table_fills_the_screen_and_goes_back(size: tuple[int, int]) -> None:
    """P shows the processes of the selected node alone, as wide as the terminal; P again goes back."""
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await press(pilot, "down", "P")
        assert app.overview.zoomed == ALONE
        assert "node spark-a┌┐Processes┌" in text(app)
        assert "VLLM::Engine" in text(app)
        assert {row_width(row) for row in app.overview.canvas.rows} == {size[0]}
        await press(pilot, "P")
        assert app.overview.zoomed is None


async def test_from_the_detail_it_goes_back_to_the_detail() -> None:
    """Esc leads from the table to the detail that it was opened from, then to the board."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "down", "enter")
        assert app.overview.zoomed == DETAIL
        await press(pilot, "P", "escape")
        assert app.overview.zoomed == DETAIL
        await press(pilot, "escape")
        assert app.overview.zoomed is None


async def test_without_a_selection_it_is_the_first_node() -> None:
    """With a backend selected, or nothing, P shows the first node's processes."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "P")
        assert app.overview.zoomed == ALONE


async def test_o_sorts_processes_where_they_are_shown() -> None:
    """In the detail and in the table o goes through the orders of processes and leaves the board's alone."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "down", "P")
        seen = []
        for _ in ProcessSort:
            await press(pilot, "o")
            seen.append(app.overview.view.processes.sort)
        assert seen == [*list(ProcessSort)[1:], ProcessSort.GPU]
        await press(pilot, "o", "o")
        assert "▼CPU" in text(app)
        view = app.overview.view
        assert view.sort == Sort.CONFIG
        await press(pilot, "escape", "o")
        view = app.overview.view
        assert (view.sort, view.processes.sort) == (Sort.NAME, ProcessSort.CPU)


async def test_the_filter_is_of_processes_where_they_are_shown() -> None:
    """Typing narrows the table, not the board; the footer says so, and esc drops it before it goes back."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "down", "P", "slash", *"gnome", "enter")
        assert app.overview.view.filter == ""
        assert app.overview.view.processes.filter == "gnome"
        assert "gnome-shell" in text(app)
        assert "containerd" not in text(app)
        assert "drops filter: gnome" in text(app)
        await press(pilot, "escape")
        assert (app.overview.zoomed, app.overview.view.processes.filter) == (ALONE, "")
        assert "containerd" in text(app)
        await press(pilot, "slash", "z", "z", "escape")
        assert (app.overview.zoomed, app.overview.view.processes.filter) == (ALONE, "")
        assert not app.overview.query_one("#filter", Input).has_class("asking")


async def test_leaving_drops_the_filter() -> None:
    """A filter that was kept is gone with the table: the next node is shown whole."""
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "down", "enter", "slash", *"gnome", "enter", "z")
        assert app.overview.zoomed is None
        assert app.overview.view.processes.filter == ""


async def test_arrows_and_wheel_scroll_the_table() -> None:
    """The heading stays where it is while the rows move, by one a key, and stop at the end."""
    app = make_app()
    async with app.run_test(size=(80, 16)) as pilot:
        await press(pilot, "down", "P", "o", "o", "o", "o")
        assert "1–11 of 14" in text(app)
        await press(pilot, "down", "down")
        assert "3–13 of 14" in text(app)
        await press(pilot, *["down"] * 9)
        assert "4–14 of 14" in text(app)
        await press(pilot, "up")
        assert "3–13 of 14" in text(app)
        assert "▼pid" in text(app)


async def test_tables_are_read_only_while_in_sight() -> None:
    """The monitor is called when a table comes into sight and when it is gone, once each."""
    asked = Asked()
    app = make_app(asked)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "down", "enter")
        assert asked.names == []
        await press(pilot, *["down"] * 20)
        assert asked.names == [("spark-a",)]
        await press(pilot, "down")
        await press(pilot, "escape")
        assert asked.names == [("spark-a",), ()]
        await press(pilot, "down", "P")
        assert asked.names == [("spark-a",), (), ("spark-b",)]
        await pilot.resize_terminal(50, 10)
        await pilot.pause()
        assert asked.names[-1] == ()
        await detach(app)


async def test_the_order_is_remembered_and_the_filter_is_not(tmp_path: Path) -> None:
    """The next run lists processes as this one did, all of them."""
    state = tmp_path / "view.json"
    app = make_app(state=state)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "P", "o", "slash", "x", "enter")
    view = recall(state)
    assert (view.processes.sort, view.processes.filter) == (ProcessSort.MEMORY, "")


async def test_without_nodes_it_says_so() -> None:
    """On a board without nodes P changes nothing."""
    app = SparktopApp(Rehearsal(nodes=0).play(10).snapshot)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "P")
        assert app.overview.zoomed is None


async def test_a_filter_hides_no_node_of_a_backend_shown_alone() -> None:
    """A board filtered to one backend still knows the machines that it runs on."""
    app = SparktopApp(Rehearsal(backends=1, nodes=2, span=2).play(60).snapshot)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "slash", *"vllm", "enter", "down", "enter")
        assert app.overview.zoomed == PanelKey("backend", "spark-a")
        assert "─ spark-b ─" in text(app)
        assert "not watched" not in text(app)
