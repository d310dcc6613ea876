# SPDX-License-Identifier: Apache-2.0
"""nic.p4: trimmed packets are turned round as NACKs; where that is not possible they go up."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from finsy import P4TableAction

from controller.addressing import nic_plane_port, own_carrier, path_ev
from controller.drops import DropReason
from mrc.opcodes import WRITE_OPCODES, Opcode
from ptf_tests.bench import Bench, Drop, Forward
from ptf_tests.device import Count
from ptf_tests.nic_world import DOWNLINK as NIC_DOWNLINK
from ptf_tests.nic_world import (
    HOST,
    HOST_PORT,
    NEIGHBOUR,
    OP_READ_PATH,
    OP_WRITE_PATH,
    OTHER_GROUP,
    PEER,
    UPLINK_BITS,
    arriving,
    ask_cpu,
    cross_t1,
    destination,
    expected_frame,
    from_host,
    group_cfg,
    leaving,
    nic_entries,
    path_group,
    peer,
    plane_port,
    plane_set,
    set_down_planes,
    slots,
    t0_local,
    trim_class,
)
from ptf_tests.packets import (
    CE,
    ECT_0,
    IPV6_BYTES,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_ROUTING,
    NOT_ECT,
    UDP_BYTES,
    assert_checksums,
    ethernet,
    ipv6,
    mrc,
    nack_to,
    srh,
    trimmed,
    write_of,
    write_to,
)
from ptf_tests.queues import Queued
from ptf_tests.world import (
    BLOCK,
    CODE_POINTS,
    DOWNLINK,
    TO_DOWNLINK,
    TO_UPLINK,
    TRIM,
    UPLINK,
    down_port,
    up_port,
)
from ptf_tests.world import arriving as arriving_at_switch

OWN_QP, PEER_QP = 0xA1B2C3, 0x5D6E7F
PSN, STAMP, SOURCE_PORT = 0x9A8B7C, 0xBEEF, 0xC0DE
SENT_EV = path_ev(6, 0x2B)  # of the packet that is trimmed
BACK = [path_ev(plane, uplink) for plane, uplink in ((1, 5), (4, 900))]  # of the NACKs, in turn
WAYS = [path_ev(2, uplink) for uplink in range(4)]  # of one plane
GOOD, SKIP, BAD, DENIED = range(4)
CARRIED, PLAIN = 138, 98  # bytes of a NACK's frame
ENOUGH = {True: 20, False: 12}  # bytes behind the UDP header that a NACK needs, by time stamp
REASON = {CODE_POINTS.trimmed: 1, CODE_POINTS.trimmed_lasthop: 2}
TURNED_ROUND, NO_PEER, NOT_NACKABLE = range(3)

REASONS = pytest.mark.parametrize("dscp", REASON, ids=["trimmed", "last-hop"])
STAMPED = pytest.mark.parametrize("stamp", [STAMP, None], ids=["stamped", "plain"])


def data(
    stamp: int | None = STAMP,
    *,
    opcode: Opcode = Opcode.WRITE_MIDDLE,
    source: int = PEER,
    qp: int = OWN_QP,
    psn: int = PSN,
    ecn: int = NOT_ECT,
    label: int = SENT_EV,
    source_port: int = SOURCE_PORT,
    destination_port: int = 4791,
) -> bytes:
    """The sender's packet, as its NIC has sent it."""
    return mrc(
        opcode,
        source,
        HOST,
        bytes(100),
        source_port=source_port,
        destination_port=destination_port,
        dscp=CODE_POINTS.trimmable,
        ecn=ecn,
        flow_label=label,
        headers=write_to(qp, psn, stamp, opcode),
    )


def cut(packet: bytes, dscp: int = CODE_POINTS.trimmed, kept: int = 20) -> bytes:
    """What trimming leaves of it."""
    return trimmed(packet, dscp, kept)


def carried(packet: bytes, *, ecn: int = NOT_ECT, plane: int = 6) -> bytes:
    """The frame in which it comes in."""
    outer = ipv6(
        PEER,
        own_carrier(BLOCK, plane, NIC_DOWNLINK),
        packet,
        NEXT_HEADER_IPV6,
        dscp=CODE_POINTS.trimmed,
        ecn=ecn,
        hop_limit=61,
    )
    return ethernet(arriving(nic_plane_port(plane)), outer)


