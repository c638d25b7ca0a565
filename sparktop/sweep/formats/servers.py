"""Writes what the targets of a sweep are: machines, software, and its limits: slots, context, router."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sparktop.engines.registry import ENGINES
from sparktop.model.router import LITELLM
from sparktop.model.text import names_in_words
from sparktop.report.document.prose import plain
from sparktop.report.markdown import code
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import SweepResult, TargetResult

_ROUTERS = {LITELLM: "LiteLLM", "dynamo": "Dynamo"}


def server_facts(result: SweepResult) -> Iterator[str]:
    """Yield one line of Markdown for all targets with the same facts; targets without any are left out.

    Such as "`spark-a`: vLLM 0.32.0, 48 slots, context 131,072; behind LiteLLM 1.106, least-busy".
    """
    names: dict[str, list[str]] = {}
    for target in result.targets:
        if (words := server_words(target)) is not None:
            names.setdefault(words, []).append(code(target.name))
    for words, alike in names.items():
        yield f"{names_in_words(alike)}: {plain(words)}"


def machine_facts(result: SweepResult) -> Iterator[str]:
    """Yield one line of Markdown with all machines that computed; nothing if none is known.

    Such as "4 × NVIDIA DGX Spark, NVIDIA GB10, driver 580.95"; a single machine has no number.
    """
    known = {name: words for target in result.targets for name, words in target.machines.items()}
    counts = Counter(known.values()).items()
    parts = [f"{count} × {plain(words)}" if count > 1 else plain(words) for words, count in counts]
    if parts:
        yield "; ".join(parts)


def server_words(target: TargetResult) -> str | None:
    """Return the engine's version, slots and context of a target, and its router; None if all are unknown."""
    router = target.kind is TargetKind.ROUTER
    if not (target.version or target.router_version or target.strategy or target.context_tokens):
        return None
    kinds = target.engines if router else (target.engine,)
    titles = [ENGINES[kind].title if kind in ENGINES else kind for kind in kinds if kind]
    engine = " ".join(filter(None, (names_in_words(titles) if titles else "engine", target.version)))
    own = [
        engine if titles or target.version else "",
        f"{len(target.machines)} machines" if len(target.machines) > 1 else "",
        "" if target.slots is None else f"{target.slots:,} slots",
        "" if target.context_tokens is None else f"context {target.context_tokens:,}",
    ]
    parts = [", ".join(filter(None, own))]
    if router:
        behind = " ".join(filter(None, (_router_title(target), target.router_version)))
        parts.append(", ".join(filter(None, (f"behind {behind}", target.strategy))))
    return "; ".join(filter(None, parts))


def router_words(target: TargetResult) -> str:
    """Return a router as Markdown, such as "`proxy` (LiteLLM, least-busy)"."""
    return f"{code(target.name)} ({plain(', '.join(filter(None, (_router_title(target), target.strategy))))})"


def _router_title(target: TargetResult) -> str:
    return _ROUTERS.get(target.engine or "", target.engine or "a router")
