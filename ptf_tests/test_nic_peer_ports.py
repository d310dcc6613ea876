# SPDX-License-Identifier: GPL-2.0-only
"""nic.p4: notices of peers whose plane ports are down (Endpoint Request op 0), and what follows."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from finsy import P4TableAction

from controller.addressing import cross_t1_carrier, host_address, own_carrier, path_ev
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Forward
from ptf_tests.nic_world import (
    DOWNLINK,
    EV_CHOSEN,
    GROUP,
    HOST,
    HOST_PORT,
    NEIGHBOUR,
    OP_READ_PATH,
    OP_READ_PEER_DOWN,
    OP_WRITE_ASSUMED,
    OP_WRITE_PEER_DOWN,
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
    path_ev_of,
    path_group,
    plane_port,
    plane_set,
    set_down_planes,
    slots,
    t0_local,
)
from ptf_tests.nic_world import peer as peer_entry
from ptf_tests.packets import (
    ETHERNET_BYTES,
    IPV6_BYTES,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_ROUTING,
    UDP_BYTES,
    assert_checksums,
    ethernet,
    ev_probe_of,
    ipv6,
    mrc,
    port_status_of,
    srh,
    trimmed,
    write_of,
    write_to,
)
from ptf_tests.statistics import assert_drawn
from ptf_tests.world import BLOCK, CODE_POINTS

STORED, COLLISION, MALFORMED, UNKNOWN_PEER, NO_PLANE = range(5)
LIFE = 4883  # units of 1.024 ms
CELLS = 1024
FOUR = range(4)
ALL_UP = 0xFF
GOOD, BAD = 0, 2
EVS = {plane: path_ev(plane, 40 + plane) for plane in range(8)}
SAME_GROUP = host_address(OTHER_GROUP, 3)
BTH_AT = IPV6_BYTES + UDP_BYTES
NOTICE_BYTES = BTH_AT + 12 + 16 + 4


def name_of(peer: int) -> int:
    """What the NIC knows a peer by."""
    return zlib.crc32(peer.to_bytes(16, "big"))


def of_another_group(peer: int) -> int:
    """A host of a third T0 group that shares its cell with this peer."""
    for downlink in range(1023):
        other = host_address(OTHER_GROUP + 1, downlink)
        if name_of(other) % CELLS == name_of(peer) % CELLS:
            return other
    raise AssertionError("no two hosts share a cell")


def notice(
    mask: int, peer: int = PEER, *, port: int = 4791, dscp: int = CODE_POINTS.control
) -> bytes:
    """A peer's notice: bit p of ``mask``, plane p can be reached."""
    headers = port_status_of(mask)
    packet = mrc(
        Opcode.ENDPOINT_REQUEST, peer, HOST, headers=headers, dscp=dscp, destination_port=port
    )
    assert len(packet) == NOTICE_BYTES
    assert_checksums(packet)
    return packet


def carried(packet: bytes, plane: int = 3) -> bytes:
    """The frame in which it comes in."""
    outer = ipv6(PEER, own_carrier(BLOCK, plane, DOWNLINK), packet, NEXT_HEADER_IPV6)
    return ethernet(arriving(plane_port(path_ev(plane, 0))), outer)


