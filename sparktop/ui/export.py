"""A snapshot drawn as the screen would show it, without a terminal."""

from __future__ import annotations

from sparktop.model.snapshot import Snapshot
from sparktop.ui.app import SparktopApp
from sparktop.ui.svg import screen_svg


async def screen_of(snapshot: Snapshot, *, size: tuple[int, int], theme: str) -> str:
    """Give the overview of `snapshot` as SVG, in a terminal of `size` (columns, rows).

    It is the usual view, not the one that the user left: what is remembered is neither read nor written.

    Raises:
        ConfigError: when there is no such theme.
    """
    app = SparktopApp(lambda: snapshot, theme=theme, interval_s=snapshot.interval_s)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.clear_notifications()  # a theme of the user's that cannot be used: no news for a picture
        await pilot.pause()
        return screen_svg(app)
