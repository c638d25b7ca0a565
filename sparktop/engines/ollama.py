"""Reader for Ollama, which has no metrics page.

`/api/ps` lists the loaded models, `/api/version` reports the version (format: Ollama's `docs/api.md`). No
route reports running or waiting requests, so their numbers stay unknown.
"""

from __future__ import annotations

from sparktop.engines.document import MAX_MODELS, entries, parse, words
from sparktop.engines.exposition import PageError
from sparktop.graphics.numbers import count_words
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import FailureKind

PATH = "/api/ps"
FACTS = ("/api/version",)
"""Routes that report the server's identity; the model's name is in the polled list itself."""


def read(body: bytes, at: float) -> EngineSample:
    """Parse the list of loaded models (`/api/ps`) into a sample dated `at` (monotonic seconds).

    Raises:
        PageError: the body is not a list of loaded models.
    """
    loaded = entries(parse(body), "models")
    if loaded is None:
        raise PageError(FailureKind.MALFORMED, "no list of loaded models: not Ollama")
    names = {words(model.get("name")) or words(model.get("model")) for model in loaded[:MAX_MODELS]}
    models = tuple(sorted(name for name in names if name))
    loaded_text = "no model is loaded"
    if models:
        loaded_text = f"{count_words(len(models), 'model')} loaded"
    return EngineSample(
        at=at,
        engine="ollama",
        lanes=(LaneSample("0"),),
        models=models,
        note=f"{loaded_text}; Ollama does not report how many requests run",
    )
