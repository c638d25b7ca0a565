"""JSON of which one part is anything."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st


def keys(holder: Any) -> list[Any]:  # noqa: ANN401 - it may be any JSON
    """Return the keys or places of an object or a list."""
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def change(told: Any, data: st.DataObject, values: st.SearchStrategy[Any], most_depth: int) -> None:  # noqa: ANN401 - as above
    """Replace a drawn part of `told`, at most so many levels below its own."""
    holder = told
    for _ in range(data.draw(st.integers(0, most_depth))):
        inner = [key for key in keys(holder) if isinstance(holder[key], dict | list) and holder[key]]
        if not inner:
            break
        holder = holder[data.draw(st.sampled_from(inner))]
    if found := keys(holder):
        # A copy: the next change may be inside of it.
        holder[data.draw(st.sampled_from(found))] = deepcopy(data.draw(values))
