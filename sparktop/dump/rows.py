"""Rows of a dump: the metrics of one backend, node, router or group at one moment, under flat names.

Names are those of the snapshot's JSON, with a dot between levels: "ttft_ms.p95". A part of a list is named by
its index or name: "gpus.0.power_w", "network.eth0.rx_bytes_per_s", "lanes.1.running".
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO

from msgspec import Struct, field

from sparktop.model.snapshot import Snapshot
from sparktop.model.text import clean, spreadsheet_text
from sparktop.report.json_snapshot import to_json

HEADS = ("time", "source", "name")
"""Columns of every row: UTC time; "backend", "node", "router" or "balance"; name."""
MAX_COLUMNS = 5_000
"""Columns of a CSV file; a recording can name network interfaces without end."""
Row = Mapping[str, object]

_SOURCES = {"backend": "backends", "node": "nodes", "router": "routers", "balance": "balance"}
_LEFT_OUT = frozenset({"name", "group", "rules", "processes", "engine_processes"})
"""Keys that are a column already, or lists whose parts change from moment to moment."""
_PART_NAMES = ("index", "name", "engine")
_SILENT_S = 10.0
_SILENT_INTERVALS = 3.0


class Fields(Struct):
    """The fields that the user wants in a dump (none named: all), and which of these were found."""

    wanted: Sequence[str] = ()
    """Names, each of a field or of all fields below it: "ttft_ms" stands for "ttft_ms.p50" and so on."""
    found: set[str] = field(default_factory=set)
    """Those of `wanted` that a row had."""

    def chosen(self, name: str) -> bool:
        """Return whether the dump includes the field `name`; add the wanted name that matches to `found`."""
        if not self.wanted:
            return True
        for one in self.wanted:
            if name == one or name.startswith(f"{one}."):
                self.found.add(one)
                return True
        return False

    @property
    def missing(self) -> list[str]:
        """Names in `wanted` that no row has had so far."""
        return [one for one in self.wanted if one not in self.found]


def rows_of(snapshot: Snapshot, fields: Fields) -> Iterator[Row]:
    """Yield a row for each backend, node, router and balanced group of a snapshot.

    A source has no row at a time at which nothing was recorded of it, neither a value nor a failure.
    """
    body = to_json(snapshot)
    silent_s = max(_SILENT_S, _SILENT_INTERVALS * snapshot.node_interval_s)
    for source, key in _SOURCES.items():
        views = body[key]
        for view in views if isinstance(views, list) else []:
            if view.get("error") is None and (view.get("age_s") or 0.0) > silent_s:
                continue
            row = {"time": body["taken_at"], "source": source, "name": view.get("name", view.get("group"))}
            flat = (pair for pair in _flat(view) if fields.chosen(pair[0]))
            yield {**row, **dict(flat)}


def names_of(rows: Iterable[Row]) -> list[str]:
    """Return the names of all fields in `rows`, each once, in order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row if name not in HEADS))


def _flat(fields: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield (flat name, value) of every value in nested mappings and lists of mappings."""
    for key, value in fields.items():
        name = f"{prefix}{key}"
        if not prefix and key in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
            yield from _flat(_by_name(value), f"{name}.")
        else:
            yield name, value


def _by_name(parts: Iterable[object]) -> dict[str, object]:
    """Return the parts of a list, keyed by their own index, name or engine core, or else by their position.

    To a key that occurs twice, the position in the list is appended.
    """
    named: dict[str, object] = {}
    for place, part in enumerate(parts):
        own = part if isinstance(part, Mapping) else {}
        key = next((key for key in _PART_NAMES if own.get(key) is not None), None)
        name = clean(place if key is None else own[key], 60)
        kept = {other: value for other, value in own.items() if other != key}
        named[name if name not in named else f"{name} {place}"] = kept or part
    return named


def json_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield each row as a line of JSON; unknown values are null."""
    for row in rows:
        yield json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n"


def csv_lines(rows: Iterable[Row], fields: Fields, spool: IO[str]) -> Iterator[str]:
    """Yield the lines of a CSV file; unknown values and fields that a source does not have are empty.

    All rows are written to `spool`, an empty temporary file, first: the columns are known at the end only.
    """
    columns = dict.fromkeys(HEADS)
    for row in rows:
        for name in row:
            if len(columns) < MAX_COLUMNS:
                columns.setdefault(name)
        spool.write(json.dumps(row) + "\n")
    spool.seek(0)
    heads = _in_wanted_order(_without_parents(columns), fields.wanted)
    yield _csv_line([spreadsheet_text(head) for head in heads])
    for line in spool:
        row = json.loads(line)
        yield _csv_line([_cell(row.get(head)) for head in heads])


def _without_parents(columns: Iterable[str]) -> list[str]:
    """Return `columns` without each name that begins another, such as "gpus" beside "gpus.0.power_w".

    Such a column comes from rows in which the whole list or object is unknown or empty.
    """
    names = list(columns)
    parents = {name[:dot] for name in names for dot, char in enumerate(name) if char == "."}
    return [name for name in names if name not in parents]


def _in_wanted_order(columns: list[str], wanted: Sequence[str]) -> list[str]:
    """Return the columns that head each row, then the others in the order of `wanted`.

    Columns that belong to the same wanted name keep their order.
    """

    def place(name: str) -> int:
        if name in HEADS:
            return -1
        return next((at for at, one in enumerate(wanted) if name == one or name.startswith(f"{one}.")), 0)

    return sorted(columns, key=place)


def _csv_line(cells: Sequence[object]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _cell(value: object) -> object:
    """Return a value as a cell: a list as its parts with spaces between, true and false as 1 and 0."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return spreadsheet_text(" ".join("" if part is None else str(part) for part in value))
    return spreadsheet_text(value) if isinstance(value, str) else value
