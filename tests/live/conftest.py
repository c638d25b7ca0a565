"""Two real vLLM servers for the live tests, which run on request only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.live.processes import STACK, descendants, running, wait_for
from tests.programs import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
STACK_SCRIPT = ROOT / "scripts" / "real_stack.sh"
FLAGS = ("--max-num-seqs", "8", "--num-gpu-blocks-override", "40", "--block-size", "128")
"""Few slots and a small KV pool: requests queue, and some are preempted.

A module's `SERVER_FLAGS` replace them.
"""
START_S = 240.0
ENGINE_NICENESS = 10


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the live tests unless they are requested and can run."""
    if "live" not in (config.option.markexpr or ""):
        reason = "`make live` runs it"
    elif not (STACK / "vllm" / "bin" / "python").exists():
        reason = f"no vLLM in {STACK}: run scripts/real_stack.sh install"
    else:
        return
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Yield the URLs of two real vLLM servers, which are stopped afterwards in any case."""
    logs = tmp_path_factory.mktemp("vllm")
    flags = getattr(request.module, "SERVER_FLAGS", FLAGS)
    with ExitStack() as stack:
        started = [
            stack.enter_context(_server(free_port(), logs / f"{index}.log", flags)) for index in range(2)
        ]
        for url, process, log in started:
            wait_for(f"{url}/health", process, log, START_S)
            _make_way(process)
        yield [url for url, _, _ in started]


@contextmanager
def _server(
    port: int, log: Path, flags: tuple[str, ...]
) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    # By default vLLM drops idle connections after 5 s, which may break a proxy's next request.
    env = {"STACK": str(STACK), "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
    with running([STACK_SCRIPT, "vllm", str(port), "mid", *flags], log, env=env) as process:
        yield f"http://127.0.0.1:{port}", process, log


def _make_way(process: subprocess.Popen[bytes]) -> None:
    """Lower the priority of the model's computation.

    On a Spark it runs on the GPU; here it would keep the cores from API servers, router, clients and viewer.
    """
    for pid in descendants(process.pid):
        # Each thread has its own priority.
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), ENGINE_NICENESS)
