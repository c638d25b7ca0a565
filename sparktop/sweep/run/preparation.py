"""Preparation of a target before any load: its prompt lengths, its model, and problems to expect."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.graphics.numbers import count_words
from sparktop.model.series import sum_if_all_known
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.text import clean
from sparktop.model.yardsticks import YardstickBasis
from sparktop.sweep.generator.exchange import CACHE_SALT
from sparktop.sweep.generator.wire import (
    TRIED_TOKENS,
    Busy,
    Calibrate,
    Calibrated,
    Refused,
    WorkerTarget,
)
from sparktop.sweep.plan.conversations import BUILT_IN, find_conversations
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.result.results import TargetResult
from sparktop.sweep.run.router_side import BackendNames
from sparktop.sweep.run.server_side import watched_backends, watched_nodes
from sparktop.sweep.run.worker_process import SweepWorker, WorkerGoneError
from sparktop.sweep.terms.request_errors import is_refusal, stated_context

_SALTED_ENGINE = "vllm"
"""The engine that keeps prompts with another `cache_salt` apart."""


class PreparedTarget(Struct, frozen=True):
    """A target of a sweep with everything that is known about it before the first level."""

    target: SweepTarget
    asks: WorkerTarget
    """The target as the load generator addresses it."""
    result: TargetResult
    """What the result file says of it: its model, servers and machines, or why it cannot be measured."""
    backends: tuple[str, ...] = ()
    """Names of the watched servers that the load reaches."""
    nodes: tuple[str, ...] = ()
    """Names of the watched machines that the load reaches."""
    machines_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the machines that each watched server runs on, by server."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Maximum concurrent requests of each watched server that reports it, by name."""
    kv_capacity_tokens: float | None = None
    """Tokens for which the KV caches of all its servers have space; None if one does not report it."""
    capture_sizes: tuple[int, ...] | None = None
    """Batch sizes for which the target's only server captured a CUDA graph; None if unknown."""
    yardstick_basis: YardstickBasis = YardstickBasis()
    """What its decode rates are compared with, as known before the sweep."""
    prepared_at: float = 0.0
    """When that was known, as Unix time."""
    names: BackendNames | None = None
    """For a router: maps what its answers report as backend to the names of watched backends."""
    takes_salt: bool = False
    """True if the servers support `cache_salt`, with which no run's prompts are found in the prefix cache."""
    notes: tuple[str, ...] = ()
    """What a user should know before the first level, one line each."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Prompt lengths of the plan that the target refuses, with the reason."""
    extra_lengths: tuple[int, ...] = ()
    """Prompt lengths that are measured in addition to those of the plan."""


def unmeasured(target: SweepTarget, **found: Any) -> TargetResult:  # noqa: ANN401 - its fields
    """Return a target without levels as the result file holds it, with what was `found` of it."""
    asked = {"model": target.model, "asked_model": target.model}
    return TargetResult(name=target.name, url=target.url, kind=target.kind, **{**asked, **found})


