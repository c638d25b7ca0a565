"""Import of tables as people paste them: Markdown, CSV, tab-separated text, and columns apart by blanks.

A table has a row for each level. Its columns are metrics ("Prefill (tps)", "Mean TTFT"), or targets, if the
title above it or its heading names the metric ("Decode throughput"); a column "Target" or "Model" names the
target of each row. llama-benchy and llama-bench write a column "test" ("pp2048 @ d4096 (c4)") instead.
Their names of tests are of llama-bench: `pp` is prompt processing (prefill), `tg` text generation (decode).
llama-batched-bench has a row for each batch (B) with speeds (S) and times (T); llama-sweep-bench, without
that column, one for each depth (N_KV).
Values may have a unit, a deviation ("57.5 ± 1.2"), a range ("45–55"), thousands separators and emphasis.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean, stdev

from msgspec import Struct

from sparktop.model.load import Level, LoadKind, LoadPoint, concurrency_point
from sparktop.model.sweep import Value, value_of, value_of_range
from sparktop.model.text import clean, lines_of
from sparktop.sweep.compare.imports.reading import (
    ImportFormatError,
    by_axis,
    concurrency_at,
    finite_number,
    rate_at,
)
from sparktop.sweep.compare.series import LevelSeries, SeriesLevel
from sparktop.sweep.terms.definitions import DECODE_IN_POSTS, METRICS

_MOST_CHARS, _MOST_ROWS, _MOST_CELLS, _MOST_TARGETS = 4 << 20, 10_000, 200, 64
"""Most characters of a text, rows of a table, cells of a row and targets that are read."""
_LONGEST_LINE = 4000
"""Characters of a line that are read."""
_LEAST_ROWS = 2
"""Rows below a heading from which on lines with blanks between numbers are a table."""
_TITLE_LINES = 6
"""Lines above a table in which its title stands."""
_SAME = 0.01
"""Relative difference up to which two statements of a value are one, rounded differently."""
_METRICS: tuple[tuple[str, str], ...] = (
    (r"requests?[ /_]*(per|/|throughput)|req/s|\brps\b|\bqps\b", "requests_per_s"),
    (r"\bttfr\b", "ttfr_ms"),
    (r"ttft|first (generated )?token", "ttft_ms"),
    (r"(?<![a-z])(?<!e2e_)itl(?![a-z])|inter.?(token|chunk)", "itl_ms"),
    (r"tpot|time per output token", "tpot_ms"),
    (r"e2e|end.?to.?end|\blatency\b|request latency", "e2e_ms"),
    (r"sustained", "sustained_tps"),
    (r"prefill|prompt (processing|eval|speed)|(?<![a-z])pp\d*\b|input tok|input_throughput", "prefill_tps"),
    (r"peak", "peak_tps"),
    (r"total.?tok|total (throughput|tps)|total_(token_)?throughput|^s t/s$", "total_tps"),
    (r"decode|generation|(?<![a-z])tg\d*\b|\bgen\b", "decode_tps"),
    (r"output|throughput|tok(ens)?/s|\btps\b|\bt/s\b", "output_tps"),
)
"""(Pattern of a heading, metric)."""
_NAMED_FIRST = frozenset({"requests_per_s", "ttfr_ms", "ttft_ms", "itl_ms", "tpot_ms"})
"""Metrics whose names are never part of another's: "end-to-end latency to the first token" is TTFT."""
_NOT_READ = re.compile(
    r"(?<![a-z])p\d\d|median|std|(?<![a-z])(min|max)(?![a-z])|tokens$|each|per (user|request|stream)|\(req\)"
    r"|winner|against|delta|change|difference|\bratio\b|spread|at best|\bnotes?\b|samples|verdict|gain|%"
    r"|theirs|ours|hardware|published|^t(_\w+)? s$"
)
"""Headings of quantiles, extremes, counts of tokens, times of whole runs, and what is derived from means."""
_UNKNOWN_WINDOW = "as its table has it, which does not say how it was measured"
_AXES = (
    (
        LoadKind.CONCURRENCY,
        re.compile(
            r"(max[_ ]?)?(concurrency|conc\b.*|batch( size)?|clients?|users?|streams?|b|c|n)|load"
            r"|concurrent( \w+)?"
        ),
    ),
    (LoadKind.RATE, re.compile(r"(request[_ ]?)?rate\b.*")),
)
"""Axes with the headings that name them."""
_TARGETS = re.compile(r"target|topology|config(uration)?|setup|server|series|model|source|backend|engine")
"""Headings of a column of targets; the next three are of prompt and output tokens, and of runs."""
# Headings of a column: "prompt tokens", "ISL", "pp".
_PROMPT = re.compile(r"prompt( tokens?)?|input( tokens?| len(gth)?)?|isl|pp")
# "output tokens", "OSL", "tg".
_OUTPUT = re.compile(r"completion( tokens?)?|output (tokens|len(gth)?)|osl|tg")
# "run", "trial no.".
_RUN = re.compile(r"(run|repetition|trial)([_ ]?(number|no\.?|id))?")
# "N_KV" of llama-sweep-bench; beside batches it is the whole context.
_DEPTH = re.compile(r"n_kv")
_CELL = re.compile(
    r"[~≈]*\s*(?P<low>-?\d[\d,. ]*?)\s*(?:(?:–|—|-|to)\s*(?P<high>\d[\d,.]*)|"
    r"(?:±|\(std)\s*(?P<std>\d[\d,.]*)(?:, p95[^)]*)?\)?)?\s*"
    r"(?P<unit>[^\d(]*)(\(.*\))?"
)
"""A cell: number, end of a range or deviation, unit."""
_TEST_HEAD = re.compile("test|test_name")
_TEST = re.compile(
    r"(?P<context>ctx_)?(?P<kind>pp|tg)(?P<tokens>\d{1,8})?\s*(?:@\s*d(?P<depth>\d{1,8}))?"
    r"\s*(?:\(c(?P<c>\d{1,8})\))?"
)
"""A test of llama-bench, see above."""
_LEVEL = re.compile(
    r"(?:c\s*=?\s*)?(?P<value>\d[\d,]*(?:\.\d+)?)\s*(?P<rate>/s)?\s*[?ᵃᵇᶜᵈᵉᶠᵍʰⁱʲ]*", re.IGNORECASE
)
"""A level in a cell: a number, or a rate as "0.5/s", with the signs of its warnings in a post."""
_LENGTH = re.compile(r"(?P<value>\d{1,3}(?:,\d{3})+|\d{1,8})\s*(?P<k>k\b)?\s*(?:tok\w*)?", re.IGNORECASE)
"""A number of tokens in a cell, such as "2,048" or "4k tok"."""
_K = 1024
"""Tokens of "1k" as a length, as the table of levels writes them."""