class Peers:
    """A NIC, the notices that it gets, and the planes on which it then sends."""

    def __init__(self, bench: Bench, group: int) -> None:
        self.bench = bench
        self.group = group
        self._cells: set[int] = set()
        self._psn = 0

    def install(
        self, planes: Sequence[int] = FOUR, *, random: bool = False, picks: Sequence[int] = ()
    ) -> None:
        """A spray group with one path in each of these planes, in turn or at random."""
        self.bench.device.insert(
            *plane_set(picks or planes, range(1 << max(planes) + 1)),
            *slots(self.group, {plane: [EVS[plane]] for plane in planes}),
            group_cfg(self.group, 1, random=random, planes=planes, retirable=1),
        )

    def fates(self) -> list[int]:
        """Notices so far, by what became of them."""
        found = self.bench.device.counters({"port_notices": range(5)})
        return [found["port_notices", fate].packets for fate in range(5)]

    def hear(self, *packets: bytes, fate: int | None) -> None:
        """Each comes in, goes up to the host as it is, and is counted like this (None: not)."""
        for packet in packets:
            self._cells.add(name_of(int.from_bytes(packet[8:24], "big")) % CELLS)
        before = self.fates()
        port = plane_port(path_ev(3, 0))
        self.bench.check(
            *(
                Forward(port, carried(item), HOST_PORT, ethernet(leaving(HOST_PORT), item))
                for item in packets
            )
        )
        new = [now - then for now, then in zip(self.fates(), before, strict=True)]
        assert new == [len(packets) if fate == at else 0 for at in range(5)]

    def planes(self, packets: int, peer: int = PEER) -> list[int]:
        """The planes of the next WRITEs to a peer, each of which goes out whole."""
        packet = mrc(Opcode.WRITE_ONLY, HOST, peer)
        out = []
        for _ in range(packets):
            self.bench.send(HOST_PORT, from_host(packet))
            ((port, frame),) = self.bench.receive(1)
            ev = path_ev_of(frame)
            assert (port, frame) == (plane_port(ev), expected_frame(packet, ev))
            out.append(ev >> 13)
        self.bench.expect_nothing()
        return out

    def drawn(self, peer: int = PEER) -> Counter[int]:
        """Planes of the next 512 WRITEs to a peer."""
        packet = mrc(Opcode.WRITE_ONLY, HOST, peer)
        out = self.bench.spread(HOST_PORT, [from_host(packet)] * 512)
        return Counter(path_ev_of(frame) >> 13 for frames in out.values() for frame in frames)

    def write(self, *, rtx: bool = False) -> int:
        """Send a WRITE with the next PSN, or the last one again; its path EV."""
        self._psn += not rtx
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER, headers=write_of(self._psn, rtx=rtx))
        self.bench.send(HOST_PORT, from_host(packet))
        ((_, frame),) = self.bench.receive(1)
        return path_ev_of(frame)

    def state(self, ev: int) -> int:
        """The state of a path."""
        plane = path_group(self.group) << 3 | ev >> 13
        index = (plane << UPLINK_BITS | ev >> 3 & 1023) << 32
        return ask_cpu(self.bench.device, OP_READ_PATH, plane, index)[2] >> 6 & 3

    def cell(self, peer: int = PEER) -> tuple[int, int]:
        """Mask and age of a peer's cell; (0, 0) when it is free or holds another."""
        index = name_of(peer) % CELLS
        op, repeated, value = ask_cpu(self.bench.device, OP_READ_PEER_DOWN, index)
        assert (op, repeated) == (OP_READ_PEER_DOWN, index)
        if value >> 42 != name_of(peer) >> 10:
            return 0, 0
        return value >> 32 & 0xFF, value & 0xFFFFFFFF

    def set_cell(self, mask: int, age: int, peer: int = PEER) -> int:
        """Write a peer's cell; mask ++ age as the NIC answers."""
        index = name_of(peer) % CELLS
        self._cells.add(index)
        value = name_of(peer) >> 10 << 42 | mask << 32 | age
        answer = ask_cpu(self.bench.device, OP_WRITE_PEER_DOWN, index, value)
        assert answer[:2] == (OP_WRITE_PEER_DOWN, index)
        assert answer[2] in (0, value)
        return answer[2] & 0xFF_FFFFFFFF

    def forget(self) -> None:
        """Free all cells that were used."""
        for index in self._cells:
            assert ask_cpu(self.bench.device, OP_WRITE_PEER_DOWN, index)[2] == 0


@pytest.fixture
def peers(host_nic: Bench, spray_group: int) -> Iterator[Peers]:
    """A NIC that has heard nothing, without a spray group."""
    host_nic.device.modify(cross_t1(spray_group))
    found = Peers(host_nic, spray_group)
    yield found
    found.forget()


