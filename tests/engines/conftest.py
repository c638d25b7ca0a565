"""Pages to read, and a second reader to hold ours against."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

_DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """Where the pages are.

    `vllm-0.32` are pages of a real server as they came. `vllm-0.32-modes` are pages of real servers with two
    engines or two API servers, cut down to the lines of interest. `vllm-names` are written by hand: one for
    each generation of names, with numbers that differ wherever two names could be mistaken for each other.
    The pages of other engines are written by hand too; their first lines say after what.
    """
    return _DATA


@pytest.fixture(scope="session")
def page(data: Path) -> Callable[[str], bytes]:
    """The bytes of a page by its path below the data."""
    return lambda path: (data / path).read_bytes()


@pytest.fixture(scope="session")
def oracle() -> Callable[[bytes], Samples]:
    """Every sample of a page as prometheus_client reads it; of a repeated one the last."""

    def read(body: bytes) -> Samples:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
            for family in text_string_to_metric_families(body.decode("utf-8", "surrogateescape"))
            for sample in family.samples
        }

    return read
