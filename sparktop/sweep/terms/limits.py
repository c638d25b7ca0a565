"""Largest and smallest values that a user may request for a sweep, on the command line and in the editor."""

from __future__ import annotations

MOST_CONCURRENCY = 65_536
MOST_TOKENS = 10_000_000
"""Maximum tokens of a prompt or of an answer; also the maximum number of requests of a level."""
MOST_RUNS = 1000
LEAST_S = 0.1
"""Minimum duration of a level in seconds."""
MOST_S = 86_400.0
ERROR_SHARE = 0.01
"""Share of failed requests above which a level counts as failed, unless the user says otherwise."""
