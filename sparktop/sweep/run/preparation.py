"""Preparation of a target before any load: its prompt lengths, its model, and problems to expect."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.failure import RequestFailure
from sparktop.model.load import LoadKind, TokenSource
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.text import clean
from sparktop.model.yardsticks import Yard
from sparktop.sweep.generator.exchange import CACHE_SALT
from sparktop.sweep.generator.wire import (
    TRIED_TOKENS,
    Busy,
    Calibrate,
    Calibrated,
    Refused,
    WorkerEnded,
    WorkerTarget,
)
from sparktop.sweep.plan.conversations import BUILT_IN, ConversationPreset, find_conversations
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.run.router_side import BackendNames
from sparktop.sweep.run.server_side import is_mdns, watched_backends, watched_nodes
from sparktop.sweep.run.worker_process import SweepWorker
from sparktop.sweep.terms.request_errors import is_refusal, stated_context

_SALTED_ENGINE = "vllm"
"""The engine that keeps prompts with another `cache_salt` apart."""


class WorkerGoneError(Exception):
    """The load generator's process exited unexpectedly."""

    def __init__(self, failure: RequestFailure | None) -> None:
        """Use the message of `failure`, or a general one if `failure` is None."""
        super().__init__(failure.message if failure else "the load generator's process is gone")


class PreparedTarget(Struct, frozen=True):
    """A target of a sweep with everything that is known about it before the first level."""

    target: SweepTarget
    asks: WorkerTarget
    """The target as the load generator addresses it."""
    model: str | None = None
    """Name of the model, cleaned for display."""
    engine: str | None = None
    version: str | None = None
    """Version of the engine, also of those behind a router; several are joined by commas."""
    router_version: str | None = None
    strategy: str | None = None
    """How the router distributes requests; None for an engine."""
    engines: tuple[str, ...] = ()
    """Kinds of the servers behind a router; empty for an engine."""
    backends: tuple[str, ...] = ()
    """Names of the watched servers that the load reaches."""
    nodes: tuple[str, ...] = ()
    """Names of the watched machines that the load reaches."""
    placed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the machines that each watched server runs on, by server."""
    machines: Mapping[str, str] = field(default_factory=dict)
    """Product, GPUs and driver of each watched machine that reports any of them, by name."""
    setups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What is known of each watched server's setup, such as its launch options, by its name."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Maximum concurrent requests of each watched server that reports it, by name."""
    max_model_len: int | None = None
    """Context length in tokens, the smallest that a server reports; None if none does."""
    kv_capacity_tokens: float | None = None
    """Tokens for which the KV caches of all its servers have space; None if one does not report it."""
    capture_sizes: tuple[int, ...] | None = None
    """Batch sizes for which the target's only server captured a CUDA graph; None if unknown."""
    roofline_tps: float | None = None
    """Maximum decode rate of a single request in tokens/s that the memory bandwidth allows; None if
    unknown."""
    yard: Yard = Yard()
    """What its decode rates are compared with, as known before the sweep."""
    names: BackendNames | None = None
    """For a router: maps what its answers report as backend to the names of watched backends."""
    token_source: TokenSource | None = None
    mdns: bool = False
    takes_salt: bool = False
    """True if the servers support `cache_salt`, with which no run's prompts are found in the prefix cache."""
    notes: tuple[str, ...] = ()
    """What a user should know before the first level, one line each."""
    error: str | None = None
    """Why the target cannot be measured; None if it can."""
    lengths: Mapping[int, Calibrated] = field(default_factory=dict)
    """Calibration result of each prompt length that fits."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Prompt lengths of the plan that the target refuses, with the reason."""
    extra_lengths: tuple[int, ...] = ()
    """Prompt lengths that are measured in addition to those of the plan."""

    @property
    def all_slots(self) -> int | None:
        """How many requests all its servers can run at once; None if any does not report it."""
        counts = [self.slots[name] for name in self.backends if name in self.slots]
        return sum(counts) if counts and len(counts) == len(self.backends) else None


class _Lengths(Struct):
    """Results of calibrating the prompt lengths of a plan on one target."""

    found: dict[int, Calibrated] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """Prompt lengths that the target refuses, with the reason."""
    model: str | None = None
    """Name of the model as the server writes it, not cleaned."""
    error: str | None = None
    """Why the target cannot serve requests of any length; None if it can."""


