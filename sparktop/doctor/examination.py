"""Runs all checks that use the network, in the order in which a person would investigate.

Host names come first, then machines (whether the agent or ssh responds, and what it reports), servers,
routers, Prometheus, and files that list servers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from sparktop.doctor.check import Check, Status
from sparktop.doctor.machine import check_compared, check_missing_gpu
from sparktop.doctor.network import Network, check_names, host_key, host_port_of, shown_address
from sparktop.doctor.servers import check_backend, check_port, check_prometheus, check_router
from sparktop.graphics.numbers import count_words
from sparktop.hardware.identity import is_here
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample, Workloads
from sparktop.model.targets import BackendTarget, NodeTarget, PrometheusTarget, RouterTarget, Target, Watch
from sparktop.sources.source import PollResult, Source
from sparktop.watch.discovery import Found, discover
from sparktop.watch.listed import read_lists
from sparktop.watch.sparkrun import read_sparkrun

_AT_ONCE = 16
"""Most servers that are checked at the same time, so that checking a hundred servers does not look like an
attack."""
Search = Callable[[Iterable[str]], Awaitable[Found]]
"""Searches hosts for servers."""
CheckedTarget = TypeVar("CheckedTarget", BackendTarget, NodeTarget, RouterTarget, PrometheusTarget)


async def examine_network(
    watch: Watch,
    network: Network,
    *,
    wanted: bool,
    search: Search = discover,
    this_machine: tuple[PollResult, NodeIdentity] | None = None,
) -> list[Check]:
    """Check host names, and all nodes, backends and routers that are watched; return the checks.

    The hosts in `watch.discover` are searched for servers with `search`, and these servers are checked too,
    as are those that files list.
    `wanted` is whether the user named these hosts, so that a search without a result is a failure.
    `this_machine` is what was read of this machine: it is compared with the others if it is watched.
    """
    name_checks = await check_names(_hosts(watch), network)
    unresolved = {host for host, check in name_checks.items() if check.status is Status.FAIL}
    resolved = [host for host in watch.discover if host_key(host) not in unresolved]
    search_result = await search(resolved) if resolved else Found()
    backends = (*watch.backends, *_without_known(search_result.backends, watch.backends))
    routers = (*watch.routers, *watch.sweep_routers, *search_result.routers)
    listed_checks, listed_backends, listed_nodes = await read_listed(watch)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def wait_and_check(
        check: Callable[[CheckedTarget, Network], Awaitable[list[Check]]], target: CheckedTarget
    ) -> list[Check]:
        async with gate:
            return await check(target, network)

    readings: list[tuple[NodeTarget, PollResult, NodeIdentity]] = []
    if this_machine is not None:
        readings += [(target, *this_machine) for target in watch.nodes if target.via == "local"]

    async def check_machine(target: NodeTarget, network: Network) -> list[Check]:
        return await check_node(target, network, keep=lambda *read: readings.append((target, *read)))

    async def check_server(target: BackendTarget, network: Network) -> list[Check]:
        return await check_backend(target, network, _processes_here(target, this_machine))

    async def check_listed(target: BackendTarget, network: Network) -> list[Check]:
        return soften_failures(await check_server(target, network))

    parts = await asyncio.gather(
        *(wait_and_check(check_machine, node) for node in (*watch.nodes, *listed_nodes)),
        *(wait_and_check(check_server, backend) for backend in backends),
        *(wait_and_check(check_listed, backend) for backend in _without_known(listed_backends, backends)),
        *(wait_and_check(check_router, router) for router in routers),
        *(wait_and_check(check_prometheus, prometheus) for prometheus in watch.prometheus),
    )
    checks = [*name_checks.values(), *_search_checks(search_result, wanted=wanted), *listed_checks]
    compared = check_compared(readings, [*backends, *listed_backends])  # `check_machine` has added to them
    return [*checks, *(check for part in parts for check in part), *compared]


def _processes_here(target: BackendTarget, this_machine: tuple[PollResult, NodeIdentity] | None) -> Workloads:
    """Return the engine processes of this machine if the server's URL means it; else none."""
    sample, identity = this_machine or (None, NodeIdentity())
    if not isinstance(sample, NodeSample) or sample.workloads is None:
        return Workloads()
    host, _ = host_port_of(target.url) or (None, None)
    names = {"localhost", *identity.addresses, (identity.hostname or "").lower()}
    return sample.workloads if is_here(host, names) else Workloads()


