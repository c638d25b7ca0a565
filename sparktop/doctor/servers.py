"""Checks inference servers and routers: whether they respond, how fast, and what their metrics pages lack.

All requests are GETs on read-only routes. A router's `/health` is never requested, because LiteLLM would send
completions to its backends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from msgspec.structs import replace

from sparktop.doctor.check import Check, Status
from sparktop.doctor.clock import check_clock
from sparktop.doctor.network import Network, Place, place_of
from sparktop.engines import ENGINES, METRICS_PATH, PageError, read_page
from sparktop.engines.registry import Engine
from sparktop.engines.router_pages import LISTS, TITLES, router_kind
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.failure import FailureKind
from sparktop.model.targets import BackendTarget, RouterTarget
from sparktop.model.text import clean
from sparktop.net.client import Answer
from sparktop.net.failure import HOW_TO_GIVE_A_KEY, AnswerError, server_words, status_error
from sparktop.net.once import Reply
from sparktop.sources.engine_probe import EnginePages, RouteFinder, ask_facts
from sparktop.sources.router_probe import LIVELINESS, is_litellm

_OK = 200
_SLOW_MS = 500.0
"""Milliseconds; a metrics page that takes longer is too slow for a poll every second."""
_PROBE_DEADLINE_S = 15.0
_ADVICE: Mapping[FailureKind, str] = {
    FailureKind.REFUSED: "start it, or correct the port; other machines reach it with --host 0.0.0.0",
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


async def check_backend(target: BackendTarget, network: Network) -> list[Check]:
    """Return the checks of an inference server.

    If a check fails, the checks that depend on its result are left out.
    """
    reach = await check_port(target.name, target.url, network)
    if reach.status is Status.FAIL:
        return [reach]
    visit = _Visit(target, network)
    if target.engine == "auto" and await visit.meets_router():
        seen = "a router (LiteLLM), not an inference server: its figures need the servers behind it"
        advice = "watch it with [[routers]], where api_key_env adds deployments, strategy and failures"
        return [reach, Check(f"{target.name} router", Status.OK, seen, advice)]
    metrics, sample = await visit.read_page()
    checks = [reach, metrics]
    if sample is not None:
        engine = ENGINES[sample.engine]
        identity = await visit.identify(engine)
        checks.append(_check_version(target, engine, identity))
        if not engine.beside:  # it runs no requests, or its engine has a page of its own
            checks += [
                _check_model(target, sample, identity),
                _check_slots(target, replace(identity, slots=identity.slots or sample.slots)),
            ]
        checks += await visit.check_health(engine)
    if visit.answered:
        checks.append(check_clock(target.name, visit.dated or Reply(_OK)))
    return checks


async def check_router(target: RouterTarget, network: Network) -> list[Check]:
    """Return the checks of a router: its port, its liveness route or metrics page, and its clock.

    If the port or the route does not answer, the checks after it are left out.
    """
    reach = await check_port(target.name, target.url, network)
    if reach.status is Status.FAIL:
        return [reach]
    name = f"{target.name} router"
    try:
        reply = await network.get(target.url + LIVELINESS, tls_ca=target.tls_ca)
        known = reply.status == _OK and is_litellm(reply.body)
        page = reply if known else await network.get(target.url + METRICS_PATH, tls_ca=target.tls_ca)
    except AnswerError as error:
        return [reach, failure_check(name, error)]
    kind = router_kind(page.body) if page.status == _OK and not known else None
    if kind is None and not known:
        kind = await _listing_kind(target, network)
    if kind is not None:
        alive = Check(name, Status.OK, f"{TITLES[kind]}, answered in {page.took_ms:.0f} ms")
        return [reach, alive, check_clock(target.name, page)]
    if not known:
        seen = f"answers {LIVELINESS} with HTTP status {reply.status}: no router that is known, or not well"
        advice = "look at its log; of other routers only the backends behind them are watched"
        return [reach, Check(name, Status.WARN, seen, advice), check_clock(target.name, reply)]
    alive = Check(name, Status.OK, f"alive, answered in {reply.took_ms:.0f} ms")
    return [reach, alive, check_clock(target.name, reply)]


async def _listing_kind(target: RouterTarget, network: Network) -> str | None:
    """Return the kind of a router that lists its servers on a route of its own; None if it does not."""
    for path, read in LISTS.items():
        try:
            found = read((await network.get(target.url + path, tls_ca=target.tls_ca)).body)
        except (AnswerError, PageError):
            continue
        if found is not None:
            return found.kind
    return None


async def check_port(
    name: str, url: str, network: Network, *, refused: str = _ADVICE[FailureKind.REFUSED]
) -> Check:
    """Return the check whether a TCP connection to the host and port of `url` succeeds.

    `name` is the name of the server or agent, which becomes part of the check's name. `refused` is the advice
    where nothing listens.
    """
    title = f"{name} port"
    place = place_of(url)
    if place is None:
        return Check(title, Status.FAIL, "its URL names no host and port", "write http://host:port")
    try:
        await network.connect(place)
    except AnswerError as error:
        failed = failure_check(title, error)
        return replace(failed, advice=refused) if error.kind is FailureKind.REFUSED else failed
    return Check(title, Status.OK, f"{place.shown} takes connections")


def failure_check(name: str, error: AnswerError | PageError) -> Check:
    """Return the check `name` for an answer that failed, with advice by the kind of the failure."""
    status = Status.WARN if error.kind is FailureKind.LOADING else Status.FAIL
    return Check(name, status, error.message, _ADVICE.get(error.kind, ""))


class _Visit:
    """Sends the requests that the checks of one server need."""

    def __init__(self, target: BackendTarget, network: Network) -> None:
        self.dated: Reply | None = None
        """The fastest response so far that has a Date header: it shows the server's clock most precisely."""
        self.answered = False
        self._target = target
        self._network = network
        self._pages = EnginePages(target.engine, self._answer)
        self._where = (place_of(target.url) or Place("?", 0)).shown

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
        seen = f"{ENGINES[sample.engine].title}, {size}{ranks}"
        if sample.note is not None:
            advice = "" if ENGINES[sample.engine].beside else "turn the server's metrics on"
            return Check(name, Status.WARN, f"{seen}: {sample.note}", advice), sample
        if (sample.answer_ms or 0) > _SLOW_MS:
            return Check(name, Status.WARN, seen, "too slow for every second: --interval 5"), sample
        return Check(name, Status.OK, seen), sample

    async def meets_router(self) -> bool:
        """Return whether the server is a LiteLLM router, judged by its liveness route."""
        try:
            return is_litellm((await self._get(LIVELINESS)).body)
        except AnswerError:
            return False

    async def _ask_page(self, engine: str, deadline_s: float) -> EngineSample:
        answer = await self._pages.answer(engine, deadline_s)
        return read_page(answer.body, at=0.0, engine=engine, answer_ms=answer.answer_ms)

    async def _answer(self, path: str, deadline_s: float) -> Answer:
        del deadline_s  # each GET has a deadline of its own
        reply = await self._get(path)
        return Answer(reply.body, 0.0, reply.took_ms)

    async def identify(self, engine: Engine) -> EngineIdentity:
        """Request the engine's identity routes and return the identity.

        Fields that no route reports are None.
        """
        return engine.identify(await ask_facts(engine, self._answer, 0.0))

    async def check_health(self, engine: Engine) -> list[Check]:
        """Return a failed check if the health route reports that the engine process has died, else []."""
        if engine.health is None:
            return []
        try:
            await self._get(engine.health)
        except AnswerError as error:
            if error.kind is FailureKind.LOADING:
                seen = f"503 of {engine.health}: the engine has died, only its HTTP server answers"
                advice = _ADVICE[FailureKind.ENGINE_DEAD]
                return [Check(f"{self._target.name} engine", Status.FAIL, seen, advice)]
        return []

    async def _get(self, path: str) -> Reply:
        api_key = self._target.api_key
        reply = await self._network.get(self._target.url + path, api_key=api_key, tls_ca=self._target.tls_ca)
        if reply.date and (self.dated is None or _wait_s(reply) < _wait_s(self.dated)):
            self.dated = reply
        self.answered = True
        if reply.status != _OK:
            words = server_words(reply.body, api_key)
            raise status_error(
                reply.status, self._where, location=reply.location, words=words, has_key=bool(api_key)
            )
        return reply


