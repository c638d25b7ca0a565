"""Splits a page's samples by lane and reads the fields of each lane, as tables describe them.

A lane is an engine core (data-parallel rank) of a server. Each engine's module has the two tables: one of
fields and one of histograms, with the metric names for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from msgspec import Struct

from sparktop.engines.error import PageError
from sparktop.engines.exposition import Family, Labels, Page, Places
from sparktop.engines.figures import Reading, bound
from sparktop.engines.histogram import HistogramReader
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

MAX_LANES = 512
"""Upper limit of lanes in one page; a page with more is rejected."""
_MAX_MODELS = 64
_EMPTY: Places = {}

START = "process_start_time_seconds"
"""The name under which prometheus_client reports the start of the process (Unix time)."""
CPU = "process_cpu_seconds_total"
"""The name under which prometheus_client reports the CPU time of the process."""

Keep: TypeAlias = Callable[[Places], Places]
"""Selects which samples of one metric and lane are read, by their labels alone."""
Fields: TypeAlias = Sequence[tuple[str, tuple[str, ...], Reading]]
"""(field of `LaneSample`, metric names that it may have, function from the samples of a lane to the field's
value). The first name that is on the page is read, whatever its value. A field may be listed twice: the
second entry then fills the lanes in which the first entry found no samples."""
Histograms: TypeAlias = Sequence[tuple[str, tuple[str, ...]]]
"""(field of `LaneSample`, metric names that its histogram may have); the first name on the page is read."""


def names_of(fields: Fields, histograms: Histograms, *others: str) -> frozenset[str]:
    """Return all metric names to read from a page: those in both tables, and those in `others`.

    For a histogram, these are the names of its three metrics, which end in _bucket, _sum and _count.
    """
    parts = ("bucket", "sum", "count")
    return frozenset(
        {*others}
        | {name for _, names, _ in fields for name in names}
        | {f"{name}_{part}" for _, names in histograms for name in names for part in parts}
    )


class LanePage:
    """The samples of one page, by lane (engine core), and the model names found while reading."""

    def __init__(
        self,
        families: Mapping[str, Family],
        *,
        lane_label: str | None = None,
        model_label: str = "model_name",
        keep: Keep | None = None,
    ) -> None:
        """Prepare to split the samples by the label `lane_label` (None: all belong to one lane, "0").

        `model_label` is the label that holds the model's name. `keep` selects which samples of a lane are
        read, by their labels alone: it is called with the samples of one metric and lane, and returns some of
        them (None: read all).
        """
        self.families = Page.of(families)
        self.models: set[str] = set()
        self._lane_label = lane_label
        self._model_label = model_label
        self._keep = keep
        self._lane_names: dict[str, str] = {}

    def present(self, names: Iterable[str]) -> str | None:
        """Return the first of the metric `names` that is on the page, or None if none is on it."""
        return next((name for name in names if name in self.families), None)

    def lanes(self, name: str | None) -> dict[str, Places]:
        """Return the samples of the metric `name` by lane (engine core), as indices of their values.

        Return {} if `name` is None or not on the page.
        """
        split: dict[str, dict[Labels, int]] = {}
        for labels, index in self.families.places.get(name or "", _EMPTY).items():
            lane = ""
            for label, text in labels:
                if label == self._lane_label:
                    lane = text
                elif label == self._model_label and len(self.models) < _MAX_MODELS:
                    self.models.add(text)
            split.setdefault(self._lane_name(lane), {})[labels] = index
        keep = self._keep
        return {lane: keep(places) if keep else places for lane, places in split.items()}

    def read(self, fields: Fields, histograms: Histograms) -> defaultdict[str, dict[str, Any]]:
        """Return {lane (engine core): {field of `LaneSample`: value}} for all fields in the two tables.

        A field whose metric is not on the page is absent.
        """
        page, key = self.families, ("fields", id(fields), id(histograms))
        plan = page.kept(key, lambda: self._plan(fields, histograms))
        self.models |= plan.models
        return page.own(key, lambda: _LaneFields(plan)).read(page)

    def _plan(self, fields: Fields, histograms: Histograms) -> _Plan:
        """Return where on the page the fields of each lane are."""
        plan = _Plan((fields, histograms))
        taken: set[tuple[str, str]] = set()
        for field, names, combine in fields:
            name = self.present(names)
            for lane, places in self.lanes(name).items():
                if (lane, field) not in taken:
                    taken.add((lane, field))
                    plan.add(_Cell(lane, field, bound(combine, places)), name)
        for field, names in histograms:
            base = self.present(f"{name}_bucket" for name in names)
            if base is not None:
                parts = [base.removesuffix("bucket") + part for part in ("bucket", "sum", "count")]
                buckets, sums, counts = map(self.lanes, parts)
                for lane, places in buckets.items():
                    reader = HistogramReader(places, sums.get(lane, _EMPTY), counts.get(lane, _EMPTY))
                    plan.add(_Cell(lane, field, reader.read), *parts)
        plan.models = frozenset(self.models)
        return plan

    def model_names(self) -> tuple[str, ...]:
        """Return the model names found so far, cleaned and sorted."""
        return self.families.kept(
            ("models", *sorted(self.models)),
            lambda: tuple(sorted({clean(model) for model in self.models} - {""})),
        )

    def _lane_name(self, text: str) -> str:
        name = self._lane_names.get(text)
        if name is None:
            name = self._lane_names[text] = clean(text, 40) or "0"
            if len(self._lane_names) > MAX_LANES:
                message = f"a metrics page of more than {MAX_LANES} engines"
                raise PageError(FailureKind.TOO_LARGE, message)
        return name


class _Cell(Struct, frozen=True, eq=False):
    """How a field of one lane is computed from the values of a page."""

    lane: str
    field: str
    read: Callable[[Sequence[float]], object]


class _Plan:
    """Where on a page the fields of its lanes are: what follows from names and labels alone."""

    def __init__(self, tables: object) -> None:
        """Start without fields; `tables` are kept, because their identity names the plan."""
        self.tables = tables
        self.cells: dict[str, list[_Cell]] = {}
        """Fields to compute when a value of a metric has changed, by metric name."""
        self.models: frozenset[str] = frozenset()

    def add(self, cell: _Cell, *names: str | None) -> None:
        """Add a field that is computed from the metrics `names`."""
        for name in names:
            self.cells.setdefault(name or "", []).append(cell)


class _LaneFields:
    """The fields of the lanes of one server's newest page."""

    def __init__(self, plan: _Plan) -> None:
        """Start without values."""
        self._plan = plan
        self._turn = 0
        self._found: dict[str, dict[str, Any]] = {
            cell.lane: {} for cells in plan.cells.values() for cell in cells
        }

    def read(self, page: Page) -> defaultdict[str, dict[str, Any]]:
        """Return the fields of each lane; compute those again whose metrics have changed."""
        cells, values = self._plan.cells, page.values_read
        changed = cells.keys() & page.changed_since(self._turn)
        for cell in set(chain.from_iterable(map(cells.__getitem__, changed))):
            self._found[cell.lane][cell.field] = cell.read(values)
        self._turn = page.turn
        return defaultdict(dict, {lane: dict(fields) for lane, fields in self._found.items()})


def lane_order(lane: str) -> tuple[bool, int, str]:
    """Return a sort key for the names of lanes (engine cores): ascending numbers, then other names."""
    rank = lane.isascii() and lane.isdigit()
    return (not rank, int(lane) if rank else 0, lane)
