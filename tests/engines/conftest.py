"""Metrics pages, and a second parser to compare with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparktop.engines import read_page
from sparktop.model.engine import EngineSample

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

_DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of the pages.

    `vllm-0.32` has pages of a real server, unchanged. `vllm-0.32-modes` has pages of real servers with two
    engines or two API servers, cut down to the lines of interest. `vllm-names` has handwritten pages: one for
    each generation of names, with different numbers wherever two names could be confused. Pages of other
    engines are handwritten too; their first lines name the source.
    """
    return _DATA


@pytest.fixture(scope="session")
def page(data: Path) -> Callable[[str], bytes]:
    """Return a function that reads a page by its path below the data."""
    return lambda path: (data / path).read_bytes()


@pytest.fixture
def read(page: Callable[[str], bytes]) -> Callable[[str], EngineSample]:
    """Return a function that reads a page by its path as of a server."""
    return lambda path: read_page(page(path), at=12.5, answer_ms=3.25)


@pytest.fixture(scope="session")
def oracle() -> Callable[[bytes], Samples]:
    """Return a function that parses a page with prometheus_client; of a repeated sample it keeps the last."""

    def read(body: bytes) -> Samples:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
            for family in text_string_to_metric_families(body.decode("utf-8", "surrogateescape"))
            for sample in family.samples
        }

    return read