class _Calibrations(Struct):
    """The calibration of the prompt lengths of a plan on one target: how it is done, and its results."""

    plan: Plan
    asks: WorkerTarget
    worker: SweepWorker
    report: Callable[[str], None]
    """Receives a sentence where the server makes it wait."""
    accepted: dict[int, Calibrated] = field(default_factory=dict)
    """Prompt lengths that the target accepts, with the largest one where that was searched for."""
    refused: dict[int, str] = field(default_factory=dict)
    """Prompt lengths that the target refuses, with the reason."""
    model: str | None = None
    """Name of the model as the server writes it, not cleaned."""
    error: str | None = None
    """Why the target cannot serve requests of any length; None if it can."""
    largest: int | None = None
    """The largest length of prompts that the target accepts; None if it was not found or not searched for."""

    async def calibrate(self, length: int) -> Calibrated:
        """Find out by trial requests how to make prompts of `length` tokens."""
        command_id = f"calibration-{secrets.token_hex(4)}"
        plan = self.plan
        command = Calibrate(command_id, self.asks, length, plan.tg, plan.seed, plan.timeouts)
        async for message in self.worker.run(command):
            match message:
                case Calibrated():
                    return message
                case Refused():
                    return Calibrated(command_id, failure=message.failure)
                case Busy():
                    self.report(message.words)
                case _:
                    pass
        raise WorkerGoneError(None)

    async def calibrate_plan(self, views: Sequence[BackendView]) -> None:
        """Calibrate each prompt length of the plan by trial requests.

        A length that exceeds a known context is refused without a request. Stop at the first failure that is
        not a refusal, with `error` set.
        """
        plan = self.plan
        for length in plan.lengths:
            if (reason := beyond_context(plan, length, views)) is not None:
                self.refused[length] = reason
                continue
            calibrated = await self.calibrate(length)
            failure, self.model = calibrated.failure, calibrated.model or self.model
            if failure is None:
                self.accepted[length] = calibrated
            elif plan.prompts is None and is_refusal(failure):
                self.refused[length] = failure.message
            else:
                self.error = failure.message
                return

    async def find_largest(self, views: Sequence[BackendView]) -> None:
        """Find the largest prompt that the server accepts, below the shortest length that it refused.

        The first length to try is the reported context minus an answer of the plan; then the range is
        bisected. The search ends early if prompts of exact length cannot be made.
        """
        high = min(self.refused)
        low = max((length for length in self.accepted if length < high), default=0)
        context = reported_context(views, self.refused.values())
        by_context = None if context is None else context - self.plan.tg
        largest: Calibrated | None = None
        while high - low > max(1, min(LEAST_APART, round(ENOUGH_SHARE * high))):
            is_by_context = by_context is not None and low < by_context < high
            length = by_context if by_context is not None and is_by_context else (low + high) // 2
            by_context = None
            # A calibration asks for fewer output tokens than a level: a longer prompt makes up for them.
            calibrated = await self.calibrate(length + max(0, self.plan.tg - TRIED_TOKENS))
            if calibrated.failure is None:
                calibrated = await self.calibrate(length)
            if calibrated.failure is not None:
                high = length
                continue
            if calibrated.is_exact:
                low, largest = length, calibrated
            if is_by_context or not calibrated.is_exact:
                break
        if largest is not None:
            self.largest, self.accepted[low] = low, largest


async def prepare(
    plan: Plan,
    target: SweepTarget,
    worker: SweepWorker,
    snapshot: Callable[[], Snapshot],
    report: Callable[[str], None],
) -> PreparedTarget:
    """Prepare a target: calibrate each prompt length of the plan, and collect what is known of its servers.

    To calibrate a prompt length is to find out by trial requests how to make prompts of that length. If the
    target cannot be measured, the result has an `error`. `snapshot` returns the newest state of all watched
    servers. `report` receives a line for the user while the server makes the calibration wait.

    Raises:
        WorkerGoneError: the load generator's process exited.
    """
    asks = WorkerTarget(
        target.url,
        target.model,
        plan.api,
        target.api_key,
        router=target.kind is TargetKind.ROUTER,
        tls_ca=target.tls_ca,
        headers=tuple(plan.headers.items()),
        extra_body=json.dumps(dict(plan.extra_body)) if plan.extra_body else "",
        prompts=plan.prompts,
    )
    calibrations = _Calibrations(
        plan, asks, worker, lambda words: report(f"{clean(target.name, 64)}: {words}")
    )
    await calibrations.calibrate_plan(_server_views(target, snapshot()))
    accepted, refused = calibrations.accepted, calibrations.refused
    if calibrations.error is None:
        # Servers may have reported their context since the first calibration.
        views = _server_views(target, snapshot())
        for length in list(accepted):
            if (reason := beyond_context(plan, length, views)) is not None:
                refused[length] = reason
                del accepted[length]
        if plan.longest and refused:
            await calibrations.find_largest(views)
    if calibrations.error is not None or not accepted:
        error = calibrations.error or next(iter(refused.values()))
        failed = unmeasured(target, model=_clean_name(calibrations.model), error=error)
        return PreparedTarget(target, asks, failed)
    return _with_refused_lengths(_with_servers(calibrations, target, snapshot()), calibrations)


