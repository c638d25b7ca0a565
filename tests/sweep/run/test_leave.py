"""Clients that hang up in the middle of answers, on servers that abort, go on for a while, or to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from sparktop.demo.engine import LiveCores, LiveEngine
from sparktop.sweep.formats.written import repeat_command
from sparktop.sweep.result.results import LeftRequests, LevelResult, SweepResult
from sparktop.sweep.view.words import headline, left_words
from tests.known import known
from tests.sweep.watched_servers import QUICK, watched

SLOW = replace(QUICK, cost=replace(QUICK.cost, weights_one_s=1e-2, weights_all_s=1e-2))
"""Steps of about 10 ms: 512 tokens take 5 s."""


class LateCores(LiveCores):
    """Engine cores that abort a request some time after its client has gone; None: never."""

    def __init__(self, cores: Sequence[LiveEngine], after_s: float | None) -> None:
        """Run these cores."""
        super().__init__(cores)
        self._after_s = after_s

    def end(self, request_id: str, *, aborts: bool = True) -> None:
        """Abort a request later."""
        if self._after_s is not None:
            later = partial(super().end, aborts=aborts)
            asyncio.get_running_loop().call_later(self._after_s, later, request_id)


async def hung_up(after_s: float | None) -> tuple[LeftRequests, SweepResult]:
    """Return what the server did after the hang-up, and the result."""
    async with watched(profile=SLOW, cores=partial(LateCores, after_s=after_s)) as servers:
        plan = servers.plan(concurrency=(2,), runs=1, leave=True)
        result = await servers.runner(plan).run()
    (level,) = result.targets[0].levels
    left = known(level.left)
    assert (left.requests, level.requests.ok) == (2, 2)
    assert not {one.code for one in level.validity} & {"count_mismatch", "foreign_traffic"}
    assert SweepResult.model_validate(result.to_json()).targets[0].levels[0].left == left
    return left, result


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after_s", [0.0, 2.0, None], ids=["at once", "after a while", "never"])
async def test_what_a_server_does_after_a_hang_up(after_s: float | None) -> None:
    """Every token of the answers is counted; the time lies between samples with and without requests."""
    left, result = await hung_up(after_s)
    rest = 2 * 512 - left.received_tokens
    goes_on_s, idle_s, tokens = known(left.goes_on_s), known(left.idle_s), known(left.tokens_after)
    assert tokens == rest if after_s is None else tokens < rest
    assert idle_s >= (after_s or 0.0)
    assert after_s == 0.0 or (0 < goes_on_s < idle_s and tokens > 0)
    words = headline(result, None) or ""
    assert "goes on for" in words if after_s is None else "hang up" in words
    assert repeat_command(result).endswith("--leave")


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (
            LeftRequests(goes_on_s=0.0, idle_s=0.8, tokens_after=12),
            "stops within 0.8 s after its clients hang up and generates 12 tokens",
        ),
        (LeftRequests(goes_on_s=5.0, idle_s=6.0), "goes on for 5.0 to 6.0 s after its clients hang up"),
        (LeftRequests(goes_on_s=120.0), "still works 120 s after its clients hang up"),
    ],
)
def test_the_answer_has_both_bounds(left: LeftRequests, words: str) -> None:
    """What is not known is left out, and no time is more exact than the polls."""
    assert left_words(LevelResult(concurrency=1, left=left)).startswith(words)
    assert left_words(LevelResult(concurrency=1)) == ""
