"""The result of one check, and its text and JSON forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from shlex import quote

from msgspec import Struct

from sparktop import __version__
from sparktop.graphics.cells import cell_width, wrap_cells
from sparktop.model.text import clean

SCHEMA = "sparktop.doctor/1"
"""Name and number of the format."""
_LONGEST_WORD = 1000
"""Most characters of an argument in the printed command."""
_NAME, _SENTENCE = 80, 400
"""Most characters of a check's name, and of its message or its advice."""


class Status(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARN = "warn"
    """What was checked works now, but is likely to cause trouble."""
    FAIL = "fail"
    SKIP = "skip"
    """Nothing was checked, or what should be checked is absent and not needed."""


_COLORS = {Status.OK: "32", Status.WARN: "33", Status.FAIL: "1;31", Status.SKIP: "2"}
"""ANSI codes by status: green, yellow, bold red, dim."""
_HEADING = "1"
"""ANSI code of headings: bold."""
_LEAST_WIDTH = 40
"""Cells to which lines are wrapped at least."""


class Check(Struct, frozen=True):
    """The result of one check."""

    name: str
    status: Status
    message: str
    """What was observed, for the user."""
    advice: str = ""
    """What the user can do about the observation; "" where nothing is needed."""


def any_failed(checks: Iterable[Check]) -> bool:
    """Return True if any check failed."""
    return any(check.status is Status.FAIL for check in checks)


def next_step(
    checks: Iterable[Check],
    *,
    targets: Sequence[str],
    config: str | None = None,
    has_file: bool,
    results: bool,
) -> str:
    """Return what to run after the doctor, as a line for the user.

    `targets` are the TARGET arguments and `config` that of --config, `has_file` is whether a configuration
    file is in use, and `results` whether a server, router or agent answered.
    """
    words = [*(() if config is None else ("--config", config)), *targets]
    arguments = "".join(f" {quote(clean(word, _LONGEST_WORD))}" for word in words)
    if any_failed(checks):
        return f"correct what says FAIL, from the top, then run sparktop doctor{arguments} again"
    command = f"sparktop{arguments}"
    if not results:
        return f"{command} shows this machine; sparktop HOST looks elsewhere; sparktop demo simulates servers"
    if has_file:
        return command
    return f"{command} shows them; with --write-config it writes a configuration file of them"


def to_text(
    groups: Mapping[str, Sequence[Check]], advice: str = "", *, width: int | None = None, color: bool = False
) -> str:
    """Return the checks as text: a heading for each group, a line for each check, and a line with the counts.

    A last line has the next step `advice`, unless that is "".

    `groups` has the checks by heading; empty groups are left out. Lines are wrapped to `width` cells, unless
    that is None. With `color`, statuses are coloured by ANSI escape sequences. Control characters that a
    server may have sent are removed.
    """
    lines: list[str] = []
    for heading, checks in groups.items():
        if checks:
            lines.append(_with_color(heading, _HEADING, color=color))
            lines += [_check_line(check, width, color=color) for check in checks]
            lines.append("")
    lines.append(_counts_line([check for checks in groups.values() for check in checks]))
    if advice:
        lines.append(_wrap_line(f"next: {advice}", width))
    return "\n".join(lines) + "\n"


def _wrap_line(line: str, width: int | None) -> str:
    if width is None or cell_width(line) <= width:
        return line
    return "\n".join(wrap_cells(line, max(_LEAST_WIDTH, width), indents=("", " " * 6)))


def _check_line(check: Check, width: int | None, *, color: bool) -> str:
    """Return the line of a check: status, name, message and advice."""
    word = "FAIL" if check.status is Status.FAIL else check.status.value
    text = f"{word:<4}  {clean(check.name, _NAME)}: {clean(check.message, _SENTENCE)}"
    line = _wrap_line(f"{text} — {clean(check.advice, _SENTENCE)}" if check.advice else text, width)
    return _with_color(word, _COLORS[check.status], color=color) + line[len(word) :]


def _with_color(text: str, code: str, *, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def _counts_line(checks: Sequence[Check]) -> str:
    """Return how many checks have each status: "28 ok, 2 warnings, 1 failed"."""
    count = Counter(check.status for check in checks)
    warnings = "warning" if count[Status.WARN] == 1 else "warnings"
    words = {Status.OK: "ok", Status.WARN: warnings, Status.FAIL: "failed", Status.SKIP: "skipped"}
    return ", ".join(f"{count[status]} {word}" for status, word in words.items() if count[status])


def to_json(checks: Sequence[Check], now: datetime, advice: str = "") -> dict[str, object]:
    """Return the report of the checks as JSON-ready values, in the schema `SCHEMA`.

    `now` is the time of the report, `advice` the next step. The advice of a check is null if it is empty.
    """
    return {
        "schema": SCHEMA,
        "taken_at": now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sparktop": __version__,
        "failed": sum(check.status is Status.FAIL for check in checks),
        "checks": [
            {
                "name": clean(check.name, _NAME),
                "status": check.status.value,
                "message": clean(check.message, _SENTENCE),
                "advice": clean(check.advice, _SENTENCE) or None,
            }
            for check in checks
        ],
        "next": advice or None,
    }
