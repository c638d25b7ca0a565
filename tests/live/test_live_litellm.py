"""A real LiteLLM in front of simulated servers: what our source reads from it, with and without its key."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sparktop.commands.observation import observe
from sparktop.model.router import RouterSample
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.sources.router import PATHS, RouterSource
from tests.live.processes import STACK, running
from tests.live.proxy_process import LITELLM, litellm

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

KEY = "sk-live-test"
START_S = 90.0
ELSEWHERE = """\
  - model_name: elsewhere
    litellm_params: {model: openai/gpt-4o, api_key: none}
    model_info: {id: cloud}
"""


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yield the URLs of two simulated servers."""
    if not LITELLM.exists():
        pytest.skip(f"no LiteLLM in {STACK}: run scripts/real_stack.sh install")
    log = tmp_path_factory.mktemp("demo") / "log"
    command = [sys.executable, "-u", "-m", "sparktop", "demo", "--serve"]
    with running(command, log, env={}, errors=subprocess.DEVNULL) as process:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with suppress(tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError):
                urls = [str(one["url"]) for one in tomllib.loads(log.read_text())["backends"]]
                if len(urls) == 2:
                    break
            with suppress(subprocess.TimeoutExpired):  # also the pause before the next try
                process.wait(0.2)
                pytest.fail(log.read_text())
        yield urls


@pytest.fixture(scope="module", params=[None, KEY], ids=["without a master key", "with a master key"])
def proxy(
    request: pytest.FixtureRequest, backends: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str | None, Path]]:
    """Yield the URL of a real LiteLLM, its master key, and the path of its log."""
    folder = tmp_path_factory.mktemp("litellm")
    with litellm(backends, "least-busy", folder, key=request.param, more=ELSEWHERE) as url:
        yield url, request.param, folder / "log"


async def look(url: str, key: str | None) -> RouterSample:
    source = RouterSource(RouterTarget("proxy", url, api_key=key))
    reading = await source.poll(10.0)
    await source.close()
    assert isinstance(reading, RouterSample), reading
    sys.stdout.write(f"\nkey {'given' if key else 'none'}: {reading}\n")
    return reading


async def test_a_real_litellm_tells_what_it_is(
    proxy: tuple[str, str | None, Path], backends: list[str]
) -> None:
    """With its key, or if it needs none, everything is known after the first poll."""
    url, key, _ = proxy
    sample = await look(url, key)
    assert (sample.kind, sample.alive, sample.strategy, sample.note) == ("litellm", True, "least-busy", None)
    assert sample.version
    assert [(one.id, one.address) for one in sample.deployments or ()] == [
        ("id-a", f"{backends[0]}/v1"),
        ("id-b", f"{backends[1]}/v1"),
        ("cloud", None),
    ]


@pytest.mark.parametrize("given", [None, "sk-not-the-one"])
async def test_a_real_litellm_keeps_its_deployments_from_strangers(
    proxy: tuple[str, str | None, Path], given: str | None
) -> None:
    """Without its key or with a wrong one, only that it is alive is known, with a note about the key."""
    url, key, _ = proxy
    if key is None:
        pytest.skip("it has no key to ask for")
    sample = await look(url, given)
    assert (sample.kind, sample.alive, sample.deployments) == ("litellm", True, None)
    assert "api_key_env" in (sample.note or "")


async def test_the_monitor_maps_the_deployments_of_a_real_litellm(
    proxy: tuple[str, str | None, Path], backends: list[str]
) -> None:
    """The monitor maps each deployment to its backend, and the backends form the router's group."""
    url, key, _ = proxy
    names = ("spark-a", "spark-b")
    targets = tuple(BackendTarget(name, at) for name, at in zip(names, backends, strict=True))
    watch = Watch(backends=targets, routers=(RouterTarget("proxy", url, api_key=key),))
    snapshot, _, _ = await observe(watch, None)
    (view,) = snapshot.routers
    assert view.deployments == {"id-a": "spark-a", "id-b": "spark-b", "cloud": None}
    assert view.backends == names
    assert {one.group for one in snapshot.backends} == {"proxy"}


def test_a_real_litellm_was_asked_for_nothing_else(proxy: tuple[str, str | None, Path]) -> None:
    """LiteLLM's log has only the known requests, and none was forwarded to a server."""
    asked = {
        line.split('"')[1].rsplit(" ", 1)[0]
        for line in proxy[2].read_text(errors="replace").splitlines()
        if "HTTP/1.1" in line and '"' in line
    }
    assert asked == {f"GET {path}" for path in PATHS}
