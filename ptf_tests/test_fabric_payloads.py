# SPDX-License-Identifier: Apache-2.0
"""fabric.p4 changes the hop limit, the carrier and the MACs, and not one other bit."""

from __future__ import annotations

from operator import attrgetter

import pytest

from controller.addressing import DT6_USID, carrier, group_prefix, host_address, shift
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Forward
from ptf_tests.packets import (
    ETHERNET_BYTES,
    NEXT_HEADER_IPV6,
    assert_checksums,
    ethernet,
    ipv6,
    mrc,
)
from ptf_tests.world import (
    BLOCK,
    OTHER_T0,
    OTHER_T0_USID,
    T0,
    T0_USID,
    arriving,
    down_port,
    downlink_usid,
    ipv6_route,
    leaving,
    local_dt6,
    next_hop,
    t1_usid,
    up_port,
)

IN, OUT = down_port(0), up_port(1)
HOST = host_address(T0, 0)
PEER = host_address(OTHER_T0, 2)
CROSS_T1 = carrier(BLOCK, T0_USID, t1_usid(1), OTHER_T0_USID, downlink_usid(2))
DT6 = carrier(BLOCK, T0_USID, DT6_USID)
JUMBO_BYTES = 9000


def over_un(inner: bytes, *, dscp: int = 0, ecn: int = 0, flow_label: int = 0) -> Forward:
    """The inner packet in a carrier through uN."""
    before, after = (
        ipv6(
            HOST,
            destination,
            inner,
            NEXT_HEADER_IPV6,
            hop_limit=hop_limit,
            dscp=dscp,
            ecn=ecn,
            flow_label=flow_label,
        )
        for destination, hop_limit in ((CROSS_T1, 64), (shift(CROSS_T1), 63))
    )
    return Forward(IN, ethernet(arriving(IN), before), OUT, ethernet(leaving(OUT), after))


@pytest.mark.parametrize("opcode", Opcode, ids=attrgetter("name"))
def test_every_opcode_through_un(t0: Bench, opcode: Opcode) -> None:
    t0.check(over_un(mrc(opcode, HOST, PEER)))


@pytest.mark.parametrize("opcode", Opcode, ids=attrgetter("name"))
def test_every_opcode_through_decapsulation(t0: Bench, opcode: Opcode) -> None:
    prefix, length = group_prefix(OTHER_T0)
    t0.device.insert(local_dt6(), ipv6_route(prefix, length, next_hop("forward", OUT)))
    packet = ipv6(HOST, DT6, mrc(opcode, HOST, PEER), NEXT_HEADER_IPV6)
    expected = ethernet(leaving(OUT), mrc(opcode, HOST, PEER, hop_limit=63))
    t0.forwards(IN, ethernet(arriving(IN), packet), OUT, expected)
    assert_checksums(expected[ETHERNET_BYTES:])


def test_every_dscp_and_ecn(t0: Bench) -> None:
    inner = mrc(Opcode.WRITE_ONLY, HOST, PEER)
    t0.check(*(over_un(inner, dscp=dscp, ecn=ecn) for dscp in range(64) for ecn in range(4)))


def test_flow_label(t0: Bench) -> None:
    inner = mrc(Opcode.WRITE_ONLY, HOST, PEER)
    labels = [0, *(1 << bit for bit in range(20)), 0xFFFFF]
    t0.check(*(over_un(inner, flow_label=label) for label in labels))


@pytest.mark.parametrize("payload_bytes", [0, 1, 2, 3, 4, 255, 256, 1024, 4096])
def test_payload_sizes(t0: Bench, payload_bytes: int) -> None:
    payload = bytes(n % 251 for n in range(payload_bytes))
    t0.check(over_un(mrc(Opcode.WRITE_MIDDLE, HOST, PEER, payload)))


def test_jumbo_frame(t0: Bench) -> None:
    empty = over_un(mrc(Opcode.WRITE_MIDDLE, HOST, PEER, b""))
    room = JUMBO_BYTES - (len(empty.packet) - ETHERNET_BYTES)
    jumbo = over_un(mrc(Opcode.WRITE_MIDDLE, HOST, PEER, bytes(n % 251 for n in range(room))))
    assert len(jumbo.packet) == JUMBO_BYTES + ETHERNET_BYTES
    t0.check(jumbo)
