# SPDX-License-Identifier: Apache-2.0
"""nic.p4: of the copies of a WRITE the first reaches the host, the others are dropped
(duplicates.p4)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from operator import attrgetter

import pytest

from controller.addressing import host_address, nic_plane_port, own_carrier, path_ev
from controller.drops import DropReason
from mrc.opcodes import WRITE_OPCODES, Opcode
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.copies_world import CLASS, first_only, receiving_copies
from ptf_tests.hashes import crc32_of
from ptf_tests.nic_world import (
    DOWNLINK,
    HOST,
    HOST_PORT,
    OTHER_GROUP,
    PEER,
    PLANES,
    arriving,
    cross_t1,
    expected_frame,
    group_cfg,
    leaving,
    peer,
    plane_port,
    plane_set,
    slots,
)
from ptf_tests.packets import (
    CE,
    ECT_0,
    NEXT_HEADER_IPV6,
    NOT_ECT,
    ethernet,
    ipv6,
    mrc,
    nack_to,
    write_to,
)
from ptf_tests.packets import trimmed as cut
from ptf_tests.world import BLOCK, CODE_POINTS, DSCPS

DSCP = CLASS[2]
PSNS = 1 << 24
WINDOW = 1024
FORGOTTEN_S = 1.1  # after 61 to 62 units of 2^14 us
TRIMMED = [CODE_POINTS.trimmed, CODE_POINTS.trimmed_lasthop]
REASON = {CODE_POINTS.trimmed: 1, CODE_POINTS.trimmed_lasthop: 2}
EV = path_ev(6, 0x2B)

# A QP for each test: the memory of one second would reach from one test into the next.
_qps = itertools.count(0x111111, 0x1357)


class Receiver:
    """The host behind the NIC under test, and a peer that sends to one of its QPs."""

    def __init__(self, bench: Bench, qp: int) -> None:
        self.bench = bench
        self.qp = qp

    def packet(
        self,
        psn: int,
        *,
        qp: int | None = None,
        source: int = PEER,
        dscp: int = DSCP,
        rtx: bool = False,
        ecn: int = NOT_ECT,
        opcode: Opcode = Opcode.WRITE_MIDDLE,
    ) -> bytes:
        """The peer's packet, as its NIC has sent it."""
        headers = write_to(self.qp if qp is None else qp, psn % PSNS, 0xBEEF, opcode)
        headers.rtx = int(rtx)
        return mrc(
            opcode, source, HOST, bytes(40), dscp=dscp, ecn=ecn, flow_label=EV, headers=headers
        )

    def passes(self, packet: bytes, plane: int = 0) -> Forward:
        """The packet that comes in from this plane goes up to the host."""
        frame = ethernet(leaving(HOST_PORT), packet)
        return Forward(nic_plane_port(plane), carried(packet, plane), HOST_PORT, frame)

    def dropped(self, packet: bytes, plane: int = 0) -> Drop:
        """It is dropped as a duplicate."""
        return Drop(nic_plane_port(plane), carried(packet, plane), DropReason.DUPLICATE)

    def check(self, *fates: Fate) -> None:
        """Each of these, one after the other; nothing but time holds back a sender of packets that
        are dropped, so not too many at a time."""
        for start in range(0, len(fates), 64):
            self.bench.check(*fates[start : start + 64])


def carried(packet: bytes, plane: int = 0, ecn: int = NOT_ECT) -> bytes:
    """The frame in which a packet comes in from a plane."""
    outer = ipv6(
        PEER, own_carrier(BLOCK, plane, DOWNLINK), packet, NEXT_HEADER_IPV6, dscp=DSCP, ecn=ecn
    )
    return ethernet(arriving(nic_plane_port(plane)), outer)


@pytest.fixture
def receiver(host_nic: Bench) -> Iterator[Receiver]:
    """The NIC with both classes."""
    host_nic.device.insert(*receiving_copies())
    yield Receiver(host_nic, next(_qps) % PSNS)


