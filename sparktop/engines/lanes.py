"""Splits a page's samples by lane and reads the fields of each lane, as tables describe them.

A lane is an engine core (data-parallel rank) of a server. Each engine's module has the two tables: one of
fields and one of histograms, with the metric names for each.

A counter that is negative, infinite or NaN is unknown (None), and so is any sum that includes such a counter.
A share outside 0 to 1 and the value of a metric without samples are unknown too. What is out of range stands
in `Page.impossible`, but for NaN and -1 (V0 where prefix caching is off), by which engines say "unknown".
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from operator import add, itemgetter, le
from typing import Any, TypeAlias, TypeVar

from sparktop.engines.exposition import Family, Labels, Page, PageError, Places, number, without
from sparktop.model.engine import UNKNOWN_REASON, Histogram
from sparktop.model.failure import FailureKind
from sparktop.model.plain import LARGEST
from sparktop.model.text import clean

LaneReduction: TypeAlias = Callable[[Family], object]
"""Reduces the samples of a metric name in one engine core (lane) to the value of a `LaneSample` field."""

_T = TypeVar("_T")
_MAX_REASONS = 32
"""Most reasons for which requests finished that are kept."""
_TOLERANCE = 5e-3
"""A share may be this much below 0 or above 1: engines count used and free blocks at different times."""


def total(family: Family) -> float | None:
    """Return the sum of a counter's samples; None when one of them is invalid or there are no samples."""
    sum_added = 0.0
    for value in family.values():
        if not 0 <= value < math.inf:
            return None
        sum_added += value
    return sum_added if family else None


def total_or_none(family: Family) -> float | None:
    """Return the sum of a counter's samples, or None if it is invalid or 0.

    A server without the counted feature reports 0.
    """
    return total(family) or None


def scaled_total(factor: float) -> Callable[[Family], float | None]:
    """Return a function that sums a counter's samples and multiplies the sum by `factor`."""

    def read(family: Family) -> float | None:
        added = total(family)
        return None if added is None else factor * added

    return read


def requests(family: Family) -> float | None:
    """Return the sum of a gauge that counts requests over its samples; None if a sample is invalid.

    If samples differ only in the label `pid`, they are the same gauge reported by several processes, and only
    the highest is counted.
    """
    added = total(family)
    if len(family) <= 1 or added is None:
        return added
    highest: Family = {}
    for labels, value in family.items():
        key = without(labels, "pid")
        highest[key] = max(value, highest.get(key, 0.0))
    return sum(highest.values())


def share(family: Family) -> float | None:
    """Return the highest of a gauge's values, which are fractions, in percent (0 to 100).

    None if a value is outside 0 to 1, or if there are no samples.
    """
    if not all(-_TOLERANCE <= value <= 1 + _TOLERANCE for value in family.values()):
        return None
    return min(max(0.0, *family.values()), 1.0) * 100 if family else None


def share_or_none(family: Family) -> float | None:
    """Return the highest of a gauge's values in percent, or None if it is invalid or 0.

    A server without the measured feature reports 0.
    """
    return share(family) or None


def finished_by_reason(family: Family) -> Mapping[str, float]:
    """Return the number of finished requests by reason; reasons with an invalid count are left out."""
    by_reason: dict[str, Family] = {}
    for labels, value in family.items():
        reason = label(labels, "finished_reason") or UNKNOWN_REASON
        if reason in by_reason or len(by_reason) < _MAX_REASONS:
            by_reason.setdefault(reason, {})[labels] = value
    totals = {clean(reason, 40): total(part) for reason, part in sorted(by_reason.items())}
    return {reason: count for reason, count in totals.items() if count is not None}


def of_label(
    name: str, *values: str | None, combine: Callable[[Family], float | None]
) -> Callable[[Family], float | None]:
    """Return a function that applies `combine` to the samples whose label `name` is one of `values`.

    A None in `values` selects the samples without this label.
    """
    return lambda family: combine(where(family, name, *values))


def bind_places(combine: LaneReduction, places: Places) -> Callable[[Sequence[float]], Any]:
    """Return a function that applies `combine` to the values of a page that have these indices."""
    if len(places) == 1:  # as most have
        ((only_labels, only_index),) = places.items()
        return lambda values: combine({only_labels: values[only_index]})
    return lambda values: combine({labels: values[index] for labels, index in places.items()})


