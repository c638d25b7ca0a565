"""Checks of servers, routers and Prometheus: whether they respond, how fast, what their pages lack.

All requests are GETs on read-only routes. A router's `/health` is never requested, because LiteLLM would send
completions to its backends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from sparktop.analysis.placement import launched_slots, server_process
from sparktop.doctor.check import Check, Status
from sparktop.doctor.network import Network, host_port_of, shown_address
from sparktop.engines import ENGINES, METRICS_PATH, PageError, read_page
from sparktop.engines.registry import EngineKind
from sparktop.engines.router_pages import LISTS, TITLES, router_kind
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.failure import FailureKind
from sparktop.model.node import Workloads
from sparktop.model.targets import BackendTarget, PrometheusTarget, RouterTarget
from sparktop.model.text import clean
from sparktop.net.client import Response
from sparktop.net.failure import HOW_TO_GIVE_A_KEY, AnswerError, is_of_proxy, server_words, status_error
from sparktop.sources.engine_http import EnginePages, RouteFinder, ask_facts
from sparktop.sources.prometheus.client import PrometheusClient, Series
from sparktop.sources.prometheus.found import (
    GROUPS_ADVICE,
    Key,
    active_targets,
    down_query,
    down_text,
    found_servers,
    groups_fault,
    is_federated,
    key_of,
    past_query,
    servers_query,
)
from sparktop.sources.source import LIVELINESS, is_litellm

_UNSEEN = Workloads()
_OK = 200
"""HTTP status of an answer."""
_SLOW_MS = 500.0
"""Milliseconds; a metrics page that takes longer is too slow for a poll every second."""
_PROBE_DEADLINE_S = 15.0
"""Seconds for finding a server's metrics page."""
_ADVICE: Mapping[FailureKind, str] = {
    FailureKind.REFUSED: "start it, with --host 0.0.0.0 if it is on another machine, or correct the port",
    FailureKind.TIMEOUT: "ping the host; look for a firewall between here and there",
    FailureKind.DNS: "use its IP address",
    FailureKind.UNREACHABLE: "check address, cable and routes",
    FailureKind.TLS: "correct http:// or https://, or name the certificate's authority with tls_ca",
    FailureKind.UNAUTHORIZED: f"put its key into an environment variable: {HOW_TO_GIVE_A_KEY}",
    FailureKind.NOT_FOUND: "correct the port or the path in its URL",
    FailureKind.REDIRECT: "write the address that it redirects to",
    FailureKind.METRICS_DISABLED: "start the server with its metrics on",
    FailureKind.OTHER_PROGRAM: "correct the port: watch the inference server instead",
    FailureKind.MALFORMED: "correct the port: something else listens there",
    FailureKind.ROUTER: "a router, not an inference server: watch it with [[routers]]",
    FailureKind.UNSUPPORTED: "correct url or engine in the configuration",
    FailureKind.LOADING: "wait: loading a large model takes minutes",
    FailureKind.ENGINE_DEAD: "restart the server; its log says why the engine died",
}
"""What to do about each kind of failure."""


async def check_backend(
    target: BackendTarget, network: Network, processes: Workloads = _UNSEEN
) -> list[Check]:
    """Return the checks of an inference server, with `processes`, those of its machine as far as seen.

    If a check fails, the checks that depend on its result are left out.
    """
    reach = await check_port(target.name, target.url, network)
    if reach.status is Status.FAIL:
        return [reach]
    visit = _Visit(target, network)
    if target.engine == "auto":
        # Before its page, which may be that of a server behind it.
        is_litellm_router = await visit.is_litellm_router()
        kind = None if is_litellm_router else await _listing_kind(visit.get)
        if is_litellm_router or kind is not None:
            title = "LiteLLM" if kind is None else TITLES[kind]
            message = f"a router ({title}), not an inference server: its figures need the servers behind it"
            advice = "watch it with [[routers]]"
            advice += "" if kind else ", where api_key_env adds deployments, strategy and failures"
            return [reach, Check(f"{target.name} router", Status.WARN, message, advice)]
    metrics, sample = await visit.read_page()
    checks = [reach, metrics]
    if sample is not None:
        engine = ENGINES[sample.engine]
        identity = await visit.identify(engine)
        server = server_process(target.url, sample.engine, processes, alone=False)
        launched = None if server is None else launched_slots(server, len(sample.lanes))
        checks.append(_check_version(target, engine, identity))
        if not engine.runs_nothing:  # it runs no requests, or its engine has a page of its own
            checks += [
                _check_model(target, sample, identity),
                _check_slots(target, replace(identity, slots=identity.slots or sample.slots), launched),
            ]
        checks += await visit.check_health(engine)
    return checks


