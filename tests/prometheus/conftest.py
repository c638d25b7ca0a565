"""What the comparison with Prometheus needs: the condition for its run, and the servers to compare."""

from __future__ import annotations

import shutil

import pytest

from tests.live import conftest as live
from tests.live.processes import STACK

servers = live.servers
"""The fixture that starts two real vLLM servers, here as in the live tests."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the comparison unless it is asked for and can run."""
    if "prometheus" not in (config.option.markexpr or ""):
        reason = "`make prometheus` runs it"
    elif shutil.which("prometheus") is None:
        reason = "no prometheus on PATH (Debian, Ubuntu: apt install prometheus)"
    else:
        return
    for item in items:
        if item.get_closest_marker("prometheus"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def vllm_servers(request: pytest.FixtureRequest) -> dict[str, str]:
    """Two real vLLM servers by name; skips where the real stack is not installed."""
    if not (STACK / "vllm" / "bin" / "python").exists():
        pytest.skip(f"no vLLM in {STACK}: run scripts/real_stack.sh install")
    urls: list[str] = request.getfixturevalue("servers")
    return {f"vllm-{index}": url for index, url in enumerate(urls, 1)}