class TestCopies:
    @pytest.mark.parametrize("copies", [2, 3])
    def test_first_of_each(self, receiver: Receiver, copies: int) -> None:
        """From whichever plane it comes."""
        for n, first in enumerate(PLANES):
            packet = receiver.packet(n, dscp=CLASS[copies])
            receiver.check(receiver.passes(packet, first))
            for after in range(1, copies):
                receiver.check(receiver.dropped(packet, (first + after) % 8))

    @pytest.mark.parametrize(
        "opcode", [*map(Opcode, sorted(WRITE_OPCODES))], ids=attrgetter("name")
    )
    def test_every_write(self, receiver: Receiver, opcode: Opcode) -> None:
        packet = receiver.packet(5, opcode=opcode)
        receiver.check(receiver.passes(packet), receiver.dropped(packet))

    def test_other_classes_pass(self, receiver: Receiver) -> None:
        others = [d for d in DSCPS if d not in (*CLASS.values(), *TRIMMED)]
        receiver.check(
            *(receiver.passes(receiver.packet(5, dscp=dscp)) for dscp in others for _ in range(2))
        )

    @pytest.mark.parametrize(
        "opcode", [code for code in Opcode if code not in WRITE_OPCODES], ids=attrgetter("name")
    )
    def test_what_is_no_write_passes(self, receiver: Receiver, opcode: Opcode) -> None:
        packet = mrc(opcode, PEER, HOST, dscp=DSCP)
        receiver.check(receiver.passes(packet), receiver.passes(packet))

    def test_class_comes_and_goes(self, receiver: Receiver) -> None:
        packet = receiver.packet(1)
        receiver.check(receiver.passes(packet), receiver.dropped(packet))
        receiver.bench.device.delete(first_only(DSCP))
        receiver.check(receiver.passes(packet))
        receiver.bench.device.insert(first_only(DSCP))
        receiver.check(receiver.passes(receiver.packet(2)), receiver.dropped(receiver.packet(2)))

    def test_not_for_this_host(self, receiver: Receiver) -> None:
        """What is dropped for another reason has not been seen."""
        packet = receiver.packet(3, ecn=NOT_ECT)
        frame = carried(packet, 2, ecn=CE)
        receiver.check(Drop(nic_plane_port(2), frame, DropReason.ECN_NOT_ECT))
        wrong_port = Drop(nic_plane_port(3), carried(packet, 2), DropReason.NOT_OWN_CARRIER)
        receiver.check(wrong_port, receiver.passes(packet, 3))

    def test_mark_of_the_second_copy_is_lost(self, receiver: Receiver) -> None:
        packet = receiver.packet(4, ecn=ECT_0)
        receiver.check(receiver.passes(packet, 1))
        marked = carried(packet, 2, ecn=CE)
        receiver.check(Drop(nic_plane_port(2), marked, DropReason.DUPLICATE))


class TestWindow:
    def test_wrap(self, receiver: Receiver) -> None:
        """2,048 PSNs over the wrap, each twice, the second time one later: exactly 2,048 pass."""
        packets = [receiver.packet(psn) for psn in range(PSNS - 1024, PSNS + 1024)]
        fates: list[Fate] = [receiver.passes(packets[0])]
        for before, packet in itertools.pairwise(packets):
            fates += [receiver.passes(packet), receiver.dropped(before, 0)]
        receiver.check(*fates)

    @pytest.mark.parametrize("start", [0, 0xABCDEF, PSNS - 500])
    def test_copy_that_is_1023_behind(self, receiver: Receiver, start: int) -> None:
        """And the one that is 1,024 behind passes: the host knows its PSN."""
        steps = [0, 1, 2, 31, 511, 512, 1022, 1023]
        packets = [receiver.packet(start + step) for step in steps]
        receiver.check(*map(receiver.passes, packets), receiver.dropped(packets[0]))
        receiver.check(receiver.passes(receiver.packet(start + WINDOW)))
        receiver.check(receiver.passes(packets[0]), *map(receiver.dropped, packets[1:]))

    def test_any_order(self, receiver: Receiver) -> None:
        """The second copies backwards, from all over the window and over the wrap."""
        packets = [receiver.packet(PSNS - 512 + n) for n in range(0, WINDOW, 17)]
        receiver.check(*map(receiver.passes, packets))
        receiver.check(*map(receiver.dropped, reversed(packets)))

    @pytest.mark.parametrize("bit", range(24))
    def test_every_bit_of_the_psn(self, receiver: Receiver, bit: int) -> None:
        one, other = receiver.packet(0x5A5A5A), receiver.packet(0x5A5A5A ^ 1 << bit)
        receiver.check(receiver.passes(one), receiver.passes(other), receiver.dropped(other))


class TestQps:
    def test_two_qps(self, receiver: Receiver) -> None:
        own, other = receiver.packet(9), receiver.packet(9, qp=receiver.qp ^ 1)
        receiver.check(*map(receiver.passes, (own, other)))
        receiver.check(*map(receiver.dropped, (own, other)))

    def test_two_peers(self, receiver: Receiver) -> None:
        own = receiver.packet(9)
        other = receiver.packet(9, source=host_address(OTHER_GROUP, 3))
        receiver.check(*map(receiver.passes, (own, other)))
        receiver.check(*map(receiver.dropped, (own, other)))

    def test_restart(self, receiver: Receiver) -> None:
        """A QP that starts anew at the same PSN, later than a second after the last packet."""
        packets = [receiver.packet(n) for n in range(64)]
        receiver.check(*map(receiver.passes, packets))
        receiver.check(*map(receiver.dropped, packets))
        time.sleep(FORGOTTEN_S)
        receiver.check(*map(receiver.passes, packets))
        receiver.check(*map(receiver.dropped, packets))

    def test_restart_at_another_psn(self, receiver: Receiver) -> None:
        """No matter how soon, and on which side of the old one."""
        for start in (5_000_000, 4_000_000, 4_999_000):
            packets = [receiver.packet(start + n) for n in range(64)]
            receiver.check(*map(receiver.passes, packets))
            receiver.check(*map(receiver.dropped, packets))

    def test_shared_cells(self, receiver: Receiver) -> None:
        """QPs whose hashes end alike: a copy may pass, none is dropped for the other's."""
        ends = crc32_of([(PEER, 128), (receiver.qp, 24)]) & 0x3F
        other = next(
            qp for qp in itertools.count(1) if crc32_of([(PEER, 128), (qp, 24)]) & 0x3F == ends
        )
        mine, others = receiver.packet(77), receiver.packet(77, qp=other)
        receiver.check(receiver.passes(mine), receiver.dropped(mine))
        receiver.check(receiver.passes(others), receiver.dropped(others))
        receiver.check(receiver.passes(mine))


