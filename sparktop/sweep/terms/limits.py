"""Bounds of what a sweep may be asked to do, for the command line and the editor on the screen."""

from __future__ import annotations

MOST_CONCURRENCY = 65_536
MOST_TOKENS = 10_000_000
"""Maximum tokens of a prompt or of an answer; also the maximum number of requests of a level."""
MOST_RUNS = 1000
LEAST_S = 0.1
"""Minimum duration of a level in seconds."""
MOST_S = 86_400.0
