"""A value that the test knows to be there."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """Return a value that is not None; fail the test if it is."""
    assert value is not None
    return value