@pytest.fixture
def four(peers: Peers) -> Peers:
    """Four planes in turn."""
    peers.install()
    return peers


class TestNotice:
    """What is taken in, and what is not. All of it is the host's, too."""

    @pytest.mark.parametrize("port", [4791, 4971])
    def test_plane_is_left_out_from_the_next_packet_on(self, four: Peers, port: int) -> None:
        assert four.planes(4) == [0, 1, 2, 3]
        four.hear(notice(0b11111101, port=port), fate=STORED)
        assert four.cell()[0] == 0b10
        assert four.planes(6) == [0, 2, 3] * 2

    def test_any_traffic_class(self, four: Peers) -> None:
        four.hear(notice(0b1011, dscp=CODE_POINTS.no_trim), notice(0b0111, dscp=0), fate=STORED)
        assert four.cell()[0] == 0b1000

    def test_behind_a_segment_routing_header(self, four: Peers) -> None:
        packet = notice(0b1110)
        own = own_carrier(BLOCK, 3, DOWNLINK)
        outer = ipv6(PEER, own, srh([own], 0) + packet, NEXT_HEADER_ROUTING)
        port = plane_port(path_ev(3, 0))
        before = four.fates()
        four.bench.forwards(
            port, ethernet(arriving(port), outer), HOST_PORT, ethernet(leaving(HOST_PORT), packet)
        )
        assert four.fates()[STORED] == before[STORED] + 1
        four.set_cell(0, 0)

    def test_without_a_carrier(self, four: Peers) -> None:
        """As a sender with policy `ecmp` sends it."""
        port, packet = plane_port(path_ev(2, 0)), notice(0b1110)
        before = four.fates()
        four.bench.forwards(
            port, ethernet(arriving(port), packet), HOST_PORT, ethernet(leaving(HOST_PORT), packet)
        )
        assert four.fates()[STORED] == before[STORED] + 1
        assert four.cell()[0] == 0b0001
        four.set_cell(0, 0)

    def test_cut_anywhere(self, four: Peers) -> None:
        """In the request, or in its ICRC; the lengths are still those of the whole."""
        packet = notice(0b1110)
        four.hear(*(packet[:cut] for cut in range(BTH_AT + 16, NOTICE_BYTES)), fate=MALFORMED)
        four.hear(*(packet[:cut] for cut in range(BTH_AT, BTH_AT + 16)), fate=None)
        assert four.cell() == (0, 0)
        assert four.planes(4) == [0, 1, 2, 3]

    @pytest.mark.parametrize("change", [-40, -1, 1, 4, 1000])
    @pytest.mark.parametrize("at", [4, IPV6_BYTES + 4], ids=["ipv6", "udp"])
    def test_lengths_that_do_not_fit(self, four: Peers, at: int, change: int) -> None:
        packet = notice(0b1110)
        length = int.from_bytes(packet[at : at + 2], "big") + change
        four.hear(packet[:at] + length.to_bytes(2, "big") + packet[at + 2 :], fate=MALFORMED)
        assert four.cell() == (0, 0)

    @pytest.mark.parametrize("qp", [0, 1, 3, 0x10002, 0x777])
    def test_not_to_the_end_point(self, four: Peers, qp: int) -> None:
        headers = port_status_of(0b1110)
        headers.dqp = qp
        packet = mrc(Opcode.ENDPOINT_REQUEST, PEER, HOST, headers=headers)
        four.hear(packet, fate=MALFORMED)
        assert four.cell() == (0, 0)

    def test_another_version(self, four: Peers) -> None:
        headers = port_status_of(0b1110)
        headers.tver = 1
        four.hear(mrc(Opcode.ENDPOINT_REQUEST, PEER, HOST, headers=headers), fate=MALFORMED)

    def test_other_operations(self, four: Peers) -> None:
        """EV probes and answers say nothing of ports."""
        probe = ev_probe_of(7)
        four.hear(
            mrc(Opcode.ENDPOINT_REQUEST, PEER, HOST, headers=probe),
            mrc(Opcode.ENDPOINT_RESPONSE, PEER, HOST),
            fate=None,
        )
        assert four.cell() == (0, 0)

    def test_trimmed(self, four: Peers) -> None:
        """No switch trims one."""
        four.hear(trimmed(notice(0b1110), CODE_POINTS.trimmed, 28), fate=None)
        whole = mrc(
            Opcode.ENDPOINT_REQUEST,
            PEER,
            HOST,
            headers=port_status_of(0b1110),
            dscp=CODE_POINTS.trimmed_lasthop,
        )
        four.hear(whole, fate=None)
        assert four.cell() == (0, 0)

    def test_unreachable_on_every_plane(self, four: Peers) -> None:
        """It arrived, so this is not true."""
        four.hear(notice(0), notice(0xFFFFFF00), fate=NO_PLANE)
        assert four.cell() == (0, 0)
        four.hear(notice(0b1110), fate=STORED)
        four.hear(notice(0), fate=NO_PLANE)
        assert four.cell()[0] == 0b0001

    def test_from_nowhere(self, four: Peers) -> None:
        stranger = host_address(OTHER_GROUP + 7, 0)
        four.hear(notice(0b1110, stranger), fate=UNKNOWN_PEER)
        assert four.cell(stranger) == (0, 0)

    def test_from_where_no_spray_group_leads(self, peers: Peers) -> None:
        peers.hear(notice(0b1110), fate=UNKNOWN_PEER)
        third = host_address(OTHER_GROUP + 1, 0)
        ecmp = P4TableAction("ecmp", plane_set=3)
        peers.bench.device.insert(destination(OTHER_GROUP + 1, ecmp))
        peers.hear(notice(0b1110, third), fate=UNKNOWN_PEER)
        assert (peers.cell(), peers.cell(third)) == ((0, 0), (0, 0))

    def test_to_another_host(self, four: Peers) -> None:
        """Neither with its address nor with its carrier."""
        before, port = four.fates(), plane_port(path_ev(3, 0))
        headers = port_status_of(0b1110)
        astray = mrc(Opcode.ENDPOINT_REQUEST, PEER, NEIGHBOUR, headers=headers)
        four.bench.drops(port, carried(astray), DropReason.NOT_OWN_ADDRESS)
        outer = ipv6(PEER, own_carrier(BLOCK, 3, DOWNLINK + 1), notice(0b1110), NEXT_HEADER_IPV6)
        four.bench.drops(port, ethernet(arriving(port), outer), DropReason.NOT_OWN_CARRIER)
        assert four.fates() == before
        assert four.cell() == (0, 0)

    def test_that_the_host_itself_sends(self, four: Peers) -> None:
        """It goes to the peer, and is not about one."""
        before = four.fates()
        packet = mrc(
            Opcode.ENDPOINT_REQUEST,
            HOST,
            PEER,
            headers=port_status_of(0b1110),
            flow_label=EV_CHOSEN | EVS[2],
        )
        four.bench.forwards(
            HOST_PORT, from_host(packet), plane_port(EVS[2]), expected_frame(packet, EVS[2])
        )
        assert four.fates() == before
        assert four.cell() == (0, 0)


