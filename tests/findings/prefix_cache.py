"""Cases for the finding on prefix caches: clients, and a cache of blocks, in virtual time."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.prefix_cache import KIND, PrefixCacheRule
from sparktop.model.engine import Histogram, PrefixCache
from sparktop.model.event import Finding
from sparktop.model.snapshot import BackendView, EachServer, PrefixUse, Situation
from tests.findings.study import UNKNOWN, Run, of_kind

_EPOCH = datetime(2026, 9, 1, tzinfo=UTC)
_BOUNDS = (*(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5)), float("inf"))
Prompt = tuple[float, tuple[int, ...]]
"""When a prompt comes, and the names of its pieces of 128 tokens: equal ones have equal tokens."""
PIECE, SECONDS = 128, 1000


class Server(Struct, frozen=True):
    """A server's cache and how sparktop sees it."""

    cache: PrefixCache = PrefixCache(on=True, block_tokens=16)
    capacity_tokens: int = 2_000_000
    view: BackendView = BackendView("b", "http://b", "g", engine="vllm", generation_tokens=9e5)
    lmcache: bool = False
    has_lengths: bool = True
    found_blocks: bool = True
    """Whether the engine finds what it keeps."""
    counts_prompts: bool = True
    """Whether the page counts prompts; llama.cpp's does not, and has six digits of each count."""
    sweep: tuple[float, float] = (0.0, 0.0)