def _with_servers(calibrations: _Calibrations, target: SweepTarget, snapshot: Snapshot) -> PreparedTarget:
    """Return a target that was calibrated with what is known of its servers and machines."""
    plan, asks, accepted = calibrations.plan, calibrations.asks, calibrations.accepted
    views = _server_views(target, snapshot)
    any_server = next(iter(accepted.values()))
    router = next((view for view in snapshot.routers if view.url == target.url), None)
    versions = {view.version for view in views if view.version}
    engines = sorted({view.engine for view in views if view.engine})
    only = views[0] if len(views) == 1 and not asks.router else None
    backends, nodes = watched_backends(target, snapshot), watched_nodes(target, snapshot)
    slots = {view.name: view.slots for view in views if view.slots is not None}
    takes_salt = _takes_salt(plan, accepted, views)
    # The user's own prompts are sent as they are, so that nothing keeps them out of the prefix cache.
    fresh_by = "nonce" if plan.prompts is None else None
    if takes_salt:
        fresh_by = "cache_salt"
    unmeasured_result = unmeasured(
        target,
        model=_clean_name(any_server.model),
        engine=router.sample.kind if asks.router and router is not None else next(iter(engines), None),
        version=", ".join(sorted(versions)) or None,  # also of the engines behind a router
        router_version=None if router is None else router.sample.version,
        strategy=None if router is None else router.strategy,
        engines=tuple(engines) if asks.router else (),
        machines=machines_words(nodes, snapshot),
        setups={view.name: dict(view.yardstick_basis.facts) for view in views if view.yardstick_basis.facts},
        commands={view.name: line for view in views if (line := view.yardstick_basis.command)},
        slots=sum_if_all_known(slots.get(name) for name in backends),
        slots_each=tuple(slots[name] for name in backends if name in slots),
        context_tokens=reported_context(views, ()),
        fresh_by=fresh_by,
    )
    return PreparedTarget(
        target=target,
        asks=asks,
        result=unmeasured_result,
        backends=backends,
        nodes=nodes,
        machines_of={view.name: view.nodes for view in views},
        slots=slots,
        kv_capacity_tokens=sum_if_all_known(view.kv_capacity_tokens for view in views),
        capture_sizes=None if only is None else only.capture_sizes,
        yardstick_basis=_yardstick_basis(views),
        prepared_at=snapshot.taken_at.timestamp(),
        names=_backend_names(target, snapshot) if asks.router else None,
        takes_salt=takes_salt,
        notes=tuple(_notes(plan, target, accepted, views)),
    )


def _yardstick_basis(views: Sequence[BackendView]) -> YardstickBasis:
    """Return what the servers behind a target are compared with: several only with published rates."""
    if len(views) == 1:
        return views[0].yardstick_basis
    published = [view.yardstick_basis.published for view in views]
    same = bool(published) and all(rates == published[0] for rates in published)
    return YardstickBasis(published=published[0], servers=len(views)) if same else YardstickBasis()


def with_late_yardsticks(prepared: PreparedTarget, snapshot: Snapshot) -> PreparedTarget:
    """Return a target with what was read of published rates and earlier setups since its preparation.

    Files are read beside the first polls. Of earlier setups those from before the preparation count.
    """
    before, now = prepared.yardstick_basis, _yardstick_basis(_server_views(prepared.target, snapshot))
    setups = before.setups or tuple(
        replace(setup, bests=tuple(best for best in setup.bests if best.at < prepared.prepared_at))
        for setup in now.setups
    )
    known = now if now.published else before
    basis = replace(before, setups=setups, published=known.published, servers=known.servers)
    return replace(prepared, yardstick_basis=basis)


def _backend_names(target: SweepTarget, snapshot: Snapshot) -> BackendNames:
    deployments = dict(target.deployments)
    for view in snapshot.routers:
        if view.url == target.url:
            reported = view.deployments or {}
            deployments = {id_: name for id_, name in reported.items() if name is not None} | deployments
    urls = {view.name: view.url for view in snapshot.backends}
    return BackendNames(router_url=target.url, backends=urls | dict(target.backends), deployments=deployments)


