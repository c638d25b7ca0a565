"""Draws the use of a machine's memory: a bar of several parts, its legend, and the headroom.

*Headroom* is the memory that programs can still allocate.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.model.node import (
    CACHE_PART,
    CMA_FREE_PART,
    CMA_PART,
    FREE_PART,
    GPU_PART,
    HUGE_PART,
    OTHER_PART,
    PROGRAMS_PART,
    MemoryReading,
)
from sparktop.model.snapshot import Headroom
from sparktop.panels.node.processes import ProcessLine
from sparktop.panels.parts.figures import figure, label, share_role
from sparktop.panels.parts.rows import Row, row_width
from sparktop.panels.parts.sections import (
    WIDE_FACTS,
    Part,
    Section,
    legend,
    name_width,
    percent_run,
    segmented_bar,
)

SOON_S, NOW_S = 1800.0, 300.0
"""Seconds until memory reaches its limit, up to which this time is drawn as a warning, and as bad."""
_GIB = 2**30
_MOST_HOLDERS = 3
"""Most processes named below the bar."""
_PATTERNS = {
    GPU_PART: ("█", "gpu/4"),
    PROGRAMS_PART: ("▓", "cpu/6"),
    CACHE_PART: ("▒", "memory/6"),
    CMA_PART: ("▌", "load/6"),
    HUGE_PART: ("▄", "running/8"),
    OTHER_PART: ("▚", "waiting/12"),
    CMA_FREE_PART: ("░", "network/8"),
    FREE_PART: ("·", "bar_empty"),
}
"""Pattern and role of each part: all patterns differ, so that parts differ in more than colour."""
_NEW_PATTERN = ("+", "prompt/8")
"""Pattern and role of a part that this version does not know, reported by a newer agent."""
_NAMES = {PROGRAMS_PART: "programs + OS", HUGE_PART: "huge pages"}
_SHORT = {PROGRAMS_PART: "programs", HUGE_PART: "huge pages", GPU_PART: "GPU", OTHER_PART: "unattrib."}
"""Names of parts in a narrow column; `_NAMES` is for wide ones. Other parts keep their own names."""


def used_percent(memory: MemoryReading) -> float | None:
    """Return used memory as a percentage of the total; None if either is unknown."""
    if memory.used_bytes is None or not memory.total_bytes:
        return None
    return 100 * memory.used_bytes / memory.total_bytes


def memory_parts(memory: MemoryReading, *, short: bool = False) -> list[Part]:
    """Return the parts of the memory bar in order; only used and free memory if no parts are reported.

    `short` selects short names, for narrow columns.
    """
    names = _SHORT if short else _NAMES
    parts = [
        Part(names.get(part.name, part.name), part.size_bytes, *_PATTERNS.get(part.name, _NEW_PATTERN))
        for part in memory.parts
    ]
    total, used = memory.total_bytes, memory.used_bytes
    if parts or total is None or used is None:
        return parts
    return [
        Part("used", min(used, total), *_PATTERNS[PROGRAMS_PART]),
        Part("free", max(0, total - used), *_PATTERNS[FREE_PART]),
    ]


def memory_section(
    memory: MemoryReading, headroom: Headroom, width: int, holders: Sequence[ProcessLine] = ()
) -> Section:
    """Return all memory values as a section for a column of `width` cells.

    `holders` are processes that hold GPU memory, which is named after them where it is the machine's memory.
    """
    percent, used, total = used_percent(memory), memory.used_bytes, memory.total_bytes
    rows: list[Row] = [
        [
            label("used", name_width(width)),
            figure(numbers.data(used, 9).strip(), known=used is not None),
            label(" of "),
            figure(numbers.data(total, 9).strip(), known=total is not None),
            (f" {numbers.percent(percent)}", share_role(percent, 85, 101)),
        ]
    ]
    parts = memory_parts(memory, short=width < WIDE_FACTS)
    if total and parts:
        rows += [segmented_bar(parts, total, width), *legend(parts, width)]
        rows += _holders(holders, width) if memory.unified else []
    rows += [_headroom(memory, width), _trend(memory, headroom, width), *_swap(memory, width)]
    name = "unified memory" if memory.unified else "memory"
    return Section(name, [*rows, _pressure(memory, width)], _window(memory))


def _holders(holders: Sequence[ProcessLine], width: int) -> list[Row]:
    """Return a row for each of the processes that hold the most GPU memory: size, name, model, container.

    The container's ID stands for a name that does not fit.
    """
    sized = [(line.gpu_bytes, line) for line in holders if line.gpu_bytes and line.of_engine]
    largest = sorted(sized, key=lambda one: (-one[0], one[1].pid))[:_MOST_HOLDERS]
    sign, role = _PATTERNS[GPU_PART]
    rows: list[Row] = []
    for size, line in largest:
        row: Row = [(f"{sign} ", role), figure(numbers.data(size, 8)), (f" {line.full_name}", "text")]
        fits = row_width(row) + 1 + len(line.container) <= width
        box = line.container if fits else line.container_id
        rows.append([*row, label(f" {box}")] if box else row)
    return rows


def _window(memory: MemoryReading) -> str:
    """Return the text at the right of the memory section's title.

    It names overlapping parts or huge pages if there are any, and is "now" if not.
    """
    if memory.overlap_bytes:
        return f"{numbers.data(memory.overlap_bytes, 9).strip()} overlap, cut"
    return "from huge pages" if memory.huge_pages else "now"


def _headroom(memory: MemoryReading, width: int) -> Row:
    """Return a row with the headroom: available memory minus free memory that is reserved for CMA.

    The kernel counts CMA memory (contiguous memory allocator) as available, but programs cannot use it. Where
    kexec handover keeps that memory, the kernel's option that gives it back is named.
    """
    headroom, available, cma = memory.headroom_bytes, memory.available_bytes, memory.cma_free_bytes
    words = "" if available is None else f" = {available / _GIB:.1f} available"
    if words and cma:
        words += f" − {cma / _GIB:.1f} CMA"
    if words and memory.handover_bytes:
        words += " (KHO: kho=off)"
    return [
        label("headroom", name_width(width)),
        figure(numbers.data(headroom, 9).strip(), known=headroom is not None),
        label(words),
    ]


def _trend(memory: MemoryReading, headroom: Headroom, width: int) -> Row:
    row: Row = [label("trend", name_width(width))]
    if headroom.slope_bytes_per_s is None:
        return [*row, label("–" if memory.headroom_bytes is None else "no clear rise or fall")]
    return [*row, *trend_runs(headroom, width - name_width(width))]


def slope_text(slope_bytes_per_s: float) -> str:
    """Format a slope in bytes/s as a change per minute with its sign, such as "−1.2 GiB/min"."""
    size = abs(slope_bytes_per_s) * 60
    amount = f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else numbers.data(size, 9).strip()
    return f"{numbers.MINUS if slope_bytes_per_s < 0 else '+'}{amount}/min"


def trend_runs(headroom: Headroom, width: int) -> Row:
    """Return how fast the headroom (free memory) changes and when it reaches its limit, as styled text.

    Where both do not fit into `width` cells, return only the time. If the headroom does not approach a
    limit, return only the change per minute; "–" if it shows no trend.
    """
    slope, until = headroom.slope_bytes_per_s, headroom.until_limit_s
    if slope is None:
        return [label("–")]
    pace = slope_text(slope)
    if until is None:
        return [figure(pace)]
    role = "bad" if until <= NOW_S else "warn" if until <= SOON_S else "text"
    last: Row = [label("limit in "), (numbers.age(until), role)]
    limit = ""
    if headroom.limit_bytes is not None:
        limit = numbers.data(headroom.limit_bytes, 9).strip().replace(".0 ", " ") + " "
    for first in ([figure(pace), label(f", {limit}")], [figure(pace), label(", ")]):
        if row_width(first) + row_width(last) <= width:
            return [*first, *last]
    return last


def _swap(memory: MemoryReading, width: int) -> list[Row]:
    total, used = memory.swap_total_bytes, memory.swap_used_bytes
    row: Row = [label("swap", name_width(width))]
    if total == 0:
        return [[*row, label("none")]]
    return [
        [
            *row,
            figure(numbers.data(used, 9).strip(), known=used is not None),
            label(f" of {numbers.data(total, 9).strip()}" if width >= WIDE_FACTS else ""),
            *_rate("  in ", memory.swap_in_bytes_per_s, bad=True),
            *_rate("  out ", memory.swap_out_bytes_per_s),
        ]
    ]


def _rate(name: str, value: float | None, *, bad: bool = False) -> Row:
    role = "warn" if bad and value else "text"
    return [label(name), figure(numbers.data_rate(value, 9).strip(), known=value is not None, role=role)]


def _pressure(memory: MemoryReading, width: int) -> Row:
    waited = memory.pressure_full_avg10
    return [
        label("pressure", name_width(width)),
        *percent_run(waited, 0 if waited is None else 5, role="warn" if waited else "text"),
        label("–" if waited is None else " of 10 s: all waited for memory"),
    ]
