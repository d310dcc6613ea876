# SPDX-License-Identifier: Apache-2.0
"""What both programs hash flows with: CRC-32 over their fields, packed without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32


def crc32_of(fields: Sequence[tuple[int, int]]) -> int:
    """CRC-32 of fields (value, width in bits), the first in the highest bits, zeros at the end."""
    packed, width = 0, 0
    for value, bits in fields:
        packed, width = packed << bits | value, width + bits
    return crc32((packed << -width % 8).to_bytes((width + 7) // 8, "big"))
