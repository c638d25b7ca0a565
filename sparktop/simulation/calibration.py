"""Calibration of the simulated engines: every number that sets their speed, and its source.

The published reference tables (`sparktop/references/`) give decode rate, prefill rate and TTFT of bursts of c
simultaneous requests. Topology table: one engine ("solo"), two machines as one engine ("TP = 2"), and two
solo engines behind LiteLLM with the strategies simple-shuffle ("shuffle") and least-busy. Concurrency-first
table: one engine with the recipe of `GX10_PATCHED`. Long-context table: one engine, `LONG_CONTEXT`. The speed
of an engine is four numbers of `StepCost`, fitted to all values of a table at once; the other two come from
the model's architecture and from a third table. `tests/simulation/test_calibration.py` holds figures of each.

What the fit assumes, with the evidence in the tables:

* The first tokens of a burst are generated in one step: TTFT = prompt tokens x c / prefill rate holds to
  1.3 % at c = 2 to 32 in the topology table. So a step computes all prompts there, and
  `max_num_batched_tokens` is 65,536. The concurrency-first recipe states its own 8,192.
* `SLOTS` = 48 explains c = 64 of solo and of TP = 2, in all six values, to 8 %: 48 requests run, 16 wait for
  them. With 32 slots, which the plateau from c = 32 on suggests, solo's decode rate would be 14 % too low and
  its TTFT 24 % too high. The shuffle column also rules out 32 slots: the simulated prefill rate at c = 64 is
  12,586 tokens/s with 48 slots (table: 12,064), but 4,947 with 32, because in nearly every run some request
  then waits for a slot. From 44 slots on this value does not depend on their number, so the column does not
  select 48; the least-busy column does, see below. The standard deviation of shuffle's decode rate is met
  too: 34 tokens/s at c = 32 (table: 33.7), 40 at c = 64 (48.0).
* The weights that a step reads grow as rows ^ 0.41 to rows ^ 0.47 until all are read. gpt-oss-120b chooses 4
  of 128 experts for a token; if the choices were independent, 32 rows would read 20 times as much as one row,
  but the tables show 5 times as much.
* Solo reads all experts, 61 GB, in 0.23 s: 265 GB/s of the GB10's 273 GB/s.
* The concurrency-first table does not state its prompt and answer lengths. With 2,048 + 128 tokens and chunks
  of 8,192, one step time reproduces both its mean and its peak rates within 10 %, at c = 1 to 64.

For two solo engines behind a router, one more number is fitted, `HOPS_PER_SPREAD`, to the 18 values of the
least-busy column at c = 2 to 64. The mechanism is burst herding. The requests of a burst reach the router one
by one over some time (the spread), and the router's count of a backend rises only a delay (the hop) after it
chose this backend. So all requests that arrive within the first hop go to the first backend, later ones to
the other. With exponential delays, the part of the burst that goes to the first backend depends mainly on
hop / spread, hardly on c: a ratio of 1.5 sends 78 % of a burst of 64 to one backend. The root mean square
difference to the column is 7 % with 48 slots; with the best ratio for each number of slots, it is 8 % with 44
and with 52, 11 to 13 % with 40 and with 56.

What the model does not reproduce, and was not adjusted for:

* Prefill of the topology table is not linear: the model is 9 % too fast at c = 4 and 7 % too slow at c = 16.
* The peak of the concurrency-first table at c = 128 is 17 % too high here. Its fall at c = 256 is within 8 %
  only because `KV_BLOCKS` holds fewer than 256 such requests; that number is an assumption.
* The concurrency-first fit reads all weights in 0.113 s, half of what 61 GB take at 273 GB/s: this number
  fits, but has no physical meaning. Prefill at c = 1 and 2 needs it; c = 128 would need twice as much.
* Shuffle at c = 4 to 32 (300 runs): simulated random routing decodes 4 to 11 % faster than the table states;
  at c = 4 and 8, its prefill is 14 % faster and its TTFT 8 to 11 % shorter. The error of the solo engine, 6
  to 7 % of the decode rate, is a part of this.
* Least-busy at c = 32 decodes 10 % too slowly, with half the table's standard deviation: 29 tokens/s (57).
* The tables do not state what the router did. Burst herding yields the least-busy column with one number;
  other causes, such as errors with cooldowns or counters that drifted, cannot be excluded.
* Only the ratio of hop to spread follows from the table. `HOP_S` itself is an assumption: short compared to a
  step.
* The long-context table counts its tokens over the whole request: tokens per second times latency gives 205,
  165 and 207 tokens at 4,978, 19,570 and 39,026 prompt tokens. With the batch table's step of 31.6 ms at
  c = 1, what is left for prefill grows from 0.13 to 0.18 ms a token: a linear plus a quadratic term.
  `LONG_CONTEXT` reproduces both within 2 %; beyond 39,026 tokens nothing was measured, and its formula is
  extrapolated.
* Padding explains a dip of the decode rate by 15 to 18 % at c = 5 and 10. The recipe's text states 17 to
  25 %; its table, which compares with another person's machine, 32 to 35 %.
"""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.simulation.engine import EngineProfile, StepCost

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

CAPTURE_SIZES_DEFAULT = (1, 2, 4, *range(8, 257, 8), *range(272, 1025, 16))
"""The 83 batch sizes for which the recipe without a list of its own captures CUDA graphs."""
CAPTURE_SIZES_PATCHED = tuple(sorted({*CAPTURE_SIZES_DEFAULT, 5, 10}))

SOLO = EngineProfile(
    name="solo",
    model=MODEL,
    cost=StepCost(
        one_row_bytes=BYTES_PER_TOKEN_GB * 1e9,
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

CLUSTER_TP2 = replace(
    SOLO,
    name="cluster-tp2",
    cost=StepCost(
        one_row_bytes=BYTES_PER_TOKEN_GB * 1e9 / 2,
        weights_one_s=0.0141,
        weights_exponent=0.412,
        weights_all_s=0.133,
        row_s=0.000109,
        context_token_s=CONTEXT_TOKEN_S / 2,
        attention_pair_s=ATTENTION_PAIR_S / 2,
    ),
    kv_blocks=2 * KV_BLOCKS,
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
        one_row_bytes=BYTES_PER_TOKEN_GB * 1e9,
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

GX10_VANILLA = replace(GX10_PATCHED, name="spark-arena-vanilla", capture_sizes=CAPTURE_SIZES_DEFAULT)
"""As `GX10_PATCHED`, but with the default capture sizes: a batch of 5 runs as 8, one of 10 as 16."""

LONG_CONTEXT = EngineProfile(
    name="long-context",
    model=MODEL,
    cost=StepCost(
        one_row_bytes=BYTES_PER_TOKEN_GB * 1e9,
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

SHORT_CONTEXT = replace(LONG_CONTEXT, name="short-context", max_model_len=20_480)
"""As `LONG_CONTEXT`, but before tuning: "max stable context 20k", and 40k failed (spark-dgx-benchmark)."""

HOP_S = 0.002
"""Seconds from LiteLLM's choice until its count shows it, a hop to a thread: an assumption, short beside a
step."""
HOPS_PER_SPREAD = 1.5
"""`HOP_S` divided by the mean delay with which a burst's requests reach the router: fitted to the
least-busy column."""
