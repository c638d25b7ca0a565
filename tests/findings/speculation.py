"""Cases for the finding on the length of drafts: steps of a server whose costs are known."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from sparktop.analysis.speculation import KIND, MARGIN, DraftLengthRule
from sparktop.model.event import Finding
from sparktop.model.snapshot import BackendView, EachServer, LaneView, Situation
from tests.findings.study import UNKNOWN, Run, of_kind

_NOW = datetime(2026, 9, 1, tzinfo=UTC)


class Draft(Struct, frozen=True):
    """A server whose step takes `base_ms`, and `each_ms` more for each draft token."""

    base_ms: float
    each_ms: float
    accepted: tuple[float, ...]
    """Share of drafts by position."""

    def tokens(self, length: int) -> float:
        """Return the tokens a step of one request."""
        return 1 + sum(self.accepted[:length])

    def rate(self, length: int) -> float:
        """Return tokens a second of one request."""
        return 1000 * self.tokens(length) / (self.base_ms + length * self.each_ms)

    def best_gain(self, shortest: int, length: int) -> float:
        """Return what the best length from `shortest` on gives more than `length`, as a share."""
        return max(self.rate(one) for one in range(shortest, length + 1)) / self.rate(length) - 1


class Phase(Struct, frozen=True):
    """A time in which the server drafts `length` tokens."""

    length: int
    seconds: int = 60
    running: float = 4.0
    restarts: int = 0
    prompt_share: float = 0.0


def moments(
    dice: random.Random, draft: Draft, phases: Sequence[Phase], *, noise: float = 0.02, luck: float = 0.0
) -> Iterator[list[Finding]]:
    """Yield the findings of each second; steps vary by `noise` and acceptance by `luck`, as shares."""
    rule, generated = EachServer(DraftLengthRule), 0.0
    for phase in phases:
        for second in range(phase.seconds):
            step_ms = (draft.base_ms + phase.length * draft.each_ms) * dice.gauss(1, noise)
            per_s = 1000 / step_ms
            shares = [min(1.0, one * dice.gauss(1, luck)) for one in draft.accepted[: phase.length]]
            rate = phase.running * (1 + sum(shares)) * per_s
            generated += rate
            view = BackendView(
                "b",
                "http://b",
                "g",
                model="m",
                age_s=0.0,
                lanes=(LaneView("0"),),
                running=phase.running,
                kv_cache_percent=5.0,
                generation_tps=rate,
                generation_tokens=generated,
                prompt_tps=phase.prompt_share * rate,
                steps_per_s=per_s,
                step_ms=step_ms,
                rate_window_s=10.0,
                spec_drafts_per_s=per_s * phase.running if phase.length else 0.0,
                spec_draft_length=float(phase.length) or None,
                spec_accepted_per_draft=sum(shares) if phase.length else None,
                spec_accept_by_position=tuple(100 * one for one in shares),
                restarts=phase.restarts,
            )
            yield list(rule.look(Situation(float(second), _NOW, {"b": view})))


def played(dice: random.Random, draft: Draft, phases: Sequence[Phase]) -> list[Finding]:
    """Return the findings at the end of the last phase."""
    *_, last = moments(dice, draft, phases)
    return last


def falling(first: float, ratio: float, length: int) -> tuple[float, ...]:
    """Return acceptance that falls by `ratio` from position to position."""
    return tuple(first * ratio**index for index in range(length))


def _drawn(dice: random.Random, shortest: int, *, better: bool) -> tuple[Draft, int]:
    """Return a server and its length; a shorter one is better by 1.6 margins, or by half of one at most."""
    while True:
        length = dice.randint(max(2, shortest + 1), 8)
        accepted = falling(dice.uniform(0.3, 0.9), dice.uniform(0.4, 0.95), length)
        draft = Draft(dice.uniform(20, 120), dice.uniform(0.2, 14.0), accepted)
        gain = draft.best_gain(shortest, length)
        if (gain > 1.6 * MARGIN) if better else (gain < 0.5 * MARGIN):
            return draft, length


def _seen(dice: random.Random, *, better: bool, shortest: int = 0, restarts: int = 0) -> list[Finding]:
    draft, length = _drawn(dice, shortest, better=better)
    return played(dice, draft, (Phase(shortest), Phase(length, restarts=restarts)))


def _unseen(dice: random.Random, *phases: Phase) -> list[Finding]:
    accepted = falling(0.8, dice.uniform(0.3, 0.55), 6)
    return played(dice, Draft(dice.uniform(20, 120), dice.uniform(0.2, 14), accepted), (*phases, Phase(6)))


def _useless(dice: random.Random) -> list[Finding]:
    return played(dice, Draft(50, 2, falling(dice.uniform(0.001, 0.008), 0.5, 4)), (Phase(4),))


_CASES: Mapping[tuple[str, str | None], Run] = {
    ("batches without drafts, shorter is better", KIND): partial(_seen, better=True),
    ("k changed by a restart", KIND): partial(_seen, better=True, shortest=1, restarts=1),
    ("k = 2 seen before", KIND): partial(_seen, better=True, shortest=2),
    ("drafts that are never accepted", KIND): _useless,
    ("drafts pay, batches without", None): partial(_seen, better=False),
    ("drafts pay, k = 1 seen before", None): partial(_seen, better=False, shortest=1, restarts=1),
    ("no other length seen", UNKNOWN): _unseen,
    ("another length in other batches", UNKNOWN): lambda dice: _unseen(dice, Phase(0, running=32.0)),
    ("another length for seconds", UNKNOWN): lambda dice: _unseen(dice, Phase(2, seconds=12)),
    ("another length while prompts came", UNKNOWN): lambda dice: _unseen(dice, Phase(1, prompt_share=3.0)),
}
FAMILIES = of_kind(KIND, _CASES, tuned={"batches without drafts, shorter is better"})
