"""The judgement of one group from its members' load logs and its router's counters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sparktop.analysis.balance.judge import (
    REQUESTS_S,
    have_quick_samples_ended,
    judge,
    judge_slowly,
    quick_since,
    slow_step_s,
    window_s,
    without_quick_samples,
)
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.analysis.balance.rules import (
    MANY,
    MANY_S,
    MEANT_S,
    PIECES,
    RULES_OF,
    SKEW,
    STEADY,
    are_unequal,
    is_steady,
    ratio_text,
    request_shares,
    weigh_requests,
)
from sparktop.graphics import numbers
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Event, Phase, Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.router import RouterSample, stale_s
from sparktop.store.balance_groups import BalanceWatch, JudgedGroup, Member
from sparktop.store.load_log import Role, length_variation, median_life_s

_LEAST_PART = 0.05
"""Least mean load that counts as a part: a canary may have less than a request on average."""
_LANES_HINT = (
    "let a router choose the rank: vLLM with --data-parallel-external-lb; SGLang has --load-balance-method"
)
"""What to try where lanes swing: the strategies of a router do not reach a server's choice of a lane."""


def judge_group(group: JudgedGroup, watch: BalanceWatch, at: float) -> Balance:
    """Compute the balance of one group at `at` (monotonic seconds) from the load logs of its members."""
    router, strategy = group.router, group.router.strategy if group.router else None
    logs = [member.log for member in group.members]
    life_s = median_life_s(logs, at)
    since = max(at - window_s(life_s), watch.judged_from_s)
    counted = router.failures_since(since) if router else None
    errors = _errors(group, counted, since)
    variation = length_variation(logs, since)
    blamed = _errors_that_reroute(group, errors, are_counted=counted is not None)
    scrapes = [member.scrape for member in group.members if member.scrape is not None]
    facts: dict[str, Any] = {
        "errors": errors,
        "e2e_s": life_s,
        "strategy": strategy,
        "lanes_of": group.lanes_of,
        "within": group.within,
    }
    tracks = _tracks(group, since, blamed)
    slow_s = slow_step_s(tracks)
    if slow_s is None and scrapes and have_quick_samples_ended(_tracks(group, at - REQUESTS_S, {}), at):
        slow_s = max(scrape.every_s for scrape in scrapes)
    if slow_s is not None:
        return replace(_judge_slow_samples(group, watch, at, slow_s), **facts)
    if scrapes:
        since = max(since, quick_since(tracks))  # a closer look has begun: samples before it are too seldom
        tracks = _tracks(group, since, blamed)
    bypassed = router is not None and router.passes(logs, since) is False
    load = GroupLoad(
        group.name,
        tracks,
        life_s,
        strategy,
        watch.pace,
        None if watch.balance is None else watch.balance.period_s,
        prefills=group.role is Role.PREFILL,
        router=None if bypassed else group.router_name,
        bypassed=group.router_name if bypassed else None,
    )
    balance = judge(load, at)
    if _may_be_uneven(balance) and not scrapes:
        longer = max(min(since, at - MANY_S), watch.judged_from_s)
        balance = judge(replace(load, tracks=_tracks(group, longer, blamed)), at)
    counts = _arrivals(group.members, balance, at, errors)
    balance, weights = _judge_with_weights(balance, load, group, at, counts)
    balance = weigh_requests(balance, request_shares(counts, weights))
    balance = replace(
        balance,
        length_variation=variation,
        sample_skew_ms=balance.looks_apart_ms,
        hint=balance.hint if group.lanes_of is None or balance.hint is None else _LANES_HINT,
        bypassed=load.bypassed,
        **facts,
    )
    return _unless_halted(balance, group)


def _errors_that_reroute(
    group: JudgedGroup, errors: Mapping[str, float], *, are_counted: bool
) -> Mapping[str, float]:
    """Return the failures for which a router may take a member out, by name; without those that are unknown.

    `are_counted` is whether the router counts failures.
    """
    if group.router is not None and group.router.sample.cooldowns_disabled:
        return dict.fromkeys((member.name for member in group.members), 0.0)  # no server is taken out
    if group.router is not None and not are_counted:
        # A backend does not see every failure that its router counts: that it has none needs both.
        return {name: count for name, count in errors.items() if count}
    return errors


def unjudged_in_sweep(group: JudgedGroup) -> Balance:
    """Return a balance without a verdict, as a sweep chooses which backends have its requests."""
    router = group.router_name
    not_through = "" if router is None else f", not through {router}"
    names, reason = tuple(member.name for member in group.members), f"loaded by a sweep{not_through}"
    balance = Balance(group.name, names, router=router, reasons=(reason,))
    return replace(balance, lanes_of=group.lanes_of, within=group.within)


