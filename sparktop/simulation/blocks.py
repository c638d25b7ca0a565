"""A KV cache in blocks: allocation, and blocks that are kept because a prefix may come again.

A block whose tokens have a hash can be shared: requests with the same beginning hold it together. When nobody
holds it any more it stays, counts as free, and is taken for something else only when no empty block is left,
the longest unused first (as vLLM's block pool does).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class BlockPool:
    """The blocks of one engine; every method keeps empty + kept + held equal to the capacity."""

    def __init__(self, capacity: int) -> None:
        """Start with all blocks empty."""
        self.capacity = capacity
        self._empty = capacity
        self._holders: dict[int, int] = {}
        """How many requests hold the block with a hash."""
        self._kept: OrderedDict[int, None] = OrderedDict()
        """Hashes of blocks that nobody holds, longest unused first."""

    @property
    def available(self) -> int:
        """Blocks that can be allocated now."""
        return self._empty + len(self._kept)

    @property
    def held(self) -> int:
        """Blocks that requests hold, each counted once."""
        return self.capacity - self.available

    def match(self, hashes: Sequence[int]) -> int:
        """Give how many of these blocks, from the first on, are there."""
        count = 0
        for block in hashes:
            if block not in self._holders and block not in self._kept:
                break
            count += 1
        return count

    def kept_among(self, hashes: Sequence[int]) -> int:
        """Give how many of these blocks nobody holds: holding them takes that many from `available`."""
        return sum(block in self._kept for block in hashes)

    def hold(self, hashes: Sequence[int]) -> None:
        """Hold blocks that `match` has found."""
        for block in hashes:
            if block in self._kept:
                del self._kept[block]
                self._holders[block] = 1
            else:
                self._holders[block] += 1

    def allocate(self, count: int) -> None:
        """Take blocks without a hash; ValueError when there are not enough."""
        if count > self.available:
            raise ValueError(f"{count} blocks wanted, {self.available} available")
        taken = min(count, self._empty)
        self._empty -= taken
        for _ in range(count - taken):
            self._kept.popitem(last=False)

    def name(self, block: int) -> bool:
        """Give a held block its hash, so that others find it; False when that hash is already there."""
        if block in self._holders or block in self._kept:
            return False
        self._holders[block] = 1
        return True

    def release(self, anonymous: int, hashes: Sequence[int] = ()) -> None:
        """Give up blocks: those without a hash are empty, the others are kept once nobody holds them.

        The last block of a prefix is the first to be taken again: without the ones before it it is of no use.
        """
        self._empty += anonymous
        for block in reversed(hashes):
            holders = self._holders[block] - 1
            if holders:
                self._holders[block] = holders
            else:
                del self._holders[block]
                self._kept[block] = None

    def forget(self) -> None:
        """Drop every kept block (a reset prefix cache)."""
        self._empty += len(self._kept)
        self._kept.clear()
