"""Families of servers that work for nobody, and of those that only look so; of orphaned engine processes.

Servers are played as lists of requests, each with its work and its connection, which are polled and whose
connections are read at times of their own. Orphans are trees of processes that the real reader reads.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sparktop.analysis.abandoned import FOR_NOBODY, ORPHANED, ForNobody, Orphans
from sparktop.hardware.processes import WorkloadReader
from sparktop.model.event import Finding
from sparktop.model.node import (
    GpuProcess,
    GpuReading,
    NodeIdentity,
    NodeSample,
    Sockets,
    Workload,
    Workloads,
    end_marks,
)
from sparktop.model.router import RouterSample, RouterView
from sparktop.model.snapshot import BackendState, BackendView, NodeView, Situation
from tests.findings.study import UNKNOWN, Run, of_kind
from tests.hardware.conftest import process

WALL = datetime(2026, 1, 1, tzinfo=UTC)
LASTS_S = 150.0
OWN = end_marks("10.0.0.9", 50123)
ROUTER_HOST, ROUTER_URL = "10.0.0.5", "http://10.0.0.5:4000"


class Call(NamedTuple):
    """A request: when the server works on it, and until when its client is connected."""

    begins: float
    ends: float
    leaves: float
    host: str = "10.0.0.7"
    counted: bool = True
    """Whether its end is counted as a finish."""


class Beside(NamedTuple):
    """A connection that carries none of the calls: when it is open, and how long ago it asked something."""

    end: tuple[int, int]
    asked_s: Callable[[float], float | None]
    is_open: Callable[[float], bool] = lambda _: True


class Play(NamedTuple):
    """How a server is watched."""

    calls: Sequence[Call]
    visible: bool = True
    counts_finishes: bool = True
    own: tuple[int, int] | None = OWN
    """This program's end as the server's machine sees it; another than `OWN` behind a docker-proxy."""
    others: Callable[[float], Sequence[tuple[int, int]]] = lambda _: ()
    """Connections of others, which carry no request, at a time."""
    beside: Sequence[Beside] = ()
    """The same, of which the kernel tells when they last asked, or None."""
    counts_prompts: bool = False
    router: Callable[[float], float | None] | None = None
    """Requests in flight by a router's count at a time."""
    state: BackendState = BackendState.BUSY
    bridged: bool = False
    poll_s: float = 1.0
    restarts_at: float = float("inf")
    silent: tuple[float, float] = (float("inf"), float("inf"))
    """From when until when the machine misses its polls."""
    url: str = "http://10.0.0.2:8000"
    responses: float | None = 0.0
    """Requests of the Responses API that it has accepted."""


def played(play: Play, chance: random.Random) -> list[Finding]:
    """Return all findings of the rule, looked at once a second."""
    rule = ForNobody()
    found: list[Finding] = []
    poll_at, read_at = chance.random() * play.poll_s, chance.random() * 10
    read_s = chance.choice((5.0, 10.0))
    view, node, router = None, None, None
    at = 0.0
    while at < LASTS_S:
        at += 1.0
        while poll_at <= at:
            view = _polled(play, poll_at)
            if play.router is not None:
                router = _routed(play, poll_at)
            polled_at, poll_at = poll_at, poll_at + play.poll_s * (0.95 + 0.1 * chance.random())
        while read_at <= at:
            node, looked_at = _read(play, read_at), read_at
            read_at += read_s + chance.random() * 0.5
        if view is None:
            continue
        is_silent = play.silent[0] <= at < play.silent[1]
        now = Situation(
            at,
            WALL,
            {"b": _aged(view, at - polled_at)},
            {} if is_silent or node is None else {"spark-1": _node(node, looked_at, at)},
            () if router is None else (router,),
        )
        found += rule.look(now)
    return found


def _polled(play: Play, at: float) -> dict[str, object]:
    running = sum(one.begins <= at < one.ends for one in play.calls)
    finished = sum(one.ends <= at and one.counted for one in play.calls)
    tokens = sum(20 * max(0.0, min(at, one.ends) - one.begins) for one in play.calls)
    after = at >= play.restarts_at
    return {
        "running": float(running),
        "finished": {"stop": float(finished)} if play.counts_finishes else {},
        "generation_tokens": tokens,
        "prompt_tokens": 100.0 * sum(one.begins <= at for one in play.calls) if play.counts_prompts else None,
        "restarts": int(after),
        "state": play.state if running else BackendState.IDLE,
        "client": OWN,
        "url": play.url,
        "responses": play.responses,
    }


