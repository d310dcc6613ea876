# SPDX-License-Identifier: Apache-2.0
"""Test data that sender and checker make from a seed, each on its own.

Block k of the data (64 KiB) is the SHAKE-128 output for seed and k, so any part of a message of
any length is made without the parts before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

BLOCK_BYTES = 1 << 16
MAX_SEED = (1 << 64) - 1


class Pattern:
    """The data of one seed. Keeps the block that was read last, as readers go forwards."""

    def __init__(self, seed: int) -> None:
        if not 0 <= seed <= MAX_SEED:
            raise ValueError(f"seed {seed}: allowed are 0..{MAX_SEED}")
        self._seed = seed.to_bytes(8, "big")
        self._number = -1
        self._block = memoryview(b"")

    def block(self, number: int) -> memoryview:
        """Block `number`, whole."""
        if number != self._number:
            key = self._seed + number.to_bytes(8, "big")
            self._block = memoryview(hashlib.shake_128(key).digest(BLOCK_BYTES))
            self._number = number
        return self._block

    def read(self, offset: int, length: int) -> memoryview | bytes:
        """`length` bytes from byte `offset` on."""
        number, start = divmod(offset, BLOCK_BYTES)
        if start + length <= BLOCK_BYTES:
            return self.block(number)[start : start + length]
        first = bytes(self.block(number)[start:])
        return first + bytes(self.read(offset + len(first), length - len(first)))

    def blocks(self, length: int) -> Iterator[memoryview]:
        """The first `length` bytes, block by block; the last one cut."""
        for number in range(-(-length // BLOCK_BYTES)):
            yield self.block(number)[: length - number * BLOCK_BYTES]


def pattern_sha256(seed: int, length: int) -> str:
    """SHA-256, in hex, of the first `length` bytes of the data of `seed`."""
    digest = hashlib.sha256()
    for block in Pattern(seed).blocks(length):
        digest.update(block)
    return digest.hexdigest()
