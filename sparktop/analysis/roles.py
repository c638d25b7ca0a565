"""Recognises prefill and decode workers of a model: by what they report, else by what they count.

Each request visits a prefill worker and a decode worker, so the two kinds have no common share of the
load. A prefill worker processes prompts and generates at most the first token; a decode worker generates
the remaining tokens and computes no prompts. Both kinds must be present: a normal server that gets only
requests for a single token looks like a prefill worker too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

_FEWEST_REQUESTS = 8
_FIRST_TOKEN = 1.2
"""Upper limit of generated tokens per finished request of a prefill worker; above 1, because tokens of
requests that are still running count too."""
_DECODES = 4.0
"""Lower limit of generated tokens per finished request of a decode worker."""
_NO_PROMPTS = 0.02
"""Upper limit of prompt tokens per generated token of a decode worker that counts only the prompts that it
computed itself."""
_SAME_REQUESTS = 0.15
"""Relative difference of finished requests up to which prefill and decode workers count as having served the
same requests."""


_DYNAMO = "backend"


class Role(StrEnum):
    """The phase of each request that a worker computes."""

    PREFILL = "prefill"
    DECODE = "decode"


class Work(Struct, frozen=True):
    """Requests and tokens that a backend processed in some minutes; None for what it does not count."""

    finished: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None


def worker_roles(work: Mapping[str, Work]) -> dict[str, Role]:
    """Return the role of each backend of a group; empty unless each is clearly a prefill or a decode worker.

    Some engine versions count prompts at the decode worker too, although its KV cache comes from the
    prefill worker. Then prefill and decode workers must also have finished equally many requests, within
    15 %.
    """
    if any(_unknown(each) for each in work.values()):
        return {}
    prefills = {name for name, each in work.items() if _prefills(each)}
    decodes = {name for name, each in work.items() if name not in prefills and _decodes(each)}
    if not prefills or not decodes or len(prefills) + len(decodes) < len(work):
        return {}
    first, second = (sum(work[name].finished or 0.0 for name in names) for names in (prefills, decodes))
    only = all(_computes_none(work[name]) for name in decodes)
    if not only and abs(first - second) > _SAME_REQUESTS * max(first, second):
        return {}
    return {name: Role.PREFILL if name in prefills else Role.DECODE for name in work}


def reported_roles(reported: Mapping[str, str | None]) -> dict[str, Role]:
    """Return the roles of a group's backends from the words that they report; empty if none reports a role.

    A backend without a role of its own is left out. Dynamo calls a worker that decodes "backend", whether it
    also does the prefill or not: beside a prefill worker it does not.
    """
    words = {role.value: role for role in Role}
    roles = {name: words[word] for name, word in reported.items() if word in words}
    if Role.PREFILL in roles.values():
        roles |= dict.fromkeys((name for name, word in reported.items() if word == _DYNAMO), Role.DECODE)
    return roles


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
