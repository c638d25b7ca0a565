"""Measured figures of gpt-oss-120b, with which the simulation is compared.

`TOPOLOGIES`: two DGX Sparks, llama-benchy 0.3.5, 1,024 + 128 tokens, 50 runs per level, March 2026.
`LONG_PROMPTS`, `BATCH_SCALING`: one DGX Spark with vLLM 25.09, one request and batches of 105 + 256 tokens.
`CONCURRENCY_FIRST`: one GX10 with captured graphs for 5 and 10, and the figures of others without those.
"""

from __future__ import annotations

CONCURRENCY = (1, 2, 4, 8, 16, 32, 64)

TOPOLOGIES: dict[str, dict[str, tuple[float, ...]]] = {
    "solo": {
        "decode_tps": (57.5, 78.4, 107.9, 153.5, 218.5, 318.7, 315.2),
        "prefill_tps": (2926, 3684, 4540, 5905, 6858, 6827, 2753),
        "ttft_ms": (369, 570, 898, 1385, 2384, 4768, 10874),
    },
    "cluster-tp2": {
        "decode_tps": (69.0, 104.1, 155.3, 231.0, 342.1, 471.7, 471.8),
        "prefill_tps": (4442, 5428, 6343, 7965, 8816, 8966, 3873),
        "ttft_ms": (251, 381, 640, 1020, 1855, 3642, 8032),
    },
    "simple-shuffle": {
        "decode_tps": (57.7, 99.4, 127.9, 177.5, 268.6, 382.1, 567.9),
        "prefill_tps": (2922, 4669, 5578, 7483, 10072, 11741, 12064),
        "ttft_ms": (370, 459, 675, 1005, 1495, 2551, 4940),
    },
    "least-busy": {
        "decode_tps": (57.5, 87.7, 122.3, 162.5, 238.5, 333.2, 338.4),
        "prefill_tps": (3074, 4074, 5299, 6579, 8886, 9753, 4982),
        "ttft_ms": (364, 526, 735, 1232, 1690, 3303, 7360),
    },
}
"""One value per level of `CONCURRENCY`."""

CONCURRENCY_FIRST: dict[str, dict[int, dict[str, float]]] = {
    "gx10-patched": {
        1: {"decode_tps": 60.4, "prefill_tps": 5115, "peak_tps": 60.4},
        2: {"decode_tps": 80.3, "prefill_tps": 5317, "peak_tps": 84},
        4: {"decode_tps": 107.2, "prefill_tps": 5935, "peak_tps": 121},
        5: {"decode_tps": 118.7, "prefill_tps": 6297, "peak_tps": 128},
        8: {"decode_tps": 141.9, "prefill_tps": 6518, "peak_tps": 173},
        10: {"decode_tps": 160.5, "prefill_tps": 6721, "peak_tps": 192},
        16: {"decode_tps": 181.2, "prefill_tps": 6846, "peak_tps": 272},
        32: {"decode_tps": 202, "prefill_tps": 6732, "peak_tps": 384},
        64: {"decode_tps": 229.2, "prefill_tps": 6998, "peak_tps": 568},
        128: {"decode_tps": 271, "prefill_tps": 7034, "peak_tps": 768},
        256: {"decode_tps": 285.8, "prefill_tps": 5391, "peak_tps": 1024},
    },
    "spark-arena-vanilla": {5: {"decode_tps": 81.1}, 10: {"decode_tps": 104.3}},
}
"""Figures by target and concurrency."""

LONG_PROMPTS: dict[int, dict[str, float]] = {
    4978: {"e2e_ms": 7237, "output_tps": 28.3},
    19_570: {"e2e_ms": 8773, "output_tps": 18.8},
    39_026: {"e2e_ms": 14_702, "output_tps": 14.1},
}
"""Figures by prompt tokens. Their product is the generated tokens: the rate is over the whole request."""

BATCH_SCALING = {1: 31.6, 2: 55.0, 4: 83.9, 8: 127.0, 16: 183.4}
"""Tokens per second by concurrency."""
