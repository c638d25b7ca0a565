"""Values are frozen: what a panel or report was given cannot change under it, and a key stays a key."""

from __future__ import annotations

import pytest

from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.targets import NodeTarget


def test_a_value_cannot_be_changed() -> None:
    """Assigning to a field raises, so that the hash of a key never changes."""
    point = LoadPoint(LoadKind.RATE, 2.0)
    with pytest.raises(AttributeError, match="immutable"):
        point.value = 3.0  # type: ignore[misc]  # it is to fail
    assert {point: 1}[LoadPoint(LoadKind.RATE, 2.0)] == 1


def test_secrets_are_not_in_the_text() -> None:
    """A value's text reaches logs and tracebacks; keys and tokens are not in it."""
    text = repr(NodeTarget("spark-a", token="not-for-logs"))  # noqa: S106 - not a password
    assert "spark-a" in text
    assert "not-for-logs" not in text
