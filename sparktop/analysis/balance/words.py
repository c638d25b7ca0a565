"""Sentences (which can be checked on the graph) and advice on the balance of a group of backends.

Most functions return a sentence, or a list that is empty where there is nothing to report.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence

from sparktop.analysis.balance.load_grid import SILENT_S, GroupLoad, LoadGrid, LoadTrack
from sparktop.analysis.balance.rules import RANDOM_Z, SHORTEST_S, SKEW, STEADY, are_herds
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.text import short_seconds

_PAIR = 2
_WORTH_SAYING_PERCENT = 3.0
"""Smaller percentages are not mentioned."""
_BLIND = frozenset({"simple-shuffle", "round-robin"})
"""Routing strategies that read no load counts: outdated counts cannot explain a swing, and there is no better
strategy to suggest."""
# Words in the name of a strategy that sends the same key to the same server.
_KEYED = re.compile(r"hash|session|sticky|affinity|prefix|cache")
_BY_USE = re.compile(r"least|lowest|usage|util")
"""Words in the names of strategies that follow keys of requests (users, sessions, beginnings of prompts), and
of those that follow how full servers are, such as AIBrix's least-kv-cache."""
_FLAT_S = 120.0
"""Seconds of a window from which on an uneven load may be a drift of the counters of a router."""
_STUCK_S = 40.0
"""Seconds without a token after which a backend is named."""
_HERDING = "herding: requests that arrive together go to one backend, as if the router's counts were old"
_DRIFT = (
    "counter drift: the router believes in requests that are long gone",
    "restart the proxy, or try simple-shuffle",
)
_NO_ROUTER = (
    "no router is known to distribute their requests; if one does, list it with its backends under "
    "[[routers]] in sparktop.toml, and its balance is judged"
)


WAITS_FOR_LOAD = "waits for load: on average less than one request for each backend"
"""Why there is no verdict yet, of a group without load."""


def needs_more_sentence(needed_s: float, grid: LoadGrid, e2e_s: float | None) -> str:
    """Return the sentence that says how many seconds of samples are needed, how many there are, and why.

    When a verdict is expected is `Balance.known_in_s`: two evaluations must agree.
    """
    why = "" if e2e_s is None or needed_s <= SHORTEST_S else f", 8 × the median E2E of {short_seconds(e2e_s)}"
    watched_s = min(round(grid.span_s), round(needed_s) - 1)
    return f"watched for {watched_s} s: a verdict takes at least {needed_s:.0f} s{why}"


def may_be_drift_sentence(wanted_s: float, grid: LoadGrid) -> str:
    """Return the sentence that a skew of many requests may be chance, and for how long it must last."""
    watched_s = min(round(grid.span_s), round(wanted_s) - 1)
    takes = f"watched for {watched_s} s: a verdict takes at least {wanted_s:.0f} s"
    return f"{takes}, as random routing of so many requests drifts apart for minutes"


def unsteady_sentence(result: Balance) -> str:
    """Return the sentence that the loads are too far apart for chance, and not known to stay so."""
    spread = _unlike_chance(result.dispersion_z or 0.0)
    return f"{result.skew_backend} has {_excess_text(result)}, and not steadily; {spread}"


def gaps_sentence(name: str, present: float) -> str:
    """Return the sentence that the backend `name` has only the share `present` (0 to 1) of its samples."""
    return f"polls of {name} are missing: {min(89, round(100 * present))} % came, 90 % are needed"


def left_out_sentence(name: str, reason: str) -> str:
    """Return the sentence that the group was judged without the backend `name`, whose samples are too few."""
    return f"{name} {reason}; judged without it"


def too_little_sentence(mean_total: float, least: int) -> str:
    """Return the sentence that the mean load is too small for a verdict; `least` requests are needed."""
    below = math.floor(mean_total) if mean_total >= 10 else math.floor(10 * mean_total) / 10  # noqa: PLR2004 - two digits
    few = f"too little load: {_count_text(below)} requests on average"
    return f"{few}, {least} are needed unless they stay evenly split"


def nothing_to_compare_sentence(tracks: Sequence[LoadTrack], now_s: float) -> str:
    """Return a sentence on why two backends cannot be compared at `now_s` (monotonic seconds)."""
    recent = [
        track.name
        for track in tracks
        if not all(map(math.isnan, track.running)) and now_s - track.times_s[-1] <= SILENT_S
    ]
    if len(recent) < _PAIR:
        whose = f"only {recent[0]} reports its load now" if recent else "none reports its load now"
        return f"{whose}; a balance needs two"
    return "too few samples of two backends"


