"""The families of a page split into lanes, and a table of names read from them lane by lane."""

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
"""Data-parallel ranks read from one page."""
_MAX_MODELS = 64
_EMPTY: Family = {}

START = "process_start_time_seconds"
"""The name under which prometheus_client tells when the process started."""

Fields: TypeAlias = Sequence[tuple[str, tuple[str, ...], Reading]]
"""Field of `LaneSample`, the names it may have, and how one lane's samples become it. The first name that
stands on the page is taken, whatever its value. A field that stands here twice is read the second way in
lanes where the first names are missing."""
Histograms: TypeAlias = Sequence[tuple[str, tuple[str, ...]]]
"""Field of `LaneSample` and the names that its histogram may have."""


def names_of(fields: Fields, histograms: Histograms, *others: str) -> frozenset[str]:
    """Give every name that the tables read, as it stands on a page."""
    parts = ("bucket", "sum", "count")
    return frozenset(
        {*others}
        | {name for _, names, _ in fields for name in names}
        | {f"{name}_{part}" for _, names in histograms for name in names for part in parts}
    )


class LanePage:
    """The families of one page; collects the model names that it meets on the way."""

    def __init__(
        self,
        families: Mapping[str, Family],
        *,
        lane_label: str | None = None,
        model_label: str = "model_name",
        keep: Callable[[Family], Family] | None = None,
    ) -> None:
        """Split by `lane_label` (None: one lane, "0"); `keep` chooses among the samples of one lane."""
        self.families = families
        self.models: set[str] = set()
        self._lane_label = lane_label
        self._model_label = model_label
        self._keep = keep
        self._lane_names: dict[str, str] = {}

    def present(self, names: Iterable[str]) -> str | None:
        """Give the first of `names` that stands on the page."""
        return next((name for name in names if name in self.families), None)

    def lanes(self, name: str | None) -> dict[str, Family]:
        """Give the samples of one name by lane."""
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
        """Give what the tables find, by lane and field."""
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
        """Give the model names met so far, cleaned and sorted."""
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
    """Sort ranks as numbers, anything else behind them."""
    rank = lane.isascii() and lane.isdigit()
    return (not rank, int(lane) if rank else 0, lane)
