"""A real LiteLLM in front of the servers of the live tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.processes import STACK, free_port, running, wait_for

LITELLM = STACK / "litellm" / "bin" / "litellm"
LITELLM_ENV = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""So that it asks nobody else for its table of prices."""
START_S = 120.0
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
    """Start a real LiteLLM, and stop it in any case."""
    config, log = folder / "config.yaml", folder / "log"
    config.write_text(CONFIG.format(first=servers[0], second=servers[1], strategy=strategy))
    url = f"http://127.0.0.1:{free_port()}"
    with running(litellm_command(config, url), log, env=LITELLM_ENV) as process:
        wait_for(f"{url}/health/liveliness", process, log, START_S)
        yield url


def litellm_command(config: Path, url: str) -> list[str]:
    """Return the command that serves a configuration at a URL of this machine."""
    host, port = url.removeprefix("http://").split(":")
    return [str(LITELLM), "--config", str(config), "--host", host, "--port", port]
