"""The verdict on how evenly a router distributes load over a group of backends, with its evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from sparktop.model.text import short_seconds


class BalanceWord(StrEnum):
    """The verdicts on a group of backends. If several apply, the first verdict in this order is announced."""

    UNKNOWN = "unknown"
    """Too few samples, gaps, or too little load for a verdict."""
    IDLE = "idle"
    OSCILLATING = "oscillating"
    """The load swings to and fro between backends."""
    STARVED = "starved"
    """A backend has next to no work while another has more than its share."""
    UNEVEN = "uneven"
    """One backend always has more load than its share."""
    BALANCED = "balanced"

    @property
    def bad(self) -> bool:
        """Whether the verdict calls for action: OSCILLATING, STARVED or UNEVEN."""
        return self in {BalanceWord.OSCILLATING, BalanceWord.STARVED, BalanceWord.UNEVEN}

    @property
    def said(self) -> str:
        """The verdict for readers: the servers of an "idle" group may be busy."""
        return "nothing to split" if self is BalanceWord.IDLE else self.value


_WORTH_PERCENT = 1.0
"""Lost token throughput below this percentage is not mentioned."""
_WORTH_MISSING_PERCENT = 5.0
"""Missing polls below this percentage are not mentioned."""
_SOON_S = 60.0
"""Up to here the wait for a verdict is given to the second, if no window takes longer."""
SLOW_S = 2.2
"""Time between two samples from which on they are too seldom to see a swing: slower than every 2 s."""


class Swing(Struct, frozen=True):
    """Result of the search for a periodic swing of load between the backends of a group.

    The values describe the backend whose load differs most from its share. The share is the part of the
    group's load that a backend should have.
    """

    backend: str
    """The backend whose deviation (load less share) is analysed; with two backends, both have the same
    result."""
    relative_rms: float = 0.0
    """Standard deviation of (load - share), divided by the share: 1 means that two backends alternate
    fully."""
    moving_share: float = 0.0
    """Part of the deviation that varies in time, 0 to 1; the rest is a constant skew."""
    mutual: float | None = None
    """Whether load moves between backends: 1 where they take turns, 0 where only the load of one backend
    comes and goes, below 0 where all rise and fall together; None if no load moves."""
    period_s: float | None = None
    """The period at which the load returns most clearly after reversing half a period earlier; None
    without any."""
    cycles: float | None = None
    """Number of periods of length `period_s` in the window."""
    variance_share: float | None = None
    """Share of the variance at or near this period, 0 to 1."""
    chance: float | None = None
    """Probability that slow random drift has as much variance near some period; 0 to 1."""
    rebound: float | None = None
    """Autocorrelation at a lag of one period."""
    opposite: float | None = None
    """Autocorrelation at a lag of half a period; below 0 where the load reverses."""
    score: float | None = None
    """Spread, regularity and number of cycles combined into one number, which is hardly ever above 0 for
    random routing."""
    autocorrelation: Mapping[float, float] = {}
    """Autocorrelation (-1 to 1) by lag in seconds."""


class Convoys(Struct, frozen=True):
    """Evidence for convoys: groups of requests that end together and return to the same backend together.

    The spread of the requests over the backends is compared at two kinds of times: full times, when the
    total number of requests is near its maximum, and part times, when it is about half the maximum. The
    spread is 0 for an even split, and about 1 for random routing. It is Σ(x - share)² / share / (n - 1), with
    the number x of a backend's requests, the number `share` expected for it, and n backends.
    """

    full_times: int
    """Number of separate full times; between two of them the total fell to half or below."""
    part_times: int
    """Number of separate part times; a part time counts again when another backend has the most requests."""
    full_spread: float
    """Mean spread at the full times; near 0 where the split is even."""
    full_total: float
    """Mean number of requests at the full times."""
    part_share: float
    """Share of the window that consists of part times, 0 to 1."""
    least_leads: int
    """Number of part times in which the backend that leads second most often had the most requests: 0
    where the same backend always leads."""
    since_part_s: float | None = None
    """Seconds since the last part time; None if there was none."""
    period_s: float | None = None
    """Median seconds in which a backend goes from full over empty to full; None if no backend does."""
    part_spread: float | None = None
    """Mean spread at the part times. Where one of two backends has all the requests, it equals their
    number."""
    part_chance: float | None = None
    """Probability (0 to 1) that random routing has at least this spread at the part times."""
    chance: float | None = None
    """Probability (0 to 1) that random routing has spreads that differ this much, however fast the servers
    are."""


class Arrivals(Struct, frozen=True):
    """How evenly the requests that arrived in each short period were distributed, by the backends' counters.

    The judged time window is cut into equal periods, called "pieces". Pieces with fewer than two arrivals are
    left out.
    """

    requests: int
    """Number of requests that arrived in the pieces analysed."""
    pieces: int
    """Number of pieces with two arrivals or more."""
    piece_s: float
    """Length of a piece in seconds, nearly half the median duration of a request."""
    spread: float
    """χ² of the counts against the backends' parts of the window, divided by its degrees of freedom: 1 for
    random routing, near 0 for round robin."""
    herds: int
    """Number of herds: pieces in which one backend got far more than its part and held more than an even
    split at the end."""
    least_herds: int
    """Number of herds at the backend that has the second most: 0 where all are at the same backend, or first
    at one and then at another."""
    chance: float
    """Probability (0 to 1) that random routing is as uneven, computed without the most uneven eighth of
    the pieces."""


class StepTime(Struct, frozen=True):
    """Duration of an engine step by batch size b: `base_s` + b ^ `exponent` · `per_request_s` seconds.

    The curve is fitted to the samples of one group of backends; it is a line but among `curves`.
    """

    base_s: float
    """Duration with an empty batch, for a backend of mean speed."""
    per_request_s: float
    pairs: int
    """Number of samples to which the line was fitted."""
    slope_error_s: float = 0.0
    """Standard error of `per_request_s`."""
    middle: float = 0.0
    """b ^ `exponent` where the curve is known best: an error of the slope rotates the curve about this
    point."""
    exponent: float = 1.0
    misfit: float = 0.0
    """χ² of the samples' medians about the curve."""
    curves: tuple[StepTime, ...] = ()
    """The line and other curves, as far as the samples do not tell them apart; () for the line alone."""

    def seconds(self, batch: float) -> float:
        """Return the duration of a step with a batch of this size."""
        return self.base_s + self.per_request_s * math.pow(batch, self.exponent)


