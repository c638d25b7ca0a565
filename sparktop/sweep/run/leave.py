"""What servers do when all clients hang up in the middle of their answers: how long they go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sparktop.sweep.generator.wire import RunLoad
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import LeftRequests
from sparktop.sweep.run.server_side import ServerLog, ServerPoint

LONGEST_S = 120.0
"""Seconds for which servers are watched after the hang-up."""
_ANSWER_TOKENS = 512
"""Least length of the answers: what is left of shorter ones lasts no longer than a poll interval."""
_MIDDLE = 0.25
"""Share of the tokens of the answers that have begun, from which on they are in their middle."""


def leave_command(load: RunLoad, max_model_len: int | None) -> RunLoad:
    """Return the run whose clients hang up, from a run of the same level: one burst of long answers."""
    more = _ANSWER_TOKENS - load.output_tokens
    if max_model_len is not None:
        more = min(more, (max_model_len - load.prompt_tokens - load.output_tokens) // 2)
    more = max(0, more)
    return replace(load, id=f"{load.id}-leave", output_tokens=load.output_tokens + more, cache_salt=load.id)


def is_middle(begun: int, tokens: int, load: RunLoad) -> bool:
    """Return whether the answers that have begun are in their middle, by all tokens received."""
    return begun > 0 and tokens >= max(begun, _MIDDLE * begun * load.output_tokens)


def left_requests(
    traces: Sequence[RequestTrace],
    hung_up_at: float,
    before: Mapping[str, ServerPoint],
    log: ServerLog,
    *,
    settled: bool,
) -> LeftRequests | None:
    """Return what servers did after `hung_up_at`; None if no request was in flight, or nothing reports load.

    `before` has the sample of each server at rest before the run; `settled` says whether all came to rest.
    """
    open_ = [one for one in traces if not one.ok]
    looks = {name: log.servers(name, [(hung_up_at, float("inf"))]) for name in before}
    known = [points for points in looks.values() if points and points[-1].idle is not None]
    if not open_ or not known or len(known) < len(looks):
        return None
    busy = [point.at for points in known for point in points if not point.idle]
    last_at = max(busy, default=hung_up_at)
    idle = [next((one.at for one in points if one.at > last_at), None) for points in known]
    grown = [points[-1].counters.since(before[name].counters) for name, points in looks.items()]
    made = [one.generation_tokens for one in grown if one.generation_tokens is not None]
    received = sum(one.tokens for one in traces)
    whole = settled and len(made) == len(grown) and min(made) >= 0
    ends = [at for at in idle if at is not None]
    return LeftRequests(
        requests=len(open_),
        received_tokens=sum(one.tokens for one in open_),
        goes_on_s=max(0.0, last_at - hung_up_at),
        idle_s=max(ends) - hung_up_at if settled and len(ends) == len(idle) else None,
        tokens_after=max(0.0, sum(made) - received) if whole else None,
    )
