"""Checks a Prometheus: whether it answers, which servers it scrapes, how often, and how its clock runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from sparktop.doctor.check import Check, Status
from sparktop.doctor.network import Network
from sparktop.doctor.servers import check_port, failure_check
from sparktop.model.failure import FailureKind
from sparktop.model.targets import PrometheusTarget
from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus.answer import Series
from sparktop.sources.prometheus.client import PrometheusClient
from sparktop.sources.prometheus.down import down_query, past_query, said_down
from sparktop.sources.prometheus.found import (
    GROUPS_ADVICE,
    Key,
    active_targets,
    found_servers,
    groups_fault,
    is_federated,
    key_of,
    servers_query,
)
from sparktop.sources.prometheus.steps import in_steps

_ADVICE = {
    FailureKind.UNAUTHORIZED: "see that the environment variable or the file holds the right one; the tenant "
    "of a Mimir stands in headers",
    FailureKind.TLS: "correct http:// or https://, or name the certificate's authority with tls_ca",
}
"""Advice where that for inference servers does not fit."""
_REFUSED = "start it, or correct the port; other machines reach it with --web.listen-address=0.0.0.0:9090"
_SKEW_S = 5.0
_SLOW_SCRAPES_S = 30.0
_TARGETS = "/api/v1/targets?state=active"


async def check_prometheus(target: PrometheusTarget, network: Network) -> list[Check]:
    """Return the checks of a Prometheus; those after a failed one are left out."""
    reach = await check_port(target.name, target.url, network, refused=_REFUSED)
    if reach.status is Status.FAIL:
        return [reach]
    client = PrometheusClient(target)
    try:
        clocks = await client.clocks()
        answer = await client.query(servers_query(target.selector, target.group_by))
        down, past = await _down(client, target)
        listed = await asyncio.gather(client.get(_TARGETS), return_exceptions=True)
    except AnswerError as error:
        failed = failure_check(f"{target.name} query", error)
        return [reach, replace(failed, advice=_ADVICE.get(error.kind, failed.advice))]
    finally:
        await client.close()
    active = {} if isinstance(listed[0], BaseException) else active_targets(listed[0])
    servers = await in_steps(found_servers(answer.series, active, target.group_by, past))
    groups = len({one.group for one in servers})
    every = [known.every_s for one in servers if (known := active.get(one.key.target)) and known.every_s]
    checks = [reach, _clock(target.name, clocks.ahead_s)]
    if not servers:
        advice = "scrape the servers' /metrics, or correct the selector"
        said = "scrapes no vLLM, SGLang or Ray Serve LLM"
        if down:
            said, advice = f"{said}; {said_down(down)}", "start them: a server is known once it was scraped"
        return [*checks, Check(f"{target.name} servers", Status.FAIL, said, advice)]
    pace = f", scraped every {median(every):g} s" if every else ""
    said = f"{_count(len(servers), 'server')} in {_count(groups, 'group')}{pace}"
    slow = bool(every) and median(every) > _SLOW_SCRAPES_S
    advice = "scrape every 15 s: rates and verdicts are as slow as the scrapes" if slow else ""
    checks.append(Check(f"{target.name} servers", Status.WARN if slow else Status.OK, said, advice))
    if dead := down & {one.key.target for one in servers}:
        advice = "start them, or correct their targets: the Prometheus cannot scrape them"
        checks.append(Check(f"{target.name} down", Status.FAIL, said_down(dead), advice))
    if fault := groups_fault(answer.series, target.group_by):
        checks.append(Check(f"{target.name} groups", Status.WARN, fault, GROUPS_ADVICE))
    if is_federated(one.key for one in servers):
        federated = "it federates another one: whether a server is down is not known"
        checks.append(Check(f"{target.name} federation", Status.WARN, federated, "name that one instead"))
    if answer.warnings:
        checks.append(Check(f"{target.name} warnings", Status.WARN, answer.warnings[0]))
    return checks


async def _down(
    client: PrometheusClient, target: PrometheusTarget
) -> tuple[frozenset[Key], Sequence[Series]]:
    """Return the targets that are down, and the series of those that were servers within the past hour.

    Raises:
        AnswerError: the targets cannot be queried.
    """
    answer = await client.query(down_query())
    down = frozenset(key_of(one.labels) for one in answer.series)
    if not down:
        return down, ()
    try:
        past = await client.query(past_query(target.selector, target.group_by, down))
    except AnswerError:
        return down, ()
    return down, [one for one in past.series if key_of(one.labels).target in down]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _clock(name: str, ahead_s: float) -> Check:
    if abs(ahead_s) <= _SKEW_S:
        return Check(f"{name} clock", Status.OK, "its clock is that of this machine, within 5 s")
    way = "ahead of" if ahead_s > 0 else "behind"
    said = f"its clock is {abs(ahead_s):.0f} s {way} this machine's: ages are by its clock"
    return Check(f"{name} clock", Status.WARN, said, "set both clocks by NTP")