def reasons(
    result: Balance, load: GroupLoad, grid: LoadGrid, unknown: str | None, *, long: bool
) -> tuple[str, ...]:
    """Return the sentences that explain the verdict of `result`, the deciding sentence first.

    `unknown` is the reason for a verdict of "unknown". `long`: a swing was found by how often the backend
    with most load changed, and its sentence describes these changes.
    """
    sentences: list[str] = []
    word = result.word_now
    if word is BalanceWord.UNKNOWN and unknown:
        sentences += [unknown, *([_mean_loads_text(result)] if result.too_few else [])]
    elif word is BalanceWord.IDLE:
        mean_text = f"{_count_text(result.mean_total)} requests on average"
        sentences.append(f"{mean_text} at {len(result.backends)} backends")
    elif word is BalanceWord.BALANCED:
        sentences.append(_balanced_sentence(result))
    holding = (word, *result.also)
    if BalanceWord.OSCILLATING in holding:
        sentences.append(
            _lead_swap_sentence(result, load)
            if long and len(grid.loads) == _PAIR
            else _rhythm_sentence(result, load, long=long)
        )
    if BalanceWord.UNEVEN in holding and result.skew is not None:
        steady = result.skew >= SKEW and (result.steadiness or 0.0) >= STEADY
        sentences += [_uneven_sentence(result)] if steady or not result.away_s else []
    sentences += _away_sentences(result) if word not in {BalanceWord.UNKNOWN, BalanceWord.IDLE} else []
    if word.bad:
        sentences += [*_cost_sentences(result), *_unequal_speed_sentence(result)]
    if word not in {BalanceWord.UNKNOWN, BalanceWord.IDLE}:
        sentences += _free_slot_sentence(result.free_slot_percent, result.window_s)
    anew = [f"watched anew since {grid.returned} came back {grid.span_s:.0f} s ago"] if grid.returned else []
    return (*sentences, *(anew if word is BalanceWord.UNKNOWN else []), *_absent_sentences(grid))


def follows_keys(strategy: str | None) -> bool:
    """Return whether a routing strategy follows keys of the requests, whatever the load."""
    name = (strategy or "").lower()
    return _KEYED.search(name) is not None and _BY_USE.search(name) is None


def reasons_without_router(result: Balance, grid: LoadGrid, strategy: str | None) -> tuple[str, ...]:
    """Return the sentences that explain a bad verdict on backends whose loads no router can have evened.

    One of the sentences describes how to configure a router, or says which router the requests do not pass,
    or that the `strategy` follows keys.
    """
    word, sentences = result.word_now, list(result.reasons[:1])
    if word is BalanceWord.OSCILLATING:
        pair = len(result.backends) == _PAIR
        names = " and ".join(result.backends) if pair else f"{len(result.backends)} backends"
        sentences = [f"the loads of {names} take turns{_there_and_back(result)}"]
    elif word is BalanceWord.STARVED:
        sentences = _starved_sentences(result) or sentences
    past = result.bypassed
    because = _NO_ROUTER if past is None else f"by {past}'s own counts their requests do not pass it"
    if result.router is not None:
        because = f"{strategy} follows keys: who asks decides which server is loaded, not the load"
    return (*sentences, because, *_absent_sentences(grid))


def _cost_sentences(result: Balance) -> list[str]:
    """Return sentences on starved backends, the throughput lost, and how far apart the loads are."""
    sentences = _starved_sentences(result)
    if result.lost_words and (result.lost_estimate_percent or 0.0) >= _WORTH_SAYING_PERCENT:
        chance = result.lost_by_chance_percent
        random = "" if chance is None else f"; random routing would lose about {chance:.0f} %"
        sentences.append(f"about {result.lost_words} of throughput lost to uneven loads{random}")
    if result.dispersion_z is not None and result.word_now is not BalanceWord.UNEVEN:
        sentences.append(_unlike_chance(result.dispersion_z))
    return sentences


def _unequal_speed_sentence(result: Balance) -> list[str]:
    """Return a list with the sentence that backends differ in speed; an empty list if they do not.

    The sentence also says that the loss of throughput is unknown, because an even split is not the best
    one.
    """
    batch = (result.mean_total or 0.0) / max(1, len(result.backends))
    times = {name: step.seconds(batch) for name, step in result.pace.own.items()}
    if len(times) < _PAIR:
        return []
    slow, fast = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
    ratio = _times_text(times[slow] / times[fast])
    sentence = f"{slow} takes {ratio} as long as {fast} for a step of the same batch"
    return [f"{sentence}; what is lost against the best split is not known"]


