"""Reader of the metrics page of Text Generation Inference (TGI).

The metrics are described in TGI's `router/src/server.rs`. The page is written by the Rust crate
metrics-exporter-prometheus: counters have no `_total`, and a family appears only after its first value.

* Tokens, latencies and successes are counted when a request finishes, the prompt's length when it arrives.
* Time per token is one mean per request over the entire inference, prefill included. TGI reports nothing
  closer to ITL, so this is read as both ITL and TPOT.
* `tgi_batch_inference_count` counts each forward pass, prefill and decode, while a request runs.
* `tgi_batch_current_max_tokens` is the number of tokens to which the running batch may grow, 0 when idle. It
  is not the capacity of the KV cache.
* Failures are counted by kind (refused, invalid, broken off); these counts are added up here.
"""

from __future__ import annotations

from sparktop.engines.document import Answers, count, field, words
from sparktop.engines.exposition import Page, Reader
from sparktop.engines.lanes import Fields, Histograms, LanePage, names_of, requests, total
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample

FACTS = ("/info",)
"""Routes that report the server's identity (version, model, limits)."""

_FIELDS: Fields = (
    ("running", ("tgi_batch_current_size",), requests),
    ("waiting", ("tgi_queue_size",), requests),
    ("prompt_tokens", ("tgi_request_input_length_sum",), total),
    ("generation_tokens", ("tgi_request_generated_tokens_sum",), total),
    ("engine_work", ("tgi_batch_inference_count",), total),
)
_FINISHED = {"success": "tgi_request_success", "failure": "tgi_request_failure"}
_HISTOGRAMS: Histograms = (
    ("itl", ("tgi_request_mean_time_per_token_duration",)),
    ("e2e", ("tgi_request_duration",)),
    ("queue", ("tgi_request_queue_duration",)),
)
READER = Reader(names_of(_FIELDS, _HISTOGRAMS, *_FINISHED.values()), "tgi_")


def sample_of(families: Page, at: float) -> EngineSample:
    """Parse a metrics page with at least one `tgi_` sample into a sample dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    page = LanePage(families)
    fields = page.read(_FIELDS, _HISTOGRAMS)["0"]
    fields["tpot"] = fields.get("itl")
    counts = {reason: total(page.families.get(name, {})) for reason, name in _FINISHED.items()}
    return EngineSample(
        at=at,
        engine="tgi",
        lanes=(
            LaneSample(
                "0",
                per_finished_request=True,
                finished={reason: number for reason, number in counts.items() if number is not None},
                **fields,
            ),
        ),
        counted_at_arrival=frozenset({"prompt_tokens"}),
    )


def identify(answers: Answers) -> EngineIdentity:
    """Return the identity that `/info` reports; its context length is the limit of prompt plus answer."""
    info = answers.get("/info")
    return EngineIdentity(
        version=words(field(info, "version"), 60),
        model=words(field(info, "model_id")),
        max_model_len=count(field(info, "max_total_tokens")),
    )