class TextTable(Struct, frozen=True):
    """A table as text."""

    title: str
    """The lines above it, the nearest last."""
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_Figures = dict[str, dict[Level, dict[str, dict[str, list[Value]]]]]
"""What a text states by target, level, metric and run, in order of appearance."""


def _add(found: _Figures, target: str, load: Level, metric: str, figure: Value, run: str = "") -> None:
    by_metric = found.setdefault(clean(target, 60), {}).setdefault(load, {})
    by_metric.setdefault(metric, {}).setdefault(run, []).append(figure)


def read(text: str, name: str, source: str) -> list[LevelSeries]:
    """Convert the tables of a text to series, at least one; one without repeated runs is marked as published.

    `name` names the series of a table that names no target, `source` is that of the file.

    Raises:
        ImportFormatError: no table has a column of levels and a metric that is known, or it is too large.
    """
    if len(text) > _MOST_CHARS:
        raise ImportFormatError(f"it is over {_MOST_CHARS >> 20} MiB; give the table alone")
    pp, tg = _single_length_in("pp", text), _single_length_in("tg", text)
    targets: _Figures = {}
    tables = list(tables_of(text))
    for table in tables:
        _read_table(table, name, pp, tg, targets)
    if not targets:
        what = (
            "holds no table"
            if not tables
            else "no table in it has both a column Concurrency or Load and one of a metric"
        )
        raise ImportFormatError(f"{what} (Decode, Prefill, Output, TTFT, ITL, E2E)")
    if len(targets) > _MOST_TARGETS:
        raise ImportFormatError(f"its tables have more than {_MOST_TARGETS} targets; give those to compare")
    # A post of sparktop says what its figures are: as ours.
    plain, said = " ".join(text.split()), (DECODE_IN_POSTS, METRICS["sustained_tps"].definition)
    words = {} if any(word in plain for word in said) else dict.fromkeys(METRICS, _UNKNOWN_WINDOW)
    all_series = (_series_of_target(target, levels, source, words) for target, levels in targets.items())
    return [a_series for series in all_series for a_series in by_axis(series)]