def where(family: Mapping[Labels, _T], name: str, *values: str | None) -> dict[Labels, _T]:
    """Return the samples whose label `name` is one of `values`; None selects samples without this label."""
    return {labels: value for labels, value in family.items() if label(labels, name) in values}


def label(labels: Labels, wanted: str) -> str | None:
    """Return the value of the label `wanted`; None when the label is absent."""
    for name, value in labels:
        if name == wanted:
            return value
    return None


def positive_number(text: str | None) -> float | None:
    """Parse a finite number above 0; None for other text."""
    value = number(text or "")
    return value if 0 < value < math.inf else None


def lane_label(page: Page, usual_label: str) -> str:
    """Return the label that separates the lanes of a page: that of its servers; of one, `usual_label`.

    A page has several servers where one program writes the pages of many.
    """
    every = [labels for places in page.places.values() for labels in places]
    for name in SERVER_LABELS:
        servers = {label(labels, name) for labels in every} - {None}
        if len(servers) > 1:
            return name
        if servers and name in REPLICA_LABELS:  # one replica: its other labels differ for other reasons
            break
    return usual_label


def start_time(family: Family) -> float | None:
    """Return the earliest process start (Unix time) among the samples; None when no sample is valid."""
    start_times = [value for value in family.values() if 0 < value < math.inf]
    return min(start_times, default=None)


REPLICA_LABELS = ("ReplicaId", "WorkerId")
"""The labels by which the replicas on a page of Ray differ; the first that they have counts."""
SERVER_LABELS = (*REPLICA_LABELS, "instance", "exported_instance", "service_instance_id", "pod")
"""Labels by which servers on one page differ: of Ray, of an OpenTelemetry collector and of a federation."""
MAX_LANES = 512
"""Upper limit of lanes in one page; a page with more is rejected."""
_MAX_MODELS = 64
"""Most names of models that are kept of a page."""
_EMPTY: Places = {}

START = "process_start_time_seconds"
"""The name under which prometheus_client reports the start of the process (Unix time)."""
CPU = "process_cpu_seconds_total"
"""The name under which prometheus_client reports the CPU time of the process."""

Keep: TypeAlias = Callable[[Places], Places]
"""Selects which samples of one metric and lane are read, by their labels alone."""
Fields: TypeAlias = Sequence[tuple[str, tuple[str, ...], LaneReduction]]
"""(field of `LaneSample`, metric names that it may have, function from the samples of a lane to the field's
value). The first name that is on the page is read, whatever its value. A field may be listed twice: the
second entry then fills the lanes in which the first entry found no samples."""
Histograms: TypeAlias = Sequence[tuple[str, tuple[str, ...]]]
"""(field of `LaneSample`, metric names that its histogram may have); the first name on the page is read."""
_Cell: TypeAlias = tuple[str, str, str, Callable[[Sequence[float]], object]]
"""(lane, field, its metric, function from the values of a page to the field's value)."""


def names_of(fields: Fields, histograms: Histograms, *other_names: str) -> frozenset[str]:
    """Return all metric names to read from a page: those in both tables, and those in `other_names`.

    For a histogram, these are the names of its three metrics, which end in _bucket, _sum and _count.
    """
    parts = ("bucket", "sum", "count")
    return frozenset(
        {*other_names}
        | {name for _, names, _ in fields for name in names}
        | {f"{name}_{part}" for _, names in histograms for name in names for part in parts}
    )


