"""Draw the pictures of screenshots/ from the demo in virtual time: the same bytes on every run.

usage: screenshots.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from sparktop.demo.rehearsal import Outage, Rehearsal
from sparktop.ui.app import SparktopApp
from sparktop.ui.svg import screen_svg

FOLDER = Path(__file__).parent.parent / "screenshots"
SIZES = ((80, 24), (120, 36), (200, 50))
THEMES = ("spark-light", "spark-ansi")


async def picture(
    size: tuple[int, int],
    *,
    theme: str = "spark-dark",
    keys: tuple[str, ...] = (),
    outage: Outage | None = None,
) -> str:
    """Give the screen as SVG after 170 virtual seconds and the keys given."""
    store = Rehearsal(outage=outage).play(170)
    app = SparktopApp(store.snapshot, theme=theme)
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
    for theme in THEMES:
        jobs[f"theme-{theme}"] = await picture((120, 36), theme=theme)
    jobs["help-80x24"] = await picture((80, 24), keys=("question_mark",))
    jobs["zoom-120x36"] = await picture((120, 36), keys=("z",))
    return jobs


def main() -> None:
    """Write every picture."""
    os.environ["TZ"] = "UTC"  # the clock on the pictures must not depend on where they are drawn
    time.tzset()
    os.environ.pop("NO_COLOR", None)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(exist_ok=True)
    for name, svg in asyncio.run(draw()).items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
