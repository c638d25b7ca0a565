"""The details of a level that are shown when its row is opened: metrics, activity of servers, timelines."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.graphics import numbers
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.load import LoadMode
from sparktop.model.sweep_view import BackendShare, LevelEvidence, LevelKey, ResultRow
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.level import level_split, split_words
from sparktop.sweep.result.results import (
    BackendSide,
    Latency,
    LevelResult,
    NodeSide,
    OpenLoopResult,
    Rate,
    ReplayResult,
    SweepResult,
)
from sparktop.sweep.terms.definitions import CALL_LATENCIES, METRICS
from sparktop.sweep.view.bars import stored_timelines
from sparktop.sweep.view.levels import result_key
from sparktop.sweep.view.marks import balance_reasons, balance_word, limit_words
from sparktop.sweep.view.rows import result_rows
from sparktop.sweep.view.words.conversations import conversation_facts

_RATES = ("decode_tps", "sustained_tps", "pure_decode_tps", "prefill_tps", "peak_tps")
_LATENCIES = (*CALL_LATENCIES, "ttft_due_ms", "e2e_due_ms", "ttft_ms", "itl_ms", "e2e_ms", "client_wait_ms")
_MOST_RUNS = 8
"""Maximum number of runs whose requests by backend are listed."""


def level_of(result: SweepResult, key: LevelKey) -> LevelResult | None:
    """Return the level of `result` with the key `key`; None if there is no such level."""
    target = result.target(key.target)
    levels = () if target is None else target.levels
    return next((one for one in levels if result_key(key.target, one, result.plan.pp) == key), None)


def stored_evidence(result: SweepResult, key: LevelKey) -> LevelEvidence | None:
    """Return the details of a level of a stored result; None if the result has no such level."""
    level = level_of(result, key)
    if level is None:
        return None
    row = next(one for one in result_rows(result) if one.key == key)
    timelines = stored_timelines(
        key, level, only=_only(result, key, level), burst=result.plan.mode is LoadMode.BURST
    )
    why = None
    if level.error is not None:
        why = "the server refused its requests"
    elif not timelines:
        why = (
            "the file is older than this picture: it keeps no starts of requests"
            if level.each is not None
            else "too many requests to keep"
        )
    return LevelEvidence(
        row=row,
        facts=tuple(level_facts(level)),
        shares=_shares(level),
        balance=level_balance(level),
        balance_word=balance_word(level),
        balance_reasons=balance_reasons(level),
        timelines=timelines,
        why_no_timeline=why,
    )


def _only(result: SweepResult, key: LevelKey, level: LevelResult) -> str | None:
    """Return the name of the only server that received load at a level; None for several, or if unknown."""
    if level.backends:
        return next(iter(level.backends)) if len(level.backends) == 1 else None
    target = result.target(key.target)
    return key.target if target is not None and target.kind is TargetKind.ENGINE else None


def _shares(level: LevelResult) -> tuple[BackendShare, ...]:
    """Return the stored activity of each server behind the target: requests, batch, queue, KV cache.

    The servers are sorted by name; unknown values are None.
    """
    names = level.known_servers
    sides = {name: level.backends.get(name) or BackendSide() for name in names}
    return tuple(
        BackendShare(
            name=name,
            requests=level.served_by.get(name),
            busy_batch=level.busy_batch.get(name),
            running_max=side.running_max,
            waiting_max=side.waiting_max,
            kv_cache_max_percent=side.kv_cache_max_percent,
        )
        for name, side in sides.items()
    )


def level_balance(level: LevelResult) -> Balance | None:
    """Return how evenly a router loaded its backends at a stored level.

    Return None if the file has no balance verdict, or one that this version does not know.
    """
    kept = level.balance or {}
    word = next((one for one in BalanceWord if one.value == kept.get("verdict")), None)
    if word is None:
        return None
    group, backends = kept.get("group"), kept.get("backends")
    cause, hint = kept.get("cause"), kept.get("hint")
    return Balance(
        group=group if isinstance(group, str) else "",
        # The balance of a sweep's level exists only if its target was a router.
        router=group if isinstance(group, str) else "",
        backends=tuple(one for one in backends if isinstance(one, str)) if isinstance(backends, list) else (),
        word=word,
        word_now=word,
        reasons=balance_reasons(level),
        cause=cause if isinstance(cause, str) else None,
        hint=hint if isinstance(hint, str) else None,
    )


def bare_row(key: LevelKey) -> ResultRow:
    """Return the result row of a level that has no values yet."""
    return ResultRow(key, {}, complete=False)


def level_facts(level: LevelResult) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for each metric and fact of a level, the most important first.

    Yield nothing if the server refused the level's requests.
    """
    if level.error is not None:
        return
    if (found := level.open_loop) is not None:
        yield "Arrivals", _arrivals_words(found)
    if level.replay is not None:
        yield "Trace", _replay_words(level.trace, level.replay)
    yield from conversation_facts(level)
    yield from _own_facts(level)
    if (overhead := overhead_words(level)) is not None:
        yield "Router adds", overhead
    if (server := _server_words(level)) is not None:
        yield "Server", server
    if (limit := limit_words(level)) is not None:
        yield "Limit", limit
    for name, side in level.hardware.items():
        yield name, _node_words(side)
    if level.roofline_percent is not None:
        yield "Roofline", f"{level.roofline_percent:.0f} % of what the memory bandwidth allows one request"
    if level.padding_percent is not None:
        yield "Padding", f"{level.padding_percent:.1f} % of the batch"


