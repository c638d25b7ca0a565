"""Runs computations in steps without an event loop."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from sparktop.sources.prometheus.client import Answer, Series, Steps, answer_steps

Result = TypeVar("Result")


def at_once(work: Steps[Result]) -> Result:
    """Return the result of `work`, computed without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: Result = done.value
            return found


def read_answer(body: bytes) -> Answer:
    """Return an answer with its series."""
    series: list[Series] = []
    rest = at_once(answer_steps(body, series.append))
    return replace(rest, series=tuple(series))
