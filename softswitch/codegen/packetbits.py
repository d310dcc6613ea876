# SPDX-License-Identifier: Apache-2.0
"""Bits of the packet that the parser has not consumed, as C expressions."""

from __future__ import annotations

from softswitch.bmjson import Lookahead
from softswitch.codegen.names import c_type, literal, mask_of


def read_bits(data: str, offset: int, width: int) -> str:
    """C code of `width` bits that start `offset` bits behind the byte `data`.

    Over 128 bits it is of type `c_type(width)`.
    """
    if width == 0:
        return "0ull"
    if width > 128:
        return f"{c_type(width)}_get({data}, {offset}, {width})"
    first, last = offset // 8, (offset + width - 1) // 8
    count = last - first + 1
    if count > 16:
        high = read_bits(data, offset, width - 64)
        return f"((ss_u128){high} << 64 | {read_bits(data, offset + width - 64, 64)})"
    load = f"ss_get({data} + {first}, {count})"
    if count <= 8:
        load = f"(uint64_t){load}"
    drop = 8 * (last + 1) - (offset + width)
    shifted = f"({load} >> {drop})" if drop else load
    if width == 8 * count - drop:
        return shifted
    return f"({shifted} & {literal(mask_of(width))})"


def lookahead_guard(value: Lookahead, too_short: str) -> str:
    """Does `too_short` when the packet ends before the last bit that is looked at."""
    return f"if (left < {(value.offset + value.width + 7) // 8}) {too_short}"
