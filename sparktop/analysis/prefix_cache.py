"""Whether the prefix cache of a server spares it anything, and what is known of why not.

A prompt is found in the cache up to the last whole block that it shares with an earlier one. That nothing is
found is a fact; whether anything could have been is known only where prompts grow turn by turn, or where no
prompt can fill a block. Figures: vLLM's `KVCacheManager.get_computed_blocks` (hits are whole blocks) and
`HybridKVCacheCoordinator` (of a hybrid model all groups of layers must agree); threads on vLLM 40696, 45238,
48401, 51198, 53749.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from math import comb

from msgspec import Struct

from sparktop.model.engine import Histogram
from sparktop.model.event import Finding, Severity, Sure
from sparktop.model.explained import FINDINGS
from sparktop.model.snapshot import BackendView, PrefixUse, Situation

KIND = "prefix-unused"
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


class _Step(Struct, frozen=True):
    """What was counted between two looks, at the end of which prompts had come."""

    at: float
    prompts: float
    tokens: float
    asked: float
    cached: float
    kv_percent: float | None
    preempted: float


class PrefixCacheRule:
    """Finds that a server computes prompts again which its prefix cache should have kept."""

    def __init__(self) -> None:
        """Start without prompts."""
        self._last: BackendView | None = None
        self._steps: deque[_Step] = deque(maxlen=_MOST_STEPS)
        self._turns: tuple[int, int] | None = None
        self._turns_at = 0.0
        """What was recognised last, and when: it holds for the window, for other prompts come between."""
        self._swept = False
        """Whether a sweep of this program is among what the server has counted since its start."""
        self._due = 0.0
        self._found: tuple[Finding, ...] = ()

    def look(self, now: Situation, view: BackendView) -> tuple[Finding, ...]:
        """Return what holds now, if the server says whether its cache is on."""
        at, use = now.at, view.prefix
        if use is None:
            return ()
        last, self._last = self._last, view
        before = last.prefix if last is not None else None
        if before is not None and (use.prompt_tokens < before.prompt_tokens or use.cache != before.cache):
            self._steps.clear()  # the server restarted
            self._swept, self._due, self._turns, before = False, at, None, None
        self._swept = self._swept or view.in_sweep
        if view.in_sweep or (last is not None and last.in_sweep):
            return self._found
        if last is not None and before is not None and (came := _prompts_between(before, use)):
            self._steps.append(
                _Step(
                    at,
                    came,
                    use.prompt_tokens - before.prompt_tokens,
                    use.asked_tokens - before.asked_tokens,
                    use.cached_tokens - before.cached_tokens,
                    view.kv_fullest_percent,
                    (view.preemptions or 0.0) - (last.preemptions or 0.0),
                )
            )
        if at >= self._due:
            self._due = at + _EVERY_S
            while self._steps and self._steps[0].at < at - _WINDOW_S:
                self._steps.popleft()
            if (seen := turns(self._singles()[-_MOST_TURNS:])) is not None:
                self._turns, self._turns_at = seen, at
            elif self._turns_at < at - _WINDOW_S:
                self._turns = None
            self._found = tuple(self._findings(view, use))
        return self._found

    def _singles(self) -> list[float]:
        """Return the tokens of prompts that came alone between two polls."""
        return [step.tokens for step in self._steps if step.prompts == 1]

    def _findings(self, view: BackendView, use: PrefixUse) -> Iterator[Finding]:
        """Yield that the caches spare nothing, once enough prompts have come to say so."""
        if view.role == "decode" or not view.generation_tokens:  # an embedding server generates nothing
            return
        nothing_percent, little_percent = (
            (_STAYS if self._found else 1.0) * percent for percent in (NEVER_PERCENT, HARDLY_PERCENT)
        )
        steps = self._steps
        whole = (
            use.prompts is not None
            and not self._swept
            and 100 * use.cached_tokens < nothing_percent * use.asked_tokens
        )
        counted = [(step.prompts, step.tokens, step.asked, step.cached) for step in steps]
        if whole:
            counted = [(use.prompts or 0.0, use.prompt_tokens, use.asked_tokens, use.cached_tokens)]
        total = [sum(counts[column] for counts in counted) for column in range(4)]
        count, tokens, asked, cached = total
        if count < LEAST_PROMPTS or asked < LEAST_TOKENS or tokens < SHORT_TOKENS * count:
            return
        if 100 * cached >= little_percent * asked:
            return
        prompts = _Prompts(view, use, list(steps), total, self._singles(), self._turns)
        if not prompts.grow and (use.prompts is None or 100 * cached >= nothing_percent * asked):
            return
        yield prompts.finding(since="since its start" if whole else "while watched")
        looked = use.lmcache_tokens
        if whole and looked is not None and looked[0] >= LEAST_TOKENS and not looked[1]:
            yield prompts.lmcache_finding(looked[0])


def _prompts_between(before: PrefixUse, use: PrefixUse) -> float:
    """Return the prompts that came; of a server that does not count them, one wherever tokens came."""
    if before.prompts is None or use.prompts is None:
        return float(use.prompt_tokens > before.prompt_tokens)
    return use.prompts - before.prompts


class _Prompts:
    """Prompts of which nothing was found, and what can be said of the reason."""

    def __init__(
        self,
        view: BackendView,
        use: PrefixUse,
        steps: Sequence[_Step],
        total: Sequence[float],
        singles: Sequence[float],
        turns_seen: tuple[int, int] | None,
    ) -> None:
        """Judge `steps` of a server; `total` is (prompts, their tokens, tokens looked up, found).

        `singles` are the tokens of prompts that came alone, `turns_seen` what `turns` returned of them.
        """
        self._view, self._cache, self._steps = view, use.cache, steps
        self._count, tokens, self._asked, self._cached = total
        self._is_counted = use.prompts is not None
        self._mean = tokens / self._count
        self._singles, self._turns = singles, turns_seen
        block = use.cache.block_tokens
        # A draft head (MTP, EAGLE) needs the last block's hidden states: vLLM drops the last block found.
        blocks = 1 if view.spec_accepted_per_draft is None else 2
        self._needed = None if block is None else blocks * block
        self._short = self._shorter_percent(use.lengths, self._needed)

    def _shorter_percent(self, lengths: Histogram | None, needed: int | None) -> float | None:
        """Return the least share of the prompts that are shorter than what can be found; None if unknown."""
        singles = self._singles
        if needed is None:
            return None
        if len(singles) >= LEAST_PROMPTS:
            return 100.0 * sum(tokens < needed for tokens in singles) / len(singles)
        if lengths is None or not lengths.count:
            return None
        within = [at for bound, at in zip(lengths.bounds, lengths.cumulative, strict=True) if bound < needed]
        return 100.0 * (within[-1] if within else 0.0) / lengths.count

    def finding(self, since: str) -> Finding:
        """Return the finding on the prefix cache, with the explanation that the figures allow."""
        view, cache, block = self._view, self._cache, self._cache.block_tokens
        asked, cached = f"{self._asked:,.0f}", f"{self._cached:,.0f}"
        least = "" if self._is_counted else "at least "
        looked_up = ("looked up", f"{asked} tokens of {least}{self._count:,.0f} prompts {since}")
        line = f"prefix cache never hits: 0 of {asked} prompt tokens"
        if self._cached:
            line = f"prefix cache hardly hits: {cached} of {asked} prompt tokens"
        grows = self.grow
        sure, severity = Sure.LIKELY, Severity.WARNING if grows else None
        full, option = self._is_full, "--block-size 16"
        if cache.states:
            option = "--mamba-ssm-cache-dtype bfloat16, if it is float32"
        if not cache.on:
            line, case = f"prefix cache is off: {asked} prompt tokens computed", "it is off"
            compare = ", then compare answers: new for hybrid models" if cache.states is not None else ""
            option = f"--enable-prefix-caching{compare}"
            if view.engine == "sglang":
                option = "start it without --disable-radix-cache"
            sure, severity = Sure.KNOWN, Severity.INFO if grows else None
        elif block and view.max_model_len and block > view.max_model_len:
            line += f", a block has {block:,}"
            sure, case = Sure.KNOWN, "a block exceeds the context"
        elif self._short is not None and self._short >= _MOSTLY_PERCENT:
            line += f", a block has {block:,}"
            sure, case = Sure.KNOWN if self._needed == block else Sure.LIKELY, "prompts fill no block"
        elif grows and full:
            line, case = f"{line}: evicted", "evicted"
        elif grows:
            case = "turns that find nothing" if self._is_counted else "the same of llama.cpp"
        else:
            line = f"prefix cache: {cached} of {asked} prompt tokens found; whether they repeat is unknown"
            sure, case = Sure.UNKNOWN, "repetition unknown"
        replacements = {"BLOCK": f"{block or 0:,}", "LEAST": f"{self._needed or 0:,}", "OPTION": option}
        return Finding(
            KIND,
            view.name,
            line,
            fix=FINDINGS[KIND].advice(case, **replacements),
            sure=sure,
            severity=severity,
            evidence=(looked_up, *self._evidence(full)),
            values={
                "asked_tokens": self._asked,
                "found_tokens": self._cached,
                "found_limit_percent": HARDLY_PERCENT if grows else NEVER_PERCENT,
                "prompts": self._count,
                "prompt_tokens_mean": self._mean,
                "block_tokens": None if block is None else float(block),
                "window_s": _WINDOW_S,
            },
        )

    @property
    def grow(self) -> bool:
        """Whether prompts grow turn by turn."""
        return self._turns is not None

    def lmcache_finding(self, asked: float) -> Finding:
        """Return the finding that LMCache found nothing of the `asked` tokens."""
        return Finding(
            KIND,
            self._view.name,
            f"LMCache never hits: 0 of {asked:,.0f} prompt tokens",
            fix=FINDINGS[KIND].advice("LMCache"),
            sure=Sure.LIKELY if self._turns is not None else Sure.UNKNOWN,
            key="lmcache",
            values={"asked_tokens": asked, "found_tokens": 0.0},
        )

    def _evidence(self, full: str) -> Iterator[tuple[str, str]]:
        """Yield what is known of the prompts and the cache; `full` shows that prefixes are evicted."""
        block, states = self._cache.block_tokens, self._cache.states
        if block is not None:
            short = "" if not self._short else f", {self._short:.0f} % cannot fill it"
            twice = "; with a draft head two are needed" if self._needed != block else ""
            yield "block", f"{block:,} tokens; prompts have {self._mean:,.0f} on average{short}{twice}"
        if states is not None:
            yield "hybrid model", f"mamba cache mode {states}: hits only where a state was kept"
        if self._turns is not None:
            grown, of = self._turns
            yield "turns", f"{grown} of {of} prompts continue an earlier one (by their lengths, not texts)"
        else:
            yield "turns", "not seen: lengths of single prompts do not grow, or several come within a second"
        if full:
            yield "KV cache", full
        idle = self._view.counter_figures.get("kv_block_idle_s")
        if idle is not None:
            yield "evicted blocks", f"unused for {idle:,.0f} s before"

    @property
    def _is_full(self) -> str:
        """Return what shows that prefixes are evicted, in words; "" where nothing does."""
        peak = max((step.kv_percent for step in self._steps if step.kv_percent is not None), default=0.0)
        preempted = sum(max(0.0, step.preempted) for step in self._steps)
        if peak < _FULL_PERCENT and not preempted:
            return ""
        return f"up to {peak:.0f} % used, {preempted:,.0f} preemptions"


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