class _Trial(Struct, frozen=True):
    """The way to calibrate prompt lengths of a plan on one target."""

    plan: Plan
    asks: WorkerTarget
    worker: SweepWorker
    report: Callable[[str], None]
    """Receives a sentence where the server makes it wait."""

    async def calibrate(self, length: int) -> Calibrated | RequestFailure:
        """Find out by trial requests how to make prompts of `length` tokens."""
        command_id = f"calibration-{secrets.token_hex(4)}"
        plan = self.plan
        command = Calibrate(command_id, self.asks, length, plan.tg, plan.seed, plan.timeouts)
        await self.worker.send(command)
        async for message in self.worker.messages():
            match message:
                case Calibrated() if message.id == command_id:
                    return message
                case Refused() if message.id == command_id:
                    return message.failure
                case Busy() if message.id == command_id:
                    self.report(message.words)
                case WorkerEnded():
                    raise WorkerGoneError(message.failure)
                case _:
                    pass
        raise WorkerGoneError(None)


async def prepare(
    plan: Plan,
    target: SweepTarget,
    worker: SweepWorker,
    snapshot: Callable[[], Snapshot],
    report: Callable[[str], None],
    busy: Collection[str] = (),
) -> PreparedTarget:
    """Prepare a target: calibrate each prompt length of the plan, and collect what is known of its servers.

    To calibrate a prompt length is to find out by trial requests how to make prompts of that length. If the
    target cannot be measured, the result has an `error`. `snapshot` returns the newest state of all watched
    servers; `busy` names the servers that ran requests before this sweep sent any. `report` receives a line
    for the user while the server makes the calibration wait.

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
    asked = _Lengths()
    trial = _Trial(plan, asks, worker, lambda words: report(f"{clean(target.name, 64)}: {words}"))
    await _calibrate_lengths(trial, asked, _server_views(target, snapshot()))
    if asked.error is not None:
        return PreparedTarget(target, asks, model=_clean_name(asked.model), error=asked.error)
    # Servers may have reported their context since the first calibration.
    views = _server_views(target, snapshot())
    for length in list(asked.found):
        if (why := _beyond_context(plan, length, views)) is not None:
            asked.refused[length] = why
            del asked.found[length]
    longest: LongestPrompt | None = None
    if plan.longest and asked.refused:
        longest = await _find_longest(trial, asked, views)
    found = asked.found if longest is None else {**asked.found, longest.tokens: longest.found}
    if not found:
        error = next(iter(asked.refused.values()))
        return PreparedTarget(target, asks, model=_clean_name(asked.model), error=error)
    prepared = _add_servers(plan, target, asks, found, snapshot())
    prepared = _add_refused(prepared, plan, asked.refused, longest)
    foreign = [name for name in prepared.backends if name in busy]
    if foreign:
        note = f"{target.name}: other clients had requests before the first level on {', '.join(foreign)}"
        prepared = replace(prepared, notes=(*prepared.notes, note))
    return prepared


async def _calibrate_lengths(trial: _Trial, asked: _Lengths, views: Sequence[BackendView]) -> None:
    """Calibrate each prompt length of the plan by trial requests, and enter the results into `asked`.

    A length that exceeds a known context is entered as refused without a request. Stop at the first failure
    that is not a refusal, with `asked.error` set.
    """
    plan = trial.plan
    for length in plan.lengths:
        if (why := _beyond_context(plan, length, views)) is not None:
            asked.refused[length] = why
            continue
        calibrated = await trial.calibrate(length)
        failure = calibrated if isinstance(calibrated, RequestFailure) else calibrated.failure
        if isinstance(calibrated, Calibrated):
            asked.model = calibrated.model
            if failure is None:
                asked.found[length] = calibrated
        if failure is not None and (plan.prompts is not None or not is_refusal(failure)):
            asked.error = failure.message
            return
        if failure is not None:
            asked.refused[length] = failure.message


def _beyond_context(plan: Plan, length: int, views: Sequence[BackendView]) -> str | None:
    """Return why requests with prompts of `length` tokens exceed a known context; None if they do not.

    The lengths of the user's own prompts are not known.
    """
    known = length if plan.prompts is None else 0
    return beyond_context(known, plan.tg, views, plan.conversations)


def _add_servers(
    plan: Plan,
    target: SweepTarget,
    asks: WorkerTarget,
    found: Mapping[int, Calibrated],
    snapshot: Snapshot,
) -> PreparedTarget:
    views = _server_views(target, snapshot)
    first = next(iter(found.values()))
    router = next((view for view in snapshot.routers if view.url == target.url), None)
    versions = {view.version for view in views if view.version}
    engines = sorted({view.engine for view in views if view.engine})
    return PreparedTarget(
        target=target,
        asks=asks,
        model=_clean_name(first.model),
        engine=router.kind if asks.router and router is not None else next(iter(engines), None),
        version=", ".join(sorted(versions)) or None,
        router_version=None if router is None else router.version,
        strategy=None if router is None else router.strategy,
        engines=tuple(engines) if asks.router else (),
        backends=watched_backends(target, snapshot),
        nodes=watched_nodes(target, snapshot),
        placed={view.name: view.nodes for view in views},
        machines=machines_words(watched_nodes(target, snapshot), snapshot),
        setups={view.name: view.yard.facts for view in views if view.yard.facts},
        slots={view.name: view.slots for view in views if view.slots is not None},
        max_model_len=reported_context(views, ()),
        kv_capacity_tokens=_kv_capacity(views),
        capture_sizes=views[0].capture_sizes if len(views) == 1 and not asks.router else None,
        roofline_tps=views[0].roofline_tps if len(views) == 1 and not asks.router else None,
        yard=_yardstick(views),
        names=_backend_names(target, snapshot) if asks.router else None,
        token_source=first.token_source,
        mdns=is_mdns(target.url),
        takes_salt=_takes_salt(plan, found, views),
        notes=tuple(_notes(plan, target, found, views)),
        lengths=dict(found),
    )


def _yardstick(views: Sequence[BackendView]) -> Yard:
    """Return what the servers behind a target are compared with: several only with published rates."""
    if len(views) == 1:
        return views[0].yard
    known = [view.yard for view in views]
    same = bool(known) and all(one.published == known[0].published for one in known)
    return Yard(published=known[0].published, servers=len(known)) if same else Yard()


def _kv_capacity(views: Sequence[BackendView]) -> float | None:
    known = [view.kv_capacity_tokens for view in views if view.kv_capacity_tokens is not None]
    return sum(known) if known and len(known) == len(views) else None


def _backend_names(target: SweepTarget, snapshot: Snapshot) -> BackendNames:
    deployments = dict(target.deployments)
    for view in snapshot.routers:
        if view.url == target.url:
            reported = view.deployments or {}
            deployments = {id_: name for id_, name in reported.items() if name is not None} | deployments
    urls = {view.name: view.url for view in snapshot.backends}
    return BackendNames(router_url=target.url, backends=urls | dict(target.backends), deployments=deployments)


def _takes_salt(plan: Plan, found: Mapping[int, Calibrated], views: list[BackendView]) -> bool:
    """Return whether the request field `cache_salt` takes effect: all servers run vLLM, and none refused it.

    Other engines may accept a field that they do not know and ignore it; the user may have set it.
    """
    refused = any(CACHE_SALT in one.dropped_fields for one in found.values())
    refused |= CACHE_SALT in plan.extra_body
    return not refused and bool(views) and all(view.engine == _SALTED_ENGINE for view in views)


def _add_refused(
    prepared: PreparedTarget, plan: Plan, refused: Mapping[int, str], longest: LongestPrompt | None
) -> PreparedTarget:
    """Return `prepared` with the `refused` prompt lengths, a note on each of them, and the `longest` prompt.

    `refused` has the server's reason by prompt length. `longest` is the longest prompt that the server
    accepts; None if the sweep did not search for it or did not find one.
    """
    if not refused:
        return prepared
    more = ""
    if longest is not None:
        more = f"; {longest.words}"
    elif plan.longest:
        more = "; the largest that fits was not found: the server does not count prompts, or takes none"
    words = {length: f"{why}{more}" for length, why in refused.items()}
    name = clean(prepared.target.name, 64)
    notes = (f"{name}: prompts of {length} tokens are left out: {why}" for length, why in words.items())
    extra = () if longest is None or longest.tokens in plan.lengths else (longest.tokens,)
    return replace(prepared, refused=words, extra_lengths=extra, notes=(*prepared.notes, *notes))


async def _find_longest(trial: _Trial, asked: _Lengths, views: Sequence[BackendView]) -> LongestPrompt | None:
    """Return the largest prompt that fits into the context together with an answer of the plan's length.

    None if no such prompt was found.
    """
    high = min(asked.refused)
    low = max((length for length in asked.found if length < high), default=0)
    # A calibration requests fewer output tokens than a level: a longer prompt makes up for them.
    output_tokens = trial.plan.tg
    missing = max(0, output_tokens - TRIED_TOKENS)

    async def ask(length: int) -> Calibrated | RequestFailure:
        whole = await trial.calibrate(length + missing)
        fits = isinstance(whole, Calibrated) and whole.failure is None
        return await trial.calibrate(length) if fits else whole

    context = reported_context(views, asked.refused.values())
    return await longest_prompt(low, high, output_tokens, context, ask)


def _server_views(target: SweepTarget, snapshot: Snapshot) -> list[BackendView]:
    names = watched_backends(target, snapshot)
    return [view for view in snapshot.backends if view.name in names]


def _notes(
    plan: Plan, target: SweepTarget, found: Mapping[int, Calibrated], views: list[BackendView]
) -> Iterator[str]:
    name = clean(target.name, 64)
    if is_mdns(target.url):
        yield f"{name}: its .local name is looked up by multicast, which fails at times; use an address"
    first = next(iter(found.values()))
    if len(first.models) > 1 and target.model is None:
        chosen = f"{_clean_name(first.model)} is asked (--model names another)"
        yield f"{name}: serves {len(first.models)} models; {chosen}"
    for field_name, words in first.dropped_fields.items():
        yield f"{name}: refuses {clean(field_name, 40)} and is asked without it ({clean(words, 120)})"
    for length, one in found.items():
        if one.is_exact is False:
            got = "they are not counted" if one.prompt_tokens is None else f"{one.prompt_tokens} came"
            yield f"{name}: prompts of {length} tokens cannot be made exactly: {got}"
    if plan.prompts is not None and not _takes_salt(plan, found, views):
        yield f"{name}: prompts are sent as they are: what it has in its prefix cache is not computed again"
    if first.token_source is TokenSource.CHUNKS:
        yield f"{name}: reports no token counts: each chunk counts as one token"
    yield from _capacity_notes(plan, target, max(found), views)


def _capacity_notes(plan: Plan, target: SweepTarget, longest: int, views: list[BackendView]) -> Iterator[str]:
    name = clean(target.name, 64)
    context = min((view.max_model_len for view in views if view.max_model_len is not None), default=None)
    if plan.trace is not None and (words := plan.trace.too_long(context)) is not None:
        yield f"{name}: {words}"
    if plan.kind is not LoadKind.CONCURRENCY:
        return  # how many requests are in flight is what the sweep finds out
    most = plan.highest_concurrency
    slots = [view.slots for view in views if view.slots is not None]
    if slots and len(slots) == len(views) and most > sum(slots):
        least = min((one for one in plan.concurrency if one > sum(slots)), default=most)
        waits = "the rest waits, and latencies include that"
        yield f"{name}: more than its {sum(slots)} slots from c = {least} on: {waits}"
    tokens = [view.kv_capacity_tokens for view in views if view.kv_capacity_tokens is not None]
    needed = most * (longest + plan.tg)
    if plan.prompts is None and tokens and len(tokens) == len(views) and needed > sum(tokens):
        yield (
            f"{name}: c = {most} needs {needed} tokens of KV cache, it has {sum(tokens):.0f}: "
            "requests will wait or be preempted"
        )


def _clean_name(model: str | None) -> str | None:
    return None if model is None else clean(model)


ENOUGH_SHARE = 0.01
"""Share (0 to 1) of the shortest refused length within which the largest that fits is found."""
LEAST_APART = 16
"""The search ends when the largest length that fits is known to within `LEAST_APART` tokens, or to within
`ENOUGH_SHARE` of the shortest refused length if that is less."""

Try = Callable[[int], Awaitable[Calibrated | RequestFailure]]
"""Sends a request with a prompt of the given length in tokens; returns its calibration result or failure."""


class LongestPrompt(Struct, frozen=True):
    """The largest prompt that was found to fit into a server's context."""

    tokens: int
    found: Calibrated
    within: int = 0
    """Bound of the error in tokens: the true maximum is less than `tokens + within`; 0 where it is exact."""

    @property
    def words(self) -> str:
        """The result as text, such as "8000 tokens fit, or up to 15 more"."""
        exact = "" if self.within <= 1 else f", or up to {self.within - 1} more"
        return f"{self.tokens} tokens fit{exact}"


