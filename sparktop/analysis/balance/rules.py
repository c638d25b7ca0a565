"""The checks behind a group's verdict: each has a code, a question, a figure with its limit, and its rule.

The judgement evaluates them, and the screen, the JSON and the reports print the same checks.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from sparktop.analysis.balance import limits
from sparktop.analysis.balance.requests import CHANCE_LIMIT, FEWEST_REQUESTS, ODDS_LIMIT
from sparktop.analysis.balance.spread import fewest_requests
from sparktop.model.balance import Balance, BalanceWord, Swing

_NAMED = 4
"""Most backends that are named in a sentence."""


class Check(Struct, frozen=True):
    """A question about the balance of a group, and the figure that answers it."""

    code: str
    """Name of the rule. A rule holds if all checks with its code hold."""
    question: str
    name: str
    """Name of the figure."""
    value: float | None
    limit: float
    """Lowest value with which the answer is yes."""
    rule: str
    """What the figure is and why it decides, as one sentence."""
    unit: str = ""
    """"%", "×", "s" or "" for a plain number."""
    digits: int = 0
    """Decimals of the value."""
    but: str = ""
    """The first condition beside the limit that is not met, in words; "" if all are."""
    instead: str = ""
    """What is known in place of a figure that misses its limit, in words; "" for nothing."""

    @property
    def within(self) -> bool | None:
        """Whether the figure reaches its limit; None if it is unknown."""
        return None if self.value is None else self.value >= self.limit

    @property
    def holds(self) -> bool:
        """Whether the answer is yes; an unknown figure is no evidence."""
        return bool(self.within or (self.value is not None and self.instead)) and not self.but


def checks(balance: Balance) -> list[Check]:
    """Return all checks of a group, always in the same order."""
    return [check for rule in RULES for check in rule(balance)]


def holds(rule: Callable[[Balance], tuple[Check, ...]], balance: Balance) -> bool:
    """Return whether all checks of a rule hold."""
    return all(check.holds for check in rule(balance))


def _first_missing(*conditions: tuple[bool, str]) -> str:
    return next((words for met, words in conditions if not met), "")


def enough(balance: Balance) -> tuple[Check, ...]:
    """Return the checks that the measurements suffice for a verdict: enough time, few gaps, enough load."""
    needed_s = balance.needed_s or limits.SHORTEST_S
    # The last sample may be due any moment: the time up to it counts.
    whole = balance.sample_hz is not None and balance.window_s >= needed_s - 1 / balance.sample_hz
    least = fewest_requests(max(limits.PAIR, len(balance.backends)))
    return (
        Check(
            "enough",
            "Was it watched long enough?",
            "time observed",
            max(balance.window_s, needed_s) if whole else balance.window_s,
            needed_s,
            "eight times the median E2E, at least 45 s: one swing lasts about two",
            "s",
        ),
        Check(
            "enough",
            "Are the samples complete?",
            "samples there",
            balance.samples_percent,
            100 * limits.PRESENT_SHARE,
            "of the backend that has fewest; what is missing is never filled in",
            "%",
        ),
        Check(
            "enough",
            "Is there enough load?",
            "time with load",
            balance.loaded_percent,
            100 * limits.LOADED_SHARE,
            f"of the time the group had {least} requests or more",
            "%",
            instead=_plain_without_load(balance),
        ),
    )


def _plain_without_load(balance: Balance) -> str:
    """Return what makes a verdict plain although the group has few requests; "" if there is no verdict."""
    if balance.word_now in {BalanceWord.UNKNOWN, BalanceWord.IDLE}:
        return ""
    even = balance.even_percent
    if even is not None and even >= 100 * limits.EVEN_SHARE:
        return f"loads differ by one request at most {even:.0f} % of the time"
    if BalanceWord.OSCILLATING in {balance.word_now, *balance.also}:
        return "the swing is so clear that it needs no more requests"
    return "counts of the requests themselves need no load"


def _between_backends(balance: Balance, size: float) -> tuple[tuple[bool, str], ...]:
    """Return the conditions that all rules on swings share.

    All backends take part in the swing, polling at different times does not explain it, and it has at least
    the given size in shares.
    """
    swing, explained = balance.swing or Swing(""), balance.looks_explain
    mutual = swing.mutual is not None and swing.mutual >= limits.MUTUAL
    return (
        (swing.relative_rms >= size, f"the swing is small: {swing.relative_rms:.2f} of a share"),
        (mutual, "the load of one backend alone comes and goes"),
        (explained is None or explained <= limits.LOOKS_EXPLAIN, "polls at different times explain it"),
    )


def _moves_beyond_chance(balance: Balance) -> tuple[bool, str]:
    z, factor, swing = balance.dispersion_z, balance.variance_factor, balance.swing
    moving = None if z is None or factor is None or swing is None else z * factor * swing.moving_share
    return moving is not None and moving >= limits.RHYTHM_Z, "the spread is mostly constant in time"


def _polled_together(balance: Balance, limit_s: float | None) -> tuple[bool, str]:
    apart_ms = balance.looks_apart_ms
    together = limit_s is None or (apart_ms is not None and apart_ms <= 1000 * limit_s)
    return together, "the backends are polled too far apart"


def rhythm(balance: Balance) -> tuple[Check, ...]:
    """Return the check that a load swings back and forth with one period, unlike chance or drift."""
    swing = balance.swing or Swing("")
    back, half = swing.rebound, swing.opposite
    least = limits.least_score(
        balance.mean_total,
        max(limits.PAIR, len(balance.backends)),
        balance.convoys,
        balance.arrivals,
        life_known=bool(balance.e2e_s),
        chance=swing.chance,
    )
    returns = back is not None and half is not None and back - half >= limits.RHYTHM_TURN
    apart_s = None if swing.period_s is None else limits.LOOKS_APART_SHARE * swing.period_s
    return (
        Check(
            "rhythm",
            "Is there one rhythm?",
            "rhythm score",
            swing.score,
            least,
            "how sure it is, by its strength, return and repeats: chance reaches 0 in 1 of 5000 windows; "
            "few requests, many backends, load that comes and goes or an unknown E2E raise the limit",
            digits=1,
            but=_first_missing(
                (returns, "loads do not come back after a period"),
                _moves_beyond_chance(balance),
                _polled_together(balance, apart_s),
                *_between_backends(balance, limits.RHYTHM_RMS),
            ),
        ),
    )


def turns(balance: Balance) -> tuple[Check, ...]:
    """Return the check that backends go from full to empty and back more widely than by chance."""
    spread, size = limits.least_turning_spread(balance.convoys, failing=balance.failing)
    least = limits.least_turns(max(limits.PAIR, len(balance.backends)))
    back = (balance.turns_of_one or 0) >= limits.TURNS_OF_ONE
    return (
        Check(
            "turns",
            "Do they fill and empty in turns?",
            "turning spread",
            balance.turning_spread,
            spread,
            "the part of the spread that moves, beyond chance; where requests come and go it must be more",
            digits=2,
            but=_first_missing(
                ((balance.turns or 0) >= least, f"{balance.turns or 0} turns from full to empty: too few"),
                (back, "none went there and back"),
                *_between_backends(balance, size),
            ),
        ),
    )


def convoys(balance: Balance) -> tuple[Check, ...]:
    """Return the check for convoys: requests that start together at one backend and end together.

    It is met where requests are split evenly while all are present, but one-sidedly while half of them
    are. This is the only rule that needs neither a large swing nor a rhythm, and that can be met with few
    requests in the group.
    """
    found = balance.convoys
    missing = "the number of requests does not come and go"
    if found is not None:
        since_s, part, chance = found.since_part_s, found.part_chance, found.chance
        missing = _first_missing(
            (min(found.full_times, found.part_times) >= limits.CONVOY_TIMES, "it was seen too few times"),
            (limits.splits_evenly(found), "the split is not even at full load"),
            (found.part_share >= limits.CONVOY_SHARE, "half of the requests are there too seldom"),
            (part is not None and part <= limits.CONVOY_PART_CHANCE, "chance alone lies so far apart"),
            (found.least_leads >= limits.CONVOY_LEADS, "it is always the same backend"),
            (since_s is not None and since_s <= limits.CONVOY_SINCE * balance.window_s, "it is over"),
            (chance is not None and chance <= limits.CONVOY_CHANCE, "chance alone makes such a difference"),
            _polled_together(balance, limits.LOOKS_APART_S),
            *_between_backends(balance, limits.CONVOY_RMS),
        )
    return (
        Check(
            "convoys",
            "Do requests that start together stay together?",
            "half-load spread",
            None if found is None else found.part_spread,
            limits.CONVOY_PART,
            "of the split over that of chance, with half of the requests there; with all there it is even",
            "×",
            1,
            but=missing,
        ),
    )


def herds(balance: Balance) -> tuple[Check, ...]:
    """Return the check for herds: requests of one moment go to one backend, later requests to another."""
    found = balance.arrivals
    missing = "the backends do not count their requests, or too few came"
    if found is not None:
        missing = _first_missing(
            (found.chance <= limits.HERD_CHANCE, "chance alone is as uneven"),
            (found.herds >= limits.HERDS, f"{found.herds} times one got far more: too few"),
            (found.least_herds >= limits.HERD_LEADS, "it is always the same backend"),
            _moves_beyond_chance(balance),
            *_between_backends(balance, limits.HERD_RMS),
        )
    return (
        Check(
            "herds",
            "Are requests sent in herds?",
            "uneven arrivals",
            None if found is None else found.spread,
            limits.least_herd_spread(balance.convoys),
            "arrivals within half of the median E2E, over those of random routing: 1 is chance",
            "×",
            1,
            but=missing,
        ),
    )


def starved(balance: Balance) -> tuple[Check, ...]:
    """Return the checks behind "starved": a backend too often has next to no work, which costs throughput."""
    return _starved(balance, balance.starved_any_percent)


def drained(balance: Balance) -> tuple[Check, ...]:
    """Return the checks of "starved" where backends that get no new requests at all count, too.

    Such a backend is drained, or not in the router yet.
    """
    return _starved(balance, balance.empty_any_percent)


def _starved(balance: Balance, percent: float | None) -> tuple[Check, ...]:
    shares, z, loaded = balance.starved_percent, balance.dispersion_z, balance.loaded_percent
    names = " · ".join(f"{name} {share:.0f} %" for name, share in list(shares.items())[:_NAMED]) or "–"
    more = f" · and {len(shares) - _NAMED} more" if len(shares) > _NAMED else ""
    question = "Does starving cost throughput?"
    return (
        Check(
            "starved",
            "Is one nearly empty while another is full?",
            "nearly empty",
            percent,
            100 * limits.STARVED_SHARE,
            f"of the time, while another had more than its share: {names}{more}",
            "%",
            but=_first_missing(
                (z is not None and z >= limits.STARVED_Z, "chance alone leaves one empty now and then"),
                (loaded is not None and loaded >= 100 * limits.LOADED_SHARE, "there are too few requests"),
            ),
        ),
        Check(
            "starved",
            question,
            "throughput lost",
            balance.lost_estimate_percent,
            100 * limits.STARVED_LOSS,
            "against the same requests spread evenly"
            if balance.lost_percent is not None or balance.router is None
            else "against an even spread: an estimate that may be off by more than 3 points",
            "%",
        ),
    )


def ahead(balance: Balance) -> tuple[Check, ...]:
    """Return the check behind "uneven": one backend's load is steadily above its even share."""
    steady, even, loaded = balance.steadiness, balance.even_percent, balance.loaded_percent
    changes = balance.lead_changes
    return (
        Check(
            "ahead",
            "Is the same one always ahead?",
            "above share",
            None if balance.skew is None else 100 * balance.skew,
            100 * limits.SKEW,
            f"how much more than its share on average: {balance.skew_backend or '–'}",
            "%",
            but=_first_missing(
                (steady is not None and steady >= limits.STEADY, "it moves too much: a swing, or chance"),
                (changes is not None and changes <= limits.SKEW_CHANGES, "it is overtaken"),
                (even is not None and even < 100 * limits.EVEN_SHARE, "by one request at most"),
                (loaded is not None and loaded >= 100 * limits.LOADED_SHARE, "there are too few requests"),
            ),
        ),
    )