def _aged(fields: dict[str, object], age_s: float) -> BackendView:
    known = {"name": "b", "group": "g", "engine": "vllm", "nodes": ("spark-1",), **fields}
    return BackendView(**known, age_s=age_s)  # type: ignore[arg-type]  # by name


def _routed(play: Play, at: float) -> RouterView:
    count = play.router(at) if play.router is not None else None
    sample = RouterSample(at, "sglang", in_flight=count)
    return RouterView("r", ROUTER_URL, age_s=0.1, sample=sample, backends=("b",), deployments={"d": "b"})


def _read(play: Play, at: float) -> Sockets | None:
    if not play.visible:
        return None
    mine = {
        end_marks(one.host, 40000 + number): at - one.begins
        for number, one in enumerate(play.calls)
        if one.begins - 0.05 <= at < one.leaves
    }
    beside = {one.end: one.asked_s(at) for one in play.beside if one.is_open(at)}
    own = {} if play.own is None else {play.own: at % 1.0}
    if not play.beside:  # a kernel that tells nothing
        return Sockets((*mine, *play.others(at), *own)[:32], bridged=play.bridged)
    asked = {**beside, **own, **mine}
    return Sockets(tuple(asked)[:32], bridged=play.bridged, asked_s=tuple(asked.values())[:32])


def _node(sockets: Sockets | None, read_at: float, at: float) -> NodeView:
    server = Workload(100, "vllm", "server", port=8000, server=100, container="c" * 12, sockets=sockets)
    sample = NodeSample(at, workloads=Workloads((server,), age_s=at - read_at))
    return NodeView("spark-1", "ssh", sample, NodeIdentity(addresses=("10.0.0.2",)), age_s=0.0)


def _long(chance: random.Random, hang_up: float, **more: object) -> list[Call]:
    """Return requests whose clients leave at about `hang_up`, and that the server goes on with."""
    count = chance.choice((1, 1, 2, 4, 16, 64))
    return [
        Call(chance.uniform(0, 10), hang_up + chance.uniform(80, 300), hang_up + chance.uniform(0, 3), **more)  # type: ignore[arg-type]  # by name
        for _ in range(count)
    ]


def _gone(calls: Sequence[Call]) -> list[Call]:
    """Return the same requests without a client."""
    return [one._replace(leaves=0.0) for one in calls]


def _connected(calls: Sequence[Call]) -> list[Call]:
    """Return the same requests, whose clients wait for the end."""
    return [one._replace(leaves=one.ends) for one in calls]


def _leaked(chance: random.Random) -> list[Call]:
    """Return requests that never end and were there before the watch began."""
    return [Call(-50.0, 1e6, -20.0) for _ in range(chance.randint(1, 8))]


def _traffic(chance: random.Random, *, busy: float, life_s: float) -> list[Call]:
    """Return requests one after another, each with a connection of its own, busy for a share of the time."""
    calls: list[Call] = []
    at = 0.0
    while at < LASTS_S:
        took = chance.uniform(0.5, 1.5) * life_s
        calls.append(Call(at, at + took, at + took))
        at += took + chance.expovariate(1.0) * life_s * (1 - busy) / busy
    return calls


def _short(chance: random.Random) -> list[Call]:
    """Return short requests with short connections, sometimes with gaps at which the connections are read."""
    return _traffic(chance, busy=chance.uniform(0.3, 0.99), life_s=chance.uniform(0.2, 20))


def _scraped(phase_s: float, calls: Sequence[Call]) -> Play:
    """A Prometheus scrapes the abandoned server every 15 s, and its connection lives for 5 s each time."""
    scrape = end_marks("10.0.0.8", 9090)
    return Play(calls, others=lambda at: (scrape,) if (at - phase_s) % 15 < 5 else ())


def _bursts(chance: random.Random) -> Play:
    """Waves of requests with pauses, on a server that counts nothing."""
    every, share = chance.uniform(2, 30), chance.uniform(0.5, 0.97)
    calls = [
        Call(one * every, (one + share) * every, (one + share) * every)
        for one in range(int(LASTS_S / every) + 1)
        for _ in range(chance.randint(1, 8))
    ]
    return Play(calls, counts_finishes=False)


def _aborted(chance: random.Random) -> Play:
    """The server stops within 20 s after its clients have left."""
    left = chance.uniform(20, 60)
    calls = [Call(0.0, left + chance.uniform(0.1, 20), left, counted=chance.random() < 0.5) for _ in range(8)]
    return Play(calls)


def _begun(calls: Sequence[Call], until: float) -> Callable[[float], float]:
    """Return a router's count of the requests that have begun; it has none in flight from `until` on."""
    return lambda at: float(sum(one.begins <= at for one in calls)) if at < until else 0.0


