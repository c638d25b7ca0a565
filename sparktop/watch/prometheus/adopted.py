"""Which servers of a Prometheus are read through it, and how the store knows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sparktop.analysis.deployments import address_of
from sparktop.model.fleet import Scrape
from sparktop.model.targets import BackendTarget
from sparktop.sources.prometheus.found import FoundServer
from sparktop.store import Store


def own(servers: Iterable[FoundServer], store: Store, source: str) -> Iterator[FoundServer]:
    """Yield those servers that are not watched except through `source`, each with a name that is free."""
    others = [
        one
        for one in store.targets()
        if isinstance(one, BackendTarget) and (one.scrape is None or one.scrape.source != source)
    ]
    names, places = {one.name for one in others}, {address_of(one.url) for one in others}
    for one in servers:
        if address_of(one.url) not in places:
            name = f"{source}/{one.name}" if one.name in names else one.name
            yield one if name == one.name else replace(one, name=name)


def as_backend(server: FoundServer, nodes: tuple[str, ...], source: str, every_s: float) -> BackendTarget:
    """Return a server on these machines, which `source` scrapes every `every_s` seconds, for the store."""
    return BackendTarget(
        server.name, server.url, server.engine, nodes, scrape=Scrape(source, every_s), group=server.group
    )
