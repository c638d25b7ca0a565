"""The swing of a real least-busy LiteLLM over two real vLLM servers is named; shuffled routing is not."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.engine import EngineSample
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import Reading, SourceKey, Store
from sparktop.ui.app import SparktopApp
from sparktop.ui.report import screen_svg
from sparktop.watch.monitor import Monitor
from tests.live.processes import STACK
from tests.live.proxy_process import LITELLM, litellm

pytestmark = [pytest.mark.live, pytest.mark.timeout(540)]

SERVER_FLAGS = ("--block-size", "128")
"""Room for all sixteen at either server: the swing is the router's, not a queue's."""
NAMES = ("spark-a", "spark-b")
CLIENTS = 16
WORDS, OUTPUT_TOKENS = 22, 64
"""Of each request, 22 words being about 60 tokens: equal lengths keep the convoys of least-busy together."""
LOAD_CLIENT = Path(__file__).with_name("load_client.py")
LOADED_WITHIN_S = 60.0
NAMED_WITHIN_S = 90.0
SHUFFLED_S = 180.0
REPEATS = 3
LOOK_EVERY_S = 1.0
PICTURES = os.environ.get("SPARKTOP_LIVE_PICTURES")
"""A folder for pictures of what was seen; unset: the test's own."""


@asynccontextmanager
async def load(url: str) -> AsyncIterator[None]:
    """Keep requests of equal length in flight at `url`; fail if one fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, LOAD_CLIENT, "--alike", f"{WORDS},{OUTPUT_TOKENS}", f"{url}={CLIENTS}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield
    finally:
        try:
            out, _ = await asyncio.wait_for(process.communicate(b""), 30)  # closes its standard input
        finally:
            if process.returncode is None:
                process.kill()
    totals = json.loads(out)
    sys.stdout.write(f"load: {totals}\n")
    assert totals["failed"] == 0
    assert totals["done"] > CLIENTS


def watch_of(servers: list[str], url: str, strategy: str) -> Watch:
    backends = tuple(BackendTarget(name, at, engine="vllm") for name, at in zip(NAMES, servers, strict=True))
    deployments = {"id-a": "spark-a", "id-b": "spark-b"}
    return Watch(
        backends=backends, routers=(RouterTarget("proxy", url, strategy, NAMES, deployments),), interval_s=1.0
    )


async def looks(servers: list[str], url: str, strategy: str, lasts_s: float, pictures: Path) -> list[Balance]:
    """Return the balance after each second under load; write a CSV trace and three screenshots."""
    watch = watch_of(servers, url, strategy)
    store = Store(watch)
    store.listen(Trace(pictures / f"{strategy}.csv").hear)
    app = SparktopApp(store.snapshot, monitor=Monitor(watch, store), store=store, interval_s=1.0)
    said: list[Balance] = []
    async with app.run_test(size=(120, 36)) as pilot, load(url):
        await in_flight(store)
        began = time.monotonic()
        while time.monotonic() - began < lasts_s:
            await asyncio.sleep(LOOK_EVERY_S)
            (balance,) = store.snapshot().balance
            if balance.word is BalanceWord.OSCILLATING and BalanceWord.OSCILLATING not in words(said):
                sys.stdout.write(f"named after {time.monotonic() - began:.0f} s\n")
                tell(strategy, balance)
            said.append(balance)
        for keys, name in (((), "overview"), (("b",), "balance"), (("w",), "why")):
            await pilot.press(*keys)
            await pilot.pause()
            (pictures / f"{strategy}-{name}.svg").write_text(screen_svg(app))
    tell(strategy, said[-1])
    return said


def words(said: list[Balance]) -> set[BalanceWord]:
    return {balance.word for balance in said}


class Trace:
    """Writes each sample of the servers as a line of CSV, to examine a verdict afterwards."""

    def __init__(self, file: Path) -> None:
        """Write the header of the file."""
        self._file = file
        file.write_text("at_s,backend,running,waiting,generated,finished\n")

    def hear(self, key: SourceKey, reading: Reading) -> None:
        """Write a sample of a server."""
        if isinstance(reading, EngineSample):
            (lane,) = reading.lanes
            finished = sum(lane.finished.values()) if lane.finished else None
            told = (reading.at, key.name, lane.running, lane.waiting, lane.generation_tokens, finished)
            with self._file.open("a") as out:
                out.write(",".join("" if one is None else str(one) for one in told) + "\n")


async def in_flight(store: Store) -> None:
    """Wait until most of the load is running, by the servers' own figures."""
    end = time.monotonic() + LOADED_WITHIN_S
    while time.monotonic() < end:
        running = [view.running for view in store.snapshot().backends]
        if sum(one or 0 for one in running) > CLIENTS / 2:
            return
        await asyncio.sleep(LOOK_EVERY_S / 4)
    pytest.fail("the load did not come")


def tell(strategy: str, balance: Balance) -> None:
    """Print the figures behind a verdict."""
    swing = balance.swing
    figures = {
        "word": balance.word.value,
        "period_s": balance.period_s,
        "variance_share": swing.variance_share if swing else None,
        "score": swing.score if swing else None,
        "relative_rms": swing.relative_rms if swing else None,
        "starved_percent": dict(balance.starved_percent),
        "lost_percent": balance.lost_percent,
        "z": balance.dispersion_z,
        "variance_factor": balance.variance_factor,
        "turns": (balance.turns, balance.turns_of_one, balance.turning_spread),
        "convoys": balance.convoys,
        "arrivals": balance.arrivals,
        "mean_total": balance.mean_total,
        "sample_hz": balance.sample_hz,
        "window_s": balance.window_s,
        "requests_share": dict(balance.requests_share),
    }
    shown = {name: round(one, 3) if isinstance(one, float) else one for name, one in figures.items()}
    sys.stdout.write(f"{strategy}: {shown}\n")


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder for the screenshots of this test."""
    folder = Path(PICTURES, request.node.name) if PICTURES else tmp_path / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize("strategy", ["least-busy", "simple-shuffle"])
async def test_the_swing_is_named_and_shuffling_is_not(
    servers: list[str], strategy: str, repeat: int, tmp_path: Path, pictures: Path
) -> None:
    """Least-busy is called oscillating within 90 s under load; random routing is not within 3 minutes."""
    if not LITELLM.exists():
        pytest.skip(f"no LiteLLM in {STACK}: run scripts/real_stack.sh install")
    herds = strategy == "least-busy"
    with litellm(servers, strategy, tmp_path) as url:
        sys.stdout.write(f"\n{strategy}, {repeat + 1} of {REPEATS}\n")
        said = await looks(servers, url, strategy, NAMED_WITHIN_S if herds else SHUFFLED_S, pictures)
    assert (BalanceWord.OSCILLATING in words(said)) is herds, [balance.word.value for balance in said]
