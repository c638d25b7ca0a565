"""What a server should give: its decode rate beside its own best, published rates and the memory bandwidth.

A rate is compared while the batch stands; with published rates and the limit only while hardly any prompt is
computed, because prefill takes the time of decoding. Two batches are the same if their requests, tokens and
KV cache differ little; what a larger one may take longer is allowed for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from sparktop.analysis.balance.load_grid import interpolate
from sparktop.analysis.speed_state import SLOW_CLOCK, SLOW_STEPS, THROTTLED
from sparktop.model.event import Finding, FindingKind, Severity
from sparktop.model.explained import FINDINGS
from sparktop.model.load import are_like_lengths
from sparktop.model.node import ModelWeights
from sparktop.model.snapshot import BackendView, Situation
from sparktop.model.yardsticks import (
    BEST,
    ENGINE_VERSION,
    FLAGS,
    LIMIT,
    PUBLISHED,
    YARDSTICK_KEYS,
    YARDSTICK_WORDS,
    PastSetup,
    PublishedRates,
    SteadyLoad,
    Yardstick,
    YardstickBasis,
)

MOST_PROMPT = 0.5
"""Prompt tokens per generated token up to which a rate is one of decoding."""
_FINE = 4
"""Classes of batch sizes per doubling: step time grows with the batch, so sizes that differ by a fifth are
kept apart."""
_SAME = 1.2
"""Ratio of two numbers of requests, or of tokens, up to which they are one batch."""
_SAME_KV = 1.5
"""The same for the fill of their KV caches."""
_ABOVE_LIMIT = 1.05
"""Times the limit from which on the weights cannot be those that were read: the engine shrank them."""


def batch_key(running: float, batch: float, kv_percent: float | None) -> tuple[int, int, int]:
    """Return the class of batches that count as one: by requests, tokens of a step and fill of the KV cache.

    Attention reads the cache in each step, so that its order of magnitude counts; -1 where it is not known.
    """
    filled = -1 if kv_percent is None else math.floor(math.log2(max(1.0, kv_percent)))
    return _size_class(running), _size_class(batch), filled


def _size_class(value: float) -> int:
    return round(_FINE * math.log2(max(1.0, value)))


def is_same_batch(load: SteadyLoad, other: SteadyLoad) -> bool:
    """Return whether two loads have about as many requests, tokens and as full a KV cache."""
    if not _are_alike(load.running, other.running) or not _are_alike(load.batch, other.batch):
        return False
    if load.kv_percent is None or other.kv_percent is None:
        return load.kv_percent is None and other.kv_percent is None
    # Below 1 % of a cache its reading takes no time.
    return _are_alike(max(1.0, load.kv_percent), max(1.0, other.kv_percent), _SAME_KV)


def _are_alike(value: float, other: float, most_ratio: float = _SAME) -> bool:
    return max(value, other) <= most_ratio * min(value, other)


def allowed_growth(now: SteadyLoad, before: SteadyLoad) -> float:
    """Return the factor, at least 1, by which the steps of `now` may take longer for its larger batch.

    Steps grow at most as their batch does. Reading the KV cache is taken to be half of a step, so that a
    cache twice as full makes it half as long again.
    """
    kv_growth = max(1.0, max(1.0, now.kv_percent or 0.0) / max(1.0, before.kv_percent or 0.0))
    return max(1.0, now.running / before.running, now.batch / before.batch) * (1 + (kv_growth - 1) / 2)


def same_setups(basis: YardstickBasis) -> Iterator[PastSetup]:
    """Yield the setups of a server with the version and flags of now."""
    for setup in basis.setups:
        if all(setup.facts.get(name) == basis.facts.get(name) for name in (ENGINE_VERSION, FLAGS)):
            yield setup


def own_best(
    basis: YardstickBasis, running: float, batch: float | None = None, before: float = math.inf
) -> SteadyLoad | None:
    """Return the fastest load with as many requests of this server, model, version and flags.

    Its steps have about `batch` tokens; None: the fewest of all kept. Only rates that were reached before
    the Unix time `before` count.
    """
    bests = [best for setup in same_setups(basis) for best in setup.bests if best.tps and best.at < before]
    alike = [best for best in bests if _are_alike(best.running, running)]
    if batch is None:
        batch = min((best.batch for best in alike), default=0.0)

    # The nearest load by ratios; of those that are about as near the fastest.
    def rank(best: SteadyLoad) -> tuple[float, float]:
        distance = abs(math.log(best.running / running)) + abs(math.log(best.batch / (batch or 1.0)))
        return -round(distance, 1), best.tps or 0.0

    return max((best for best in alike if _are_alike(best.batch, batch)), key=rank, default=None)


def published_at(rates: PublishedRates, running: float) -> float | None:
    """Return the published rate at this many requests, between two levels in a straight line; None beyond."""
    if not rates.levels:
        return None
    counts, tps = zip(*sorted(rates.levels), strict=True)
    return interpolate(counts, tps, running) if counts[0] <= running <= counts[-1] else None


def busy_cores(cores: int, running: float) -> int:
    """Return how many engine cores compute while `running` requests run."""
    return max(1, min(cores, round(running)))


def usable_gb_per_s(bandwidth: float, machines: int, cores: int, running: float) -> float:
    """Return what the busy engine cores can read per second of the `bandwidth` of all machines.

    A core that spans several machines reads with all of them; several cores of one machine share its own.
    """
    return bandwidth * min(1.0, busy_cores(cores, running) * max(1, machines // cores) / machines)


def step_limit_tps(weights: ModelWeights, bandwidth_gb_per_s: float, generated: float) -> float:
    """Return the highest tokens/s: bandwidth / bytes of a step x tokens that a step generates.

    `bandwidth_gb_per_s` is what the busy engine cores can use, `generated` the tokens of a step of one of
    them, accepted drafts included: each core reads the weights, so that their number does not matter.
    Neither the KV cache nor activations are counted: the limit is never too low.
    """
    return bandwidth_gb_per_s / weights.token_gb * generated


def one_request_tps(
    weights: ModelWeights | None, machine_gb_per_s: float | None, machines: int, cores: int
) -> float | None:
    """Return the highest tokens/s of a request alone; None where weights or a machine's GB/s are unknown."""
    if weights is None or machine_gb_per_s is None:
        return None
    return step_limit_tps(weights, usable_gb_per_s(machine_gb_per_s * machines, machines, cores, 1.0), 1.0)


