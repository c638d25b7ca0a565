"""The figures of all servers from a few aggregates, which cost far less than raw samples."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from sparktop.engines.tables import RAY, RUNNING, buckets_for, names_for, twice_counted
from sparktop.model.fleet import FleetServer, rate_window_s
from sparktop.sources.prometheus.client import Clocks, PrometheusClient, Series, Steps, any_of, selector
from sparktop.sources.prometheus.found import (
    NOT_A_ROUTER,
    REPLICA,
    SERVER_LABELS,
    FoundServer,
    Key,
    key_of,
)

MOST_QUANTILES = 500
"""Servers whose quantiles are computed at a time: 500 take a Prometheus 0.2 s, 1,000 take 0.7 s."""
_LEAST_QUANTILES_S = 120.0
_LEAST_STATE_S, _SLACK_S = 10.0, 1.0
"""Preemptions are those between the two newest scrapes, as where every sample is read: they make a state."""
_BY = f"by ({', '.join(SERVER_LABELS)})"
_SAME_GAUGE = ("pid", "tp_rank", "pp_rank")
"""Labels by which series differ that report the same gauge: API servers of one vLLM, ranks of one lane of
SGLang."""
_GAUGES = (("running", "sum"), ("waiting", "sum"), ("kv_cache_percent", "max"))
_FULLEST_POOL = (":token_usage", "sglang_token_usage")
"""SGLang's use of its fullest pool, which is the KV cache's only where a server has no gauge of that."""
_RATES = ("generation_tokens", "prompt_tokens")
_QUANTILES = ("ttft", "itl")
_BY_MODE = "realtime"
"""In names of counters of several kinds of tokens; there are other counters beside them."""


class Figures(Struct, frozen=True):
    """Values by target for each name of a figure, and the warnings of all answers."""

    values: Mapping[str, Mapping[Key, float]]
    warnings: tuple[str, ...] = ()


async def gauges_and_rates(
    client: PrometheusClient,
    more: str,
    every_s: float,
    *,
    replicated: bool = False,
    engines: Collection[str] = (),
) -> Figures:
    """Return the newest gauges, rates and times of all servers; `more` has further matchers.

    If `replicated`, the series that differ by their `REPLICA` count once. `engines` are those of the servers.

    Raises:
        AnswerError: a query failed.
    """
    window_s = rate_window_s(every_s)
    same = ", ".join((*_SAME_GAUGE, *((REPLICA,) if replicated else ())))
    asked = {
        name: f"{how} {_BY} (max without ({same}) ({selector(names_for(name), NOT_A_ROUTER, more)}))"
        for name, how in _GAUGES
    }
    older = tuple(name for name in names_for("kv_cache_percent") if name.endswith(_FULLEST_POOL))
    kv = tuple(name for name in names_for("kv_cache_percent") if name not in older)
    asked["kv_cache_percent"] = " or ".join(
        f"max {_BY} (max without ({same}) ({selector(names, NOT_A_ROUTER, more)}))" for names in (kv, older)
    )
    windows = dict.fromkeys(_RATES, window_s) | {"preemptions": max(_LEAST_STATE_S, 2 * every_s + _SLACK_S)}
    for name, rate_s in windows.items():
        asked[name] = _rate(name, more, rate_s, replicated=replicated, of_ray=RAY in engines)
    asked["at"] = f"max {_BY} (timestamp({selector(RUNNING, NOT_A_ROUTER, more)}))"
    return await _figures(client, asked)


async def quantiles(
    client: PrometheusClient, more: str, servers: Sequence[FoundServer], figures: Figures, every_s: float
) -> Figures:
    """Return the 95 % quantiles of TTFT and ITL over two minutes, of at most `MOST_QUANTILES` servers.

    These are the servers with the most waiting requests by `figures`.

    Raises:
        AnswerError: a query failed.
    """
    window_s = max(_LEAST_QUANTILES_S, rate_window_s(every_s))
    waiting = figures.values["waiting"]
    some = sorted(servers, key=lambda one: -waiting.get(one.key, 0.0))[:MOST_QUANTILES]
    only = f"instance=~{any_of({one.key.instance for one in some})}"
    by = _BY.replace("(", "(le, ", 1)
    asked = {
        name: f"histogram_quantile(0.95, sum {by} "
        f"(rate({selector(buckets_for(name), only, more)}[{window_s:.0f}s])))"
        for name in _QUANTILES
    }
    return await _figures(client, asked)


def fullest(servers: Iterable[FoundServer], figures: Figures) -> str:
    """Return the group with the most waiting requests."""
    waiting: Counter[str] = Counter()
    for one in servers:
        waiting[one.group] += round(figures.values["waiting"].get(one.key, 0.0))
    return waiting.most_common(1)[0][0]


def rows(
    servers: Iterable[FoundServer],
    figures: Figures,
    late: Figures,
    dead: Collection[Key],
    clocks: Clocks,
    machines_of: Callable[[FoundServer], tuple[str, ...]] = lambda _: (),
) -> Steps[tuple[FleetServer, ...]]:
    """Return, in steps, the servers with their figures and machines.

    `late` has the quantiles, `dead` the targets that are down.
    """
    values = {**figures.values, **late.values}

    def value(name: str, key: Key) -> float | None:
        return values.get(name, {}).get(key)

    found: list[FleetServer] = []
    for one in servers:
        key = one.key
        at, kv = value("at", key), value("kv_cache_percent", key)
        down = key.target in dead
        found.append(
            FleetServer(
                one.name,
                one.url,
                one.group,
                None if at is None else at + clocks.to_monotonic_s,
                down,
                None if down else value("running", key),
                None if down else value("waiting", key),
                None if kv is None or down or not 0 <= kv <= 1 else 100 * kv,
                None if down else value("generation_tokens", key),
                None if down else value("prompt_tokens", key),
                None if down else value("preemptions", key),
                None if down else value("ttft", key),
                None if down else value("itl", key),
                machines_of(one),
            )
        )
        yield
    return tuple(found)


def _rate(name: str, more: str, window_s: float, *, replicated: bool, of_ray: bool) -> str:
    """Return the query for the rate of a counter.

    Where Ray has it under two names, series of both in one `rate` are an error: the second name is used for
    the servers that lack the first.
    """
    again = twice_counted(name)
    once = f"max without ({REPLICA}) " if replicated else ""
    parts = [[known for known in _counted(name) if known not in again], *([again] if of_ray else [])]
    return " or ".join(
        f"sum {_BY} ({once}(rate({selector(names, NOT_A_ROUTER, more)}[{window_s:.0f}s])))" for names in parts
    )


async def _figures(client: PrometheusClient, asked: Mapping[str, str]) -> Figures:
    known: dict[Key, Key] = {}  # so that all figures share the keys

    async def values(promql: str) -> tuple[dict[Key, float], tuple[str, ...]]:
        found: dict[Key, float] = {}

        def add(one: Series) -> None:
            if (value := one.value) is not None:
                key = key_of(one.labels)
                found[known.setdefault(key, key)] = value

        answer = await client.query(promql, add)
        return found, answer.warnings

    answers = await asyncio.gather(*(values(promql) for promql in asked.values()))
    warnings = dict.fromkeys(line for _, warned in answers for line in warned)
    return Figures({name: found for name, (found, _) in zip(asked, answers, strict=True)}, tuple(warnings))


def _counted(name: str) -> list[str]:
    return [known for known in names_for(name) if _BY_MODE not in known]