class TestRetransmission:
    def test_always_passes(self, receiver: Receiver) -> None:
        again = receiver.packet(12, rtx=True)
        receiver.check(receiver.passes(receiver.packet(12)))
        receiver.check(receiver.passes(again), receiver.passes(again))

    def test_late_copy_behind_it(self, receiver: Receiver) -> None:
        """It is one of the copies that were taken for lost."""
        receiver.check(receiver.passes(receiver.packet(13, rtx=True)))
        receiver.check(receiver.dropped(receiver.packet(13)))


@pytest.mark.parametrize("dscp", TRIMMED)
class TestTrimmed:
    """With a peer that the NIC knows, so that trimmed packets are turned round as NACKs."""

    def trimmed(self, receiver: Receiver, psn: int, dscp: int, *, rtx: bool = False) -> bytes:
        return cut(receiver.packet(psn, rtx=rtx), dscp)

    def turned_round(self, receiver: Receiver, psn: int, dscp: int, rtx: bool = False) -> Forward:
        """The trimmed packet comes in from plane 6, and its NACK leaves on plane 1."""
        back = path_ev(1, 5)
        packet = mrc(
            Opcode.NACK,
            HOST,
            PEER,
            source_port=0xC0DE,
            dscp=CODE_POINTS.control,
            headers=nack_to(0x5D6E7F, receiver.qp, psn, REASON[dscp], EV << 16 | 0xC0DE, 0xBEEF),
        )
        return Forward(
            nic_plane_port(6),
            carried(self.trimmed(receiver, psn, dscp, rtx=rtx), 6),
            plane_port(back),
            expected_frame(packet, back),
        )

    @pytest.fixture(autouse=True)
    def _known_peer(self, receiver: Receiver, spray_group: int) -> None:
        device = receiver.bench.device
        device.modify(cross_t1(spray_group))
        device.insert(
            *plane_set([1]),
            *slots(spray_group, {1: [path_ev(1, 5)]}),
            group_cfg(spray_group, 1, random=False, planes=[1]),
            peer(PEER, receiver.qp, 0x5D6E7F),
        )

    def test_behind_a_whole_copy(self, receiver: Receiver, dscp: int) -> None:
        """No NACK: nothing is missing."""
        receiver.check(receiver.passes(receiver.packet(20)))
        receiver.check(receiver.dropped(self.trimmed(receiver, 20, dscp), 6))

    def test_before_a_whole_copy(self, receiver: Receiver, dscp: int) -> None:
        receiver.check(self.turned_round(receiver, 21, dscp))
        packet = receiver.packet(21)
        receiver.check(receiver.passes(packet), receiver.dropped(packet))

    def test_both_copies(self, receiver: Receiver, dscp: int) -> None:
        """A NACK each, as each tells of its own path; the retransmission passes."""
        receiver.check(self.turned_round(receiver, 22, dscp))
        receiver.check(self.turned_round(receiver, 22, dscp))
        receiver.check(receiver.passes(receiver.packet(22, rtx=True)))

    def test_retransmission(self, receiver: Receiver, dscp: int) -> None:
        """The sender has not heard of the copy that arrived: the NACK is its answer."""
        receiver.check(receiver.passes(receiver.packet(23)))
        receiver.check(self.turned_round(receiver, 23, dscp, rtx=True))

    def test_other_classes(self, receiver: Receiver, dscp: int) -> None:
        """Packets that are sent once leave no trace, and are turned round as ever."""
        once = receiver.packet(24, dscp=CODE_POINTS.trimmable)
        receiver.check(receiver.passes(once))
        receiver.check(self.turned_round(receiver, 24, dscp))

    def test_after_a_second(self, receiver: Receiver, dscp: int) -> None:
        receiver.check(receiver.passes(receiver.packet(25)))
        time.sleep(FORGOTTEN_S)
        receiver.check(self.turned_round(receiver, 25, dscp))
