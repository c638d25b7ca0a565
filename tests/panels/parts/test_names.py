"""Names in a column stay distinct however they are cut, and as wide as the column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.graphics.cells import cell_width, fit_name
from sparktop.panels.parts.text import fitted_names


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("10.0.0.17:8000", "10.0.0.18:8000"), ("…17:8000", "…18:8000")),
        (("10.0.0.17:8000", "10.0.0.18:8000", "spark-1"), ("…17:8000", "…18:8000", "spark-1")),
        (("10.0.0.17:8000", "10.0.0.117:8000"), ("…17…", "…117…")),
        (("127.0.0.1:35081", "127.0.0.1:40911"), ("…1:35081", "…1:40911")),
        (("vllm-llama-a", "vllm-llama-b"), ("…llama-a", "…llama-b")),
        (("a-far-too-long-name", "short"), ("a-far-t…", "short")),
        (("spark-a@before", "spark-a@after"), ("a@before", "-a@after")),
    ],
)
def test_names_that_do_not_fit_are_cut_where_they_are_alike(
    names: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    """What all begin with goes first; a number is never cut, and a name alone loses its end as before."""
    assert tuple(fitted_names(names, 8)[name].rstrip() for name in names) == shown


@given(st.lists(st.integers(10000, 65535), min_size=1, max_size=90, unique=True), st.integers(8, 30))
def test_instances_of_one_machine_stay_distinct(ports: list[int], width: int) -> None:
    """Servers that differ in their port alone have a name each, from 8 cells on."""
    names = tuple(f"127.0.0.1:{port}" for port in ports)
    assert len(set(fitted_names(names, width).values())) == len(ports)


@given(st.lists(st.text(max_size=20), max_size=8, unique=True), st.integers(0, 12))
def test_every_name_has_the_width_of_the_column(names: list[str], width: int) -> None:
    """Wide characters and empty names included; names are never less distinct than when cut one by one."""
    found = fitted_names(tuple(names), width)
    assert all(cell_width(text) == width for text in found.values())
    assert len(set(found.values())) >= len({fit_name(name, width) for name in names})