def _series_of_target(
    target: str,
    stated: Mapping[Level, Mapping[str, Mapping[str, Sequence[Value]]]],
    source: str,
    definitions: Mapping[str, str],
) -> LevelSeries:
    """Return the series of a target, with its runs as far as the text has them apart."""

    def over_runs(runs: Sequence[Sequence[Value]]) -> Value:
        values = tuple(first.mean for first, *_ in runs)
        return runs[0][0] if len(runs) == 1 else value_of(fmean(values), values, stdev(values))

    levels: list[SeriesLevel] = []
    is_contradictory = False
    for load in sorted(stated, key=lambda load: load.order):
        figures = stated[load]
        has_runs = any("" not in runs for runs in figures.values())
        values = {metric: over_runs(list(runs.values())) for metric, runs in figures.items()}
        levels.append(SeriesLevel(load, values, runs=max(map(len, figures.values())) if has_runs else None))
        for first, *others in chain.from_iterable(runs.values() for runs in figures.values()):
            furthest = max((abs(first.mean - other.mean) for other in others), default=0.0)
            is_contradictory = is_contradictory or furthest > _SAME * abs(first.mean)
    twice = "the text has two values for a metric at one level: the first was taken"
    return LevelSeries(
        name=target,
        levels=tuple(levels),
        source=source,
        tool="pasted table",
        definitions=definitions,
        published=not any(figure.runs for level in levels for figure in level.figures.values()),
        notes=(twice,) if is_contradictory else (),
    )


def _single_length_in(kind: str, text: str) -> int | None:
    """Return the number of tokens that a text names, such as "pp1024"; None for none or several."""
    lengths = {int(count) for count in re.findall(rf"\b{kind}\s?(\d{{2,6}})\b", text)}
    return lengths.pop() if len(lengths) == 1 else None


def tables_of(text: str) -> Iterator[TextTable]:
    """Yield the tables of a text: Markdown with bars, CSV and tabs, or columns apart by blanks.

    Raises:
        ImportFormatError: a table has too many rows.
    """
    lines = [line[:_LONGEST_LINE] for line in lines_of(text)]
    start = end_before = 0
    while start < len(lines):
        for parse in (_markdown_table, _delimited_table, _blank_table):
            end, heads, rows = parse(lines, start)
            if len(rows) > _MOST_ROWS:
                raise ImportFormatError(f"a table of it has more than {_MOST_ROWS:,} rows; give one a level")
            if rows:
                lines_above = [
                    title_line.strip()
                    for title_line in lines[max(end_before, start - _TITLE_LINES) : start]
                    if title_line.strip()
                ]
                yield TextTable("\n".join(lines_above[-3:]), tuple(heads), tuple(map(tuple, rows)))
                start = end_before = end
                break
        else:
            start += 1