def nack(
    reason: int = 1,
    stamp: int | None = STAMP,
    *,
    target: int = PEER,
    own_qp: int = OWN_QP,
    psn: int = PSN,
    entropy: int = SENT_EV << 16 | SOURCE_PORT,
    destination_port: int = 4791,
    dscp: int = CODE_POINTS.control,
) -> bytes:
    """The NACK, by Scapy, with all its checksums, before it has an EV."""
    return mrc(
        Opcode.NACK,
        HOST,
        target,
        source_port=entropy & 0xFFFF,
        destination_port=destination_port,
        dscp=dscp,
        headers=nack_to(PEER_QP, own_qp, psn, reason, entropy, stamp),
    )


class Receiver:
    """The NIC of a host that receives: which way back comes next."""

    def __init__(self, bench: Bench, ways: Sequence[int]) -> None:
        self.bench = bench
        self._ways = ways
        self._sent = 0

    def answers(self, frame: bytes, answer: bytes, port_in: int = nic_plane_port(6)) -> None:
        """The frame comes in and the NACK goes out, on the path whose turn it is."""
        way = self._ways[self._sent % len(self._ways)]
        self._sent += 1
        sent = expected_frame(answer, way)
        assert len(sent) == CARRIED
        assert_checksums(sent[-CARRIED + 14 + IPV6_BYTES :])
        self.bench.check(Forward(port_in, frame, plane_port(way), sent))

    def hands_up(self, *packets: bytes) -> None:
        """Each packet goes up to the host as it is."""
        self.bench.check(
            *(
                Forward(
                    nic_plane_port(6), carried(item), HOST_PORT, ethernet(leaving(HOST_PORT), item)
                )
                for item in packets
            )
        )

    def drops(self, frame: bytes, reason: DropReason) -> None:
        """The NACK finds no way."""
        self.bench.check(Drop(nic_plane_port(6), frame, reason))

    def fates(self) -> list[int]:
        """Trimmed packets by what became of them."""
        found = self.bench.device.counters({"trimmed": range(3)})
        return [found["trimmed", fate].packets for fate in range(3)]


@pytest.fixture
def lonely(host_nic: Bench, spray_group: int) -> Receiver:
    """A receiver that knows no peers, and ways back on two planes in turn."""
    host_nic.device.modify(cross_t1(spray_group))
    host_nic.device.insert(
        *plane_set([ev >> 13 for ev in BACK], [0, 1 << 1, 1 << 4]),
        *slots(spray_group, {ev >> 13: [ev] for ev in BACK}),
        group_cfg(spray_group, 1, random=False),
    )
    return Receiver(host_nic, BACK)


@pytest.fixture
def receiver(lonely: Receiver) -> Receiver:
    """A receiver that knows the sender's QP."""
    lonely.bench.device.insert(peer(PEER, OWN_QP, PEER_QP))
    return lonely


