# SPDX-License-Identifier: Apache-2.0
"""Operations of a packet-out on a NIC's registers (`cpu_op_t` of p4src/include/nic_headers.p4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

from controller.addressing import EntropyValue
from controller.ev_events import EvState
from controller.fabric import Fabric
from controller.nic_entries import path_index


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


Exchange = Callable[[int, int, int], Awaitable[int]]
"""(op, index, value) -> the value that the NIC answers."""


class PathCell(NamedTuple):
    """What a NIC holds of a path (`path_cell_t` of p4src/include/ev_state.p4).

    `successes`: answered probes since it is ASSUMED_BAD. `sent_on`: only of a path that something
    was sent on does feedback count. `generation`: of the spray group, the one in force.
    """

    state: EvState
    suspect: bool
    sent_on: bool
    successes: int
    generation: int


async def read_path(
    exchange: Exchange, fabric: Fabric, group: int, plane: int, uplink: int
) -> PathCell:
    """State of a path to T0 group `group`."""
    path = path_index(fabric, group, plane, uplink)
    value = await exchange(Op.READ_PATH, group << 3 | plane, path << 32)
    return PathCell(
        state=EvState(value >> 6 & 3),
        suspect=bool(value >> 5 & 1),
        sent_on=bool(value >> 4 & 1),
        successes=value & 0xF,
        generation=value >> 8 & 0xFF,
    )


async def write_path(
    exchange: Exchange,
    fabric: Fabric,
    path: tuple[int, int, int],
    state: EvState,
    generation: int,
) -> None:
    """Set the state of a path (group, plane, uplink); a change is an event with cause CONTROLLER.

    Of another generation than the one in force it would void all states of the group.
    """
    group, plane, uplink = path
    value = path_index(fabric, group, plane, uplink) << 32 | generation << 8 | state << 6
    value |= EntropyValue(plane, uplink).path_ev << 16
    await exchange(Op.WRITE_PATH, group << 3 | plane, value)


async def read_assumed_down(exchange: Exchange, group: int) -> tuple[int, int]:
    """Mask of the planes that a T0 group is assumed not to be reached by, and the generation."""
    value = await exchange(Op.READ_ASSUMED, group, 0)
    return value & 0xFF, value >> 8 & 0xFF


async def read_inactive(exchange: Exchange, group: int, plane: int) -> int:
    """How many paths of a plane to a T0 group are ASSUMED_BAD or DENIED; 255: so many or more."""
    return await exchange(Op.READ_INACTIVE, group << 3 | plane, 0) & 0xFF


class PeerDown(NamedTuple):
    """What a NIC holds of a peer's ports. `planes`: mask of those without carrier there."""

    planes: int
    age_s: float


async def read_peer_down(exchange: Exchange, peer: int) -> PeerDown:
    """What a NIC was told by a host's NIC, by the host's address; mask 0 once that is forgotten."""
    name = crc32(peer.to_bytes(16, "big"))
    value = await exchange(Op.READ_PEER_DOWN, name & 0x3FF, 0)
    if value >> 42 != name >> 10:
        return PeerDown(0, 0.0)  # free, or another peer's
    return PeerDown(value >> 32 & 0xFF, (value & 0xFFFF_FFFF) * 1.024e-3)