_ParsedTable = tuple[int, list[str], list[list[str]]]
"""(Line after the table, its heading, its rows)."""
_NO_TABLE: _ParsedTable = (0, [], [])
"""The same where no table begins."""


def _markdown_table(lines: Sequence[str], start: int) -> _ParsedTable:
    if "|" not in lines[start] or start + 1 >= len(lines) or "-" not in lines[start + 1]:
        return _NO_TABLE
    if not all(re.fullmatch(r":?-+:?", cell) for cell in _split_bars(lines[start + 1])):
        return _NO_TABLE
    end = start + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end, _split_bars(lines[start]), [_split_bars(line) for line in lines[start + 2 : end]]


def _split_bars(line: str) -> list[str]:
    """Return the cells of a line of Markdown."""
    bare = re.sub(r"^\||(?<!\\)\|$", "", line.strip())
    return [_plain_text(cell) for cell in re.split(r"(?<!\\)\|", bare)[:_MOST_CELLS]]


def _plain_text(cell: str) -> str:
    """Return the text of a cell without emphasis, code marks and damaged dashes."""
    text = cell.replace("â€“", "–").replace("\\|", "|")
    return clean(re.sub(r"[*`_]{2,}|(?<!\w)[*`_]|[*`_](?!\w)", "", text).strip(), 200)


def _delimited_table(lines: Sequence[str], start: int) -> _ParsedTable:
    """Return a table with commas, semicolons or tabs between its cells.

    Lines with a number in them are rows, not its heading; one with thousands may be a sentence.
    """
    for delimiter in ("\t", ",", ";"):
        if delimiter not in lines[start] or (delimiter == "," and re.search(r"\d,\d{3}\b", lines[start])):
            continue
        heads = _split_row(lines[start], delimiter)
        if any(map(_is_number, heads[1:])):
            continue
        cells_below = _split_row(lines[start + 1], delimiter) if start + 1 < len(lines) else []
        if len(cells_below) > len(heads) and not any(map(_is_number, cells_below[1:])):
            continue  # a sentence above the heading
        end = start + 1
        while end < len(lines) and lines[end].strip() and delimiter in lines[end]:
            end += 1
        return end, heads, [_split_row(line, delimiter) for line in lines[start + 1 : end]]
    return _NO_TABLE


def _split_row(line: str, mark: str) -> list[str]:
    """Return the cells of a line with marks between them."""
    (row,) = csv.reader([line], delimiter=mark)
    return [_plain_text(cell) for cell in row[:_MOST_CELLS]]


def _blank_table(lines: Sequence[str], start: int) -> _ParsedTable:
    """Return a table with blanks between its cells: rows of numbers below a heading with a known axis."""
    words = lines[start].split()
    if not words or _axis_of(words[0]) is None:
        return _NO_TABLE
    end = start + 1
    rows: list[list[str]] = []
    while end < len(lines):
        title, *cells = lines[end].split()[:_MOST_CELLS] or [""]
        if not cells or not all(map(_is_number, [title.lstrip("cC"), *cells])):
            break
        rows.append([title, *cells])
        end += 1
    if len(rows) < _LEAST_ROWS or len({len(row) for row in rows}) > 1:
        return _NO_TABLE
    return end, [words[0], *_column_names(lines[start], len(rows[0]) - 1)], rows