async def check_router(target: RouterTarget, network: Network) -> list[Check]:
    """Return the checks of a router: its port, and its liveness route or metrics page.

    If the port or the route does not answer, the checks after it are left out.
    """
    reach = await check_port(target.name, target.url, network)
    if reach.status is Status.FAIL:
        return [reach]
    name = f"{target.name} router"
    try:
        reply = await network.get(target.url + LIVELINESS, tls_ca=target.tls_ca)
        is_known = reply.status == _OK and is_litellm(reply.body)
        page = reply if is_known else await network.get(target.url + METRICS_PATH, tls_ca=target.tls_ca)
    except AnswerError as error:
        return [reach, failure_check(name, error)]
    kind = router_kind(page.body) if page.status == _OK and not is_known else None
    if kind is None and not is_known:
        kind = await _listing_kind(lambda path: network.get(target.url + path, tls_ca=target.tls_ca))
    if kind is not None:
        alive = Check(name, Status.OK, f"{TITLES[kind]}, answered in {page.answer_ms:.0f} ms")
        return [reach, alive]
    if not is_known:
        seen = f"answers {LIVELINESS} with HTTP status {reply.status}: no router that is known, or not well"
        advice = "look at its log; of other routers only the backends behind them are watched"
        return [reach, Check(name, Status.WARN, seen, advice)]
    return [reach, Check(name, Status.OK, f"alive, answered in {reply.answer_ms:.0f} ms")]


async def _listing_kind(get: Callable[[str], Awaitable[Response]]) -> str | None:
    """Return the kind of a router that lists its servers on a route of its own; None if it does not."""
    for path, read in LISTS.items():
        try:
            listing = read((await get(path)).body)
        except (AnswerError, PageError):
            continue
        if listing is not None:
            return listing.kind
    return None


async def check_port(
    name: str, url: str, network: Network, *, refused: str = _ADVICE[FailureKind.REFUSED]
) -> Check:
    """Return the check whether a TCP connection to the host and port of `url` succeeds.

    `name` is the name of the server or agent, which becomes part of the check's name. `refused` is the advice
    where nothing listens.
    """
    title = f"{name} port"
    address = host_port_of(url)
    if address is None:
        return Check(title, Status.FAIL, "its URL names no host and port", "write http://host:port")
    try:
        await network.connect(*address)
    except AnswerError as error:
        failure = failure_check(title, error)
        return replace(failure, advice=refused) if error.kind is FailureKind.REFUSED else failure
    return Check(title, Status.OK, f"{shown_address(*address)} takes connections")


def failure_check(name: str, error: AnswerError | PageError) -> Check:
    """Return the check `name` for an answer that failed, with advice by the kind of the failure."""
    status = Status.WARN if error.kind is FailureKind.LOADING else Status.FAIL
    return Check(name, status, error.message, _ADVICE.get(error.kind, ""))


