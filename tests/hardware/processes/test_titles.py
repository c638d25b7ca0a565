"""The titles of engine processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.hardware.processes import Title, arguments_of, read_title


@pytest.mark.parametrize(
    ("title", "role", "rank"),
    [
        ("VLLM::APIServer_0", "API server", None),
        ("VLLM::DPCoordinator", "DP coordinator", None),
        ("VLLM::EngineCore", "engine core", None),
        ("VLLM::EngineCore_DP0", "engine core", "DP0"),
        ("VLLM::Worker", "worker", None),
        ("VLLM::Worker_TP1", "worker", "TP1"),
        ("VLLM::Worker_DP0_PP0_PCP0_TP1_DCP0_EP1", "worker", "DP0 PP0 PCP0 TP1 DCP0 EP1"),
        ("mine::EngineCore_DP3", "engine core", "DP3"),
        ("ray::RayWorkerWrapper.execute_method", "worker", None),
        ("ray::RayWorkerProc.initialize_worker", "worker, loading", None),
        ("ray::RayWorkerProc.run", "worker", None),
    ],
)
def test_titles_of_vllm_have_role_and_ranks(title: str, role: str, rank: str | None) -> None:
    """The parts of a vLLM worker's title are its role and its ranks by kind of parallelism."""
    assert read_title([title]) == Title("vllm", role, rank)


@pytest.mark.parametrize(
    ("title", "role", "rank"),
    [
        ("sglang::scheduler", "scheduler", None),
        ("sglang::scheduler_DP0_PP0_ATTN_CP0_MOE_DP0_TP1_EP1", "scheduler", "DP0 PP0 CP0 DP0 TP1 EP1"),
        ("sglang::scheduler_TP3", "scheduler", "TP3"),
        ("sglang::detokenizer", "detokenizer", None),
        ("sglang::data_parallel_controller", "DP controller", None),
        ("sglang::tokenizer_worker:312", "tokenizer", None),
    ],
)
def test_titles_of_sglang_have_role_and_ranks(title: str, role: str, rank: str | None) -> None:
    """SGLang's titles have role and ranks too."""
    assert read_title([title]) == Title("sglang", role, rank)


@pytest.mark.parametrize(
    ("line", "engine", "model", "port"),
    [
        ("vllm serve Qwen/Qwen3-32B --port 8001", "vllm", "Qwen/Qwen3-32B", 8001),
        ("/usr/bin/python3 /usr/local/bin/vllm serve --model /models/a.b/ -tp 2", "vllm", "a.b", 8000),
        ("python -O -m vllm.entrypoints.openai.api_server --model x/y --port=9", "vllm", "x/y", 9),
        ("vllm serve m --served-model-name gpt --api-key sk-secret", "vllm", "gpt", 8000),
        ("python3 -m sglang.launch_server --model-path org/m", "sglang", "org/m", 30000),
        ("llama-server -m /m/gemma-q4.gguf --port 8081", "llamacpp", "gemma-q4", 8081),
        ("trtllm-serve serve x --port 77777", "trtllm", "serve", None),
        ("text-generation-launcher --model-id org/m -p 80", "tgi", "org/m", 80),
        ("ollama serve", "ollama", None, 11434),
    ],
)
def test_a_server_names_its_model_and_port(line: str, engine: str, model: str | None, port: int) -> None:
    """Model and port are read from a server's command line; the rest, which may contain keys, is not kept."""
    title = read_title(line.split())
    assert title is not None
    assert title._replace(path=None) == Title(engine, "server", None, model, port)


@given(st.binary(max_size=300))
def test_any_command_line_can_be_read(content: bytes) -> None:
    """Any command line can be parsed, because other users choose theirs freely."""
    read_title(arguments_of(content))
