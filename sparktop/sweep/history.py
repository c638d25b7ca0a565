"""The history: all stored results, own sweeps and imported files.

Reading a result takes milliseconds and there may be hundreds of results, so callers use `find_changes` and
`read` in a thread and read a few files at a time. `rows` returns the files read so far. The key of a result
is the path of its file relative to the folder of results.
"""

from __future__ import annotations

import filecmp
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.errors import OutputError, SparktopError, UsageError
from sparktop.files import write_whole
from sparktop.model.load import LoadKind
from sparktop.model.sweep import HistoryRow, SweepStatus
from sparktop.model.text import clean, reason_of
from sparktop.sweep.compare.imports.files import read_file
from sparktop.sweep.compare.imports.reading import list_at, started_at, text_at
from sparktop.sweep.compare.ratio import contenders, main_rate
from sparktop.sweep.compare.series import LevelSeries, series_of
from sparktop.sweep.plan.presets import DEFAULT
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.result.store import named_parts, parse, read_value
from sparktop.sweep.view.capacity import capacity_title
from sparktop.sweep.view.result import StoredSource, imported_source, status_of, stored_source
from sparktop.watch.state_files import results_under_way

FileStamp = tuple[int, int]
"""What changes when a file is written again: (time of its modification in nanoseconds, size in bytes)."""


