"""Histograms, as the tests of the store make them."""

from __future__ import annotations

from tests.store import conftest as store

make_histogram = store.make_histogram
"""The fixture that makes a histogram of seconds, here as in the tests of the store."""
