"""The balance of a group on the screen, driven by keys and mouse."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from sparktop.model.balance import BalanceWord
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.parts.text import row_text, row_width
from sparktop.ui.app import SparktopApp
from tests.panels.balance_scenes import herd, traced

PROXY, HERD = PanelKey("balance", "proxy"), PanelKey("balance", "herd")


def two_groups() -> Snapshot:
    """Return one group of two and one of four, each with a verdict of its own."""
    pair, many = traced("cooldown-c64"), herd(4)
    backends = tuple(
        replace(view, name=name)
        for view, name in zip(many.backends, many.balance[0].backends, strict=True)
        if name not in pair.balance[0].backends
    )
    calm = replace(many.balance[0], word=BalanceWord.BALANCED)
    return replace(pair, backends=(*pair.backends, *backends), balance=(calm, pair.balance[0]))


def text(app: SparktopApp) -> str:
    return "\n".join(row_text(row) for row in app.overview.canvas.rows)


def alone(app: SparktopApp) -> PanelKey | None:
    """Return the key of the zoomed panel."""
    return app.overview.zoomed


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 36), (200, 50)])
async def test_b_shows_the_group_and_w_why(size: tuple[int, int]) -> None:
    """One key shows the swing large, another the reason for the verdict; both go back the way they came."""
    app = SparktopApp(lambda: traced("cooldown-c64"))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "b")
        assert alone(app) == PROXY
        assert "▲ spark-a" in text(app)
        assert {row_width(row) for row in app.overview.canvas.rows} == {size[0]}
        await press(pilot, "w")
        assert alone(app) == PanelKey("evidence", "proxy")
        assert "┐why? proxy┌" in text(app)
        assert {row_width(row) for row in app.overview.canvas.rows} == {size[0]}
        await press(pilot, "w")
        assert alone(app) == PROXY
        await press(pilot, "b")
        assert alone(app) is None


async def test_enter_asks_why_and_esc_goes_back_step_by_step() -> None:
    """From the band Enter opens the group, once more why; Esc goes to the picture and then to the board."""
    app = SparktopApp(lambda: traced("cooldown-c64"))
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "down", "down", "enter")
        assert alone(app) == PROXY
        await press(pilot, "enter")
        assert alone(app) == PanelKey("evidence", "proxy")
        await press(pilot, "escape")
        assert alone(app) == PROXY
        await press(pilot, "escape")
        assert alone(app) is None
        assert app.overview.selected == PROXY


async def test_b_opens_the_gravest_group_and_tab_the_next() -> None:
    """Of several groups the one that swings comes first; tab goes round, in picture and evidence alike."""
    app = SparktopApp(two_groups)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "b")
        assert alone(app) == PROXY
        assert "group 2 of 2" in text(app)
        await press(pilot, "tab")
        assert alone(app) == HERD
        assert "requests of each" in text(app)
        await press(pilot, "w", "shift+tab")
        assert alone(app) == PanelKey("evidence", "proxy")
        await press(pilot, "right", "escape")
        assert alone(app) == HERD


async def test_b_opens_the_group_of_the_selected_backend() -> None:
    """What is selected says which group is meant, though another one is graver."""
    app = SparktopApp(two_groups)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        app.overview.selected = PanelKey("backend", "spark-d")
        await press(pilot, "b")
        assert alone(app) == HERD


def rows_below(app: SparktopApp) -> int:
    found = re.search(r"(\d+) more rows?", text(app))
    return int(found[1]) if found else 0


async def test_evidence_that_is_taller_than_the_terminal_scrolls() -> None:
    """Arrows and PgUp, PgDn move it; the footer counts the rows below, none at its end."""
    app = SparktopApp(lambda: traced("cooldown-c64"))
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "w")
        below = rows_below(app)
        assert below > 3
        assert "variance by period" not in text(app)
        await press(pilot, "down")
        assert rows_below(app) == below - 3
        await press(pilot, *["down"] * 50)
        assert "variance by period" in text(app)
        assert rows_below(app) == 0
        await press(pilot, *["pageup"] * 9)
        assert "variance by period" not in text(app)
        await press(pilot, *["pagedown"] * 9)
        assert "variance by period" in text(app)


async def test_without_a_group_b_says_so() -> None:
    """Where there is nothing to compare, both keys say so and leave the board as it is."""
    single = replace(traced("cooldown-c64"), balance=())
    app = SparktopApp(lambda: single)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        for key in ("b", "w"):
            app.clear_notifications()
            await press(pilot, key)
            assert alone(app) is None
            assert [note.message for note in app._notifications] == [
                "no group of two or more backends to compare"
            ]


async def test_esc_returns_from_why_to_where_it_was_opened() -> None:
    """Opened from the board, Esc on the evidence returns to the board, not to the group's balance."""
    app = SparktopApp(lambda: traced("cooldown-c64"))
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "w", "escape")
        assert alone(app) is None
        await press(pilot, "b", "w", "escape")
        assert alone(app) == PROXY


async def test_a_group_that_goes_away_leaves_the_board() -> None:
    """A group shown alone that is judged no more is followed by the overview, not by an error."""
    shown = [traced("cooldown-c64")]
    app = SparktopApp(lambda: shown[0])
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "b")
        shown[0] = replace(shown[0], balance=())
        app.overview.redraw()
        await press(pilot, "tab")
        assert " spark-b┌" in text(app)


async def test_the_footer_offers_what_a_group_can_do() -> None:
    """While a group is alone its keys come first, fit 80 columns, and can be clicked."""
    app = SparktopApp(two_groups)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert " balance" in text(app).splitlines()[-1]
        await press(pilot, "b")
        footer = text(app).splitlines()[-1]
        assert " why?" in footer
        assert "next group" in footer
        await pilot.click("#canvas", offset=(footer.index("why?"), 23))
        await pilot.pause()
        assert alone(app) == PanelKey("evidence", "proxy")
        assert "w picture" in text(app).splitlines()[-1]


async def test_a_filter_hides_a_group_that_is_not_all_there() -> None:
    """With a filter the band stays only while all backends of its group are on the board."""
    app = SparktopApp(lambda: traced("cooldown-c64"))
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "slash", *"spark")
        assert "┐balance " in text(app)
        await press(pilot, *"-a")
        assert " spark-a┌" in text(app)
        assert "┐balance " not in text(app)
