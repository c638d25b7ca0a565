"""A moving picture shows at each moment what the picture of that moment shows, and nothing else."""

from __future__ import annotations

import re

import pytest

from sparktop.demo.scenario import SCENARIOS
from sparktop.ui.app import SparktopApp
from sparktop.ui.report import screen_svg
from stage.moving_picture import animate
from stage.rehearsal import Rehearsal

pytestmark = pytest.mark.outside
TEXT = re.compile(r'<text class="(?:terminal-r|s)\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
GROUP = re.compile(r'<g class="(m\d+)">(.*?)</g>', re.DOTALL)
STEP = re.compile(r"([\d.]+)% \{ visibility: (\w+) \}")


async def pictures(count: int) -> list[str]:
    """Return the screen at `count` moments of the demo."""
    rehearsal = Rehearsal(scenario=SCENARIOS["cooldown"], nodes=2)
    rehearsal.play(20)
    app = SparktopApp(rehearsal.store.snapshot)
    found = []
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(count):
            app.overview.redraw()
            await pilot.pause()
            found.append(screen_svg(app))
            rehearsal.play(3)
    return found


def seen(svg: str, moment: int, count: int) -> set[tuple[str, ...]]:
    """Return the texts with their places that are seen at a moment, by the rules of the groups."""
    found: set[tuple[str, ...]] = set()
    for name, inside in GROUP.findall(svg):
        rule = re.search(rf"@keyframes {name} \{{ (.*) \}}\n", svg)
        steps = [(float(at), word) for at, word in STEP.findall(rule[1])] if rule else [(0.0, "visible")]
        word = [word for at, word in steps if at <= 100 * moment / count + 0.01][-1]
        if word == "visible":
            found.update(TEXT.findall(inside))
    return found


async def test_each_moment_is_its_picture() -> None:
    """Texts and places are those of the pictures; a text that changes is not visible at other moments."""
    drawn = await pictures(4)
    svg = animate(drawn, 0.5)
    truth = [set(TEXT.findall(one)) for one in drawn]
    assert [seen(svg, moment, 4) for moment in range(4)] == truth
    assert truth[0] != truth[1]
    assert "animation: m" in svg
    assert "2s step-end infinite" in svg
    assert "<script" not in svg
