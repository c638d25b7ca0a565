"""The balance of a group on the screen, driven by keys and mouse."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.model.balance import BalanceWord
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from tests.panels.balance_scenes import herd, traced
from tests.ui.board import SIZES, Board

PROXY, HERD = PanelKey("balance", "proxy"), PanelKey("balance", "herd")
WHY = PanelKey("evidence", "proxy")


def one_group() -> Snapshot:
    return traced("cooldown-c64")


def two_groups() -> Snapshot:
    """Return one group of two and one of four, each with a verdict of its own."""
    pair, many = one_group(), herd(4)
    backends = tuple(
        replace(view, name=name)
        for view, name in zip(many.backends, many.balance[0].backends, strict=True)
        if name not in pair.balance[0].backends
    )
    calm = replace(many.balance[0], word=BalanceWord.BALANCED)
    return replace(pair, backends=(*pair.backends, *backends), balance=(calm, pair.balance[0]))


async def test_b_shows_the_group_and_w_why_at_every_size() -> None:
    """Each key closes what it opened; Enter goes the same way from the board; a filter hides half a group."""
    async with Board(one_group).on() as board:
        for size in SIZES:
            await board.resize(*size)
            await board.press("b")
            assert (board.zoomed(), board.size) == (PROXY, size)
            assert "▲ spark-a" in board.text
            await board.press("w")
            assert (board.zoomed(), board.size) == (WHY, size)
            assert "┐why? proxy┌" in board.text
            await board.press("w")
            assert board.zoomed() == PROXY
            await board.press("b")
            assert board.zoomed() is None
        await board.resize(120, 36)
        await board.press("escape")  # nothing is selected
        for keys, zoomed in (
            (("down", "down", "enter"), PROXY),
            (("enter",), WHY),
            (("escape",), PROXY),
            (("escape",), None),
            (("w",), WHY),
            (("escape",), None),
            (("w", "w"), None),
            (("b", "w", "b"), PROXY),
            (("b",), None),
            (("e", "e"), None),
            (("c", "c"), None),
            (("P", "P"), None),
            (("b", "w", "e"), PanelKey("events", "")),
            (("e",), WHY),
            (("c", "c"), WHY),
            (("P", "P"), WHY),
            (("w",), PROXY),
            (("e", "escape"), PROXY),
            (("escape",), None),
        ):
            await board.press(*keys)
            assert board.zoomed() == zoomed
        assert board.selected() == PROXY
        await board.press("slash", *"spark")
        assert "┐balance " in board.text
        await board.press(*"-a")
        assert " spark-a┌" in board.text
        assert "┐balance " not in board.text


async def test_of_several_groups_b_opens_the_selected_else_the_gravest() -> None:
    """Tab goes round, in picture and evidence alike; the footer offers both, and can be clicked."""
    async with Board(two_groups).on((80, 24)) as board:
        assert " balance" in board.footer
        await board.press("b")
        assert board.zoomed() == PROXY
        assert "group 2 of 2" in board.text
        assert "next group" in board.footer
        await board.click(board.footer.index("why?"), 23)
        assert board.zoomed() == WHY
        assert "w picture" in board.footer
        await board.press("w", "tab")
        assert board.zoomed() == HERD
        assert "requests of each" in board.text
        await board.press("w", "shift+tab")
        assert board.zoomed() == WHY
        await board.press("right", "escape")
        assert board.zoomed() == HERD
        await board.press("escape")
        board.overview.selected = PanelKey("backend", "spark-d")
        await board.press("b")
        assert board.zoomed() == HERD


async def test_without_a_group_b_says_so() -> None:
    """A group shown alone that is judged no more is followed by the board; then both keys say why."""
    shown = [one_group()]
    async with Board(lambda: shown[0]).on(notices=True) as board:
        await board.press("b")
        shown[0] = replace(shown[0], balance=())
        board.overview.redraw()
        for key in ("b", "w"):
            board.app.clear_notifications()
            await board.press(key)
            assert " spark-b┌" in board.text
            assert board.notes == ["no group of two or more backends to compare"]
