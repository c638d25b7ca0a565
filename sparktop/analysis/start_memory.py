"""Whether a machine's memory suffices for an engine that starts or wakes, and what nobody accounts for.

What a start needs is taken, in this order, from the newest earlier start with the same options (what its
machine had less, at most), from the share of memory that the command line asks for, or from the weights, a
lower bound. vLLM compares that share of the total with what is free once its process has begun,
before it loads anything, and also where --kv-cache-memory-bytes replaces the share later (`request_memory` of
vllm/v1/worker/utils.py, 0.28).

A sleeping engine of vLLM takes back at once what it gave up, while the copy of its weights in host memory may
stay: on a GB10 both are the same memory, and waking took machines down (vllm #50011).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.event import Finding, FindingKind, Severity, Sure
from sparktop.model.explained import FINDINGS
from sparktop.model.failure import FailureKind
from sparktop.model.node import FREE_PART, GIB, MemoryAsk, MemoryGuard, NodeSample, Workloads
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    NodeView,
    PastStart,
    Situation,
    StartMemory,
    minutes,
)

SHORT, FITS, HELD = FindingKind.START_SHORT, FindingKind.START_FITS, FindingKind.MEMORY_HELD
CONTEXT_BYTES, _CONTEXT_GPU_BYTES = round(2.6 * GIB), round(0.6 * GIB)
"""What vLLM's process has taken of a GB10 before it reads what is free: 2.6 to 2.7 GiB (llamastash #81).
The second is the same of a GPU with memory of its own: its context."""
LEAST_SHARE, MOST_SHARE = 0.9, 0.92
"""Shares of memory that vLLM asks for without an option: in older and in newer versions."""
_CLEARLY_BYTES = GIB
"""A lack of less is within the error of what is known; once named, it stays down to half of it."""
_USUAL_BYTES = 3 * GIB
"""What no process accounts for on an idle Spark, about."""
_HELD_BYTES, _HELD_GPU_BYTES, _HELD_S = 5 * GIB, 2 * GIB, 60.0
"""Memory of nobody beyond the usual from which on it is named, of a machine that shares it with its GPU and
of a GPU with its own, and for how long: a process that ends gives its own back soon."""
_STAYS = 0.8
"""Share of it that must still be there for the finding to stay while an engine starts beside it; share of the
limit down to which it stays while none does."""
_GIVEN_BACK_S = 10.0
"""Seconds after which a process that has ended has given its memory back."""
_GONE = {FailureKind.REFUSED, FailureKind.UNREACHABLE}
_MOST_EXTRA = 5
"""Newest starts of which the median counts."""


class Room(Struct, frozen=True):
    """The memory that one machine, or one GPU with memory of its own, has for an engine."""

    total_bytes: int
    free_bytes: int
    """What can be allocated, the cache of files dropped."""
    before_drop_bytes: int
    """What can be allocated while files stay cached: what an engine sees that asks the driver alone."""
    available_bytes: int | None = None
    """What the kernel calls available, by which guards act; None of a GPU with memory of its own."""
    swap_free_percent: float | None = None
    """0 to 100; None without swap."""
    guards: tuple[MemoryGuard, ...] = ()

    @property
    def context_bytes(self) -> int:
        """What an engine's process takes before it looks what is free."""
        return _CONTEXT_GPU_BYTES if self.available_bytes is None else CONTEXT_BYTES

    def guard_limit(self) -> tuple[str, int]:
        """Return (name, bytes) of the guard that acts first if swap stays as it is; ("", 0) without one.

        Without swap earlyoom goes by memory alone, and systemd-oomd does not act.
        """
        first_guard = "", 0
        for guard in self.guards:
            limit = guard.available_bytes or 0
            if guard.available_percent is not None:
                limit = max(limit, round(guard.available_percent / 100 * self.total_bytes))
            if self.swap_free_percent is None:
                acts = guard.name == "earlyoom"
            else:
                acts = guard.swap_percent is None or self.swap_free_percent <= guard.swap_percent
            if acts and limit > first_guard[1]:
                first_guard = guard.name, limit
        return first_guard


