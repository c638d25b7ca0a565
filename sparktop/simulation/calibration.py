"""Calibration of the simulated engines: every number that sets their speed, and its source.

The reference tables give decode, prefill and TTFT of bursts of c requests. The speed of an engine is four
numbers of `StepCost`, fitted to all of a table's figures at once; the other two come from the model's
architecture and from a third table. `benchmarks/simulation.py` prints table against table.

What the fit assumes, because the tables say so:

* First tokens of a burst leave together: TTFT = prompt tokens x c / prefill rate holds to 1.3 % at c = 2 to
  32 in the topology table. So one step there computes all prompts, and `max_num_batched_tokens` is 65,536.
  The concurrency-first recipe states its own 8,192.
* `SLOTS` = 48 explains c = 64 of solo and of TP = 2, in all six figures, to 8 %: 48 requests run, 16 wait for
  them. 32 slots, which a plateau from c = 32 on suggests, miss solo's decode by -14 % and its TTFT by +24 %.
    The shuffle column rules 32 out: two such engines chosen at random have 12,586 tok/s of prefill at c = 64
    (table 12,064), with 32 slots 4,947, because some request then waits a wave in nearly every run. From 44
    slots on the result does not depend on the number, so it does not select 48, and having been used here it
    is not an independent check. The least-busy column selects: see below. Shuffle's spread comes out too: 34
    tokens/s of decode at c = 32 (table 33.7), 40 at c = 64 (48.0).
* A step reads weights by rows ^ 0.41 to 0.47 up to all of them. gpt-oss-120b chooses 4 of 128 experts a
    token; if the choices were independent, 32 rows would read 20 times as much as one, but the tables show 5.
* Solo's 0.23 s for all experts are 61 GB at 265 GB/s of the GB10's 273.
* The concurrency-first table does not state its lengths. With 2,048 + 128 tokens and chunks of 8,192, one
    step time reproduces both its mean and its peak rates, at c = 1 to 64 within 10 % each.

Behind a router (two of the solo engine) one more number is fitted, `HOPS_PER_SPREAD`, to the 18 figures of
the least-busy column at c = 2 to 64. The mechanism is burst herding: requests of a burst come one by one over
some time, each count rises a hop after the choice, so all that come within the first one's hop go to the
first backend, and later ones to the other. With exponential delays the share that goes there depends hardly
on c, but on the ratio of the two times: 1.5 puts 78 % of a burst of 64 on one backend. The root mean square
difference is 7 % with 48 slots; with the best ratio for each it is 8 % with 44 and with 52, 11 to 13 % with
40 and with 56.

What the model does not explain, and is not adjusted to:

* Prefill of the topology table is not linear: at c = 4 the model is 9 % too fast, at c = 16 7 % too slow.
* The peak of the concurrency-first table at c = 128 is 17 % too high here. Its fall at c = 256 is within 8 %
  only because `KV_BLOCKS` holds fewer than 256 such requests; that number is an assumption.
* The concurrency-first fit reads all weights in 0.113 s, half of what 61 GB take at 273 GB/s: a number that
    fits, without such a meaning. Prefill at c = 1 and 2 needs it; c = 128 would need it doubled.
* Shuffle at c = 4 to 32 (300 runs): a fair coin gives 4 to 11 % more decode than the table, and at c = 4 and
  8 14 % more prefill and 8 to 11 % less TTFT. Solo's own error, 6 to 7 % of decode, is a part of it.
* Least-busy at c = 32 decodes 10 % too little, and its spread is half of the table's: 29 tokens/s (57).
* The tables do not state what the router did. Burst herding yields the least-busy column with one number;
    other causes, such as errors with cooldowns or counters that drifted, cannot be excluded.
* Only the ratio of hop to spread follows from the table. `HOP_S` itself is an assumption: short compared to
    a step.
* The long-context table counts its tokens over the whole request: tokens per second times latency gives 205,
  165 and 207 tokens at 4,978, 19,570 and 39,026 prompt tokens. With the batch table's step of 31.6 ms at
  c = 1, what is left for prefill grows from 0.13 to 0.18 ms a token: a line plus a square. Both come out of
  `LONG_CONTEXT` within 2 %; beyond 39,026 tokens nothing was measured, and the same formula goes on.
* Padding explains a dip of 15 to 18 % at c = 5 and 10; the recipe's text says 17 to 25 %, its table, which
    compares with another person's machine, 32 to 35 %.
"""

from __future__ import annotations

from sparktop.simulation.profile import EngineProfile, StepCost
from sparktop.simulation.routed import ProxyHabits
from sparktop.simulation.routers import RouterSettings

MODEL = "openai/gpt-oss-120b"
BYTES_PER_TOKEN_GB = 2.55
"""Billions of bytes read per generated token of a single request: 5.1 billion active weights of 4 bits."""
SLOTS = 48

CONTEXT_TOKEN_S = 0.135e-6
"""Seconds to read a context token's KV: 18 full-attention layers x 8 heads x 64 x (key + value) of 1 byte
= 18,432 bytes, at half of 273 GB/s."""
ATTENTION_PAIR_S = 2.9e-9
"""Seconds per pair of prompt tokens: 39,026 prompt tokens took some 2.2 s longer than a linear prefill
would (spark-dgx-benchmark, another build)."""
KV_BLOCKS = 24_000
"""KV cache of 384,000 tokens, an assumption; of all reference runs, only 256 simultaneous requests of
2,176 tokens need more."""

