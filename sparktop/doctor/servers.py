"""Checks of servers, routers and Prometheus: whether they respond, how fast, what their pages lack.

Servers and routers are polled as by the monitor, on routes that only read.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from sparktop.analysis.placement import launched_slots, server_process
from sparktop.doctor.check import Check, Status
from sparktop.doctor.network import Network, host_port_of, shown_address
from sparktop.engines import ENGINES
from sparktop.engines.registry import EngineKind
from sparktop.engines.router_pages import TITLES
from sparktop.graphics.numbers import count_words
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import Workloads
from sparktop.model.targets import BackendTarget, PrometheusTarget, RouterTarget
from sparktop.model.text import clean
from sparktop.net.failure import HOW_TO_GIVE_A_KEY, AnswerError
from sparktop.sources.engine_http import EngineSource
from sparktop.sources.prometheus.client import PrometheusClient
from sparktop.sources.prometheus.found import GROUPS_ADVICE, down_text, no_server_text
from sparktop.sources.router import RouterSource
from sparktop.watch.prometheus_finder import Finder

_UNSEEN = Workloads()
_SLOW_MS = 500.0
"""Milliseconds; a metrics page that takes longer is too slow for a poll every second."""
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
    FailureKind.ROUTER: "its figures need the servers behind it",
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
    source = EngineSource(target)
    try:
        sample = await source.poll(network.poll_timeout_s)
        if isinstance(sample, Failure):
            return [reach, _failed_poll(target.name, sample)]
        await source.settle()
        # Read again: the first request also waits for imports, and only now its health is known.
        again = await source.poll(network.poll_timeout_s)
    finally:
        await source.close()
    sample = again if isinstance(again, EngineSample) else sample
    engine, identity = ENGINES[sample.engine], source.identity or EngineIdentity()
    server = server_process(target.url, sample.engine, processes, alone=False)
    launched = None if server is None else launched_slots(server, len(sample.lanes))
    checks = [reach, _check_metrics(target.name, sample), _check_version(target, engine, identity)]
    if not engine.runs_nothing:  # one that runs nothing has no requests, or its engine has a page of its own
        checks += [
            _check_model(target, sample, identity),
            _check_slots(target, replace(identity, slots=identity.slots or sample.slots), launched),
        ]
    if isinstance(again, Failure):
        checks.append(failure_check(f"{target.name} engine", again))
    return checks


def _failed_poll(name: str, failure: Failure) -> Check:
    if failure.kind is FailureKind.ROUTER:
        return Check(f"{name} router", Status.WARN, failure.message, _ADVICE[failure.kind])
    return failure_check(f"{name} metrics", failure)


def _check_metrics(name: str, sample: EngineSample) -> Check:
    """Return the check of a server's metrics page, or of its list of models if it has no page."""
    title = f"{name} metrics"
    size = f"{(sample.page_bytes or 0) / 1000:.1f} kB in {sample.answer_ms or 0:.0f} ms"
    ranks = f", {len(sample.lanes)} data-parallel ranks" if len(sample.lanes) > 1 else ""
    message = f"{ENGINES[sample.engine].title}, {size}{ranks}"
    if sample.note is not None:
        advice = "" if ENGINES[sample.engine].runs_nothing else "turn the server's metrics on"
        return Check(title, Status.WARN, f"{message}: {sample.note}", advice)
    if (sample.answer_ms or 0) > _SLOW_MS:
        return Check(title, Status.WARN, message, "too slow for every second: --interval 5")
    return Check(title, Status.OK, message)


async def check_router(target: RouterTarget, network: Network) -> list[Check]:
    """Return the checks of a router: its port, and what a poll of it says.

    If the port does not answer, the check after it is left out.
    """
    reach = await check_port(target.name, target.url, network)
    if reach.status is Status.FAIL:
        return [reach]
    name = f"{target.name} router"
    source = RouterSource(target)
    try:
        reading = await source.poll(network.poll_timeout_s)
    finally:
        await source.close()
    if isinstance(reading, Failure):
        return [reach, failure_check(name, reading)]
    if not reading.alive:
        advice = "look at its log; of other routers only the backends behind them are watched"
        return [reach, Check(name, Status.WARN, reading.note or "no router that is known", advice)]
    message = f"{TITLES.get(reading.kind, 'LiteLLM')}, answered in {reading.answer_ms or 0:.0f} ms"
    return [reach, Check(name, Status.OK, "; ".join(filter(None, (message, reading.note))))]


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


def failure_check(name: str, error: AnswerError | Failure) -> Check:
    """Return the check `name` for an answer that failed, with advice by the kind of the failure."""
    status = Status.WARN if error.kind is FailureKind.LOADING else Status.FAIL
    return Check(name, status, error.message, _ADVICE.get(error.kind, ""))


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


async def check_prometheus(target: PrometheusTarget, network: Network) -> list[Check]:
    """Return the checks of a Prometheus; where it fails or scrapes no server, the rest is left out."""
    reach = await check_port(target.name, target.url, network, refused=_REFUSED)
    if reach.status is Status.FAIL:
        return [reach]
    client = PrometheusClient(target)
    finder = Finder(target, client)
    try:
        _, ahead_s = await client.clock_shift()
        await finder.find()
    except AnswerError as error:
        failure = failure_check(f"{target.name} query", error)
        return [reach, replace(failure, advice=_PROMETHEUS_ADVICE.get(error.kind, failure.advice))]
    finally:
        await client.close()
    checks = [
        reach,
        _prometheus_clock_check(target.name, ahead_s),
        _scraped_servers_check(target.name, finder),
    ]
    if not finder.servers:
        return checks
    if dead := finder.down & {server.key.target for server in finder.servers}:
        advice = "start them, or correct their targets: the Prometheus cannot scrape them"
        checks.append(Check(f"{target.name} down", Status.FAIL, down_text(dead), advice))
    if fault := finder.groups_fault:
        checks.append(Check(f"{target.name} groups", Status.WARN, fault, GROUPS_ADVICE))
    if finder.federated:
        federated = "it federates another one: whether a server is down is not known"
        checks.append(Check(f"{target.name} federation", Status.WARN, federated, "name that one instead"))
    return checks


def _scraped_servers_check(name: str, finder: Finder) -> Check:
    """Return the check of which servers a Prometheus scrapes, and how often."""
    servers, down, every_s, title = finder.servers, finder.down, finder.every_s or 0.0, f"{name} servers"
    if not servers:
        advice = "scrape the servers' /metrics, or correct the selector"
        if down:
            advice = "start them: a server is known once it was scraped"
        return Check(title, Status.FAIL, no_server_text(down), advice)
    groups = len({server.group for server in servers})
    message = f"{count_words(len(servers), 'server')} in {count_words(groups, 'group')}"
    message += f", scraped every {every_s:g} s" if every_s else ""
    if every_s > _SLOW_SCRAPES_S:
        advice = "scrape every 15 s: rates and verdicts are as slow as the scrapes"
        return Check(title, Status.WARN, message, advice)
    return Check(title, Status.OK, message)


def _prometheus_clock_check(name: str, ahead_s: float) -> Check:
    if abs(ahead_s) <= _SKEW_S:
        return Check(f"{name} clock", Status.OK, "its clock is that of this machine, within 5 s")
    way = "ahead of" if ahead_s > 0 else "behind"
    message = f"its clock is {abs(ahead_s):.0f} s {way} this machine's: ages are by its clock"
    return Check(f"{name} clock", Status.WARN, message, "set both clocks by NTP")
