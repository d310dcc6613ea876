# SPDX-License-Identifier: Apache-2.0
"""The peers of a NIC's QPs: whom it answers by itself when a packet arrives trimmed.

Table `peers` of nic.p4, (sender's address, own QP) -> sender's QP, is filled when QPs are set up,
not by policies: pushes leave it alone (`reconcile.RUNTIME_TABLES`). A program that is loaded anew
starts with an empty table. Without an entry trimmed headers go up to the host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from finsy import P4Schema, P4TableAction, P4TableEntry, P4TableMatch
from finsy.proto import p4r

from controller.addressing import AddressError, ipv6, parse_host_address
from controller.canonical import Entries, Key, Value, held_entries, to_message, wanted_entries
from controller.counters import read_direct, read_indirect
from controller.inventory import Inventory
from controller.p4rt import (
    BATCH_UPDATES,
    CONNECT_TIMEOUT_S,
    DeviceConnection,
    DeviceError,
    connect,
    load_program,
)
from controller.reconcile import Change, Kind
from mrc.opcodes import ENDPOINT_QP

T = TypeVar("T")

MAX_QP = (1 << 24) - 1
FATES = ("turned round", "peer unknown", "no NACK possible")
"""What becomes of trimmed packets, by index of the counter `trimmed`."""
_SHOWN = 5  # errors of one kind that are spelt out


class PeersError(DeviceError):
    """Peers that cannot be written, or a device that has none; nothing was changed."""


class PeerKey(NamedTuple):
    """Whose packets, to which of our QPs."""

    source: int
    qp: int

    def __str__(self) -> str:
        return f"{ipv6(self.source)} to QP {self.qp}"


@dataclass(frozen=True, slots=True)
class Peer:
    """A QP's peer: its address and QP number, and our QP's number."""

    source: int
    qp: int
    peer_qp: int

    @property
    def key(self) -> PeerKey:
        """What the NIC knows it by."""
        return PeerKey(self.source, self.qp)


@dataclass(frozen=True, slots=True)
class PeerCount:
    """A peer that a NIC holds, and how many of its packets it has answered (packets, bytes)."""

    peer: Peer
    packets: int
    octets: int


@dataclass(frozen=True, slots=True)
class PeersReport:
    """What a NIC says of its peers, and what became of trimmed packets, by FATES."""

    peers: tuple[PeerCount, ...]
    trimmed: tuple[int, ...]


def _check_key(key: PeerKey) -> None:
    try:
        parse_host_address(key.source)
    except AddressError as error:
        raise PeersError(f"source: {error}") from None
    _check_qp("own QP", key.qp)


def _check_qp(what: str, number: int) -> None:
    if not 0 <= number <= MAX_QP or number == ENDPOINT_QP:
        raise PeersError(
            f"{what} {number}: allowed are 0..{MAX_QP} without {ENDPOINT_QP}, the end point's"
        )


async def add_peers(
    inventory: Inventory,
    nic: str,
    peers: Iterable[Peer],
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> int:
    """Add peers to a NIC, all or none; how many it did not have yet.

    One that it has already, with the same peer's QP, is as wanted. PeersError when it has another
    for the same key, and when the table has no room; DeviceError when the NIC cannot be reached.
    """
    given: dict[PeerKey, Peer] = {}
    for peer in peers:
        _check_key(peer.key)
        _check_qp("peer's QP", peer.peer_qp)
        if given.setdefault(peer.key, peer) != peer:
            raise PeersError(f"{peer.key}: given twice, with different QPs of the peer")
    entries = [
        P4TableEntry(
            "peers",
            match=P4TableMatch(src_addr=peer.source, qp=peer.qp),
            action=P4TableAction("peer", peer_qp=peer.peer_qp),
        )
        for peer in given.values()
    ]

    async def add(link: DeviceConnection, schema: P4Schema) -> int:
        wanted = wanted_entries(entries, schema)
        held = await _held(link, schema)
        taken = [
            f"{_peer(key, held[key], schema).key} has peer's QP "
            f"{_peer(key, held[key], schema).peer_qp}, not {_peer(key, value, schema).peer_qp}"
            for key, value in wanted.items()
            if held.get(key, value) != value
        ]
        if taken:
            raise PeersError(f"{nic}: {_some(taken)}; delete first")
        new = {key: value for key, value in wanted.items() if key not in held}
        size = schema.tables["peers"].size
        if len(held) + len(new) > size:
            raise PeersError(
                f"{nic}: holds {len(held)} peers, {len(new)} more are wanted; allowed: {size}"
            )
        await _write(link, [Change(Kind.INSERT, key, value) for key, value in new.items()])
        return len(new)

    return await _on_nic(inventory, nic, connect_timeout_s, add, write=True)


async def delete_peers(
    inventory: Inventory,
    nic: str,
    keys: Iterable[PeerKey] | None,
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> int:
    """Delete peers of a NIC, all of them for None; how many.

    All or none: PeersError when it does not have one of them; DeviceError when the NIC cannot be
    reached.
    """
    gone = None if keys is None else set(keys)
    checked = False

    async def delete(link: DeviceConnection, schema: P4Schema) -> int:
        nonlocal gone, checked
        held = await _held(link, schema)
        known = {_peer(key, value, schema).key: key for key, value in held.items()}
        if gone is None:
            gone = set(known)
        missing = [str(key) for key in sorted(gone - known.keys())]
        # When this is begun anew, those that are missing then are deleted.
        if missing and not checked:
            raise PeersError(f"{nic}: has no peer for {_some(missing)}")
        checked = True
        left = sorted(gone & known.keys())
        await _write(link, [Change(Kind.DELETE, known[key], held[known[key]]) for key in left])
        return len(gone)

    return await _on_nic(inventory, nic, connect_timeout_s, delete, write=True)


async def read_peers(
    inventory: Inventory, nic: str, *, connect_timeout_s: float = CONNECT_TIMEOUT_S
) -> PeersReport:
    """A NIC's peers by key, and what became of trimmed packets; DeviceError as above."""

    async def read(link: DeviceConnection, schema: P4Schema) -> PeersReport:
        counts = await read_direct(link, schema, "peers")
        held = await _held(link, schema)
        found = [
            PeerCount(_peer(key, value, schema), *counts.get(key, (0, 0)))
            for key, value in held.items()
        ]
        trimmed = await read_indirect(link, schema, "trimmed")
        return PeersReport(
            tuple(sorted(found, key=lambda count: count.peer.key)),
            tuple(int(packets) for packets in trimmed[:, 0]),
        )

    return await _on_nic(inventory, nic, connect_timeout_s, read, write=False)


