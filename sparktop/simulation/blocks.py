"""A KV cache in blocks: allocation, and a prefix cache of released blocks.

A block whose tokens have a hash can be shared: requests with the same beginning hold it together. A released
block stays cached and counts as free; it is reused only when no empty block is left, the longest unused
first, as in vLLM's block pool.
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
        """Number of requests that hold a block, by the block's hash."""
        self._kept: OrderedDict[int, None] = OrderedDict()
        """Hashes of cached blocks without a holder, longest unused first."""

    @property
    def available(self) -> int:
        """Number of blocks that can be allocated now."""
        return self._empty + len(self._kept)

    @property
    def held(self) -> int:
        """Number of blocks held by requests, shared ones counted once."""
        return self.capacity - self.available

    def match(self, hashes: Sequence[int]) -> int:
        """Return how many of these blocks, counted from the first, are cached or held."""
        count = 0
        for block in hashes:
            if block not in self._holders and block not in self._kept:
                break
            count += 1
        return count

    def kept_among(self, hashes: Sequence[int]) -> int:
        """Return how many of these blocks have no holder, so that holding them reduces `available`."""
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
        """Allocate `count` blocks without a hash.

        Raises:
            ValueError: fewer blocks are available.
        """
        if count > self.available:
            raise ValueError(f"{count} blocks wanted, {self.available} available")
        taken = min(count, self._empty)
        self._empty -= taken
        for _ in range(count - taken):
            self._kept.popitem(last=False)

    def name(self, block: int) -> bool:
        """Assign its hash to a held block, so that others find it.

        Return False if that hash already exists.
        """
        if block in self._holders or block in self._kept:
            return False
        self._holders[block] = 1
        return True

    def release(self, anonymous: int, hashes: Sequence[int] = ()) -> None:
        """Release blocks: those without a hash become empty, the others are cached once they have no holder.

        The last block of a prefix is reused first, because it is worthless without the preceding ones.
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
        """Drop all cached blocks, as on a reset of the prefix cache."""
        self._empty += len(self._kept)
        self._kept.clear()
