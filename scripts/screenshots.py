"""Draw the pictures of screenshots/ from the demo in virtual time: the same bytes on every run.

usage: screenshots.py [--check] [FOLDER]

With --check nothing is written, and pictures whose text differs from that of the program exit 1.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from functools import cache
from pathlib import Path

from sparktop.demo.rehearsal import Outage, Rehearsal
from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.palette import shipped_palettes
from sparktop.store import Store
from sparktop.ui.app import SparktopApp
from sparktop.ui.svg import screen_svg

FOLDER = Path(__file__).parent.parent / "screenshots"
SIZES = ((80, 24), (120, 36), (200, 50))
VIEWS = {"compact": ("v", "down", "down"), "wall": ("v", "v", "v")}
MANY = 12
"""Backends on the pictures of the views for many."""


@cache
def played(outage: Outage | None, backends: int, scenario: str | None) -> Store:
    """Give what is known after the demo has run; drawing changes nothing in it.

    `scenario` is what `sparktop demo` shows under that name; None a load that shows every kind of graph.
    """
    told = None if scenario is None else SCENARIOS[scenario]
    return Rehearsal(outage=outage, backends=backends, nodes=backends if told else 1, scenario=told).play(170)


async def picture(
    size: tuple[int, int],
    *,
    theme: str = "spark-dark",
    keys: tuple[str, ...] = (),
    outage: Outage | None = None,
    backends: int = 2,
    scenario: str | None = None,
) -> str:
    """Give the screen as SVG after 170 virtual seconds and the keys given."""
    app = SparktopApp(played(outage, backends, scenario).snapshot, theme=theme)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await pilot.pause()
        return screen_svg(app)


async def draw() -> dict[str, str]:
    """Give every picture by name."""
    dead = Outage(1, 140)
    jobs: dict[str, str] = {}
    for size in SIZES:
        name = f"{size[0]}x{size[1]}"
        jobs[f"overview-{name}"] = await picture(size)
        jobs[f"dead-backend-{name}"] = await picture(size, outage=dead, keys=("3",))
        jobs[f"detail-{name}"] = await picture(size, keys=("down", "down", "enter"))
        jobs[f"node-{name}"] = await picture(size, keys=("down", "enter"))
        jobs[f"swing-{name}"] = await picture(size, scenario=DEFAULT_SCENARIO)
        jobs[f"balance-{name}"] = await picture(size, keys=("b",), scenario=DEFAULT_SCENARIO)
        jobs[f"why-{name}"] = await picture(size, keys=("b", "w"), scenario=DEFAULT_SCENARIO)
        for view, keys in VIEWS.items():
            jobs[f"{view}-{name}"] = await picture(size, keys=keys, backends=MANY)
    for theme in shipped_palettes():
        jobs[f"theme-{theme}"] = await picture((120, 36), theme=theme)
    jobs["help-80x24"] = await picture((80, 24), keys=("question_mark",))
    jobs["menu-80x24"] = await picture((80, 24), keys=("m",))
    return jobs


def words(svg: str) -> list[str]:
    """Give the text of a picture without how it is drawn: another Textual may draw the same otherwise."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def stale(folder: Path, pictures: dict[str, str]) -> list[str]:
    """Name the pictures in `folder` that show something else than the program does, or that it has not."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}
    names = sorted({*files, *pictures})
    return [name for name in names if words(files.get(name, "")) != words(pictures.get(name, ""))]


def main() -> int:
    """Write or check every picture."""
    os.environ["TZ"] = "UTC"  # the clock on the pictures must not depend on where they are drawn
    time.tzset()
    os.environ.pop("NO_COLOR", None)
    paths = [Path(word) for word in sys.argv[1:] if word != "--check"]
    folder = paths[0] if paths else FOLDER
    pictures = asyncio.run(draw())
    if "--check" in sys.argv:
        old = stale(folder, pictures)
        if old:
            print(f"stale: run `make screenshots` ({', '.join(old)})", file=sys.stderr)
        return int(bool(old))
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.svg"):
        path.unlink()
    for name, svg in pictures.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
