"""How much a sweep may be asked for, whoever asks: the command line or the screen."""

from __future__ import annotations

MOST_CONCURRENCY = 65_536
MOST_TOKENS = 10_000_000
"""Of a prompt or an answer; of the requests of a level too."""
MOST_RUNS = 1000
LEAST_S = 0.1
"""Of a level."""
MOST_S = 86_400.0
