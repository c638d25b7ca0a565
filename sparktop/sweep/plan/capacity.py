"""What a capacity search looks for: the largest load of one kind under which all conditions hold.

Conditions limit single requests. Of a rate, the stated share of the requests must meet all of them. Of other
loads, each condition has its own share: `ttft_p90_ms=2000` holds if 90 % of the requests have their first
token within 2 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sparktop.errors import UsageError, did_you_mean
from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.model.text import clean
from sparktop.sweep.plan.conversations import find_conversations
from sparktop.sweep.plan.plan import Capacity, Plan, SloCondition, SweepTarget
from sparktop.sweep.plan.presets import DEFAULT, find_preset, make_plan
from sparktop.sweep.plan.slo import SHARES, parse_slo, parts_of

DEFAULT_CONDITIONS = "ttft_p90_ms=2000,stream_tps=15"
"""What a search holds against, if nothing else is given."""
DEFAULT_SHARE = 0.95
"""Share of requests at a rate that must meet all conditions."""
NAME = "capacity"
"""Name of the plan in results and files."""
AFTER_TOOL, AFTER_HUMAN = "ttft_tool", "ttft_human"
"""TTFT of an agent's calls after the output of a tool, and after a person's request within a conversation."""
RATIO = 1.1
"""Largest ratio of the lowest rate that fails to the highest that holds, at the end of a search."""
FINE_TO, FINE_SHARE = 64, 1 / 16
"""Whole numbers are found exactly up to the first; above, to this share."""
LEAST_REQUESTS = 100
"""Arrivals of a level at a rate, at least."""
_LEAST_S = 60.0
"""Seconds of a level of a plan that has no duration."""
_LONGEST_S = 900.0
"""Most seconds to which slow or rare requests extend a level."""
_RESPONSES = 3.0
"""Least duration of a level, in median E2E."""
_RATE_RESPONSES = 6.0
"""The same at a rate: near its limit the queue grows over several."""
_DECIDING_REQUESTS = 60
"""Requests of a run near the answer, where they come often enough."""
_PAUSE_S = 20.0
"""Median pause of people from which on a run near the answer is extended for more requests, up to the usual
duration of such conversations."""
_ARRIVALS_FACTOR = 1.3
"""Arrivals of a level, as a multiple of the fewest with which a level without a miss passes (Wilson)."""
_WILSON_Z2 = 3.8415
"""z² of a two-sided 95 % interval."""
DEFAULT_MOST = {LoadKind.CONCURRENCY: 256.0, LoadKind.RATE: 256.0, LoadKind.AGENTS: 64.0}
"""Largest load to try by kind, if none is given."""
DEFAULT_S = {LoadKind.CONCURRENCY: 60.0, LoadKind.RATE: 60.0, LoadKind.AGENTS: 90.0}
"""Least seconds of a level by kind, if none are given."""
_AGENTS_ONLY = tuple(
    f"{name}_{word}_ms" for name in (AFTER_TOOL, AFTER_HUMAN) for word in ("p50", "p90", "p95", "p99")
)
"""Figures that a condition may limit for agents only."""


Limits = tuple[str, float]
"""Conditions, and the share of the requests that must meet all of them."""
PUBLISHED_LIMITS: Mapping[str, Limits] = {
    "mlperf-gpt-oss-120b": ("ttft_p99_ms=3000,tpot_p99_ms=80", 0.99),
    "mlperf-gpt-oss-120b-interactive": ("ttft_p99_ms=2000,tpot_p99_ms=20", 0.99),
    "mlperf-llama3.1-8b": ("ttft_p99_ms=2000,tpot_p99_ms=100", 0.99),
}
"""Published limits for requests at a rate, by the names that `--preset` accepts.

