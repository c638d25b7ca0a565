"""What levels of agents show, in words: the answer of their sweep, and the details of one level."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.model.load import LoadKind
from sparktop.sweep.result.results import AgentsResult, Latency, LevelResult, TargetResult
from sparktop.sweep.terms.definitions import METRICS
from sparktop.sweep.view.marks import marks_of

LIMIT_MS = 2000.0
"""The time to first token that the answer holds levels against: longer waits are felt in a conversation."""
_WHOLE_FROM_MS = 10_000.0


def has_conversations(target: TargetResult) -> bool:
    """Return whether the levels of a target are agents."""
    return any(level.load is LoadKind.AGENTS for level in target.levels)


def conversation_sentence(target: TargetResult) -> str | None:
    """Return how many agents get their first token soon; None if nothing was measured.

    For example "4 agents: TTFT p90 0.52 s after a tool, 1.1 s after a person, 92 % of the prompts from the
    cache; 8 agents: TTFT p90 after a tool over 2 s (3.4 s)".
    """
    levels = [one for one in target.in_order() if one.error is None and one.agents and one.requests.ok]
    if not levels:
        return None
    waits = [_wait(level) for level in levels]
    slow = next((at for at, wait in enumerate(waits) if wait is not None and wait[1] > LIMIT_MS), None)
    kept = levels[:slow]
    parts = [f"{kept[-1].point.label}: {conversation_words(kept[-1])}{_doubt(kept[-1])}"] if kept else []
    if slow is not None and (wait := waits[slow]) is not None:
        over = f"TTFT after a tool {wait[0]} over {LIMIT_MS / 1000:g} s ({_seconds(wait[1])})"
        parts.append(f"{levels[slow].point.label}: {over}{_doubt(levels[slow])}")
    elif len(levels) > 1:
        parts[0] += ", the most measured"
    return "; ".join(parts)


def _wait(level: LevelResult) -> tuple[str, float] | None:
    """Return (name of the quantile, milliseconds) of the wait by which a level is judged."""
    agents = level.agents
    found = (
        level.ttft_ms if agents is None else agents.after_tool_ms or agents.after_human_ms or level.ttft_ms
    )
    return None if found is None else _quantile(found)


def _quantile(latency: Latency) -> tuple[str, float] | None:
    if latency.p90 is not None:
        return "p90", latency.p90
    return None if latency.p50 is None else ("p50", latency.p50)


def conversation_words(level: LevelResult) -> str:
    """Return what a level of agents shows, in a few words: "TTFT p90 0.52 s after a tool, …"."""
    agents = level.agents
    if agents is not None:
        waits = (
            (agents.after_tool_ms, "after a tool"),
            (agents.after_human_ms, "after a person"),
            (None if agents.after_tool_ms or agents.after_human_ms else agents.first_ms, "of first calls"),
        )
        parts = [f"TTFT {_words(one)} {name}" for one, name in waits if one is not None and _quantile(one)]
        share = agents.cached_percent
        share = agents.server_cached_percent if share is None else share
        parts += [] if share is None else [f"{share:.0f} % of the prompts from the cache"]
        if agents.ended_early:
            parts.append(f"{agents.early_words} ended early")
        return ", ".join(parts) or "no answered call"
    parts = [] if level.ttft_ms is None or not _quantile(level.ttft_ms) else [f"TTFT {_words(level.ttft_ms)}"]
    return ", ".join(parts) or "no answered request"


def _words(latency: Latency) -> str:
    found = _quantile(latency)
    return "" if found is None else f"{found[0]} {_seconds(found[1])}"


def _seconds(value_ms: float) -> str:
    return f"{value_ms / 1000:.2f} s" if value_ms < _WHOLE_FROM_MS else f"{value_ms / 1000:.0f} s"


def _doubt(level: LevelResult) -> str:
    doubts = [mark.word for mark in marks_of(level) if mark.doubt]
    return f" (warning: {doubts[0]})" if doubts else ""


def conversation_figures(level: LevelResult) -> dict[str, float]:
    """Return the figures of a level that only tables of agents show, by name."""
    agents = level.agents
    found: dict[str, float | None] = {}
    if agents is not None:
        groups = (
            ("tool", agents.after_tool_ms),
            ("human", agents.after_human_ms),
            ("request", agents.request_ms),
        )
        for name, one in groups:
            found[f"{name}_p50_ms"] = None if one is None else one.p50
            found[f"{name}_p90_ms"] = None if one is None else one.p90
        share = agents.cached_percent
        found["cached_percent"] = agents.server_cached_percent if share is None else share
        found |= {"fit": agents.fit, "calls": agents.calls, "interactivity_tps": agents.interactivity_tps}
    return {name: value for name, value in found.items() if value is not None}


def conversation_facts(level: LevelResult) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for what a level of agents shows, the most important first."""
    if level.agents is not None:
        yield from _agent_facts(level.agents)


def _agent_facts(found: AgentsResult) -> Iterator[tuple[str, str]]:
    calls = f"{found.calls:,} of {found.conversations:,} conversations"
    calls += f"; {found.unanswered} unanswered" if found.unanswered else ""
    calls += f"; {found.calls_per_request:.1f} for a person's request" if found.calls_per_request else ""
    yield "Calls", calls
    for name, latency in (("First calls", found.first_ms), ("Compacted", found.compacted_ms)):
        if latency is not None:
            yield (
                name,
                f"TTFT {METRICS['ttft_ms'].text(latency.p50 or latency.mean)} ms, {latency.count} calls",
            )
    medians = [(one.name, None if one.ttft_ms is None else one.ttft_ms.p50) for one in found.turns]
    turns = [f"{name}: {p50:.0f}" for name, p50 in medians if p50 is not None]
    if turns:
        yield "TTFT by turn", f"{', '.join(turns)} ms (p50)"
    shares = ((found.cached_percent, "as answers report"), (found.server_cached_percent, "by counters"))
    cache = [f"{share:.1f} % of the prompts {words}" for share, words in shares if share is not None]
    if found.amplification is not None:
        cache.append(f"{found.amplification:.1f} × the new tokens computed")
    if cache:
        yield "From cache", ", ".join(cache)
    yield "Compactions", f"{found.compactions:,}"
    if found.ended_early:
        yield "Ended early", f"{found.early_words}: {found.early_message or ''}".removesuffix(": ")
    if found.context_tokens is not None:
        fit = "" if found.fit is None else f"; {found.fit:.0f} such conversations fit the KV cache"
        yield "Context", f"{found.context_tokens:,.0f} tokens on average{fit}"
    if found.interactivity_tps is not None:
        yield "Interactivity", f"{found.interactivity_tps:.1f} tok/s, E2E-normalised, 90th percentile"
    if (time := found.shares) is not None:
        parts = (
            (time.first_token, "first token"),
            (time.generation, "answer"),
            (time.tool, "tool"),
            (time.human, "person"),
        )
        yield "Time", ", ".join(f"{share:.0f} % {name}" for share, name in parts if share is not None)