class TestMask:
    @pytest.mark.parametrize("plane", range(8))
    def test_each_plane(self, peers: Peers, plane: int) -> None:
        peers.install(range(8))
        peers.hear(notice(ALL_UP & ~(1 << plane)), fate=STORED)
        assert peers.cell()[0] == 1 << plane
        assert peers.planes(7) == [other for other in range(8) if other != plane]

    @pytest.mark.parametrize("plane", range(8))
    def test_all_planes_but_one(self, peers: Peers, plane: int) -> None:
        peers.install(range(8))
        peers.hear(notice(1 << plane), fate=STORED)
        assert peers.cell()[0] == ALL_UP & ~(1 << plane)
        assert peers.planes(3) == [plane] * 3

    def test_planes_beyond_the_eighth(self, four: Peers) -> None:
        four.hear(notice(0xFFFFFF0E), fate=STORED)
        assert four.cell()[0] == 0b0001
        four.hear(notice(0x0000000D), fate=STORED)
        assert four.cell()[0] == 0b0010

    def test_planes_that_the_group_does_not_use(self, four: Peers) -> None:
        four.hear(notice(0b0000_1111), fate=STORED)
        assert four.cell() == (0, 0)
        four.hear(notice(0b0101_0111), fate=STORED)
        assert four.cell()[0] == 0b1000

    def test_no_plane_that_the_group_uses(self, four: Peers) -> None:
        """It is better to send anyway."""
        four.hear(notice(0b1111_0000), fate=STORED)
        assert four.cell()[0] == 0b1111
        assert four.planes(4) == [0, 1, 2, 3]


