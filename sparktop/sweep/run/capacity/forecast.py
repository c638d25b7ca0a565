"""What a capacity search is about to do, and when it ends at the latest."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from sparktop.graphics.numbers import duration_words
from sparktop.model.load import LoadKind
from sparktop.sweep.plan.capacity import arrivals_needed, longest_seconds, share_needed
from sparktop.sweep.plan.plan import Capacity, Plan
from sparktop.sweep.plan.slo import plain_words, words_of
from sparktop.sweep.run.capacity.levels import LEVEL_OVERHEAD
from sparktop.sweep.run.capacity.search import MOST_RUNS, CapacitySearch

_MINUTE_S = 60.0


def most_seconds(plan: Plan) -> float:
    """Return how long a search lasts at most, unless its requests are slow or its rates low."""
    return most_levels(plan) * LEVEL_OVERHEAD * longest_seconds(plan) * max(1, len(plan.targets))


def usual_seconds(plan: Plan) -> float:
    """Return how long a search lasts where no decision is close."""
    return usual_levels(plan) * LEVEL_OVERHEAD * (plan.duration_s or 0.0) * max(1, len(plan.targets))


def most_levels(plan: Plan) -> int:
    """Return how many runs of levels a search makes on each target at most."""
    return 0 if plan.capacity is None else MOST_RUNS


def usual_levels(plan: Plan) -> int:
    """Return how many runs of levels a search up to the largest load needs where no decision is close."""
    return 0 if plan.capacity is None else CapacitySearch(plan.capacity).levels_left()


def plan_sentences(plan: Plan, now: datetime) -> Iterator[str]:
    """Yield lines on what a search looks for, the levels it tries, and its end if it begins `now`."""
    capacity = plan.capacity
    if capacity is None:
        return
    yield f"how many {_what(plan)}? The largest number for which {conditions_words(capacity)}"
    seconds, usual_s = most_seconds(plan), usual_seconds(plan)
    is_rate = capacity.kind is LoadKind.RATE
    first = "1 ÷ E2E" if is_rate else "1"
    each = duration_words(plan.duration_s)
    if is_rate:
        each += f" or {arrivals_needed(capacity.share):.0f} requests, whichever is longer"
    end = (now + timedelta(seconds=seconds)).strftime("%H:%M")
    low, high = (-(-one // _MINUTE_S) for one in (usual_s, seconds))
    usual = usual_levels(plan)
    ends = "usually ends" if is_rate else "ends"
    yield (
        f"each level is tried for {each}: {first}, then twice as much each time until one fails (at most "
        f"{capacity.most:g}), then those between. Close results are repeated with other requests. "
        f"About {usual} runs, {low:.0f} min; "
        f"at most {most_levels(plan)} runs, {high:.0f} min, {ends} before {end}"
    )


def conditions_words(capacity: Capacity) -> str:
    """Return the conditions as text, with the share of requests that must meet them."""
    words = " and ".join(plain_words(words_of(one)) for one in capacity.conditions)
    if capacity.kind is LoadKind.RATE:
        return f"{100 * capacity.share:g} % of the requests meet {words}"
    shares = {share_needed(capacity, one) for one in capacity.conditions}
    if len(shares) == 1:
        return f"{words} for {100 * shares.pop():.0f} % of the requests"
    return words


def _what(plan: Plan) -> str:
    capacity = plan.capacity
    kind = LoadKind.CONCURRENCY if capacity is None else capacity.kind
    match kind:
        case LoadKind.AGENTS:
            name = "" if plan.conversations is None else f" ({plan.conversations.name})"
            return f"agents{name}"
        case LoadKind.RATE:
            return f"requests per second ({plan.pp} + {plan.tg} tokens, {plan.arrivals})"
        case _:
            return f"requests at once ({plan.pp} + {plan.tg} tokens)"
