"""The limit that the store names for simulated servers that are held back by one known cause."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import limits

from sparktop.model.snapshot import LimitKind

SEED = 3
"""The balance of its router is judged soon."""


@pytest.mark.long
@pytest.mark.parametrize("kind", limits.FAMILIES)
def test_the_limit_that_a_server_was_built_with_is_named(kind: LimitKind) -> None:
    """The built-in limit is named, for engines that the rules were not tuned with."""
    word, line = limits.run(kind, limits.Family(SEED, held_out=True), SEED)
    assert word == kind.value, line


@pytest.mark.long
@pytest.mark.parametrize("kind", list(limits.FAMILIES)[::3])
def test_without_a_view_of_the_machines_no_other_limit_is_named(kind: LimitKind) -> None:
    """Without a view of the machines the limit is named or unknown, but never another one."""
    word, line = limits.run(kind, limits.Family(2, held_out=False), 2, blind=True)
    assert word in {kind.value, LimitKind.UNKNOWN.value}, line
