"""Writes the command line that repeats a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from sparktop.model.load import LoadMode
from sparktop.sweep.result.results import SweepResult


def repeat_command(result: SweepResult, *, addresses: bool = False) -> str:
    """Return the shell command that puts the same load on the same targets.

    Targets are named as in the configuration file; with `addresses` their URLs are used instead. Return ""
    if a target's name begins with "-", because the shell command would take it as an option.
    """
    if any(target.name.startswith("-") for target in result.targets):
        return ""
    return shlex.join(["sparktop", "sweep", *_targets(result, addresses=addresses), *_load(result)])


def _targets(result: SweepResult, *, addresses: bool) -> Iterator[str]:
    for target in result.targets:
        yield from ("--target", f"{target.name}={target.url}") if addresses else (target.name,)


def _load(result: SweepResult) -> Iterator[str]:
    plan, slo = result.plan, result.slo
    conditions = slo.conditions if slo is not None else ()
    runs = plan.runs if plan.mode is LoadMode.STEADY or plan.requests is None else None
    options = (
        ("-c", ",".join(map(str, plan.concurrency)) if slo is None else ""),
        ("--pp", ",".join(map(str, result.prompt_lengths()))),
        ("--tg", plan.tg),
        ("--mode", plan.mode.value),
        ("--runs", runs),
        ("--duration", None if plan.duration_s is None else f"{plan.duration_s:g}"),
        ("--requests", plan.requests),
        ("--order", plan.order.value),
        ("--api", plan.api.value),
        ("--seed", plan.seed),
        # Stored as "ttft_p90_ms ≤ 2000".
        ("--slo", ",".join("=".join(one.split()[::2]) for one in conditions)),
    )
    for name, value in options:
        if value is not None and value != "":
            yield from (name, str(value))
    if not plan.warmup:
        yield "--no-warm-up"
