"""Ollama: no metrics page; `/api/ps` tells which models are loaded, `/api/version` the version.

Shapes: Ollama's `docs/api.md`. Nothing there says how many requests run or wait, so no figure is known.
"""

from __future__ import annotations

from sparktop.engines.document import MAX_MODELS, Answers, entries, field, parse, words
from sparktop.engines.error import PageError
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import FailureKind

PATH = "/api/ps"
FACTS = ("/api/version",)
"""Routes that tell its identity; the model is on the page itself."""


def read(body: bytes, *, at: float, answer_ms: float | None = None) -> EngineSample:
    """Read the list of loaded models.

    Raises:
        PageError: it is no such list.
    """
    loaded = entries(parse(body), "models")
    if loaded is None:
        raise PageError(FailureKind.MALFORMED, "no list of loaded models: not Ollama")
    names = {words(one.get("name")) or words(one.get("model")) for one in loaded[:MAX_MODELS]}
    models = tuple(sorted(name for name in names if name))
    held = f"{len(models)} model{'' if len(models) == 1 else 's'} loaded" if models else "no model is loaded"
    return EngineSample(
        at=at,
        engine="ollama",
        lanes=(LaneSample("0"),),
        models=models,
        answer_ms=answer_ms,
        page_bytes=len(body),
        note=f"{held}; Ollama does not tell how many requests run",
    )


def identify(answers: Answers) -> EngineIdentity:
    """Read `/api/version`."""
    return EngineIdentity(version=words(field(answers.get("/api/version"), "version"), 60))
