"""Random keys, clicks, pastes, resizes and suspensions on the demo in a real terminal."""

from __future__ import annotations

import pytest

from tests.ui.fuzz import fuzz

SECONDS = 40.0


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_that_is_typed_breaks_the_program(seed: int) -> None:
    """No traceback, no notice that is not seen, no key of the key row without effect, no process left.

    A failure names the last steps. For more: python -m tests.ui.fuzz --seconds 600 --seed 3
    """
    assert await fuzz(seed, SECONDS / 2) > 0
