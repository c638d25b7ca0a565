"""What the screen shows as files: the picture as SVG, and reports of a sweep or of the last minutes."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App

from sparktop.errors import SparktopError
from sparktop.files import SHARED, write_whole
from sparktop.graphics.cells import is_narrow
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import Target
from sparktop.model.text import clean, shown_path

if TYPE_CHECKING:
    from sparktop.moments.moment import Moment
    from sparktop.sweep.compare.series import LevelSeries
    from sparktop.sweep.view.result import SweepSource


_FONTS = "'DejaVu Sans Mono', 'Noto Sans Mono', 'Cascadia Mono', Menlo, Consolas, monospace"
"""Fonts in place of Rich's own, which it would load from the net; the next five match what Rich writes."""
# Parts of the SVG that Rich writes: the definitions of its fonts,
_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
# ".terminal-123-matrix", whose number differs each time,
_CLASS = re.compile(r"\.(terminal-\d+)-matrix")
# "<!-- … -->",
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
# "font-family: Fira Code, monospace;".
_FAMILY = re.compile(r"font-family:\s*Fira Code[^;]*;")


# A run of text: class, place, length, other attributes, characters.
_TEXT = re.compile(
    r'<text class="([^"]+)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>([^<]*)</text>'
)
_DRAWN = re.compile(r"[\u2500-\u259f\u2800-\u28ff]+|[^\u2500-\u259f\u2800-\u28ff]+")
"""Matches a sequence of drawing characters (lines, blocks, braille), or a sequence of other characters."""


def _text_in_pieces(match: re.Match[str]) -> str:
    """Replace a matched SVG text element by one element for each run of drawing characters or of other text.

    Spaces between the runs are left out. A viewer whose font lacks drawing characters takes them from another
    font, with another width. As each run has its own position, the text beside them does not move.
    """
    style, x, y, length, attributes, content = match.groups()
    text = html.unescape(content).replace("\xa0", " ")
    if not text.isprintable() or not is_narrow(text):
        return match.group()
    cell = float(length) / len(text)
    pieces: list[str] = []
    for run in _DRAWN.finditer(text):
        part = run.group().strip(" ")
        if not part:
            continue
        offset = run.start() + run.group().index(part)
        html_text = html.escape(part).replace(" ", "&#160;")
        pieces.append(
            f'<text class="{style}" x="{float(x) + offset * cell:g}" y="{y}" '
            f'textLength="{len(part) * cell:g}"{attributes}>{html_text}</text>'
        )
    return "".join(pieces)


def screen_svg(app: App[Any]) -> str:
    """Return what `app` shows now as SVG; equal screens yield equal text."""
    svg = app.export_screenshot(title="sparktop")
    # Only the head is Rich's own; what follows holds foreign text, which may match any of these patterns.
    head, closing, body = svg.partition("</style>")
    head = _COMMENT.sub("", _FAMILY.sub(f"font-family: {_FONTS};", _FONT_FACE.sub("", head)))
    svg = _TEXT.sub(_text_in_pieces, head + closing + body)
    # Rich names its classes by a hash of the content; a fixed name keeps differences readable.
    names = _CLASS.findall(head)
    return svg.replace(f"{names[0]}-", "terminal-") if names else svg


async def save_moment(read: Callable[[], Moment], snapshot: Snapshot, targets: Sequence[Target]) -> str:
    """Write the moment that `read` returns into the current folder; return a message for the user.

    It is written as HTML and Markdown, and the snapshot `snapshot` as JSON. `targets` are what was watched.
    """
    try:
        paths = await asyncio.to_thread(_moment_files, read, snapshot, targets)
    except (SparktopError, OSError) as error:
        return f"not saved: {clean(error)}"
    return _saved(paths)


def _moment_files(read: Callable[[], Moment], snapshot: Snapshot, targets: Sequence[Target]) -> list[Path]:
    # Late: the first picture needs no report.
    from sparktop.moments.report import moment_report
    from sparktop.report.json_snapshot import to_json

    moment = read()
    texts = {extension: moment_report(moment, extension, targets=targets) for extension in ("html", "md")}
    texts["json"] = json.dumps(to_json(snapshot), indent=1, allow_nan=False) + "\n"
    paths = []
    for extension, text in texts.items():
        paths.append(Path(f"sparktop-{snapshot.taken_at.astimezone():%Y%m%d-%H%M%S}.{extension}"))
        write_whole(paths[-1], text, SHARED)
    return paths


async def save_report(source: SweepSource, beside: Sequence[LevelSeries] = ()) -> str:
    """Write reports of the sweep of `source` into the current folder; return a one-line message for the user.

    `beside` are the series of the published table that the screen draws over the curves.
    """
    from sparktop.sweep.formats.written import save_reports  # late: the first picture needs no report
    from sparktop.sweep.view.result import StoredSource

    result = source.shown if isinstance(source, StoredSource) else source.result
    if result is None:
        return "no level is done: there is nothing to report"
    try:
        paths = await asyncio.to_thread(save_reports, result, beside, Path(), datetime.now(UTC))
    except OSError as error:
        return f"not saved: {clean(error)}"
    return _saved(paths)


def _saved(paths: Sequence[Path]) -> str:
    """Return which files, alike but for their suffixes, were written to which folder."""
    names = [clean(paths[0].name), *(path.suffix for path in paths[1:])]
    return f"saved {', '.join(names[:-1])} and {names[-1]} in {shown_path(paths[0].parent)}"
