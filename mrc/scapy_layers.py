# SPDX-License-Identifier: GPL-2.0-only
"""Scapy layers for MRC, made from the codec's own header tables.

`import mrc.scapy_layers` is enough: UDP ports 4791 and 4971 then dissect as `MRC_BTH` when the
opcode is one of MRC's twelve and as `scapy.contrib.roce.BTH` otherwise, and an outer IPv6 header
whose destination is in the locator block dissects as `SRv6Carrier`, with its uSIDs named.

    Ether() / IPv6(src=.., dst=.., tc=4 << 2 | 2) / UDP(sport=0xC000) \
        / MRC_BTH(opcode=Opcode.WRITE_ONLY, dqp=17, psn=1) / MRC_METH(msn=1) \
        / MRC_RETH(va=0x1000, rkey=7, dma_length=5) / Raw(b"hello")

Building fills in what is None: `pad` and `padding`, `icrc`, and Scapy's own lengths and checksums.
An `icrc` of b"" leaves the trailer out, as in a trimmed packet (recognised by its DSCP).

Settings are in `scapy.config.conf.contribs["MRC"]`: `options`, a `WireOptions`, and `block`, the
locator block as text.

scapy.contrib.description = MRC (Multipath Reliable Connection)
scapy.contrib.status = loads
"""

from __future__ import annotations

import socket
from enum import IntEnum
from typing import Any

