"""Delivers the routers that a Prometheus scrapes, each with the servers behind it."""

from __future__ import annotations

from collections.abc import Callable

from sparktop.engines.router_pages import STACK
from sparktop.model.router import Deployment, RouterSample
from sparktop.model.targets import RouterTarget
from sparktop.model.text import clean
from sparktop.store import SourceKey, Store
from sparktop.watch.prometheus.finder import Finder
from sparktop.watch.prometheus.machines import Deliver

_MOST_ROUTERS, _MOST_DEPLOYMENTS, _LONGEST_NAME = 16, 256, 64


class Routers:
    """The routers of one Prometheus."""

    def __init__(self, store: Store, deliver: Deliver, clock: Callable[[], float]) -> None:
        """Add routers to `store`, and hand over what is known of them by `deliver`."""
        self._store = store
        self._deliver = deliver
        self._clock = clock
        self._added: set[str] = set()

    def deliver(self, finder: Finder) -> None:
        """Deliver each router with the servers behind it, which form a group if they are read."""
        now = self._clock()
        for key, urls in list(finder.found.routers.items())[:_MOST_ROUTERS]:
            name = clean(key.address or key.job, _LONGEST_NAME)
            url = finder.active[key].url if key in finder.active else f"http://{key.address}"
            if name not in self._added:
                self._added.add(name)
                self._store.add(RouterTarget(name, url))
            deployments = tuple(Deployment(one, one) for one in urls[:_MOST_DEPLOYMENTS])
            sample = RouterSample(now, STACK, alive=key not in finder.dead, deployments=deployments)
            self._deliver(SourceKey.router(name), sample, None)