class TestNack:
    """Every byte of the NACK, and the path that it takes."""

    @REASONS
    @STAMPED
    @pytest.mark.parametrize("destination_port", [4791, 4971])
    def test_says_what_was_lost(
        self, receiver: Receiver, dscp: int, stamp: int | None, destination_port: int
    ) -> None:
        packet = data(stamp, destination_port=destination_port)
        receiver.answers(
            carried(cut(packet, dscp, 20 if stamp else 16)),
            nack(REASON[dscp], stamp, destination_port=destination_port),
        )

    def test_bytes_by_hand(self, receiver: Receiver) -> None:
        receiver.bench.send(nic_plane_port(6), carried(cut(data())))
        ((port, frame),) = receiver.bench.receive(1)
        assert port == plane_port(BACK[0])
        inner = frame[14 + IPV6_BYTES :]
        assert inner[:8].hex() == "6b802028" + "002c" + "1140"  # DSCP 46, EV 2028
        assert inner[8:40] == HOST.to_bytes(16) + PEER.to_bytes(16)
        assert inner[40:46].hex() == "c0de" + "12b7" + "002c"
        assert inner[48:60].hex() == "dd00ffff" + "005d6e7f" + "009a8b7c"
        neth = "0000" + "01" + "00" + "c158c0de" + "b2c3" + "6e7f" + "00" + "9a8b7c" + "2000beef"
        assert inner[60:80].hex() == neth
        assert frame[14 : 14 + 8].hex() == "6b802028" + "0054" + "2940"
        receiver.bench.expect_nothing()

    @pytest.mark.parametrize("opcode", sorted(WRITE_OPCODES), ids=lambda code: Opcode(code).name)
    @STAMPED
    def test_of_every_write(self, receiver: Receiver, opcode: int, stamp: int | None) -> None:
        receiver.answers(carried(cut(data(stamp, opcode=Opcode(opcode)))), nack(1, stamp))

    @STAMPED
    def test_of_every_length_that_is_kept(self, receiver: Receiver, stamp: int | None) -> None:
        packet = data(stamp)
        for kept in range(ENOUGH[stamp is not None], len(packet) - IPV6_BYTES - UDP_BYTES):
            receiver.answers(carried(cut(packet, kept=kept)), nack(1, stamp))

    @STAMPED
    def test_lengths_of_the_whole_packet_may_be_left(
        self, receiver: Receiver, stamp: int | None
    ) -> None:
        # Switches that cut and change only the DSCP.
        whole = bytearray(data(stamp))
        whole[:2] = cut(bytes(whole))[:2]
        end = IPV6_BYTES + UDP_BYTES
        receiver.answers(carried(bytes(whole[: end + 20])), nack(1, stamp))
        receiver.answers(carried(bytes(whole)), nack(1, stamp))

    @pytest.mark.parametrize("seed", range(4))
    def test_any_numbers(self, receiver: Receiver, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(8):
            qp, psn, stamp = rng.getrandbits(24), rng.getrandbits(24), rng.getrandbits(16)
            label, port = rng.getrandbits(20), rng.getrandbits(16)
            receiver.bench.device.insert(entry := peer(PEER, qp, PEER_QP))
            packet = data(stamp, qp=qp, psn=psn, label=label, source_port=port)
            entropy = (label & 0xFFFF) << 16 | port
            receiver.answers(
                carried(cut(packet)), nack(1, stamp, own_qp=qp, psn=psn, entropy=entropy)
            )
            receiver.bench.device.delete(entry)

    @pytest.mark.parametrize("chosen", [0, 0xE])
    def test_of_a_path_that_the_sender_chose(self, receiver: Receiver, chosen: int) -> None:
        # Its NIC has cleared the mark; a carrier that the host built may still have it.
        receiver.answers(carried(cut(data(label=chosen << 16 | SENT_EV))), nack())

    @pytest.mark.parametrize("outer_ecn", [NOT_ECT, ECT_0, CE])
    def test_is_not_ect(self, receiver: Receiver, outer_ecn: int) -> None:
        receiver.answers(carried(cut(data(ecn=ECT_0)), ecn=outer_ecn), nack())

    def test_udp_checksum_is_there_even_if_the_packet_had_none(self, receiver: Receiver) -> None:
        packet = bytearray(cut(data()))
        packet[IPV6_BYTES + 6 : IPV6_BYTES + 8] = b"\0\0"
        receiver.answers(carried(bytes(packet)), nack())

    def test_udp_checksum_that_comes_out_as_zero_is_sent_as_ffff(self, receiver: Receiver) -> None:
        psn = 0x00033D  # found by trying; ICRC and EV are part of the sum
        answer = nack(psn=psn)
        assert answer[IPV6_BYTES + 6 : IPV6_BYTES + 8] == b"\xff\xff"
        receiver.answers(carried(cut(data(psn=psn))), answer)

    def test_takes_the_next_path_whichever_plane_the_packet_came_by(
        self, receiver: Receiver
    ) -> None:
        for plane in range(8):
            frame = carried(cut(data()), plane=plane)
            receiver.answers(frame, nack(), nic_plane_port(plane))

    def test_within_the_t0_group(self, receiver: Receiver, second_spray_group: int) -> None:
        way = path_ev(3, 0)
        receiver.bench.device.modify(t0_local(second_spray_group))
        receiver.bench.device.insert(
            peer(NEIGHBOUR, OWN_QP, PEER_QP),
            *plane_set([3], number=5),
            *slots(second_spray_group, {3: [way]}),
            group_cfg(second_spray_group, 1, plane_set=5, random=False),
        )
        Receiver(receiver.bench, [way]).answers(
            carried(cut(data(source=NEIGHBOUR))), nack(target=NEIGHBOUR)
        )

    @pytest.mark.parametrize("segments", [1, 4])
    def test_outer_header_with_srh(self, receiver: Receiver, segments: int) -> None:
        here = own_carrier(BLOCK, 6, NIC_DOWNLINK)
        header = srh([here] * segments, 0)
        outer = ipv6(PEER, here, header + cut(data()), NEXT_HEADER_ROUTING)
        receiver.answers(ethernet(arriving(nic_plane_port(6)), outer), nack())

    @pytest.mark.parametrize("kept", [20, 60])
    def test_ecmp_baseline_has_no_carrier(self, receiver: Receiver, kept: int) -> None:
        receiver.bench.device.modify(destination(OTHER_GROUP, P4TableAction("ecmp", plane_set=6)))
        receiver.bench.device.insert(*plane_set([4], number=6))
        port = nic_plane_port(2)
        frame = ethernet(arriving(port), cut(data(), kept=kept))
        answer = bytearray(nack())
        answer[2:4] = (4 << 13).to_bytes(2)  # flow label: the plane
        sent = ethernet(leaving(nic_plane_port(4)), bytes(answer))
        assert len(sent) == PLAIN
        assert_checksums(bytes(answer))
        receiver.bench.check(Forward(port, frame, nic_plane_port(4), sent))

    def test_code_points_are_those_of_the_table(self, receiver: Receiver) -> None:
        receiver.hands_up(cut(data(), 12))
        receiver.bench.device.insert(trim_class(12, "trimmed_on_last_hop", 33))
        receiver.answers(carried(cut(data(), 12)), nack(2, dscp=33))

    def test_dscp_of_the_outer_header_does_not_matter(self, receiver: Receiver) -> None:
        # The one inside is what every switch that trims writes, and what is left without a carrier.
        receiver.hands_up(cut(data(), CODE_POINTS.trimmable))


class TestPath:
    """NACKs go where the sender can be reached now."""

    def test_plane_that_is_down_is_left_out(self, receiver: Receiver) -> None:
        set_down_planes(receiver.bench.device, 1 << 1)
        way = Receiver(receiver.bench, BACK[1:])
        for _ in range(3):
            way.answers(carried(cut(data())), nack())

    def test_all_planes_down(self, receiver: Receiver) -> None:
        set_down_planes(receiver.bench.device, 0xFF)
        receiver.drops(carried(cut(data())), DropReason.NO_LIVE_PLANE)
        receiver.hands_up(data())

    def test_sender_that_cannot_be_reached(self, receiver: Receiver) -> None:
        elsewhere = PEER ^ 1 << 40
        receiver.bench.device.insert(peer(elsewhere, OWN_QP, PEER_QP))
        receiver.drops(carried(cut(data(source=elsewhere))), DropReason.NO_DESTINATION)

    def test_spray_group_that_is_missing(self, nic: Bench) -> None:
        nic.device.insert(*nic_entries(), peer(PEER, OWN_QP, PEER_QP))
        Receiver(nic, []).drops(carried(cut(data())), DropReason.NO_GROUP)

    def test_slot_that_is_missing(self, receiver: Receiver, second_spray_group: int) -> None:
        receiver.bench.device.modify(cross_t1(second_spray_group))
        receiver.bench.device.insert(group_cfg(second_spray_group, 1, random=False))
        receiver.drops(carried(cut(data())), DropReason.NO_SLOT)


class TestStates:
    """A NACK takes a path like the host's packets, and is forgotten: nobody acknowledges it."""

    @pytest.fixture
    def one_plane(self, receiver: Receiver, spray_group: int) -> Iterator[Receiver]:
        """Four paths of one plane, all GOOD, of which three may be retired."""
        device = receiver.bench.device
        device.modify(group_cfg(spray_group, 4, random=False, retirable=3, plane_set=5))
        device.insert(*plane_set([2], number=5), *slots(spray_group, {2: WAYS}, alternates=True))
        yield Receiver(receiver.bench, WAYS)
        for way in WAYS:
            self.set_state(receiver.bench, spray_group, way, GOOD)

    def index(self, group: int, way: int) -> int:
        return (path_group(group) << 3 | way >> 13) << UPLINK_BITS | way >> 3 & 1023

    def set_state(self, bench: Bench, group: int, way: int, state: int) -> None:
        value = self.index(group, way) << 32 | way << 16 | state << 6
        plane = path_group(group) << 3 | way >> 13
        assert ask_cpu(bench.device, OP_WRITE_PATH, plane, value) == (OP_WRITE_PATH, plane, value)

    def states(self, bench: Bench, group: int) -> list[int]:
        values = (
            ask_cpu(
                bench.device,
                OP_READ_PATH,
                path_group(group) << 3 | way >> 13,
                self.index(group, way) << 32,
            )[2]
            for way in WAYS
        )
        return [value >> 6 & 3 for value in values]

    @pytest.mark.parametrize("state", [BAD, DENIED])
    def test_retired_path_is_not_taken(
        self, one_plane: Receiver, spray_group: int, state: int
    ) -> None:
        first, second, third, fourth = WAYS
        self.set_state(one_plane.bench, spray_group, second, state)
        ways = Receiver(one_plane.bench, [first, third, third, fourth])
        for _ in range(8):
            ways.answers(carried(cut(data())), nack())

    def test_path_to_skip_is_skipped_once(self, one_plane: Receiver, spray_group: int) -> None:
        first, second, third, fourth = WAYS
        self.set_state(one_plane.bench, spray_group, second, SKIP)
        ways = Receiver(one_plane.bench, [first, third, third, fourth, *WAYS])
        for _ in range(8):
            ways.answers(carried(cut(data())), nack())

    def test_no_path_left(self, one_plane: Receiver, spray_group: int) -> None:
        for way in WAYS:
            self.set_state(one_plane.bench, spray_group, way, DENIED)
        one_plane.drops(carried(cut(data())), DropReason.NO_PATH)

    def test_its_psn_is_not_remembered(self, one_plane: Receiver, spray_group: int) -> None:
        one_plane.answers(carried(cut(data())), nack())
        # The same PSN of the host's own, sent again, was never sent by it: no path is to blame.
        self.write(one_plane.bench, WAYS[1], rtx=True)
        assert self.states(one_plane.bench, spray_group) == [GOOD] * 4

    def test_the_hosts_psn_is_not_forgotten(self, one_plane: Receiver, spray_group: int) -> None:
        first, second, third, _ = WAYS
        self.write(one_plane.bench, first)
        Receiver(one_plane.bench, [second]).answers(carried(cut(data())), nack())
        self.write(one_plane.bench, third, rtx=True)
        assert self.states(one_plane.bench, spray_group) == [BAD, *[GOOD] * 3]

    def write(self, bench: Bench, way: int, *, rtx: bool = False) -> None:
        """The host's own WRITE with the PSN of the trimmed packet, from the same port."""
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER, headers=write_of(PSN, rtx=rtx))
        bench.check(
            Forward(HOST_PORT, from_host(packet), plane_port(way), expected_frame(packet, way))
        )


