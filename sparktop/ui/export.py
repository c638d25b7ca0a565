"""Draws a snapshot as the screen would show it, without a terminal."""

from __future__ import annotations

from sparktop.model.snapshot import Snapshot
from sparktop.ui.app import SparktopApp
from sparktop.ui.svg import screen_svg


async def screen_of(snapshot: Snapshot, *, size: tuple[int, int], theme: str) -> str:
    """Return the overview of `snapshot` as SVG, for a terminal of `size` (columns, rows).

    The picture has the default view instead of the user's last view, and no row of keys at the bottom; no
    state file is read or written.

    Raises:
        ConfigError: there is no theme of that name.
    """
    app = SparktopApp(lambda: snapshot, theme=theme, interval_s=snapshot.interval_s)
    app.overview.footer_rows = 0
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.clear_notifications()  # about the user's themes: not part of the picture
        await pilot.pause()
        return screen_svg(app)