import scapy.contrib.roce as roce
from scapy.config import conf
from scapy.error import warning
from scapy.fields import (
    BitEnumField,
    BitField,
    Field,
    SignedShortField,
    XBitField,
    XStrFixedLenField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import DestIP6Field, IPv6
from scapy.layers.l2 import CookedLinux, Dot1Q, Ether
from scapy.packet import Packet, Raw, bind_bottom_up, bind_layers, split_bottom_up
from scapy.pton_ntop import inet_pton

from mrc import headers as wire_headers
from mrc.icrc import invariant_crc
from mrc.layout import Header, Layout
from mrc.opcodes import (
    ENDPOINT_QP,
    ETHER_TYPE_IPV6,
    ICRC_BYTES,
    NEXT_HEADER_IPV6,
    AethSyndrome,
    EndpointOp,
    NackReason,
    Opcode,
    SackMark,
)
from mrc.options import WireOptions
from mrc.usid import DEFAULT_BLOCK, describe_carrier, in_block, parse_block

conf.contribs["MRC"] = {"options": WireOptions(), "block": str(DEFAULT_BLOCK)}

_NAMES: dict[tuple[str, str], type[IntEnum]] = {
    ("BTH", "opcode"): Opcode,
    ("AETH", "syndrome"): AethSyndrome,
    ("SETH", "m"): SackMark,
    ("NETH", "nack_reason"): NackReason,
    ("ERTH", "op"): EndpointOp,
    ("EETH", "op"): EndpointOp,
}
_HEXADECIMAL = {"pkey", "va", "rkey", "immediate", "entropy", "sack_bitmap", "port_status_mask"}


def _options() -> WireOptions:
    options = conf.contribs["MRC"]["options"]
    if not isinstance(options, WireOptions):
        raise TypeError(f"conf.contribs['MRC']['options'] must be a WireOptions, got {options!r}")
    return options


def _fields(layout: Layout) -> list[Any]:
    """Scapy fields for a header's layout, with the codec's names, widths and defaults."""
    made: list[Any] = []
    for spec in layout.specs:
        names = _NAMES.get((layout.name, spec.name))
        if isinstance(spec.default, bytes):
            made.append(XStrFixedLenField(spec.name, spec.default, length=spec.width // 8))
        elif spec.signed:
            made.append(SignedShortField(spec.name, spec.default))
        elif names is not None:
            words = {int(member): member.name for member in names}
            made.append(BitEnumField(spec.name, int(spec.default), spec.width, words))
        elif spec.name in _HEXADECIMAL:
            made.append(XBitField(spec.name, spec.default, spec.width))
        elif (layout.name, spec.name) == ("BTH", "pad"):
            made.append(BitField(spec.name, None, spec.width))  # None: computed
        else:
            made.append(BitField(spec.name, spec.default, spec.width))
    return made


class _TrailerBytesField(Field):
    """Bytes at the packet's end; `MRC_BTH` itself takes them off and puts them on."""

    def __init__(self, name: str) -> None:
        Field.__init__(self, name, None, "0s")

    def addfield(self, pkt: Any, s: bytes, val: bytes | None) -> bytes:
        return s

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, None]:
        return s, None

    def i2repr(self, pkt: Any, x: bytes | None) -> str:
        return "None" if x is None else x.hex()


class _MrcLayer(Packet):
    """A header after the BTH. `codec` is the header class that its fields come from."""

    codec: type[Header]

    def guess_payload_class(self, payload: bytes) -> Any:
        bth = self.underlayer
        while bth is not None and not isinstance(bth, MRC_BTH):
            bth = bth.underlayer
        return Raw if bth is None else bth.layer_after(self, payload)


class MRC_BTH(Packet):  # noqa: N801 (Scapy's names are like this)
    """Base transport header, with the packet's trailer: `padding` and `icrc` as bytes."""

    name = "MRC BTH"
    codec = wire_headers.Bth
    match_subclass = True
    fields_desc = [  # noqa: RUF012
        *_fields(wire_headers.Bth.layout()),
        _TrailerBytesField("padding"),
        _TrailerBytesField("icrc"),
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> Any:
        """Other opcodes go to Scapy's RoCE, a cut BTH to Raw, the disputed order to its class."""
        if _pkt is not None:
            if _pkt and _pkt[0] not in _OPCODES:
                return roce.BTH
            if len(_pkt) < wire_headers.Bth.SIZE:
                return Raw
        return _MRC_BTH_M_FIRST if _options().bth_m_first else cls

    def layer_after(self, layer: Packet, payload: bytes) -> Any:
        """The class of what follows `layer` (this BTH or a header of its opcode)."""
        chain = wire_headers.HEADER_CHAINS.get((self.opcode, self.ts), ())
        position = (
            -1
            if layer is self
            else next(
                (i for i, kind in enumerate(chain) if issubclass(layer.codec, kind)), len(chain)
            )
        )
        if position + 1 >= len(chain):
            return Raw
        kind = chain[position + 1]
        if isinstance(layer, MRC_SETH) and layer.cc_type != 0:
            kind = wire_headers.CcOpaque
        return _LAYERS[kind] if len(payload) >= kind.SIZE else Raw

    def guess_payload_class(self, payload: bytes) -> Any:
        return self.layer_after(self, payload)

    def is_trimmed(self) -> bool:
        """Whether the DSCP of the IP header below says that a switch cut the payload off."""
        ip = self.underlayer.underlayer if isinstance(self.underlayer, UDP) else None
        if isinstance(ip, IPv6):
            dscp = ip.tc >> 2
        elif isinstance(ip, IP):
            dscp = ip.tos >> 2
        else:
            return False
        points = _options().code_points
        return dscp in (points.trimmed, points.trimmed_lasthop)

    def post_dissect(self, s: bytes) -> bytes:
        self.raw_packet_cache = None  # or building would forget the trailer
        if self.is_trimmed() or len(s) < ICRC_BYTES + self.pad:
            self.padding = self.icrc = b""
            return s
        payload_end = len(s) - ICRC_BYTES - self.pad
        self.padding = s[payload_end:-ICRC_BYTES]
        self.icrc = s[-ICRC_BYTES:]
        return s[:payload_end]

    def post_build(self, p: bytes, pay: bytes) -> bytes:
        trimmed = self.is_trimmed()
        padding = self.padding
        if padding is None:
            padding = b"" if trimmed else bytes(-len(pay) % 4 if self.pad is None else self.pad)
        if self.pad is None:
            p = p[:1] + bytes([p[1] | len(padding) << 4]) + p[2:]
        body = p + pay + padding
        icrc = self.icrc
        if icrc is None:
            icrc = b"" if trimmed else self.compute_icrc(body)
        return body + icrc

    def compute_icrc(self, body: bytes) -> bytes:
        """ICRC of `body` (BTH to padding) under the UDP and IP headers below this layer."""
        udp = self.underlayer
        ip = udp.underlayer if isinstance(udp, UDP) else None
        if not isinstance(ip, (IPv6, IP)):
            warning("MRC: an ICRC needs UDP and IP below the BTH; it is 0 here")
            return bytes(ICRC_BYTES)
        length = wire_headers.Udp.SIZE + len(body) + ICRC_BYTES
        udp_bytes = wire_headers.Udp(
            udp.sport, udp.dport, length if udp.len is None else udp.len
        ).pack()
        if isinstance(ip, IPv6):
            ip_bytes = wire_headers.Ipv6(
                payload_length=length if ip.plen is None else ip.plen,
                next_header=ip.nh,
                source=inet_pton(socket.AF_INET6, ip.src),
                destination=inet_pton(socket.AF_INET6, ip.dst),
            ).pack()
        else:
            bare = ip.copy()
            bare.remove_payload()
            bare.proto = ip.proto
            bare.len = len(bare) + length if ip.len is None else ip.len
            ip_bytes = bytes(bare)
        return invariant_crc(ip_bytes + udp_bytes + body)


class _MRC_BTH_M_FIRST(MRC_BTH):  # noqa: N801
    """`WireOptions.bth_m_first`: M before SE."""

    name = "MRC BTH (M first)"
    fields_desc = [  # noqa: RUF012
        *_fields(wire_headers.Bth.layout(WireOptions(bth_m_first=True))),
        _TrailerBytesField("padding"),
        _TrailerBytesField("icrc"),
    ]


class MRC_METH(_MrcLayer):  # noqa: N801
    name = "MRC METH"
    codec = wire_headers.Meth
    fields_desc = _fields(wire_headers.Meth.layout())


class MRC_TSETH(_MrcLayer):  # noqa: N801
    name = "MRC TSETH"
    codec = wire_headers.Tseth
    fields_desc = _fields(wire_headers.Tseth.layout())


class MRC_RETH(_MrcLayer):  # noqa: N801
    name = "MRC RETH"
    codec = wire_headers.Reth
    fields_desc = _fields(wire_headers.Reth.layout())


class MRC_ImmDt(_MrcLayer):  # noqa: N801
    name = "MRC ImmDt"
    codec = wire_headers.ImmDt
    fields_desc = _fields(wire_headers.ImmDt.layout())


class MRC_AETH(_MrcLayer):  # noqa: N801
    name = "MRC AETH"
    codec = wire_headers.Aeth
    fields_desc = _fields(wire_headers.Aeth.layout())
    overload_fields = {MRC_BTH: {"opcode": int(Opcode.ACKNOWLEDGE)}}  # noqa: RUF012


class MRC_SETH(_MrcLayer):  # noqa: N801
    name = "MRC SETH"
    codec = wire_headers.Seth
    fields_desc = _fields(wire_headers.Seth.layout())
    overload_fields = {MRC_BTH: {"opcode": int(Opcode.SACK)}}  # noqa: RUF012


class MRC_CC_STATE(_MrcLayer):  # noqa: N801
    name = "MRC CC_STATE"
    codec = wire_headers.CcState
    fields_desc = _fields(wire_headers.CcState.layout())


class MRC_CC_OPAQUE(_MrcLayer):  # noqa: N801
    name = "MRC CC_OPAQUE"
    codec = wire_headers.CcOpaque
    fields_desc = _fields(wire_headers.CcOpaque.layout())


class MRC_NETH(_MrcLayer):  # noqa: N801
    name = "MRC NETH"
    codec = wire_headers.Neth
    fields_desc = _fields(wire_headers.Neth.layout())
    overload_fields = {MRC_BTH: {"opcode": int(Opcode.NACK)}}  # noqa: RUF012


class MRC_PETH(_MrcLayer):  # noqa: N801
    name = "MRC PETH"
    codec = wire_headers.Peth
    fields_desc = _fields(wire_headers.Peth.layout())
    overload_fields = {MRC_BTH: {"opcode": int(Opcode.PROBE_REQUEST)}}  # noqa: RUF012


class MRC_ERTH(_MrcLayer):  # noqa: N801
    name = "MRC ERTH"
    codec = wire_headers.Erth
    fields_desc = _fields(wire_headers.Erth.layout())
    overload_fields = {  # noqa: RUF012
        MRC_BTH: {"opcode": int(Opcode.ENDPOINT_REQUEST), "dqp": ENDPOINT_QP}
    }


class MRC_EETH(_MrcLayer):  # noqa: N801
    name = "MRC EETH"
    codec = wire_headers.Eeth
    match_subclass = True
    fields_desc = _fields(wire_headers.Eeth.layout())
    overload_fields = {  # noqa: RUF012
        MRC_BTH: {"opcode": int(Opcode.ENDPOINT_RESPONSE), "dqp": ENDPOINT_QP}
    }

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> Any:
        """The disputed place of `op` has a class of its own."""
        return _MRC_EETH_OP_HIGH if _options().eeth_op_high else cls


class _MRC_EETH_OP_HIGH(MRC_EETH):  # noqa: N801
    """`WireOptions.eeth_op_high`: op in bits 5:4."""

    name = "MRC EETH (op in bits 5:4)"
    fields_desc = _fields(wire_headers.Eeth.layout(WireOptions(eeth_op_high=True)))
    overload_fields = MRC_EETH._overload_fields


class _CarrierField(DestIP6Field):
    def i2repr(self, pkt: Any, x: Any) -> str:
        text = self.i2h(pkt, x)
        return f"{text} [{describe_carrier(inet_pton(socket.AF_INET6, str(text)))}]"


class SRv6Carrier(IPv6):
    """An outer IPv6 header whose destination lists uSIDs; `show()` names them."""

    name = "IPv6 (SRv6 carrier)"
    match_subclass = True  # pkt[IPv6] finds it
    fields_desc = [*IPv6.fields_desc[:-1], _CarrierField("dst", "::1")]  # noqa: RUF012

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> Any:
        """Plain IPv6 for what is not in the locator block."""
        if _pkt is None:
            return cls
        destination = _pkt[24:40]
        block = parse_block(conf.contribs["MRC"]["block"])
        return cls if len(destination) == 16 and in_block(destination, block) else IPv6

    def usids(self) -> str:
        """The uSIDs in words, in travel order."""
        return describe_carrier(inet_pton(socket.AF_INET6, self.dst))

    def mysummary(self) -> str:
        return f"{self.src} > carrier {self.usids()}"


_OPCODES = frozenset(int(opcode) for opcode in Opcode)
_LAYERS: dict[type[Header], type[_MrcLayer]] = {
    layer.codec: layer
    for layer in (
        MRC_METH,
        MRC_TSETH,
        MRC_RETH,
        MRC_ImmDt,
        MRC_AETH,
        MRC_SETH,
        MRC_CC_STATE,
        MRC_CC_OPAQUE,
        MRC_NETH,
        MRC_PETH,
        MRC_ERTH,
        MRC_EETH,
    )
}


def _bind() -> None:
    # Scapy's RoCE has bound port 4791, and the first binding wins: ours takes its place and hands
    # over every opcode that is not MRC's.
    first, *others = WireOptions().udp_ports
    split_bottom_up(UDP, roce.BTH, dport=first)
    bind_layers(UDP, MRC_BTH, dport=first)
    for port in others:
        bind_bottom_up(UDP, MRC_BTH, dport=port)
    for lower, field in ((Ether, "type"), (Dot1Q, "type"), (CookedLinux, "proto")):
        # In front of the binding to IPv6, to which SRv6Carrier hands over what is no carrier.
        carrier = ({field: ETHER_TYPE_IPV6}, SRv6Carrier)
        lower.payload_guess = [carrier, *lower.payload_guess]
    bind_layers(SRv6Carrier, IPv6, nh=NEXT_HEADER_IPV6)


_bind()
