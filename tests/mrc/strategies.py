# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for headers and packets, made from the header tables."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from mrc.wire import (
    HEADER_CHAINS,
    WRITE_OPCODES,
    Bth,
    CcOpaque,
    Header,
    Ipv6,
    Packet,
    Seth,
    Udp,
    WireOptions,
)

H = TypeVar("H", bound=Header)

OPTIONS = st.builds(
    WireOptions,
    udp_ports=st.sampled_from([(4791, 4971), (4971,), (4791,)]),
    bth_m_first=st.booleans(),
    eeth_op_high=st.booleans(),
)


@st.composite
def headers(draw: st.DrawFn, /, kind: type[H], **fixed: int) -> H:
    """Any value in every field of the header `kind`, except where `fixed` says otherwise."""
    values: dict[str, object] = dict(fixed)
    for spec in kind.layout().specs:
        if spec.name in values:
            continue
        if isinstance(spec.default, bytes):
            size = spec.width // 8
            values[spec.name] = draw(st.binary(min_size=size, max_size=size))
        elif spec.signed:
            values[spec.name] = draw(st.integers(-0x8000, 0x7FFF))
        else:
            values[spec.name] = draw(st.integers(0, (1 << spec.width) - 1))
    return kind(**values)


@st.composite
def packets(draw: st.DrawFn, /, options: WireOptions, max_payload: int = 64) -> Packet:
    """A whole, untrimmed packet of any opcode."""
    opcode, ts = draw(st.sampled_from(sorted(HEADER_CHAINS)))
    points = options.code_points
    trimmed = {points.trimmed, points.trimmed_lasthop}
    chain = [draw(headers(kind)) for kind in HEADER_CHAINS[opcode, ts]]
    if isinstance(chain[0], Seth) and chain[0].cc_type:
        chain[1] = draw(headers(CcOpaque))
    payload = b""
    if opcode in WRITE_OPCODES:
        payload = draw(st.binary(max_size=max_payload))
    return Packet(
        draw(
            headers(
                Ipv6,
                version=6,
                next_header=17,
                dscp=draw(st.integers(0, 63).filter(lambda dscp: dscp not in trimmed)),
            )
        ),
        draw(headers(Udp, destination_port=draw(st.sampled_from(options.udp_ports)))),
        draw(headers(Bth, opcode=opcode, ts=ts, tver=0)),
        tuple(chain),
        payload,
    )