class History(Struct, eq=False):
    """All results in one folder: list, search and change them. Methods may be called from any thread."""

    folder: Path
    _rows: dict[str, HistoryRow] = field(default_factory=dict)
    """The rows of the files that were read."""
    _stamps: dict[str, FileStamp] = field(default_factory=dict)
    """What each of these files was when it was read."""
    _unread: list[tuple[str, FileStamp]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # The list of results

    def find_changes(self) -> int:
        """List the files in the folder of results; return how many new or changed ones `read` must read.

        Files that no longer exist are forgotten.
        """
        with self._lock:
            files = dict(self._files())
            self._rows = {key: row for key, row in self._rows.items() if key in files}
            changed = [
                (key, stamp)
                for key, stamp in files.items()
                if key not in self._rows or self._stamps[key] != stamp
            ]
            # `read` pops from the end, so the newest is last.
            self._unread = sorted(changed, key=itemgetter(1))
            return len(self._unread)

    def read(self, most: int = 8) -> int:
        """Read up to `most` of the new or changed files that `find_changes` found, the newest first.

        Return how many of these files are still unread.
        """
        for _ in range(most):
            with self._lock:
                if not self._unread:
                    return 0
                key, stamp = self._unread.pop()
                self._stamps[key], self._rows[key] = stamp, self._read_row(key)
        return len(self._unread)

    def rows(self) -> list[HistoryRow]:
        """Return the rows of all files read so far, newest first."""
        folder = self.folder.resolve()
        running = {path.name for path in results_under_way() if path.parent == folder}
        running_status = SweepStatus.RUNNING.value
        rows = sorted(self._rows.values(), key=self._age_key, reverse=True)
        return [
            replace(row, status=running_status, problem=None) if row.key in running else row for row in rows
        ]

    def path(self, key: str) -> Path:
        """Return the path of the file of the result `key`."""
        return self.folder / key

    # Single results

    def result(self, key: str) -> SweepResult | None:
        """Read the result `key` as a sweep; return None for another tool's result.

        Raises:
            UsageError: the file cannot be read.
        """
        data = read_value(self.path(key))
        return None if _is_foreign(key, data) else parse(data, str(self.path(key)))

    def series(self, key: str) -> list[LevelSeries]:
        """Read the result `key` for a comparison: return one series per target.

        Raises:
            UsageError: the file cannot be read, or has no completed level.
        """
        result = self.result(key)
        if result is None:
            return read_file(self.path(key))
        series = series_of(result, source=clean(self.path(key).name, 60))
        if not series:
            raise UsageError(f"{clean(key, 60)}: no level of that sweep is done: there is nothing to compare")
        return series

    def source(self, key: str) -> StoredSource:
        """Read the result `key` and return its view for the full screen.

        Raises:
            UsageError: the file cannot be read.
        """
        row = next((a_row for a_row in self.rows() if a_row.key == key), None)
        title = key if row is None else title_of(row)
        result = self.result(key)
        if result is not None:
            is_running = row is not None and row.status == SweepStatus.RUNNING.value
            status = SweepStatus.UNDER_WAY if is_running else None
            note = "this is what was done when it was opened" if is_running else ""
            return stored_source(result, title, status, note)
        path = self.path(key)
        tool = "" if row is None else row.name
        return imported_source(read_file(path), title=tool, started_at=started_at(read_value(path)))

    # Actions of a user

    def delete(self, keys: Iterable[str]) -> str:
        """Remove the files of the results `keys`; return a line of text about the outcome.

        Results of running sweeps are not deleted.
        """
        deleted: list[HistoryRow] = []
        problems: list[str] = []
        with self._lock:
            rows = {row.key: row for row in self.rows()}
            for row in (rows[key] for key in keys if key in rows):
                if row.status == SweepStatus.RUNNING.value:
                    problems.append("not deleted: its sweep is running")
                    continue
                try:
                    self.path(row.key).unlink(missing_ok=True)
                except OSError as error:
                    problems.append(f"{clean(row.key, 60)} not deleted: {reason_of(error)}")
                    continue
                self._rows.pop(row.key, None)
                deleted.append(row)
        deleted_words = title_of(deleted[0]) if len(deleted) == 1 else f"{len(deleted)} results"
        parts = [f"deleted {deleted_words}"] if deleted else []
        return "; ".join(parts + problems[:1]) or "nothing to delete"

    def import_file(self, path: Path) -> str:
        """Copy a result file of another tool, or of another sparktop, into the folder; return the copy's key.

        A "~" at the beginning of `path` is replaced by the home directory.

        Raises:
            UsageError: the file cannot be read, or is not from a known tool.
        """
        with suppress(RuntimeError):  # without a home directory, reading the file reports that it is missing
            path = path.expanduser()
        read_file(path)
        copied = copy_in(path, self.folder / IMPORT_FOLDER)
        with self._lock:
            key = copied.relative_to(self.folder).as_posix()
            self._stamps[key], self._rows[key] = _stamp(copied) or (0, 0), self._read_row(key)
        return key

    # Files

    def _files(self) -> Iterator[tuple[str, FileStamp]]:
        for folder, prefix in ((self.folder, ""), (self.folder / IMPORT_FOLDER, f"{IMPORT_FOLDER}/")):
            try:
                paths = list(folder.iterdir())
            except OSError:
                continue
            for path in paths:
                if path.suffix == ".json" and not path.name.startswith("."):
                    stamp = _stamp(path)
                    if stamp is not None:
                        yield f"{prefix}{path.name}", stamp

    def _read_row(self, key: str) -> HistoryRow:
        path = self.path(key)
        try:
            data = read_value(path)
            if _is_foreign(key, data):
                return imported_row(key, read_file(path), started_at(data))
            return stored_row(parse(_without_requests(data), str(path)), key)
        except UsageError as error:
            began_at, label = named_parts(path) or (None, clean(path.stem, _NAME_LENGTH))
            return HistoryRow(key, began_at, label, "unreadable", problem=self.short(error))

    def _age_key(self, row: HistoryRow) -> tuple[float, str]:
        """Return a sort key that is larger for newer results.

        It is (start time or, if unknown, the file's modification time; key of the result).
        """
        modified_s = self._stamps[row.key][0] / 1e9
        return modified_s if row.started_at is None else row.started_at.timestamp(), row.key

    def short(self, error: SparktopError) -> str:
        """Return the text of an error with the path of the folder of results removed."""
        return str(error).replace(f"{clean(self.folder)}/", "")


def title_of(row: HistoryRow) -> str:
    """Return the title of a result, its name and local start time: "quick 2026-03-22 18:04"."""
    if row.started_at is None:
        return clean(row.name, 40)
    return f"{clean(row.name, 40)} {row.started_at.astimezone():%Y-%m-%d %H:%M}"


def _without_requests(data: object) -> object:
    """Delete the values of individual requests from `data`, a result as parsed JSON, and return it.

    The object is changed in place. The history does not use these values, and validating them takes long.
    """
    for target in list_at(data, "targets"):
        for level in list_at(target, "levels"):
            if isinstance(level, dict):
                level.pop("each", None)
    return data


def _is_foreign(key: str, data: object) -> bool:
    """Return whether a stored file is another tool's result."""
    return key.startswith(f"{IMPORT_FOLDER}/") and text_at(data, "schema") is None


def _stamp(path: Path) -> FileStamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


IMPORT_FOLDER: Final = "imported"
"""Name of the folder, within that of results, of files of other tools and other machines."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
"""Characters that names of copies do not have."""
_MOST_SAME_NAME = 1000
"""Most copies of files of one name, which are numbered."""


def copy_in(path: Path, folder: Path) -> Path:
    """Copy a file into `folder` under an unused name, and return the path of the copy.

    If the folder already has an identical copy of that name, return its path instead.

    Raises:
        OutputError: the file cannot be copied; no partial copy remains.
    """
    stem = _NOT_IN_NAMES.sub("-", path.stem).strip("-.")[:80] or "result"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(1, _MOST_SAME_NAME):
            goal = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            if not goal.exists():
                write_whole(goal, path.read_bytes())
                return goal
            if filecmp.cmp(path, goal, shallow=False):
                return goal
    except OSError as error:
        reason = reason_of(error)
        raise OutputError(f"{clean(path)}: cannot be copied into {clean(folder)}: {reason}") from None
    raise OutputError(f"{clean(folder)}: too many files of the name {stem}; move some away")


IMPORTED_STATUS = "imported"
"""Status of another tool's result, whose file does not state how the measurement ended."""
_NAME_LENGTH = 60
"""Most characters of a name in the list."""


def stored_row(result: SweepResult, key: str) -> HistoryRow:
    """Return the row of a stored sweep; `key` is the key of the result."""
    levels = [level for target in result.targets for level in target.levels]
    models = dict.fromkeys(target.model for target in result.targets if target.model is not None)
    best_of = contenders(levels)
    return HistoryRow(
        key=key,
        started_at=result.started_at,
        name=_traffic_name(result) or result.plan.preset or clean(Path(key).stem, _NAME_LENGTH),
        status=status_of(result).value,
        targets=tuple(target.name for target in result.targets),
        model=", ".join(models) or None,
        levels=len(levels),
        most=max((level.point for level in levels), default=None),
        decode_tps=_best_rate(best_of),
        ttft_ms=min((level.ttft_ms.mean for level in best_of if level.ttft_ms is not None), default=None),
        doubtful=sum(bool(level.validity) for level in levels),
        simulated=result.simulated,
    )


def _traffic_name(result: SweepResult) -> str | None:
    """Return a name made of what was searched, replayed or simulated; None if the preset names the sweep."""
    plan = result.plan
    if result.capacity is not None:
        return clean(capacity_title(result.capacity), _NAME_LENGTH)
    if plan.trace is not None:
        return clean(f"trace {plan.trace.name}", _NAME_LENGTH)
    if plan.load is LoadKind.AGENTS and plan.preset in {None, DEFAULT}:
        return clean(f"agents {plan.workload or ''}", _NAME_LENGTH)
    return None


def imported_row(key: str, series: Sequence[LevelSeries], started_at: datetime | None) -> HistoryRow:
    """Return the row of another tool's result; `series` are its targets."""
    levels = [level for curve in series for level in curve.levels]
    models = dict.fromkeys(curve.model for curve in series if curve.model is not None)
    rates = [level.figures.get("sustained_tps") or level.figures.get("decode_tps") for level in levels]
    waits = [level.figures.get("ttft_ms") for level in levels]
    return HistoryRow(
        key=key,
        started_at=started_at,
        name=" ".join(dict.fromkeys(curve.tool for curve in series)),
        status=IMPORTED_STATUS,
        targets=tuple(curve.name for curve in series),
        model=", ".join(models) or None,
        levels=len(levels),
        most=max((level.load.point for level in levels), default=None),
        decode_tps=max((rate.mean for rate in rates if rate is not None), default=None),
        ttft_ms=min((wait.mean for wait in waits if wait is not None), default=None),
        doubtful=sum(bool(level.validity) for level in levels),
        simulated=any(curve.simulated for curve in series),
    )


def _best_rate(levels: Sequence[LevelResult]) -> float | None:
    """Return the highest value of the rate by which the sweep's own screen judges its levels."""
    by_output = any(level.open_loop or level.agents for level in levels)
    metric = "output_tps" if by_output else main_rate(levels)
    rates = [None if metric is None else level.rate(metric) for level in levels]
    return max((rate.mean for rate in rates if rate is not None), default=None)


def found_rows(rows: Sequence[HistoryRow], query: str) -> list[HistoryRow]:
    """Return the rows that contain every word of `query`, ignoring case; all rows for an empty query.

    Words are searched in name, targets, model, status, date and file name.
    """
    words = query.casefold().split()
    return [row for row in rows if all(word in _haystack(row) for word in words)]


def _haystack(row: HistoryRow) -> str:
    day = "" if row.started_at is None else f"{row.started_at.astimezone():%Y-%m-%d %H:%M}"
    file = row.key.removesuffix(".json")
    parts = (row.name, *row.targets, row.model or "", row.status, day, file)
    return " ".join((*parts, "simulated" if row.simulated else "")).casefold()