def _takes_salt(plan: Plan, accepted: Mapping[int, Calibrated], views: list[BackendView]) -> bool:
    """Return whether the request field `cache_salt` takes effect: all servers run vLLM, and none refused it.

    Other engines may accept a field that they do not know and ignore it; the user may have set it.
    """
    refused = any(CACHE_SALT in calibrated.dropped_fields for calibrated in accepted.values())
    is_users = CACHE_SALT in plan.extra_body
    return (
        not refused and not is_users and bool(views) and all(view.engine == _SALTED_ENGINE for view in views)
    )


def _with_refused_lengths(prepared: PreparedTarget, calibrations: _Calibrations) -> PreparedTarget:
    """Return `prepared` with the prompt lengths that it refuses, a note on each, and its largest length."""
    plan, largest = calibrations.plan, calibrations.largest
    if not calibrations.refused:
        return prepared
    more = ""
    if largest is not None:
        more = f"; {largest:,} tokens fit"
    elif plan.longest:
        more = "; the largest that fits was not found: the server does not count prompts, or takes none"
    words = {length: f"{why}{more}" for length, why in calibrations.refused.items()}
    name = clean(prepared.target.name, 64)
    notes = (f"{name}: prompts of {length:,} tokens are left out: {why}" for length, why in words.items())
    extra = () if largest is None or largest in plan.lengths else (largest,)
    return replace(prepared, refused=words, extra_lengths=extra, notes=(*prepared.notes, *notes))


def _server_views(target: SweepTarget, snapshot: Snapshot) -> list[BackendView]:
    names = watched_backends(target, snapshot)
    return [view for view in snapshot.backends if view.name in names]


def _notes(
    plan: Plan, target: SweepTarget, accepted: Mapping[int, Calibrated], views: list[BackendView]
) -> Iterator[str]:
    """Yield what a user should know of a target before the first level, a line each."""
    name = clean(target.name, 64)
    any_server = next(iter(accepted.values()))
    if len(any_server.models) > 1 and target.model is None:
        chosen = f"{_clean_name(any_server.model)} is asked (--model names another)"
        yield f"{name}: serves {len(any_server.models)} models; {chosen}"
    for field_name, words in any_server.dropped_fields.items():
        yield f"{name}: refuses {clean(field_name, 40)} and is asked without it ({clean(words, 120)})"
    if plan.prompts is not None and not _takes_salt(plan, accepted, views):
        yield f"{name}: prompts are sent as they are: what it has in its prefix cache is not computed again"
    too_long = None if plan.trace is None else plan.trace.too_long(reported_context(views, ()))
    if too_long is not None:
        yield f"{name}: {too_long}"


def _clean_name(model: str | None) -> str | None:
    return None if model is None else clean(model)


ENOUGH_SHARE = 0.01
"""Share (0 to 1) of the shortest refused length within which the largest that fits is found."""
LEAST_APART = 16
"""The search ends when the largest length that fits is known to within `LEAST_APART` tokens, or to within
`ENOUGH_SHARE` of the shortest refused length if that is less."""


def beyond_context(plan: Plan, length: int, views: Iterable[BackendView], depth: int = 0) -> str | None:
    """Return why prompts of `length` tokens with the answers of a plan exceed the context of a server.

    They come after `depth` tokens. The same for the first call of conversations, if these are sent. Return
    None if no server reports a context length that is exceeded. The lengths of the user's own prompts are not
    known.
    """
    conversations, output_tokens = plan.conversations, plan.tg
    length = length if plan.prompts is None else 0
    for view in views:
        start = 0 if conversations is None else conversations.start_tokens
        if conversations is not None and view.max_model_len is not None and start > view.max_model_len:
            presets = map(find_conversations, BUILT_IN)
            fitting = (other.name for other in presets if other.least_context_tokens <= view.max_model_len)
            return (
                f"{view.name} takes at most {view.max_model_len:,} tokens a request; a conversation of "
                f"{conversations.name} begins with about {start:,} (workloads that fit: "
                f"{', '.join(fitting) or 'none'})"
            )
        needed = depth + length + output_tokens
        if view.max_model_len is not None and needed > view.max_model_len:
            before = f"depth {depth:,}, " if depth else ""
            return (
                f"{view.name} takes at most {view.max_model_len:,} tokens a request; "
                f"{before}pp {length:,} and tg {output_tokens:,} need {needed:,}"
            )
    return None