def requests(balance: Balance) -> tuple[Check, ...]:
    """Return the check that one backend received far more requests than its share, by backends' counters."""
    shares, count = balance.requests_share, max(limits.PAIR, len(balance.backends))
    most = max(shares, key=lambda name: shares[name], default=None)
    chance = balance.requests_chance
    failed = [f"{name} {number:.0f}" for name, number in balance.errors.items() if number]
    failures = f"; failed: {' · '.join(failed[:_NAMED])}" if failed else ""
    counted = (
        "none is counted" if balance.requests is None else f"of {balance.requests} requests: {most or '–'}"
    )
    return (
        Check(
            "requests",
            "Did one get most of the requests?",
            "largest share",
            None if most is None else 100 * shares[most],
            # The share whose odds are `ODDS_LIMIT` times those of an even share.
            100 * ODDS_LIMIT / (ODDS_LIMIT + count - 1),
            f"by the backends' counts; {counted}{failures}",
            "%",
            but=_first_missing(
                ((balance.requests or 0) >= FEWEST_REQUESTS, "too few requests were counted"),
                (chance is not None and chance <= CHANCE_LIMIT, "chance alone sends as many"),
            ),
        ),
    )


WAYS_TO_SWING: tuple[Callable[[Balance], tuple[Check, ...]], ...] = (rhythm, turns, convoys, herds)
"""A group oscillates if any one of these rules holds."""
RULES = (enough, *WAYS_TO_SWING, starved, ahead, requests)
