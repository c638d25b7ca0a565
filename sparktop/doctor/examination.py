"""Runs all checks that use the network, in the order in which a person would investigate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from sparktop.doctor.check import Check, Status
from sparktop.doctor.listed import read_listed, softened
from sparktop.doctor.names import check_names, host_key
from sparktop.doctor.network import Network, place_of
from sparktop.doctor.nodes import check_node
from sparktop.doctor.prometheus import check_prometheus
from sparktop.doctor.servers import check_backend, check_router
from sparktop.model.targets import BackendTarget, NodeTarget, PrometheusTarget, RouterTarget, Watch
from sparktop.watch.discovery import Found, discover

_AT_ONCE = 16
"""Most servers that are checked at the same time, so that checking a hundred servers does not look like an
attack."""
Search = Callable[[Iterable[str]], Awaitable[Found]]
Target = TypeVar("Target", BackendTarget, NodeTarget, RouterTarget, PrometheusTarget)


async def examine_network(
    watch: Watch, network: Network, *, wanted: bool, search: Search = discover
) -> list[Check]:
    """Check host names, and all nodes, backends and routers that are watched; return the checks.

    The hosts in `watch.discover` are searched for servers with `search`, and these servers are checked too,
    as are those that files list.
    `wanted` is whether the user named these hosts, so that a search without a result is a failure.
    """
    named = await check_names(_hosts(watch), network)
    resolved = [host for host in watch.discover if not _is_dead(named.get(host_key(host)))]
    found = await search(resolved) if resolved else Found()
    backends = (*watch.backends, *_unknown(found.backends, watch.backends))
    routers = (*watch.routers, *watch.sweep_routers, *found.routers)
    listed = await read_listed(watch)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def each(
        check: Callable[[Target, Network], Awaitable[list[Check]]], targets: Sequence[Target]
    ) -> list[Check]:
        async def one(target: Target) -> list[Check]:
            async with gate:
                return await check(target, network)

        return [line for lines in await asyncio.gather(*map(one, targets)) for line in lines]

    async def check_listed(target: BackendTarget, network: Network) -> list[Check]:
        return softened(await check_backend(target, network))

    parts = await asyncio.gather(
        each(check_node, [*watch.nodes, *listed.nodes]),
        each(check_backend, backends),
        each(check_listed, _unknown(listed.backends, backends)),
        each(check_router, routers),
        each(check_prometheus, watch.prometheus),
    )
    checks = [*named.values(), *_search_checks(found, wanted=wanted), *listed.checks]
    return checks + [check for part in parts for check in part]


def _hosts(watch: Watch) -> list[str]:
    """Return the host of every watched URL, and every host to search; a host can occur repeatedly."""
    urls = [target.url for target in watch.backends]
    urls += [target.url for target in (*watch.routers, *watch.sweep_routers)]
    urls += [target.url for target in watch.nodes if target.url]
    urls += [target.url for target in watch.prometheus]
    places = (place_of(url) for url in urls)
    return [*watch.discover, *(place.host for place in places if place is not None)]


def _is_dead(check: Check | None) -> bool:
    return check is not None and check.status is Status.FAIL


def _unknown(found: Sequence[BackendTarget], known: Sequence[BackendTarget]) -> list[BackendTarget]:
    urls = {target.url for target in known}
    return [target for target in found if target.url not in urls]


def _search_checks(found: Found, *, wanted: bool) -> list[Check]:
    """Return a check for each note of the port search, and for each agent that the search found.

    A note states what the search left out and why. The check of a note is a failure if the user named the
    hosts to search (`wanted`), else a skipped check.
    """
    status = Status.FAIL if wanted else Status.SKIP
    checks = [Check("search", status, note) for note in found.notes]
    return [
        *checks,
        *(Check("search", Status.OK, f"{agent}: an agent answers") for agent in found.agents),
    ]