def _wait_s(reply: Reply) -> float:
    return reply.answered_at - reply.asked_at


def _check_version(target: BackendTarget, engine: Engine, identity: EngineIdentity) -> Check:
    name = f"{target.name} version"
    if identity.version is not None:
        return Check(name, Status.OK, f"{engine.title} {clean(identity.version, 60)}")
    if "version" not in engine.tells:
        return Check(name, Status.SKIP, f"{engine.title} has no route that reports it")
    asked = ", ".join(engine.facts)
    return Check(
        name, Status.WARN, f"not reported by {asked}", "does a proxy in front of it let these through?"
    )


def _check_model(target: BackendTarget, sample: EngineSample, identity: EngineIdentity) -> Check:
    name = f"{target.name} model"
    model = identity.model or next(iter(sample.models), None)
    if model is None:
        advice = f"is a model loaded? does /v1/models want a key ({HOW_TO_GIVE_A_KEY})?"
        return Check(name, Status.WARN, "not reported", advice)
    if identity.max_model_len is None:
        return Check(name, Status.OK, f"{clean(model, 80)}, max_model_len not reported")
    return Check(name, Status.OK, f"{clean(model, 80)}, max_model_len {identity.max_model_len}")


def _check_slots(target: BackendTarget, identity: EngineIdentity) -> Check:
    name = f"{target.name} slots"
    if target.slots is not None:
        return Check(name, Status.OK, f"{target.slots}, from the configuration")
    if identity.slots is not None:
        return Check(name, Status.OK, f"{identity.slots}, reported by the server")
    advice = "put slots = N (vLLM's --max-num-seqs) into its [[backends]]"
    return Check(name, Status.WARN, "not reported, so 8 running requests count as busy", advice)
