"""The judgement on compared targets in words: one function for each text, used by every screen and report.

All figures in these texts are those of the compared level: the best target, the target that its percentage
refers to, and whether the difference is clear. Nothing here computes another percentage or another rival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Protocol

from sparktop.model.text import names_in_words

NO_DIFFERENCE = "no clear difference"
NO_WINNER = "no clear winner"
"""The best target is clearly better than some of the others only."""
USEFUL_RUNS = 3
"""Least number of runs for an interval: with two, Student's t is 12.7 standard errors wide."""
TOO_FEW_RUNS = f"too few runs to compare: --runs {USEFUL_RUNS}"
TOO_SCATTERED = "runs differ too much to compare"
"""The interval of the ratio is so wide that "no clear difference" would say nothing."""
SCATTERED_RATIO = 1.3
"""Ratio of two values from which on an interval that includes it is that wide."""
UNFAIR = "no fair comparison"
"""Requests wait for slots at the next best target alone."""
NOT_TESTED = "too few runs to test"
UNPROVEN = "n.s."
"""Not significant, in a cell or behind a lead: a post says once what it means."""
Name = Callable[[str], str]
"""Escapes the name of a target for the output format."""


class Judged(Protocol):
    """One metric of all targets under one load, judged."""

    @property
    def winner(self) -> str | None:
        """The target that is clearly better than every other one."""

    @property
    def ahead(self) -> str | None:
        """The target with the best value, clear or not."""

    @property
    def against(self) -> str | None:
        """The target that `percent` refers to."""

    @property
    def percent(self) -> float | None:
        """Difference of `ahead` from `against`, in percent."""

    @property
    def beats(self) -> tuple[str, ...]:
        """The targets that `ahead` is clearly better than."""

    @property
    def significant(self) -> bool | None:
        """Whether `ahead` is clearly better than every other target; None: single runs allow no test."""

    @property
    def ratio_ci95(self) -> tuple[float, float] | None:
        """95 % confidence interval of the ratio of `ahead` to `against`; None without a test."""

    @property
    def runs(self) -> int | None:
        """The fewest runs of `ahead` and `against`; None if unknown."""

    @property
    def unequal_slots(self) -> Mapping[str, int]:
        """Slots of `ahead` and `against`, where requests wait at the latter alone; else empty."""


class Outcome(StrEnum):
    """What a comparison shows at one level."""

    WON = "best"
    AHEAD = "ahead"
    """One target has the best value, but there is no test for single runs."""
    OPEN = NO_DIFFERENCE
    """The best target is not clearly better than every other one."""
    SLOTS = UNFAIR


def outcome(level: Judged) -> Outcome:
    """Return what the comparison shows at a level."""
    if level.unequal_slots:
        return Outcome.SLOTS
    if level.winner is not None:
        return Outcome.WON
    if level.significant is None and level.ahead is not None and level.percent is not None:
        return Outcome.AHEAD
    return Outcome.OPEN


def is_too_scattered(ratio_ci95: tuple[float, float] | None) -> bool:
    """Return whether a ratio's interval has room for a large difference either way or the other."""
    return ratio_ci95 is not None and (ratio_ci95[1] > SCATTERED_RATIO or ratio_ci95[0] < 1 / SCATTERED_RATIO)


def open_words(levels: Iterable[Judged]) -> str:
    """Return what is said of levels at which no target is clearly better than every other one."""
    open_levels = list(levels)
    if any(level.beats for level in open_levels):
        return NO_WINNER
    if not open_levels or not all(is_too_scattered(level.ratio_ci95) for level in open_levels):
        return NO_DIFFERENCE
    fewest = min((level.runs for level in open_levels if level.runs is not None), default=USEFUL_RUNS)
    return TOO_FEW_RUNS if fewest < USEFUL_RUNS else TOO_SCATTERED


def slots_words(level: Judged, name: Name = str) -> str:
    """Return the unequal slots of a level: "a has 96 slots, b 48"; "" where they decide nothing."""
    if not level.unequal_slots:
        return ""
    (most, slots), (least, fewer) = level.unequal_slots.items()
    return f"{name(most)} has {slots} slots, {name(least)} {fewer}"


def lead_words(level: Judged, name: Name = str) -> str:
    """Return the lead at a level: "a +5 % against b"; "" if values are equal or unknown."""
    if level.ahead is None or level.against is None or level.percent is None:
        return ""
    return f"{name(level.ahead)} {whole_percent_change(level.percent)} against {name(level.against)}"


def whole_percent_change(percent: float) -> str:
    """Return a percentage with its sign: "+20 %", "−33 %"; less than half a percent is "±0 %"."""
    whole = round(percent)
    sign = "±"
    if whole:
        sign = "+" if whole > 0 else "−"
    return f">{sign}999 %" if abs(whole) > 999 else f"{sign}{abs(whole)} %"  # noqa: PLR2004 - three digits


def percents(levels: Sequence[Judged]) -> str:
    """Return the leads at `levels`, "+20 to +33 %"; "" if unknown."""
    values = [level.percent for level in levels if level.percent is not None]
    if not values:
        return ""
    low, high = map(whole_percent_change, sorted((min(values), max(values)), key=abs))
    return high if low == high else f"{low.removesuffix(' %')} to {high}"


