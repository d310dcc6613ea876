# SPDX-License-Identifier: GPL-2.0-only
"""nic.p4: frames that the NIC's own agent hands it (packet-out op 9), treated as the host's."""

from __future__ import annotations

import pytest

from controller.addressing import CPU_PORT, host_address, nic_plane_port, own_carrier, path_ev
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Counters
from ptf_tests.device import Count
from ptf_tests.nic_world import (
    DOWNLINK,
    EV_CHOSEN,
    HOST,
    HOST_PORT,
    NEIGHBOUR,
    OP_INJECT,
    OP_READ_DOWN_PLANES,
    OP_READ_PATH,
    OP_WRITE_DOWN_PLANES,
    OP_WRITE_PATH,
    OTHER_GROUP,
    PEER,
    SPRAY_GROUP,
    UPLINK_BITS,
    arriving,
    ask_cpu,
    cross_t1,
    expected_frame,
    from_host,
    group_cfg,
    leaving,
    path_ev_of,
    path_group,
    plane_port,
    plane_set,
    slots,
)
from ptf_tests.packets import (
    ETHERNET_BYTES,
    IPV6_BYTES,
    NEXT_HEADER_IPV6,
    Macs,
    ethernet,
    ev_probe_answer_of,
    ev_probe_of,
    ipv6,
    mrc,
    with_flow_label,
)
from ptf_tests.world import BLOCK

PACKET_OUT_BYTES = 11  # op(8), index(16), value(64)
NO_MACS = Macs(0, 0)  # an agent need not know them: the NIC writes both
EV = path_ev(5, 9)
CHOSEN = mrc(Opcode.WRITE_ONLY, HOST, PEER, flow_label=EV_CHOSEN | EV)


def inject(bench: Bench, frame: bytes, index: int = 0, value: int = 0) -> None:
    """Hand the NIC a frame; there is no answer."""
    bench.device.packet_out(frame, op=OP_INJECT, index=index, value=value)


def counted(frame: bytes, cell: tuple[str, int]) -> Counters:
    """What the counters must show: the frame with its CPU header, come in there and ended here."""
    count = Count(1, PACKET_OUT_BYTES + len(frame))
    return {("port_in", CPU_PORT): count, cell: count}


def sends(bench: Bench, frame: bytes, port: int, expected: bytes) -> None:
    """The injected frame comes out there as ``expected``, and nothing else happens."""
    before = bench.counters()
    inject(bench, frame)
    bench.expect(port, expected)
    bench.expect_counters(before, counted(frame, ("port_out", port)))
    bench.expect_nothing()
    assert bench.device.packet_in(timeout_s=0.02) is None


def drops(bench: Bench, frame: bytes, reason: DropReason) -> None:
    """The injected frame is dropped for this reason, and nothing else happens."""
    before = bench.counters()
    inject(bench, frame)
    bench.expect_counters(before, counted(frame, ("drops", reason)))
    bench.expect_nothing()
    assert bench.device.packet_in(timeout_s=0.02) is None


class TestSent:
    """The same bytes leave by the same port as if the host had sent the frame."""

    @pytest.mark.parametrize("target", [PEER, NEIGHBOUR], ids=["cross_t1", "t0_local"])
    def test_on_the_ev_that_the_frame_names(self, host_nic: Bench, target: int) -> None:
        for ev in (path_ev(0, 0), EV, path_ev(7, 1023)):
            packet = mrc(Opcode.WRITE_ONLY, HOST, target, flow_label=EV_CHOSEN | ev)
            port, expected = plane_port(ev), expected_frame(packet, ev)
            host_nic.forwards(HOST_PORT, from_host(packet), port, expected)
            sends(host_nic, ethernet(NO_MACS, packet), port, expected)

    def test_sprayed(self, host_nic: Bench, spray_group: int) -> None:
        """The host's packets and those of the agent take turns in one round robin."""
        evs = [path_ev(2, uplink) for uplink in range(4)]
        host_nic.device.modify(cross_t1(spray_group))
        host_nic.device.insert(
            *plane_set([2]), *slots(spray_group, {2: evs}), group_cfg(spray_group, 4, random=False)
        )
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER)
        for ev in (evs[0], evs[2]):
            sends(host_nic, from_host(packet), plane_port(ev), expected_frame(packet, ev))
            host_nic.send(HOST_PORT, from_host(packet))
            ((_, frame),) = host_nic.receive(1)
            assert path_ev_of(frame) == ev + (1 << 3)

    def test_not_on_a_plane_that_is_down(self, host_nic: Bench, spray_group: int) -> None:
        evs = {0: [path_ev(0, 1)], 1: [path_ev(1, 1)]}
        host_nic.device.modify(cross_t1(spray_group))
        host_nic.device.insert(
            *plane_set([0, 1], range(4)),
            *slots(spray_group, evs),
            group_cfg(spray_group, 1, random=False),
        )
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER)
        for down, plane in ((0b01, 1), (0b10, 0)):
            assert ask_cpu(host_nic.device, OP_WRITE_DOWN_PLANES, 0, down)[2] == down
            ev = evs[plane][0]
            sends(host_nic, from_host(packet), plane_port(ev), expected_frame(packet, ev))

    def test_own_carrier(self, host_nic: Bench) -> None:
        """A carrier that the agent built itself takes the plane of its first uSID."""
        packet = ipv6(HOST, own_carrier(BLOCK, 4, DOWNLINK), CHOSEN, NEXT_HEADER_IPV6)
        port = nic_plane_port(4)
        sends(host_nic, ethernet(NO_MACS, packet), port, ethernet(leaving(port), packet))

    def test_index_and_value_mean_nothing(self, host_nic: Bench) -> None:
        ask_cpu(host_nic.device, OP_WRITE_DOWN_PLANES, 0, 0x81)
        inject(host_nic, from_host(CHOSEN), index=0xFFFF, value=0xFFFF_FFFF_FFFF_FFFF)
        host_nic.expect(plane_port(EV), expected_frame(CHOSEN, EV))
        assert ask_cpu(host_nic.device, OP_READ_DOWN_PLANES)[2] == 0x81

    def test_largest_frame(self, host_nic: Bench) -> None:
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER, bytes(8192), flow_label=EV_CHOSEN | EV)
        sends(host_nic, from_host(packet), plane_port(EV), expected_frame(packet, EV))


