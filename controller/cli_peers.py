# SPDX-License-Identifier: Apache-2.0
"""``mrcctl peers``: whom a NIC answers by itself when a packet arrives trimmed."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Annotated

import typer

from controller.addressing import ipv6, parse_host_address
from controller.cli_common import CommandError, RunDirOption, Session, console, plain_table
from controller.fabric import Fabric
from controller.peers import (
    FATES,
    Peer,
    PeerKey,
    PeersReport,
    add_peers,
    delete_peers,
    read_peers,
)

peers = typer.Typer(
    no_args_is_help=True,
    help="Show or change which QPs a NIC answers trimmed packets for (gone with a new program).",
)

NicArgument = Annotated[str, typer.Argument(help="The receiving NIC, like n1-0.", metavar="NIC")]
SourceOption = Annotated[
    str, typer.Option("--source", help="The sender: a host's name or address.", metavar="HOST")
]
QpOption = Annotated[int, typer.Option("--qp", help="The receiving host's QP.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for the NIC to answer.", min=0.1)
]


@peers.command("add")
def add(
    nic: NicArgument,
    source: SourceOption,
    qp: QpOption,
    peer_qp: Annotated[int, typer.Option("--peer-qp", help="The sender's QP.")],
    run_dir: RunDirOption = None,
    timeout: TimeoutOption = 5.0,
) -> None:
    """Answer what a sender's QP sends to a QP of this NIC's host."""
    session = Session.of(run_dir)
    peer = Peer(_address(session.fabric, source), qp, peer_qp)
    added = asyncio.run(add_peers(session.inventory, nic, [peer], connect_timeout_s=timeout))
    was = "added" if added else "was there already"
    console.print(f"{nic}: {peer.key} from QP {peer_qp} {was}")


@peers.command("delete")
def delete(
    nic: NicArgument,
    source: Annotated[
        str | None, typer.Option("--source", help="The sender: a host's name or address.")
    ] = None,
    qp: Annotated[int | None, typer.Option("--qp", help="The receiving host's QP.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of the NIC's.")] = False,
    run_dir: RunDirOption = None,
    timeout: TimeoutOption = 5.0,
) -> None:
    """Hand trimmed packets up to the host again."""
    session = Session.of(run_dir)
    keys = None
    if not everything:
        if source is None or qp is None:
            raise CommandError("name --source and --qp, or --all")
        keys = [PeerKey(_address(session.fabric, source), qp)]
    elif source is not None or qp is not None:
        raise CommandError("--all goes without --source and --qp")
    deleted = asyncio.run(delete_peers(session.inventory, nic, keys, connect_timeout_s=timeout))
    console.print(f"{nic}: {deleted} deleted")


@peers.command("list")
def list_command(
    nic: Annotated[
        str | None, typer.Argument(help="Only this NIC.", metavar="[NIC]", show_default=False)
    ] = None,
    run_dir: RunDirOption = None,
    timeout: TimeoutOption = 5.0,
) -> None:
    """Show peers with the packets that were answered for them, and what became of all trimmed."""
    session = Session.of(run_dir)
    names = [name for name, found in session.inventory.devices.items() if found.program == "nic"]

    async def read(wanted: list[str]) -> list[PeersReport]:
        return await asyncio.gather(
            *(read_peers(session.inventory, name, connect_timeout_s=timeout) for name in wanted)
        )

    wanted = names if nic is None else [nic]
    print_peers(session.fabric, dict(zip(wanted, asyncio.run(read(wanted)), strict=True)))


def print_peers(fabric: Fabric, reports: dict[str, PeersReport]) -> None:
    """All peers, then the NICs at which trimmed packets arrived."""
    numbers = ("QP", "Peer's QP", "Answered", "Bytes")
    table = plain_table("NIC", "Source", "Host", *numbers, right=numbers)
    fates = plain_table("NIC", *(f"Trimmed, {fate}" for fate in FATES))
    for name, report in reports.items():
        for count in report.peers:
            peer = count.peer
            values = (peer.qp, peer.peer_qp, count.packets, count.octets)
            host = _host_name(fabric, peer.source)
            table.add_row(name, ipv6(peer.source), host, *map(str, values))
        if any(report.trimmed):
            fates.add_row(name, *map(str, report.trimmed))
    console.print(table if table.row_count else "no peers")
    console.print(fates if fates.row_count else "no trimmed packet arrived")


def _address(fabric: Fabric, text: str) -> int:
    """The address of a host that is given by name or by address."""
    if ":" not in text:
        return fabric.host_address(fabric.host(text))
    try:
        address = int(ipaddress.IPv6Address(text))
        fabric.host_row(*parse_host_address(address))
    except ValueError as error:
        raise CommandError(f"--source {text}: {error}") from None
    return address


def _host_name(fabric: Fabric, address: int) -> str:
    try:
        return fabric.device_at(fabric.host_row(*parse_host_address(address))).name
    except ValueError:
        return "unknown"