def trend(changes: Sequence[tuple[str, float]]) -> str:
    """Return changes in percent, each with the name of its level, in the order of levels: "+20 % at c1, …".

    These are the first, the largest and the last one; if all are alike in whole percent, one without a level.
    """
    texts = [whole_percent_change(percent) for _, percent in changes]
    if len(set(texts)) <= 1:
        return "".join(texts[:1])
    largest = max(range(len(changes)), key=lambda at: abs(changes[at][1]))
    return ", ".join(f"{texts[at]} at {changes[at][0]}" for at in sorted({0, largest, len(changes) - 1}))


def rivals(levels: Sequence[Judged], name: Name = str) -> str:
    """Return whom the leads at `levels` refer to: "against b", or "against the next best"; "" if unknown."""
    others = dict.fromkeys(level.against for level in levels if level.against is not None)
    if len(others) > 1:
        return "against the next best"
    return "".join(f"against {name(column)}" for column in others)


class JudgedLevel(Judged, Protocol):
    """A judged level with its name."""

    @property
    def where(self) -> str:
        """The level's short name, such as "c16"."""


def metric_sentence(title: str, levels: Sequence[JudgedLevel], name: Name = str) -> str:
    """Return the judgement on one metric over all its levels, in their order.

    For example "Decode: a best at c1–c4 (+20 to +33 % against b); no clear difference at c8 (a +2 % against
    b)". `name` escapes the names of targets for the output format.
    """
    return f"{title}: {'; '.join(_stretches(levels, name))}"


def _stretches(levels: Sequence[JudgedLevel], name: Name) -> Iterator[str]:
    """Yield what is said of each row of levels one after the other with the same outcome and best target."""

    def key(level: JudgedLevel) -> tuple[Outcome, str | None]:
        kind = outcome(level)
        return kind, (open_words([level]) if kind is Outcome.OPEN else level.ahead)

    for (kind, ahead), group in groupby(levels, key):
        part = list(group)
        where = _places_words([level.where for level in part])
        if kind is Outcome.OPEN:
            words, colon, advice = open_words(part).partition(":")
            yield f"{words} at {where}{largest_lead(part, name)}{colon}{advice}"
            continue
        lead = " ".join(filter(None, (percents(part), rivals(part, name))))
        if kind is Outcome.SLOTS:
            yield f"{UNFAIR} at {where} ({name(ahead or '')} {lead}; {slots_words(part[0], name)})"
            continue
        brackets = "; ".join(filter(None, (lead, NOT_TESTED if kind is Outcome.AHEAD else "")))
        yield f"{name(ahead or '')} {kind.value} at {where}" + (f" ({brackets})" if brackets else "")


def _places_words(names: Sequence[str]) -> str:
    """Return names of levels by their ends: "c1–c4", "5,000–20,000 tokens in"; all if two things differ."""
    numbers, units = zip(*(name.partition(" ")[::2] for name in names), strict=True)
    if len(set(units)) > 1:
        return names_in_words(names)
    return " ".join(filter(None, ("–".join(dict.fromkeys((numbers[0], numbers[-1]))), units[0])))


def largest_lead(levels: Sequence[JudgedLevel], name: Name = str, of: str = "") -> str:
    """Return the largest lead at levels without a winner, in brackets; "" if there is none.

    Such as " (in decode at most a +6 % against b, at c1)", with `of` "in decode"; where one target is clearly
    better than some of the others, " (not clear: a +6 % against b)". A target's lead is that against the best
    of those that it does not clearly lead, which need not be the next best. Leads that round to 0 % are none.
    """
    leads = _leads(levels)
    if not leads:
        return ""
    largest, is_one = leads[0], len(levels) == 1
    before = " ".join(filter(None, (of, "" if is_one else "at most")))
    if largest.beats:
        before = f"{before}, not clear: ".removeprefix(", ")
    elif before:
        before += " "
    return f" ({before}{lead_words(largest, name)}{'' if is_one else f', at {largest.where}'})"


def _leads(levels: Sequence[JudgedLevel]) -> list[JudgedLevel]:
    """Return the levels with a lead that does not round to 0 %, in order of its size, the largest first."""
    leads = (level for level in levels if round(level.percent or 0.0) and lead_words(level))
    return sorted(leads, key=lambda level: abs(level.percent or 0.0), reverse=True)


def unproven_words(levels: Sequence[JudgedLevel], noise_percent: float, name: Name = str) -> str:
    """Return the leads at levels without a winner: "a +11 to +15 % against b, n.s.", "no lead over 3 %".

    Where the targets differ from level to level, it is the largest lead. Leads of `noise_percent` or less are
    none.
    """
    leads = [level for level in _leads(levels) if abs(level.percent or 0.0) > noise_percent]
    if not leads:
        return f"no lead over {noise_percent:.0f} %"
    sign = NOT_TESTED if all(level.significant is None for level in leads) else UNPROVEN
    largest = leads[0]
    if len({(level.ahead, level.against) for level in leads}) > 1:
        return f"{lead_words(largest, name)} at {largest.where}, {sign}"
    return f"{name(largest.ahead or '')} {percents(leads)} {rivals(leads, name)}, {sign}"


def alike_words(titles: Sequence[str], levels: Iterable[Judged] = ()) -> str:
    """Return that no target wins in several metrics, by their titles within a sentence and their levels."""
    *most, last = titles
    words, colon, advice = open_words(levels).partition(":")
    between = {NO_WINNER: "", NO_DIFFERENCE: " between the targets"}.get(words, " the targets")
    return f"{words}{between} in {', '.join(most)}{' or ' if most else ''}{last}{colon}{advice}"
