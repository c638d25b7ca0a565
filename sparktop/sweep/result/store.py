"""Storage of sweep results: one JSON file per sweep in one folder, replaced atomically."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from sparktop.errors import OutputError, UsageError
from sparktop.files import PRIVATE, BaseFolder, folder_of, read_bounded, write_whole
from sparktop.model.load import REMOVED_KINDS
from sparktop.model.text import clean, lines_of, reason_of
from sparktop.recording.frames import is_meant_as_recording
from sparktop.sweep.result.results import SCHEMA, SweepResult

MOST_BYTES = 256 << 20
"""Maximum file size; a detailed result of a hundred thousand requests is smaller."""


def read_value(path: Path) -> object:
    """Return the value of a JSON file, a list with the values of a JSON Lines file, or the text of another.

    What a file is shows its first character. NaN and infinities become None.

    Raises:
        UsageError: the file cannot be read, is too large, or is broken JSON; the message is one line.
    """
    name = clean(path)
    try:
        data, _ = read_bounded(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        raise UsageError(f"{name}: cannot be read: {reason}; give the result file of a sweep") from None
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"{name}: is over {MOST_BYTES >> 20} MiB; give the summary instead of the raw records"
        )
    if not data.strip():
        raise UsageError(f"{name}: is empty; a sweep writes its file after its first level")
    if is_meant_as_recording(path.name, data):
        raise UsageError(
            f"{name}: is a recording, not the result of a sweep; sparktop report {name} reads it"
        )
    text = data.decode("utf-8", errors="replace").removeprefix("\ufeff")
    if text.lstrip()[:1] not in {"{", "["} and b"\0" not in data:
        return text
    try:
        return _parse_lines(data)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: is not JSON: byte {error.start} is not UTF-8; is it the right file?"
        ) from None
    except json.JSONDecodeError as error:
        fault_words = clean(error.msg, 80)
        raise UsageError(
            f"{name}: is cut short or not JSON (line {error.lineno}, column {error.colno}: {fault_words})"
        ) from None
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{name}: is not readable as JSON: {clean(error, 80)}") from None


def _parse_lines(data: bytes) -> object:
    """Parse JSON; JSON Lines become a list with one value per line. Raise JSONDecodeError for other text."""
    text = data.decode("utf-8-sig")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        try:
            return [json.loads(line, parse_constant=_no_constant) for line in lines_of(text) if line.strip()]
        except json.JSONDecodeError:
            raise error from None


def _no_constant(_: str) -> None:
    """Return None, which replaces the constants NaN, Infinity and -Infinity of a JSON file."""


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
"""What a file's name may not hold."""
_MOST_SAME_TIME = 1000
"""Files of one second and label."""


def sweeps_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of stored results: `$XDG_DATA_HOME/sparktop/sweeps`, by default in ~/.local/share."""
    return folder_of(env, BaseFolder.DATA) / "sweeps"


def new_file(folder: Path, started_at: datetime, label: str = "sweep") -> Path:
    """Create an empty file for a new sweep in `folder`, and return its path.

    The file name has the start time and `label`, and a number if the name is taken.

    Raises:
        OutputError: the file cannot be created.
    """
    word = _NOT_IN_NAMES.sub("-", label).strip("-")[:40] or "sweep"
    stem = f"{started_at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{word}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(1, _MOST_SAME_TIME):
            path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            try:
                path.touch(PRIVATE, exist_ok=False)
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise OutputError(f"{clean(folder)}: cannot keep results there: {reason_of(error)}") from None
    raise OutputError(f"{clean(folder)}: too many results of one moment; move some away")


def named_parts(path: Path) -> tuple[datetime, str] | None:
    """Return the start time and label that the name of a file has from `new_file`; None of other names."""
    match = re.fullmatch(r"(\d{8}T\d{6}Z)-(.+?)(-\d+)?", path.stem)
    try:
        return match and (datetime.strptime(match[1], "%Y%m%dT%H%M%S%z"), match[2])
    except ValueError:
        return None


def save(path: Path, result: SweepResult) -> None:
    """Write a result to the file `path` atomically: readers see the old content or the new, never a part.

    Raises:
        OutputError: the file cannot be written; its old content is unchanged.
    """
    text = json.dumps(result.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    try:
        write_whole(path, text)
    except OSError as error:
        raise OutputError(f"{clean(path)}: cannot be written: {reason_of(error)}") from None


def load(path: Path) -> SweepResult:
    """Read a sweep result from a file.

    Raises:
        UsageError: the file cannot be read, or is not a sweep result; the message is one line.
    """
    return parse(read_value(path), str(path))


def parse(data: object, where: str) -> SweepResult:
    """Convert the JSON value of a result file to a sweep result; `where` names the file in error messages.

    Raises:
        UsageError: the values are not a sweep result of this version.
    """
    name = clean(where)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        stated = f'its schema is "{clean(schema, 40)}"' if isinstance(schema, str) else "it names no schema"
        raise UsageError(
            f"{name}: is no sweep's result that this version reads: {stated}, wanted is {SCHEMA}"
        )
    try:
        return SweepResult.model_validate(_without_removed(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(clean(part, 40) for part in first["loc"])
        further_errors = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        message = clean(first["msg"], 120)
        raise UsageError(
            f"{name}: {key or 'top'}: {message}{further_errors}; write it again with sparktop sweep"
        ) from None


def _without_removed(data: object) -> object:
    """Return the JSON object of a result without levels of kinds of load that earlier versions had."""
    plan, targets = (data.get("plan"), data.get("targets")) if isinstance(data, dict) else (None, None)
    if not isinstance(plan, dict) or str(plan.get("load")) not in REMOVED_KINDS:
        return data
    plan = {name: value for name, value in plan.items() if name not in {"load", "points"}}
    if isinstance(targets, list):
        targets = [{**target, "levels": []} if isinstance(target, dict) else target for target in targets]
    of_levels = {"targets": targets, "comparison": None, "capacity": None}
    return {**cast("dict[str, object]", data), "plan": plan, **of_levels}


def stored_sweeps(folder: Path, newest: int = 0) -> dict[Path, SweepResult | UsageError]:
    """Read all results in a folder, or so many of the `newest`, by path; the oldest comes first.

    Of a file that cannot be read there is the error. It is empty if the folder cannot be read.
    """
    sweeps: dict[Path, SweepResult | UsageError] = {}
    for path in sorted(folder.glob("[!.]*.json"))[-newest:]:  # [-0:] is all of them
        try:
            sweeps[path] = load(path)
        except UsageError as error:
            sweeps[path] = error
    return sweeps


def earlier_results(folder: Path, newest: int) -> list[SweepResult]:
    """Return the results of so many of the `newest` files in a folder as can be read."""
    return [result for result in stored_sweeps(folder, newest).values() if isinstance(result, SweepResult)]