def _unless_halted(balance: Balance, group: JudgedGroup) -> Balance:
    """Return `balance` without a loss or a good verdict while a member does not serve what it holds.

    That is then the one reason of a group that cannot be judged, too.
    Such requests stay where they are, so their even split says nothing good, and what is lost is not the
    router's.
    """
    halted = [f"{member.name} ({member.halted})" for member in group.members if member.halted]
    if not halted:
        return balance
    verb = "does not serve its requests" if len(halted) == 1 else "do not serve their requests"
    reason = f"{' and '.join(halted)} {verb}"
    balance = replace(
        balance,
        lost_percent=None,
        lost_estimate_percent=None,
        lost_error_points=None,
        lost_unknown=reason,
    )
    if balance.word_now.bad:
        return balance
    word, others = BalanceWord.UNKNOWN, balance.reasons[1:]
    return replace(
        balance, word=word, word_now=word, confidence=None, too_few=False, reasons=(reason, *others)
    )


def _judge_with_weights(
    balance: Balance, load: GroupLoad, group: JudgedGroup, at: float, counts: Mapping[str, float]
) -> tuple[Balance, Mapping[str, float] | None]:
    """Judge again by the parts that backends get on purpose; return (balance, weights of the requests).

    Known weights count from the start, a ratio that stays the same from `MEANT_S` on. Before that, a backend
    that steadily gets little is uneven and not starved. The weights are None where all parts are equal.
    """
    weights = _known_weights(group, balance.backends)
    if weights is not None:
        words = f"judged by the router's weights, {ratio_text(weights)}"
        return _judge_by_parts(balance, load, at, words), weights
    if balance.word_now not in {BalanceWord.STARVED, BalanceWord.UNEVEN} or not are_unequal(counts):
        return balance, None
    if not is_steady(_requests_by_piece(group.members, balance, at, balance.window_s)):
        return balance, None
    steady = f"requests are split at a steady {ratio_text(counts)}"
    since = min((member.log.since for member in group.members if member.name in balance.backends), default=at)
    if at - since >= MEANT_S and is_steady(_requests_by_piece(group.members, balance, at, MEANT_S)):
        words = f"{steady} for {MEANT_S / 60:.0f} min, perhaps on purpose: weights under [[routers]] say so"
        return _judge_by_parts(balance, load, at, words), dict(counts)
    if balance.word_now is BalanceWord.STARVED:
        balance = replace(
            balance, word=BalanceWord.UNEVEN, word_now=BalanceWord.UNEVEN, also=(), cause=None, hint=None
        )
        sentence = f"{steady} for {balance.window_s:.0f} s, perhaps by weights of the router"
        balance = replace(balance, reasons=(sentence, *balance.reasons))
    return balance, None


def _judge_by_parts(balance: Balance, load: GroupLoad, at: float, sentence: str) -> Balance:
    """Judge a group by the loads that its backends have on average, as those that they are meant to have."""
    parts = {name: max(mean, _LEAST_PART) for name, mean in balance.mean_load.items()}
    if len(parts) < len(balance.backends) or not parts:
        return balance
    tracks = [replace(track, part=parts.get(track.name)) for track in load.tracks if track.name in parts]
    again = judge(replace(load, tracks=tracks), at)
    return replace(again, reasons=(*again.reasons[:1], sentence, *again.reasons[1:]))


def _known_weights(group: JudgedGroup, backends: Sequence[str]) -> dict[str, float] | None:
    """Return the weights of the backends by configuration or router; None if they are equal or unknown."""
    if group.router is None:
        return None
    weights = dict(group.router.target.weights) or group.router.weights(group.deployments or {})
    positive = {name: weights[name] for name in backends if weights.get(name)}
    return positive if len(positive) == len(backends) > 1 and len(set(positive.values())) > 1 else None


def _requests_by_piece(
    members: Sequence[Member], balance: Balance, at: float, span_s: float
) -> list[dict[str, float]]:
    """Return the requests that each judged backend received in each of `PIECES` parts of `span_s` seconds."""
    logs = {member.name: member.log for member in members if member.name in balance.backends}
    edges = [at - span_s * part / PIECES for part in range(PIECES, -1, -1)]
    since = {name: [*map(log.arrivals_since, edges[:-1]), 0.0] for name, log in logs.items()}
    if any(count is None for counts in since.values() for count in counts):
        return []
    return [
        {
            name: max(0.0, (counts[piece] or 0.0) - (counts[piece + 1] or 0.0))
            for name, counts in since.items()
        }
        for piece in range(PIECES)
    ]


def _judge_slow_samples(group: JudgedGroup, watch: BalanceWatch, at: float, step_s: float) -> Balance:
    """Judge a group whose samples, `step_s` seconds apart, are too seldom to see a swing."""
    since = max(at - REQUESTS_S, watch.judged_from_s)
    tracks = [without_quick_samples(track, step_s) for track in _tracks(group, since, {})]
    judged = judge_slowly(group.name, tracks, at, step_s, group.router_name)
    old = [
        member.scrape
        for member, track in zip(group.members, tracks, strict=True)
        if member.scrape and len(track.times_s) and at - track.times_s[-1] > stale_s(member.scrape.every_s)
    ]
    if len(old) <= len(tracks) - 2:  # a balance is between two that are known
        return judged
    reason = f"no new samples through {', '.join(sorted({scrape.source for scrape in old}))}"
    return Balance(group.name, judged.backends, router=judged.router, sample_hz=1 / step_s, reasons=(reason,))