def _column_names(line: str, count: int) -> list[str]:
    """Return the names of `count` columns behind the first word of a heading without marks between them.

    They are apart by two blanks, else by one; else words are joined at "=", then at what occurs twice; else
    the columns are numbered.
    """
    names = line.strip().partition(" ")[2].strip()
    for name_parts in (re.split(r"\s{2,}", names), names.split()):
        if len(name_parts) == count:
            return name_parts
    words = re.findall(r"\S+(?:\s+\([^)]*\))?", names)
    joined: list[str] = []
    for word in words:  # "Cluster TP=2" is one name
        if joined and "=" in word:
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    if len(joined) > count:  # "2×Solo shuffle 2×Solo least-busy": what occurs twice begins a name
        repeated = {word for word in joined if joined.count(word) > 1}
        merged: list[str] = []
        for word in joined:
            if merged and merged[-1] in repeated:
                merged[-1] += f" {word}"
            else:
                merged.append(word)
        joined = merged
    return joined if len(joined) == count else [f"column {number}" for number in range(1, count + 1)]


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[\d][\d,.]*", cell.strip()) is not None


def _axis_of(head: str) -> LoadKind | None:
    """Return the axis that a heading names; None for other columns."""
    bare = re.sub(r"\(.*\)", "", head).strip().lower()
    return next((kind for kind, pattern in _AXES if pattern.fullmatch(bare)), None)


def _metric_of(head: str) -> str | None:
    """Return the metric that a heading names; None for other columns, and for quantiles."""
    bare = head.lower()
    if _NOT_READ.search(bare):
        return None
    found = [(re.search(pattern, bare), metric) for pattern, metric in _METRICS]
    matches = [(match.start(), metric) for match, metric in found if match is not None]
    preferred = next((metric for _, metric in matches if metric in _NAMED_FIRST), None)
    _, leftmost = min(matches, key=lambda match: match[0], default=(0, None))
    return preferred or leftmost


def _read_table(table: TextTable, name: str, pp: int | None, tg: int | None, found: _Figures) -> None:
    """Add the figures of a table to `found`; `pp` and `tg` are the lengths where the table states none."""
    heads = [head.lower() for head in table.heads]
    test = _column_of(_TEST_HEAD, heads)
    if test is not None:
        _read_tests(table, test, name, found)
        return
    kinds = map(_axis_of, heads)
    axes = [(index, kind) for index, kind in enumerate(kinds) if kind is not None]
    prompt, output, run, depth = (_column_of(wanted, heads) for wanted in (_PROMPT, _OUTPUT, _RUN, _DEPTH))
    if not axes and prompt is None:
        return
    by_row = _naming_column(table)
    not_metrics = {index for index, _ in axes} | {prompt, output, run, by_row}
    columns = {index: wanted for index, wanted in _metric_columns(table).items() if index not in not_metrics}
    if not columns and axes:
        columns = {
            index: wanted for index, wanted in _target_columns(table).items() if index not in not_metrics
        }
    for row in table.rows:
        point = _point_of(row, axes)
        if point is None:
            continue
        load = Level(
            "",
            point,
            _parse_length(_cell(row, prompt)) or pp,
            _parse_length(_cell(row, output)) or tg,
            depth=0 if axes else _parse_length(_cell(row, depth)) or 0,
        )
        for index, (target, metric, where) in columns.items():
            figure = figure_of(_cell(row, index), where, is_latency=metric.endswith("_ms"))
            if figure is not None:
                where_named = target or _cell(row, by_row) or name
                _add(found, where_named, load, metric, figure, _cell(row, run))


def _column_of(wanted: re.Pattern[str], heads: Sequence[str]) -> int | None:
    """Return the index of the first heading that is as `wanted`; None if none is."""
    return next((index for index, head in enumerate(heads) if wanted.fullmatch(head)), None)


_Columns = dict[int, tuple[str, str, str]]
"""(Target, "" for that of the row; metric; text that may state its unit) by index of the column."""


def _metric_columns(table: TextTable) -> _Columns:
    """Return each column whose heading names a metric."""
    metrics = {index: (_metric_of(head), head) for index, head in enumerate(table.heads)}
    return {index: ("", metric, head) for index, (metric, head) in metrics.items() if metric is not None}


