"""A machine's processes, opened by key; and when they are asked for."""

from __future__ import annotations

from functools import cache

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from stage.rehearsal import Rehearsal
from tests.ui.board import SIZES, Board

DETAIL = PanelKey("node", "spark-a")
ALONE = PanelKey("processes", "spark-a")


@cache
def picture() -> Snapshot:
    """Return a snapshot of two machines, shared by all tests."""
    return Rehearsal(nodes=2).play(60).snapshot()


async def test_the_table_fills_the_screen_and_goes_back() -> None:
    """P shows the selected machine's, else the first one's, at every size; esc goes where P came from."""
    async with Board(picture).on() as board:
        for size in SIZES:
            await board.resize(*size)
            await board.press("P")
            assert (board.zoomed(), board.size) == (ALONE, size)
            assert "node spark-a┌┐Processes┌" in board.text
            assert "VLLM::Engine" in board.text
            await board.press("P")
            assert board.zoomed() is None
        await board.press("down", "enter")
        for keys, zoomed in ((("P",), ALONE), (("escape",), DETAIL), (("escape",), None)):
            await board.press(*keys)
            assert board.zoomed() == zoomed
    async with Board(Rehearsal(nodes=0).play(10).snapshot).on() as board:
        await board.press("P")
        assert board.zoomed() is None


async def test_tables_are_read_only_while_in_sight() -> None:
    """The monitor is called when a table comes into sight and when it is gone, once each."""
    asked: list[tuple[str, ...]] = []

    class Asked:
        """Stands for the part of the monitor that is given the tables to read."""

        def show_processes(self, names: tuple[str, ...]) -> None:
            asked.append(tuple(names))

    board = Board(picture)
    board.app._monitor = Asked()  # type: ignore[assignment]  # only this method of it is used before the start
    board.app._painted = True  # the sources are not to be started
    async with board.on((80, 24)):
        await board.press("down", "enter")
        assert asked == []
        await board.press(*["down"] * 20)
        assert asked == [("spark-a",)]
        await board.press("down", "escape")
        assert asked == [("spark-a",), ()]
        await board.press("down", "P")
        assert asked == [("spark-a",), (), ("spark-b",)]
        await board.resize(50, 10)
        assert asked[-1] == ()
        board.app._monitor = None
