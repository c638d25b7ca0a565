"""The demo's own load on a simulated server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from sparktop.demo.load import Driver
from sparktop.demo.scenario import SCENARIOS
from tests.demo.quick_engines import QUICK, StartServer, live_engine

PATIENCE_S = 100.0
SCENARIO = replace(SCENARIOS["oscillation"], load=3, prompt_tokens=100, output_tokens=7)


async def until(holds: Callable[[], bool]) -> None:
    """Run the loop until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - counters of the demo have no events
            await asyncio.sleep(0)


async def stop(running: asyncio.Task[None]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_it_keeps_so_many_in_flight_and_asks_for_what_the_scenario_says(
    start_server: StartServer,
) -> None:
    """At most three requests are in flight, each with 100 prompt tokens and seven output tokens."""
    live = live_engine(time.monotonic)
    most = 0
    submit = live.submit

    def counted(*given: object, **more: object) -> object:
        nonlocal most
        answer = submit(*given, **more)  # type: ignore[arg-type]  # handed on as it came
        most = max(most, len(live.engine.in_flight))
        return answer

    live.submit = counted  # type: ignore[method-assign,assignment]  # a listener before the engine
    driver = Driver(await start_server(live), SCENARIO, seed=1)
    running = asyncio.ensure_future(driver.run())
    await until(lambda: driver.totals.done >= 12 and most >= 3)
    await stop(running)
    assert most == 3
    assert driver.totals.failed == 0
    done = live.ledger.generation_tokens.cumulative[-1]
    assert live.ledger.prompt_tokens.sum == 100 * done
    assert live.ledger.generation_tokens.sum == 7 * done


async def test_an_answer_that_breaks_off_is_no_success(start_server: StartServer) -> None:
    """A stream that is cut counts as failed."""
    slow = replace(QUICK, cost=replace(QUICK.cost, weights_one_s=0.01, weights_all_s=0.02))
    live = live_engine(time.monotonic, slow)
    driver = Driver(await start_server(live), replace(SCENARIO, load=1, output_tokens=3000), seed=1)
    running = asyncio.ensure_future(driver.run())
    await until(lambda: live.engine.tally.generation_tokens > 0)
    live.close()
    await until(lambda: driver.totals.failed > 0)
    await stop(running)
    assert driver.totals.done == 0