def _pooled(calls: Sequence[Call], router: Callable[[float], float], size: int = 8) -> Play:
    """Requests through a router, whose pool of connections stays open."""
    pool = [end_marks(ROUTER_HOST, 50000 + one) for one in range(size)]
    return Play(calls, others=lambda _: pool, router=router)


def _behind_a_router(chance: random.Random) -> Play:
    """The router's pool stays connected, and the router has none in flight any more."""
    calls = _long(chance, 40.0)
    return _pooled(_gone(calls), _begun(calls, 40.0), chance.randint(1, 20))


def _unseen_behind_a_router(chance: random.Random) -> Play:
    """The router has none in flight any more, and the server's connections cannot be seen."""
    calls = _long(chance, 40.0)
    return Play(calls, visible=False, router=_begun(calls, 40.0))


def _in_flight(chance: random.Random, hang_up: float, *, is_part: bool = False) -> Play:
    """A router has all requests in flight; where it counts a part, only its own requests, often none."""
    calls = _gone(_long(chance, hang_up))
    share = chance.uniform(0.0, 0.9) if is_part else 1.0

    def count(at: float) -> float:
        active = (one for one in calls if one.begins <= at < one.ends)
        return float(sum(not is_part or chance.random() < share for _ in active))

    return _pooled(calls, count)


def _around_the_router(chance: random.Random) -> Play:
    """A router that was busy has none in flight, and clients of another machine ask the server directly."""
    calls = [Call(0.0, 35.0, 0.0) for _ in range(3)]
    calls += [one._replace(begins=34.0) for one in _connected(_long(chance, 60.0))]
    return _pooled(calls, lambda at: 3.0 if at < 35 else 0.0)


def _watcher(chance: random.Random, every_s: float) -> Beside:
    """Return a monitor that polls over a connection which stays open."""
    phase, port = chance.uniform(0, every_s), chance.randint(30000, 60000)
    return Beside(
        end_marks(chance.choice(("10.0.0.8", "127.0.0.1")), port), lambda at: (at - phase) % every_s + 0.002
    )


def _watchers(chance: random.Random, count: int) -> list[Beside]:
    return [_watcher(chance, chance.choice((0.5, 1.0, 2.0, 5.0))) for _ in range(count)]


def _three_watchers(chance: random.Random) -> Play:
    """Two other monitors, and a Prometheus whose connection stays open between its scrapes."""
    beside = [*_watchers(chance, 2), _watcher(chance, 15.0)]
    return Play(_long(chance, chance.uniform(15, 30)), beside=beside)


def _one_after_another(chance: random.Random) -> list[Call]:
    """Return requests without pauses worth seeing, all over one connection."""
    calls, at, life_s = list[Call](), 0.0, chance.uniform(0.3, 20)
    while at < LASTS_S:
        took = chance.uniform(0.7, 1.3) * life_s
        calls.append(Call(at, at + took, 0.0))
        at += took + chance.uniform(0.0, 0.2)
    return calls


def _line(calls: Sequence[Call]) -> Beside:
    """Return the connection over which all of them come."""
    return Beside(
        end_marks("10.0.0.7", 40404),
        lambda at: at - max((one.begins for one in calls if one.begins <= at), default=at),
    )


def _one_line(chance: random.Random) -> Play:
    """A client asks again and again over one connection; finishes or prompts are counted, or neither."""
    calls = _one_after_another(chance)
    finishes, prompts = chance.choice(((True, False), (False, True), (True, True), (False, False)))
    beside = [_line(calls), *_watchers(chance, 2)]
    return Play(calls, counts_finishes=finishes, counts_prompts=prompts, beside=beside)


def _one_line_then_waits(chance: random.Random) -> Play:
    """A connection that asked short things at first brings one long request, and waits for it."""
    calls = _one_after_another(chance)
    left = chance.uniform(20, 60)
    calls = [*(one for one in calls if one.ends < left), Call(left, 1e6, 0.0)]
    return Play(calls, counts_prompts=True, beside=[_line(calls), *_watchers(chance, 1)])


def _waiter(port: int, came: float) -> Beside:
    """Return the connection of a client that asked once, when it came."""
    return Beside(end_marks("10.0.0.7", port), lambda at: at - came, lambda at: at >= came)


def _waits_in_line(chance: random.Random) -> Play:
    """Behind an endless request with its client, others come over open connections and wait."""
    waiting = [_waiter(41000 + number, chance.uniform(10, 120)) for number in range(chance.randint(1, 6))]
    return Play([Call(0.0, 1e6, 1e6)], beside=[*waiting, *_watchers(chance, 1)])


