"""Whether the prefix cache of a server spares it anything, and what is known of why not.

A prompt is found in the cache up to the last whole block that it shares with an earlier one. That nothing is
found is a fact; whether anything could have been is known only where prompts grow turn by turn, or where no
prompt can fill a block. Figures: vLLM's `KVCacheManager.get_computed_blocks` (hits are whole blocks) and
`HybridKVCacheCoordinator` (of a hybrid model all groups of layers must agree); threads on vLLM 40696, 45238,
48401, 51198, 53749.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from math import comb
from operator import add, sub
from typing import NamedTuple

from msgspec import Struct

from sparktop.model.engine import Histogram, PrefixCache
from sparktop.model.event import Finding, FindingKind, Severity, Sure
from sparktop.model.explained import FINDINGS
from sparktop.model.snapshot import BackendView, PrefixUse, Situation

KIND = FindingKind.PREFIX_UNUSED
LEAST_PROMPTS, LEAST_TOKENS = 12, 20_000
"""Prompts and their tokens that a verdict needs."""
SHORT_TOKENS = 512
"""Prompts of fewer tokens on average are computed so fast that a cache hardly matters."""
NEVER_PERCENT, HARDLY_PERCENT = 1.0, 10.0
"""Less than the first share of the tokens found is nothing: the start that a chat template gives all prompts.
Of prompts that grow turn by turn, less than the second is too little: three quarters could be found."""
_STAYS = 1.5
"""Multiple of these up to which a finding stays: the share varies as prompts enter and leave the window."""
_WINDOW_S, _MOST_STEPS = 3600.0, 256
"""Seconds of prompts that are judged, and most steps of them."""
_EVERY_S = 10.0
"""Seconds between two judgements."""
_MOSTLY_PERCENT = 95.0
"""Share of the prompts from which on "prompts are shorter than a block" holds."""
_MOST_TURNS = 64
"""Newest prompts in whose lengths turns are sought."""
_LAGS, _LONGEST_TURN, _GROWS = 4, 0.35, 0.5
"""Conversations at once whose turns are recognised; most that a prompt grows by in a turn, as a share of it;
least share of the prompts that grow."""
_CHANCE = 1e-4
"""Chance that as many prompts grow, rather than shrink, if their lengths have no order."""
_FULL_PERCENT = 90.0
"""KV cache usage from which on a prefix is likely evicted before its next turn."""


class _PromptCounts(NamedTuple):
    prompts: float
    tokens: float
    asked: float
    """Tokens looked up in the cache."""
    cached: float
    """Tokens found in it."""


_NONE = _PromptCounts(0.0, 0.0, 0.0, 0.0)


class _Step(Struct, frozen=True):
    """What was counted between two looks, at the end of which prompts had come."""

    at: float
    counts: _PromptCounts
    kv_percent: float | None
    preempted: float


class PrefixCacheRule:
    """Finds that a server computes prompts again which its prefix cache should have kept."""

    def __init__(self) -> None:
        """Start without prompts."""
        self._counted: PrefixUse | None = None
        """Up to what the steps have counted: tokens are looked up before their prompt is counted."""
        self._preemptions = 0.0
        """Those of the same time."""
        self._began_at = 0.0
        self._steps: deque[_Step] = deque(maxlen=_MOST_STEPS)
        self._turns: tuple[int, int] | None = None
        self._turns_at = 0.0
        """What was recognised last, and when: it holds for the window, for other prompts come between."""
        self._in_sweep = False
        self._of_sweeps = _NONE
        """What came in sweeps of this program: it tells nothing of what other clients send."""
        self._due = 0.0
        self._found: tuple[Finding, ...] = ()

    def look(self, now: Situation, view: BackendView) -> tuple[Finding, ...]:
        """Return what holds now, if the server says whether its cache is on."""
        at, use = now.at, view.prefix
        if use is None:
            return ()
        if self._count(at, view, use) and at >= self._due:
            self._due = at + _EVERY_S
            while self._steps and self._steps[0].at < at - _WINDOW_S:
                self._steps.popleft()
            if (turns_seen := turns(self._singles()[-_MOST_TURNS:])) is not None:
                self._turns, self._turns_at = turns_seen, at
            elif self._turns_at < at - _WINDOW_S:
                self._turns = None
            self._found = tuple(self._findings(at, view, use))
        return self._found

    def _count(self, at: float, view: BackendView, use: PrefixUse) -> bool:
        """Count what came since the last prompt; return False while a sweep of this program runs."""
        before, was_in_sweep, self._in_sweep = self._counted, self._in_sweep, view.in_sweep
        if before is None or use.prompt_tokens < before.prompt_tokens or use.cache != before.cache:
            self._steps.clear()  # the server restarted
            self._of_sweeps, self._turns, self._due, self._began_at = _NONE, None, at, at
            self._counted, self._preemptions, before = use, view.preemptions or 0.0, use
        counts, is_swept = _counts_between(before, use), view.in_sweep or was_in_sweep
        if is_swept:
            self._of_sweeps = _sum_counts((self._of_sweeps, counts))
        elif counts.prompts:
            preempted = max(0.0, (view.preemptions or 0.0) - self._preemptions)
            self._steps.append(_Step(at, counts, view.kv_fullest_percent, preempted))
        if is_swept or counts.prompts:
            self._counted, self._preemptions = use, view.preemptions or 0.0
        return not is_swept

    def _singles(self) -> list[float]:
        """Return the tokens of prompts that came alone between two polls."""
        return [step.counts.tokens for step in self._steps if step.counts.prompts == 1]

    def _findings(self, at: float, view: BackendView, use: PrefixUse) -> Iterator[Finding]:
        """Yield that the caches spare nothing, once enough prompts have come to say so."""
        if view.role == "decode" or not view.generation_tokens:  # an embedding server generates nothing
            return
        stays = _STAYS if self._found else 1.0
        nothing_percent, little_percent = stays * NEVER_PERCENT, stays * HARDLY_PERCENT
        total = _PromptCounts(*map(sub, _counts(use), self._of_sweeps))
        window_s = None  # since its start
        if use.prompts is None or 100 * total.cached >= nothing_percent * total.asked:
            total = _sum_counts(step.counts for step in self._steps)
            window_s = min(_WINDOW_S, at - self._began_at)
        count, tokens, asked_tokens, cached = total
        if count < LEAST_PROMPTS or asked_tokens < LEAST_TOKENS or tokens < SHORT_TOKENS * count:
            return
        if 100 * cached >= little_percent * asked_tokens:
            return
        if self._turns is None and (use.prompts is None or 100 * cached >= nothing_percent * asked_tokens):
            return
        yield self._finding(view, use, total, window_s)
        if window_s is None and use.lmcache_tokens is not None:
            looked_up, found_tokens = use.lmcache_tokens
            if looked_up >= LEAST_TOKENS and not found_tokens:
                yield Finding(
                    KIND,
                    view.name,
                    f"LMCache never hits: 0 of {looked_up:,.0f} prompt tokens",
                    fix=FINDINGS[KIND].advice("LMCache"),
                    sure=Sure.UNKNOWN if self._turns is None else Sure.LIKELY,
                    key="lmcache",
                    values={"asked_tokens": looked_up, "found_tokens": 0.0},
                )

    def _finding(
        self, view: BackendView, use: PrefixUse, total: _PromptCounts, window_s: float | None
    ) -> Finding:
        """Return the finding on the prefix cache, with the explanation that the figures allow.

        `total` is of the last `window_s` seconds; None: since the server's start.
        """
        cache, block = use.cache, use.cache.block_tokens
        grows, evicted = self._turns is not None, self._evicted()
        count, tokens, asked_tokens, cached = total
        since = "since its start" if window_s is None else f"in the last {window_s:,.0f} s"
        since += ", sweeps left out" if self._of_sweeps.prompts else ""
        # A draft head (MTP, EAGLE) needs the last block's hidden states: vLLM drops the last block found.
        needed = block and (1 if view.spec_accepted_per_draft is None else 2) * block
        short_percent = self._shorter_percent(use.lengths, needed) or 0.0
        found_words = f"{cached:,.0f} of {asked_tokens:,.0f} prompt tokens"
        hits = f"prefix cache {'hardly' if cached else 'never'} hits: {found_words}"
        if not cache.on:
            case, sure = "it is off", Sure.KNOWN
            line = f"prefix cache is off: {asked_tokens:,.0f} prompt tokens computed"
        elif block and view.max_model_len and block > view.max_model_len:
            case, sure, line = "a block exceeds the context", Sure.KNOWN, f"{hits}, a block has {block:,}"
        elif block and short_percent >= _MOSTLY_PERCENT:
            case, sure = "prompts fill no block", Sure.KNOWN if needed == block else Sure.LIKELY
            line = f"{hits}, a block has {block:,}"
        elif not grows:
            case, sure = "repetition unknown", Sure.UNKNOWN
            line = f"prefix cache: {found_words} found; whether they repeat is unknown"
        elif evicted:
            case, sure, line = "evicted", Sure.LIKELY, f"{hits}: evicted"
        elif use.prompts is not None:
            case, sure, line = "turns that find nothing", Sure.LIKELY, hits
        else:
            case, sure, line = "the same of llama.cpp", Sure.LIKELY, hits
        values = {"BLOCK": f"{block or 0:,}", "LEAST": f"{needed or 0:,}", "OPTION": _option(view, cache)}
        severity = Severity.WARNING if cache.on else Severity.INFO
        return Finding(
            KIND,
            view.name,
            line,
            fix=FINDINGS[KIND].advice(case, **values),
            sure=sure,
            severity=severity if grows else None,
            evidence=tuple(self._evidence(view, use, total, since, needed)),
            values={
                "asked_tokens": asked_tokens,
                "found_tokens": cached,
                "found_limit_percent": HARDLY_PERCENT if grows else NEVER_PERCENT,
                "prompts": count,
                "prompt_tokens_mean": tokens / count,
                "block_tokens": None if block is None else float(block),
                "window_s": window_s,
            },
        )

    def _evidence(
        self, view: BackendView, use: PrefixUse, total: _PromptCounts, since: str, needed: int | None
    ) -> Iterator[tuple[str, str]]:
        """Yield (name, text) of what the finding rests on; `needed`: the fewest tokens that can be found."""
        cache, block = use.cache, use.cache.block_tokens
        least = "at least " if use.prompts is None else ""
        yield "looked up", f"{total.asked:,.0f} tokens of {least}{total.prompts:,.0f} prompts {since}"
        if block is not None:
            short_percent = self._shorter_percent(use.lengths, needed)
            cannot = f", {short_percent:.0f} % cannot fill it" if short_percent else ""
            twice = "; with a draft head two are needed" if needed != block else ""
            mean = f"prompts have {total.tokens / total.prompts:,.0f} on average"
            yield "block", f"{block:,} tokens; {mean}{cannot}{twice}"
        if cache.states is not None:
            yield "hybrid model", f"mamba cache mode {cache.states}: hits only where a state was kept"
        if self._turns is None:
            yield "turns", "not seen: lengths of single prompts do not grow, or several come within a second"
        else:
            grown, compared = self._turns
            yield (
                "turns",
                f"{grown} of {compared} prompts continue an earlier one (by their lengths, not texts)",
            )
        if evicted := self._evicted():
            yield "KV cache", evicted
        if (idle_s := view.counter_figures.get("kv_block_idle_s")) is not None:
            yield "evicted blocks", f"unused for {idle_s:,.0f} s before"

    def _shorter_percent(self, lengths: Histogram | None, needed: int | None) -> float | None:
        """Return the least share of the prompts that are shorter than what can be found; None if unknown."""
        singles = self._singles()
        if needed is None:
            return None
        if len(singles) >= LEAST_PROMPTS:
            return 100.0 * sum(tokens < needed for tokens in singles) / len(singles)
        if lengths is None or not lengths.count:
            return None
        within = [at for bound, at in zip(lengths.bounds, lengths.cumulative, strict=True) if bound < needed]
        return 100.0 * (within[-1] if within else 0.0) / lengths.count

    def _evicted(self) -> str:
        """Return what shows that prefixes are evicted, in words; "" where nothing does."""
        peak = max((step.kv_percent for step in self._steps if step.kv_percent is not None), default=0.0)
        preempted = sum(step.preempted for step in self._steps)
        if peak < _FULL_PERCENT and not preempted:
            return ""
        return f"up to {peak:.0f} % used, {preempted:,.0f} preemptions"


def _counts(use: PrefixUse) -> _PromptCounts:
    return _PromptCounts(use.prompts or 0.0, use.prompt_tokens, use.asked_tokens, use.cached_tokens)


def _sum_counts(counts: Iterable[_PromptCounts]) -> _PromptCounts:
    total = _NONE
    for each in counts:
        total = _PromptCounts(*map(add, total, each))
    return total


def _counts_between(before: PrefixUse, use: PrefixUse) -> _PromptCounts:
    """Return what came; where prompts are not counted, or not yet, one wherever tokens came."""
    grown = _PromptCounts(*map(sub, _counts(use), _counts(before)))
    if before.prompts is None or use.prompts is None:
        return grown._replace(prompts=float(grown.tokens > 0))
    return grown


def _option(view: BackendView, cache: PrefixCache) -> str:
    """Return the option that would change what a cache finds."""
    if not cache.on and view.engine == "sglang":
        return "start it without --disable-radix-cache"
    if not cache.on:
        compare = ", then compare answers: new for hybrid models" if cache.states is not None else ""
        return f"--enable-prefix-caching{compare}"
    return "--mamba-ssm-cache-dtype bfloat16, if it is float32" if cache.states else "--block-size 16"


def turns(lengths: Sequence[float]) -> tuple[int, int] | None:
    """Return (prompts that continue an earlier one, prompts compared); None where none are recognised.

    Of conversations whose turns alternate, a prompt is a little longer than the one `lag` before it. If the
    lengths had no order, as many would be a little shorter: a sign test tells these cases apart.
    """
    for lag in range(1, _LAGS + 1):
        pairs = [(lengths[index - lag], lengths[index]) for index in range(lag, len(lengths))]
        grown = sum(before < after <= (1 + _LONGEST_TURN) * before for before, after in pairs)
        shrunk = sum(after < before <= (1 + _LONGEST_TURN) * after for before, after in pairs)
        moved = grown + shrunk
        chance = sum(comb(moved, more) for more in range(grown, moved + 1)) / 2**moved
        if chance <= _CHANCE and grown >= _GROWS * len(pairs):
            return grown, len(pairs)
    return None
