# SPDX-License-Identifier: Apache-2.0
"""Operations of a packet-out on a NIC's registers (`cpu_op_t` of p4src/include/nic_headers.p4)."""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    """What a packet-out asks for."""

    READ_DOWN_PLANES = 1
    WRITE_DOWN_PLANES = 2
    READ_PATH = 3
    WRITE_PATH = 4
    READ_INACTIVE = 5
    WRITE_INACTIVE = 6
    READ_ASSUMED = 7
    WRITE_ASSUMED = 8
    INJECT = 9
    READ_PEER_DOWN = 10
    WRITE_PEER_DOWN = 11
