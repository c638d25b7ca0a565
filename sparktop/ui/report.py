"""The key that saves a report of what is on the screen: of a sweep, or of the last minutes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.errors import SparktopError
from sparktop.files import SHARED, write_whole
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Target
from sparktop.model.text import clean

if TYPE_CHECKING:
    from sparktop.moments.moment import Moment
    from sparktop.sweep.compare.series import Series
    from sparktop.sweep.view.result import SweepSource


async def saved_moment(read: Callable[[], Moment], shown: Snapshot, targets: Sequence[Target]) -> str:
    """Write the moment that `read` returns into the current folder; return a message for the user.

    It is written as HTML and Markdown, and the snapshot `shown` as JSON. `targets` are what was watched.
    """
    try:
        paths = await asyncio.to_thread(_save_moment, read, shown, targets)
    except (SparktopError, OSError) as error:
        return f"not saved: {clean(error)}"
    first, *others = paths
    return f"saved {clean(first.name)}, {' and '.join(path.suffix for path in others)}"


def _save_moment(read: Callable[[], Moment], shown: Snapshot, targets: Sequence[Target]) -> list[Path]:
    # Late: the first picture needs no report.
    from sparktop.moments.report import moment_report
    from sparktop.report.json_snapshot import to_json

    moment = read()
    texts = {form: moment_report(moment, form, targets=targets) for form in ("html", "md")}
    texts["json"] = json.dumps(to_json(shown), indent=1, allow_nan=False) + "\n"
    paths = []
    for form, text in texts.items():
        paths.append(Path(f"sparktop-{shown.taken_at.astimezone():%Y%m%d-%H%M%S}.{form}"))
        write_whole(paths[-1], text, SHARED)
    return paths


async def saved_report(source: SweepSource, beside: Sequence[Series] = ()) -> str:
    """Write reports of the sweep of `source` into the current folder; return a one-line message for the user.

    `beside` are the series of the published table that the screen draws over the curves.
    """
    from sparktop.sweep.formats.written import save_reports  # late: the first picture needs no report
    from sparktop.sweep.view.result import ForeignView

    shown = source.series if isinstance(source, ForeignView) else source.result
    if shown is None:
        return "no level is done: there is nothing to report"
    try:
        paths = await asyncio.to_thread(save_reports, shown, beside, Path(), datetime.now(UTC))
    except OSError as error:
        return f"not saved: {clean(error)}"
    return f"saved {clean(paths[0].name)} and {', '.join(path.suffix for path in paths[1:])}"
