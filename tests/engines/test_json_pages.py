"""JSON responses: the model lists of Ollama and OpenAI servers, and the identities of all engines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.engines import ENGINES, PageError, read_page
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

# The shape of /api/ps in Ollama's docs/api.md.
LOADED = {
    "models": [
        {
            "name": "mistral:latest",
            "model": "mistral:latest",
            "size": 5137025024,
            "digest": "2ae6f6dd7a3dd734790bbbf58b8909a606e0e7e97e94b7604e0aa7ae4490e6d8",
            "details": {"parent_model": "", "format": "gguf", "family": "llama", "parameter_size": "7.2B"},
            "expires_at": "2024-06-04T14:38:31.83753-07:00",
            "size_vram": 5137025024,
        },
        {"name": "gemma3:4b", "model": "gemma3:4b", "size": 1, "size_vram": 0},
    ]
}
# The shape of "list models" in OpenAI's API reference.
LISTED = {
    "object": "list",
    "data": [
        {"id": "b", "object": "model", "created": 1686935002, "owned_by": "someone"},
        {"id": "a", "object": "model", "created": 1686935002, "owned_by": "someone"},
    ],
}


def page(found: object, engine: str) -> EngineSample:
    return read_page(json.dumps(found).encode(), at=12.5, answer_ms=3.25, engine=engine)


def test_ollama_tells_what_is_loaded_and_no_figure() -> None:
    """Ollama's loaded models are read; load, tokens and latencies are unknown, as a note says."""
    sample = page(LOADED, "ollama")
    assert sample.models == ("gemma3:4b", "mistral:latest")
    assert sample.lanes == (LaneSample("0"),)
    assert (sample.engine, sample.at, sample.answer_ms) == ("ollama", 12.5, 3.25)
    assert sample.note == "2 models loaded; Ollama does not report how many requests run"


@pytest.mark.parametrize("empty", [{"models": []}, {"models": None}])
def test_ollama_with_nothing_loaded_is_there(empty: object) -> None:
    """Ollama without a loaded model is available, with a note and no figures."""
    sample = page(empty, "ollama")
    assert (sample.models, sample.lanes) == ((), (LaneSample("0"),))
    assert sample.note == "no model is loaded; Ollama does not report how many requests run"


def test_an_openai_server_tells_its_models() -> None:
    """The listed models of an OpenAI server are read; all figures are unknown, as a note says."""
    sample = page(LISTED, "openai")
    assert (sample.engine, sample.models, sample.lanes) == ("openai", ("a", "b"), (LaneSample("0"),))
    assert sample.note is not None


@pytest.mark.parametrize("engine", ["ollama", "openai"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'{"models": 7, "data": "x"}',
        b'{"error": "no"}',
        b"<html>",
        b"[" * 100_000,
        b"\xff\xfe\x00",
        b'{"models": [], "data": []',
        b"1" * 10_000,
        b"vllm:num_requests_running 1\n",
    ],
)
def test_what_is_no_list_is_malformed(body: bytes, engine: str) -> None:
    """Anything but a model list is refused in one clean line."""
    with pytest.raises(PageError) as caught:
        read_page(body, at=0, engine=engine)
    assert caught.value.kind is FailureKind.MALFORMED
    assert caught.value.message == clean(caught.value.message)


def test_names_are_cleaned_and_few() -> None:
    """Model names are cleaned and cut, invalid ones left out, and at most 64 are kept."""
    odd: list[Any] = [{"id": "\x1b[31mx\u202e"}, {"id": 5}, {"id": ""}, {}, "text", None, {"id": "y" * 5000}]
    assert [len(name) for name in page({"data": odd}, "openai").models] == [5, 200]
    assert len(page({"data": [{"id": str(n)} for n in range(500)]}, "openai").models) == 64
    assert len(page({"models": [{"name": str(n)} for n in range(500)]}, "ollama").models) == 64


MODELS = {"data": [{"id": "tiny", "max_model_len": 4096}]}


