"""Metrics of sweeps (load tests) side by side: curves, compared targets, and changes between results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct, field

from sparktop.model.judgement import NO_DIFFERENCE
from sparktop.model.load import LoadPoint, OnAxis

NOT_CERTAIN = "not certain"
"""The verdict on a difference whose 95 % interval excludes 0, but which is not significant among all rows of
its table."""
WITHIN_NOISE = "within noise"
"""The verdict on a difference whose 95 % interval excludes 0, but which is too small to count."""
_K = 1024


def several_lengths(prompt_tokens: Iterable[int | None]) -> bool:
    """Return whether prompt lengths differ between levels; names of levels must then state the length."""
    return len(set(prompt_tokens)) > 1


def level_name(
    point: LoadPoint, prompt_tokens: int | None, *, lengths: bool, wide: bool = False, depth: int = 0
) -> str:
    """Return the short name of a level, such as "c64" for 64 requests at once.

    With `lengths` the prompt length in tokens is appended: "c64/1024", or "c64/–" for None. With `wide` the
    point has its unit: "c = 64". A `depth` in tokens is appended: "c64@4k", with `wide` "c = 64 @ 4,096".
    """
    length = "–" if prompt_tokens is None else f"{prompt_tokens}"
    context = "" if not depth else f" @ {depth:,}" if wide else f"@{short_tokens(depth)}"
    return (point.label if wide else point.short) + context + (f"/{length}" if lengths else "")


def short_tokens(count: int) -> str:
    """Return a number of tokens for narrow columns: "4k" for 4,096, and other numbers as they are."""
    return f"{count // _K}k" if count and count % _K == 0 else f"{count}"


class Value(Struct, frozen=True):
    """The value of a metric: its mean, with confidence interval, standard deviation and runs where known."""

    mean: float
    low: float | None = None
    """Lower end of the 95 % confidence interval over runs; None without one (a single run, a published
    table)."""
    high: float | None = None
    std: float | None = None
    """Standard deviation over runs, or as the source states it."""
    runs: tuple[float, ...] = ()
    """The value of each run; empty if unknown, as in published tables."""
    is_range: bool = False
    """True if the source gives only a range, from `low` to `high`, with `mean` as the middle."""

    @property
    def span(self) -> tuple[float, float] | None:
        """Both ends of a range; None for another value."""
        return (
            (self.low, self.high)
            if self.is_range and self.low is not None and self.high is not None
            else None
        )


class CurvePoint(OnAxis, Struct, frozen=True):
    """A point of a curve: the value of a metric at one concurrency."""

    concurrency: int
    value: Value
    doubtful: bool = False
    """Whether a mark of the level says that the value is unreliable."""
    position: LoadPoint | None = None
    missed: bool = False
    """Whether too few requests met the condition that the plot shows."""


class CurveLine(Struct, frozen=True):
    """A curve of a plot: the values of one target, or of one published series."""

    name: str
    points: tuple[CurvePoint, ...]
    reference: str | None = None
    """The publication of the values; None for values measured here."""
    definition: str | None = None
    """The publication's definition of the metric, where it differs from sparktop's."""


class LimitLine(Struct, frozen=True):
    """A limit drawn as a line across a plot of curves."""

    metric: str
    words: str
    value: float
    upright: bool = False
    """True: `value` is a concurrency, so the line is vertical. False: it is a value of the metric."""
    concurrency: int | None = None
    """The only concurrency for which a value of the metric is limited; None: the limit holds for all."""
    short: str = ""
    """The limit in a few words, for a label beside the line."""


class CurvePlot(Struct, frozen=True):
    """A plot of one metric against concurrency, with a curve for each target."""

    metric: str
    title: str
    unit: str
    definition: str
    more_is_better: bool
    lines: tuple[CurveLine, ...]
    limits: tuple[LimitLine, ...] = ()
    is_condition: bool = False
    """Whether the plot shows the quantile that a condition limits, or the share that met all of them."""


class ComparedLevel(OnAxis, Struct, frozen=True):
    """The values of all targets for one metric at one concurrency, with the result of significance tests.

    Its fields call each compared target, or series of a file or publication, a "column".
    """

    concurrency: int
    values: tuple[Value | None, ...]
    """The values in the order of `Topologies.columns`; None where a target has no value."""
    winner: str | None = None
    """The column that is significantly better than every other, or the best by published tables; None if
    there is none."""
    ahead: str | None = None
    """The column with the best value, whether significant or not."""
    beats: tuple[str, ...] = ()
    """The columns that `ahead` is significantly better than."""
    against: str | None = None
    """The column that `percent` is relative to: the next best one that `ahead` is not clearly better than,
    behind a winner the next best, or the baseline."""
    percent: float | None = None
    """Lead of `ahead` over `against`, in percent."""
    significant: bool | None = None
    """Whether `ahead` is significantly better than every other column; None: single runs cannot be tested."""
    prompt_tokens: int | None = None
    position: LoadPoint | None = None
    depth: int = 0
    """Tokens of context before the prompt."""
    where: str = ""
    """The level's name within a sentence, such as "c16", with its prompt length where levels differ in it."""