def yardsticks(
    basis: YardstickBasis,
    tps: float,
    running: float,
    batch: float | None = None,
    generated: float | None = None,
    *,
    before: float = math.inf,
    decodes: bool = True,
    lengths: tuple[int | None, int | None] = (None, None),
) -> tuple[Yardstick, ...]:
    """Return its own best, the published rate and the limit for a decode rate of `tps` tokens/s.

    `running` requests ran at once. Of a step of a busy engine core, `batch` is all tokens (None: the fewest
    that a kept best has), `generated` those that it generates (None: one for each request). Its best counts
    if it was reached before the Unix time `before`. The published rate and the limit count if it `decodes`:
    computes hardly any prompt. `lengths` are (prompt, output) tokens, as far as known; a published rate
    must have similar ones.
    """
    own_stick = _best_stick(basis, tps, running, batch, before)
    if not decodes:
        prefill = "not compared: prompts are computed for part of the time"
        return own_stick, Yardstick(PUBLISHED, prefill), Yardstick(LIMIT, prefill)
    return (
        own_stick,
        _published_stick(basis, tps, running, lengths),
        _limit_stick(basis, tps, running, generated),
    )


def _stick(name: str, source: str, tps: float, reference_tps: float) -> Yardstick:
    return Yardstick(name, source, reference_tps, 100 * tps / reference_tps)


def _best_stick(
    basis: YardstickBasis, tps: float, running: float, batch: float | None, before: float
) -> Yardstick:
    """Return the rate beside its own best; unknown where none is kept of such a batch."""
    best = own_best(basis, running, batch, before)
    if best is None or not best.tps:
        earlier = "" if before == math.inf else "earlier "
        basis_words = "this batch, version and flags" if basis.setups else "this server"
        return Yardstick(BEST, f"not known: no {earlier}rate of {basis_words} is kept")
    return _stick(BEST, f"{best.running:.0f} running, {day(best.at)}", tps, best.tps)


def _published_stick(
    basis: YardstickBasis, tps: float, running: float, lengths: tuple[int | None, int | None]
) -> Yardstick:
    """Return the best published rate for this many requests of such lengths; unknown where there is none."""
    fitting = [table for table in basis.published if table.servers == basis.servers]
    if not fitting:
        return Yardstick(PUBLISHED, "not known: no table has this model, engine and machine")
    rates = [(published_at(table, running), table) for table in fitting]
    at_once = [(rate, table) for rate, table in rates if rate is not None]
    if not at_once:
        return Yardstick(PUBLISHED, f"not known: no table reaches {running:.0f} running")
    candidates = [
        (rate, table)
        for rate, table in at_once
        if are_like_lengths(table.prompt_tokens, lengths[0])
        and are_like_lengths(table.output_tokens, lengths[1])
    ]
    rate, best = max(candidates or at_once, key=lambda pair: pair[0])
    published_lengths = best.prompt_tokens, best.output_tokens
    if not candidates:
        return Yardstick(PUBLISHED, f"other lengths: table {best.source}", None, None, *published_lengths)
    least = min(rate for rate, _ in candidates)
    load = "1 request" if round(running) == 1 else f"{running:.0f} requests at once"
    among = (
        "" if len(candidates) == 1 else f"; best of {len(candidates)} for {load}, {least:.1f} to {rate:.1f}"
    )
    between = "" if any(level == running for level, _ in best.levels) else ", between two levels"
    source = f"table {best.source}{between}{among}"
    return Yardstick(PUBLISHED, source, rate, 100 * tps / rate, *published_lengths)