class _Visit:
    """Sends the requests that the checks of one server need."""

    def __init__(self, target: BackendTarget, network: Network) -> None:
        self._target = target
        self._network = network
        self._pages = EnginePages(target.engine, self._answer)
        self._where = shown_address(*(host_port_of(target.url) or ("?", 0)))

    async def read_page(self) -> tuple[Check, EngineSample | None]:
        """Read the server's metrics page, as the monitor would; return (check, sample on the page).

        If the server has no metrics page, its list of models is read instead. The sample is None if neither
        can be read.
        """
        name = f"{self._target.name} metrics"
        finder = RouteFinder(self._target.engine, time.monotonic)
        try:
            sample = await finder.read(self._ask_page, _PROBE_DEADLINE_S)
            if (sample.answer_ms or 0) > _SLOW_MS:
                # Measured again, because the first request also waits for imports.
                sample = await finder.read(self._ask_page, _PROBE_DEADLINE_S)
        except (AnswerError, PageError) as error:
            return failure_check(name, error), None
        size = f"{(sample.page_bytes or 0) / 1000:.1f} kB in {sample.answer_ms or 0:.0f} ms"
        ranks = f", {len(sample.lanes)} data-parallel ranks" if len(sample.lanes) > 1 else ""
        message = f"{ENGINES[sample.engine].title}, {size}{ranks}"
        if sample.note is not None:
            advice = "" if ENGINES[sample.engine].runs_nothing else "turn the server's metrics on"
            return Check(name, Status.WARN, f"{message}: {sample.note}", advice), sample
        if (sample.answer_ms or 0) > _SLOW_MS:
            return Check(name, Status.WARN, message, "too slow for every second: --interval 5"), sample
        return Check(name, Status.OK, message), sample

    async def is_litellm_router(self) -> bool:
        """Return whether the server is a LiteLLM router, judged by its liveness route."""
        try:
            return is_litellm((await self.get(LIVELINESS)).body)
        except AnswerError:
            return False

    async def _ask_page(self, engine: str, deadline_s: float) -> EngineSample:
        answer = await self._pages.answer(engine, deadline_s)
        return read_page(answer.body, at=0.0, engine=engine, answer_ms=answer.answer_ms)

    async def _answer(self, path: str, deadline_s: float) -> Response:
        del deadline_s  # each GET has a deadline of its own
        return await self.get(path)

    async def identify(self, engine: EngineKind) -> EngineIdentity:
        """Request the engine's identity routes and return the identity.

        Fields that no route reports are None.
        """
        return engine.identify(await ask_facts(engine, self._answer, 0.0))

    async def check_health(self, engine: EngineKind) -> list[Check]:
        """Return a failed check if the health route reports that the engine process has died, else []."""
        if engine.health is None:
            return []
        try:
            await self.get(engine.health)
        except AnswerError as error:
            if error.kind is FailureKind.LOADING:
                message = f"503 of {engine.health}: the engine has died, only its HTTP server answers"
                advice = _ADVICE[FailureKind.ENGINE_DEAD]
                return [Check(f"{self._target.name} engine", Status.FAIL, message, advice)]
        return []

    async def get(self, path: str) -> Response:
        """Request a route with the target's key.

        Raises:
            AnswerError: there is no answer, or its status is not 200.
        """
        api_key = self._target.api_key
        reply = await self._network.get(self._target.url + path, api_key=api_key, tls_ca=self._target.tls_ca)
        if reply.status != _OK:
            words = server_words(reply.body, api_key)
            raise status_error(
                reply.status,
                self._where,
                location=reply.headers.get("location", ""),
                words=words,
                has_key=bool(api_key),
                by_proxy=is_of_proxy(reply.body),
            )
        return reply


def _check_version(target: BackendTarget, engine: EngineKind, identity: EngineIdentity) -> Check:
    name = f"{target.name} version"
    if identity.version is not None:
        return Check(name, Status.OK, f"{engine.title} {clean(identity.version, 60)}")
    if "version" not in engine.reports:
        return Check(name, Status.SKIP, f"{engine.title} has no route that reports it")
    fact_pages, advice = ", ".join(engine.facts), "does a proxy in front of it let these through?"
    return Check(name, Status.WARN, f"not reported by {fact_pages}", advice)


def _check_model(target: BackendTarget, sample: EngineSample, identity: EngineIdentity) -> Check:
    name = f"{target.name} model"
    model = identity.model or next(iter(sample.models), None)
    if model is None:
        advice = f"is a model loaded? does /v1/models want a key ({HOW_TO_GIVE_A_KEY})?"
        return Check(name, Status.WARN, "not reported", advice)
    length = "not reported" if identity.max_model_len is None else identity.max_model_len
    return Check(name, Status.OK, f"{clean(model, 80)}, max_model_len {length}")


def _check_slots(target: BackendTarget, identity: EngineIdentity, launched: int | None) -> Check:
    name = f"{target.name} slots"
    if target.slots is not None:
        return Check(name, Status.OK, f"{target.slots}, from the configuration")
    if identity.slots is not None:
        return Check(name, Status.OK, f"{identity.slots}, reported by the server")
    if launched is not None:
        return Check(name, Status.OK, f"{launched}, by --max-num-seqs of its process")
    advice = "put slots = N (vLLM's --max-num-seqs) into its [[backends]]"
    return Check(name, Status.WARN, "not reported, so 8 running requests count as busy", advice)


