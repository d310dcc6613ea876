# SPDX-License-Identifier: Apache-2.0
"""nic.p4: planes that are down: the mask that a link agent writes by packet-out."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.addressing import CPU_PORT, nic_plane_port, path_ev, t0_local_carrier
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.device import Count
from ptf_tests.nic_world import (
    DOWNLINK,
    EV_CHOSEN,
    GROUP,
    HOST,
    HOST_PORT,
    NEIGHBOUR,
    OP_READ_DOWN_PLANES,
    OP_WRITE_DOWN_PLANES,
    PEER,
    PLANES,
    SPRAY_GROUP,
    ask_cpu,
    cross_t1,
    expected_frame,
    from_host,
    group_cfg,
    leaving,
    path_ev_of,
    plane_port,
    plane_set,
    set_down_planes,
    slots,
    t0_local,
)
from ptf_tests.packets import NEXT_HEADER_IPV6, ethernet, ipv6, mrc
from ptf_tests.statistics import assert_drawn
from ptf_tests.world import BLOCK

PACKET_OUT_BYTES = 11  # op(8), index(16), value(64)
PACKET = mrc(Opcode.WRITE_ONLY, HOST, PEER)
EVS = {plane: path_ev(plane, 40 + plane) for plane in PLANES}


def install(bench: Bench, group: int, planes: list[int], masks: list[int], *, random: bool) -> None:
    """A group with one slot per plane, and its plane set for these masks."""
    bench.device.insert(
        *plane_set(planes, masks),
        *slots(group, {plane: [EVS[plane]] for plane in planes}),
        group_cfg(group, 1, random=random),
    )


def planes_used(bench: Bench, packets: int) -> Counter[int]:
    """Planes of the next packets, each of which must have gone out whole."""
    out = bench.spread(HOST_PORT, [from_host(PACKET)] * packets)
    used: Counter[int] = Counter()
    for port, frames in out.items():
        for frame in frames:
            ev = path_ev_of(frame)
            assert (port, frame) == (plane_port(ev), expected_frame(PACKET, ev))
            used[ev >> 13] += 1
    return used


def in_turn(bench: Bench, planes: list[int]) -> None:
    """The next packets take exactly these planes."""
    for plane in planes:
        bench.send(HOST_PORT, from_host(PACKET))
        bench.expect(plane_port(EVS[plane]), expected_frame(PACKET, EVS[plane]))
    bench.expect_nothing()


class TestMask:
    """Packet-out asks, packet-in answers with the value that is now in force."""

    def test_no_plane_is_down_at_first(self, nic: Bench) -> None:
        assert ask_cpu(nic.device, OP_READ_DOWN_PLANES) == (OP_READ_DOWN_PLANES, 0, 0)

    def test_written_mask_is_read_back(self, nic: Bench) -> None:
        for mask in [*(1 << plane for plane in PLANES), 0xFF, 0x5A, 0]:
            set_down_planes(nic.device, mask)
            assert ask_cpu(nic.device, OP_READ_DOWN_PLANES) == (OP_READ_DOWN_PLANES, 0, mask)

    def test_reading_changes_nothing(self, nic: Bench) -> None:
        set_down_planes(nic.device, 0x81)
        for value in (0, 0xFF):
            answer = ask_cpu(nic.device, OP_READ_DOWN_PLANES, 0, value)
            assert answer == (OP_READ_DOWN_PLANES, 0, 0x81)

    def test_unknown_operation_changes_nothing(self, nic: Bench) -> None:
        set_down_planes(nic.device, 0x81)
        for op in (0, 0x7F, 0xFF):
            assert ask_cpu(nic.device, op, 0, 0x7E) == (op, 0, 0x81)

    def test_answer_repeats_the_index(self, nic: Bench) -> None:
        # A client may number its requests.
        assert ask_cpu(nic.device, OP_READ_DOWN_PLANES, 0xBEEF)[1] == 0xBEEF
        assert ask_cpu(nic.device, OP_WRITE_DOWN_PLANES, 0xCAFE, 1) == (2, 0xCAFE, 1)

    def test_only_eight_planes_are_kept(self, nic: Bench) -> None:
        answer = ask_cpu(nic.device, OP_WRITE_DOWN_PLANES, 0, 0xFFFF_FFFF_FFFF_FF10)
        assert answer == (OP_WRITE_DOWN_PLANES, 0, 0x10)

    def test_counts_as_a_packet_to_the_cpu_only(self, nic: Bench) -> None:
        before = nic.counters()
        set_down_planes(nic.device, 1)
        nic.expect_counters(before, {("port_out", CPU_PORT): Count(1, PACKET_OUT_BYTES)})
        nic.expect_nothing()


class TestSpray:
    """Only live planes carry traffic, and carry it in equal shares."""

    @pytest.mark.parametrize("mask", [0b0001, 0b0110, 0b1011, 0b0111, 0b1110])
    def test_random(self, host_nic: Bench, mask: int) -> None:
        install(host_nic, SPRAY_GROUP, [0, 1, 2, 3], [0, mask], random=True)
        set_down_planes(host_nic.device, mask)
        live = [plane for plane in range(4) if not mask >> plane & 1]
        assert_drawn(planes_used(host_nic, 512), dict.fromkeys(live, 1))

    @pytest.mark.parametrize("mask", [0b0001, 0b0110, 0b1011, 0b0111, 0b1110])
    def test_round_robin(self, host_nic: Bench, spray_group: int, mask: int) -> None:
        host_nic.device.modify(cross_t1(spray_group))
        install(host_nic, spray_group, [0, 1, 2, 3], [0, mask], random=False)
        set_down_planes(host_nic.device, mask)
        live = [plane for plane in range(4) if not mask >> plane & 1]
        in_turn(host_nic, live * 3)

    def test_weights_of_the_live_planes_are_kept(self, host_nic: Bench) -> None:
        install(host_nic, SPRAY_GROUP, [0, 1, 1, 2, 2, 2], [0, 0b100], random=True)
        set_down_planes(host_nic.device, 0b100)
        assert_drawn(planes_used(host_nic, 512), {0: 1, 1: 2})

    def test_plane_that_comes_back_is_used_again(self, host_nic: Bench) -> None:
        install(host_nic, SPRAY_GROUP, [0, 1], [0, 0b10], random=True)
        set_down_planes(host_nic.device, 0b10)
        assert planes_used(host_nic, 64) == {0: 64}
        set_down_planes(host_nic.device, 0)
        assert_drawn(planes_used(host_nic, 512), {0: 1, 1: 1})

    def test_round_robin_goes_on_when_there_are_fewer_planes(
        self, host_nic: Bench, spray_group: int
    ) -> None:
        host_nic.device.modify(cross_t1(spray_group))
        install(host_nic, spray_group, [0, 1, 2, 3], [0, 0b1100], random=False)
        in_turn(host_nic, [0, 1, 2])
        # The turn is at the fourth choice and there are two: it starts again.
        set_down_planes(host_nic.device, 0b1100)
        in_turn(host_nic, [0, 1, 0, 1])
        set_down_planes(host_nic.device, 0)
        in_turn(host_nic, [2, 3, 0])

    def test_all_planes_down(self, host_nic: Bench) -> None:
        masks = list(range(1, 4))
        install(host_nic, SPRAY_GROUP, [0, 1], [0, *masks], random=True)
        set_down_planes(host_nic.device, 0b11)
        frame = from_host(PACKET)
        host_nic.check(*[Drop(HOST_PORT, frame, DropReason.NO_LIVE_PLANE)] * 3)
        set_down_planes(host_nic.device, 0)
        assert sum(planes_used(host_nic, 32).values()) == 32

    def test_planes_outside_the_set_do_not_matter(self, host_nic: Bench) -> None:
        install(host_nic, SPRAY_GROUP, [0, 1], [0, 0b11110000], random=True)
        set_down_planes(host_nic.device, 0b11110000)
        assert_drawn(planes_used(host_nic, 256), {0: 1, 1: 1})

    def test_every_group_avoids_the_plane(
        self, host_nic: Bench, spray_group: int, second_spray_group: int
    ) -> None:
        host_nic.device.modify(cross_t1(spray_group), t0_local(second_spray_group))
        install(host_nic, spray_group, [0, 1], [0, 0b1], random=False)
        host_nic.device.insert(
            *slots(second_spray_group, {plane: [EVS[plane]] for plane in (0, 1)}),
            group_cfg(second_spray_group, 1, random=False),
        )
        set_down_planes(host_nic.device, 0b1)
        near = mrc(Opcode.WRITE_ONLY, HOST, NEIGHBOUR)
        fates = [
            Forward(
                HOST_PORT, from_host(packet), plane_port(EVS[1]), expected_frame(packet, EVS[1])
            )
            for packet in (PACKET, near)
        ]
        host_nic.check(*fates * 3)


class TestWhatIgnoresTheMask:
    """Probes must be able to try a plane that is said to be down."""

    def test_chosen_evs_and_the_hosts_own_carriers(self, host_nic: Bench) -> None:
        set_down_planes(host_nic.device, 0xFF)
        fates: list[Fate] = []
        for plane, ev in EVS.items():
            port = nic_plane_port(plane)
            packet = mrc(Opcode.ENDPOINT_REQUEST, HOST, PEER, flow_label=EV_CHOSEN | ev)
            fates.append(Forward(HOST_PORT, from_host(packet), port, expected_frame(packet, ev)))
            probe = ipv6(
                HOST, t0_local_carrier(BLOCK, plane, GROUP, DOWNLINK), b"", NEXT_HEADER_IPV6
            )
            fates.append(Forward(HOST_PORT, from_host(probe), port, ethernet(leaving(port), probe)))
        host_nic.check(*fates)
