# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on the values that MRC headers carry: PSNs, EVs, timestamps, SACK bitmaps."""

from __future__ import annotations

from collections.abc import Iterable

from mrc.headers import Seth
from mrc.layout import WireError
from mrc.opcodes import PSN_MODULUS
from mrc.options import DEFAULT_OPTIONS, WireOptions

TIMESTAMP_UNIT_NS = 128  # at tsr = 0; 16 bits wrap after 8.39 ms
SACK_BITMAP_BITS = 64


def psn_add(psn: int, distance: int) -> int:
    """`psn + distance` in 24-bit arithmetic; `distance` may be negative."""
    return (psn + distance) % PSN_MODULUS


def psn_distance(later: int, earlier: int) -> int:
    """How far `later` lies after `earlier`, in -2^23..2^23 - 1 (the nearer way round)."""
    return (later - earlier + PSN_MODULUS // 2) % PSN_MODULUS - PSN_MODULUS // 2


def entropy(flow_label: int, source_port: int, options: WireOptions = DEFAULT_OPTIONS) -> int:
    """The 32-bit EV that a packet's inner flow label (low 16 bits) and UDP source port name."""
    label = flow_label & 0xFFFF
    if options.entropy_port_first:
        return source_port << 16 | label
    return label << 16 | source_port


def split_entropy(ev: int, options: WireOptions = DEFAULT_OPTIONS) -> tuple[int, int]:
    """(low 16 bits of the flow label, UDP source port) of a 32-bit EV."""
    high, low = ev >> 16, ev & 0xFFFF
    return (low, high) if options.entropy_port_first else (high, low)


def timestamp(now_ns: int) -> int:
    """The 16-bit timestamp (tsr = 0) of a monotonic clock reading in nanoseconds."""
    return now_ns // TIMESTAMP_UNIT_NS & 0xFFFF


def timestamp_unit_ns(tsr: int, options: WireOptions = DEFAULT_OPTIONS) -> int:
    """Nanoseconds per timestamp unit for the `tsr` bit that came with it."""
    return options.tsr1_unit_ns if tsr else TIMESTAMP_UNIT_NS


def sacked_psns(seth: Seth, options: WireOptions = DEFAULT_OPTIONS) -> list[int]:
    """PSNs that a SACK's bitmap reports as received, in PSN order from its base."""
    base = psn_add(seth.cack_psn, seth.sack_offset)
    bitmap = ordered_bitmap(seth.sack_bitmap, options)
    return [psn_add(base, step) for step in range(SACK_BITMAP_BITS) if bitmap >> step & 1]


def ordered_bitmap(bitmap: int, options: WireOptions = DEFAULT_OPTIONS) -> int:
    """A SACK's bitmap between its order on the wire and "bit i is base + i", either way."""
    if options.sack_bitmap_msb_first:
        return int(f"{bitmap:0{SACK_BITMAP_BITS}b}"[::-1], 2)
    return bitmap


def sack_bitmap(base: int, psns: Iterable[int], options: WireOptions = DEFAULT_OPTIONS) -> int:
    """The 64-bit bitmap that reports `psns`, all within `base`..`base + 63` (24-bit)."""
    bitmap = 0
    for psn in psns:
        step = psn_distance(psn, base)
        if not 0 <= step < SACK_BITMAP_BITS:
            raise WireError(
                f"PSN {psn} is not in the bitmap's range, which is {base}.."
                f"{psn_add(base, SACK_BITMAP_BITS - 1)} (24-bit)"
            )
        bitmap |= 1 << step
    return ordered_bitmap(bitmap, options)