async def _on_nic(
    inventory: Inventory,
    nic: str,
    connect_timeout_s: float,
    work: Callable[[DeviceConnection, P4Schema], Awaitable[T]],
    *,
    write: bool,
) -> T:
    """What `work` returns on a connection to the NIC; as its primary controller if it writes."""
    device = inventory.devices.get(nic)
    if device is None or device.program != "nic":
        nics = ", ".join(
            name for name, found in inventory.devices.items() if found.program == "nic"
        )
        what = "is not in the running fabric" if device is None else "is a switch"
        raise PeersError(f"{nic} {what}; allowed are its NICs: {nics or 'it has none'}")
    schema = load_program("nic")

    async def checked() -> T:
        if not await link.has_program(schema):
            raise PeersError(f"{nic} does not run the program of p4src/build: run `mrcctl push`")
        return await work(link, schema)

    async with connect(nic, device.address, device.device_id, connect_timeout_s) as link:
        return await (link.as_primary(checked) if write else checked())


async def _held(link: DeviceConnection, schema: P4Schema) -> Entries:
    entry = p4r.TableEntry(table_id=schema.tables["peers"].id)
    return held_entries(
        [entity async for entity in link.read(p4r.Entity(table_entry=entry))], schema
    )


def _peer(key: Key, value: Value, schema: P4Schema) -> Peer:
    entry = P4TableEntry.decode_entry(to_message(key, value), schema)
    assert isinstance(entry.action, P4TableAction)
    return Peer(entry["src_addr"], entry["qp"], entry.action.args["peer_qp"])


async def _write(link: DeviceConnection, changes: Sequence[Change]) -> None:
    """Write all changes, or undo those that were written and raise DeviceError."""
    done: list[Change] = []
    for start in range(0, len(changes), BATCH_UPDATES):
        batch = changes[start : start + BATCH_UPDATES]
        failures = await link.write([change.message() for change in batch])
        failed = {failure.index for failure in failures}
        done += [change for index, change in enumerate(batch) if index not in failed]
        if failures:
            errors = await link.write([_undo(change).message() for change in reversed(done)])
            left = f"; {len(errors)} that were written before are left" if errors else ""
            first = failures[0]
            raise DeviceError(f"{link.name} refused a peer: {first.code}: {first.message}{left}")


def _undo(change: Change) -> Change:
    kind = Kind.DELETE if change.kind is Kind.INSERT else Kind.INSERT
    return Change(kind, change.key, change.value)


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return f"{', '.join(items[:_SHOWN])}{more}"