def _hosts(watch: Watch) -> list[str]:
    """Return the host of every watched URL, and every host to search; a host can occur repeatedly."""
    routers = (*watch.routers, *watch.sweep_routers)
    targets: tuple[Target, ...] = (*watch.backends, *routers, *watch.nodes, *watch.prometheus)
    urls = [target.url for target in targets if target.url]
    return [*watch.discover, *(host for host, _ in filter(None, map(host_port_of, urls)))]


def _without_known(
    servers: Sequence[BackendTarget], configured: Sequence[BackendTarget]
) -> list[BackendTarget]:
    urls = {target.url for target in configured}
    return [target for target in servers if target.url not in urls]


def _search_checks(found: Found, *, wanted: bool) -> list[Check]:
    """Return a check for each note of the port search, and for each agent that the search found.

    A note states what the search left out and why. The check of a note is a failure if the user named the
    hosts to search (`wanted`), else a skipped check.
    """
    status = Status.FAIL if wanted else Status.SKIP
    checks = [Check("search", status, note) for note in found.notes]
    return checks + [Check("search", Status.OK, f"{agent}: an agent answers") for agent in found.agents]


_AGENT_S, _SSH_S = 6.0, 25.0
"""Seconds to wait for a sample: ssh may take 10 s to connect, and Python on a busy machine some more."""
_ADVICE = {
    FailureKind.REFUSED: "start `sparktop agent --listen HOST:9750 --token-file FILE` there",
    FailureKind.TIMEOUT: "ping the host; look for a firewall between here and there",
    FailureKind.UNAUTHORIZED: "name the agent's token with token_env or token_file",
    FailureKind.TLS: "name the authority that signed its certificate with tls_ca",
    FailureKind.MALFORMED: "correct the port: something else listens there",
}
"""What to do about an agent that fails; a failure of ssh says it itself."""
_RETRYING = re.compile(r" · reconnecting(?: in \d+ s)?$")
"""What sources add to a failure while they try again."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""Hosts that are this machine."""


def node_source(target: NodeTarget) -> Source:
    """Return the source through which the monitor would read the node `target`: an agent or ssh."""
    if target.via == "ssh":
        from sparktop.sources.ssh import SshSource  # late: most examinations have no node elsewhere

        return SshSource(target)
    from sparktop.sources.agent import AgentSource  # as above

    return AgentSource(target)


async def check_node(
    target: NodeTarget,
    network: Network,
    *,
    source: Callable[[NodeTarget], Source] = node_source,
    keep: Callable[[PollResult, NodeIdentity], None] | None = None,
) -> list[Check]:
    """Check the access to a remote node by reading one sample; return [] if the node is this machine.

    `source` creates the source of the samples; `keep` is called with what was read.
    """
    if target.via == "local":
        return []
    checks: list[Check] = []
    if target.via == "agent" and target.url:
        refused = _ADVICE[FailureKind.REFUSED]
        reach = await check_port(f"{target.name} agent", target.url, network, refused=refused)
        checks.append(reach)
        if reach.status is Status.FAIL:
            return checks
        checks += _check_secrecy(target)
    polled = source(target)
    try:
        reading = await polled.poll(_AGENT_S if target.via == "agent" else _SSH_S)
        identity: NodeIdentity | None = getattr(polled, "identity", None)
    finally:
        await polled.close()
    if keep is not None:
        keep(reading, identity or NodeIdentity())
    return [*checks, *_node_checks(target, reading, identity)]