class TestProbe:
    """The NIC takes the answer to its agent's probe for itself, as to one of the host's."""

    def test_answered_probe_brings_the_path_back(self, host_nic: Bench, spray_group: int) -> None:
        evs = [path_ev(5, uplink) for uplink in range(4)]
        ev, good, bad = evs[1], 0, 2
        host_nic.device.modify(cross_t1(spray_group))
        host_nic.device.insert(
            *plane_set([5]),
            *slots(spray_group, {5: evs}),
            group_cfg(spray_group, 4, random=False, retirable=3, probe_successes=2),
        )
        for _ in evs:  # the NIC hears of no path that it has sent nothing on
            host_nic.send(HOST_PORT, from_host(mrc(Opcode.WRITE_ONLY, HOST, PEER)))
        assert {path_ev_of(frame) for _, frame in host_nic.receive(len(evs))} == {*evs}
        plane = path_group(spray_group) << 3 | 5
        index = (plane << UPLINK_BITS | 1) << 32
        wanted = index | ev << 16 | bad << 6
        assert ask_cpu(host_nic.device, OP_WRITE_PATH, plane, wanted)[2] == wanted

        def state() -> int:
            return ask_cpu(host_nic.device, OP_READ_PATH, plane, index)[2] >> 6 & 3

        for request, expected in ((0x8001, bad), (0x8002, good)):
            probe = mrc(
                Opcode.ENDPOINT_REQUEST,
                HOST,
                PEER,
                source_port=0xC000,
                flow_label=EV_CHOSEN | ev,
                headers=ev_probe_of(request),
            )
            sends(host_nic, ethernet(NO_MACS, probe), plane_port(ev), expected_frame(probe, ev))
            assert state() == bad
            self.answer(host_nic, request + 0x100)  # to another one
            assert state() == bad
            self.answer(host_nic, request)
            assert state() == expected

    def answer(self, bench: Bench, request: int) -> None:
        """The peer's answer, which goes up to the host too."""
        inner = mrc(Opcode.ENDPOINT_RESPONSE, PEER, HOST, headers=ev_probe_answer_of(request))
        port = nic_plane_port(3)
        outer = ipv6(PEER, own_carrier(BLOCK, 3, DOWNLINK), inner, NEXT_HEADER_IPV6)
        expected = ethernet(leaving(HOST_PORT), inner)
        bench.forwards(port, ethernet(arriving(port), outer), HOST_PORT, expected)


class TestDropped:
    """For the same reasons as frames of the host; each is counted."""

    def test_cut_after_every_byte(self, host_nic: Bench) -> None:
        """Down to nothing at all: a packet-out has no shortest length as an Ethernet frame has."""
        frame = from_host(CHOSEN)
        needed = ETHERNET_BYTES + IPV6_BYTES
        before = host_nic.counters()
        for length in range(needed):
            inject(host_nic, frame[:length])
        total = Count(needed, sum(range(needed)) + needed * PACKET_OUT_BYTES)
        host_nic.expect_counters(
            before, {("port_in", CPU_PORT): total, ("drops", DropReason.TRUNCATED): total}
        )
        host_nic.expect_nothing()
        expected = expected_frame(CHOSEN, EV)
        for length in (needed, needed + 1, needed + 8, len(frame) - 1):
            cut = expected[: length + IPV6_BYTES]
            sends(host_nic, frame[:length], plane_port(EV), cut)

    def test_not_ipv6(self, host_nic: Bench) -> None:
        drops(host_nic, ethernet(NO_MACS, CHOSEN, 0x0800), DropReason.NOT_IPV6)
        drops(host_nic, ethernet(NO_MACS, b"x", 0x88CC), DropReason.NOT_IPV6)
        version_4 = bytes([0x40 | CHOSEN[0] & 0x0F]) + CHOSEN[1:]
        drops(host_nic, ethernet(NO_MACS, version_4), DropReason.NOT_IPV6)

    def test_no_destination(self, host_nic: Bench) -> None:
        stranger = mrc(Opcode.WRITE_ONLY, HOST, host_address(OTHER_GROUP + 1, 0))
        drops(host_nic, ethernet(NO_MACS, stranger), DropReason.NO_DESTINATION)

    def test_no_group(self, host_nic: Bench) -> None:
        host_nic.device.modify(cross_t1(SPRAY_GROUP))
        unsprayed = with_flow_label(CHOSEN, 0)
        drops(host_nic, ethernet(NO_MACS, unsprayed), DropReason.NO_GROUP)

    def test_empty_nic(self, nic: Bench) -> None:
        """As before its first push."""
        drops(nic, ethernet(NO_MACS, CHOSEN), DropReason.NO_DESTINATION)
