"""What a capacity search is about to do, and when it ends at the latest."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from sparktop.graphics.durations import duration_words
from sparktop.model.load import LoadKind
from sparktop.sweep.plan.capacity import arrivals_needed, share_needed
from sparktop.sweep.plan.plan import Capacity, Plan
from sparktop.sweep.plan.slo import words_of
from sparktop.sweep.run.capacity.levels import LEVEL_OVERHEAD
from sparktop.sweep.run.capacity.search import CapacitySearch

_MINUTE_S = 60.0


def most_seconds(plan: Plan) -> float:
    """Return how long a search lasts at most, unless its requests are slow or its rates low."""
    return most_levels(plan) * LEVEL_OVERHEAD * (plan.duration_s or 0.0) * max(1, len(plan.targets))


def most_levels(plan: Plan) -> int:
    """Return how many levels a search measures on each target at most."""
    capacity = plan.capacity
    return 0 if capacity is None else CapacitySearch(capacity).levels_left()


def plan_sentences(plan: Plan, now: datetime) -> Iterator[str]:
    """Yield lines on what a search looks for, the levels it tries, and its end if it begins `now`."""
    capacity = plan.capacity
    if capacity is None:
        return
    yield f"how many {_what(plan)}? The largest number for which {conditions_words(capacity)}"
    seconds = most_seconds(plan)
    first = "1 ÷ E2E" if capacity.kind is LoadKind.RATE else "1"
    each = duration_words(plan.duration_s)
    if capacity.kind is LoadKind.RATE:
        each += f" or {arrivals_needed(capacity.share):.0f} requests, whichever is longer"
    end = (now + timedelta(seconds=seconds)).strftime("%H:%M")
    minutes = -(-seconds // _MINUTE_S)
    yield (
        f"levels of {each}: {first}, doubled until one fails or to {capacity.most:g}, then between; those at "
        f"the border again with other requests; at most {most_levels(plan)} levels, {minutes:.0f} min, "
        f"{'usually ends' if capacity.kind is LoadKind.RATE else 'ends'} before {end}"
    )


def conditions_words(capacity: Capacity) -> str:
    """Return the conditions as text, with the share of requests that must meet them."""
    words = " and ".join(words_of(one) for one in capacity.conditions)
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
        case LoadKind.USERS:
            return f"users ({plan.pp} + {plan.tg} tokens)"
        case LoadKind.RATE:
            return f"requests per second ({plan.pp} + {plan.tg} tokens, {plan.arrivals})"
        case _:
            return f"requests at once ({plan.pp} + {plan.tg} tokens)"
