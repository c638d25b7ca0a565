"""Two small panels: current alerts with recent events, and the cost of sparktop itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width
from sparktop.model.event import Alert, Event, Phase, Severity, Values
from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.figures import (
    SEVERITY_SIGNS,
    alert_role,
    figure,
    flow_pieces,
    heading,
    label,
    label_row,
    wrap_sentence,
)
from sparktop.panels.parts.text import Row, frame_role, frame_rows, name_tab, row_width, shorten_piece

_UNITS = {
    "gib_per_min": "GiB/min",
    "gib_per_s": "GiB/s",
    "mib_per_s": "MiB/s",
    "mb_per_s": "MB/s",
    "bytes_per_s": "",
    "bytes": "",
    "per_s": "",
    "gib": "GiB",
    "mhz": "MHz",
    "percent": "%",
    "ratio": "×",
    "ms": "ms",
    "s": "s",
    "c": "°C",
    "w": "W",
}
"""Unit by the end of a value's name, the longest ends first."""
_PLAIN = {
    "window": "in the last {}",
    "lost": "throughput lost",
    "power": "GPU power",
    "usual_power": "usual GPU power",
    "least_power": "GPU power when it computes",
    "utilization": "GPU use",
    "sm_clock": "SM clock",
    "rdma": "RDMA",
    "negotiated": "link rate",
    "ceiling": "highest rate seen",
    "kv_cache": "KV cache used",
    "gpu_memory": "GPU memory",
    **dict.fromkeys(("headroom", "available"), "memory left"),
    "margin": "{} left to its thermal limit",
    "free": "can get {}",
    "free_before_drop": "{} of it without dropping the file cache",
    "until_limit": "time left",
    "peer_needs": "would need about {}",
    "running": "{} requests running",
    "waiting": "{} requests waiting",
    "slope": "trend",
    "running_requests": "{} requests run",
    "connections": "{} connections",
    "monitor_connections": "{} connections of monitors",
    "router_in_flight_requests": "{} in flight at the router",
    "asked_tokens": "{} prompt tokens looked up",
    "found_tokens": "{} found",
    "found_limit": "alert below {} found",
    "prompts": "{} prompts",
    "prompt_tokens_mean": "{} tokens a prompt on average",
    "block_tokens": "{} tokens a block",
    "still": "nothing moved for {}",
    "share": "{} of all",
    "tokens_since": "{} tokens",
    "total_gib": "memory in all",
    "limit_s": "alert after {}",
    "error_after_s": "critical after {}",
    "limit_failures": "alert at {} failed answers of a deployment",
    "excess": "beyond its critical temperature",
    "clears_after": "ends once there was none for {}",
    "ratio": "{} the step of others",
}
"""Words for values whose names are terms of the analysis; a value stands behind them, or at "{}"."""
_FALLING = {
    **dict.fromkeys(("headroom", "available", "margin", "until_limit"), ("alert below", "ends above")),
    **dict.fromkeys(("sm_clock", "gpus"), ("alert below", "ends at")),
}
"""By value that is bad when it is low: what stands before the limit of its alert, and of its end."""
_DECIMAL_BELOW = 10.0
"""Smaller ratios have a decimal."""
_WHOLE_FROM = {"s": 10.0, "percent": 1.0}
"""Seconds and percentages that are whole numbers, as messages have them."""
_LIMITS = ("limit_", "error_after_", "clears_")
"""Beginnings of the names of limits, which stand behind the figures that they are for, or last."""
_LASTING = {"error_after_s", "failures", "tokens_since", "pid", "processes"}
"""Values of what has lasted since its alert's time, or whose message says it: their window says less."""
_GROUPED = 1000
"""From this value on digits are grouped by thousands."""
_LEAST_WRAPPED = 30
"""Least width in cells of a message that is wrapped."""
_INDENT = 4
"""Cells by which further rows of an entry are indented."""
_MOST_ROWS = 100
"""Most rows of one entry on the full screen: more than the longest message has."""


