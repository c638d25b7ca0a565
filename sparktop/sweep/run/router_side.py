"""What a router did in a level: in which order it chose backends, and how evenly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from urllib.parse import urlsplit

import msgspec
from pydantic import JsonValue

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.analysis.balance.rules import request_shares, weigh_requests
from sparktop.analysis.placement import address_of
from sparktop.model.text import clean
from sparktop.store.load_log import ABORTS_THAT_COUNT
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.run.server_side import Counters, ServerPoint

_BALANCE = (
    *("group", "backends", "also", "confidence", "window_s", "needed_s", "samples_percent", "sample_hz"),
    *("dispersion_z", "period_s", "lead_changes_per_min", "starved_percent", "mean_total", "mean_load"),
    *("requests_share", "requests_chance", "lost_percent", "reasons", "cause", "hint"),
)
"""Fields of a balance that a level keeps."""


def router_side(
    name: str,
    requests: Sequence[RequestTrace],
    samples: Mapping[str, Sequence[ServerPoint]],
    *,
    e2e_s: float | None,
    until: float | None,
    strategy: str | None = None,
    errors: Mapping[str, float | None] = MappingProxyType({}),
) -> dict[str, JsonValue]:
    """Return a level's load balance as JSON: a test whether the router chose at random, and a verdict.

    The verdict on the balance has the format of a JSON snapshot, and is left out if there is only one
    backend. `samples` is by backend, `e2e_s` is the median duration of a request, `until` the end of the
    last run in monotonic seconds, `strategy` the routing strategy, `errors` the number of failed requests by
    backend (None: unknown).
    """
    started = sorted(requests, key=lambda trace: trace.start)
    order = [trace.served_by for trace in started if trace.served_by is not None]
    side: dict[str, JsonValue] = {"runs_test": routing_test(order) if order else None}
    if len(samples) > 1 and until is not None:
        tracks = [_load_track(backend, points, errors.get(backend)) for backend, points in samples.items()]
        load = GroupLoad(name, tracks, e2e_s=e2e_s, strategy=strategy, router=name)
        shares = request_shares({backend: order.count(backend) for backend in samples}) if order else None
        # The level is over, so that its counts are complete.
        balance = weigh_requests(judge(load, until), shares, all_told=True)
        balance_fields = {field: getattr(balance, field) for field in _BALANCE}
        # To plain JSON values: lists for tuples, dicts for mappings.
        side |= msgspec.json.decode(msgspec.json.encode(balance_fields, enc_hook=dict))
        side |= {"verdict": balance.word.value, "since": None}
    return side


def backend_errors(
    backends: Iterable[str], requests: Iterable[RequestTrace], grown: Mapping[str, Counters]
) -> dict[str, float | None]:
    """Return the number of failed requests of each backend in a level.

    It is the larger of two counts: by the backend's own counters (`grown`), of which aborted requests count
    if they are a large share of the finished ones, and by failed answers that name the backend (`requests`).
    Where both are 0 the number is unknown: a router repeats a failed request at another backend.
    """
    by_answers = Counter(trace.served_by for trace in requests if trace.is_failed)
    errors: dict[str, float | None] = {}
    for name in backends:
        counters = grown.get(name, Counters())
        aborted = counters.aborted or 0.0
        counted = max(0.0, counters.failed or 0.0)
        if aborted >= ABORTS_THAT_COUNT * (counters.finished or 0.0):
            counted += max(0.0, aborted)
        errors[name] = max(counted, by_answers[name]) or None
    return errors


def _load_track(name: str, points: Sequence[ServerPoint], errors: float | None) -> LoadTrack:
    waiting = [_nan_if_unknown(point.waiting) for point in points]
    # Requests that had arrived by the time of each sample: finished, running and waiting ones.
    arrived = [
        _nan_if_unknown(point.counters.finished) + (point.running or 0.0) + (point.waiting or 0.0)
        for point in points
    ]
    return LoadTrack(
        name=name,
        times_s=[point.at for point in points],
        running=[_nan_if_unknown(point.running) for point in points],
        waiting=None if all(map(math.isnan, waiting)) else waiting,
        generation_tps=_token_rates(points),
        errors=None if errors is None else round(errors),
        arrived=None if all(map(math.isnan, arrived)) else arrived,
    )


def _token_rates(points: Sequence[ServerPoint]) -> list[float]:
    """Return the token rate (generated tokens/s) between the previous sample and each sample.

    NaN for the first sample, and where the rate is unknown.
    """
    rates = [math.nan] if points else []
    for earlier, later in pairwise(points):
        tokens = later.counters.since(earlier.counters).generation_tokens
        step_s = later.at - earlier.at
        rates.append(math.nan if tokens is None or tokens < 0 or step_s <= 0 else tokens / step_s)
    return rates


def _nan_if_unknown(value: float | None) -> float:
    return math.nan if value is None else value


# Which backend answered: the monitor's name for it, and a test whether the router chooses at random.
#
# The runs test is Wald and Wolfowitz's (Annals of Mathematical Statistics 11, 1940) with the mean and
# variance for any number of categories (Wallis and Roberts, Statistics, 1956). In it, a run is a sequence
# of consecutive requests with the same backend: many runs mean alternation, few mean bunching.


SIGNIFICANT = 0.05
"""Largest p-value of an order that is not random."""
LEAST = 12
"""Minimum requests for a test of the order."""
_LEAST_PERCENT = 0.1
"""Percent of cases below which a sentence names this bound."""


def routing_test(sequence: Sequence[str]) -> dict[str, JsonValue]:
    """Test whether a router chose backends at random, and return the result as a level stores it.

    `sequence` has the name of the backend of each request, in the order in which the requests started. The
    `word` is random, bunched or alternating; unknown for too few requests or a single backend. `runs` are
    sequences of consecutive requests with the same backend, of which a random order has `expected_runs`.
    `runs_p` is the probability that a random order deviates at least as far from that, `totals_p` the
    probability that a random choice, with all backends equally likely, distributes the requests at least as
    unevenly. `sentence` says the result in words.
    """
    counts = Counter(sequence)
    total = len(sequence)
    runs = sum(1 for index, name in enumerate(sequence) if index == 0 or name != sequence[index - 1])
    split = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    result: dict[str, JsonValue] = {"word": "unknown", "requests": total, "runs": runs, "expected_runs": None}
    result |= {"runs_p": None, "totals_p": None}
    if len(counts) < 2:  # noqa: PLR2004 - an order needs two kinds
        sentence = f"all {total} requests went to {next(iter(counts))}" if total else "not reported"
        return {**result, "sentence": sentence}
    totals_p = result["totals_p"] = _totals_p(counts, total)
    if total < LEAST:
        return {**result, "sentence": f"{split}: too few requests to judge the order"}
    mean, variance = _expected_runs(counts, total)
    result["expected_runs"] = mean
    if variance <= 0:
        return {**result, "sentence": f"{split}: the order cannot vary"}
    # With continuity correction: the number of runs is an integer.
    distance = max(0.0, abs(runs - mean) - 0.5) / math.sqrt(variance)
    runs_p = math.erfc(distance / math.sqrt(2))
    word = "bunched" if runs < mean else "alternating"
    if runs_p >= SIGNIFICANT:
        word = "random"
    changes = f"changes of the server: {runs - 1} (random order: about {mean - 1:.0f})"
    sentence = _routing_sentence(word, split, changes, totals_p)
    return {**result, "word": word, "runs_p": runs_p, "sentence": sentence}


def _routing_sentence(word: str, split: str, changes: str, totals_p: float) -> str:
    same = "requests in a row often went to the same server"
    order = same if word == "bunched" else f"the order looks {word}"
    sentence = f"{order}: {split} in all; {changes}"
    if totals_p >= SIGNIFICANT:
        return sentence
    share = 100 * totals_p
    percent = f"{share:.1f}" if share >= _LEAST_PERCENT else f"under {_LEAST_PERCENT}"
    return f"{sentence}; random routing makes totals as uneven as these in {percent} % of cases"


def _expected_runs(counts: Mapping[str, int], total: int) -> tuple[float, float]:
    """Return (mean, variance) of the number of runs in a random order (Wallis and Roberts)."""
    squares = sum(count**2 for count in counts.values())
    cubes = sum(count**3 for count in counts.values())
    mean = (total * (total + 1) - squares) / total
    variance = (squares * (squares + total * (total + 1)) - 2 * total * cubes - total**3) / (
        total**2 * (total - 1)
    )
    return mean, variance


def _totals_p(counts: Mapping[str, int], total: int) -> float:
    """Return the p-value of the backend whose number of requests deviates most from an equal share.

    `counts` are the requests by backend. Exact binomial test with Bonferroni correction.
    """
    share = 1 / len(counts)
    furthest = max(counts.values(), key=lambda count: abs(count - total * share))
    tested = len(counts) if len(counts) > 2 else 1  # noqa: PLR2004 - two totals depend on each other
    return min(1.0, tested * binomial_p(furthest, total, share))


def binomial_p(hits: int, total: int, share: float) -> float:
    """Return the p-value of the two-sided exact binomial test of `hits` in `total` trials.

    This is the probability of all outcomes that are at most as likely as `hits`, if each trial succeeds with
    probability `share`. Computed with logarithms because the factors overflow.
    """
    shares = [
        math.exp(
            math.lgamma(total + 1)
            - math.lgamma(count + 1)
            - math.lgamma(total - count + 1)
            + count * math.log(share)
            + (total - count) * math.log1p(-share)
        )
        for count in range(total + 1)
    ]
    limit = shares[hits] * (1 + 1e-9)  # outcomes of equal likelihood count despite rounding errors
    return min(1.0, math.fsum(probability for probability in shares if probability <= limit))


class BackendNames:
    """Finds the monitor's name of the backend that answered, from what a router reports: id, name or URL."""

    def __init__(
        self, *, router_url: str, backends: Mapping[str, str], deployments: Mapping[str, str]
    ) -> None:
        """Use `backends` (URL by name) and `deployments` (backend name by the router's deployment id)."""
        host = address_of(router_url)
        self._router_host = host[0] if host else "localhost"
        self._by_id = dict(deployments)
        self._by_address = {address_of(url): name for name, url in backends.items()}
        self._names = frozenset(backends)

    def name(self, reported: str | None) -> str | None:
        """Return the monitor's name of the backend that a router `reported`; None if `reported` is None.

        For an unknown backend, return the text `reported`, cleaned for display.
        """
        if reported is None:
            return None
        if reported in self._by_id:
            return self._by_id[reported]
        if reported in self._names:
            return reported
        if "://" in reported and urlsplit(reported).hostname:
            address = address_of(reported, self._router_host)
            if address is not None and address in self._by_address:
                return self._by_address[address]
        return clean(reported, 80)