class GroupPace(Struct, frozen=True):
    """Step time as a linear function ("line") of the batch size: for the group, or for each backend."""

    common: StepTime | None = None
    """The common line where all backends are equal, as far as known; None where it is unknown or they
    differ."""
    own: Mapping[str, StepTime] = {}
    """The line of each backend by name, where they differ; without backends whose step time is unknown."""

    @property
    def usual(self) -> StepTime | None:
        """The step-time line that stands for the whole group; None if no line is known.

        If the backends have lines of their own, these are sorted by (growth per request / step time at batch
        0), and the middle one is returned.
        """
        ordered = sorted(self.own.values(), key=lambda step: (step.per_request_s / step.base_s, step.base_s))
        return self.common or (ordered[len(ordered) // 2] if ordered else None)


class Balance(Struct, frozen=True):
    """The verdict on how evenly a group of backends is loaded, and its evidence, over one time window.

    `word` is the verdict announced by a `BalanceWatch`; `word_now` is the verdict of this window alone.
    """

    group: str
    backends: tuple[str, ...]
    """The backends that were judged. A backend without answers is left out, and `reasons` states so."""
    word: BalanceWord = BalanceWord.UNKNOWN
    word_now: BalanceWord = BalanceWord.UNKNOWN
    also: tuple[BalanceWord, ...] = ()
    """Other verdicts that also hold, in the order of `BalanceWord`."""
    confidence: float | None = None
    """How far the deciding value is beyond its limit, less a deduction for missing samples; 0 to 1, None
    for "unknown"."""
    since: datetime | None = None
    """UTC time since which the announced verdict has held without interruption."""
    window_s: float = 0.0
    """Seconds that the samples cover."""
    needed_s: float = 0.0
    """Seconds of a complete window: 8 times the median duration of a request, 45 to 600 s."""
    known_in_s: float | None = None
    """Seconds until a verdict is expected, with enough samples and judged twice; None if none is pending."""
    sample_hz: float | None = None
    samples_percent: float | None = None
    """Samples present, in percent of those expected, of the backend that has the fewest."""
    mean_total: float | None = None
    """Mean number of requests in the group, running and waiting."""
    mean_load: Mapping[str, float] = {}
    """Mean number of requests by backend."""
    loaded_percent: float | None = None
    """Percent of the time with enough requests in the group for the rules that count requests."""
    even_percent: float | None = None
    """Percent of the time in which the backends' loads, each less its share, differ by one request at
    most."""
    dispersion_z: float | None = None
    """Spread of the load over that of random routing: 1 is random, near 0 even, far above 1 herding.

    Where the number of requests varies much and no convoys are found, the spread at the times with nearly all
    present is used if it is less, because bursts begin and end one-sided.
    """
    variance_factor: float | None = None
    """Factor by which the load spreads wider than binomial under random routing here, because a full
    server has longer steps."""
    pace: GroupPace = GroupPace()
    """Step times of the group or of each backend; `lost_percent` is unknown without any, and of prefills."""
    period_s: float | None = None
    """Period of the load's swing; None if the verdict is not OSCILLATING."""
    lead_margin: float | None = None
    """A backend counts as leading if its load is at least (1 + `lead_margin`) times its share."""
    lead_changes: int | None = None
    lead_changes_per_min: float | None = None
    turns: int | None = None
    """Number of times that a backend went from full to empty or back, summed over all backends."""
    turns_of_one: int | None = None
    """The part of `turns` of the backend that has the most."""
    turning_spread: float | None = None
    """The part of `dispersion_z` that varies in time, less the 1 of random routing, scaled to a group of
    two backends."""
    swap_s: float | None = None
    """Median seconds between changes of the leading backend."""
    starved_percent: Mapping[str, float] = {}
    """Percent of the time, by backend, with next to no work while another had more than its share."""
    starved_any_percent: float | None = None
    """Percent of the time in which at least one backend is starved, less times that may turn out to be a
    drain."""
    empty_any_percent: float | None = None
    """As `starved_any_percent`, but with drained backends included."""
    away_s: Mapping[str, float] = {}
    """Seconds by backend without any request, in stretches of at least two durations of a request.

    Only backends with such stretches: they are drained, cooling down or not in the router yet, and do not
    count as starved."""
    free_slot_percent: float | None = None
    """Percent of the time in which a backend had a free slot and no queue while requests waited at
    another."""
    lost_percent: float | None = None
    """Percent of token throughput lost: 1 - (tokens generated / tokens that the best split of the requests
    would have generated).

    Computed from the step time measured here; for equal backends the best split is the even one. None
    where the step time leaves more than 3 points uncertain or is unknown, where backends differ in speed,
    and where there is no router."""
    lost_unknown: str | None = None
    """Why `lost_percent` is None, in a few words."""
    lost_before_percent: float | None = None
    """The last known `lost_percent`, where it is unknown now."""
    lost_before_s: float | None = None
    """Age of `lost_before_percent` in seconds."""
    lost_estimate_percent: float | None = None
    """As `lost_percent`, however uncertain; shown with its error where that is smaller."""
    lost_error_points: float | None = None
    """By how many percentage points `lost_estimate_percent` may be off: two standard errors of the slope, the
    curves of step times that fit, and how much longer prompts may take that no longer arrive together."""
    lost_by_chance_percent: float | None = None
    """What random routing would lose, for a swing: percent of the same best split's throughput."""
    skew: float | None = None
    """Mean of (load - share) / share, of the backend that is furthest above its share."""
    skew_backend: str | None = None
    steadiness: float | None = None
    """Mean of `skew` over its standard deviation in time."""
    swing: Swing | None = None
    arrivals: Arrivals | None = None
    """Distribution of the arriving requests; None where a backend does not count finished requests, or too
    few arrived."""
    convoys: Convoys | None = None
    """Evidence for convoys; None where the number of requests in the group never falls to half."""
    requests: int | None = None
    """Requests that the backends received in the window, by their own counters; None where a backend has
    no counter."""
    requests_share: Mapping[str, float] = {}
    """Each backend's part of `requests`, 0 to 1."""
    requests_chance: float | None = None
    """Probability (0 to 1) that random routing sends any backend as many requests as the one that received
    most."""
    failing: bool = False
    """Whether both backends of a pair failed repeatedly: a swing that coincides with failures needs fewer
    cycles."""
    errors: Mapping[str, float] = {}
    """Failed requests by backend, for backends that count them."""
    e2e_s: float | None = None
    """Median duration of a request in the group in seconds, from merged histogram buckets."""
    length_variation: float | None = None
    """Standard deviation over mean of the answer lengths; 0 where all are equal."""
    router: str | None = None
    """Name of the router that distributes the requests; for the engine cores of one server, the server's
    name.

    None if no router is known: the verdict then only describes the loads, because nothing distributes
    them."""
    bypassed: str | None = None
    """Name of a router in front of the group that, by its own counts, the requests do not pass; `router` is
    None then."""
    strategy: str | None = None
    """The routing strategy that the router reports, or else the configured one."""
    sample_skew_ms: float | None = None
    """As `looks_apart_ms`, whose older name it is."""
    looks_apart_ms: float | None = None
    """Milliseconds between the oldest and the newest sample of all backends in a time slot; upper quartile of
    the last 64 slots: limits the rules for convoys and periods."""
    looks_explain: float | None = None
    """Part of the loads' spread, 0 and up, that polling the backends at different times can cause; None
    where polls coincide."""
    lanes_of: str | None = None
    """The server whose engine cores were judged; `backends` are then the server's name, a slash and the
    core's name."""
    within: str | None = None
    """The judged group that the server `lanes_of` belongs to; None if it is in none. The verdict is then
    shown with the server, not beside the groups."""
    reasons: tuple[str, ...] = ()
    """The reasons for the verdict, in sentences that can be checked on the graph."""
    cause: str | None = None
    """The most likely cause; None without evidence."""
    hint: str | None = None
    """What to try; None without evidence."""
    too_few: bool = False
    """Whether this window has no verdict only because too few requests are in flight: more time brings none
    either."""
    in_sweep: bool = False
    """Whether a sweep loads the group: one of this program, or one that another process of this user
    announces."""

    @property
    def title(self) -> str:
        """The announced verdict in words; of "unknown" for lack of requests, that these are too few."""
        if self.word is not BalanceWord.UNKNOWN:
            return self.word.said
        if self.word_now is not BalanceWord.UNKNOWN:
            return "no verdict yet"
        return f"{self.word.said}, too few requests" if self.too_few else self.word.said

    @property
    def doubt(self) -> str:
        """The newest window's verdict, if not the announced one: ", now perhaps balanced"; else ""."""
        if self.word is self.word_now:
            return ""
        if self.word_now is BalanceWord.UNKNOWN:
            return ", unknown now"
        first = self.word is BalanceWord.UNKNOWN
        return f"{'; so far' if first else ', now perhaps'} {self.word_now.said}"

    @property
    def unrouted(self) -> str:
        """Why there is no router, in words; "" if there is one."""
        if self.router is not None:
            return ""
        return "its router is not known" if self.bypassed is None else f"requests do not pass {self.bypassed}"

    @property
    def lost_words(self) -> str:
        """Percent of throughput lost, with an error above 3 points: "31 %", "33 ± 5 %"; "" if unknown.

        It is unknown, too, where the error is as large: nothing may be lost.
        """
        if self.lost_percent is not None:
            return "<1 %" if self.lost_percent < _WORTH_PERCENT else f"{self.lost_percent:.0f} %"
        lost, error = self.lost_estimate_percent, self.lost_error_points
        return "" if lost is None or error is None or error >= lost else f"{lost:.0f} ± {error:.0f} %"

    @property
    def poll_s(self) -> float | None:
        """Seconds between two polls of its backends: fewer than of others if that helps; None if unknown."""
        return float(f"{1 / self.sample_hz:.2g}") if self.sample_hz else None

    @property
    def known_in_words(self) -> str:
        """`known_in_s` in words: "38 s", or "about 2 min" where it depends on how long requests take."""
        left_s = math.ceil(self.known_in_s or 0.0)
        about = "about 60 s" if left_s <= _SOON_S else f"about {left_s / 60:.0f} min"
        return f"{left_s} s" if self.needed_s <= _SOON_S else about

    @property
    def sweep_words(self) -> str:
        """What follows `word` where a sweep makes it bad on purpose: " (sweep)"; else ""."""
        return " (sweep)" if self.in_sweep and self.word.bad else ""

    @property
    def polled_words(self) -> str:
        """How often its backends are polled, and how many of these polls are missing; "" if unknown."""
        if self.poll_s is None:
            return ""
        judged = "" if self.word is BalanceWord.UNKNOWN else "judged on "
        missing = 0.0 if self.samples_percent is None else 100.0 - self.samples_percent
        gaps = f", {missing:.0f} % of them missing" if missing >= _WORTH_MISSING_PERCENT else ""
        return f"{judged}polls every {self.poll_s:g} s{gaps}"

    @property
    def is_slow(self) -> bool:
        """Whether its samples are too seldom to see a swing, as those of a Prometheus."""
        return self.sample_hz is not None and self.sample_hz < 1 / SLOW_S

    @property
    def bad(self) -> bool:
        """Whether action is needed: `word` is OSCILLATING, STARVED or UNEVEN, and the router is known.

        False for the load of a sweep of this program: its result reports the balance.
        """
        return self.word.bad and self.router is not None and not self.in_sweep


def balance_cost(balance: Balance) -> str:
    """Return in a few words what an uneven load costs, or how often it swings; "" if neither is known."""
    lost, period = balance.lost_words, balance.period_s
    if lost and (balance.lost_estimate_percent or balance.lost_percent or 0.0) >= _WORTH_PERCENT:
        return f"−{lost} tok/s"
    return "" if period is None else f"every {short_seconds(period)}"


def balances_read_first(groups: Sequence[Balance]) -> list[Balance]:
    """Return the groups whose verdicts users read first, in their order.

    These are all but the engine cores of servers in a group. Such cores are among them only if they oscillate
    or starve and the verdict on the servers is milder.
    """
    words = {group.group: group.word for group in groups}
    return [
        group for group in groups if group.within is None or _is_worse(group.word, words.get(group.within))
    ]


def _is_worse(lanes: BalanceWord, servers: BalanceWord | None) -> bool:
    """Return whether the verdict on engine cores is graver than the one on the group of their server."""
    if lanes not in {BalanceWord.OSCILLATING, BalanceWord.STARVED}:
        return False
    order = list(BalanceWord)
    return servers is None or not servers.bad or order.index(lanes) < order.index(servers)