def _arrivals_words(found: OpenLoopResult) -> str:
    """Return the rates of an open-loop level, its requests in flight, and how its TTFT grows."""
    figures = (
        (found.arrived_per_s, "{:.2f} /s arrived"),
        (found.completed_per_s, "{:.2f} /s completed"),
        (found.in_flight_mean, "in flight {:.1f}"),
        (found.in_flight_max, "at most {:.0f} in flight"),
        (found.unanswered or None, "{:.0f} unanswered"),
    )
    parts = [words.format(value) for value, words in figures if value is not None]
    return "; ".join([*parts, found.growth_words] if found.unstable else parts)


def _replay_words(name: str | None, found: ReplayResult) -> str:
    """Return what a replay of recorded traffic shows: its cache hits, and requests that were not served."""
    parts = [name or "recorded traffic"]
    if (cached := found.cached_percent) is not None:
        of = "" if found.repeated_percent is None else f" ({found.repeated_percent:.0f} % are repeated)"
        parts.append(f"{cached:.0f} % of the prompt tokens cached{of}")
    if found.beyond_context:
        parts.append(f"{found.beyond_context:,} requests beyond the context")
    if found.not_due:
        parts.append(f"{found.not_due:,} turns not due")
    return ", ".join(parts)


def overhead_words(level: LevelResult) -> str | None:
    """Return a text for the latency that a router adds and how it was measured; None if unknown."""
    added_ms = level.own_overhead_ms
    if added_ms is None:
        return None
    if level.router_overhead_from == "router":
        return f"{added_ms:.0f} ms by its own count"
    return f"{round(added_ms):+d} ms to the median TTFT".replace("-", "−")


def _own_facts(level: LevelResult) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for the metrics measured by the load generator, and for the requests by backend."""
    for name in _RATES:
        if (rate := level.rate(name)) is not None:
            yield METRICS[name].title, _rate_words(name, rate)
    for name in _LATENCIES:
        if (latency := level.latency(name)) is not None:
            yield METRICS[name].title, _latency_words(name, latency)
    if level.stream_tps is not None and level.stream_tps.p50 is not None:
        slow = level.stream_tps.p10
        words = f"p50 {level.stream_tps.p50:.1f} tok/s"
        yield "Each stream", words if slow is None else f"{words}, p10 {slow:.1f}"
    asked = level.requests
    again = f"; {asked.resent} sent again: their idle connection was closed" if asked.resent else ""
    yield "Requests", f"{asked.ok} ok, {asked.failed} failed, {asked.cancelled} cancelled{again}"
    yield from _split_facts(level)


def _split_facts(level: LevelResult) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for a level's requests by backend: in total, and run by run for several servers."""
    if not level.served_by:
        return
    total = ", ".join(f"{name} {count}" for name, count in sorted(level.served_by.items()))
    yield "Served by", total
    if (words := split_words(level)) is not None:
        runs = level_split(level)
        names = level.known_servers
        each = ", ".join(":".join(str(one.get(name, 0)) for name in names) for one in runs[:_MOST_RUNS])
        more = f" and {len(runs) - _MOST_RUNS} more" if len(runs) > _MOST_RUNS else ""
        yield "Run by run", f"{words}; {':'.join(names)} = {each}{more}"


def _rate_words(name: str, rate: Rate) -> str:
    metric = METRICS[name]
    words = f"{metric.text(rate.mean)} {metric.unit}"
    if rate.ci95 is None:
        return f"{words}, a single run"
    return f"{words} ({metric.text(rate.ci95[0])} to {metric.text(rate.ci95[1])}, {len(rate.values)} runs)"


def _latency_words(name: str, latency: Latency) -> str:
    metric = METRICS[name]
    parts = [("mean", latency.mean), ("p50", latency.p50), ("p95", latency.p95), ("max", latency.max)]
    figures = ", ".join(f"{word} {metric.text(value)}" for word, value in parts if value is not None)
    return f"{figures} ms"


def _server_words(level: LevelResult) -> str | None:
    server = level.server
    if server is None:
        return None
    figures = (
        ("max running", server.running_max),
        ("max waiting", server.waiting_max),
        ("preemptions", server.preemptions),
    )
    parts = [f"{word} {value:.0f}" for word, value in figures if value is not None]
    for word, share in (("KV", server.kv_cache_max_percent), ("cache hits", server.prefix_cache_hit_percent)):
        if share is not None:
            parts.append(f"{word} {share:.0f} %")
    return ", ".join(parts) or None


def _node_words(side: NodeSide) -> str:
    parts = []
    if side.gpu_c_max is not None:
        parts.append(f"up to {side.gpu_c_max:.0f} °C")
    if side.power_w_mean is not None:
        parts.append(f"{side.power_w_mean:.0f} W")
    if side.sm_clock_mhz_mean is not None:
        parts.append(f"{side.sm_clock_mhz_mean:.0f} MHz")
    if side.throttled_percent:
        parts.append(f"throttled {side.throttled_percent:.0f} %")
    if side.headroom_min_bytes is not None:
        parts.append(f"headroom {numbers.data(side.headroom_min_bytes, 9).strip()}")
    return ", ".join(parts) or numbers.UNKNOWN
