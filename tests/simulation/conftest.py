"""The profile of a simulated engine with round numbers."""

from __future__ import annotations

from sparktop.simulation.engine import EngineProfile, StepCost

PROFILE = EngineProfile(
    name="test",
    model="m",
    cost=StepCost(
        weights_one_s=0.010,
        weights_exponent=0.5,
        weights_all_s=0.040,
        row_s=0.0001,
        context_token_s=0.0,
        attention_pair_s=0.0,
        weights_clock_share=0.0,
    ),
    max_model_len=1000,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    kv_blocks=1000,
    block_tokens=4,
    jitter=0.0,
    wake_s=0.02,
)
"""10 ms for the first row's weights, 0.1 ms a row, nothing for context."""