def _limit_stick(basis: YardstickBasis, tps: float, running: float, generated: float | None) -> Yardstick:
    """Return the rate beside what the memory bandwidth allows; unknown where that cannot be told."""
    weights, bandwidth = basis.weights, basis.bandwidth_gb_per_s
    running_each = running / busy_cores(basis.cores, running)
    if basis.servers > 1:
        return Yardstick(LIMIT, "not known: it is computed for single servers, not behind a router")
    if bandwidth is None:
        return Yardstick(LIMIT, "not known: it is computed where all machines are watched and are a GB10")
    if weights is None:
        return Yardstick(LIMIT, "not known: set the bytes of a step ([models] bytes_per_token_gb)")
    if weights.mixture and round(running_each) > 1:
        return Yardstick(LIMIT, "not known: it depends on how many experts a batch reads")
    bandwidth = usable_gb_per_s(bandwidth, basis.machines, basis.cores, running)
    limit = step_limit_tps(weights, bandwidth, running_each if generated is None else generated)
    read = f"{weights.token_gb:.2f} GB a step by {weights.source}"
    if tps > _ABOVE_LIMIT * limit:
        return Yardstick(LIMIT, f"not known: it is faster than {read} would allow")
    return _stick(LIMIT, f"{bandwidth:.0f} GB/s, {read}", tps, limit)


def day(unix_s: float) -> str:
    """Return a time as a date, "2026-11-03" (UTC)."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d")


def words(sticks: Sequence[Yardstick]) -> str:
    """Return the yardsticks that are known: "62 % of its own best, 71 % of the best published rate"."""
    return ", ".join(
        f"{stick.percent:.0f} % of {YARDSTICK_WORDS[stick.name]}"
        for stick in sticks
        if stick.percent is not None
    )


# Rules: what a server gives beside the yardsticks, and why its steps are slower than they were once.


SLOWER = FindingKind.SLOWER_THAN_BEST
_SLOWER, _CLEARS = 1.07, 1.04
"""Step time / best of the same batch from which on a server is slower than its best, and down to which it
stays so: medians of ten looks differ by less between two starts."""
_HELD_S = 30.0
"""Seconds for which steps must be slower."""
_UNJUDGED_S = 300.0
"""Seconds for which a server that was slower stays so while its batch does not stand."""
_WARM_S = 120.0
"""Seconds of work after a start in which kernels are still compiled and caches filled."""
_EARLIER_S = 600.0
"""A best that is not older is that of now."""
_OLD_S = 60 * 86400.0
"""A best of a setup that has not served for so long is not held against a server."""
_HELD_UP = {THROTTLED, SLOW_CLOCK, SLOW_STEPS}
"""States of a machine that explain slow steps, and say so themselves."""


class Yardsticks:
    """Compares a server's decode rate with the yardsticks, and its steps with the best kept."""

    def __init__(self) -> None:
        """Start without any step."""
        self._slower_since: float | None = None
        self._judged_at = -math.inf
        self._slower: Finding | None = None
        """What was found at that time."""

    def look(self, now: Situation, view: BackendView) -> Iterator[Finding]:
        """Yield the yardsticks of the server while it decodes, and that it is slower than its best."""
        steady = view.yardstick_basis.steady
        if not view.ok:
            return
        if now.at - self._judged_at >= _UNJUDGED_S:
            self._slower_since = self._slower = None
        if steady is not None:
            if steady.tps:
                yield from _rate_findings(view, steady, steady.tps, now.wall.timestamp() - _EARLIER_S)
            self._judged_at, self._slower = now.at, self._judge_steps(now, view, steady)
        if self._slower is not None:
            yield self._slower

    def _judge_steps(self, now: Situation, view: BackendView, steady: SteadyLoad) -> Finding | None:
        """Return that steps are slower than the best kept; None if not, or if their machine says why."""
        machines = [now.nodes[name] for name in view.nodes if name in now.nodes]
        is_explained = view.in_sweep or any(node.speed.word in _HELD_UP for node in machines)
        is_judged = view.yardstick_basis.busy_s >= _WARM_S and not is_explained
        worst = _worst_comparison(now, view, steady) if is_judged else None
        if worst is None or worst.ratio < (_SLOWER if self._slower_since is None else _CLEARS):
            self._slower_since = None
            return None
        self._slower_since = now.at if self._slower_since is None else self._slower_since
        return _slower_finding(now, view, steady, worst) if now.at - self._slower_since >= _HELD_S else None