def beyond_context(
    length: int,
    output_tokens: int,
    views: Iterable[BackendView],
    conversations: ConversationPreset | None = None,
) -> str | None:
    """Return a message if prompt `length` and output tokens together exceed the context of a server.

    The same for the first call of `conversations`, if these are sent. Return None if no server reports a
    context length that is exceeded.
    """
    for view in views:
        start = 0 if conversations is None else conversations.start_tokens
        if conversations is not None and view.max_model_len is not None and start > view.max_model_len:
            others = (
                one.name
                for one in map(find_conversations, BUILT_IN)
                if one.least_context_tokens <= view.max_model_len
            )
            return (
                f"{view.name} takes at most {view.max_model_len:,} tokens a request; a conversation of "
                f"{conversations.name} begins with about {start:,} (workloads that fit: "
                f"{', '.join(others) or 'none'})"
            )
        if view.max_model_len is not None and length + output_tokens > view.max_model_len:
            return (
                f"{view.name} takes at most {view.max_model_len:,} tokens a request; "
                f"pp {length:,} and tg {output_tokens:,} need {length + output_tokens:,}"
            )
    return None


def reported_context(views: Iterable[BackendView], words: Iterable[str]) -> int | None:
    """Return the smallest context length in tokens that the servers in `views` report.

    If no server reports a context length, return the smallest one that the error messages `words` mention;
    None if they mention none.
    """
    known = [view.max_model_len for view in views if view.max_model_len is not None]
    named = [limit for word in words if (limit := stated_context(word)) is not None]
    return min(known or named, default=None)


