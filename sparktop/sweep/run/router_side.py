"""What a router did in a level: in which order it chose backends, how evenly, and with which overhead."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from pydantic import JsonValue

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.analysis.balance.rules import request_shares, weigh_requests
from sparktop.model.balance import Balance
from sparktop.model.load import LoadEvent, RequestEnded, RequestStarted, concurrency_point
from sparktop.store.load_log import ABORTS_THAT_COUNT
from sparktop.sweep.plan.plan import SweepTarget, TargetKind
from sparktop.sweep.result.results import LevelResult, TargetResult
from sparktop.sweep.run.served_by import RoutingTest, routing_test
from sparktop.sweep.run.server_side import Counters, ServerPoint


def assignments(events: Iterable[LoadEvent]) -> list[str]:
    """Return the backend of each request, in the order in which the requests started.

    Requests whose answer named no backend, or that have not ended, are left out.
    """
    starts: dict[str, float] = {}
    served: dict[str, str] = {}
    for event in events:
        if isinstance(event, RequestStarted):
            starts[event.request_id] = event.at  # of a request that was sent twice, the later time
        elif isinstance(event, RequestEnded) and event.served_by is not None:
            served[event.request_id] = event.served_by
    # A stable sort keeps the order of requests that started at the same time.
    return [
        served[request_id] for request_id in sorted(starts, key=starts.__getitem__) if request_id in served
    ]


def router_side(
    name: str,
    events: Iterable[LoadEvent],
    looks: Mapping[str, Sequence[ServerPoint]],
    *,
    e2e_s: float | None,
    until: float | None,
    strategy: str | None = None,
    errors: Mapping[str, float | None] | None = None,
) -> dict[str, JsonValue]:
    """Return a level's load balance as JSON: a test whether the router chose at random, and a verdict.

    The verdict on the balance has the format of a JSON snapshot, and is left out if there is only one
    backend. `looks` has the samples by backend, `e2e_s` is the median duration of a request, `until` the end
    of the last run in monotonic seconds, `strategy` the routing strategy, `errors` the number of failed
    requests by backend (None: unknown).
    """
    order = assignments(events)
    found: dict[str, JsonValue] = {"runs_test": _test_json(routing_test(order)) if order else None}
    if len(looks) > 1 and until is not None:
        failed = errors or {}
        tracks = [_track(backend, points, failed.get(backend)) for backend, points in looks.items()]
        load = GroupLoad(name, tracks, e2e_s=e2e_s, length_variation=0.0, strategy=strategy, router=name)
        judged = judge(load, until)
        shares = request_shares({backend: order.count(backend) for backend in looks}) if order else None
        found |= _balance_json(weigh_requests(judged, shares, all_told=True))
    return found


def direct_overhead_ms(
    target: SweepTarget, level: LevelResult, others: Mapping[str, TargetResult], urls: Mapping[str, str]
) -> float | None:
    """Return the router's median TTFT minus the mean of its backends' median TTFTs, in milliseconds.

    Only levels of concurrency 1 are compared; at higher concurrency, the difference would mostly show how
    evenly the router distributes requests. Return None for other levels, or if no backend was measured with
    the same load. `others` are the results of all targets by name, `urls` their addresses by name.
    """
    behind = set(target.backends.values())
    if target.kind is not TargetKind.ROUTER or level.point != concurrency_point(1):
        return None
    if level.ttft_ms is None or level.ttft_ms.p50 is None:
        return None
    direct = [
        one.ttft_ms.p50
        for name, result in others.items()
        if urls.get(name) in behind
        for one in result.levels
        if one.same_load == (concurrency_point(1), level.pp, level.tg, 0)
        and one.ttft_ms is not None
        and one.ttft_ms.p50 is not None
    ]
    return level.ttft_ms.p50 - fmean(direct) if direct else None


def backend_errors(
    backends: Iterable[str],
    events: Iterable[LoadEvent],
    grown: Mapping[str, Counters],
    routed: Mapping[str, float] | None,
) -> dict[str, float | None]:
    """Return the number of failed requests of each backend in a level: the largest of the available counts.

    There are up to three counts: by the backend's own counters (`grown`), by failed answers that name the
    backend (`events`), and by the router (`routed`). A router repeats a failed request at another backend. So
    if it does not count failures (`routed` is None) and the other counts are 0, the number is unknown: None.
    """
    ends = [event for event in events if isinstance(event, RequestEnded) and event.error is not None]
    ours = Counter(end.served_by for end in ends)
    found: dict[str, float | None] = {}
    for name in backends:
        own = _own_errors(grown.get(name))
        most = max(own, ours[name], (routed or {}).get(name, 0.0))
        found[name] = most if most > 0 or routed is not None else None
    return found


def _own_errors(grown: Counters | None) -> float:
    """Return the number of failed requests by a server's own counters; 0 if they are unknown.

    Aborted requests are added if they are a large share of the finished ones.
    """
    if grown is None:
        return 0.0
    aborted = grown.aborted or 0.0
    many = aborted >= ABORTS_THAT_COUNT * (grown.finished or 0.0)
    return max(0.0, grown.failed or 0.0) + (max(0.0, aborted) if many else 0.0)


def _track(name: str, points: Sequence[ServerPoint], errors: float | None) -> LoadTrack:
    waiting = [_number(one.waiting) for one in points]
    return LoadTrack(
        name=name,
        times_s=[one.at for one in points],
        running=[_number(one.running) for one in points],
        waiting=None if all(map(math.isnan, waiting)) else waiting,
        generation_tps=_rates(points),
        errors=None if errors is None else round(errors),
        arrived=_arrived(points),
    )


def _arrived(points: Sequence[ServerPoint]) -> list[float] | None:
    """Return how many requests had arrived by the time of each sample: finished, running and waiting ones.

    None if the server does not count finished requests.
    """
    ended = [_number(one.counters.finished) for one in points]
    if all(map(math.isnan, ended)):
        return None
    return [
        count + sum(part for part in (one.running, one.waiting) if part is not None)
        for count, one in zip(ended, points, strict=True)
    ]


def _rates(points: Sequence[ServerPoint]) -> list[float]:
    """Return the token rate (generated tokens/s) between the previous sample and each sample.

    NaN for the first sample, and where the rate is unknown.
    """
    rates = [math.nan] if points else []
    for before, now in pairwise(points):
        made = now.counters.since(before.counters).generation_tokens
        step_s = now.at - before.at
        rates.append(math.nan if made is None or made < 0 or step_s <= 0 else made / step_s)
    return rates


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _test_json(test: RoutingTest) -> dict[str, JsonValue]:
    return {
        "word": test.word,
        "requests": test.requests,
        "runs": test.runs,
        "expected_runs": test.expected_runs,
        "runs_p": test.runs_p,
        "totals_p": test.totals_p,
        "sentence": test.sentence,
    }


def _balance_json(judged: Balance) -> dict[str, JsonValue]:
    return {
        "group": judged.group,
        "backends": list(judged.backends),
        "verdict": judged.word.value,
        "also": [word.value for word in judged.also],
        "confidence": judged.confidence,
        "since": None,
        "window_s": judged.window_s,
        "needed_s": judged.needed_s,
        "samples_percent": judged.samples_percent,
        "sample_hz": judged.sample_hz,
        "dispersion_z": judged.dispersion_z,
        "period_s": judged.period_s,
        "lead_changes_per_min": judged.lead_changes_per_min,
        "starved_percent": dict(judged.starved_percent),
        "mean_total": judged.mean_total,
        "mean_load": dict(judged.mean_load),
        "requests_share": dict(judged.requests_share),
        "requests_chance": judged.requests_chance,
        "lost_percent": judged.lost_percent,
        "reasons": list(judged.reasons),
        "cause": judged.cause,
        "hint": judged.hint,
    }