def _free_slot_sentence(percent: float | None, window_s: float) -> list[str]:
    if percent is None or percent < _WORTH_SAYING_PERCENT:
        return []
    return [f"in {percent:.0f} % of {_span_text(window_s)} requests waited although another backend had room"]


def _absent_sentences(grid: LoadGrid) -> list[str]:
    sentences = [f"{name} no longer answers; judged without it, from then on" for name in grid.left]
    return sentences + [f"{name} reports no load; judged without it" for name in grid.silent]


def _balanced_sentence(result: Balance) -> str:
    z, low, high = result.dispersion_z, *RANDOM_Z
    mean = _mean_loads_text(result)
    if z is None or z <= low:
        return f"even: {mean}"
    sentence = f"{mean}; {_unlike_chance(z)}"
    if z < high:
        return f"within chance (up to {high:g} ×): {sentence}"
    return f"{sentence}, but no swing was found"


def _unlike_chance(z: float) -> str:
    return f"the loads differ {_times_text(z)} as much as by random routing"


def _mean_loads_text(result: Balance) -> str:
    """Return the mean load of each backend over the judged time; of more than four, the range."""
    values = result.mean_load.values()
    loads = " · ".join(f"{name} {_count_text(value)}" for name, value in result.mean_load.items())
    if len(values) > 4:  # noqa: PLR2004 - one line
        loads = f"{_count_text(min(values))} to {_count_text(max(values))}"
    return f"on average {loads} requests"


def _lead_swap_sentence(result: Balance, load: GroupLoad) -> str:
    first, other = result.backends
    changes = f"{result.lead_changes} changes in {_span_text(result.window_s)}"
    if result.swap_s is not None and result.period_s is not None:
        changes += f"; period {short_seconds(result.period_s)}{_period_in_lifetimes(result, load)}"
    return f"{first} and {other} swap the lead ({changes})"


def _rhythm_sentence(result: Balance, load: GroupLoad, *, long: bool) -> str:
    swing = result.swing
    if swing is None or result.period_s is None:
        return f"the lead goes round: {result.lead_changes} changes in {_span_text(result.window_s)}"
    subject = " and ".join(result.backends) + " swing against each other"
    if len(result.backends) > _PAIR:
        subject = f"{swing.backend} swings against the others"
    reason = f"{100 * (swing.variance_share or 0):.0f} % of the difference between loads follows that rhythm"
    if long:
        reason = f"the lead changes {result.lead_changes} times in {_span_text(result.window_s)}"
    return f"{subject} every {short_seconds(result.period_s)}{_period_in_lifetimes(result, load)}; {reason}"


def turns_sentence(result: Balance) -> str:
    """Return the sentence that backends fill and empty in turns."""
    return (
        f"loads went from 50 % above their share to 50 % below it, or back, {result.turns} times in "
        f"{result.window_s:.0f} s{_there_and_back(result)}"
    )


def _there_and_back(result: Balance) -> str:
    return "" if result.period_s is None else f"; there and back takes {short_seconds(result.period_s)}"


def convoys_sentence(result: Balance) -> str:
    """Return the sentence that convoys (requests that start and end together) come and go in turns."""
    times = "" if result.convoys is None else f" {result.convoys.part_times} times"
    span = _span_text(result.window_s)
    return (
        f"requests that start together end together:{times} in {span} most of the rest were on one backend"
        f"{_there_and_back(result)}"
    )


def herds_sentence(result: Balance) -> str:
    """Return the sentence that requests of one moment are sent to the same backend."""
    arrivals = result.arrivals
    uneven = "" if arrivals is None else f": {_times_text(arrivals.spread)} as uneven as random routing"
    return f"requests that arrive together go to one backend{uneven}{_there_and_back(result)}"


def _period_in_lifetimes(result: Balance, load: GroupLoad) -> str:
    """Return the period as a multiple of the median life of a request; "" if one is unknown."""
    if not load.e2e_s or result.period_s is None:
        return ""
    ratio = result.period_s / load.e2e_s
    times = f"{ratio:.0f}" if abs(ratio - round(ratio)) < 0.1 else f"{ratio:.1f}"  # noqa: PLR2004 - near a whole
    return f" ≈ {times} × the median E2E of {short_seconds(load.e2e_s)}"


def _away_sentences(result: Balance) -> list[str]:
    """Return a sentence for each backend that got no request for a notable part of the judged time."""
    return [
        f"{name} got no request for {_span_text(seconds)}: drained, cooling down or not in the router's list"
        for name, seconds in result.away_s.items()
        if seconds >= _WORTH_SAYING_PERCENT / 100 * result.window_s
    ]


