"""Reader for any OpenAI-compatible server.

Only `/v1/models` is polled, where no metrics are: it shows whether the server responds, which models it
serves and how long the response takes. The format of the response is the "list models" object of OpenAI's
API reference; its field `max_model_len` is an addition of vLLM and SGLang. Engines write their own name as
the models' owner, which tells whose metrics are missing.
"""

from __future__ import annotations

from sparktop.engines.document import MAX_MODELS, entries, parse, words
from sparktop.engines.exposition import PageError
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import FailureKind

PATH = "/v1/models"
FACTS = ("/v1/models",)
"""Routes that report the server's identity; none of them reports a version."""
OWNERS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "lmdeploy": "lmdeploy",
    "tensorrt_llm": "trtllm",
    "aphrodite": "aphrodite",
}
"""The engine by what its servers write as `owned_by` of a model."""
NOTE = "only its list of models is known: it does not report how many requests run"


def read(body: bytes, at: float) -> EngineSample:
    """Parse the list of models (`/v1/models`) into a sample dated `at` (monotonic seconds).

    Raises:
        PageError: the body is not a list of models.
    """
    models = entries(parse(body), "data")
    if models is None:
        raise PageError(FailureKind.MALFORMED, "no list of models: not an OpenAI-compatible server")
    names = {words(entry.get("id")) for entry in models[:MAX_MODELS]}
    owners = {OWNERS.get(words(entry.get("owned_by"), 40) or "", "openai") for entry in models[:MAX_MODELS]}
    return EngineSample(
        at=at,
        engine=owners.pop() if len(owners) == 1 else "openai",
        lanes=(LaneSample("0"),),
        models=tuple(sorted(name for name in names if name)),
        note=NOTE,
    )


def owners_of(body: bytes | None) -> frozenset[str]:
    """Return who owns the models in a list of models (`owned_by`); empty for anything else."""
    try:
        model_entries = entries(parse(body or b""), "data")
    except PageError:
        return frozenset()
    owners = (words(entry.get("owned_by")) for entry in (model_entries or [])[:MAX_MODELS])
    return frozenset(owner for owner in owners if owner)