They are those of MLPerf Inference's scenarios Server and Interactive.
"""


def find_limits(name: str) -> Limits:
    """Return the published limits `name`.

    Raises:
        UsageError: there are none of this name.
    """
    if name not in PUBLISHED_LIMITS:
        suggestion = did_you_mean(name, PUBLISHED_LIMITS) or f" (known: {', '.join(PUBLISHED_LIMITS)})"
        raise UsageError(f"--preset: there are no limits '{clean(name, 40)}'{suggestion}")
    return PUBLISHED_LIMITS[name]


def parse_conditions(text: str, kind: LoadKind) -> tuple[SloCondition, ...]:
    """Parse conditions on single requests such as `ttft_p90_ms=2000,stream_tps=15`.

    Raises:
        UsageError: a condition is invalid, or limits something else than single requests.
    """
    further_names = _AGENTS_ONLY if kind is LoadKind.AGENTS else ()
    conditions = parse_slo(text, further_names)
    for condition in conditions:
        if parts_of(condition.figure)[1] == "mean" or condition.figure.startswith("client_wait"):
            raise UsageError(
                f"--slo: {condition.figure} does not limit single requests: write for example "
                "ttft_p90_ms=2000 (sparktop sweep --slo takes means and rates of a server)"
            )
    return conditions


def share_needed(capacity: Capacity, condition: SloCondition) -> float:
    """Return the share (0 to 1) of the requests that must meet a condition."""
    if capacity.kind is LoadKind.RATE:
        return capacity.share
    share = SHARES[parts_of(condition.figure)[1]]
    # At least 15 tok/s in the 10th percentile: 90 % of the requests are as fast.
    return 1 - share if condition.at_least else share


def level_plan(
    plan: Plan,
    point: LoadPoint,
    median_s: float | None = None,
    each_per_s: float | None = None,
    *,
    decides: bool = False,
) -> Plan:
    """Return the plan for a level at `point`, which lasts as long as a judgement needs.

    That is the plan's duration, three times the median E2E of the levels before (six times for a rate),
    and of a rate the time for enough arrivals. A run that `decides`, since the answer is near, lasts longer
    where requests are rare: `each_per_s` is their number per second at a load of 1. A duration that the user
    sets is extended for arrivals only.
    """
    capacity = plan.capacity
    if capacity is None:
        return plan
    seconds, is_rate = plan.duration_s or _LEAST_S, point.kind is LoadKind.RATE
    if not capacity.fixed_s:
        seconds = max(seconds, (_RATE_RESPONSES if is_rate else _RESPONSES) * (median_s or 0.0))
        if decides and each_per_s:
            needed_s = _DECIDING_REQUESTS / (each_per_s * point.value)
            seconds = max(seconds, min(longest_seconds(plan), needed_s))
    if is_rate:
        seconds = max(seconds, arrivals_needed(capacity.share) / point.value)
    return replace(plan, duration_s=min(seconds, max(_LONGEST_S, plan.duration_s or 0.0)))


def longest_seconds(plan: Plan) -> float:
    """Return how long a run near the answer lasts at most, before slow or rare requests extend it.

    That is the plan's duration, or that of its conversations if people pause for `_PAUSE_S` or more.
    """
    seconds, people = plan.duration_s or _LEAST_S, plan.conversations
    fixed = plan.capacity is not None and plan.capacity.fixed_s
    if people is None or fixed or people.human_pause_s.median < _PAUSE_S:
        return seconds
    return max(seconds, people.duration_s)


def arrivals_needed(share: float) -> float:
    """Return how many arrivals a level at a rate needs so that it can pass in spite of a few misses.

    `share`, below 1, is the share of the requests that must meet all conditions. n requests without a miss
    have the lower Wilson bound n / (n + z²), which reaches the share from n = z² share / (1 - share) on.
    """
    return max(LEAST_REQUESTS, _ARRIVALS_FACTOR * _WILSON_Z2 * share / (1 - share))


WORKLOADS = ("coder-quick", "chat")
"""What agents do, unless the user chooses something else: the first that fits the servers' context."""


def make_capacity_plan(
    capacity: Capacity,
    targets: Sequence[SweepTarget],
    spec: SweepSpec,
    *,
    guard: GuardLimits | None = None,
) -> Plan:
    """Return the plan of a search on `targets`, with the settings that the user gave.

    Raises:
        UsageError: settings contradict each other, or two targets have the same name.
    """
    kind = capacity.kind
    capacity = replace(capacity, fixed_workload=spec.workload is not None)
    # One level stands for all: it has the settings that all have, and these are checked.
    level_of_kind = {
        LoadKind.CONCURRENCY: SweepSpec(concurrency=(1,), mode=LoadMode.STEADY.value),
        LoadKind.RATE: SweepSpec(rate="1"),
        LoadKind.AGENTS: SweepSpec(agents=(1,), workload=WORKLOADS[0]),
    }
    base = level_of_kind[kind] | SweepSpec(runs=1, duration_s=DEFAULT_S[kind])
    plan = make_plan(find_preset(DEFAULT) | base | spec, targets, guard=guard)
    return replace(plan, points=(), concurrency=(), climb_to=None, capacity=capacity, preset=NAME)


def with_fitting_conversations(plan: Plan, contexts: Mapping[str, int]) -> tuple[Plan, str]:
    """Return `plan` with conversations that fit `contexts`, and a sentence on them.

    `contexts` has the most tokens of a request by the name of a server. The plan stays as it is, and the
    sentence is empty, if its conversations fit, the user chose them, or none of `WORKLOADS` fits.
    """
    chosen = plan.conversations
    if plan.capacity is None or plan.capacity.fixed_workload or chosen is None or not contexts:
        return plan, ""
    server = min(contexts, key=contexts.__getitem__)
    context = contexts[server]
    presets = map(find_conversations, WORKLOADS)
    fitting = next((preset for preset in presets if preset.least_context_tokens <= context), chosen)
    if fitting == chosen:
        return plan, ""
    words = (
        f"workload {fitting.name} instead of {chosen.name}, which needs about "
        f"{chosen.least_context_tokens:,} tokens a request: {clean(server, 64)} takes at most {context:,}"
    )
    return replace(plan, conversations=fitting), words


def default_capacity(kind: LoadKind = LoadKind.AGENTS) -> Capacity:
    """Return what a search looks for if the user says nothing."""
    return Capacity(kind, parse_conditions(DEFAULT_CONDITIONS, kind), most=DEFAULT_MOST[kind])