def _tracks(group: JudgedGroup, since: float, errors: Mapping[str, float]) -> list[LoadTrack]:
    after = math.nextafter(since, math.inf)  # a sample exactly at its edge is outside a window
    return [
        member.log.track(member.name, after, slots=member.slots, errors=errors.get(member.name))
        for member in group.members
    ]


def _may_be_uneven(balance: Balance) -> bool:
    """Return whether judging a longer time window could change the verdict "balanced" to "uneven".

    This is so with many requests at once and a steady difference of load: such a difference counts as uneven
    only if it lasts longer than the usual window.
    """
    skew, steady = balance.skew or 0.0, balance.steadiness or 0.0
    if balance.word_now is not BalanceWord.BALANCED:
        return False
    return (balance.mean_total or 0.0) >= MANY and skew >= SKEW and steady >= STEADY


def _errors(group: JudgedGroup, counted: RouterSample | None, since: float) -> dict[str, float]:
    """Return the number of failed requests since `since`, by member.

    A member's own count and the router's count of the member's failures may differ: the higher number is
    returned. A member without either is absent.
    """
    reported = {member.name: member.log.errors_since(since) for member in group.members}
    result = {name: count for name, count in reported.items() if count is not None}
    failures = counted.failures if counted is not None and counted.failures is not None else {}
    for deployment, count in failures.items():
        name = (group.deployments or {}).get(deployment)
        if name in reported:
            result[name] = max(count, result.get(name, 0.0))
    return result


def _arrivals(
    members: Sequence[Member], balance: Balance, at: float, errors: Mapping[str, float]
) -> dict[str, float]:
    """Return the requests that each judged backend received in the time window of `balance`, by name.

    The result is empty if one of these backends does not count its requests, or more of them failed than are
    counted: then those that ended early are missing.
    """
    judged = [member for member in members if member.name in balance.backends]
    reported = {member.name: member.log.arrivals_since(at - balance.window_s) for member in judged}
    counts = {name: count for name, count in reported.items() if count is not None}
    is_whole = len(counts) == len(reported) and sum(errors.values()) <= sum(counts.values())
    return counts if is_whole else {}


def verdict_event(before: BalanceWord, balance: Balance, when: Instant, bad_s: float | None) -> Event | None:
    """Return an event if a bad verdict begins, changes or ends; None otherwise, or without a router.

    `before` is the verdict before that of `balance`; `bad_s` is how many seconds the group's verdict had been
    bad before the change, None if it was not bad.
    """
    begins = balance.word.bad
    if balance.router is None or not (begins or before.bad):
        return None
    if begins:
        text = f"{before} becomes {balance.word}" if before.bad else f"{balance.word} begins"
    else:
        text = f"{before} ends, now {balance.word.said}"
    text += "".join(f": {reason}" for reason in balance.reasons[:1])
    if begins:
        text += f"; {balance.hint}" if balance.hint else ""
    elif bad_s is not None:
        text += f" (it had lasted {numbers.age(bad_s)})"
    word = balance.word if begins else before
    return Event(
        when.wall,
        Severity.WARNING if begins else Severity.INFO,
        balance.group,
        text,
        {"before": before.value, "verdict": balance.word.value, **verdict_values(balance, word)},
        when.at,
        f"balance:{balance.group}:{word.value}",
        Phase.BEGIN if begins else Phase.END,
        None if begins else bad_s,
        None if begins else Severity.WARNING,
    )


def sweep_event(balance: Balance, when: Instant, ended_alert: Alert, held_s: float | None) -> Event | None:
    """Return the event that a sweep ends the alert `ended_alert` of a group, which had held for `held_s`.

    As with `verdict_event`, None without a router.
    """
    if balance.router is None:
        return None
    before = ended_alert.id.rpartition(":")[2]
    text = f"alert ended after {numbers.age(held_s)}: {before}, as a sweep began"
    event = Event(when.wall, Severity.INFO, balance.group, text, {}, when.at, ended_alert.id, Phase.END)
    return replace(event, duration_s=held_s, worst=ended_alert.worst)


_UNITS = {"%": "_percent", "×": "_ratio", "s": "_s"}


def verdict_values(balance: Balance, word: BalanceWord) -> Values:
    """Return the numbers behind the bad verdict `word`, for its event and its alert.

    These are the period and the lost throughput of a swing, the length of the time window, and the values and
    limits that the verdict's rule compares.
    """
    rules = [rule(balance) for rule in RULES_OF.get(word, ())]
    deciding = next((rule for rule in rules if all(check.holds for check in rule)), ())
    values: dict[str, float | str | None] = {
        "period_s": balance.period_s,
        "lost_percent": balance.lost_percent,
        "window_s": balance.window_s,
        "rule": deciding[0].code if deciding else None,
    }
    for check in deciding:
        name = f"{check.name.replace(' ', '_')}{_UNITS.get(check.unit, '')}"
        values |= {name: check.value, f"limit_{name}": check.limit}
    return values
