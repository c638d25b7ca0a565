"""What refusals say: the field at fault, and the context that a prompt exceeds, engine by engine."""

from __future__ import annotations

import json

import pytest

from sparktop.sweep.generator.refusals import faulty_fields, is_too_long, stated_context

FIELDS = frozenset({"cache_salt", "ignore_eos", "min_tokens", "stream_options", "max_tokens"})

TOO_LONG = {
    "vllm-0.32": (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
            "length is 8192 tokens and your request has 500 input tokens (9000 > 8192 - 500)."
        ),
        8192,
    ),
    "sglang": ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4096),
    "tgi": (
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 "
            "`inputs` tokens and 100 `max_new_tokens`"
        ),
        4096,
    ),
    "trtllm": (
        (
            "The sum of prompt length (9000.0), query length (0) max_tokens (100) should not exceed "
            "max_seq_len (4096)"
        ),
        4096,
    ),
    "lm-studio": (
        (
            "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
            "with context length of only 4096 tokens, which is not enough."
        ),
        4096,
    ),
    "llama.cpp": (
        "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4096,
    ),
    "anthropic": ("prompt is too long: 120000 tokens > 100000 maximum", 100_000),
    "commas": ("maximum context length is 131,072 tokens, however you requested 140,000", 131_072),
}


@pytest.mark.parametrize("engine", TOO_LONG)
def test_every_engine_says_what_its_context_is(engine: str) -> None:
    """The limit is read from the sentence, not the length that was asked for."""
    words, limit = TOO_LONG[engine]
    assert is_too_long(words)
    assert stated_context(words) == limit


@pytest.mark.parametrize(
    "words",
    [
        "context deadline exceeded",
        "CUDA error: out of memory",
        "max_tokens must be at most 4096",
        "rate limit of 10000 tokens a minute exceeded",
        "unknown field 'cache_salt'",
        "model overloaded, 1200 requests are ahead",
    ],
)
def test_other_refusals_are_not_of_the_context(words: str) -> None:
    """A refusal that says nothing of a context is none of a prompt that is too long."""
    assert not is_too_long(words)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"error": {"message": "no", "param": "stream_options.continuous_usage_stats"}}, set()),
        ({"error": {"message": "no 'ignore_eos'", "param": "cache_salt"}}, {"cache_salt"}),
        (
            {"detail": [{"loc": ["body", "min_tokens"]}, {"loc": ["body", "cache_salt"]}]},
            {"min_tokens", "cache_salt"},
        ),
        ({"detail": "Unrecognized: `min_tokens`, supported are `ignore_eos`"}, {"min_tokens"}),
        ({"error": "cache_salt is not known here, ignore_eos is"}, {"cache_salt"}),
        ({"error": {"message": "max_tokens_per_day reached"}}, set()),
        ('no JSON, but "ignore_eos" in it', {"ignore_eos"}),
        ({"error": None, "detail": None}, set()),
        ([1, 2], set()),
    ],
)
def test_the_field_at_fault_is_the_one_that_is_named_so(body: object, named: set[str]) -> None:
    """`param` and `loc` name it; else the first in quotes; else the first at all."""
    raw = body if isinstance(body, str) else json.dumps(body)
    assert faulty_fields(raw.encode(), FIELDS) == named
