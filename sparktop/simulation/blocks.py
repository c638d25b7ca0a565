"""A KV cache in blocks: their allocation, and a prefix cache of released blocks.

A block whose tokens have a hash can be shared: requests with the same beginning hold it together. A released
block stays cached, but counts as free. If no empty block is left, the cached block that has been unused
longest is emptied and reused, as in vLLM's block pool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class BlockPool:
    """The blocks of one engine's KV cache.

    Each block is empty, held by one or several requests, or kept (cached, but held by no request).
    """

    def __init__(self, capacity: int) -> None:
        """Create a pool of `capacity` empty blocks."""
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
        """Return how many of the first blocks in `hashes` are in the cache.

        Blocks are counted up to the first one that no request holds and that is not cached either.
        """
        count = 0
        for block in hashes:
            if block not in self._holders and block not in self._kept:
                break
            count += 1
        return count

    def kept_among(self, hashes: Sequence[int]) -> int:
        """Return how many of the blocks in `hashes` are cached without a request that holds them.

        Such blocks count as available until a request holds them.
        """
        return sum(block in self._kept for block in hashes)

    def hold(self, hashes: Sequence[int]) -> None:
        """Add a holder to each block in `hashes`; each must be cached or held already (see `match`)."""
        for block in hashes:
            if block in self._kept:
                del self._kept[block]
                self._holders[block] = 1
            else:
                self._holders[block] += 1

    def allocate(self, count: int) -> None:
        """Allocate `count` blocks without a hash.

        If too few blocks are empty, reuse cached blocks, those that were unused longest first.

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
        """Assign the hash `block` to an allocated block, so that other requests find it; return True.

        If another block has this hash already, do nothing and return False.
        """
        if block in self._holders or block in self._kept:
            return False
        self._holders[block] = 1
        return True

    def release(self, anonymous: int, hashes: Sequence[int] = ()) -> None:
        """Release `anonymous` blocks that have no hash, and remove one holder of each block in `hashes`.

        Blocks without a hash become empty; a block with a hash is cached once it has no holder. The last
        block of a prefix will be reused before the earlier blocks, because without them it is useless.
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
        """Make all cached blocks without a holder empty, as on a reset of the prefix cache."""
        self._empty += len(self._kept)
        self._kept.clear()