class TestHandedUp:
    """What is not turned round goes up to the host as it came."""

    @REASONS
    @STAMPED
    def test_peer_that_is_not_known(self, lonely: Receiver, dscp: int, stamp: int | None) -> None:
        lonely.hands_up(cut(data(stamp), dscp))

    def test_every_bit_of_source_and_qp(self, receiver: Receiver) -> None:
        receiver.hands_up(*(cut(data(source=PEER ^ 1 << bit)) for bit in range(128)))
        receiver.hands_up(*(cut(data(qp=OWN_QP ^ 1 << bit)) for bit in range(24)))

    def test_peer_that_is_deleted(self, lonely: Receiver) -> None:
        entry = peer(PEER, OWN_QP, PEER_QP)
        lonely.bench.device.insert(entry)
        lonely.answers(carried(cut(data())), nack())
        lonely.bench.device.delete(entry)
        lonely.hands_up(cut(data()))

    @REASONS
    def test_other_opcodes(self, receiver: Receiver, dscp: int) -> None:
        others = sorted(set(Opcode) - set(WRITE_OPCODES))
        packets = [mrc(Opcode(code), PEER, HOST) for code in others]
        receiver.hands_up(*(cut(packet, dscp, kept) for packet in packets for kept in (12, 60)))

    @STAMPED
    def test_ends_before_what_a_nack_needs(self, receiver: Receiver, stamp: int | None) -> None:
        enough = ENOUGH[stamp is not None]
        receiver.hands_up(*(cut(data(stamp), kept=kept) for kept in range(enough)))
        receiver.answers(carried(cut(data(stamp), kept=enough)), nack(1, stamp))

    @pytest.mark.parametrize("bytes_left", range(9))
    def test_ends_inside_the_udp_header(self, receiver: Receiver, bytes_left: int) -> None:
        receiver.hands_up(cut(data())[: IPV6_BYTES + bytes_left])

    @pytest.mark.parametrize("destination_port", [0, 53, 4790, 4792, 0xFFFF])
    def test_other_udp_port(self, receiver: Receiver, destination_port: int) -> None:
        receiver.hands_up(cut(data(destination_port=destination_port)))

    @pytest.mark.parametrize("next_header", [6, 17 ^ 128, 58, 59, 41])
    def test_not_udp(self, receiver: Receiver, next_header: int) -> None:
        packet = bytearray(cut(data()))
        packet[6] = next_header
        receiver.hands_up(bytes(packet))

    @STAMPED
    @pytest.mark.parametrize("at", [4, IPV6_BYTES + 4], ids=["ipv6", "udp"])
    def test_length_shorter_than_its_headers(
        self, receiver: Receiver, stamp: int | None, at: int
    ) -> None:
        needed = UDP_BYTES + ENOUGH[stamp is not None]
        packet = bytearray(cut(data(stamp)))
        for length in (0, 8, needed - 1):
            packet[at : at + 2] = length.to_bytes(2)
            receiver.hands_up(bytes(packet))
        packet[at : at + 2] = needed.to_bytes(2)
        receiver.answers(carried(bytes(packet)), nack(1, stamp))

    @pytest.mark.parametrize("tver", [1, 8, 15])
    def test_other_transport_version(self, receiver: Receiver, tver: int) -> None:
        packet = bytearray(cut(data()))
        packet[IPV6_BYTES + UDP_BYTES + 1] |= tver
        receiver.hands_up(bytes(packet))

    def test_stamped_packet_that_is_whole(self, receiver: Receiver) -> None:
        receiver.hands_up(data(), data(None), *(data(opcode=Opcode(c)) for c in WRITE_OPCODES))

    def test_trimmed_packet_for_another_host_is_dropped(self, receiver: Receiver) -> None:
        packet = bytearray(cut(data()))
        packet[39] ^= 1
        receiver.drops(carried(bytes(packet)), DropReason.NOT_OWN_ADDRESS)


