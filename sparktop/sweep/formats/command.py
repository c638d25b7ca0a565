"""Writes the command line that repeats a sweep."""

from __future__ import annotations

import json
import shlex

from sparktop.model.load import LoadKind, LoadMode
from sparktop.sweep.plan.capacity import default_seconds
from sparktop.sweep.plan.conversations.reading import BUILT_IN
from sparktop.sweep.result.results import CapacityResult, PlanResult, SweepResult, TracePlan


def repeat_command(result: SweepResult, *, addresses: bool = False) -> str:
    """Return the shell command that puts the same load on the same targets.

    Targets are named as in the configuration file; with `addresses` their URLs are used instead. Return ""
    if a target's name begins with "-", because the shell command would take it as an option.
    """
    if any(target.name.startswith("-") for target in result.targets):
        return ""
    if result.capacity is not None:
        return _capacity_command(result, result.capacity, addresses=addresses)
    words = ["sparktop", "sweep"]
    for target in result.targets:
        words += ["--target", f"{target.name}={target.url}"] if addresses else [target.name]
    plan, slo = result.plan, result.slo
    conditions = slo.conditions if slo is not None else ()
    runs = plan.runs if plan.mode is not LoadMode.BURST or plan.requests is None else None
    limit = "" if plan.climb_to is None else f"..{plan.climb_to}"
    opens, agents = plan.mode is LoadMode.OPEN, plan.load is LoadKind.AGENTS
    options = {
        "-c": ",".join(map(str, plan.concurrency)) + limit if slo is None and not opens else None,
        "--rate": ("auto" if plan.find_knee else ",".join(plan.points)) if opens else None,
        "--arrivals": plan.arrivals,
        "--pp": ",".join(map(str, plan.bases or result.prompt_lengths())),
        "--tg": plan.tg,
        "--depth": ",".join(map(str, plan.depths)),
        "--mode": None if opens or agents else plan.mode.value,
        "--runs": f"{runs}+" if plan.more_runs else runs,
        "--duration": None if plan.duration_s is None else f"{plan.duration_s:g}",
        "--requests": plan.requests,
        "--order": plan.order.value,
        "--api": plan.api.value,
        "--seed": plan.seed,
        # Stored as "ttft_p90_ms ≤ 2000".
        "--slo": ",".join("=".join(one.split()[::2]) for one in conditions or plan.depth_slo),
        **_request_options(result),
    }
    if plan.trace is not None:
        options |= _trace_options(plan.trace)
    if agents:
        options |= _agent_options(plan)
    for name, value in options.items():
        words += [] if value in {None, ""} else [name, str(value)]
    words += _headers(plan)
    words += ["--whole-prompt"] if plan.bases else []
    return shlex.join([*words, *([] if plan.warmup or agents else ["--no-warm-up"])])


def _capacity_command(result: SweepResult, found: CapacityResult, *, addresses: bool) -> str:
    """Return the command that searches again; lengths that the search chose itself are left out."""
    plan = result.plan
    agents, rate = found.load is LoadKind.AGENTS, found.load is LoadKind.RATE
    words = ["sparktop", "capacity", *(one.url if addresses else one.name for one in result.targets)]
    chosen = plan.duration_s is not None and plan.duration_s != default_seconds(found.load)
    options = {
        "--preset": found.limits,
        "--slo": ",".join("=".join(one.split()[::2]) for one in found.conditions if found.limits is None),
        "--workload": _agent_options(plan)["--workload"] if agents else None,
        "--arrivals": plan.arrivals if rate else None,
        "--pp": None if agents else ",".join(map(str, result.prompt_lengths())),
        "--tg": None if agents else plan.tg,
        "--most": None if found.most is None else f"{found.most:g}",
        "--duration": f"{plan.duration_s:g}" if chosen else None,
        "--api": plan.api.value,
        "--seed": plan.seed,
        **_request_options(result),
    }
    for name, value in options.items():
        words += [] if value in {None, ""} else [name, str(value)]
    return shlex.join([*words, *_headers(plan), f"--{found.load.value}"])


def _request_options(result: SweepResult) -> dict[str, str | None]:
    """Return the options for what each request holds, except its headers.

    `--model` is one for all targets: targets with unlike models have them from the configuration file.
    """
    plan, prompts = result.plan, result.plan.prompts
    models = {target.asked_model for target in result.targets}
    return {
        "--model": models.pop() if len(models) == 1 else None,
        "--prompts": None if prompts is None else prompts.path or prompts.name,
        "--extra-body": json.dumps(plan.extra_body) if plan.extra_body else None,
        "--timeout": None if plan.timeout_s is None else f"{plan.timeout_s:g}",
    }


def _headers(plan: PlanResult) -> list[str]:
    """Return the options for headers, whose values are not kept."""
    return [word for name in plan.headers for word in ("--header", f"{name}=…")]


def _agent_options(plan: PlanResult) -> dict[str, str | None]:
    """Return the options that choose agents, whose workload sets the lengths."""
    name = plan.workload
    if name is not None and name not in BUILT_IN:
        name += ".toml"  # a file of the user's own
    return {"--agents": ",".join(plan.points), "--workload": name, **dict.fromkeys(("--pp", "--tg"))}


def _trace_options(trace: TracePlan) -> dict[str, str | None]:
    """Return the options that choose recorded traffic; it sets the rate, the lengths and the duration."""
    return {
        **dict.fromkeys(("--rate", "--arrivals", "--pp", "--tg", "--duration")),
        "--trace": trace.path or trace.name,
        "--trace-format": trace.form,
        "--trace-speed": None if trace.speed in {None, 1.0} else f"{trace.speed:g}",
        "--trace-range": trace.span,
    }
