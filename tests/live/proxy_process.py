"""A real LiteLLM in front of the live tests' servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

STACK = Path(os.environ.get("STACK") or Path.home() / ".cache" / "sparktop-stack")
LITELLM = STACK / "litellm" / "bin" / "litellm"
START_S = 120.0
STOP_S = 15.0
CONFIG = """\
model_list:
  - model_name: openai/gpt-oss-120b
    litellm_params: {{model: hosted_vllm/openai/gpt-oss-120b, api_base: "{first}/v1", api_key: none}}
    model_info: {{id: id-a}}
  - model_name: openai/gpt-oss-120b
    litellm_params: {{model: hosted_vllm/openai/gpt-oss-120b, api_base: "{second}/v1", api_key: none}}
    model_info: {{id: id-b}}
router_settings: {{routing_strategy: {strategy}, num_retries: 0}}
litellm_settings: {{telemetry: false}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""


@contextmanager
def litellm(servers: list[str], strategy: str, folder: Path) -> Iterator[str]:
    """Start a real LiteLLM and stop it whatever happens."""
    config, log = folder / "config.yaml", folder / "log"
    config.write_text(CONFIG.format(first=servers[0], second=servers[1], strategy=strategy))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - a program of this test
            [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(url, process, log)
        yield url
    finally:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signum)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with suppress(urllib.error.URLError, TimeoutError, ConnectionError):
            urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()  # noqa: S310 - a URL of ours
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
            break
    pytest.fail(f"{url} did not start:\n{log.read_text(errors='replace')[-2000:]}")