class TestChoice:
    """The NIC's own mask, the peer's, and what the group assumes."""

    def test_at_random(self, peers: Peers) -> None:
        peers.install(random=True)
        peers.hear(notice(0b1101), fate=STORED)
        assert_drawn(peers.drawn(), {0: 1, 2: 1, 3: 1})
        peers.hear(notice(0b1111), fate=STORED)
        assert_drawn(peers.drawn(), dict.fromkeys(FOUR, 1))

    def test_weights_of_the_others_are_kept(self, peers: Peers) -> None:
        peers.install(range(3), random=True, picks=[0, 1, 1, 2, 2, 2])
        peers.hear(notice(0b011), fate=STORED)
        assert_drawn(peers.drawn(), {0: 1, 1: 2})

    def test_both_ends_have_a_port_down(self, four: Peers) -> None:
        set_down_planes(four.bench.device, 0b0001)
        four.hear(notice(0b1101), fate=STORED)
        assert four.planes(4) == [2, 3, 2, 3]

    @pytest.mark.parametrize(
        ("own", "peers_mask", "used"),
        [(0b0011, 0b0011, [2, 3]), (0b1110, 0b1110, [0, 0]), (0b0011, 0b0111, [2, 2])],
    )
    def test_only_when_something_is_left(
        self, four: Peers, own: int, peers_mask: int, used: list[int]
    ) -> None:
        set_down_planes(four.bench.device, own)
        four.hear(notice(peers_mask), fate=STORED)
        assert four.planes(4) == used * 2

    @pytest.mark.parametrize(
        ("assumed", "used"), [(0b0100, [1, 3]), (0b1110, [1, 2, 3]), (0b1111, [1, 2, 3])]
    )
    def test_assumptions_come_last(self, four: Peers, assumed: int, used: list[int]) -> None:
        four.hear(notice(0b1110), fate=STORED)
        answer = ask_cpu(four.bench.device, OP_WRITE_ASSUMED, path_group(four.group), assumed)
        assert answer[2] & 0xFF == assumed
        assert four.planes(2 * len(used)) == used * 2

    def test_no_other_peer_is_concerned(self, four: Peers) -> None:
        """Not even behind the same T0 group, in the same round robin."""
        four.hear(notice(0b1000), fate=STORED)
        assert four.planes(3) == [3, 3, 3]
        assert four.planes(4, SAME_GROUP) == [1, 2, 3, 0]
        four.hear(notice(0b0001, SAME_GROUP), fate=STORED)
        assert four.planes(2, SAME_GROUP) == [0, 0]
        assert four.planes(2) == [3, 3]

    def test_behind_the_own_t0s(self, four: Peers, second_spray_group: int) -> None:
        four.bench.device.modify(t0_local(second_spray_group))
        four.bench.device.insert(
            *slots(second_spray_group, {plane: [EVS[plane]] for plane in FOUR}),
            group_cfg(second_spray_group, 1, random=False, planes=FOUR),
        )
        four.hear(notice(0b1010, NEIGHBOUR), fate=STORED)
        assert four.planes(4, NEIGHBOUR) == [1, 3, 1, 3]
        assert four.planes(4) == [0, 1, 2, 3]

    def test_paths_that_the_host_chooses(self, four: Peers) -> None:
        """Probes must be able to try a plane that is said to be down."""
        four.hear(notice(0b1000), fate=STORED)
        chosen = mrc(Opcode.WRITE_ONLY, HOST, PEER, flow_label=EV_CHOSEN | EVS[0])
        carrier = cross_t1_carrier(BLOCK, 0, GROUP, 1, OTHER_GROUP, 2)
        own = ipv6(HOST, carrier, chosen, NEXT_HEADER_IPV6)
        port = plane_port(EVS[0])
        four.bench.check(
            Forward(HOST_PORT, from_host(chosen), port, expected_frame(chosen, EVS[0])),
            Forward(HOST_PORT, from_host(own), port, ethernet(leaving(port), own)),
        )

    def test_nacks_of_the_nic(self, four: Peers) -> None:
        four.bench.device.insert(peer_entry(PEER, 0xABC, 0xDEF))
        four.hear(notice(0b0100), fate=STORED)
        headers = write_to(0xABC, 1, None, Opcode.WRITE_ONLY)
        lost = mrc(Opcode.WRITE_ONLY, PEER, HOST, bytes(100), headers=headers)
        four.bench.send(plane_port(EVS[3]), carried(trimmed(lost, CODE_POINTS.trimmed, 12)))
        ((port, frame),) = four.bench.receive(1)
        assert port == plane_port(EVS[2])
        assert frame[ETHERNET_BYTES + IPV6_BYTES + BTH_AT] == Opcode.NACK


