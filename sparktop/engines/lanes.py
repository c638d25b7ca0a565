"""Splits a page's samples by lane and reads the fields of each lane, as tables describe them.

A lane is an engine core (data-parallel rank) of a server. Each engine's module has the two tables: one of
fields and one of histograms, with the metric names for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sparktop.engines.error import PageError
from sparktop.engines.exposition import Family
from sparktop.engines.figures import Reading
from sparktop.engines.histogram import read_histogram
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

MAX_LANES = 512
"""Upper limit of lanes in one page; a page with more is rejected."""
_MAX_MODELS = 64
_EMPTY: Family = {}

START = "process_start_time_seconds"
"""The name under which prometheus_client reports the start of the process (Unix time)."""
CPU = "process_cpu_seconds_total"
"""The name under which prometheus_client reports the CPU time of the process."""

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
        keep: Callable[[Family], Family] | None = None,
    ) -> None:
        """Prepare to split the samples by the label `lane_label` (None: all belong to one lane, "0").

        `model_label` is the label that holds the model's name. `keep` selects which samples of a lane are
        read: it is called with the samples of one metric and lane, and returns some of them (None: read all).
        """
        self.families = families
        self.models: set[str] = set()
        self._lane_label = lane_label
        self._model_label = model_label
        self._keep = keep
        self._lane_names: dict[str, str] = {}

    def present(self, names: Iterable[str]) -> str | None:
        """Return the first of the metric `names` that is on the page, or None if none is on it."""
        return next((name for name in names if name in self.families), None)

    def lanes(self, name: str | None) -> dict[str, Family]:
        """Return the samples of the metric `name` by lane (engine core).

        Return {} if `name` is None or not on the page.
        """
        split: dict[str, Family] = {}
        for labels, value in self.families.get(name or "", _EMPTY).items():
            lane = ""
            for label, text in labels:
                if label == self._lane_label:
                    lane = text
                elif label == self._model_label and len(self.models) < _MAX_MODELS:
                    self.models.add(text)
            split.setdefault(self._lane_name(lane), {})[labels] = value
        return {lane: self._keep(family) for lane, family in split.items()} if self._keep else split

    def read(self, fields: Fields, histograms: Histograms) -> defaultdict[str, dict[str, Any]]:
        """Return {lane (engine core): {field of `LaneSample`: value}} for all fields in the two tables.

        A field whose metric is not on the page is absent.
        """
        found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for field, names, combine in fields:
            for lane, family in self.lanes(self.present(names)).items():
                if field not in found[lane]:
                    found[lane][field] = combine(family)
        for field, names in histograms:
            base = self.present(f"{name}_bucket" for name in names)
            if base is not None:
                base = base.removesuffix("_bucket")
                sums, counts = self.lanes(f"{base}_sum"), self.lanes(f"{base}_count")
                for lane, buckets in self.lanes(f"{base}_bucket").items():
                    found[lane][field] = read_histogram(
                        buckets, sums.get(lane, _EMPTY), counts.get(lane, _EMPTY)
                    )
        return found

    def model_names(self) -> tuple[str, ...]:
        """Return the model names found so far, cleaned and sorted."""
        return tuple(sorted({clean(model) for model in self.models} - {""}))

    def _lane_name(self, text: str) -> str:
        name = self._lane_names.get(text)
        if name is None:
            name = self._lane_names[text] = clean(text, 40) or "0"
            if len(self._lane_names) > MAX_LANES:
                message = f"a metrics page of more than {MAX_LANES} engines"
                raise PageError(FailureKind.TOO_LARGE, message)
        return name


def lane_order(lane: str) -> tuple[bool, int, str]:
    """Return a sort key for the names of lanes (engine cores): ascending numbers, then other names."""
    rank = lane.isascii() and lane.isdigit()
    return (not rank, int(lane) if rank else 0, lane)