def room_of(sample: NodeSample, gpus: int = 1) -> Room | None:
    """Return the memory that a machine has for an engine on so many of its GPUs; None if it is not known.

    Of GPUs with memory of their own, it is that of the fullest of the `gpus` emptiest, of all at most.
    """
    memory, loads = sample.memory, sample.workloads
    if memory.unified:
        if memory.total_bytes is None or memory.headroom_bytes is None:
            return None
        cached = memory.page_cache_bytes or 0
        parts = {part.name: part.size_bytes for part in memory.parts}
        before = parts.get(FREE_PART, memory.headroom_bytes - cached)
        swap, swap_used_bytes = memory.swap_total_bytes, memory.swap_used_bytes
        return Room(
            memory.total_bytes,
            memory.headroom_bytes,
            max(0, min(before, memory.headroom_bytes)),
            memory.available_bytes,
            None if not swap or swap_used_bytes is None else 100.0 * (swap - swap_used_bytes) / swap,
            () if loads is None else loads.guards,
        )
    free = sorted(
        (gpu.memory_total_bytes - gpu.memory_used_bytes, gpu.memory_total_bytes)
        for gpu in sample.gpus
        if gpu.memory_total_bytes and gpu.memory_used_bytes is not None
    )
    gpus = max(1, min(gpus, len(sample.gpus)))
    if gpus > len(free):
        return None
    left, total = free[-gpus]
    return Room(total, left, left)


class Need(Struct, frozen=True):
    """The memory that a start takes of each machine or GPU."""

    size_bytes: int | None
    """None if it is not known."""
    basis: str
    """What it was taken from, in words; what is missing if it is not known."""
    at_least: bool = False
    """Whether it is a lower bound."""


def newest_start(starts: Iterable[PastStart], key: tuple[str, str, str]) -> PastStart | None:
    """Return the newest of the earlier starts of a model on a host: (host, engine, model)."""
    return max((past for past in starts if past.key == key), key=lambda one: one.ended_at, default=None)


def start_need(about: StartMemory, room: Room, starts: Iterable[PastStart], *, machines: int = 1) -> Need:
    """Return what a start takes of a machine or GPU with the memory `room`.

    Its weights are spread over its ranks, of which there is one at least on each of its `machines`. What the
    earlier starts `starts`, of any model, took above what they asked for is added.
    """
    asks, engine, weights_bytes = about.asks, about.process.engine or "", about.process.checkpoint_bytes
    if weights_bytes is not None:
        weights_bytes //= max(1, asks.ranks, machines)
    last_start, total_bytes = about.last, room.total_bytes
    more = room.context_bytes + loader_extra(starts, about.host, engine, total_bytes)
    beside, of_total = f" + {_gib(more)} beside it", f"of {_gib(total_bytes)} GiB"
    if last_start is not None and last_start.peak_bytes and last_start.asks in {None, asks}:
        share = asks.share if engine == "vllm" and asks.share else 0.0
        checked = round(share * total_bytes) + room.context_bytes
        if last_start.peak_bytes >= checked:
            return Need(last_start.peak_bytes, "its last start took as much")
        return Need(checked, f"vLLM starts only if {share:g} {of_total} is free")
    if engine == "vllm":
        return _vllm_need(asks, total_bytes, weights_bytes, more)
    if engine == "sglang" and asks.share is not None:
        line = f"mem_fraction_static {asks.share:g} {of_total}{beside}, without activations"
        return Need(round(asks.share * total_bytes) + more, line, at_least=True)
    if weights_bytes is not None:
        line = f"weights {_gib(weights_bytes)}{beside}, without KV cache"
        return Need(weights_bytes + more, line, at_least=True)
    return Need(None, "no earlier start of it is known, nor its weights")


def _vllm_need(asks: MemoryAsk, total_bytes: int, weights_bytes: int | None, more: int) -> Need:
    share, beside = asks.share or LEAST_SHARE, f" + {_gib(more)} beside it"
    checked, weights = round(share * total_bytes) + more, weights_bytes or 0
    if asks.kv_bytes is not None and weights + asks.kv_bytes + more > checked:
        held_bytes = weights + asks.kv_bytes + more
        line = f"weights {_gib(weights)} + KV cache {_gib(asks.kv_bytes)}{beside}"
        return Need(held_bytes, line, at_least=weights_bytes is None)
    line = f"gpu_memory_utilization {share:g} of {_gib(total_bytes)} GiB{beside}"
    return Need(checked, line if asks.share else f"{line}, the default", at_least=not asks.share)


