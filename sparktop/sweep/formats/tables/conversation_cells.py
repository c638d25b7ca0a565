"""Cells of the tables of agents: heading and text of each column."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparktop.graphics.numbers import UNKNOWN
from sparktop.sweep.result.agents.parts import AgentsResult
from sparktop.sweep.result.results import LevelResult

Cell = tuple[str, Callable[[LevelResult], str]]
"""(heading, function that returns the text of a level's cell; "–" if the value is unknown)."""


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}{unit}"


def _of_agents(head: str, text: Callable[[AgentsResult], str]) -> Cell:
    return head, lambda level: UNKNOWN if level.agents is None else text(level.agents) or UNKNOWN


AGENTS: Sequence[Cell] = (
    _of_agents("Calls", lambda one: f"{one.calls:,}"),
    _of_agents("From cache", lambda one: _number(one.cached_percent, 0, " %")),
    _of_agents("By counters", lambda one: _number(one.server_cached_percent, 0, " %")),
    _of_agents("Amplification", lambda one: _number(one.amplification, 1)),
    _of_agents("Compactions", lambda one: f"{one.compactions:,}"),
    _of_agents("Ended early", lambda one: one.early_words),
    _of_agents("Context", lambda one: _number(one.context_tokens, 0)),
    _of_agents("Fit KV cache", lambda one: _number(one.fit, 0)),
    _of_agents("Interactivity", lambda one: _number(one.interactivity_tps, 1)),
    _of_agents("In flight", lambda one: _number(one.in_flight_mean, 1)),
)
