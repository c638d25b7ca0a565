"""Check TTFT, ITL, TPOT, decode and pure decode on streams whose chunks do not have one token each.

The truth is the time at which each token was made, whether a chunk showed it or not. Each behaviour is
combined with four kinds of server: one that sends running totals (`continuous_usage_stats`), two that send
only the total at the end, with their first event together with the first token (as vLLM does, and LiteLLM
passes on) or as the request arrives, and one that sends the ids of the tokens that it shows. A figure must be
within 1 % or withheld with the mark `hidden_tokens`.

The bytes of such servers are fed to the generator's own parser in virtual time, which is exact even on a busy
machine; `generator.py` measures over sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter

from msgspec.structs import replace
from tables import Figure
from truth import decode_tps, itl_s, tpot_s, ttft_s
from truth_server import Answer, Delivery, FixedPace, Stream

from sparktop.model.load import Level, concurrency_point
from sparktop.sweep.generator.connection import Connection
from sparktop.sweep.generator.exchange import Exchange, ReadyRequest, RunLog, Terms
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.run.validity import LevelFacts, judge
from sparktop.sweep.run.worker_process import RunRecord
from sparktop.sweep.terms.definitions import HIDDEN_TOKENS

AREA = "tokens"
STREAMS, TOKENS = 12, 64
PACE = FixedPace(first_token_s=0.15, token_gap_s=0.02)
ROLE_S = 0.001
"""Seconds from a request's arrival to a role that is sent at once."""
STAGGER_S = 0.0017
"""Seconds between the arrivals of one burst."""
LIMIT_PERCENT, WIDE_LIMIT_PERCENT = 1.0, 2.0
BEHAVIOURS: Mapping[str, Delivery] = {
    "one token a chunk": Delivery(),
    "hidden thinking": Delivery(hidden_head=40),
    "first three tokens unsent": Delivery(hidden_head=3),
    "first three tokens empty": Delivery(empty_head=3),
    "invisible tail": Delivery(hidden_tail=24),
    "tool call": Delivery(calls_from=8),
    "3 tokens a chunk": Delivery(sizes=(3,)),
    "4 tokens a chunk": Delivery(sizes=(4,)),
    "8 tokens a chunk": Delivery(sizes=(8,)),
    "16 tokens a chunk": Delivery(sizes=(16,)),
    "speculative decoding, 1 to 5": Delivery(sizes=(3, 1, 5, 2, 4, 1, 2), together=True),
    "1 of 12 requests fails": Delivery(fail_every=12),
    "3 tokens a chunk, 1 of 12 fails": Delivery(sizes=(3,), fail_every=12),
}
SERVERS: Mapping[str, Callable[[Delivery], Delivery]] = {
    "running totals": lambda delivery: replace(delivery, totals=True),
    "total at the end": lambda delivery: delivery,
    "the same, role at once": lambda delivery: replace(delivery, role_at_once=True),
    "token ids": lambda delivery: replace(delivery, ids=True),
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A figure, with functions for its truth and for the value that a level shows."""

    name: str
    unit: str
    truth: Callable[[Sequence[Stream]], float]
    shown: Callable[[LevelResult], float | None]


def _ended(streams: Sequence[Stream]) -> list[Stream]:
    return [one for one in streams if len(one.stamps) == one.asked_tokens]


def _latency(name: str) -> Callable[[LevelResult], float | None]:
    return lambda level: None if (found := level.latency(name)) is None else found.mean


def _rate(name: str) -> Callable[[LevelResult], float | None]:
    return lambda level: None if (found := level.rate(name)) is None else found.mean


KINDS = (
    _Kind(
        "TTFT",
        "ms",
        lambda streams: 1e3 * fmean([ttft_s(one) for one in _ended(streams)]),
        _latency("ttft_ms"),
    ),
    _Kind("ITL", "ms", lambda streams: 1e3 * itl_s(_ended(streams)), _latency("itl_ms")),
    _Kind(
        "TPOT",
        "ms",
        lambda streams: 1e3 * fmean([tpot_s(one) for one in _ended(streams)]),
        _latency("tpot_ms"),
    ),
    _Kind("decode", "tok/s", decode_tps, _rate("decode_tps")),
    _Kind("pure decode", "tok/s", lambda _: STREAMS / PACE.token_gap_s, _rate("pure_decode_tps")),
)


class _VirtualConnection(Connection):
    """A connection without socket and clock, whose other end is simulated."""

    def __init__(self, at: float) -> None:
        self.reader = None
        self.open = True
        self.used, self.idle_since = False, perf_counter()
        self._at = at

    def send(self, request: bytes) -> float:
        """Return the time of the request's arrival."""
        del request
        return self._at

    def abort(self) -> None:
        """Close the connection."""
        self.reader, self.open = None, False


def play(delivery: Delivery) -> tuple[LevelResult, list[Stream]]:
    """Feed a burst of answers to the generator's parser; return (the level measured, the true streams)."""
    log = RunLog("run")
    # As in a calibration: find out what the server sends for a request of one token.
    single = Stream("single", 0.0, 1)
    tried = _play_one(delivery, single, RunLog("try"), Terms("truth"), None)
    terms = Terms("truth", first_event_is_token=tried.came_at_once)
    streams = [Stream(str(number), number * STAGGER_S, TOKENS) for number in range(STREAMS)]
    for number, stream in enumerate(streams):
        fails = delivery.fail_every is not None and number % delivery.fail_every == delivery.fail_every // 2
        _play_one(delivery, stream, log, terms, TOKENS // 3 if fails else None)
    record = RunRecord()
    for message in (log.flush(0.0), *log.token_times()):
        if message is not None:
            record.add(message)
    return _level(record), streams


def _play_one(
    delivery: Delivery, stream: Stream, log: RunLog, terms: Terms, breaks_after: int | None
) -> Exchange:
    """Feed the answer to one request to the parser; return the generator's exchange at the end."""
    request = ReadyRequest(stream.key, b"", None, stream.asked_tokens)
    exchange = Exchange(request, _VirtualConnection(stream.arrived_at), log, terms, lambda _: None)
    answer = Answer(delivery, stream.asked_tokens, 64, usage=True, totals=True)
    role_s = ROLE_S if delivery.role_at_once else PACE.first_token_s
    exchange.take(stream.arrived_at + role_s, answer.first_event())
    for number in range(stream.asked_tokens):
        at = stream.arrived_at + PACE.first_token_s + number * PACE.token_gap_s
        data, shown = answer.token(number)
        stream.stamps.append(at)
        if delivery.together:
            for one in shown:
                stream.stamps[one] = at
        if data:
            exchange.take(at, data)
        if number == breaks_after:
            exchange.lost(at, None)
            return exchange
    exchange.take(at, answer.ending())
    return exchange


def _level(record: RunRecord) -> LevelResult:
    level = Level("truth", concurrency_point(STREAMS), 64, TOKENS)
    made = level_result(level, record.traces())
    plan = Plan((), concurrency=(STREAMS,), pp=64, tg=TOKENS, runs=1)
    return made.model_copy(update={"validity": judge(plan, made, LevelFacts())})


def _figure(kind: _Kind, behaviour: str, levels: Mapping[str, tuple[LevelResult, list[Stream]]]) -> Figure:
    """Return the row of a figure under one behaviour, with its value for each kind of server."""
    wide = kind.name == "ITL" and "fails" in behaviour
    limit = WIDE_LIMIT_PERCENT if wide else LIMIT_PERCENT
    cells, errors, holds, truths = [], [], True, []
    for server, (level, streams) in levels.items():
        true, shown = kind.truth(streams), kind.shown(level)
        truths.append(true)
        marked = any(one.code == HIDDEN_TOKENS for one in level.validity)
        if shown is None:
            cells.append(f"{server} –{f' ({HIDDEN_TOKENS})' if marked else ''}")
            holds &= marked
            continue
        percent = 100 * (shown / true - 1)
        holds &= abs(percent) <= limit
        cells.append(f"{server} {shown:.4g}")
        errors.append(percent)
    worst = max(errors, key=abs, default=None)
    return Figure(
        AREA,
        f"{kind.name}, {behaviour}",
        f"{fmean(truths):.4g} {kind.unit}",
        " · ".join(cells),
        "–" if worst is None else f"{worst:+.1f} %",
        f"{limit:g} %, or null with {HIDDEN_TOKENS}",
        holds,
    )


def figures(*, short: bool) -> Iterator[Figure]:
    """Yield the rows of every figure under every behaviour."""
    del short  # it takes a second
    for behaviour, delivery in BEHAVIOURS.items():
        levels = {server: play(sends(delivery)) for server, sends in SERVERS.items()}
        for kind in KINDS:
            yield _figure(kind, behaviour, levels)