class Cache:
    """Blocks by the whole beginning that they end, the longest unused evicted first."""

    def __init__(self, server: Server) -> None:
        self._step = -(-(server.cache.block_tokens or 16) // PIECE)
        self._most = server.capacity_tokens // (self._step * PIECE)
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._on = server.cache.on is not False and server.found_blocks

    def found(self, pieces: tuple[int, ...]) -> int:
        """Return the tokens found of a prompt, and keep its blocks."""
        if not self._on:
            return 0
        step, name, names = self._step, 0, []
        for index, piece in enumerate(pieces[:-1], 1):
            name = hash((name, piece))
            if index % step == 0:
                names.append(name)
        hits = next((index for index, name in enumerate(names) if name not in self._kept), len(names))
        for name in names:
            self._kept[name] = None
            self._kept.move_to_end(name)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return hits * step * PIECE


def played(server: Server, prompts: Sequence[Prompt], seconds: int, first: int = 0) -> list[Finding]:
    """Return all findings of a run; sparktop watches from second `first` on."""
    rule, cache = EachServer(PrefixCacheRule), Cache(server)
    found: list[Finding] = []
    coming = iter(sorted(prompts))
    due = next(coming, None)
    count = tokens = cached = 0.0
    lengths = [0.0] * len(_BOUNDS)
    moments = {*(int(at) + 1 for at, _ in prompts), first, *map(int, server.sweep), seconds}
    for second in sorted(moments):
        while due is not None and due[0] <= second:
            size = PIECE * len(due[1])
            count, tokens, cached = count + 1, tokens + size, cached + cache.found(due[1])
            lengths = [one + (size <= bound) for one, bound in zip(lengths, _BOUNDS, strict=True)]
            due = next(coming, None)
        shown = [one if server.counts_prompts else float(f"{one:.6g}") for one in (tokens, cached)]
        use = PrefixUse(
            server.cache,
            count if server.counts_prompts else None,
            shown[0],
            shown[0],
            shown[1],
            Histogram(_BOUNDS, tuple(lengths), tokens) if server.has_lengths else None,
            (tokens, 0.0) if server.lmcache else None,
        )
        swept = server.sweep[0] <= second < server.sweep[1]
        view = replace(server.view, prefix=use, in_sweep=swept)
        if second >= first:
            now = Situation(float(second), _EPOCH + timedelta(seconds=second), {"b": view})
            found += [one for one in rule.look(now) if one not in found[-2:]]
    return found


def conversations(
    dice: random.Random,
    *,
    many: int = 1,
    start: tuple[int, int] = (1500, 9000),
    turn: tuple[int, int] = (150, SECONDS),
    longest: int = 40_000,
    pause_s: tuple[float, float] = (4.0, 40.0),
    seconds: int = SECONDS,
    fresh: bool = False,
) -> Iterator[Prompt]:
    """Yield the prompts of agents or chats; with `fresh` each prompt begins with tokens of its own."""
    for _ in range(many):
        at = dice.uniform(0, pause_s[1])
        pieces: tuple[int, ...] = ()
        shared = dice.getrandbits(40)
        while at < seconds:
            if not pieces or len(pieces) * PIECE > longest or dice.random() < 0.04:
                pieces = (shared, *_pieces(dice, dice.randint(*start)))
            yield at, ((dice.getrandbits(60), *pieces[1:]) if fresh else pieces)
            pieces = (*pieces, *_pieces(dice, dice.randint(*turn)))
            at += dice.uniform(*pause_s)


def unique(
    dice: random.Random, sizes: tuple[int, int], every_s: float, *, seconds: int = SECONDS
) -> Iterator[Prompt]:
    """Yield prompts that share nothing."""
    at = 0.0
    while at < seconds:
        at += dice.expovariate(1 / every_s)
        yield at, _pieces(dice, dice.randint(*sizes))


def _pieces(dice: random.Random, tokens: int) -> tuple[int, ...]:
    return tuple(dice.getrandbits(60) for _ in range(max(1, tokens // PIECE)))


def _watched(server: Server, make: Callable[[random.Random], Iterator[Prompt]] = conversations) -> Run:
    return lambda dice: played(server, list(make(dice)), SECONDS)


def _unique(server: Server, least: int, most: int, every_s: float = 5.0, seconds: int = SECONDS) -> Run:
    return lambda dice: played(server, list(unique(dice, (least, most), every_s, seconds=seconds)), seconds)


def _hybrid(dice: random.Random) -> Server:
    block = dice.choice((528, 784, 1600, 2096, 3584))
    return replace(HYBRID, cache=PrefixCache(on=True, block_tokens=block, states="align"))


def _below_a_block(dice: random.Random) -> list[Finding]:
    """Return the findings where no prompt fills a block of 3,584 tokens, alike or not."""
    server = replace(HYBRID, cache=PrefixCache(on=True, block_tokens=3584, states="align"))
    if dice.random() < 0.5:
        return played(server, list(unique(dice, (600, 3000), 9.0)), SECONDS)
    turns = conversations(dice, start=(600, 1200), turn=(64, 300), longest=3000, many=dice.randint(1, 6))
    return played(server, list(turns), SECONDS)


def _impossible(dice: random.Random) -> list[Finding]:
    view = replace(HYBRID.view, max_model_len=4096)
    server = replace(
        HYBRID, cache=PrefixCache(on=True, block_tokens=8320, states="align"), view=view, has_lengths=False
    )
    return played(server, list(unique(dice, (700, 4000), 8.0)), SECONDS)


def _off(dice: random.Random, engine: str = "vllm") -> list[Finding]:
    server = Server(PrefixCache(on=False, block_tokens=16), view=replace(VIEW, engine=engine))
    return played(server, list(conversations(dice, many=dice.randint(1, 5))), SECONDS)


def _evicted(dice: random.Random) -> list[Finding]:
    view = replace(VIEW, kv_fullest_percent=dice.uniform(91, 99))
    server = Server(capacity_tokens=20_000, view=view)
    turns = conversations(dice, many=2, start=(11_500, 14_000), longest=18_000, pause_s=(15.0, 15.2))
    return played(server, list(turns), SECONDS)


def _few(dice: random.Random) -> list[Finding]:
    return played(Server(), list(conversations(dice, fresh=True, pause_s=(100, 200), seconds=900)), 900)


def _seen_late(dice: random.Random) -> list[Finding]:
    """Return what is found by a viewer that comes after all traffic."""
    server = Server(PrefixCache(on=False, block_tokens=16))
    return played(server, list(conversations(dice, seconds=600)), 700, first=690)


def _swept(dice: random.Random) -> list[Finding]:
    """Return the findings of a sweep with unique prompts, of this program, beside a person's few turns."""
    server = Server(sweep=(30.0, 900.0))
    own = unique(dice, (2000, 9000), 2.0, seconds=890)
    return played(server, [(at, one) for at, one in own if at > 31], SECONDS)


def _chat_template(dice: random.Random) -> list[Finding]:
    """Return the findings of long unlike documents behind one system prompt of 200 to 700 tokens."""
    shared = _pieces(dice, dice.randint(200, 700))
    texts = unique(dice, (1000, 6000), 5.0)
    return played(Server(), [(at, (*shared, *one)) for at, one in texts], SECONDS)


VIEW = Server().view
HYBRID = Server(PrefixCache(on=True, block_tokens=2096, states="align"))
_EMBEDDING = Server(view=replace(VIEW, generation_tokens=0.0))
_DECODE = Server(view=replace(VIEW, role="decode"))
_LLAMACPP = Server(
    PrefixCache(on=True),
    view=replace(VIEW, engine="llamacpp"),
    has_lengths=False,
    counts_prompts=False,
)
_CASES: Mapping[tuple[str, str | None], Run] = {
    ("one agent, first tokens change", KIND): _watched(Server(), partial(conversations, fresh=True)),
    ("one agent of a hybrid model, first tokens change", KIND): _watched(
        HYBRID, partial(conversations, fresh=True)
    ),
    ("two agents, first tokens change", KIND): _watched(Server(), partial(conversations, fresh=True, many=2)),
    ("prompts below a block", KIND): _below_a_block,
    ("blocks larger than the context", KIND): _impossible,
    ("conversations evict each other", KIND): _evicted,
    ("off, vLLM", KIND): _off,
    ("off, SGLang", KIND): partial(_off, engine="sglang"),
    ("off, seen when all is over", KIND): _seen_late,
    ("engine finds nothing that it keeps", KIND): _watched(Server(found_blocks=False)),
    ("LMCache finds nothing either", KIND): _watched(
        Server(lmcache=True), partial(conversations, fresh=True)
    ),
    ("llama.cpp, prompts not counted, first tokens change", KIND): _watched(
        _LLAMACPP, partial(conversations, fresh=True)
    ),
    ("llama.cpp, one agent, all well", None): _watched(_LLAMACPP),
    ("llama.cpp, long prompts that share nothing", None): _unique(_LLAMACPP, 1000, 9000),
    ("one agent, all well", None): _watched(Server()),
    ("five agents, all well", None): _watched(Server(), partial(conversations, many=5)),
    ("agents of hybrid models, all well", None): lambda dice: played(
        _hybrid(dice), list(conversations(dice, start=(5000, 9000), many=dice.randint(1, 4))), SECONDS
    ),
    ("short prompts that share nothing", None): _unique(Server(), 64, 400, 2.0),
    ("short prompts, hybrid", None): lambda dice: _unique(_hybrid(dice), 64, 700, 2.0)(dice),
    ("documents behind a system prompt", None): _chat_template,
    ("few requests", None): _few,
    ("embeddings", None): _unique(_EMBEDDING, 600, 8000),
    ("decode servers", None): _unique(_DECODE, 600, 8000),
    ("a sweep of this program", None): _swept,
    ("benchmark, one length", UNKNOWN): lambda dice: _unique(
        Server(), size := dice.randint(1024, 8192), size, dice.uniform(0.5, 9.0)
    )(dice),
    ("benchmark, random lengths", UNKNOWN): lambda dice: _unique(
        Server(), 1000, dice.randint(1500, 9000), dice.uniform(0.5, 12.0)
    )(dice),
    ("long prompts of many clients that share nothing", UNKNOWN): _unique(HYBRID, 2500, 20_000, 4.0),
    ("twelve agents, first tokens change", UNKNOWN): _watched(
        Server(), partial(conversations, fresh=True, many=12, longest=16_000, seconds=700)
    ),
}
_TUNED = {"one agent, first tokens change", "benchmark, random lengths", "one agent, all well"}
FAMILIES = of_kind(KIND, _CASES, _TUNED)