class TestCounters:
    """Entries count what they match, `trimmed` what became of it."""

    def test_by_entry_and_by_fate(self, receiver: Receiver) -> None:
        device = receiver.bench.device
        last_hop = CODE_POINTS.trimmed_lasthop
        device.insert(peer(PEER, OWN_QP + 1, PEER_QP))
        before = receiver.fates()
        frame = carried(cut(data()))
        receiver.answers(frame, nack())
        receiver.answers(frame, nack())
        receiver.answers(carried(cut(data(), last_hop)), nack(2))
        receiver.hands_up(cut(data(qp=1), last_hop))
        receiver.hands_up(cut(data(), kept=19), cut(mrc(Opcode.SACK, PEER, HOST)))
        receiver.hands_up(data(), mrc(Opcode.SACK, PEER, HOST))
        grown = [now - then for now, then in zip(receiver.fates(), before, strict=True)]
        assert grown == [3, 1, 2]
        assert device.hits(peer(PEER, OWN_QP, 0)) == Count(3, 3 * len(frame))
        assert device.hits(peer(PEER, OWN_QP + 1, 0)) == Count(0, 0)
        in_fabric = trim_class(CODE_POINTS.trimmed, "trimmed_in_fabric")
        assert device.hits(in_fabric).packets == 4
        assert device.hits(trim_class(last_hop, "trimmed_on_last_hop")).packets == 2


