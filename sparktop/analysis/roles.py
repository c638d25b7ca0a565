"""Prefill and decode workers of one model: each request visits one of both, so they have no common share.

A prefill worker takes in prompts and generates the first token at most; a decode worker generates the rest
and computes no prompts. Both kinds must be there: alone, requests of one token only look like prefills.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_FEWEST_REQUESTS = 8
_FIRST_TOKEN = 1.2
"""Generated tokens per finished request of a prefill worker, at most; some requests are under way."""
_DECODES = 4.0
"""Generated tokens per finished request of a decode worker, at least."""
_NO_PROMPTS = 0.02
"""Prompt tokens over generated ones of a decode worker that counts its own prompts only."""
_SAME_REQUESTS = 0.15
"""Relative difference up to which both kinds have served the same requests."""


class Role(StrEnum):
    """What a worker does of each request."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Work:
    """What a backend has done over some minutes; None where it does not count that."""

    finished: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None


def worker_roles(work: Mapping[str, Work]) -> dict[str, Role]:
    """Return the role of each backend of a group; empty where they are not all prefill or decode workers.

    Some versions count prompts at the decode worker too, whose KV cache came from elsewhere: then both kinds
    have finished as many requests.
    """
    if any(_unknown(one) for one in work.values()):
        return {}
    prefills = {name for name, one in work.items() if _prefills(one)}
    decodes = {name for name, one in work.items() if name not in prefills and _decodes(one)}
    if not prefills or not decodes or len(prefills) + len(decodes) < len(work):
        return {}
    first, second = (sum(work[name].finished or 0.0 for name in names) for names in (prefills, decodes))
    only = all(_computes_none(work[name]) for name in decodes)
    if not only and abs(first - second) > _SAME_REQUESTS * max(first, second):
        return {}
    return {name: Role.PREFILL if name in prefills else Role.DECODE for name in work}


def _unknown(work: Work) -> bool:
    enough = work.finished is not None and work.finished >= _FEWEST_REQUESTS
    return not enough or work.prompt_tokens is None or work.generated_tokens is None


def _prefills(work: Work) -> bool:
    finished, prompts, generated = (
        work.finished or 0.0,
        work.prompt_tokens or 0.0,
        work.generated_tokens or 0.0,
    )
    return prompts > 0 and generated <= _FIRST_TOKEN * finished + 1


def _decodes(work: Work) -> bool:
    return (work.generated_tokens or 0.0) >= _DECODES * (work.finished or 0.0)


def _computes_none(work: Work) -> bool:
    return (work.prompt_tokens or 0.0) <= _NO_PROMPTS * (work.generated_tokens or 0.0)
