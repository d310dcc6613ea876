# SPDX-License-Identifier: Apache-2.0
"""Out-of-band set-up of a QP between two agents.

    here, there = await connect(ConnectingEnd(left, left_mac), ConnectingEnd(right, right_mac))
    await left.write(here.write_request(region, seed=1))

Each end gets the other's address and QP number. Where a NIC is to answer trimmed packets by itself,
its `peers` table needs (`there.address`, `here.qp`) -> `there.qp`, at both ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrc.agent_client import AgentClient
from mrc.messages import ConnectQpRequest, QpInfo, RegionInfo, WriteRequest


@dataclass(frozen=True)
class ConnectingEnd:
    """An agent that is to have a QP, and the MAC of its next hop; `qp` None: the agent's choice."""

    agent: AgentClient
    mac: str
    qp: int | None = None


@dataclass(frozen=True)
class QpEnd:
    """One end of a connected QP: its own number and address, and what it reaches."""

    agent: AgentClient
    mac: str
    address: str
    qp: int
    peer_address: str
    peer_qp: int

    def write_request(self, region: RegionInfo, **choices: Any) -> WriteRequest:
        """A reliable write over this QP that fills the peer's `region`; `choices` change it."""
        return WriteRequest(
            **{
                "address": self.peer_address,
                "mac": self.mac,
                "qp": self.peer_qp,
                "own_qp": self.qp,
                "reliable": True,
                "va": region.va,
                "rkey": region.rkey,
                "length": region.length,
                **choices,
            }
        )

    async def destroy(self) -> None:
        """Forget this end's QP."""
        await self.agent.destroy_qp(self.qp)


async def connect(
    left: ConnectingEnd, right: ConnectingEnd, **parameters: Any
) -> tuple[QpEnd, QpEnd]:
    """Make and connect a QP; `parameters` are those of `ConnectQpRequest`, for both ends.

    Both ends or none: AgentError when an agent refuses, and then neither has a QP.
    """
    left_info = await left.agent.create_qp(left.qp)
    right_info = None
    try:
        right_info = await right.agent.create_qp(right.qp)
        return (
            await _connect_end(left, left_info, right_info, parameters),
            await _connect_end(right, right_info, left_info, parameters),
        )
    except BaseException:
        await left.agent.destroy_qp(left_info.qp)
        if right_info is not None:
            await right.agent.destroy_qp(right_info.qp)
        raise


async def _connect_end(
    end: ConnectingEnd, own: QpInfo, peer: QpInfo, parameters: dict[str, Any]
) -> QpEnd:
    request = ConnectQpRequest(
        qp=own.qp, address=peer.address, mac=end.mac, peer_qp=peer.qp, **parameters
    )
    await end.agent.connect_qp(request)
    return QpEnd(end.agent, end.mac, own.address, own.qp, peer.address, peer.qp)
