# SPDX-License-Identifier: Apache-2.0
"""Set-up of QPs between hosts of a running fabric: the agents at both ends, and both NICs' `peers`.

[qp] = await open_qps(inventory, fabric, [("h0-0", "h1-1")])
region = await qp.there.agent.register(RegisterRequest(length=1 << 20))
await qp.here.agent.write(qp.here.write_request(region, seed=1, rate=1000))
await close_qps(inventory, [qp])
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from controller import addressing as addr
from controller.fabric import Fabric
from controller.inventory import Inventory
from controller.peers import Peer, add_peers, delete_peers
from mrc.agent_client import AgentClient, AgentError
from mrc.connecting import ConnectingEnd, QpEnd, connect


@dataclass(frozen=True)
class HostQp:
    """A QP between two hosts: its ends, and the NICs that they stand behind."""

    here: QpEnd
    there: QpEnd
    here_nic: str
    there_nic: str


async def open_qps(
    inventory: Inventory, fabric: Fabric, pairs: Sequence[tuple[str, str]], **parameters: Any
) -> list[HostQp]:
    """A QP for each pair of hosts; `parameters` are those of `ConnectQpRequest`.

    All or none: AgentError or DeviceError when one cannot be made, and then none is left.
    """
    opened: list[HostQp] = []
    try:
        for source, destination in pairs:
            here, here_nic = _end(inventory, fabric, source)
            there, there_nic = _end(inventory, fabric, destination)
            ends = await connect(here, there, **parameters)
            opened.append(HostQp(*ends, here_nic, there_nic))
        await asyncio.gather(
            *(add_peers(inventory, nic, peers) for nic, peers in _peers(opened).items())
        )
    except BaseException:
        await _destroy(opened)
        raise
    return opened


async def close_qps(inventory: Inventory, qps: Iterable[HostQp]) -> None:
    """Forget QPs at their agents and NICs. AgentError or DeviceError when one does not."""
    closing = list(qps)
    await _destroy(closing)
    await asyncio.gather(
        *(
            delete_peers(inventory, nic, [peer.key for peer in peers])
            for nic, peers in _peers(closing).items()
        )
    )


def _end(inventory: Inventory, fabric: Fabric, name: str) -> tuple[ConnectingEnd, str]:
    nic, port = fabric.neighbour(fabric.host(name), addr.HOST_PORT)
    agent = AgentClient(inventory.hosts[name].control)
    return ConnectingEnd(agent, addr.mac_text(fabric.mac(nic, port))), nic.name


def _peers(qps: Iterable[HostQp]) -> dict[str, list[Peer]]:
    """What each NIC must know."""
    peers: dict[str, list[Peer]] = defaultdict(list)
    for qp in qps:
        for nic, end in ((qp.here_nic, qp.here), (qp.there_nic, qp.there)):
            source = int(ipaddress.IPv6Address(end.peer_address))
            peers[nic].append(Peer(source, end.qp, end.peer_qp))
    return dict(peers)


async def _destroy(qps: Sequence[HostQp]) -> None:
    """Destroy both ends of all, whatever happens to one; then raise the first error."""
    ends = [end for qp in qps for end in (qp.here, qp.there)]
    done = await asyncio.gather(*(end.destroy() for end in ends), return_exceptions=True)
    for error in done:
        if isinstance(error, AgentError):
            raise error
