"""The key that saves a report of a sweep on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.model.text import clean
from sparktop.sweep.view.source import SweepSource

if TYPE_CHECKING:
    from sparktop.sweep.compare.series import Series


async def saved_report(source: SweepSource, beside: Sequence[Series] = ()) -> str:
    """Write reports of the sweep of `source` into the current folder; return a one-line message for the user.

    `beside` are the series of the published table that the screen draws over the curves.
    """
    from sparktop.sweep.formats.written import save_reports  # late: the first picture needs no report
    from sparktop.sweep.view.foreign import ForeignView

    shown = source.series if isinstance(source, ForeignView) else source.result
    if shown is None:
        return "no level is done: there is nothing to report"
    try:
        paths = await asyncio.to_thread(save_reports, shown, beside, Path(), datetime.now(UTC))
    except OSError as error:
        return f"not saved: {clean(error)}"
    return f"saved {clean(paths[0].name)} and {', '.join(path.suffix for path in paths[1:])}"
