"""The swing of a real least-busy LiteLLM over two real vLLM servers is named; shuffled routing is not."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import Store
from sparktop.watch.monitor import Monitor
from tests.live.load import load
from tests.live.processes import STACK
from tests.live.proxy_process import LITELLM, litellm

pytestmark = [pytest.mark.live, pytest.mark.timeout(540)]

SERVER_FLAGS = ("--block-size", "128")
"""Room for all sixteen at either server: the swing is the router's, not a queue's."""
NAMES = ("spark-a", "spark-b")
CLIENTS = 16
WORDS, OUTPUT_TOKENS = 22, 64
"""Of each request, 22 words being about 60 tokens: equal lengths keep the convoys of least-busy together."""
LOADED_WITHIN_S = 60.0
NAMED_WITHIN_S = 90.0
SHUFFLED_S = 180.0
REPEATS = 2
LOOK_EVERY_S = 1.0


def watch_of(servers: list[str], url: str, strategy: str) -> Watch:
    backends = tuple(BackendTarget(name, at, engine="vllm") for name, at in zip(NAMES, servers, strict=True))
    deployments = {"id-a": "spark-a", "id-b": "spark-b"}
    return Watch(
        backends=backends, routers=(RouterTarget("proxy", url, strategy, NAMES, deployments),), interval_s=1.0
    )


async def balances(servers: list[str], url: str, strategy: str, lasts_s: float) -> list[Balance]:
    """Return the balance after each second under load."""
    watch = watch_of(servers, url, strategy)
    store = Store(watch)
    monitor = Monitor(watch, store)
    said: list[Balance] = []
    async with load("--alike", f"{WORDS},{OUTPUT_TOKENS}", f"{url}={CLIENTS}") as totals:
        await monitor.start()
        try:
            await in_flight(store)
            began = time.monotonic()
            while time.monotonic() - began < lasts_s:
                await asyncio.sleep(LOOK_EVERY_S)
                said += store.snapshot().balance
        finally:
            await monitor.stop()
    sys.stdout.write(f"{strategy}: {said[-1]}\n")
    assert totals["done"] > CLIENTS
    return said


def words(said: list[Balance]) -> set[BalanceWord]:
    return {balance.word for balance in said}


async def in_flight(store: Store) -> None:
    """Wait until most of the load is running, by the servers' own figures."""
    end = time.monotonic() + LOADED_WITHIN_S
    while time.monotonic() < end:
        running = [view.running for view in store.snapshot().backends]
        if sum(one or 0 for one in running) > CLIENTS / 2:
            return
        await asyncio.sleep(LOOK_EVERY_S / 4)
    pytest.fail("the load did not come")


@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize("strategy", ["least-busy", "simple-shuffle"])
async def test_the_swing_is_named_and_shuffling_is_not(
    servers: list[str], strategy: str, repeat: int, tmp_path: Path
) -> None:
    """Least-busy is called oscillating within 90 s under load; random routing is not within 3 minutes."""
    if not LITELLM.exists():
        pytest.skip(f"no LiteLLM in {STACK}: run scripts/real_stack.sh install")
    herds = strategy == "least-busy"
    with litellm(servers, strategy, tmp_path) as url:
        sys.stdout.write(f"\n{strategy}, {repeat + 1} of {REPEATS}\n")
        said = await balances(servers, url, strategy, NAMED_WITHIN_S if herds else SHUFFLED_S)
    assert (BalanceWord.OSCILLATING in words(said)) is herds, [balance.word.value for balance in said]