def _target_columns(table: TextTable) -> _Columns:
    """Return each column as a target, if the first heading or the title names the metric; the nearest counts.

    As in "Concurrency (decode, tok/s)".
    """
    lines = [*table.heads[:1], *reversed(table.title.splitlines())]
    titled = next((metric for metric in map(_metric_of, lines) if metric is not None), None)
    return {
        index: (head, titled, table.title)
        for index, head in enumerate(table.heads)
        if titled is not None and head and not _NOT_READ.search(head.lower())
    }


def _naming_column(table: TextTable) -> int | None:
    """Return the first column of target names in which they differ; one name alone tells none apart."""
    for index, head in enumerate(table.heads):
        if _TARGETS.fullmatch(head.lower()) and len({_cell(row, index) for row in table.rows}) > 1:
            return index
    return None


def _cell(row: Sequence[str], index: int | None) -> str:
    """Return the text of a cell; "" where the row has none."""
    return row[index].strip() if index is not None and index < len(row) else ""


def _point_of(row: Sequence[str], axes: Sequence[tuple[int, LoadKind]]) -> LoadPoint | None:
    """Return the level of a row, by the first of `axes` with a number: with a rate of "inf", the concurrency.

    A table of prompt lengths alone is of one request at a time.
    """
    for index, kind in axes:
        match = _LEVEL.fullmatch(_cell(row, index))
        if match is None:
            continue
        value = float(match["value"].replace(",", ""))
        if match["rate"] or kind is LoadKind.RATE:
            point = rate_at(value)
        else:
            count = concurrency_at(value)
            point = None if count is None else concurrency_point(count)
        if point is not None:
            return point
    return None if axes else concurrency_point(1)


def _parse_length(cell: str) -> int | None:
    """Return a number of tokens, such as "2,048" or "4k"; None for other text."""
    match = _LENGTH.fullmatch(cell)
    return None if match is None else int(match["value"].replace(",", "")) * (_K if match["k"] else 1)


def figure_of(cell: str, head: str = "", *, is_latency: bool = False) -> Value | None:
    """Return the value of a cell: with its deviation or as a range if it states one; None without a number.

    A latency in seconds, by the unit of the cell or of its heading, becomes milliseconds; "k" is thousand.
    """
    match = _CELL.fullmatch(cell.strip())
    low = None if match is None else _parse_number(match["low"])
    if match is None or low is None:
        return None
    units = re.findall(r"\((?:ms|s|sec|seconds)\)|\bms\b|_ms\b|_s\b", head.lower())
    unit = match["unit"].strip().lower() or next(iter(units), "").strip("()_")
    in_seconds = is_latency and unit in {"s", "sec", "seconds"}
    scale = 1000.0 if in_seconds or unit.startswith("k") else 1.0
    high, std = _parse_number(match["high"]), _parse_number(match["std"])
    if finite_number(scale * max(low, high or 0.0)) is None:
        return None
    if high is not None and high > low:
        return value_of_range(scale * (low + high) / 2, (scale * low, scale * high))
    return value_of(scale * low, std=None if std is None else scale * std)


def _parse_number(text: str | None) -> float | None:
    """Return a number with a decimal point or comma, and with commas, points or blanks between thousands.

    A single mark before three digits, as in "12,064", is one between thousands if it is a comma.
    """
    if not text:
        return None
    bare = re.sub(r"(?<=\d) (?=\d{3}(?!\d))", "", text.strip()).rstrip(".,")
    decimal = "," if bare.rfind(",") > bare.rfind(".") else "."
    if decimal == "," and re.fullmatch(r"-?[1-9]\d{0,2}(,\d{3})+", bare):
        decimal = "."
    elif re.fullmatch(r"-?[1-9]\d{0,2}(\.\d{3}){2,}", bare):
        decimal = ","
    bare = bare.replace("." if decimal == "," else ",", "").replace(decimal, ".")
    try:
        return finite_number(float(bare))
    except ValueError:
        return None