async def longest_prompt(
    fits: int, refused: int, output_tokens: int, context: int | None, ask: Try
) -> LongestPrompt | None:
    """Return the largest prompt that a server accepts, longer than `fits` and shorter than `refused` tokens.

    `fits` is 0 if no accepted length is known. The first length to try is the server's reported `context`
    minus `output_tokens`; then the range is bisected. `ask` sends a trial request with a prompt of the given
    length. The search ends early if prompts of exact length cannot be made. Return None if the server
    accepted no length that was tried.
    """
    best: LongestPrompt | None = None
    low, high = fits, refused
    wanted = None if context is None else context - output_tokens
    while high - low > max(1, min(LEAST_APART, round(ENOUGH_SHARE * high))):
        length = wanted if wanted is not None and low < wanted < high else (low + high) // 2
        is_exact = length == wanted
        wanted = None
        found = await ask(length)
        if isinstance(found, Calibrated) and found.failure is None:
            if not found.is_exact:
                return best
            low, best = length, LongestPrompt(length, found)
            if is_exact:
                return best
        else:
            high = length
    return None if best is None else LongestPrompt(best.tokens, best.found, high - low)


# What the machines of a sweep are, in words that a reader elsewhere can compare with his own.


_GIB = 2**30


def machines_words(names: Collection[str], snapshot: Snapshot) -> dict[str, str]:
    """Return product, GPUs and driver of each of the machines `names` that reports any of them.

    Such as "NVIDIA DGX Spark, NVIDIA GB10, driver 580.95.05". Processors, memory and operating system replace
    GPUs that it lacks.
    """
    views = [view for view in snapshot.nodes if view.name in names]
    return {view.name: words for view in views if (words := _machine_words(view))}


def _machine_words(view: NodeView) -> str:
    sample, identity = view.sample, view.identity
    gpus = Counter(gpu.name for gpu in (() if sample is None else sample.gpus) if gpu.name)
    parts = [
        identity.product,
        *(() if gpus else _without_gpu(view)),
        *(name if count == 1 else f"{count} × {name}" for name, count in gpus.items()),
        None if identity.driver is None else f"driver {identity.driver}",
    ]
    return ", ".join(filter(None, parts))


def _without_gpu(view: NodeView) -> list[str]:
    """Return the processors, memory and operating system of a machine without a known GPU."""
    total = None if view.sample is None else view.sample.memory.total_bytes
    memory = None if total is None else f"{total / _GIB:.3g} GiB of memory"
    known = [words for words in (view.identity.cpu, memory, view.identity.os) if words]
    return [*known, "no GPU known"] if known and view.sample is not None else known