def beyond_contexts(plan: Plan, snapshot: Snapshot) -> tuple[str, bool]:
    """Return (which lengths will be left out, by what their servers report; whether these are all).

    Of recorded traffic it is how many requests are too long. It is ("", False) if none is known, and where
    the largest length that fits is searched for.
    """
    if plan.trace is not None:
        contexts = [reported_context(_server_views(target, snapshot), ()) for target in plan.targets]
        named = zip(plan.targets, map(plan.trace.too_long, contexts), strict=True)
        return next((f"{clean(target.name, 64)}: {words}" for target, words in named if words), ""), False
    reasons = _refusals(plan, snapshot)
    known = [reason for _, reason in reasons if reason is not None]
    if plan.longest or not known:
        return "", False
    count = f"{len(known)} of {len(reasons)} lengths will be left out: " if len(known) < len(reasons) else ""
    return count + known[0], not count


def without_refused(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return the plan without the lengths and contexts that all servers refuse, see `beyond_contexts`."""
    fitting = [level for level, reason in _refusals(plan, snapshot) if reason is None]
    if plan.longest or plan.trace is not None or not fitting:
        return plan
    fitting_lengths, fitting_depths = {length for length, _ in fitting}, {depth for _, depth in fitting}
    return replace(
        plan,
        prompt_lengths=tuple(length for length in plan.prompt_lengths if length in fitting_lengths),
        depths=tuple(depth for depth in plan.depths if plan.whole or depth in fitting_depths),
    )


def _refusals(plan: Plan, snapshot: Snapshot) -> list[tuple[tuple[int, int], str | None]]:
    """Return ((length, depth), why it exceeds the context or None) of every length on every target."""
    depths = (0,) if plan.whole else plan.depths or (0,)
    return [
        ((length, depth), beyond_context(plan, length, _server_views(target, snapshot), depth))
        for target in plan.targets
        for depth in depths
        for length in plan.lengths
    ]


def reported_context(views: Iterable[BackendView], words: Iterable[str]) -> int | None:
    """Return the smallest context length in tokens that the servers in `views` report.

    If no server reports a context length, return the smallest one that the error messages `words` mention;
    None if they mention none.
    """
    reported = [view.max_model_len for view in views if view.max_model_len is not None]
    stated = [limit for message in words if (limit := stated_context(message)) is not None]
    return min(reported or stated, default=None)


# What the machines of a sweep are, in words that a reader elsewhere can compare with his own.


def machines_words(names: Collection[str], snapshot: Snapshot) -> dict[str, str]:
    """Return product, GPUs and driver of each of the machines `names` that reports any of them.

    Such as "NVIDIA DGX Spark, NVIDIA GB10, driver 580.95.05", of several machines with the RDMA ports between
    them.
    """
    views = [view for view in snapshot.nodes if view.name in names]
    are_linked = len(views) > 1
    return {view.name: words for view in views if (words := _machine_words(view, are_linked=are_linked))}


def _machine_words(view: NodeView, *, are_linked: bool) -> str:
    sample, identity = view.sample, view.identity
    gpus = Counter(gpu.name for gpu in (() if sample is None else sample.gpus) if gpu.name)
    parts = [
        identity.product,
        *(name if count == 1 else f"{count} × {name}" for name, count in gpus.items()),
        None if identity.driver is None else f"driver {identity.driver}",
    ]
    links = () if sample is None or not are_linked else sample.network
    rates = [
        link.link_bits_per_s for link in links if link.kind == "rdma" and link.up and link.link_bits_per_s
    ]
    if rates:
        parts.append(f"{count_words(len(rates), 'RDMA port')} of {min(rates) / 1e9:g} Gb/s")
    return ", ".join(filter(None, parts))
