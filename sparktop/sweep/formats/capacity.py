"""Writes the answer of a capacity search as text: a sentence, and a line for each level."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.sweep.compare.compare import compared_targets
from sparktop.sweep.result.results import CapacityAnswer, CapacityResult, ProbeResult, SweepResult
from sparktop.sweep.view.words.capacity import amount, answer_words, compared_words, condition_words


def capacity_text(result: SweepResult) -> str:
    """Return the answers and the levels behind them as text."""
    return "\n".join([*_lines(result), ""])


def _lines(result: SweepResult) -> Iterator[str]:
    found = result.capacity
    if found is None:
        yield "nothing was measured"
        return
    if (compared := compared_targets(found)) is not None:
        yield compared_words(compared)
    for target in result.targets:
        answer = found.answers.get(target.name)
        if answer is None:
            yield f"{target.name}: nothing was measured: {target.error or result.stop_reason or 'unknown'}"
            continue
        first, *others = answer_words(found, answer)
        yield f"{target.name}: {first}"
        yield from (f"  {one}" for one in others)
        reason = target.error or (None if answer.complete else result.stop_reason)
        if reason is not None:
            yield f"  {reason}"
        yield from _levels(found, answer)


def _levels(found: CapacityResult, answer: CapacityAnswer) -> Iterator[str]:
    for one in sorted(answer.probes, key=lambda probe: probe.value):
        yield f"  {sign(one)} {amount(found.load, one.value)}: {_figures(one)}"


def sign(probe: ProbeResult) -> str:
    """Return the verdict on a level as one character: ✓ holds, ✗ fails, ? where it is not certain."""
    return ("✓" if probe.holds else "✗") if probe.certain else "?"


def _figures(one: ProbeResult) -> str:
    parts = [] if one.trouble is None else [one.trouble]
    parts += [condition_words(part) for part in one.conditions if part.figure is not None]
    together = next((part for part in one.conditions if part.figure is None), None)
    if together is not None and together.met_percent is not None:
        parts.append(f"{together.met_percent:.1f} % met all")
    runs = "" if one.runs == 1 else f", {one.runs} runs"
    verdict, fails = "holds" if one.holds else "fails", one.fails_percent
    chance = "but not certain"
    if fails is not None:
        chance = f"with a probability of {100 - fails if one.holds else fails:.0f} %"
    unsure = "" if one.certain else f", {verdict} {chance}"
    return f"{'; '.join(parts)} ({one.requests} requests{runs}{unsure})"
