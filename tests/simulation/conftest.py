"""Profiles of simulated engines with round numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktop.simulation.engine import EngineProfile, StepCost

PLAIN = StepCost(
    weights_one_s=0.010,
    weights_exponent=0.5,
    weights_all_s=0.040,
    row_s=0.0001,
    context_token_s=0.0,
    attention_pair_s=0.0,
    weights_clock_share=0.0,
)
"""10 ms for the first row's weights, 0.1 ms a row, nothing for context."""


def make_profile(
    *,
    cost: StepCost = PLAIN,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    kv_blocks: int = 1000,
    block_tokens: int = 4,
    capture_sizes: tuple[int, ...] = (),
    jitter: float = 0.0,
    nodes: int = 1,
) -> EngineProfile:
    return EngineProfile(
        name="test",
        model="m",
        cost=cost,
        max_model_len=1000,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        kv_blocks=kv_blocks,
        block_tokens=block_tokens,
        capture_sizes=capture_sizes,
        jitter=jitter,
        nodes=nodes,
        wake_s=0.02,
    )


@pytest.fixture
def profile() -> Callable[..., EngineProfile]:
    """Return the factory of profiles."""
    return make_profile