def events_panel(snapshot: Snapshot, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw the active alerts, then the events, newest first.

    The values behind a message stand after it, as far as the width allows. Where rows are left over, messages
    that are too long are wrapped, and their values get a row of their own.
    """
    alerts, happened = _alerts_and_events(snapshot)
    entries = [*alerts, *happened]
    rows: list[Row] = []
    spare = height - 2 - len(entries)
    for entry in entries:
        drawn = _entry_rows(entry, width - 3, 1 + max(0, spare))
        spare -= len(drawn) - 1
        rows += drawn
    hidden = len(rows) - (height - 2)
    note: Row = [label(f" {hidden} older ")] if hidden > 0 else []
    return _events_frame(rows, width, height, note, selected=selected)


def events_screen(snapshot: Snapshot, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw the alerts and events with every message in full, in at least `height` rows."""
    alerts, happened = _alerts_and_events(snapshot)
    rows: list[Row] = [heading("alerts now", "", width - 2)] if alerts else []
    for alert, entry in zip(snapshot.alerts, alerts, strict=True):
        rows += _entry_rows(entry, width - 3, _MOST_ROWS)
        finding = snapshot.finding_of(alert)
        remedy = wrap_sentence(f"→ {finding.fix}", width - 3 - _INDENT) if finding and finding.fix else []
        rows += [[label(" " * _INDENT), (line, "text")] for line in remedy]
    rows += [heading("events, newest first", "", width - 2)] if happened else []
    rows += [row for entry in happened for row in _entry_rows(entry, width - 3, _MOST_ROWS)]
    return _events_frame(rows, width, max(height, len(rows) + 2), [], selected=selected)


def _events_frame(rows: list[Row], width: int, height: int, note: Row, *, selected: bool) -> list[Row]:
    title = name_tab("events", "", "alerts and events")
    role = frame_role("events", selected=selected)
    drawn = rows or [[label(" nothing happened yet")]]
    return frame_rows(drawn, width, height, role=role, title=title, note=note)


def _alerts_and_events(snapshot: Snapshot) -> tuple[list[_EventEntry], list[_EventEntry]]:
    """Return the active alerts, and the events, newest first."""
    happened = [_entry(event) for event in reversed(snapshot.events_beside_alerts)]
    return [_entry(alert) for alert in snapshot.alerts], happened


_EventEntry = tuple[Row, str, str, tuple[str, ...]]
"""An alert or event: sign, subject and of an event its time; the message, its role, and what stands after it:
of an alert since when it holds, then the values."""


def _entry_rows(entry: _EventEntry, width: int, most_rows: int) -> list[Row]:
    """Return an entry in at most `most_rows` rows, with the message wrapped.

    If the message needs more rows, it is shortened to a single row.
    """
    head, message, role, values = entry
    indent = row_width(head)
    below = width - indent < _LEAST_WRAPPED  # a long subject: the message begins in the next row
    indent = _INDENT if below else indent
    lines = wrap_sentence(message, width - indent)
    if not 1 <= len(lines) <= most_rows - below:
        return [_with_values(shorten_piece([*head, (message, role)], width), values, width)]
    beside_head, further = ([], lines) if below else ([(lines[0], role)], lines[1:])
    rows: list[Row] = [[*head, *beside_head]]
    rows += [[label(" " * indent), (line, role)] for line in further]
    indent = indent if all(cell_width(value) <= width - indent for value in values) else _INDENT
    value_rows = flow_pieces([[label(value)] for value in values], width - indent)
    values_width = sum(map(row_width, value_rows))
    values_fit_beside = len(value_rows) < 2 and row_width(rows[-1]) + values_width + 3 <= width
    if not values_fit_beside and len(rows) + len(value_rows) <= most_rows:
        return [*rows, *([label(" " * indent), *row] for row in value_rows)]
    return [*rows[:-1], _with_values(rows[-1], values, width)]


def _with_values(row: Row, values: Sequence[str], width: int) -> Row:
    """Return `row` followed by as many of the values as fit into `width` cells."""
    cells_left, text = width - row_width(row), ""
    for value in values:
        longer_text = f"{text} · {value}"
        if cell_width(longer_text) > cells_left:
            break
        text = longer_text
    return [*row, label(text)] if text else row


def _entry(event: Alert | Event) -> _EventEntry:
    about = (event.id if isinstance(event, Alert) else event.about) or ""
    role = "muted" if event.severity is Severity.INFO else alert_role(about, event.severity)
    sign = (f" {SEVERITY_SIGNS[event.severity]} ", role)
    values = tuple(value_texts(event.values, f"{event.subject} {event.message}"))
    if isinstance(event, Alert):
        since = f"since {event.since_words(_time_of_day)}"
        return [sign, (f"{event.subject}: ", "title")], event.message, role, (since, *_of_now(values))
    # The last values of what has ended are from before the end, and would contradict it.
    head: Row = [sign, label(f"{_time_of_day(event.since)} "), (f"{event.subject}: ", "text")]
    return head, event.dated_message, "muted", () if event.phase is Phase.END else values


def _of_now(values: Sequence[str]) -> Iterator[str]:
    """Yield the texts of values; the first says that it is of now, unless it is a time or a limit."""
    for number, value in enumerate(values):
        is_measured = not value.startswith(("in the last ", "alert ", "critical ", "ends "))
        yield f"now {value}" if is_measured and not number else value


def _time_of_day(time: datetime) -> str:
    return f"{time.astimezone():%H:%M:%S}"


def value_texts(values: Values, message: str = "") -> Iterator[str]:
    """Yield each known value as text with its name and unit, such as "headroom 7 GiB (alert at 8 GiB)".

    Behind the values stand the time window and limits without a value. Limits of a verdict on a balance are
    those from which it holds: "nearly empty 46 % (from 30 %)". Unknown values, words that `message` has
    already, a time window of 0 s, what the messages on processes that ended and on deployments say, and of a
    verdict its rule and scores without a unit are left out: the balance says what a score of this moment
    means, with its limit.
    """
    unsaid = {"rule", "deployments", "limit_share", "failure", "processes"}
    if values.keys() & _LASTING:
        unsaid.add("window_s")
    if "failures" in values:  # their limit is said
        unsaid.add("limit_s")
    limited = {name: _limited(name, values) for name in values if name.startswith(_LIMITS)}
    for name in sorted(values, key=lambda name: (name.startswith(_LIMITS), name == "window_s")):
        value = values[name]
        if value is None or name in unsaid or limited.get(name) or (name == "window_s" and value == 0):
            continue
        if isinstance(value, str) and (value == "unknown" or value in message):
            continue
        stem, figures = _value_with_unit(name, value)
        words = _PLAIN.get(name) or _PLAIN.get(stem, stem.replace("_", " "))
        text = words.format(figures) if "{}" in words else f"{words} {figures}"
        limits = [limit for limit, owner in limited.items() if owner == name]
        is_score = limits and "rule" in values and stem == name  # of a verdict, without a unit
        if text in message or is_score:
            continue
        behind = ", ".join(_limit_texts(limits, values, stem))
        yield f"{text} ({behind})" if behind else text


def _limit_texts(limits: Sequence[str], values: Values, stem: str) -> Iterator[str]:
    """Yield the limits of the value `stem` in words, such as "alert at 8 GiB", "ends below 6 GiB"."""
    begin, end = _FALLING.get(stem, ("from" if "rule" in values else "alert at", "ends below"))
    for limit in limits:
        at = values[limit]
        if at:
            _, figures = _value_with_unit(limit, at)
            yield f"{end if limit.startswith('clears_') else begin} {figures}"


def _limited(limit: str, values: Values) -> str | None:
    """Return the name of the value that a limit is for: the one that it names, else the first of its unit."""
    figure_name, unit = limit.removeprefix("limit_"), _unit_of(limit)
    if figure_name != limit and figure_name in values:
        return figure_name
    if limit.removesuffix(f"_{unit}") not in {"limit", "clears_at", "clears_below"}:
        return None
    value_names = (name for name in values if not name.startswith((*_LIMITS, "window_")))
    return next((name for name in value_names if _unit_of(name) == unit), None)


def _unit_of(name: str) -> str:
    """Return the key of `_UNITS` that a value's name ends in; "" for none."""
    return next((end for end in _UNITS if f"_{name}".endswith(f"_{end}")), "")


def _value_with_unit(name: str, value: float | str) -> tuple[str, str]:
    """Return (the name of a value without its unit, the value as text with its unit)."""
    suffix = _unit_of(name)
    unit = _UNITS.get(suffix, "")
    stem = name.removesuffix(f"_{suffix}")
    if isinstance(value, str):
        return stem, value
    is_whole = abs(value) >= _WHOLE_FROM.get(suffix, _GROUPED)
    number = f"{value:,.0f}" if is_whole else f"{value:.{2 if suffix == 's' else 3}g}"
    if name == "pid" or suffix == "mhz":
        number = f"{value:.0f}"
    elif name.endswith("_bytes"):
        number = numbers.data(value, 9).strip()
    elif suffix in {"bytes_per_s", "mib_per_s"}:
        step = 2**20 if suffix == "mib_per_s" else 1
        number, unit = numbers.data_rate(step * value, 9).strip(), ""
    elif suffix == "percent" and 0 < value < 1:
        number = "<1"
    elif suffix == "per_s":
        number, unit = numbers.often(value), ""
    elif suffix == "ratio" and value < _DECIMAL_BELOW:
        number = f"{value:.2g}"  # as messages have it
    number = number.replace("-", numbers.MINUS)
    return stem, f"{number}{f' {unit}' if unit else ''}"


def self_panel(snapshot: Snapshot, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw the cost of sparktop itself: CPU, memory, terminal output, duration of each poll."""
    cost = snapshot.self_cost
    rows: list[Row] = [
        label_row(
            " cpu ",
            figure(numbers.rate(cost.cpu_percent, 5)),
            " % of one core  memory ",
            figure(numbers.data(cost.rss_bytes, 9).strip()),
        ),
        label_row(" terminal ", figure(numbers.data_rate(cost.terminal_bytes_per_s, 9).strip())),
    ]
    rows += [
        label_row(" answer in ", figure(numbers.duration(ms / 1000, 7)), f" {name}")
        for name, ms in sorted(cost.poll_ms.items())
    ]
    title = name_tab("self", "", "sparktop")
    return frame_rows(rows, width, height, role=frame_role("self", selected=selected), title=title)