def loader_extra(starts: Iterable[PastStart], host: str, engine: str, total_bytes: int) -> int:
    """Return what the newest starts of an engine on a host took above what they asked for, as their median.

    0 where that is not known, or where they took less.
    """
    extras: list[int] = []
    for start in starts:
        asks = start.asks
        if start.host != host or start.engine != engine or not start.peak_bytes or asks is None:
            continue
        if asks.share and asks.kv_bytes is None:
            extras.append(start.peak_bytes - round(asks.share * total_bytes) - CONTEXT_BYTES)
    return max(0, round(median(extras[-_MOST_EXTRA:]))) if extras else 0


def fit_of(need: Need, room: Room, *, held_bytes: int = 0, was_short: bool = False) -> Finding:
    """Return whether `need` fits into `room`, of no subject; `held_bytes` of the room are its own already.

    Its line is such as "needs 96 GiB, can get 88 GiB: 8 GiB short". It has a severity exactly if memory is
    short, and is unknown if that is not known. What `was_short` a moment ago stays so until it fits clearly.
    """
    lack, spare = (_CLEARLY_BYTES // 2, _CLEARLY_BYTES // 2) if was_short else (_CLEARLY_BYTES, 0)
    size, free = need.size_bytes or 0, room.free_bytes + held_bytes
    before = min(free, room.before_drop_bytes + held_bytes)
    guard, limit = room.guard_limit()
    left = math.inf if room.available_bytes is None else room.available_bytes + held_bytes - size
    said = f"needs {'at least ' if need.at_least else ''}{_gib(size)} GiB, can get {_gib(free)} GiB"
    unknown, short, by_cache = "not known if it fits", _gib(size - free), f"{_gib(free - before)} GiB of"
    acts, advice = bool(guard) and left < limit + spare, FINDINGS[SHORT].advice
    outcomes: tuple[tuple[bool, str, bool | None, str | None], ...] = (
        # The first that holds: its words, whether memory is short (None: unknown), what to do.
        (need.size_bytes is None, f"{unknown}: {need.basis}", None, None),
        (size > free + lack, f"{said}: {short} GiB short", True, advice("too little", SHORT=short)),
        (acts, f"{said}: {guard} acts below {_gib(limit)} GiB", True, advice("a guard would act")),
        (need.at_least, f"{unknown}: {said}", None, None),
        (size > free, f"{said}, about all there is", False, None),
        (size > before, f"{said}, {by_cache} it file cache", False, FINDINGS[FITS].advice("with file cache")),
        (True, said, False, None),
    )
    words, is_short, fix = next(outcome[1:] for outcome in outcomes if outcome[0])
    cached = "" if _gib(before) == _gib(free) else f", {by_cache} them by dropping file cache"
    rows = [
        ("need", need.basis if need.size_bytes is None else f"{_gib(size)} GiB: {need.basis}"),
        ("can get", f"{_gib(free)} GiB{cached}"),
        *([(guard, f"ends a process where less than {_gib(limit)} GiB are available")] if guard else []),
    ]
    return Finding(
        FITS if is_short is False else SHORT,
        "",
        words,
        fix=fix,
        sure=Sure.UNKNOWN if is_short is None else Sure.LIKELY,
        severity=Severity.WARNING if is_short else None,
        evidence=tuple(rows),
        values={
            "need_gib": None if need.size_bytes is None else round(size / GIB, 2),
            "free_gib": round(free / GIB, 2),
            "free_before_drop_gib": round(before / GIB, 2),
        },
    )


def _gib(size: float) -> str:
    """Return bytes in GiB, with a digit after the point below 10."""
    gib = size / GIB
    return f"{gib:.0f}" if gib >= 9.95 else f"{gib:.1f}"  # noqa: PLR2004 - 9.95 is written as 10


class StartMemoryRule:
    """Judges an engine that sleeps, loads or is gone, on each of its machines."""

    def __init__(self) -> None:
        """Start without having seen the engine awake."""
        self._awake: dict[str, tuple[int, int]] = {}
        """(restarts, most GPU memory that it held awake) by machine."""
        self._short: set[str] = set()
        """Machines whose memory did not suffice at the last look."""

    def look(self, now: Situation, view: BackendView) -> Iterator[Finding]:
        """Yield whether memory suffices for such an engine: about the server, and about each machine."""
        for node in view.nodes:
            machine = now.nodes.get(node)
            if machine is None or machine.sample is None or not machine.ok:
                continue
            fit = self._judge_machine(view, machine, machine.sample, now)
            self._short -= {node}
            if fit is None:
                continue
            if fit.severity is not None:
                self._short |= {node}
            unowned = tuple(("held by nobody", row.said) for row in machine.findings if row.kind == HELD)
            where, key = (f" on {node}", node) if len(view.nodes) > 1 else ("", "")
            about_server = replace(fit, subject=view.name, key=key, evidence=fit.evidence + unowned)
            yield replace(about_server, line=fit.line + where)
            line = f"{view.name}: {fit.line}"
            yield replace(
                about_server, subject=node, line=line, of_machine=True, severity=None, key=view.name
            )

    def _judge_machine(
        self, view: BackendView, machine: NodeView, sample: NodeSample, now: Situation
    ) -> Finding | None:
        """Return whether a start or waking fits; None of an engine that runs, or was never seen."""
        held_bytes = _held_by(view, machine, sample)
        highest, about, name = max(held_bytes, default=0), view.start_memory, machine.name
        sleeps = view.state is BackendState.ASLEEP
        if view.ok and not sleeps:
            restarts, before = self._awake.get(name, (view.restarts, 0))
            self._awake[name] = view.restarts, max(highest, before if restarts == view.restarts else 0)
        is_gone = about is not None and not about.alive and _is_gone(view, now)
        if not (sleeps or is_gone or view.loading is not None):
            return None
        ranks = 1 if about is None else about.asks.ranks // len(view.nodes)
        room = room_of(sample, len(held_bytes) or ranks)
        if room is None:
            return None
        verb, need, own_bytes = "start", Need(None, "its process is not visible"), 0
        if sleeps:
            verb, need = "waking", self._wake_need(name, about, room, highest)
        elif about is not None:
            need = start_need(about, room, now.starts, machines=len(view.nodes))
            if not is_gone:
                room = replace(room, before_drop_bytes=room.free_bytes)
                verb, need, own_bytes = _rest_of_start(about, need, room, highest)
        fit = fit_of(need, room, held_bytes=own_bytes, was_short=name in self._short)
        return replace(fit, line=f"{verb} {'fits: ' if fit.kind is FITS else ''}{fit.line}")

    def _wake_need(self, machine: str, about: StartMemory | None, room: Room, held: int) -> Need:
        awake, basis = self._awake.get(machine, (0, 0))[1], "what it held awake"
        if not awake and about is not None and about.last is not None and about.last.gpu_bytes:
            awake, basis = about.last.gpu_bytes, "what it held after its last start"
        if not awake and about is not None and about.asks.share:
            awake = round(about.asks.share * room.total_bytes)
            basis = f"gpu_memory_utilization {about.asks.share:g} of {_gib(room.total_bytes)} GiB"
        if not awake:
            return Need(None, "it was never seen awake")
        return Need(max(0, awake - held), f"{basis}, {_gib(awake)} GiB, less {_gib(held)} GiB now")


def _rest_of_start(about: StartMemory, need: Need, room: Room, held: int) -> tuple[str, Need, int]:
    """Return (what goes on, what it needs, what of that is its own); `held` is its GPU memory so far."""
    peak = None if about.last is None or about.last.asks != about.process.asks else about.last.gpu_peak_bytes
    if peak is not None and peak - held > room.free_bytes + _CLEARLY_BYTES:
        # Something else has taken memory since it began.
        basis = f"its last start held {_gib(peak)} GiB of GPU memory, this one {_gib(held)}"
        return "the rest of its start", Need(peak - held, basis), 0
    # What it has taken so far is its own: by the machine's memory at its begin, else by its GPU memory.
    own_bytes = held if about.begin_bytes is None else max(held, about.begin_bytes - room.free_bytes)
    return "start", need, own_bytes


def _is_gone(view: BackendView, now: Situation) -> bool:
    """Return whether a server has been down for so long that its processes have given their memory back."""
    is_down = view.failure is not None and view.failure.kind in _GONE
    return is_down and (now.wall - (view.failing_since or now.wall)).total_seconds() >= _GIVEN_BACK_S


def _held_by(view: BackendView, machine: NodeView, sample: NodeSample) -> list[int]:
    """Return the memory that a backend's processes hold on each GPU of a machine that they are on."""
    about, loads = view.start_memory, sample.workloads
    pids = {process.pid for process in machine.engine_processes if process.backend == view.name}
    if about is not None and about.node == machine.name and loads is not None:
        pids |= {process.pid for process in loads.processes if process.server == about.process.pid}
    sizes = [gpu.bytes_of(pids) for gpu in sample.gpus]
    return [size for size in sizes if size]


class HeldMemoryRule:
    """Finds memory of machines and GPUs that is in use although no process that could use it lives."""

    def __init__(self) -> None:
        """Start without a finding."""
        self._seen: dict[tuple[str, str], tuple[float, int | None]] = {}
        """By machine and GPU: (since when memory is held so, how much was named)."""
        self._last: dict[str, tuple[str, float]] = {}
        """The last engine's process seen on each machine, and when."""

    def look(self, now: Situation) -> Iterator[Finding]:
        """Return one finding for each machine, or GPU with memory of its own."""
        before, self._seen = self._seen, {}
        for name, machine in now.nodes.items():
            sample = machine.sample
            if sample is None or not machine.ok or sample.workloads is None:
                self._seen |= {key: seen for key, seen in before.items() if key[0] == name}
                continue
            users = _users(sample, sample.workloads)
            if users:
                self._last[name] = users[0], now.at
            listed = bool(sample.gpus) and all(gpu.processes is not None for gpu in sample.gpus)
            is_alone = not users and listed and sample.workloads.sees_all is True
            for part, size, least in _unattributed_memory(sample):
                since, named = before.get((name, part), (now.at, None))
                if named is None:
                    is_held = is_alone and size >= least
                else:
                    is_held = size >= _STAYS * (least if is_alone else max(least, named))
                if not is_held:
                    continue
                if is_alone and now.at - since >= _HELD_S:
                    named = size
                self._seen[name, part] = since, named
                if named is not None:
                    yield self._finding(name, part, named, least, now.at - since, now.at)

    def _finding(self, name: str, part: str, held: int, least: int, lasted_s: float, at: float) -> Finding:
        engine, when = self._last.get(name, ("", at))
        lasted = f"{minutes(lasted_s)} min or longer; named from {_gib(least)} GiB on for {_HELD_S:.0f} s"
        beside = (
            f"{_gib(held + _USUAL_BYTES)} GiB counted for no process, less the usual {_gib(_USUAL_BYTES)}"
        )
        rows = [("since", lasted), *([] if part else [("memory", beside)])]
        rows += [("last engine there", f"{engine}, last seen {minutes(at - when)} min ago")] if engine else []
        return Finding(
            HELD,
            name,
            f"{_gib(held)} GiB{part and f' of GPU {part}'} are held by no process that lives",
            of_machine=True,
            fix=FINDINGS[HELD].advice(),
            sure=Sure.LIKELY,
            severity=Severity.WARNING,
            evidence=tuple(rows),
            values={"held_gib": round(held / GIB, 2), "limit_gib": round(least / GIB, 2)},
            key=part,
        )


def _unattributed_memory(sample: NodeSample) -> Iterator[tuple[str, int, int]]:
    """Yield (index of a GPU or "", bytes beyond the usual that no process accounts for, limit)."""
    if sample.memory.unified:
        if sample.memory.unattributed_bytes is not None:
            yield "", sample.memory.unattributed_bytes - _USUAL_BYTES, _HELD_BYTES
        return
    for gpu in sample.gpus:
        if gpu.memory_used_bytes is not None and gpu.processes is not None and not gpu.mig:
            attributed_bytes = sum(process.memory_bytes or 0 for process in gpu.processes)
            yield str(gpu.index), gpu.memory_used_bytes - attributed_bytes, _HELD_GPU_BYTES


def _users(sample: NodeSample, loads: Workloads) -> list[str]:
    """Return what uses a GPU of a machine or may do so soon, in words.

    Any of them may hold memory that nothing counts, as the copy of weights that a sleeping engine keeps.
    """
    engines = [
        process.box or f"process {process.pid}" for process in loads.processes if process.engine is not None
    ]
    computing = (
        process for gpu in sample.gpus for process in gpu.processes or () if process.kind != "graphics"
    )
    return [*engines, *(f"{process.name} (process {process.pid})" for process in computing)]
