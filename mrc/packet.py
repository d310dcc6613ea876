# SPDX-License-Identifier: Apache-2.0
"""Whole MRC packets, from the inner IPv6 header to the ICRC.

    IPv6(40) | UDP(8) | BTH(12) | headers of the opcode | payload | pad(0-3) | ICRC(4)

`Packet.build` fills in what follows from the rest (lengths, pad count, UDP checksum, ICRC), so a
packet that was parsed and is built again gives the same bytes. `parse_packet` checks them. A packet
whose DSCP says that a switch trimmed it is parsed as far as it goes: its lengths, checksum and ICRC
cannot be right any more (section 3.13).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mrc.checksum import udp_checksum
from mrc.headers import HEADER_CHAINS, Bth, CcOpaque, Ipv6, Seth, Udp
from mrc.icrc import invariant_crc
from mrc.layout import Buffer, ChecksumError, Header, IcrcError, WireError
from mrc.opcodes import ICRC_BYTES, NEXT_HEADER_UDP, WRITE_OPCODES, Opcode, describe_opcodes
from mrc.options import DEFAULT_OPTIONS, WireOptions


@dataclass(frozen=True, slots=True)
class Packet:
    """A whole packet. `headers` are those after the BTH, in wire order; `icrc` is as received.

    `build` ignores and recomputes `ipv6.payload_length`, `udp.length`, `udp.checksum`, `bth.pad`
    and `icrc`.
    """

    ipv6: Ipv6
    udp: Udp
    bth: Bth
    headers: tuple[Header, ...]
    payload: bytes = b""
    icrc: bytes = b""

    def build(self, options: WireOptions = DEFAULT_OPTIONS, *, with_checksum: bool = True) -> bytes:
        """The packet's bytes. `with_checksum=False` sends UDP checksum 0, "none" (RFC 6935).

        WireError when a value does not fit, the headers are not those of the opcode, or a payload
        is given to an opcode that carries none.
        """
        opcode = self.bth.opcode
        _check_headers(opcode, self.bth.ts, self.headers)
        if self.payload and opcode not in WRITE_OPCODES:
            raise WireError(
                f"{Opcode(opcode).name} carries no payload, got {len(self.payload)} bytes"
            )
        pad = -len(self.payload) % 4
        body = b"".join(
            (
                replace(self.bth, pad=pad).pack(options),
                *(item.pack(options) for item in self.headers),
                self.payload,
                bytes(pad),
            )
        )
        length = Udp.SIZE + len(body) + ICRC_BYTES
        ipv6 = replace(self.ipv6, payload_length=length).pack(options)
        udp = replace(self.udp, length=length, checksum=0)
        icrc = invariant_crc(b"".join((ipv6, udp.pack(options), body)))
        if with_checksum:
            unsummed = b"".join((udp.pack(options), body, icrc))
            udp = replace(udp, checksum=udp_checksum(ipv6[8:40], unsummed))
        return b"".join((ipv6, udp.pack(options), body, icrc))


@dataclass(frozen=True, slots=True)
class TrimmedPacket:
    """What a switch left of a packet whose payload it dropped.

    `bth` is None when the cut is inside the BTH; `headers` are those that are there wholly; `rest`
    is what follows them: the beginning of a cut header, or of the payload.
    """

    ipv6: Ipv6
    udp: Udp
    bth: Bth | None
    headers: tuple[Header, ...]
    rest: bytes
    last_hop: bool


def parse_packet(
    data: Buffer, options: WireOptions = DEFAULT_OPTIONS, *, verify: bool = True
) -> Packet | TrimmedPacket:
    """Parse the packet that starts with the IPv6 header at `data[0]`.

    Bytes beyond the IPv6 payload length (Ethernet padding) are ignored. `verify=False` leaves out
    UDP checksum and ICRC. Raises WireError, naming the field and what is allowed.
    """
    ipv6 = Ipv6.unpack(data)
    if ipv6.version != 6:
        raise WireError(f"IPv6.version = {ipv6.version}: must be 6")
    if ipv6.next_header != NEXT_HEADER_UDP:
        raise WireError(
            f"IPv6.next_header = {ipv6.next_header}: MRC needs {NEXT_HEADER_UDP} (UDP) here"
        )
    udp = Udp.unpack(data, Ipv6.SIZE)
    if udp.destination_port not in options.udp_ports:
        raise WireError(
            f"UDP.destination_port = {udp.destination_port}: MRC uses {options.udp_ports}"
        )
    points = options.code_points
    if ipv6.dscp in (points.trimmed, points.trimmed_lasthop):
        return _parse_trimmed(data, ipv6, udp, options)

    end = Ipv6.SIZE + ipv6.payload_length
    if end > len(data):
        raise WireError(
            f"IPv6.payload_length = {ipv6.payload_length}, but only {len(data) - Ipv6.SIZE} bytes "
            f"follow the header, and DSCP {ipv6.dscp} does not say that the packet was trimmed"
        )
    if udp.length != ipv6.payload_length:
        raise WireError(
            f"UDP.length = {udp.length}: must be IPv6.payload_length, {ipv6.payload_length}"
        )
    if udp.length % 4:
        raise WireError(
            f"UDP.length = {udp.length}: must be a multiple of 4, BTH.pad fills the payload up"
        )
    whole = memoryview(data)[:end]
    body_end = end - ICRC_BYTES
    bth, headers, offset = _parse_headers(whole[: max(body_end, 0)], options)
    payload_end = body_end - bth.pad
    if payload_end < offset:
        raise WireError(
            f"BTH.pad = {bth.pad}, but {body_end - offset} bytes lie between headers and ICRC"
        )
    if payload_end > offset and bth.opcode not in WRITE_OPCODES:
        raise WireError(
            f"{Opcode(bth.opcode).name} carries no payload, "
            f"but {payload_end - offset} bytes follow its headers"
        )
    icrc = bytes(whole[body_end:])
    if verify:
        _verify(whole, udp, icrc)
    return Packet(ipv6, udp, bth, headers, bytes(whole[offset:payload_end]), icrc)


def header_types(opcode: int, ts: int) -> tuple[type[Header], ...]:
    """The headers after the BTH for this opcode and BTH.ts; WireError when there is no such."""
    chain = HEADER_CHAINS.get((opcode, ts))
    if chain is not None:
        return chain
    if (opcode, 0) in HEADER_CHAINS:
        raise WireError(
            f"BTH.ts = {ts} with {Opcode(opcode).name}: only the WRITE opcodes carry a TSETH"
        )
    raise WireError(f"BTH.opcode = 0x{opcode:02X}: MRC's are {describe_opcodes()}")


def _check_headers(opcode: int, ts: int, headers: tuple[Header, ...]) -> None:
    chain = header_types(opcode, ts)
    given = tuple(type(item) for item in headers)
    if given == chain:
        return
    if opcode == Opcode.SACK and given == (Seth, CcOpaque):
        return
    raise WireError(
        f"{Opcode(opcode).name} with BTH.ts = {ts} needs the headers "
        f"{', '.join(item.NAME for item in chain)}; "
        f"got {', '.join(item.NAME for item in given) or 'none'}"
    )


def _parse_headers(data: memoryview, options: WireOptions) -> tuple[Bth, tuple[Header, ...], int]:
    """BTH and the headers of its opcode, and the offset behind them."""
    offset = Ipv6.SIZE + Udp.SIZE
    bth = Bth.unpack(data, offset, options)
    if bth.tver != 0:
        raise WireError(f"BTH.tver = {bth.tver}: must be 0")
    offset += Bth.SIZE
    headers: list[Header] = []
    for kind in header_types(bth.opcode, bth.ts):
        item = _unpack_next(kind, headers, data, offset, options)
        headers.append(item)
        offset += item.SIZE
    return bth, tuple(headers), offset


def _unpack_next(
    kind: type[Header],
    before: list[Header],
    data: memoryview,
    offset: int,
    options: WireOptions,
) -> Header:
    if before and isinstance(before[-1], Seth) and before[-1].cc_type != 0:
        kind = CcOpaque  # CC_STATE is defined for cc_type 0 only (section 3.8)
    return kind.unpack(data, offset, options)


def _parse_trimmed(data: Buffer, ipv6: Ipv6, udp: Udp, options: WireOptions) -> TrimmedPacket:
    """Take every header that is there wholly. The trimming switch may have left the lengths."""
    end = min(len(data), Ipv6.SIZE + max(ipv6.payload_length, Udp.SIZE))
    kept = memoryview(data)[:end]
    last_hop = ipv6.dscp == options.code_points.trimmed_lasthop
    offset = Ipv6.SIZE + Udp.SIZE
    if end < offset + Bth.SIZE:
        return TrimmedPacket(ipv6, udp, None, (), bytes(kept[offset:]), last_hop)
    bth = Bth.unpack(kept, offset, options)
    offset += Bth.SIZE
    headers: list[Header] = []
    for kind in header_types(bth.opcode, bth.ts):
        if offset + kind.SIZE > end:
            break
        headers.append(_unpack_next(kind, headers, kept, offset, options))
        offset += kind.SIZE
    return TrimmedPacket(ipv6, udp, bth, tuple(headers), bytes(kept[offset:]), last_hop)


def _verify(whole: memoryview, udp: Udp, icrc: bytes) -> None:
    expected = invariant_crc(whole[:-ICRC_BYTES])
    if icrc != expected:
        raise IcrcError(f"ICRC = {icrc.hex()}: must be {expected.hex()} for these bytes")
    if udp.checksum:  # 0 says that the sender computed none (RFC 6935)
        unsummed = bytearray(whole[Ipv6.SIZE :])
        unsummed[6:8] = b"\0\0"
        checksum = udp_checksum(bytes(whole[8:40]), bytes(unsummed))
        if udp.checksum != checksum:
            raise ChecksumError(f"UDP.checksum = 0x{udp.checksum:04x}: must be 0x{checksum:04x}")
