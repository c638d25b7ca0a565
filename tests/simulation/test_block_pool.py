"""The pool of KV blocks: nothing is lost, nothing is given twice, prefixes are found again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.simulation.engine import BlockPool


def test_a_released_prefix_is_found_and_shared() -> None:
    """Two requests that hold the same kept blocks hold them once."""
    pool = BlockPool(8)
    pool.allocate(3)
    assert [pool.name(block) for block in (1, 2, 3)] == [True, True, True]
    pool.release(0, [1, 2, 3])
    assert (pool.available, pool.held) == (8, 0)
    assert pool.match([1, 2, 9]) == 2
    pool.hold([1, 2])
    pool.hold([1, 2])
    assert (pool.available, pool.held) == (6, 2)
    pool.release(0, [1, 2])
    assert pool.held == 2
    pool.release(0, [1, 2])
    assert (pool.available, pool.held) == (8, 0)


@given(
    script=st.lists(
        st.tuples(st.integers(0, 6), st.lists(st.integers(0, 9), unique=True, max_size=4)), max_size=40
    )
)
@settings(max_examples=60, deadline=None)
def test_blocks_are_conserved(script: list[tuple[int, list[int]]]) -> None:
    """Whatever requests hold, name and give up, what is available and held is what there is."""
    pool = BlockPool(12)
    holders: list[tuple[int, list[int]]] = []
    for anonymous, hashes in script:
        found = hashes[: pool.match(hashes)]
        if anonymous + pool.kept_among(found) > pool.available:
            if holders:
                pool.release(*holders.pop(0))
            continue
        pool.hold(found)
        pool.allocate(anonymous)
        fresh = [block for block in hashes[len(found) :][:anonymous] if pool.name(block)]
        holders.append((anonymous - len(fresh), found + fresh))
        distinct = {block for _, named in holders for block in named}
        assert pool.held == sum(own for own, _ in holders) + len(distinct)
        assert 0 <= pool.available <= pool.capacity
    for own, named in holders:
        pool.release(own, named)
    assert pool.held == 0