def _unreadable_watchers(chance: random.Random) -> Play:
    """Other monitors watch a server of another network namespace: the kernel tells nothing of them."""
    beside = [one._replace(asked_s=lambda _: None) for one in _watchers(chance, chance.randint(1, 2))]
    calls = [one._replace(begins=one.begins + 25.0) for one in _long(chance, 45.0)]
    return Play(calls, bridged=True, beside=beside)


# Orphans: (pid, command line, parent, GiB on the GPU) of each process.

Tree = list[tuple[int, str, int, float]]


def trees(tree: Tree, *, until: float = 200.0, later: Tree | None = None) -> list[Finding]:
    """Return the findings about a machine with this tree of processes; from `until` on it is `later`."""
    rule = Orphans()
    found: list[Finding] = []
    root = Path(tempfile.mkdtemp())
    try:
        reader = WorkloadReader(root, since_boot=lambda: 4000.0, page_bytes=4096, ticks_per_s=100)
        present: Tree = []
        for second in range(0, 200, 5):
            wanted = tree if second < until else (later or [])
            if wanted is not present:
                shutil.rmtree(root / "proc", ignore_errors=True)
                for pid, command, parent, _ in wanted:
                    process(root, pid, *command.split(), parent=parent)
                present = wanted
            held = {pid: gib for pid, _, _, gib in present if gib}
            loads = reader.read(float(second), held)
            gpu = GpuReading(
                0, processes=tuple(GpuProcess(pid, "p", int(gib * 2**30)) for pid, gib in held.items())
            )
            sample = NodeSample(float(second), gpus=(gpu,), workloads=loads)
            view = NodeView("spark-1", "ssh", sample, age_s=0.0)
            found += rule.look(Situation(float(second), WALL, {}, {"spark-1": view}))
    finally:
        shutil.rmtree(root)
    return found


_INITS = ("/usr/lib/systemd/systemd --user", "tini -- run", "bash start.sh", "sleep infinity", "/sbin/init")


def _engine(chance: random.Random, parent: int) -> Tree:
    """Return the processes of an engine below `parent`."""
    size = chance.uniform(1, 110)
    kinds: tuple[Tree, ...] = (
        [(20, "VLLM::EngineCore", parent, size)],
        [(20, "VLLM::EngineCore", parent, 0.0), (21, "VLLM::Worker_TP0", 20, size)],
        [(20, "sglang::scheduler", parent, size), (21, "sglang::detokenizer", parent, 0.0)],
        [(20, "VLLM::Worker_TP1", parent, size)],
    )
    return chance.choice(kinds)


def _init(chance: random.Random) -> tuple[int, str, int, float]:
    return (9, chance.choice(_INITS), 0, 0.0)


def _server(chance: random.Random) -> str:
    return chance.choice(
        (
            "/usr/bin/python3 /usr/bin/vllm serve m --port 8001",
            "/usr/bin/python3 -m sglang.launch_server --model m",
            "vllm serve m --headless",
            "VLLM::APIServer",
        )
    )


def of_a_program(chance: random.Random) -> list[Finding]:
    """The engine belongs to a program that is no known server: a script, a framework, Ray or MPI."""
    parent = chance.choice(
        ("python3 job.py", "python -m dynamo.vllm", "/ray/raylet --x", "orted -mca", "prterun x", "uv run x")
    )
    return trees([_init(chance), (10, parent, 9, 0.0), *_engine(chance, 10)])


def ending(chance: random.Random) -> list[Finding]:
    """The engine outlives its server by up to 50 s, or gets its server's next process."""
    init = _init(chance)
    return trees([init, *_engine(chance, 9)], until=chance.uniform(5, 50), later=[init])


def small(chance: random.Random) -> list[Finding]:
    """What is left holds next to nothing, or the driver does not say how much."""
    init = _init(chance)
    return trees([init, *((*one[:3], chance.uniform(0, 0.45)) for one in _engine(chance, 9))])


