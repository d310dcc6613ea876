# SPDX-License-Identifier: Apache-2.0
"""Reading the uSIDs of a carrier address, for people (architecture.md, "Addressing").

A carrier is `block(32) | up to six uSIDs of 16 bits`; a uSID is `kind(3) | plane(3) | index(10)`.
"""

from __future__ import annotations

import ipaddress

DEFAULT_BLOCK = ipaddress.IPv6Network("fcbb:bb00::/32")
BLOCK_BITS = 32
USID_BITS = 16
USID_SLOTS = 6

KIND_T0, KIND_T1, KIND_DOWNLINK, KIND_LOCAL = 1, 2, 3, 7
LOCAL_UA, LOCAL_DT6 = 0, 7


def parse_block(text: str) -> ipaddress.IPv6Network:
    """A locator block such as `fcbb:bb00::/32`; ValueError when it is not an IPv6 /32."""
    block = ipaddress.IPv6Network(text)
    if block.prefixlen != BLOCK_BITS:
        raise ValueError(f"locator block {text}: must be a /{BLOCK_BITS}, got /{block.prefixlen}")
    return block


def in_block(address: bytes, block: ipaddress.IPv6Network = DEFAULT_BLOCK) -> bool:
    """Whether the 16-byte address lies in the locator block."""
    return address[: BLOCK_BITS // 8] == block.network_address.packed[: BLOCK_BITS // 8]


def carrier_usids(address: bytes) -> list[int]:
    """The uSIDs of a 16-byte carrier address, up to the first that is zero."""
    usids = []
    for slot in range(USID_SLOTS):
        start = BLOCK_BITS // 8 + slot * USID_BITS // 8
        usid = int.from_bytes(address[start : start + USID_BITS // 8], "big")
        if usid == 0:
            break
        usids.append(usid)
    return usids


def describe_usid(usid: int) -> str:
    """What a uSID names, in the project's terms: a device, a downlink or a local function."""
    kind, plane, index = usid >> 13, usid >> 10 & 7, usid & 0x3FF
    if kind == KIND_T0:
        return f"p{plane}t0-{index}"
    if kind == KIND_T1:
        return f"p{plane}t1-{index}"
    if kind == KIND_DOWNLINK:
        return f"downlink {index} (plane {plane})"
    if kind == KIND_LOCAL and plane == LOCAL_UA:
        return f"uA port {index}"
    if kind == KIND_LOCAL and plane == LOCAL_DT6 and index == 0:
        return "dt6"
    return f"unknown 0x{usid:04x}"


def describe_carrier(address: bytes) -> str:
    """The uSIDs of a 16-byte carrier address in words, in travel order."""
    return " | ".join(describe_usid(usid) for usid in carrier_usids(address)) or "no uSID left"
