"""Import of tables as people paste them: Markdown, CSV, tab-separated text, and columns apart by blanks.

A table has a row for each level. Its columns are metrics ("Prefill (tps)", "Mean TTFT"), or targets, if the
title above it or its heading names the metric ("Decode throughput"); a column "Target" or "Model" names the
target of each row. llama-benchy and llama-bench write a column "test" ("pp2048 @ d4096 (c4)") instead.
Values may have a unit, a deviation ("57.5 ± 1.2"), a range ("45–55"), thousands separators and emphasis.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from sparktop.model.load import LoadKind, LoadPoint, concurrency_point
from sparktop.model.text import clean
from sparktop.sweep.compare.imports.axes import by_axis
from sparktop.sweep.compare.imports.reading import ImportFormatError, finite
from sparktop.sweep.compare.series import Figure, Load, Series, SeriesLevel, load_at
from sparktop.sweep.result.parts import MOST_CONCURRENCY
from sparktop.values import dataclass

_MOST_ROWS, _MOST_CELLS = 10_000, 200
_LEAST_ROWS = 2
"""Rows below a heading from which on lines with blanks between numbers are a table."""
_TITLE_LINES = 6
"""Lines above a table in which its title stands."""
_METRICS: tuple[tuple[str, str], ...] = (
    (r"requests?[ /_]*(per|/|throughput)|req/s|\brps\b|\bqps\b", "requests_per_s"),
    (r"\bttfr\b", "ttfr_ms"),
    (r"ttft|first (generated )?token", "ttft_ms"),
    (r"\bitl\b|inter.?(token|chunk)|(?<!e2e_)itl", "itl_ms"),
    (r"\btpot\b|time per output token|_tpot", "tpot_ms"),
    (r"e2e|end.?to.?end|\blatency\b|request latency", "e2e_ms"),
    (r"prefill|prompt (processing|eval|speed)|\bpp\d*\b|input tok|input_throughput", "prefill_tps"),
    (r"peak", "peak_tps"),
    (r"total.?tok|total (throughput|tps)|total_(token_)?throughput", "total_tps"),
    (r"decode|generation|\btg\d*\b|\bgen\b", "decode_tps"),
    (r"output|throughput|tok(ens)?/s|\btps\b|\bt/s\b", "output_tps"),
)
"""(Pattern of a heading, metric)."""
_NAMED_FIRST = frozenset({"requests_per_s", "ttfr_ms", "ttft_ms", "itl_ms", "tpot_ms"})
"""Metrics whose names are never part of another's: "end-to-end latency to the first token" is TTFT."""
_NO_MEAN = re.compile(
    r"\bp\d\d|_p\d\d|p50|median|std|stdev|\bmin\b|\bmax\b|each|per (user|request|stream)|\(req\)|winner|delta"
    r"|change|difference|\bratio\b|\bnotes?\b|est_ppt|samples|verdict|gain|%|theirs|ours|hardware"
)
_AXES = (
    (
        LoadKind.CONCURRENCY,
        re.compile(r"^(max[_ ]?)?(concurren\w*|conc\b.*|batch( size)?|clients?|users?|streams?|c|n)$"),
    ),
    (LoadKind.RATE, re.compile(r"^(request[_ ]?rate.*|rate.*)$")),
)
_TARGETS = re.compile(r"^(target|topology|config(uration)?|setup|server|series|model|source|backend|engine)$")
_PROMPT = re.compile(r"^(prompt( tokens?)?|input( tokens?| len(gth)?)?|isl|pp)$")
_OUTPUT = re.compile(r"^(completion( tokens?)?|output (tokens|len(gth)?)|osl|tg)$")
_CELL = re.compile(
    r"^[~≈<>]*\s*(?P<low>-?\d[\d,. ]*?)\s*(?:(?:–|—|-|to)\s*(?P<high>\d[\d,.]*)|±\s*(?P<std>\d[\d,.]*))?\s*"
    r"\+?(?P<unit>[^\d(]*)(\(.*\))?$"
)
_TEST = re.compile(
    r"^(?P<context>ctx_)?(?P<kind>pp|tg)(?P<tokens>\d+)?\s*(?:@\s*d(?P<depth>\d+))?\s*(?:\(c(?P<c>\d+)\))?$"
)
_LEVEL = re.compile(r"^c\s*=?\s*(\d+)$|^(\d[\d,]*)$|^(\d+(?:\.\d+)?)\s*/s$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Table:
    """A table as text."""

    title: str
    """The lines above it, the nearest last."""
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(slots=True, eq=False)
class _Targets:
    """Values by target and level, in order of appearance."""

    levels: dict[str, dict[Load, dict[str, Figure]]] = field(default_factory=dict)

    def add(self, target: str, load: Load, metric: str, figure: Figure) -> None:
        self.levels.setdefault(target, {}).setdefault(load, {}).setdefault(metric, figure)


def read(text: str, name: str, source: str) -> list[Series]:
    """Convert the tables of a text to series, at least one; values are those of a published table.

    `name` names the series of a table that names no target, `source` is that of the file.

    Raises:
        ImportFormatError: no table has a column of levels and a metric that is known.
    """
    whole = text[: 1 << 22]
    pp, tg = _only_length("pp", whole), _only_length("tg", whole)
    found = _Targets()
    tables = list(tables_of(whole))
    for table in tables:
        _read_table(table, name, pp, tg, found)
    if not found.levels:
        what = (
            "no table" if not tables else "no table of it has a column of levels (Concurrency) and a metric"
        )
        raise ImportFormatError(f"{what}; metrics are named Decode, Prefill, Output, TTFT, ITL, E2E")
    return [
        part
        for target, levels in found.levels.items()
        for part in by_axis(
            Series(
                name=target,
                levels=tuple(
                    SeriesLevel(load, figures)
                    for load, figures in sorted(levels.items(), key=lambda pair: pair[0].order)
                ),
                source=source,
                tool="pasted table",
                published=True,
            )
        )
    ]


def _only_length(kind: str, text: str) -> int | None:
    """Return the number of tokens that a text names, such as "pp1024"; None for none or several."""
    found = {int(count) for count in re.findall(rf"\b{kind}\s?(\d{{2,6}})\b", text)}
    return found.pop() if len(found) == 1 else None


def tables_of(text: str) -> Iterator[Table]:
    """Yield the tables of a text: Markdown with bars, CSV and tabs, or columns apart by blanks."""
    lines = [
        clean(line.replace("\t", "\x1f"), 4000).replace("\x1f", "\t") if "\t" in line else line
        for line in text.splitlines()
    ]
    start = 0
    while start < len(lines):
        for parse in (_bars, _separated, _blanks):
            end, heads, rows = parse(lines, start)
            if rows:
                above = [one.strip() for one in lines[max(0, start - _TITLE_LINES) : start] if one.strip()]
                yield Table("\n".join(above[-3:]), tuple(heads), tuple(map(tuple, rows[:_MOST_ROWS])))
                start = end
                break
        else:
            start += 1


_Parsed = tuple[int, list[str], list[list[str]]]
_NONE: _Parsed = (0, [], [])


def _bars(lines: Sequence[str], start: int) -> _Parsed:
    if lines[start].count("|") < 1 or start + 1 >= len(lines):
        return _NONE
    if not re.fullmatch(r"\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-+:?\s*)*\|?\s*", lines[start + 1]):
        return _NONE
    end = start + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end, _cells(lines[start]), [_cells(line) for line in lines[start + 2 : end]]


def _cells(line: str) -> list[str]:
    bare = re.sub(r"^\s*\||(?<!\\)\|\s*$", "", line)
    return [_bare(cell) for cell in re.split(r"(?<!\\)\|", bare)][:_MOST_CELLS]


def _bare(cell: str) -> str:
    """Return the text of a cell without emphasis, code marks and damaged dashes."""
    text = cell.replace("â€“", "–").replace("\\|", "|")
    return clean(re.sub(r"[*`_]{2,}|(?<!\w)[*`_]|[*`_](?!\w)", "", text).strip(), 200)


def _separated(lines: Sequence[str], start: int) -> _Parsed:
    """Return a table with commas, semicolons or tabs between its cells."""
    for mark in ("\t", ",", ";"):
        count = lines[start].count(mark)
        if not count or (mark == "," and re.search(r"\d,\d{3}\b", lines[start])):
            continue
        end = start + 1
        while end < len(lines) and lines[end].strip() and mark in lines[end]:
            end += 1
        rows = [row for row in csv.reader(io.StringIO("\n".join(lines[start:end])), delimiter=mark) if row]
        if len(rows) > 1 and len(rows[0]) > 1 and not any(map(_is_number, rows[0][1:])):
            return end, [_bare(one) for one in rows[0]], [[_bare(one) for one in row] for row in rows[1:]]
    return _NONE


def _blanks(lines: Sequence[str], start: int) -> _Parsed:
    """Return a table with blanks between its cells: rows of numbers below a heading with a known axis."""
    words = lines[start].split()
    if not words or _axis(words[0]) is None:
        return _NONE
    end = start + 1
    rows: list[list[str]] = []
    while end < len(lines):
        cells = lines[end].split()
        if len(cells) < _LEAST_ROWS or not all(map(_is_number, [cells[0].lstrip("cC"), *cells[1:]])):
            break
        rows.append(cells)
        end += 1
    if len(rows) < _LEAST_ROWS or len({len(row) for row in rows}) > 1:
        return _NONE
    return end, [words[0], *_names(lines[start], len(rows[0]) - 1)], rows


def _names(line: str, count: int) -> list[str]:
    """Return the names of `count` columns behind the first word of a heading without marks between them."""
    rest = line.strip().partition(" ")[2].strip()
    for parts in (re.split(r"\s{2,}", rest), rest.split()):
        if len(parts) == count:
            return parts
    words = re.findall(r"\S+(?:\s+\([^)]*\))?", rest)
    joined: list[str] = []
    for word in words:  # "Cluster TP=2" is one name
        if joined and "=" in word:
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    if len(joined) > count:  # "2×Solo shuffle 2×Solo least-busy": what occurs twice begins a name
        again = {word for word in joined if joined.count(word) > 1}
        merged: list[str] = []
        for word in joined:
            if merged and merged[-1] in again:
                merged[-1] += f" {word}"
            else:
                merged.append(word)
        joined = merged
    return joined if len(joined) == count else [f"column {number}" for number in range(1, count + 1)]


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[\d][\d,.]*", cell.strip()) is not None


def _axis(head: str) -> LoadKind | None:
    bare = re.sub(r"\(.*\)", "", head).strip().lower()
    return next((kind for kind, pattern in _AXES if pattern.match(bare)), None)


def _metric(head: str) -> str | None:
    """Return the metric that a heading names; None for other columns, and for quantiles."""
    bare = head.lower()
    if _NO_MEAN.search(bare):
        return None
    found = [(match.start(), metric) for pattern, metric in _METRICS if (match := re.search(pattern, bare))]
    first = next((metric for _, metric in found if metric in _NAMED_FIRST), None)
    return first or next((metric for _, metric in sorted(found, key=lambda one: one[0])), None)


def _read_table(table: Table, name: str, pp: int | None, tg: int | None, found: _Targets) -> None:
    heads = [head.lower() for head in table.heads]
    test = next((index for index, head in enumerate(heads) if head in {"test", "test_name"}), None)
    if test is not None:
        _read_tests(table, test, name, found)
        return
    axis = next(
        ((index, kind) for index, head in enumerate(heads) if (kind := _axis(head)) is not None), None
    )
    prompt = next((index for index, head in enumerate(heads) if _PROMPT.match(head)), None)
    output = next((index for index, head in enumerate(heads) if _OUTPUT.match(head)), None)
    if axis is None and prompt is None:
        return
    by_row = next((index for index, head in enumerate(heads) if _TARGETS.match(head)), None)
    metrics = {
        index: metric for index, head in enumerate(table.heads) if (metric := _metric(head)) is not None
    }
    metrics = {
        index: one
        for index, one in metrics.items()
        if index not in {axis and axis[0], prompt, output, by_row}
    }
    titled = _title_metric(table.title)
    for row in table.rows:
        point = _point(row, axis)
        if point is None:
            continue
        load = load_at(point, _count(row, prompt) or pp, _count(row, output) or tg)
        if metrics:
            who = row[by_row] if by_row is not None and by_row < len(row) and row[by_row] else name
            for index, metric in metrics.items():
                _add(found, who, load, metric, row, index, table.heads[index])
        elif titled is not None and axis is not None:
            for index, head in enumerate(table.heads):
                if index != axis[0] and head and not _NO_MEAN.search(head.lower()):
                    _add(found, head, load, titled, row, index, table.title)


def _title_metric(title: str) -> str | None:
    """Return the metric that the nearest line above a table names, of those before it the last."""
    return next(
        (metric for line in reversed(title.splitlines()) if (metric := _metric(line)) is not None), None
    )


def _point(row: Sequence[str], axis: tuple[int, LoadKind] | None) -> LoadPoint | None:
    """Return the level of a row; a table of prompt lengths alone is of one request at a time."""
    if axis is None:
        return concurrency_point(1)
    index, kind = axis
    match = _LEVEL.match(row[index].strip()) if index < len(row) else None
    if match is None:
        return None
    if match[3] is not None or kind is LoadKind.RATE:
        value = finite(float((match[3] or match[1] or match[2]).replace(",", "")))
        return None if not value else LoadPoint(LoadKind.RATE, value)
    count = int((match[1] or match[2]).replace(",", ""))
    return concurrency_point(count) if 1 <= count <= MOST_CONCURRENCY else None


def _count(row: Sequence[str], index: int | None) -> int | None:
    if index is None or index >= len(row):
        return None
    digits = re.sub(r"[^\d]", "", row[index])
    return int(digits) if 0 < len(digits) < 9 else None  # noqa: PLR2004 - no prompt has more tokens


def _add(
    found: _Targets, target: str, load: Load, metric: str, row: Sequence[str], index: int, where: str
) -> None:
    figure = figure_of(row[index], where, is_latency=metric.endswith("_ms")) if index < len(row) else None
    if figure is not None:
        found.add(clean(target, 60), load, metric, figure)


def figure_of(cell: str, head: str = "", *, is_latency: bool = False) -> Figure | None:
    """Return the value of a cell: with its deviation or as a range if it states one; None without a number.

    A latency in seconds, by the unit of the cell or of its heading, becomes milliseconds.
    """
    match = _CELL.match(cell.strip())
    if match is None:
        return None
    unit = match["unit"].strip().lower() or _unit(head)
    scale = 1000.0 if is_latency and unit in {"s", "sec", "seconds"} else 1.0
    low = _number(match["low"])
    high, std = _number(match["high"]), _number(match["std"])
    if low is None:
        return None
    if high is not None and high > low:
        return Figure(scale * (low + high) / 2, span=(scale * low, scale * high))
    return Figure(scale * low, std=None if std is None else scale * std)


def _unit(head: str) -> str:
    units = re.findall(r"\((ms|s|sec|seconds)\)|\b(ms)\b|_(ms|s)\b", head.lower())
    return next((part for one in units for part in one if part), "")


def _number(text: str | None) -> float | None:
    """Return a number with a decimal point or comma, and with commas, points or blanks between thousands."""
    if not text:
        return None
    bare = text.strip().replace(" ", "").rstrip(".,")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", bare):
        bare = bare.replace(",", "")
    bare = bare.replace(",", ".") if bare.count(",") == 1 and "." not in bare else bare.replace(",", "")
    try:
        return finite(float(bare))
    except ValueError:
        return None


def _read_tests(table: Table, test: int, name: str, found: _Targets) -> None:
    """Read a table with rows such as "pp2048 @ d4096 (c4)"; those of the context alone are left out."""
    heads = [head.lower() for head in table.heads]
    model = heads.index("model") if "model" in heads else None
    models = {row[model] for row in table.rows if model is not None and model < len(row)}
    columns = {
        one: next((index for index, head in enumerate(heads) if head in names), None)
        for one, names in {
            "rate": ("t/s (total)", "t/s", "t_s_mean"),
            "peak": ("peak t/s (total)", "peak t/s", "peak_ts_mean"),
            "ttfr": ("ttfr (ms)", "ttfr_mean"),
            "ttft": ("e2e_ttft (ms)", "e2e_ttft_mean"),
        }.items()
    }
    deviations = {one: _std_column(heads, index) for one, index in columns.items()}
    parsed = [
        (match, row) for row in table.rows if test < len(row) and (match := _TEST.match(row[test].strip()))
    ]
    rows = [(match, row) for match, row in parsed if match["context"] is None]
    lengths = _lengths(match for match, _ in rows)
    for match, row in rows:
        who = name if model is None or len(models) < _LEAST_ROWS else row[model]
        pp, tg = lengths[match["kind"], match["tokens"], match["depth"], match["c"]]
        load = Load(int(match["c"] or 1), pp, tg, depth=int(match["depth"] or 0))
        wanted = (
            (("rate", "prefill_tps"), ("ttfr", "ttfr_ms"), ("ttft", "ttft_ms"))
            if match["kind"] == "pp"
            else (("rate", "decode_tps"), ("peak", "peak_tps"))
        )
        for column, metric in wanted:
            index = columns[column]
            figure = None if index is None or index >= len(row) else figure_of(row[index])
            std = deviations[column]
            if figure is not None and std is not None and std < len(row):
                figure = Figure(figure.mean, std=_number(row[std]))
            if figure is not None:
                found.add(clean(who, 60), load, metric, figure)


def _std_column(heads: Sequence[str], index: int | None) -> int | None:
    wanted = "" if index is None else heads[index].replace("_mean", "_std")
    return heads.index(wanted) if wanted.endswith("_std") and wanted in heads else None


_TestKey = tuple[str, str | None, str | None, str | None]


def _lengths(tests: Iterable[re.Match[str]]) -> Mapping[_TestKey, tuple[int | None, int | None]]:
    """Return (prompt tokens, output tokens) by test: those of one prompt and one answer belong together."""
    keys = [(one["kind"], one["tokens"], one["depth"], one["c"]) for one in tests]
    lengths: dict[_TestKey, tuple[int | None, int | None]] = {}
    for key in keys:
        kind, tokens, *where = key
        count = int(tokens) if tokens else None
        others = [one[1] for one in dict.fromkeys(keys) if one[0] != kind and list(one[2:]) == where]
        own = [one[1] for one in dict.fromkeys(keys) if one[0] == kind and list(one[2:]) == where]
        other = int(others[own.index(tokens)] or 0) or None if len(others) == len(own) else None
        if len(others) == 1:
            other = int(others[0] or 0) or None
        lengths[key] = (count, other) if kind == "pp" else (other, count)
    return lengths