_CAPTURED = (1, 2, 4, *range(8, 257, 8), *range(272, 1025, 16))
CAPTURE_SIZES_DEFAULT = _CAPTURED
"""The 83 batch sizes for which the recipe without a list of its own captures CUDA graphs."""
CAPTURE_SIZES_PATCHED = tuple(sorted({*_CAPTURED, 5, 10}))

SOLO = EngineProfile(
    name="solo",
    model=MODEL,
    cost=StepCost(
        weights_one_s=0.0177,
        weights_exponent=0.466,
        weights_all_s=0.230,
        row_s=0.000139,
        context_token_s=CONTEXT_TOKEN_S,
        attention_pair_s=ATTENTION_PAIR_S,
    ),
    max_model_len=4096,
    max_num_seqs=SLOTS,
    max_num_batched_tokens=65_536,
    kv_blocks=KV_BLOCKS,
    jitter=0.02,
)
"""One DGX Spark with `--enforce-eager` (spark-topologies-2026-03, solo)."""

CLUSTER_TP2 = EngineProfile(
    name="cluster-tp2",
    model=MODEL,
    cost=StepCost(
        weights_one_s=0.0141,
        weights_exponent=0.412,
        weights_all_s=0.133,
        row_s=0.000109,
        context_token_s=CONTEXT_TOKEN_S / 2,
        attention_pair_s=ATTENTION_PAIR_S / 2,
    ),
    max_model_len=4096,
    max_num_seqs=SLOTS,
    max_num_batched_tokens=65_536,
    kv_blocks=2 * KV_BLOCKS,
    jitter=0.02,
    nodes=2,
    link_bytes_per_row=36 * 2 * 2880 * 2,
)
"""Two DGX Sparks as one engine with `--enforce-eager` (spark-topologies-2026-03, cluster-tp2).

Each row crosses the link twice in each of 36 layers, as 2,880 numbers of 2 bytes.
"""

GX10_PATCHED = EngineProfile(
    name="gx10-patched",
    model=MODEL,
    cost=StepCost(
        weights_one_s=0.0174,
        weights_exponent=0.450,
        weights_all_s=0.113,
        row_s=0.000129,
        context_token_s=CONTEXT_TOKEN_S,
        attention_pair_s=ATTENTION_PAIR_S,
    ),
    max_model_len=131_072,
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    kv_blocks=KV_BLOCKS,
    capture_sizes=CAPTURE_SIZES_PATCHED,
    jitter=0.02,
)
"""One GX10 with CUDA graphs, also for 5 and 10 (gx10-concurrency-first; fitted with 2,048 + 128 tokens).

The table does not state its prompt and output lengths; with these, both its mean and its peak rates match.
"""

GX10_VANILLA = EngineProfile(
    name="spark-arena-vanilla",
    model=MODEL,
    cost=GX10_PATCHED.cost,
    max_model_len=GX10_PATCHED.max_model_len,
    max_num_seqs=GX10_PATCHED.max_num_seqs,
    max_num_batched_tokens=GX10_PATCHED.max_num_batched_tokens,
    kv_blocks=GX10_PATCHED.kv_blocks,
    capture_sizes=CAPTURE_SIZES_DEFAULT,
    jitter=GX10_PATCHED.jitter,
)
"""The same with the default list: a batch of 5 runs as 8, one of 10 as 16."""

LONG_CONTEXT = EngineProfile(
    name="long-context",
    model=MODEL,
    cost=StepCost(
        weights_one_s=0.0315,
        weights_exponent=0.345,
        weights_all_s=0.113,
        row_s=0.000108,
        context_token_s=CONTEXT_TOKEN_S,
        attention_pair_s=0.000000003,
    ),
    max_model_len=131_072,
    max_num_seqs=512,
    max_num_batched_tokens=8192,
    kv_blocks=KV_BLOCKS,
    jitter=0.02,
)
"""One DGX Spark with vLLM 25.09 after tuning (spark-dgx-benchmark: batch scaling and long context).

Its recipe has --max-num-seqs 512 and --max-model-len 64000; the other recipes serve 131,072, as here.
"""

SHORT_CONTEXT = EngineProfile(
    name="short-context",
    model=MODEL,
    cost=LONG_CONTEXT.cost,
    max_model_len=20_480,
    max_num_seqs=LONG_CONTEXT.max_num_seqs,
    max_num_batched_tokens=LONG_CONTEXT.max_num_batched_tokens,
    kv_blocks=LONG_CONTEXT.kv_blocks,
    jitter=LONG_CONTEXT.jitter,
)
"""The same before tuning: "max stable context 20k", and 40k failed (spark-dgx-benchmark)."""

PROFILES = {
    profile.name: profile
    for profile in (SOLO, CLUSTER_TP2, GX10_PATCHED, GX10_VANILLA, LONG_CONTEXT, SHORT_CONTEXT)
}
"""Engine profiles by the name of the reference target."""

HOP_S = 0.002
"""Seconds from LiteLLM's choice until its count shows it, a hop to a thread: an assumption, short beside a
step."""
HOPS_PER_SPREAD = 1.5
"""The hop, in units of the mean delay of a burst's requests: fitted to the least-busy column."""

LITELLM = RouterSettings(increment_lag_s=HOP_S)
"""A warm LiteLLM of one process, without errors."""
BURST = ProxyHabits(arrival_spread_s=HOP_S / HOPS_PER_SPREAD)
"""How a benchmark's burst reaches the router."""