_TEST_FIGURES = {
    "t/s (total)": "rate",
    "t/s": "rate",
    "t_s_mean": "rate",
    "peak t/s (total)": "peak",
    "peak t/s": "peak",
    "peak_ts_mean": "peak",
    "ttfr (ms)": "ttfr",
    "ttfr_mean": "ttfr",
    "e2e_ttft (ms)": "ttft",
    "e2e_ttft_mean": "ttft",
}
"""What a column of a table of tests has, by its heading."""
_METRICS_OF_TESTS = {
    "pp": {"rate": "prefill_tps", "ttfr": "ttfr_ms", "ttft": "ttft_ms"},
    "tg": {"rate": "decode_tps", "peak": "peak_tps"},
}
"""The metric that a column has in a row of the kind "pp" or "tg"."""


def _read_tests(table: TextTable, test: int, name: str, found: _Figures) -> None:
    """Read a table with rows such as "pp2048 @ d4096 (c4)"; those of the context alone are left out."""
    heads = [head.lower() for head in table.heads]
    naming_columns = [index for index in range(test) if len({_cell(row, index) for row in table.rows}) > 1]
    columns: dict[str, int] = {}
    for index, head in enumerate(heads):
        if head in _TEST_FIGURES:
            columns.setdefault(_TEST_FIGURES[head], index)
    deviations = {column: _std_column(heads, index) for column, index in columns.items()}
    tests = [(_TEST.fullmatch(_cell(row, test)), row) for row in table.rows]
    rows = [(match, row) for match, row in tests if match is not None and match["context"] is None]
    lengths = _known_lengths(match for match, _ in rows)
    for match, row in rows:
        count = concurrency_at(int(match["c"] or 1))
        if count is None:
            continue
        load = Level(
            "", concurrency_point(count), *_test_lengths(match, lengths), depth=int(match["depth"] or 0)
        )
        target_name = " ".join(filter(None, (_cell(row, index) for index in naming_columns))) or name
        for column, metric in _METRICS_OF_TESTS[match["kind"]].items():
            figure = figure_of(_cell(row, columns.get(column)))
            deviation = deviations.get(column)
            if figure is not None and deviation is not None:
                figure = value_of(figure.mean, std=_parse_number(_cell(row, deviation)))
            if figure is not None:
                _add(found, target_name, load, metric, figure)


def _std_column(heads: Sequence[str], index: int) -> int | None:
    """Return the index of the standard deviation of a column of means; None where there is none."""
    std_head = heads[index].replace("_mean", "_std")
    return heads.index(std_head) if std_head.endswith("_std") and std_head in heads else None


_Lengths = Mapping[tuple[str | None, str | None], Mapping[str, list[int | None]]]
"""Different lengths in tokens by (depth, concurrency), then by kind of test."""


def _known_lengths(tests: Iterable[re.Match[str]]) -> _Lengths:
    lengths: dict[tuple[str | None, str | None], dict[str, list[int | None]]] = {}
    for test in tests:
        counts = lengths.setdefault((test["depth"], test["c"]), {"pp": [], "tg": []})[test["kind"]]
        if (count := _parse_length(test["tokens"] or "")) not in counts:
            counts.append(count)
    return lengths


def _test_lengths(test: re.Match[str], lengths: _Lengths) -> tuple[int | None, int | None]:
    """Return (prompt tokens, output tokens) of a test.

    A test states one of them. The other is the only one at its level, or that in the same place if there are
    as many prompts as answers.
    """
    kind = test["kind"]
    lengths_at = lengths[test["depth"], test["c"]]
    of_kind, of_other = lengths_at[kind], lengths_at["tg" if kind == "pp" else "pp"]
    count = _parse_length(test["tokens"] or "")
    other_length = of_other[0] if len(of_other) == 1 else None
    if len(of_other) == len(of_kind):
        other_length = of_other[of_kind.index(count)]
    return (count, other_length) if kind == "pp" else (other_length, count)