_PROMETHEUS_ADVICE = {
    FailureKind.UNAUTHORIZED: "see that the environment variable or the file holds the right one; the tenant "
    "of a Mimir stands in headers",
    FailureKind.TLS: "correct http:// or https://, or name the certificate's authority with tls_ca",
}
"""Advice where that for inference servers does not fit."""
_REFUSED = "start it, or correct the port; other machines reach it with --web.listen-address=0.0.0.0:9090"
"""Advice where no Prometheus listens."""
_SKEW_S = 5.0
"""Seconds; a smaller difference of clocks does not matter for scrapes."""
_SLOW_SCRAPES_S = 30.0
"""Seconds between scrapes from which on rates and verdicts are slow."""
_TARGETS = "/api/v1/targets?state=active"
"""Route with what a Prometheus scrapes."""


async def check_prometheus(target: PrometheusTarget, network: Network) -> list[Check]:
    """Return the checks of a Prometheus; those after a failed one are left out."""
    reach = await check_port(target.name, target.url, network, refused=_REFUSED)
    if reach.status is Status.FAIL:
        return [reach]
    client = PrometheusClient(target)
    try:
        clocks = await client.clocks()
        answer = await client.query(servers_query(target.selector, target.group_by))
        down, past_servers = await _targets_down(client, target)
        listed = await asyncio.gather(client.get(_TARGETS), return_exceptions=True)
    except AnswerError as error:
        failure = failure_check(f"{target.name} query", error)
        return [reach, replace(failure, advice=_PROMETHEUS_ADVICE.get(error.kind, failure.advice))]
    finally:
        await client.close()
    active = {} if isinstance(listed[0], BaseException) else active_targets(listed[0])
    servers = found_servers(answer.series, active, target.group_by, past_servers)
    groups = len({server.group for server in servers})
    scraped = [active[server.key.target] for server in servers if server.key.target in active]
    every = [target.every_s for target in scraped if target.every_s]
    checks = [reach, _prometheus_clock_check(target.name, clocks.ahead_s)]
    if not servers:
        advice = "scrape the servers' /metrics, or correct the selector"
        said = "scrapes no vLLM, SGLang or Ray Serve LLM"
        if down:
            said, advice = (
                f"{said}; {down_text(down)}",
                "start them: a server is known once it was scraped",
            )
        return [*checks, Check(f"{target.name} servers", Status.FAIL, said, advice)]
    pace = f", scraped every {median(every):g} s" if every else ""
    counts = f"{len(servers)} server{'' if len(servers) == 1 else 's'}"
    counts += f" in {groups} group{'' if groups == 1 else 's'}"
    said = f"{counts}{pace}"
    slow = bool(every) and median(every) > _SLOW_SCRAPES_S
    advice = "scrape every 15 s: rates and verdicts are as slow as the scrapes" if slow else ""
    checks.append(Check(f"{target.name} servers", Status.WARN if slow else Status.OK, said, advice))
    if dead := down & {server.key.target for server in servers}:
        advice = "start them, or correct their targets: the Prometheus cannot scrape them"
        checks.append(Check(f"{target.name} down", Status.FAIL, down_text(dead), advice))
    if fault := groups_fault(answer.series, target.group_by):
        checks.append(Check(f"{target.name} groups", Status.WARN, fault, GROUPS_ADVICE))
    if is_federated(server.key for server in servers):
        federated = "it federates another one: whether a server is down is not known"
        checks.append(Check(f"{target.name} federation", Status.WARN, federated, "name that one instead"))
    if answer.warnings:
        checks.append(Check(f"{target.name} warnings", Status.WARN, answer.warnings[0]))
    return checks


async def _targets_down(
    client: PrometheusClient, target: PrometheusTarget
) -> tuple[frozenset[Key], Sequence[Series]]:
    """Return the targets that are down, and the series of those that were servers within the past hour.

    Raises:
        AnswerError: the targets cannot be queried.
    """
    answer = await client.query(down_query())
    down = frozenset(key_of(series.labels) for series in answer.series)
    if not down:
        return down, ()
    try:
        past_series = await client.query(past_query(target.selector, target.group_by, down))
    except AnswerError:
        return down, ()
    return down, [series for series in past_series.series if key_of(series.labels).target in down]


def _prometheus_clock_check(name: str, ahead_s: float) -> Check:
    if abs(ahead_s) <= _SKEW_S:
        return Check(f"{name} clock", Status.OK, "its clock is that of this machine, within 5 s")
    way = "ahead of" if ahead_s > 0 else "behind"
    message = f"its clock is {abs(ahead_s):.0f} s {way} this machine's: ages are by its clock"
    return Check(f"{name} clock", Status.WARN, message, "set both clocks by NTP")