class LanePage:
    """The samples of one page, by lane (engine core), and the model names found while reading."""

    def __init__(
        self,
        families: Page,
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
        self.families = families
        self.models: set[str] = set()
        self._lane_label = lane_label
        self._model_label = model_label
        self._keep = keep
        self._lane_names: dict[str, str] = {}

    def first_present(self, names: Iterable[str]) -> str | None:
        """Return the first of the metric `names` that is on the page, or None if none is on it."""
        return next((name for name in names if name in self.families), None)

    def lanes(self, name: str) -> dict[str, Places]:
        """Return the samples of the metric `name` by lane (engine core), as indices of their values.

        Return {} if `name` is not on the page.
        """
        split: dict[str, dict[Labels, int]] = {}
        for labels, index in self.families.places.get(name, _EMPTY).items():
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
        page = self.families
        models, cells = page.get_or_make(
            ("fields", fields, histograms), lambda: self._plan_reading(fields, histograms)
        )
        self.models |= models
        fields_by_lane: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for lane, field, metric, read in cells:
            value = fields_by_lane[lane][field] = read(page.values_read)
            if value is None and metric in page:
                most = 1 + _TOLERANCE if field.endswith("_percent") else LARGEST
                for number in page[metric].values():
                    if number > most or (number < -_TOLERANCE and number != -1):
                        page.impossible[metric] = number
        return fields_by_lane

    def _plan_reading(self, fields: Fields, histograms: Histograms) -> tuple[frozenset[str], list[_Cell]]:
        """Return the models' names, and how the fields of each lane are computed from a page's values."""
        cells: dict[tuple[str, str], tuple[str, Callable[[Sequence[float]], object]]] = {}
        for field, names, combine in fields:
            metric = self.first_present(names) or ""
            for lane, places in self.lanes(metric).items():
                cells.setdefault((lane, field), (metric, bind_places(combine, places)))
        for field, names in histograms:
            # A summary has no buckets: its mean is known all the same.
            base = self.first_present(f"{name}_{part}" for part in ("bucket", "count") for name in names)
            if base is not None:
                name = base.rpartition("_")[0]
                buckets, sums, counts = (self.lanes(f"{name}_{part}") for part in ("bucket", "sum", "count"))
                for lane in buckets if base.endswith("bucket") else counts:
                    parts = (part.get(lane, _EMPTY) for part in (buckets, sums, counts))
                    cells[lane, field] = base, HistogramReader(*parts).read
        return frozenset(self.models), [(*place, *read) for place, read in cells.items()]

    def note_models(self, name: str) -> None:
        """Add the models that the labels of the metric `name` have to `model_names`."""
        self.lanes(name)

    def model_names(self) -> tuple[str, ...]:
        """Return the model names found so far, cleaned and sorted."""
        return self.families.get_or_make(
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


def lane_order(lane: str) -> tuple[bool, int, str]:
    """Return a sort key for the names of lanes (engine cores): ascending numbers, then other names."""
    rank = lane.isascii() and lane.isdigit()
    return (not rank, int(lane) if rank else 0, lane)


MOST_BUCKETS = 512
"""A histogram with more is unknown: no engine has as many, and each is kept for every sample of a window."""
_KEPT_LABELS = 4096
"""Labels of buckets whose bounds are cached between pages, because the next page of a server has the same."""


class HistogramReader:
    """Reads one histogram from a page's values: the sum of all series of a metric (one per model or process).

    Where its samples stand, and whether their bounds fit together, follows from their labels and is found
    once.
    """

    def __init__(self, buckets: Places, sums: Places, counts: Places) -> None:
        """Prepare to read the samples with these indices in the page's values."""
        self._bounds: tuple[float, ...] = ()
        self._series: list[tuple[Callable[[Sequence[float]], tuple[float, ...]], int]] = []
        """For each series: a function that returns its cumulative counts, and the index of its sum."""
        series = _by_series(buckets) if buckets else {labels: {} for labels in counts}
        for labels, count_by_bound in (series or {}).items():
            if math.inf not in count_by_bound and labels in counts:
                count_by_bound[math.inf] = counts[labels]
            bounds = tuple(sorted(count_by_bound))
            fits = (
                len(bounds) <= MOST_BUCKETS
                and bounds[-1] == math.inf
                and labels in sums
                and bounds == (self._bounds or bounds)
            )
            if not fits:
                self._series.clear()
                return
            self._bounds = bounds
            self._series.append((_values_getter([count_by_bound[bound] for bound in bounds]), sums[labels]))

    def read(self, values: Sequence[float]) -> Histogram | None:
        """Return the histogram at these values of the page.

        Return None if it would be wrong: if bounds are missing, not numbers or repeated; if cumulative counts
        are negative, infinite or falling; if a sum is missing or negative; or if the series have different
        bounds, or too many. A missing `+Inf` bucket is filled from the count.
        """
        totals: tuple[float, ...] | None = None
        total = 0.0
        for counts_in, sum_at in self._series:
            cumulative, sum_of_values = counts_in(values), values[sum_at]
            if not (_is_cumulative(cumulative) and 0 <= sum_of_values < math.inf):
                return None
            totals = cumulative if totals is None else tuple(map(add, totals, cumulative))
            total += sum_of_values
        return None if totals is None else Histogram(self._bounds, totals, total)


def _values_getter(indices: Sequence[int]) -> Callable[[Sequence[float]], tuple[float, ...]]:
    """Return a function that returns the values with these indices as a tuple, also of a single one."""
    start = indices[0]
    return itemgetter(*indices) if len(indices) > 1 else lambda values: (values[start],)


def _by_series(buckets: Places) -> dict[Labels, dict[float, int]] | None:
    """Group buckets by their labels without `le`; return {other labels: {bound: index of the value}}.

    None if a bound is not a number or is repeated.
    """
    series: dict[Labels, dict[float, int]] = {}
    for labels, index in buckets.items():
        other_labels, bound = _kept_split(labels)
        index_by_bound = series.setdefault(other_labels, {})
        if not bound > -math.inf or bound in index_by_bound:
            return None
        index_by_bound[bound] = index
    return series


def _split_bound(labels: Labels) -> tuple[Labels, float]:
    """Return (labels without `le`, bound in `le`); the bound is NaN if it is missing or not a number."""
    bound = math.nan
    other_labels = []
    for label in labels:
        if label[0] == "le":
            bound = number(label[1])
        else:
            other_labels.append(label)
    return tuple(other_labels), bound


_kept_split = lru_cache(_KEPT_LABELS)(_split_bound)


def _is_cumulative(cumulative: Sequence[float]) -> bool:
    """Return whether the counts are cumulative: finite, at least 0, never falling (False for NaN)."""
    next_counts = iter(cumulative)
    next(next_counts)
    return cumulative[0] >= 0 and cumulative[-1] < math.inf and all(map(le, cumulative, next_counts))


# Reads metrics that only some servers report: moved KV caches, LoRA adapters, refusals, HTTP errors.
#
# The tables say which metric names hold each entry of `LaneSample.counts` and `LaneSample.gauges`. Details:
#
# * `http_requests_total` is that of prometheus-fastapi-instrumentator, which most servers with FastAPI use.
#   It is counted when an answer ends. Only POST is read: GET requests are those of monitors.
# * A worker of Dynamo writes its own `dynamo_component_*` beside its engine's names; the label
#   `dynamo_component` is its role.
# * Without the feature, these names are absent, so that its metrics stay unknown. Counters that every page
#   has, used or not, are read as unknown while they are 0.


Extras: TypeAlias = Sequence[tuple[str, tuple[str, ...], Callable[[Family], float | None]]]
"""(key in `counts` or `gauges`, metric names, function from the samples of a lane to the value). The values
of all the names that are on the page are added up."""

OLDER = "|older"
"""End of a key whose value counts only if the page has none under the key without it: newer versions report
both."""
_HTTP = {"http_requests_total": "status", "sglang:http_responses_total": "status_code"}
"""Counters of HTTP answers, each with its label of the status."""


DYNAMO_IN_FLIGHT = "dynamo_component_inflight_requests"
_SHARED_COUNTS: Extras = (("worker_errors", ("dynamo_component_errors_total",), total),)
"""Counters that may stand on the page of any engine."""
_SHARED_GAUGES: Extras = (
    ("in_flight", (DYNAMO_IN_FLIGHT,), of_label("dynamo_endpoint", "generate", combine=requests)),
)
"""Gauges that may stand on the page of any engine."""


class ExtraReader:
    """Reads the counters and gauges of two tables, and the HTTP server's answers, from metrics pages."""

    def __init__(self, counts: Extras = (), gauges: Extras = ()) -> None:
        """Prepare to fill `LaneSample.counts` from the table `counts`, and `LaneSample.gauges` likewise.

        What may stand on the page of any engine is read, too.
        """
        self._rows: dict[str, list[tuple[str, str, Callable[[Family], float | None]]]] = {
            name: [] for name in _HTTP
        }
        tables = (("counts", (*_SHARED_COUNTS, *counts)), ("gauges", (*_SHARED_GAUGES, *gauges)))
        for field, table in tables:
            for key, names, combine in table:
                for name in names:
                    self._rows.setdefault(name, []).append((field, key, combine))
        self.names = frozenset(self._rows)
        """Every metric name that is read here."""

    def add(
        self,
        page: Page,
        lanes: Mapping[str, dict[str, Any]],
        lane_label: str | None = None,
        keep: Keep | None = None,
    ) -> None:
        """Add what a page reports to the fields of each lane (engine core); `lanes` has these by lane.

        A sample without a lane's label, such as one of the HTTP server, belongs to the first lane. The last
        two arguments are those of `LanePage`.
        """
        plan = page.get_or_make(
            ("extras", id(self), *lanes), lambda: self._plan_reading(page, lanes, lane_label, keep)
        )
        values_by_field: dict[tuple[str, str], dict[str, float]] = {}
        for lane, field, key, read in plan:
            value = read(page.values_read)
            if isinstance(value, dict):
                values_by_field.setdefault((lane, field), {}).update(value)
            elif value is not None:
                values = values_by_field.setdefault((lane, field), {})
                values[key] = values.get(key, 0.0) + value
        for (lane, field), values in values_by_field.items():
            if field == "counts":
                _merge_older_names(values)
            lanes[lane][field] = values

    def _plan_reading(
        self, page: Page, lanes: Mapping[str, dict[str, Any]], lane_label: str | None, keep: Keep | None
    ) -> list[tuple[str, str, str, Callable[[Sequence[float]], Any]]]:
        """Return (lane, field, key, function from the page's values) for each entry that is on the page."""
        plan: list[tuple[str, str, str, Callable[[Sequence[float]], Any]]] = []
        split = LanePage(page, lane_label=lane_label, model_label="", keep=keep)
        if not lanes:
            return plan
        first_lane = min(lanes, key=lane_order)
        for name in self._rows:
            if name in _HTTP and name in page:
                counts = partial(_http_counts, status=_HTTP[name])
                plan.append((first_lane, "counts", "", bind_places(counts, page.places[name])))
            elif name in page:
                plan += [
                    (lane if lane in lanes else first_lane, field, key, bind_places(combine, places))
                    for lane, places in split.lanes(name).items()
                    for field, key, combine in self._rows[name]
                ]
        return plan


def _merge_older_names(counts: dict[str, float]) -> None:
    """Move each count under an older name to its key, unless the page has one there."""
    for key in [key for key in counts if key.endswith(OLDER)]:
        counts.setdefault(key.removesuffix(OLDER), counts.pop(key))


_ANSWERS_BY_ROUTE = {
    "responses": ("/responses",),
    "http_generated": ("/completions", "/responses", "/messages", "/generate"),
}
"""Counts of answers without an error, and the ends of their routes: the Responses API; all that generate."""


def _http_counts(family: Family, status: str = "status") -> dict[str, float]:
    """Return the numbers of answers to POST requests: all, and those with an error in their label `status`.

    Answers without an error are counted by route too (`_ANSWERS_BY_ROUTE`). Return {} if one of them is not
    valid.
    """
    if not family:
        return {}
    answers = dict.fromkeys(("http_answers", "http_4xx", "http_5xx", "http_errors"), 0.0)
    for labels, value in where(family, "method", "POST").items():
        kind = (label(labels, status) or "")[:1]
        if not (kind and 0 <= value < math.inf):
            return {}
        answers["http_answers"] += value
        if kind in "45":
            answers[f"http_{kind}xx"] += value
            answers["http_errors"] += value
            continue
        route = label(labels, "handler") or label(labels, "endpoint") or ""
        for key, ends in _ANSWERS_BY_ROUTE.items():
            if value and route.endswith(ends):
                answers[key] = answers.get(key, 0.0) + value
    return answers


def dynamo_role(families: Mapping[str, Family]) -> str | None:
    """Return the role of a Dynamo worker: "prefill", "decode" or its component's clean name.

    None if the page is not one of a Dynamo worker, or names several components.
    """
    if DYNAMO_IN_FLIGHT not in families:
        return None
    components = {label(labels, "dynamo_component") or "" for labels in families[DYNAMO_IN_FLIGHT]} - {""}
    if len(components) != 1:
        return None
    (component,) = components
    roles = (role for role in ("prefill", "decode") if role in component.lower())
    return next(roles, None) or clean(component, 40) or None