class _Comparison(Struct, frozen=True):
    """The steps of now beside the best of a setup for the same batch."""

    ratio: float
    """Step time / best, less what a larger batch may take longer."""
    best: SteadyLoad
    setup: PastSetup


def _worst_comparison(now: Situation, view: BackendView, steady: SteadyLoad) -> _Comparison | None:
    """Return the comparison with the highest ratio; None where no best of such a batch is kept."""
    return max(
        (
            _Comparison(steady.step_ms / best.step_ms / allowed_growth(steady, best), best, setup)
            for setup in view.yardstick_basis.setups
            if now.wall.timestamp() - setup.at < _OLD_S
            for best in setup.bests
            if is_same_batch(steady, best)
        ),
        key=lambda comparison: comparison.ratio,
        default=None,
    )


def _slower_finding(now: Situation, view: BackendView, steady: SteadyLoad, worst: _Comparison) -> Finding:
    """Return that steps are slower than a best, with what has changed since it was reached."""
    ratio, best, facts = worst.ratio, worst.best, view.yardstick_basis.facts
    changed = ", ".join(changes(worst.setup.facts, facts))
    same_facts = ", ".join(sorted(fact for fact, _ in worst.setup.facts.items() & facts.items()))
    nothing = "nothing known has changed"
    return Finding(
        SLOWER,
        view.name,
        f"steps {100 * (ratio - 1):.0f} % slower than its best: {changed or nothing}",
        fix=FINDINGS[SLOWER].advice("something has changed" if changed else nothing),
        severity=Severity.WARNING if ratio >= now.thresholds.slow_step_ratio else Severity.INFO,
        evidence=(
            ("now", _steps_text(steady)),
            ("best", f"{_steps_text(best)}, {day(best.at)}"),
            ("changed", changed or "nothing that is known"),
            ("the same", same_facts or "nothing that is known"),
            ("limits", f"{100 * (_SLOWER - 1):.0f} % for {_HELD_S:.0f} s, a larger batch allowed for"),
        ),
        values={
            "step_ms": steady.step_ms,
            "best_ms": best.step_ms,
            "ratio": ratio,
            "limit_ratio": _SLOWER,
            "clears_below_ratio": _CLEARS,
            "running": steady.running,
            "changed": changed,
        },
    )


def _rate_findings(view: BackendView, steady: SteadyLoad, tps: float, before: float) -> Iterator[Finding]:
    """Yield the decode rate beside its yardsticks; nothing where none of them is known."""
    basis, prompt, generation = view.yardstick_basis, view.prompt_tps, view.generation_tps
    drafts_per_s, accepted_per_draft = view.spec_drafts_per_s, view.spec_accepted_per_draft
    accepted_per_step = 0.0  # of one engine core
    if drafts_per_s and accepted_per_draft and view.steps_per_s:
        accepted_per_step = drafts_per_s * accepted_per_draft / view.steps_per_s
    sticks = yardsticks(
        basis,
        tps,
        steady.running,
        steady.batch,
        steady.running / busy_cores(basis.cores, steady.running) + accepted_per_step,
        before=before,
        decodes=prompt is not None and bool(generation) and prompt <= MOST_PROMPT * (generation or 0.0),
    )
    if not (line := words(sticks)):
        return
    rows = [(YARDSTICK_KEYS[stick.name].replace("_", " "), stick.words) for stick in sticks]
    values: dict[str, float | str | None] = {"generation_tps": tps, "running": steady.running}
    for stick in sticks:
        key = YARDSTICK_KEYS[stick.name]
        values |= {f"{key}_tps": stick.tps, f"{key}_percent": stick.percent}
    measured = f"{tps:.1f} tok/s at {steady.running:.0f} running"
    yield Finding(
        FindingKind.YARDSTICKS, view.name, line, evidence=(("gives", measured), *rows), values=values
    )


def changes(earlier: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield what differs between two setups, among the facts that are known of both."""
    for name in sorted(earlier.keys() & now.keys()):
        if earlier[name] == now[name]:
            continue
        if name != FLAGS:
            yield f"{name} {earlier[name]} → {now[name]}"
            continue
        before, after = _options_of(earlier[FLAGS]), _options_of(now[FLAGS])
        yield from (f"without -{option}" for option in sorted(before - after))
        yield from (f"with -{option}" for option in sorted(after - before))


def _options_of(flags: str) -> set[str]:
    """Return the options in the flags of a setup, each without its first dash: {"-max-num-seqs 64"}."""
    return set(f" {flags}".split(" -")[1:])


def _steps_text(load: SteadyLoad) -> str:
    return f"{load.step_ms:.1f} ms a step at {load.running:.0f} running, {load.batch:.0f} tokens a step"