@pytest.mark.parametrize(
    ("engine", "answers", "expected"),
    [
        ("vllm", {"/version": {"version": "0.32.0"}, "/v1/models": MODELS}, ("0.32.0", "tiny", 4096, None)),
        ("trtllm", {"/version": {"version": "1.2.0"}, "/v1/models": MODELS}, ("1.2.0", "tiny", 4096, None)),
        # SGLang: server arguments, scheduler state and version in one object (its http_server.py).
        (
            "sglang",
            {
                "/server_info": {
                    "model_path": "/m",
                    "served_model_name": "org/tiny",
                    "context_length": 8192,
                    "max_running_requests": 48,
                    "internal_states": [{"last_gen_throughput": 1.0}],
                    "version": "0.5.3",
                },
                "/v1/models": {"data": [{"id": "org/tiny", "owned_by": "sglang", "max_model_len": 32768}]},
            },
            ("0.5.3", "org/tiny", 32768, 48),
        ),
        (
            "sglang",
            {"/server_info": {"served_model_name": "org/tiny", "context_length": 8192}},
            (None, "org/tiny", 8192, None),
        ),
        # llama.cpp: GET /props in its tools/server/README.md.
        (
            "llamacpp",
            {
                "/props": {
                    "default_generation_settings": {"id": 0, "n_ctx": 8192, "params": {"temperature": 0.8}},
                    "total_slots": 4,
                    "model_path": "/models/tiny.gguf",
                    "chat_template": "...",
                    "build_info": "b6000-3a4cb5a",
                },
                "/v1/models": {"data": [{"id": "tiny", "meta": {"n_ctx_train": 131072}}]},
            },
            ("b6000-3a4cb5a", "tiny", 8192, 4),
        ),
        ("llamacpp", {"/props": {"model_path": "/m/t.gguf"}}, (None, "/m/t.gguf", None, None)),
        ("llamacpp", {"/props": {"total_slots": True}}, (None, None, None, None)),
        # TGI: the Info object of its router.
        (
            "tgi",
            {
                "/info": {
                    "model_id": "org/tiny",
                    "max_concurrent_requests": 128,
                    "max_input_tokens": 3072,
                    "max_total_tokens": 4096,
                    "router": "text-generation-router",
                    "version": "3.3.4",
                }
            },
            ("3.3.4", "org/tiny", 4096, None),
        ),
        ("ollama", {"/api/version": {"version": "0.12.3"}}, ("0.12.3", None, None, None)),
        ("openai", {"/v1/models": MODELS}, (None, "tiny", 4096, None)),
    ],
)
def test_the_identity_of_each_engine(
    engine: str, answers: dict[str, object], expected: tuple[object, ...]
) -> None:
    """Version, model, context and slots are read from each engine's own routes."""
    identity = ENGINES[engine].identify(answers)
    assert (identity.version, identity.model, identity.max_model_len, identity.slots) == expected
    assert set(answers) <= set(ENGINES[engine].facts)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "models", "id", "name", "version", "max_model_len", "total_slots", "model_id"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(found=anything, engine=st.sampled_from(sorted(ENGINES)))
def test_any_json_gives_clean_values(found: object, engine: str) -> None:
    """Any JSON gives an identity with clean text, positive numbers, or None."""
    identity = ENGINES[engine].identify(dict.fromkeys(ENGINES[engine].facts, found))
    for text in (identity.version, identity.model):
        assert text is None or (text and text == clean(text))
    for number in (identity.max_model_len, identity.slots):
        assert number is None or 0 < number < 2**40
    assert isinstance(identity, EngineIdentity)
    if ENGINES[engine].read_json is not None:
        try:
            sample = page(found, engine)
        except PageError:
            return
        assert sample.models == tuple(sorted({clean(name) for name in sample.models}))


def test_lanes_of_trtllm_are_its_ranks() -> None:
    """A rank that reports alone keeps its number; what is no rank counts as the first, and ranks are few."""
    one = {"iter": 5, "numActiveRequests": 2}
    named = [{**one, "attentionDpRank": rank} for rank in (3, "\x1b[31m", {"a": 1})]
    assert [lane.lane for lane in page(named[:1], "trtllm").lanes] == ["3"]
    assert [lane.lane for lane in page(named, "trtllm").lanes] == ["0", "3"]
    with pytest.raises(PageError, match="more than 512 ranks"):
        page([{**one, "attentionDpRank": rank} for rank in range(1000)], "trtllm")
