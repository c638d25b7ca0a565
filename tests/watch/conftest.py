"""Servers and a clock, as the tests of sources have them."""

from __future__ import annotations

from tests.sources import conftest as sources

serve = sources.serve
"""The fixture that starts a server of raw answers, here as in the tests of sources."""
clock = sources.clock
"""The fixture of a clock that a test moves."""