class TestRecovery:
    def test_all_up_again(self, four: Peers) -> None:
        four.hear(notice(0b1110), fate=STORED)
        assert four.planes(3) == [1, 2, 3]
        four.hear(notice(0b1111), fate=STORED)
        assert four.cell() == (0, 0)
        assert sorted(four.planes(4)) == [0, 1, 2, 3]

    def test_one_back_another_down(self, four: Peers) -> None:
        four.hear(notice(0b1100), fate=STORED)
        four.hear(notice(0b0110), fate=STORED)
        assert four.cell()[0] == 0b1001
        assert four.planes(4) == [1, 2, 1, 2]

    @pytest.mark.parametrize("age", [0, 1, LIFE - 1, LIFE, LIFE + 1, LIFE + 2, 1 << 31])
    def test_age_at_which_a_notice_expires(self, four: Peers, age: int) -> None:
        alive = age <= LIFE
        assert four.set_cell(0b0001, age) == (0b0001 << 32 | age if alive else 0)

    def test_expired_notice_is_forgotten(self, four: Peers) -> None:
        four.set_cell(0b1110, LIFE - 200)
        assert four.planes(3) == [0, 0, 0]
        time.sleep(0.22)
        assert four.cell() == (0, 0)
        assert sorted(four.planes(4)) == [0, 1, 2, 3]

    def test_repeated_notice_does_not_expire(self, four: Peers) -> None:
        four.set_cell(0b0001, LIFE - 2000)
        four.hear(notice(0b1110), fate=STORED)
        mask, age = four.cell()
        assert mask == 0b0001
        assert age < LIFE - 2000

    def test_age_in_units_of_1024_us(self, four: Peers) -> None:
        four.set_cell(0b0001, 0)
        started = time.monotonic()
        time.sleep(0.5)
        mask, age = four.cell()
        assert mask == 0b0001
        assert 0.49 <= age * 1.024e-3 <= time.monotonic() - started + 0.01


