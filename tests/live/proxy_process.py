"""A real LiteLLM in front of the servers of the live tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.processes import STACK, running, wait_for
from tests.programs import free_port

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
{more}\
router_settings: {{routing_strategy: {strategy}, num_retries: 0}}
litellm_settings: {{telemetry: false}}
general_settings: {{{key}}}
"""


@contextmanager
def litellm(
    servers: list[str], strategy: str, folder: Path, *, key: str | None = None, more: str = ""
) -> Iterator[str]:
    """Start a real LiteLLM, and stop it in any case; its log is in `folder`.

    `key` is its master key, `more` are lines of further models.
    """
    config, log = folder / "config.yaml", folder / "log"
    asks = f"master_key: {key}" if key else "dangerously_permit_weak_or_unset_master_key: true"
    first, second = servers
    config.write_text(CONFIG.format(first=first, second=second, strategy=strategy, more=more, key=asks))
    host, port = "127.0.0.1", str(free_port())
    url = f"http://{host}:{port}"
    command = [str(LITELLM), "--config", str(config), "--host", host, "--port", port]
    with running(command, log, env=LITELLM_ENV) as process:
        wait_for(f"{url}/health/liveliness", process, log, START_S)
        yield url
