"""The sweep editor beside the options: pages, an explanation of the chosen field, and what is in sight."""

from __future__ import annotations

import pytest

from sparktop.ui.screens.editor.layout import ABOUT, LABELS
from tests.ui.screens.test_sweep_editor import SIZES, Opened


@pytest.mark.parametrize("size", SIZES)
async def test_the_chosen_field_is_explained_and_all_kinds_of_load_are_pages(size: tuple[int, int]) -> None:
    """As in the options, page titles are above and one sentence on the field is below, both uncut."""
    opened = Opened()
    async with opened.app.run_test(size=size) as pilot:
        await opened.open(pilot)
        for name in ("concurrency", "order", "kind"):
            await opened.go(pilot, name)
            assert ABOUT[name] in opened.words() or size[0] < 80
        if size[0] >= 80:
            assert "▸at once per second agents recorded" in opened.words()
        await pilot.press("right")
        assert opened.editor.draft.kind == "requests per second"
        await pilot.press("left")


async def test_the_field_with_the_focus_is_in_sight_on_the_smallest_screen() -> None:
    """It is not behind the lower part of the dialog when the editor opens."""
    opened = Opened()
    async with opened.app.run_test(size=SIZES[0]) as pilot:
        await opened.open(pilot)
        await pilot.pause()
        focused = opened.editor.focused
        assert focused is not None
        assert opened.editor.query_one("#form").region.contains_region(focused.region)


def test_every_field_has_an_explanation_that_fits() -> None:
    """Each explanation fits one row of a dialog at 80 columns."""
    assert ABOUT.keys() == LABELS.keys() | {"targets"}
    assert max(map(len, ABOUT.values())) <= 76