class TestSharedCell:
    """The first peer has it until all its ports are up again or it falls silent."""

    @pytest.fixture
    def other(self, four: Peers) -> int:
        """A peer that shares PEER's cell, behind a third T0 group."""
        template = cross_t1_carrier(BLOCK, 0, GROUP, 0, OTHER_GROUP + 1, 0)
        action = P4TableAction("cross_t1", template=template, group_id=four.group)
        four.bench.device.insert(destination(OTHER_GROUP + 1, action))
        return of_another_group(PEER)

    def test_second_one_is_not_heard(self, four: Peers, other: int) -> None:
        four.hear(notice(0b1110), fate=STORED)
        four.hear(notice(0b1011, other), fate=COLLISION)
        assert four.planes(3) == [1, 2, 3]
        assert sorted(four.planes(4, other)) == [0, 1, 2, 3]

    def test_all_up_needs_no_cell(self, four: Peers, other: int) -> None:
        four.hear(notice(0b1110), fate=STORED)
        four.hear(notice(0b1111, other), fate=STORED)
        assert four.cell()[0] == 0b0001

    def test_second_one_after_the_first_is_up_again(self, four: Peers, other: int) -> None:
        four.hear(notice(0b1110), fate=STORED)
        four.hear(notice(0b1111), fate=STORED)
        four.hear(notice(0b1011, other), fate=STORED)
        assert four.planes(3, other) == [0, 1, 3]
        assert sorted(four.planes(4)) == [0, 1, 2, 3]

    def test_second_one_after_the_first_has_expired(self, four: Peers, other: int) -> None:
        four.set_cell(0b0001, LIFE + 1)
        four.hear(notice(0b1011, other), fate=STORED)
        assert (four.cell(other)[0], four.cell()) == (0b0100, (0, 0))


class TestLoss:
    """What is lost on a plane that the peer cannot be reached on says nothing of the path."""

    def test_on_the_plane_that_is_down(self, four: Peers) -> None:
        ev = four.write()
        four.hear(notice(ALL_UP & ~(1 << (ev >> 13))), fate=STORED)
        assert four.write(rtx=True) != ev
        assert four.state(ev) == GOOD

    def test_when_nothing_is_left(self, four: Peers) -> None:
        four.hear(notice(0b1111_0000), fate=STORED)
        ev = four.write()
        four.write(rtx=True)
        assert four.state(ev) == GOOD

    def test_on_another_plane(self, four: Peers) -> None:
        ev = four.write()
        four.hear(notice(ALL_UP & ~(2 << (ev >> 13))), fate=STORED)
        assert four.write(rtx=True) != ev
        assert four.state(ev) == BAD

    def test_when_the_plane_is_up_again(self, four: Peers) -> None:
        four.hear(notice(0b1110), fate=STORED)
        four.hear(notice(0b1111), fate=STORED)
        while four.write() != EVS[0]:
            pass
        assert four.write(rtx=True) != EVS[0]
        assert four.state(EVS[0]) == BAD


class TestRegisters:
    def test_free_cell(self, peers: Peers) -> None:
        for index in (0, CELLS - 1, CELLS, 0xFFFF):
            answer = ask_cpu(peers.bench.device, OP_READ_PEER_DOWN, index, 0x1234)
            assert answer == (OP_READ_PEER_DOWN, index, 0)

    def test_index_beyond_the_last_cell(self, four: Peers) -> None:
        """Only ten bits of it count."""
        four.set_cell(0b0001, 0)
        index = name_of(PEER) % CELLS
        answer = ask_cpu(four.bench.device, OP_READ_PEER_DOWN, index + 5 * CELLS)
        assert answer[1] == index + 5 * CELLS
        assert answer[2] >> 32 & 0xFF == 0b0001

    def test_bits_without_a_meaning_are_not_kept(self, four: Peers) -> None:
        index = name_of(PEER) % CELLS
        four.set_cell(0, 0)
        value = 0x3FFFFF << 42 | 0b11 << 40 | 0xFF << 32
        answer = ask_cpu(four.bench.device, OP_WRITE_PEER_DOWN, index, value)
        assert answer[2] == 0x3FFFFF << 42 | 0xFF << 32

    def test_no_plane_down_frees(self, four: Peers) -> None:
        four.hear(notice(0b1110), fate=STORED)
        assert four.set_cell(0, 0) == 0
        assert four.planes(4) == [0, 1, 2, 3]

    def test_planes_that_the_group_does_not_use(self, four: Peers) -> None:
        four.set_cell(0b1111_0001, 0)
        assert four.planes(3) == [1, 2, 3]
