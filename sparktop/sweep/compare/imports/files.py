"""Reader of result files of all known tools, and of the arguments of the command `compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.text import clean, free_name
from sparktop.sweep.compare.imports import tables
from sparktop.sweep.compare.imports.reading import ImportFormatError, value_at
from sparktop.sweep.compare.imports.tools import TOOLS
from sparktop.sweep.compare.series import (
    PREFIX,
    LevelSeries,
    load_reference,
    merge_series,
    published_series,
    series_of,
)
from sparktop.sweep.result.store import parse, read_value

_READERS_IN_ORDER = (
    "a sparktop sweep, or a result of llama-benchy, vllm bench serve, SGLang's benchmark, aiperf, guidellm "
    "or inference-perf"
)
"""What can be read, in messages."""
_OTHER_FILES: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    (
        "aiperf",
        lambda data: any(
            value_at(data, *place) is not None
            for place in (
                (0, "metadata", "benchmark_phase"),
                (0, "metrics"),
                ("aggregation_type",),
                ("data", 0, "payloads"),
            )
        ),
        "no result of a level; give profile_export_aiperf.json, of a sweep profile_export_aiperf_sweep.json",
    ),
    (
        "inference-perf",
        lambda data: value_at(data, 0, "request") is not None and value_at(data, 0, "start_time") is not None,
        "single requests; give NAME=stage_0_lifecycle_metrics.json of each stage",
    ),
    (
        "vllm bench throughput or latency",
        lambda data: (
            value_at(data, "tokens_per_second") is not None or value_at(data, "avg_latency") is not None
        ),
        "of an engine without a server; give the file of vllm bench serve --save-result",
    ),
    (
        "llama-bench",
        lambda data: value_at(data, 0, "avg_ts") is not None or value_at(data, 0, "speed_tg") is not None,
        "in a form that is not read; give its Markdown table, which it writes without -o or --output-format",
    ),
    (
        "sparktop",
        lambda data: str(value_at(data, "schema") or "").startswith("sparktop.snapshot"),
        "a report of the monitor; give the result of sparktop sweep",
    ),
)
"""(Tool, whether a JSON value is such a file of it, what that is and which file of the tool to give)."""


def read_file(path: Path) -> list[LevelSeries]:
    """Read a result file of sparktop or of another known tool; return its series, at least one.

    Raises:
        UsageError: the file cannot be read, has an unknown format, or has no level; the message is one line.
    """
    name, data = clean(path), read_value(path)
    if isinstance(data, str):
        return _read_text(data, path, name)
    if _is_progress(data):
        raise UsageError(f"{name}: is the progress of a run, not its result; give the result file")
    if isinstance(value_at(data, "schema"), str):
        series = series_of(parse(data, str(path)), source=clean(path.name))
        if not series:
            raise UsageError(f"{name}: no level of that sweep was finished; there is nothing to compare")
        return series
    for tool in TOOLS:
        if tool.is_result(data):
            try:
                return tool.read(data, clean(path.stem, 60), clean(path.name))
            except ImportFormatError as problem:
                raise UsageError(f"{name}: {tool.title}: {problem}") from None
    for title, is_such_file, description in _OTHER_FILES:
        if is_such_file(data):
            raise UsageError(f"{name}: is a file of {title}: {description}")
    raise UsageError(f"{name}: is JSON, but not {_READERS_IN_ORDER}")


def _read_text(text: str, path: Path, name: str) -> list[LevelSeries]:
    """Return the series of a text with tables.

    Raises:
        UsageError: it has no table that can be read, or is another file of a known tool.
    """
    beginning = text.lstrip()[:200].lower()
    if beginning.startswith("metric,avg") or "\nmetric,avg" in text[:4000].lower():
        raise UsageError(f"{name}: is a file of aiperf; give profile_export_aiperf.json beside it")
    if beginning.startswith(("<!doctype html", "<html")):
        raise UsageError(
            f"{name}: is a web page; give the JSON file of the same tool (guidellm: benchmarks.json)"
        )
    try:
        return tables.read(text, clean(path.stem, 60), clean(path.name))
    except ImportFormatError as problem:
        raise UsageError(f"{name}: is not JSON, and {problem}; give {_READERS_IN_ORDER}") from None


def is_sweep(path: Path) -> bool:
    """Return whether a JSON file names a schema, as sparktop's results do; other tools' results do not.

    The file may still be invalid.

    Raises:
        UsageError: the file cannot be read.
    """
    data = read_value(path)
    return isinstance(value_at(data, "schema"), str) and not _is_progress(data)


def read_series(words: Sequence[str]) -> tuple[list[LevelSeries], Mapping[str, Mapping[str, object]]]:
    """Read the arguments of `compare`: "FILE", "NAME=FILE", or "ref:NAME" for a published table (reference).

    Return (the series of all, with unique names; the facts that references state in addition to their
    tables, by name of the reference).

    Files with the same NAME become one series; they have different levels, or runs of the same level. If
    several series still have the same name, the name of the file is added to each.

    Raises:
        UsageError: a file or a published table cannot be read.
    """
    all_series: list[LevelSeries] = []
    by_name: dict[str, list[LevelSeries]] = {}
    facts: dict[str, Mapping[str, object]] = {}
    for word in words:
        if word.startswith(PREFIX):
            reference = load_reference(word)
            all_series += published_series(reference)
            facts[f"{PREFIX}{reference.name}"] = reference.facts
            continue
        name, path = _name_and_path(word)
        series = read_file(path)
        if name is None:
            all_series += series
        else:
            for a_series in series:
                full_name = name if len(series) == 1 else f"{name} {a_series.name}"
                if full_name not in by_name:
                    all_series.append(replace(a_series, name=full_name))
                by_name.setdefault(full_name, []).append(a_series)
    joined = [
        merge_series(by_name[a_series.name], a_series.name) if a_series.name in by_name else a_series
        for a_series in all_series
    ]
    return _with_unique_names(joined), facts


def _name_and_path(word: str) -> tuple[str | None, Path]:
    name, equals, path = word.partition("=")
    try:
        whole_is_file = Path(word).exists()
    except (OSError, ValueError):
        whole_is_file = False
    if not equals or whole_is_file or not clean(name, 60):
        return None, Path(word)
    return clean(name, 60), Path(path)


def _with_unique_names(series: Iterable[LevelSeries]) -> list[LevelSeries]:
    """Return the series with unique names, by adding the name of the file, and a number if still needed."""
    renamed = list(series)
    names = [a_series.name for a_series in renamed]
    by_name: dict[str, LevelSeries] = {}
    for a_series in renamed:
        name = a_series.name
        wish = name if names.count(name) == 1 else f"{name} ({Path(a_series.source).stem})"
        name = wish if wish not in by_name else free_name(name, {name, *by_name}, "{} ({})")
        by_name[name] = replace(a_series, name=name)
    return list(by_name.values())


def _is_progress(data: object) -> bool:
    return "progress" in str(value_at(data, 0, "schema") or value_at(data, "schema"))
