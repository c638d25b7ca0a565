"""The software of a sweep's targets in its report."""

from __future__ import annotations

from sparktop.sweep.formats.report import server_facts, server_words, sweep_markdown
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import SweepResult, TargetResult
from tests.sweep.made_results import made_level, made_sweep

ENGINE = TargetResult(
    name="spark-a", url="", engine="vllm", version="0.32.0", slots=48, context_tokens=131_072
)
ROUTER = ENGINE.model_copy(
    update={
        "name": "proxy",
        "kind": TargetKind.ROUTER,
        "engine": "litellm",
        "engines": ("vllm",),
        "router_version": "1.106",
        "strategy": "least-busy",
    }
)


def test_versions_and_limits_are_facts_of_the_report() -> None:
    """Targets with the same facts share a line; a router adds its own version and strategy."""
    other = ENGINE.model_copy(update={"name": "spark-b"})
    result = made_sweep().model_copy(update={"targets": (ENGINE, other, ROUTER)})
    assert list(server_facts(result)) == [
        "`spark-a` and `spark-b`: vLLM 0.32.0, 48 slots, context 131,072",
        "`proxy`: vLLM 0.32.0, 48 slots, context 131,072; behind LiteLLM 1.106, least-busy",
    ]
    measured = ENGINE.model_copy(update={"levels": (made_level(),)})
    assert "vLLM 0.32.0, 48 slots" in sweep_markdown(result.model_copy(update={"targets": (measured,)}))


def test_what_is_unknown_is_left_out() -> None:
    """As in files of older versions, which have none of these keys."""
    assert server_words(TargetResult(name="a", url="", engine="vllm", slots=4)) is None
    assert server_words(ENGINE.model_copy(update={"slots": None, "version": None})) == "vLLM, context 131,072"
    old = made_sweep().to_json()
    for key in ("version", "context_tokens", "router_version", "strategy", "engines"):
        del old["targets"][0][key]
    assert SweepResult.model_validate(old) == made_sweep()
