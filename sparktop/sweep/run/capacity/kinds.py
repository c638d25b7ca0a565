"""The search that fits a kind of load."""

from __future__ import annotations

from sparktop.model.load import LoadKind
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.run.capacity.number_search import NumberSearch
from sparktop.sweep.run.capacity.rate_search import RateSearch
from sparktop.sweep.run.capacity.search import CapacitySearch


def new_search(capacity: Capacity, first: float = 1.0) -> CapacitySearch:
    """Return the search for `capacity`; of a rate it begins at `first`."""
    return RateSearch(capacity, first) if capacity.kind is LoadKind.RATE else NumberSearch(capacity)
