"""Figures of sweeps side by side, as a screen shows them: curves, topologies, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

NO_DIFFERENCE = "no difference shown"
NO_WINNER = "no winner shown"
"""At least one target is shown to be worse than another one, but none is the best."""
NONE_OF_LEADERS = "no difference between them shown"


def several_lengths(prompt_tokens: Iterable[int | None]) -> bool:
    """Return whether levels differ in prompt length, so that their short names need it."""
    return len(set(prompt_tokens)) > 1


def level_name(concurrency: int, prompt_tokens: int | None, *, lengths: bool, start: str = "c") -> str:
    """Return the short name of a level: "c64", or "c64/1024" with the prompt's tokens if `lengths`."""
    length = "–" if prompt_tokens is None else f"{prompt_tokens}"
    return f"{start}{concurrency}" + (f"/{length}" if lengths else "")


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its uncertainty."""

    mean: float
    low: float | None = None
    """Lower end of the 95 % interval over runs; None where there is none (a single run, a table)."""
    high: float | None = None
    std: float | None = None
    runs: int | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One level of a curve."""

    concurrency: int
    value: Measured
    doubtful: bool = False
    """A mark of its level means that the value is unreliable."""


@dataclass(frozen=True, slots=True)
class CurveLine:
    """One target, or one series of a reference."""

    name: str
    points: tuple[CurvePoint, ...]
    reference: str | None = None
    """Where it was published; None for values measured here."""
    definition: str | None = None
    """The source's definition of the figure, where it differs from sparktop's."""


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A limit that a curve is compared with."""

    metric: str
    words: str
    value: float
    upright: bool = False
    """True: a concurrency; else a value of the figure."""


@dataclass(frozen=True, slots=True)
class CurvePlot:
    """One figure against concurrency."""

    metric: str
    title: str
    unit: str
    definition: str
    more_is_better: bool
    lines: tuple[CurveLine, ...]
    limits: tuple[LimitLine, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedLevel:
    """One figure at one concurrency."""

    concurrency: int
    values: tuple[Measured | None, ...]
    """By column."""
    winner: str | None = None
    """The column shown to be better than every other, or stated by published tables; None where there is
    none."""
    ahead: str | None = None
    """The column with the best value, whether shown to be better or not."""
    beats: tuple[str, ...] = ()
    """The columns that `ahead` is shown to be better than."""
    leaders: tuple[str, ...] = ()
    """The columns that lead, with no difference between them shown, where others are shown to be behind."""
    rival: str | None = None
    """The best of the columns that `ahead` is not shown to be better than."""
    lead_percent: float | None = None
    """Lead of `ahead` over its rival."""
    against: str | None = None
    """The column that `percent` is relative to."""
    percent: float | None = None
    """Lead of `ahead` over `against`."""
    significant: bool | None = None
    """Whether `ahead` is shown to be better than every other; None: single runs, no test."""
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class FoundDifference:
    """The smallest difference that the runs of a figure can detect, and what it depends on."""

    runs: int
    levels: int
    spread_percent: float | None
    """Standard deviation between runs; None for single runs."""
    percent: float | None
    """None: single runs show no difference."""
    rate: float
    """Error rate of the first test of a pair of targets in the figure."""


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One figure of all targets."""

    metric: str
    title: str
    unit: str
    more_is_better: bool
    levels: tuple[ComparedLevel, ...]
    winner_vs: str = "runner-up"
    """runner-up, baseline or table: what percentages are relative to."""
    decimals: int = 1
    could_show: FoundDifference | None = None
    """The difference that the runs could detect; None where nothing was measured here."""
    noise_floor_percent: float = 0.0
    """The larger of two values must exceed the smaller by this much to count."""


@dataclass(frozen=True, slots=True)
class SplitRow:
    """Which backends answered the requests of one level of a router."""

    target: str
    concurrency: int
    requests: Mapping[str, int]
    """By backend, all runs added up."""
    overhead: str | None = None
    """What the router adds, in words that state how it is known."""
    batches: Mapping[str, float] = field(default_factory=dict)
    """Mean batch of each backend while it computed anything."""
    runs: str | None = None
    """How one-sided single runs were, in words; None where that is unknown."""
    balance_word: str | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class DeviationRow:
    """How much more the runs of one target vary than another's."""

    metric: str
    concurrency: int
    steady: str
    steady_std: float
    restless: str
    restless_std: float
    prompt_tokens: int | None = None

    @property
    def ratio(self) -> float | None:
        """The larger over the smaller."""
        return self.restless_std / self.steady_std if self.steady_std > 0 else None


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """Which target to use under which load."""

    loads: str
    """The concurrencies covered, such as "c1–c4"."""
    wish: str
    """What is to be optimized there."""
    target: str | None
    """None: no difference shown."""
    why: str
    sure: bool | None
    """True: shown by a test at every level; None: single runs, no test possible; False: not at all levels."""
    unproven: bool = False
    """True: a difference beyond noise was measured, but these runs cannot distinguish it from chance."""
    leaders: tuple[str, ...] = ()
    """Without a target: the targets that lead, where others are shown to be behind at every level."""


@dataclass(frozen=True, slots=True)
class Topologies:
    """Targets of one sweep, or series of files and references, side by side."""

    columns: tuple[str, ...]
    metrics: tuple[ComparedMetric, ...]
    crossovers: tuple[str, ...] = ()
    """Sentences."""
    splits: tuple[SplitRow, ...] = ()
    deviations: tuple[DeviationRow, ...] = ()
    engines: tuple[str, ...] = ()
    """The best that independent engines could reach, in sentences."""
    advice: tuple[AdviceRow, ...] = ()
    notes: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    """The meaning of the figures where sources differ, one line each."""
    baseline: str | None = None

    @property
    def several_lengths(self) -> bool:
        """Whether its levels differ in prompt length."""
        levels = (level.prompt_tokens for metric in self.metrics for level in metric.levels)
        return several_lengths(levels) or several_lengths(split.prompt_tokens for split in self.splits)


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One figure of one level, before and after."""

    title: str
    unit: str
    more_is_better: bool
    concurrency: int
    before: Measured | None
    after: Measured | None
    percent: float | None = None
    low_percent: float | None = None
    """Lower end of the 95 % interval of the change."""
    high_percent: float | None = None
    significant: bool | None = None
    decimals: int = 1
    prompt_tokens: int | None = None
    """None where no concurrency has several lengths."""

    @property
    def better(self) -> bool | None:
        """Whether a significant change is for the better; None where there is no such change."""
        if not self.significant or self.percent is None:
            return None
        return (self.percent > 0) == self.more_is_better


@dataclass(frozen=True, slots=True)
class Difference:
    """Two results compared."""

    before: str
    after: str
    rows: tuple[DifferenceRow, ...]
    verdict: str
    """One sentence."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One stored result as the history lists it."""

    key: str
    """The name of its file in the store."""
    started_at: datetime | None
    name: str
    status: str
    """done, cancelled, …; "unreadable" for a file that cannot be read."""
    targets: tuple[str, ...] = ()
    model: str | None = None
    levels: int = 0
    most_concurrency: int | None = None
    decode_tps: float | None = None
    """The best of all levels."""
    ttft_ms: float | None = None
    """Mean at the lowest concurrency."""
    doubtful: int = 0
    """Levels with a mark."""
    simulated: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    problem: str | None = None