_NOBODY: Mapping[tuple[str, str | None], Callable[[random.Random], Play]] = {
    ("clients hang up", FOR_NOBODY): lambda dice: Play(_long(dice, dice.uniform(15, 30))),
    ("requests that leaked", FOR_NOBODY): lambda dice: Play(
        _leaked(dice), counts_finishes=dice.random() < 0.5
    ),
    ("hung up, scraped every 15 s", FOR_NOBODY): lambda dice: _scraped(
        dice.uniform(0, 15), _long(dice, 20.0)
    ),
    ("hung up behind a router's pool", FOR_NOBODY): _behind_a_router,
    # The server has a network of its own, and its port another number outside.
    ("hung up, bridged container", FOR_NOBODY): lambda dice: Play(
        _long(dice, 20.0), bridged=True, url="http://10.0.0.2:9000"
    ),
    # An exporter and a recorder watch the same server, each a connected client for the other.
    ("hung up, two watchers", FOR_NOBODY): lambda dice: Play(
        _long(dice, dice.uniform(15, 30)), beside=_watchers(dice, 1), counts_prompts=dice.random() < 0.5
    ),
    ("hung up, three watchers", FOR_NOBODY): _three_watchers,
    ("leaked, three watchers", FOR_NOBODY): lambda dice: Play(
        _leaked(dice), counts_finishes=False, counts_prompts=True, beside=_watchers(dice, 2)
    ),
    # They wait for long answers, and idle connections stay open.
    ("clients connected", None): lambda dice: Play(_connected(_long(dice, dice.uniform(20, 60)))),
    ("clients connected, two to four watchers", None): lambda dice: Play(
        _connected(_long(dice, dice.uniform(20, 60))), beside=_watchers(dice, dice.randint(1, 3))
    ),
    ("one after another over one connection", None): _one_line,
    ("short requests, then a long one", None): _one_line_then_waits,
    ("waiting in line over open connections", None): _waits_in_line,
    ("short requests", None): lambda dice: Play(_short(dice)),
    ("short requests, not counted", None): lambda dice: Play(_short(dice), counts_finishes=False),
    ("bursts, not counted", None): _bursts,
    ("aborts within 20 s", None): _aborted,
    # Traffic with gaps, on a server that does not count finished requests.
    ("polled every 5 or 15 s", None): lambda dice: Play(
        _traffic(dice, busy=dice.uniform(0.5, 0.95), life_s=dice.uniform(0.5, 6)),
        counts_finishes=False,
        poll_s=dice.choice((5.0, 15.0)),
    ),
    # With counts that are left over.
    ("loading or asleep", None): lambda dice: Play(
        state=dice.choice((BackendState.LOADING, BackendState.ASLEEP, BackendState.ENGINE_DEAD)),
        calls=_long(dice, 5.0),
    ),
    ("router with all in flight", None): lambda dice: _in_flight(dice, 60.0),
    ("router that counts a part", None): lambda dice: _in_flight(dice, 90.0, is_part=True),
    ("past the router", None): _around_the_router,
    # Or another port: where the port is not listened on, nothing is seen.
    ("Unix socket", UNKNOWN): lambda dice: Play(_long(dice, 20.0), visible=False),
    # Requests with `background: true` run without a connection, or nothing is counted that rules it out.
    ("Responses API, perhaps in the background", UNKNOWN): lambda dice: Play(
        [one._replace(leaves=0.5) for one in _long(dice, 20.0)],
        responses=dice.choice((None, float(dice.randint(1, 99)))),
    ),
    # The process on the machine listens on another port than the watched server, without a bridge.
    ("another port", UNKNOWN): lambda dice: Play(_gone(_long(dice, 20.0)), url="http://10.0.0.2:8010"),
    # The watcher's own connection looks like a client's.
    ("watched through docker-proxy", UNKNOWN): lambda dice: Play(
        _long(dice, 20.0), own=end_marks("172.17.0.1", 51000), bridged=True
    ),
    ("watchers, of which nothing is told", UNKNOWN): _unreadable_watchers,
    ("router, connections unseen", UNKNOWN): _unseen_behind_a_router,
}
_ORPHANS: Mapping[tuple[str, str | None], Run] = {
    # Its engine is left below an init process.
    ("server killed", ORPHANED): lambda dice: trees([_init(dice), *_engine(dice, 9)]),
    # On this machine or as a worker without a port, below any init process.
    ("server lives", None): lambda dice: trees(
        [_init(dice), (10, _server(dice), 9, 0.0), *_engine(dice, 10)]
    ),
    ("other programs' engines", None): of_a_program,
    ("ends within 50 s", None): ending,
    ("holds little", None): small,
    # The reader sees a container's processes, and not the parent of its engine.
    ("parent unseen", UNKNOWN): lambda dice: trees(_engine(dice, dice.choice((0, 77)))),
}


def _played(chance: random.Random, make: Callable[[random.Random], Play]) -> list[Finding]:
    return played(make(chance), chance)


_TUNED = {
    "clients connected",
    "clients hang up",
    "hung up, two watchers",
    "server killed",
    "server lives",
    "short requests",
}
_RUNS = {key: partial(_played, make=make) for key, make in _NOBODY.items()}
FAMILIES = (*of_kind(FOR_NOBODY, _RUNS, _TUNED), *of_kind(ORPHANED, _ORPHANS, _TUNED))