class ComparedMetric(Struct, frozen=True):
    """The comparison of all targets by one metric, level by level."""

    metric: str
    title: str
    unit: str
    more_is_better: bool
    levels: tuple[ComparedLevel, ...]
    winner_vs: str = "runner-up"
    """What percentages are relative to: "runner-up", "baseline" or "table"."""
    decimals: int = 1
    noise_floor_percent: float = 0.0
    """Differences up to this many percent of the smaller value never count as significant."""


class SplitRow(OnAxis, Struct, frozen=True):
    """How a router distributed the requests of one level over its backends."""

    target: str
    concurrency: int
    requests: Mapping[str, int]
    """Number of requests by backend, summed over all runs."""
    overhead: str | None = None
    """The latency that the router adds, in words that also state how it is known."""
    batches: Mapping[str, float] = field(default_factory=dict)
    """Mean batch size of each backend during the time in which it computed anything."""
    runs: str | None = None
    """How uneven the distribution was in single runs, in words; None where that is unknown."""
    balance_word: str | None = None
    prompt_tokens: int | None = None
    position: LoadPoint | None = None
    depth: int = 0
    """Tokens of context before the prompt."""


class DeviationRow(OnAxis, Struct, frozen=True):
    """Two targets of which one varies more from run to run, by the standard deviations of a metric."""

    metric: str
    concurrency: int
    steady: str
    steady_std: float
    restless: str
    restless_std: float
    prompt_tokens: int | None = None
    position: LoadPoint | None = None
    depth: int = 0
    """Tokens of context before the prompt."""

    @property
    def ratio(self) -> float | None:
        """The larger standard deviation over the smaller; None if the smaller is 0."""
        return self.restless_std / self.steady_std if self.steady_std > 0 else None


class Topologies(Struct, frozen=True):
    """The comparison of targets of one sweep, or of series of files and publications."""

    columns: tuple[str, ...]
    metrics: tuple[ComparedMetric, ...]
    crossovers: tuple[str, ...] = ()
    """Sentences on the concurrencies at which the best target changes."""
    splits: tuple[SplitRow, ...] = ()
    deviations: tuple[DeviationRow, ...] = ()
    engines: tuple[str, ...] = ()
    """The best values that independent engines could reach, in sentences."""
    sentences: tuple[str, ...] = ()
    """The judgement on each main metric, the token rate first: where which target is the best."""
    notes: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    """Definitions of the metrics where sources define them differently, one line each."""
    baseline: str | None = None

    @property
    def several_lengths(self) -> bool:
        """Whether the compared levels differ in prompt length."""
        levels = (level.prompt_tokens for metric in self.metrics for level in metric.levels)
        return several_lengths(levels) or several_lengths(split.prompt_tokens for split in self.splits)


class DifferenceRow(OnAxis, Struct, frozen=True):
    """The change of one metric at one level between two results."""

    title: str
    unit: str
    more_is_better: bool
    concurrency: int
    before: Value | None
    after: Value | None
    percent: float | None = None
    low_percent: float | None = None
    """Lower end of the 95 % confidence interval of the change, in percent."""
    high_percent: float | None = None
    significant: bool | None = None
    decimals: int = 1
    prompt_tokens: int | None = None
    """Prompt length of the level; None where no concurrency was measured with several lengths."""
    noise_floor_percent: float = 0.0
    """Changes up to this many percent of the smaller value never count as significant."""
    position: LoadPoint | None = None
    depth: int = 0
    """Tokens of context before the prompt."""

    @property
    def undecided(self) -> str | None:
        """What is known of a change that is not significant, in words; None for any other change."""
        if self.significant is not False or self.percent is None:
            return None
        low, high = self.low_percent, self.high_percent
        if low is None or high is None or low <= 0 <= high:
            return NO_DIFFERENCE
        change = abs(math.log1p(max(self.percent, -99.9) / 100))
        return NOT_CERTAIN if change > math.log1p(self.noise_floor_percent / 100) else WITHIN_NOISE

    @property
    def better(self) -> bool | None:
        """Whether a significant change is an improvement; None without a significant change."""
        if not self.significant or self.percent is None:
            return None
        return (self.percent > 0) == self.more_is_better


class Difference(Struct, frozen=True):
    """The comparison of two results, before and after a change."""

    before: str
    after: str
    rows: tuple[DifferenceRow, ...]
    verdict: str
    """The conclusion in one sentence."""
    why: str = ""
    """Why some changes are not certain; "" if there is none of this kind."""
    notes: tuple[str, ...] = ()


class HistoryRow(Struct, frozen=True):
    """One stored result, as a row of the list of results."""

    key: str
    """The name of the result's file in the store."""
    started_at: datetime | None
    name: str
    status: str
    """done, cancelled, …; "unreadable" for a file that cannot be read."""
    targets: tuple[str, ...] = ()
    model: str | None = None
    levels: int = 0
    most: LoadPoint | None = None
    """The level with the highest load."""
    decode_tps: float | None = None
    """The highest value of all levels, in tokens per second."""
    ttft_ms: float | None = None
    """Mean at the lowest concurrency, in milliseconds."""
    doubtful: int = 0
    """Number of levels with a mark that says that they are unreliable."""
    simulated: bool = False
    problem: str | None = None
