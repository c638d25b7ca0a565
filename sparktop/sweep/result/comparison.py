"""The comparison of a sweep's targets, as stored in the result file under the key "comparison"."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sparktop.model.load import LoadKind, LoadPoint
from sparktop.sweep.result.axis import AxisPart
from sparktop.sweep.result.parts import Count, Finite, Number, Part, Text


class Change(Part):
    """The difference of one target from the baseline target, for one metric under one load."""

    percent: Number = None
    ratio_ci95: tuple[Finite, Finite] | None = None
    significant: bool | None = None
    """Whether the difference is significant at the table's common error rate and beyond the noise floor.
    None for single runs, which allow no test."""


class ComparisonRow(AxisPart):
    """One metric of all targets under one load, and which target is the best."""

    metric: Text
    pp: int | None = None
    """Prompt tokens; None unless a target has several levels of this concurrency."""
    tg: int | None = None
    """Output tokens; None as for `pp`."""
    depth: Count = 0
    """Tokens of context before the prompt."""
    values: dict[Text, Number]
    """Mean of the metric by target."""
    ranges: dict[Text, tuple[Finite, Finite]] = Field(default_factory=dict)
    """(low, high) by target, for values that their source gives as a range; `values` has the middle."""
    winner: Text | None = None
    """The target that is significantly better than every other one; for published tables the best target if
    its lead exceeds rounding. None if there is no such target."""
    winner_vs: Literal["runner-up", "baseline", "table"] | None = None
    """Why `percent` refers to `against`: it is second best, the baseline, or named by a published table."""
    ahead: Text | None = None
    """The target with the best value, significant or not; None for equal values or overlapping ranges."""
    beats: tuple[Text, ...] = ()
    """Targets that are significantly worse than the best one."""
    against: Text | None = None
    """The target that `percent` refers to; in a row with tests but without a winner the best of those that
    `ahead` is not significantly better than."""
    percent: Number = None
    """Difference of the best target from `against`, in percent; negative if lower values are better."""
    ratio_ci95: tuple[Finite, Finite] | None = None
    """95 % confidence interval of the ratio of the best target to `against`."""
    significant: bool | None = None
    """True if the best target is significantly better than every other one; None for single runs."""

    changes: dict[Text, Change] = Field(default_factory=dict)
    """The difference from the baseline of every other target, by target; empty without a baseline."""


class Crossover(Part):
    """Two levels between which the winner in a metric changes, with the winner at each of them."""

    metric: Text
    between: tuple[int | float, int | float]
    load: LoadKind = LoadKind.CONCURRENCY
    """The axis of `between`."""
    from_: Annotated[Text, Field(alias="from", serialization_alias="from")]
    to: Text
    significant: bool | None = None
    """True if both winners are significant; None if a winner comes from a published table, without a test."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @property
    def words(self) -> str:
        """The two levels as text: "c8 and c16"."""
        return " and ".join(LoadPoint(self.load, one).short for one in self.between)


class EnginesLevel(Part):
    """A router's value at one concurrency, and the sum of its engines' values, each measured alone."""

    concurrency: int
    each: int
    """Concurrent requests per engine: `concurrency` / number of engines."""
    bound: Finite
    """Upper bound of the metric for the router: the sum of the engines' values, each measured alone at a
    concurrency of `each`."""
    routed: Number = None
    """The router's own value of the metric."""
    percent: Number = None
    """`routed` in percent of `bound`."""
    significant: bool | None = None
    """Whether `routed` differs from `bound` beyond noise, at an error rate of 5 % for all levels together.
    None for single runs, which allow no test, and in files of older versions."""
    beyond: tuple[Text, ...] = ()
    """Other targets whose value exceeds the bound: no router over these engines can reach it."""


class IndependentEngines(Part):
    """A router's values of a metric, compared with the upper bound that its engines allow at each level.

    The bound is the sum of the values of N engines, each measured alone at 1/N of the concurrency.
    """

    metric: Text
    routed: Text
    """Name of the router's series."""
    alone: tuple[Text, ...]
    """Name of the series of each engine behind the router; the bound is the sum of these series."""
    levels: tuple[EnginesLevel, ...]


class CapacityComparison(Part):
    """The answers of capacity searches beside one another."""

    load: LoadKind
    conditions: tuple[Text, ...]
    alike: bool
    """False if the searches differ in load or conditions, so that their answers cannot be compared."""
    holds: dict[Text, Number]
    """The largest load under which the conditions hold, by target."""
    ranges: dict[Text, tuple[Number, Number]]
    """(Smallest, largest) answer within the 95 % interval by target; None for a largest that is not known."""
    takes_more: Text | None = None
    """The target whose interval lies above those of all others; None if no difference is shown."""


class ComparisonResult(Part):
    """The comparison of all targets of a sweep, or of several series."""

    baseline: Text | None = None
    """Name of the target that all others are compared with; None if none was selected."""
    rows: tuple[ComparisonRow, ...] = ()
    crossovers: tuple[Crossover, ...] = ()
    notes: tuple[Text, ...] = ()
    definitions: dict[Text, dict[Text, Text]] = Field(default_factory=dict)
    """Definition by metric, then by series, for metrics that a source defines in its own way."""
    noise_floor_percent: dict[Text, float] = Field(default_factory=dict)
    """By metric: differences up to this many percent count as noise, even if significant."""
    error_rate_percent: Number = None
    """Maximum percentage of tables of equal targets in which a winner is named by chance.

    None in files of older versions, in which each row was tested separately."""
    independent_engines: tuple[IndependentEngines, ...] = ()

    def row(self, metric: str, point: LoadPoint, pp: int | None, depth: int = 0) -> ComparisonRow | None:
        """Return the row of a metric under a load with `pp` prompt tokens; None if there is no such row."""
        return next(
            (
                one
                for one in self.rows
                if (one.metric, one.point, one.depth) == (metric, point, depth) and one.pp in {None, pp}
            ),
            None,
        )

    capacity: CapacityComparison | None = None
    """The answers of capacity searches; None unless at least two of the series have one."""