@pytest.mark.parametrize(
    ("port", "dscp"),
    [(UPLINK, CODE_POINTS.trimmed), (DOWNLINK, CODE_POINTS.trimmed_lasthop)],
    ids=["in-fabric", "last-hop"],
)
@STAMPED
def test_what_fabric_p4_trims(
    queued: Queued, receiver: Receiver, port: int, dscp: int, stamp: int | None
) -> None:
    """A switch's trimmed packet, as it leaves its port, is what the NIC answers."""
    way_in, way_on = {
        UPLINK: (down_port(0), TO_UPLINK),
        DOWNLINK: (up_port(1), TO_DOWNLINK),
    }[port]
    sent = ethernet(
        arriving_at_switch(way_in),
        ipv6(PEER, way_on, data(stamp, ecn=ECT_0), NEXT_HEADER_IPV6, dscp=CODE_POINTS.trimmable),
    )
    queued.control.set_depth(port, TRIM)
    queued.bench.send(way_in, sent)
    ((out, frame),) = queued.bench.receive(1)
    assert out == port
    # The rest of the way, if any, only shifts the carrier.
    plane = 3
    here = own_carrier(BLOCK, plane, NIC_DOWNLINK).to_bytes(16)
    arrived = ethernet(arriving(nic_plane_port(plane)), frame[14:38] + here + frame[54:])
    receiver.answers(arrived, nack(REASON[dscp], stamp), nic_plane_port(plane))