def _uneven_sentence(result: Balance) -> str:
    return f"{result.skew_backend} always has most: {_excess_text(result)}; {_mean_loads_text(result)}"


def _excess_text(result: Balance) -> str:
    return f"{100 * (result.skew or 0.0):.0f} % more than its share over {_span_text(result.window_s)}"


def _starved_sentences(result: Balance) -> list[str]:
    """Return who is nearly empty for how long, with the verb of the panel where "starved" is a verdict."""
    longest_first = sorted(result.starved_percent.items(), key=lambda item: -item[1])
    verb = "starves: " if BalanceWord.STARVED in {result.word_now, *result.also} else ""
    away_s = result.away_s
    return [
        f"{name} {verb}nearly empty {percent:.0f} % of the time"
        + (f", and {_span_text(away_s[name])} without any request" if name in away_s else "")
        for name, percent in longest_first[:_PAIR]
        if percent >= _WORTH_SAYING_PERCENT
    ]


def advice(result: Balance, load: GroupLoad, grid: LoadGrid) -> tuple[str | None, str | None]:
    """Return (most likely cause of the verdict, what to try) as text; None for what is not known."""
    if result.word_now is BalanceWord.UNKNOWN:
        return None, None
    still, moving = backends_without_tokens(grid)
    if moving and len(still) == 1:
        return (
            f"{still[0]} holds requests and makes no token",
            f"look at {still[0]}'s log and at its version's known faults; restart it",
        )
    return (None, None) if load.router is None else _routed_advice(result, load, grid)


def _routed_advice(result: Balance, load: GroupLoad, grid: LoadGrid) -> tuple[str | None, str | None]:
    """Return the same for a group behind a router, by its strategy and its backends' errors."""
    word, failing = result.word_now, [track.name for track in grid.tracks if track.errors]
    if word in {BalanceWord.OSCILLATING, BalanceWord.STARVED} and failing:
        names = " and ".join(failing)
        return (
            f"cooldowns: {names} had errors; a router takes such a server out, and it comes back empty",
            "mend the errors, or try disable_cooldowns: true in the router's settings",
        )
    if word is BalanceWord.OSCILLATING and load.strategy not in _BLIND:
        # Power-of-two choices does not help with two backends: it is not among the suggestions.
        are_counted = all(track.errors is not None for track in grid.tracks)
        herding = are_counted and are_herds(result.arrivals, result.convoys)
        unknown = "" if are_counted else " (unless the router's log has cooldowns)"
        hint = _random_routing_advice(result)
        return (_HERDING if herding else None), hint and f"{hint}{unknown}"
    if word is BalanceWord.UNEVEN and result.window_s >= _FLAT_S and "least" in (load.strategy or "").lower():
        return _DRIFT
    return None, None


def _random_routing_advice(result: Balance) -> str | None:
    """Return how to try random routing, by what that gains; None if it gains next to nothing."""
    lost, error, chance = (
        result.lost_estimate_percent,
        result.lost_error_points,
        result.lost_by_chance_percent,
    )
    if lost is None or error is None or chance is None or not result.lost_words:
        return "compare with simple-shuffle in a sweep: what it gains is not known"
    if lost + error < chance + _WORTH_SAYING_PERCENT:
        return None
    if lost - error < chance:
        return "compare with simple-shuffle in a sweep: it may gain nothing"
    return "try simple-shuffle or round-robin"


def backends_without_tokens(grid: LoadGrid) -> tuple[list[str], bool]:
    """Return (backends with requests all the time but without tokens, whether others generate).

    No backend is named while the window is too short.
    """
    still: list[str] = []
    moving = False
    if grid.span_s < _STUCK_S:
        return still, moving
    begin = max(track.times_s[-1] for track in grid.tracks) - grid.span_s
    for track, column in zip(grid.tracks, grid.loads, strict=True):
        if track.generation_tps is None:
            continue
        first_index = bisect_right(track.times_s, begin)
        speeds = track.generation_tps[first_index:]
        # NaN is not above 0.
        if any(speed > 0 for speed in speeds):
            moving = True
        elif not all(map(math.isnan, speeds)) and not any(load < 1 for load in column):
            still.append(track.name)
    return still, moving


def _count_text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"  # noqa: PLR2004 - two digits


def _span_text(value: float) -> str:
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.1f} min".replace(".0 min", " min")  # noqa: PLR2004 - as people say it


def _times_text(value: float) -> str:
    return f"{value:.1f} ×" if value < 10 else f"{value:.0f} ×"  # noqa: PLR2004 - two digits