def _check_secrecy(target: NodeTarget) -> list[Check]:
    """Return a warning if the agent's token is sent without encryption to another machine, else no check."""
    host, port = host_port_of(target.url or "") or ("", 0)
    secret = target.token or target.token_file
    if not secret or not host or host in _LOOPBACK or urlsplit(target.url or "").scheme == "https":
        return []
    message = f"the token goes to {shown_address(host, port)} unencrypted: anyone on the way can read it"
    advice = "give the agent --tls-cert and --tls-key, and write https:// here"
    return [Check(f"{target.name} token", Status.WARN, message, advice)]


def _node_checks(target: NodeTarget, reading: PollResult, identity: NodeIdentity | None) -> list[Check]:
    """Return the checks of a node's sample, or of the `Failure` if the node could not be read."""
    name = f"{target.name} node"
    if isinstance(reading, Failure):
        # The doctor does not retry, so the source's announcement of a retry is cut off.
        message = _RETRYING.sub("", reading.message)
        advice = _ADVICE.get(reading.kind, "") if target.via == "agent" else ""
        return [Check(name, Status.FAIL, message, advice)]
    facts = identity or NodeIdentity()
    parts = [facts.product, facts.os, f"driver {facts.driver}" if facts.driver else None]
    summary = ", ".join(part for part in parts if part) or "answers"
    sent = f"; {facts.reader_label} was sent there" if facts.reader_label else ""
    checks = [Check(name, Status.OK, f"read through {target.via}: {summary}{sent}")]
    if isinstance(reading, NodeSample) and reading.gpu_note is not None:
        note = reading.gpu_note.replace(" on this machine", "")  # a note of the machine itself
        checks.append(check_missing_gpu(f"{target.name} GPU", note, reading, facts))
    return checks


_MOST_LISTED = 32
"""Most listed servers that are checked one by one."""


async def read_listed(
    watch: Watch, home: Path | None = None
) -> tuple[list[Check], list[BackendTarget], list[NodeTarget]]:
    """Read the files that `watch` names; `home` is the home directory, for sparkrun's.

    Return (a check for each source and each file that cannot be used, listed servers, listed machines).
    """
    checks: list[Check] = []
    servers: list[BackendTarget] = []
    machines: list[NodeTarget] = []

    def add_source(name: str, backends: Sequence[BackendTarget], problems: Sequence[str]) -> None:
        more = f"; the first {_MOST_LISTED} are checked" if len(backends) > _MOST_LISTED else " listed"
        count = f"{count_words(len(backends), 'server')}{more}"
        checks.append(Check(name, Status.OK if backends else Status.WARN, count))
        checks.extend(Check(name, Status.WARN, problem) for problem in problems)
        servers.extend(backends[:_MOST_LISTED])

    if watch.target_files:
        add_source("target files", *await asyncio.to_thread(read_lists, watch.target_files))
    if watch.sparkrun:
        listed = await asyncio.to_thread(read_sparkrun, home or Path.home())
        add_source("sparkrun", listed.backends, listed.problems)
        machines.extend(listed.nodes[host] for host in listed.default if host in listed.nodes)
    return checks, servers, machines


def soften_failures(checks: Sequence[Check]) -> list[Check]:
    """Return checks of a listed server, with warnings for failures: files keep servers that have ended.

    Ray lists exporters of its own, too: what answers with something else than an LLM server's page is named,
    without advice.
    """
    softened = []
    for check in checks:
        if check.status is not Status.FAIL:
            softened.append(check)
        elif check.message.endswith((": no engine figures", ", not metrics")):
            message = "answers, but not as an LLM server: not watched"
            softened.append(Check(check.name, Status.SKIP, message))
        else:
            advice = "listed in a file; it is watched once it answers"
            softened.append(Check(check.name, Status.WARN, check.message, advice))
    return softened
