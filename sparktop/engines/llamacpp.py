"""Reader of the metrics page of llama.cpp's server (`--metrics`).

The metrics are defined in a table in `server.cpp` (later `server-context.cpp`). Official versions have no
labels; some builds add the label `model` to each sample.

* Generated tokens are counted when a request finishes, prompt tokens when its prefill ends. Both are
  printed with six digits ("1.23457e+06"), so above a million they rise in steps of 10 or more.
* Time per token is reported as a sum and a count only, so it becomes a histogram whose only bound is
  infinite: it has a mean but no quantiles. A request's first token is counted but its time is not (it is part
  of the prefill), so the mean is a little low for very short answers.
* `n_decode_total` counts each call of `llama_decode`, also for every batch of a prompt: it shows that the
  engine goes on, but it does not count tokens.
* `kv_cache_usage_ratio` was removed in 2025. `kv_cache_tokens` is the used part, not the capacity.
* `predicted_tokens_seconds` and `prompt_tokens_seconds` are not read: they are means over the time since
  any client last requested the page.
"""

from __future__ import annotations

from sparktop.engines.document import Answers, count, field, first_model, words
from sparktop.engines.exposition import PageMemory, Reader
from sparktop.engines.figures import requests, share, total
from sparktop.engines.lanes import Fields, LanePage, names_of
from sparktop.model.engine import EngineIdentity, EngineSample, Histogram, LaneSample

FACTS = ("/props", "/v1/models")
"""Routes that report the server's identity (version, model, limits)."""

_SECONDS = "llamacpp:tokens_predicted_seconds_total"
_FIELDS: Fields = (
    ("running", ("llamacpp:requests_processing",), requests),
    ("waiting", ("llamacpp:requests_deferred",), requests),
    ("kv_cache_percent", ("llamacpp:kv_cache_usage_ratio",), share),
    ("prompt_tokens", ("llamacpp:prompt_tokens_total",), total),
    ("generation_tokens", ("llamacpp:tokens_predicted_total",), total),
    ("engine_work", ("llamacpp:n_decode_total",), total),
)
_READER = Reader(names_of(_FIELDS, (), _SECONDS))


def read(
    body: bytes, *, at: float, answer_ms: float | None = None, memory: PageMemory | None = None
) -> EngineSample:
    """Parse a metrics page with at least one `llamacpp:` sample into a sample dated `at` (monotonic s).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    page = LanePage(_READER.read(body, memory), model_label="model")
    fields = page.read(_FIELDS, ())["0"]
    seconds, tokens = total(page.families.get(_SECONDS, {})), fields.get("generation_tokens")
    if seconds is not None and tokens is not None:
        fields["itl"] = Histogram((float("inf"),), (tokens,), seconds)
    return EngineSample(
        at=at,
        engine="llamacpp",
        lanes=(LaneSample("0", per_finished_request=True, **fields),),
        models=page.model_names(),
        answer_ms=answer_ms,
        page_bytes=len(body),
    )


def identify(answers: Answers) -> EngineIdentity:
    """Return the identity from `/props` and `/v1/models`; its context length is that of one server slot."""
    props = answers.get("/props")
    model, _ = first_model(answers.get("/v1/models"))
    return EngineIdentity(
        version=words(field(props, "build_info"), 60),
        model=model or words(field(props, "model_alias")) or words(field(props, "model_path")),
        max_model_len=count(field(props, "default_generation_settings", "n_ctx")),
        slots=count(field(props, "total_slots")),
    )
