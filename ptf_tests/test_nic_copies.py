# SPDX-License-Identifier: Apache-2.0
"""nic.p4: WRITEs of some classes are sent as copies on different planes (copies.p4)."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter

import pytest

from controller.addressing import UsidKind, path_ev, replicate_usid, usid
from controller.drops import DropReason
from mrc.opcodes import WRITE_OPCODES, Opcode
from ptf_tests.bench import Bench
from ptf_tests.copies_world import CLASS, bundles, copy_class, copy_macs, copying, in_network
from ptf_tests.device import Count
from ptf_tests.nic_world import (
    EV_CHOSEN,
    HOST,
    HOST_PORT,
    NEIGHBOUR,
    OP_READ_PATH,
    OP_WRITE_PATH,
    PEER,
    PLANES,
    UPLINK_BITS,
    ask_cpu,
    cross_t1,
    expected_frame,
    from_host,
    group_cfg,
    inner_of,
    path_ev_of,
    path_group,
    plane_port,
    plane_set,
    set_down_planes,
    slots,
    t0_local,
)
from ptf_tests.packets import ETHERNET_BYTES, assert_checksums, mrc, write_of

PATHS = {plane: [path_ev(plane, 100 * plane + n, n % 8) for n in range(4)] for plane in PLANES}
GOOD, SKIP, BAD, DENIED = range(4)
LOSS, ROTATION, CONTROLLER, GENERATION = 5, 8, 9, 10
PEER_QP = 0x123456
_generations = itertools.count(1)
_psns = itertools.count(1000)

COPIES = pytest.mark.parametrize("copies", [2, 3])


def few(*planes: int) -> dict[int, list[int]]:
    """The paths of some planes only."""
    return {plane: PATHS[plane] for plane in planes}


class Sender:
    """A host behind the NIC under test, which sends two of its classes as copies."""

    def __init__(self, bench: Bench, group: int) -> None:
        self.bench = bench
        self.group = group
        self.generation = next(_generations) % 256

    def install(
        self, paths: dict[int, list[int]], *, retirable: int = 3, masks: Iterable[int] = ()
    ) -> None:
        """A spray group of these paths in turn, with bundles, and everything else for copies."""
        everything = sum(1 << plane for plane in paths)
        device = self.bench.device
        device.insert(*copying({*masks, everything}))
        device.insert(*plane_set([*paths], [0]))
        self.new_generation(paths, retirable, first=True)

    def new_generation(
        self, paths: dict[int, list[int]], retirable: int = 3, *, first: bool = False
    ) -> None:
        """Slots and bundles of a generation, then the entry that switches over to it."""
        if not first:
            self.generation = next(_generations) % 256
        device = self.bench.device
        (number,) = {len(evs) for evs in paths.values()}
        device.insert(
            *slots(self.group, paths, generation=self.generation, alternates=True),
            *bundles(self.group, paths, generation=self.generation),
        )
        config = group_cfg(
            self.group,
            number,
            generation=self.generation,
            random=False,
            retirable=retirable,
            planes=paths,
        )
        if first:
            device.insert(config)
        else:
            device.modify(config)

    def send(self, packet: bytes, copies: int) -> list[int]:
        """Send a packet of the host; the EVs of what comes out: so many copies, each whole, with
        its own EV and carrier, on the port of its plane, and nothing else."""
        self.bench.send(HOST_PORT, from_host(packet))
        received = self.bench.receive(copies)
        evs = [path_ev_of(frame) for _, frame in received]
        for ev, (port, frame) in zip(evs, received, strict=True):
            assert (port, frame) == (plane_port(ev), expected_frame(packet, ev))
        assert len({ev >> 13 for ev in evs}) == copies
        self.bench.expect_nothing()
        return sorted(evs)

    def write(self, copies: int, *, psn: int | None = None, expect: int | None = None) -> list[int]:
        """Send a WRITE of the class with so many copies; the EVs."""
        packet = write(copies, psn=psn)
        return self.send(packet, copies if expect is None else expect)

    def set_state(self, ev: int, state: int) -> None:
        """What the controller does to a path."""
        plane = path_group(self.group) << 3 | ev >> 13
        index = plane << UPLINK_BITS | ev >> 3 & 1023
        value = index << 32 | ev << 16 | self.generation << 8 | state << 6
        assert ask_cpu(self.bench.device, OP_WRITE_PATH, plane, value)[0] == OP_WRITE_PATH

    def state(self, ev: int) -> int:
        """The state of a path."""
        plane = path_group(self.group) << 3 | ev >> 13
        index = plane << UPLINK_BITS | ev >> 3 & 1023
        cell = ask_cpu(self.bench.device, OP_READ_PATH, plane, index << 32)[2] & 0xFFFF
        return cell >> 6 & 3 if cell >> 8 == self.generation else GOOD

    def _digests(self, timeout_s: float) -> list[dict[str, int]]:
        # Those of an earlier test's paths may come late.
        return [
            event
            for event in self.bench.device.digests(timeout_s)
            if event["cause"] != GENERATION and event["path_group"] == path_group(self.group)
        ]

    def events(self, *expected: tuple[int, int, int, int]) -> None:
        """These digests, beside those of new generations: EV, from, to, cause."""
        found: list[dict[str, int]] = []
        deadline = time.monotonic() + 2
        while len(found) < len(expected) and time.monotonic() < deadline:
            found += self._digests(0.1)
        found += self._digests(0.05)
        names = ("path_ev", "from_state", "to_state", "cause")
        assert [tuple(event[name] for name in names) for event in found] == [*expected]


def write(
    copies: int,
    *,
    psn: int | None = None,
    rtx: bool = False,
    opcode: Opcode = Opcode.WRITE_ONLY,
    payload: bytes = bytes(range(64)),
    target: int = PEER,
    flow_label: int = 0,
    ecn: int = 0,
    dscp: int | None = None,
) -> bytes:
    """A WRITE of the host, of the class that is sent so many times."""
    headers = write_of(next(_psns) if psn is None else psn, rtx=rtx)
    headers.opcode = opcode
    return mrc(
        opcode,
        HOST,
        target,
        payload,
        dscp=CLASS[copies] if dscp is None else dscp,
        ecn=ecn,
        flow_label=flow_label,
        headers=headers,
    )


@pytest.fixture
def sender(host_nic: Bench, spray_group: int, ev_events: None) -> Iterator[Sender]:
    """A sender without a spray group."""
    while host_nic.device.digests(0.05):
        pass
    host_nic.device.modify(cross_t1(spray_group), t0_local(spray_group))
    yield Sender(host_nic, spray_group)


class TestCopies:
    @COPIES
    def test_planes_take_turns(self, sender: Sender, copies: int) -> None:
        """Eight packets begin on eight planes, each copy on the next one."""
        sender.install(PATHS)
        for first in PLANES:
            wanted = sorted((first + n) % 8 for n in range(copies))
            assert [ev >> 13 for ev in sender.write(copies)] == wanted

    @COPIES
    def test_every_path_has_its_share(self, sender: Sender, copies: int) -> None:
        """Planes and bundles do not turn in step, though both are powers of two."""
        sender.install(few(0, 1, 2, 3))
        used = Counter(ev for _ in range(16) for ev in sender.write(copies))
        assert used == dict.fromkeys((ev for evs in few(0, 1, 2, 3).values() for ev in evs), copies)

    def test_random_group(self, sender: Sender) -> None:
        sender.install(few(0, 5))
        config = group_cfg(
            sender.group, 4, generation=sender.generation, random=True, planes=(0, 5)
        )
        sender.bench.device.modify(config)
        used = {ev for _ in range(60) for ev in sender.write(2)}
        # A path of four is missed by chance in 1 of 3e7 runs.
        assert used == {*PATHS[0], *PATHS[5]}

    @COPIES
    @pytest.mark.parametrize(
        "opcode", [*map(Opcode, sorted(WRITE_OPCODES))], ids=attrgetter("name")
    )
    def test_every_write(self, sender: Sender, copies: int, opcode: Opcode) -> None:
        sender.install(few(1, 4, 7))
        sender.send(write(copies, opcode=opcode), copies)

    @COPIES
    def test_host_bytes_are_untouched(self, sender: Sender, copies: int) -> None:
        sender.install(few(1, 4, 7))
        packet = write(copies)
        for ev in sender.send(packet, copies):
            inner = inner_of(expected_frame(packet, ev))
            assert inner[4:] == packet[4:]
            assert_checksums(inner)

    @COPIES
    @pytest.mark.parametrize("payload_bytes", [0, 1, 4096, 8868])
    def test_payload_length(self, sender: Sender, copies: int, payload_bytes: int) -> None:
        sender.install(few(1, 4, 7))
        sender.send(write(copies, payload=bytes(payload_bytes)), copies)

    @COPIES
    def test_ecn_is_copied_out(self, sender: Sender, copies: int) -> None:
        sender.install(few(1, 4, 7))
        for ecn in range(4):
            sender.send(write(copies, ecn=ecn), copies)

    @COPIES
    def test_within_the_t0_group(self, sender: Sender, copies: int) -> None:
        sender.install(few(0, 3, 6))
        sender.send(write(copies, target=NEIGHBOUR), copies)

    def test_every_pair_and_triple_of_planes(self, sender: Sender) -> None:
        """By the mask of planes that are down."""
        masks = [
            sum(1 << plane for plane in planes)
            for copies in CLASS
            for planes in itertools.combinations(PLANES, copies)
        ]
        sender.install(PATHS, masks=masks)
        for mask in masks:
            planes = [plane for plane in PLANES if mask >> plane & 1]
            set_down_planes(sender.bench.device, mask ^ 0xFF)
            assert [ev >> 13 for ev in sender.write(len(planes))] == planes

    @COPIES
    def test_counters(self, sender: Sender, copies: int) -> None:
        """Each copy is counted at its port, and by the link's entry."""
        sender.install(few(1, 4, 7))
        before = sender.bench.counters()
        packet = write(copies)
        evs = sender.send(packet, copies)
        size = len(from_host(packet))
        sender.bench.expect_counters(
            before,
            {
                ("port_in", HOST_PORT): Count(1, size),
                **{("port_out", plane_port(ev)): Count(1, size) for ev in evs},
            },
        )
        hits = sender.bench.device.hits(copy_class(CLASS[copies], copies))
        assert hits.packets == 1


class TestNotCopied:
    @COPIES
    def test_retransmission(self, sender: Sender, copies: int) -> None:
        sender.install(few(1, 4, 7))
        sender.send(write(copies, rtx=True), 1)

    def test_other_classes(self, sender: Sender) -> None:
        sender.install(few(1, 4, 7))
        for dscp in range(64):
            if dscp not in CLASS.values():
                sender.send(write(2, dscp=dscp), 1)

    @COPIES
    def test_path_that_the_host_chose(self, sender: Sender, copies: int) -> None:
        sender.install(few(1, 4, 7))
        ev = PATHS[4][2]
        assert sender.send(write(copies, flow_label=EV_CHOSEN | ev), 1) == [ev]

    @pytest.mark.parametrize(
        "opcode", [code for code in Opcode if code not in WRITE_OPCODES], ids=attrgetter("name")
    )
    def test_what_is_no_write(self, sender: Sender, opcode: Opcode) -> None:
        sender.install(few(1, 4, 7))
        sender.send(mrc(opcode, HOST, PEER, dscp=CLASS[2]), 1)


class TestPlanesDown:
    def test_from_three_to_none(self, sender: Sender) -> None:
        """As many copies as planes alive, from the next packet on."""
        sender.install(few(1, 4, 7), masks=[0b0001_0010, 0b0000_0010, 0b1000_0010])
        assert [ev >> 13 for ev in sender.write(3)] == [1, 4, 7]
        set_down_planes(sender.bench.device, 1 << 7)
        assert [ev >> 13 for ev in sender.write(3, expect=2)] == [1, 4]
        assert [ev >> 13 for ev in sender.write(2)] == [1, 4]
        set_down_planes(sender.bench.device, 1 << 7 | 1 << 4)
        for copies in CLASS:
            assert [ev >> 13 for ev in sender.write(copies, expect=1)] == [1]
        set_down_planes(sender.bench.device, 0xFF)
        for copies in CLASS:
            sender.bench.drops(HOST_PORT, from_host(write(copies)), DropReason.NO_LIVE_PLANE)
        set_down_planes(sender.bench.device, 1 << 4)
        assert [ev >> 13 for ev in sender.write(3, expect=2)] == [1, 7]
        set_down_planes(sender.bench.device, 0)
        assert [ev >> 13 for ev in sender.write(3)] == [1, 4, 7]

    def test_planes_that_the_group_does_not_use(self, sender: Sender) -> None:
        sender.install(few(0, 2))
        set_down_planes(sender.bench.device, 0b1111_1010)
        assert [ev >> 13 for ev in sender.write(3, expect=2)] == [0, 2]


class TestStates:
    @pytest.mark.parametrize("state", [SKIP, BAD, DENIED])
    def test_alternate_in_the_same_plane(self, sender: Sender, state: int) -> None:
        sender.install(few(1, 4))
        avoided = PATHS[4][0]
        sender.set_state(avoided, state)
        sender.events((avoided, GOOD, state, CONTROLLER))
        assert sender.write(2) == [PATHS[1][0], PATHS[4][1]]
        if state == SKIP:
            # Its turn has come: passed over once.
            sender.events((avoided, SKIP, GOOD, ROTATION))
            assert sender.state(avoided) == GOOD
        else:
            sender.events()

    def test_last_good_one(self, sender: Sender) -> None:
        """Bundle and alternate retired: the path that was last good in the plane."""
        sender.install(few(1, 4))
        used = [sender.write(2)[1] for _ in range(2)]  # first plane 1, then 4: bundle 0 of each
        assert used == [PATHS[4][0]] * 2
        for ev in PATHS[4][1:]:
            sender.set_state(ev, BAD)
        assert {sender.write(2)[1] for _ in range(8)} == {PATHS[4][0]}

    @pytest.mark.parametrize("state", [SKIP, BAD])
    def test_nothing_good(self, sender: Sender, state: int) -> None:
        """The only paths there are, are used all the same: what is to be skipped before what is
        bad."""
        sender.install(few(1, 4))
        for ev in PATHS[4]:
            sender.set_state(ev, BAD)
        sender.set_state(PATHS[4][1], state)
        assert sender.write(2) == [PATHS[1][0], PATHS[4][0 if state == BAD else 1]]

    def test_denied_plane_is_left_out(self, sender: Sender) -> None:
        sender.install(few(1, 4, 7))
        for ev in PATHS[4]:
            sender.set_state(ev, DENIED)
        for _ in range(6):
            assert [ev >> 13 for ev in sender.write(3, expect=2)] == [1, 7]

    def test_everything_denied(self, sender: Sender) -> None:
        sender.install(few(1, 4))
        for ev in (*PATHS[1], *PATHS[4]):
            sender.set_state(ev, DENIED)
        sender.bench.drops(HOST_PORT, from_host(write(2)), DropReason.NO_PATH)

    def test_memory_holds_the_first_copys_path(self, sender: Sender) -> None:
        """A retransmission means that all copies were lost; the first one's path is retired."""
        sender.install(few(1, 4))
        psn = next(_psns)
        first, _ = sender.write(2, psn=psn)
        sender.send(write(2, psn=psn, rtx=True), 1)
        sender.events((first, GOOD, BAD, LOSS))
        assert first not in {ev for _ in range(8) for ev in sender.write(2)}


class TestInNetwork:
    """Sent once, to a T0 that sends it on by the path's T1 and by another one."""

    DSCP = 12

    @pytest.fixture
    def once(self, sender: Sender) -> Sender:
        sender.install(few(1, 4))
        sender.bench.device.insert(in_network(self.DSCP))
        return sender

    def frame(self, packet: bytes, ev: int) -> bytes:
        """With the T0's local uSID in the place of the T1's."""
        usual = expected_frame(packet, ev)
        at = ETHERNET_BYTES + 24 + 6  # block and the T0's uSID are in front
        assert usual[at : at + 2] == usid(UsidKind.T1, ev >> 13, ev >> 3 & 1023).to_bytes(2)
        return usual[:at] + replicate_usid(ev >> 3 & 1023).to_bytes(2) + usual[at + 2 :]

    def sent(self, once: Sender, packet: bytes) -> int:
        """The EV of a packet that leaves once, for two T1s."""
        once.bench.send(HOST_PORT, from_host(packet))
        ((port, frame),) = once.bench.receive(1)
        ev = path_ev_of(frame)
        assert (port, frame) == (plane_port(ev), self.frame(packet, ev))
        once.bench.expect_nothing()
        return ev

    def test_all_paths_in_turn(self, once: Sender) -> None:
        found = Counter(self.sent(once, write(2, dscp=self.DSCP)) for _ in range(16))
        assert found == dict.fromkeys((*PATHS[1], *PATHS[4]), 2)

    @pytest.mark.parametrize("opcode", [*map(Opcode, WRITE_OPCODES)], ids=attrgetter("name"))
    def test_every_write(self, once: Sender, opcode: Opcode) -> None:
        packet = write(2, dscp=self.DSCP, opcode=opcode, ecn=2)
        assert_checksums(self.frame(packet, self.sent(once, packet))[ETHERNET_BYTES + 40 :])

    def test_states_hold_for_them_too(self, once: Sender) -> None:
        psn = next(_psns)
        lost = self.sent(once, write(2, dscp=self.DSCP, psn=psn))
        once.send(write(2, dscp=self.DSCP, psn=psn, rtx=True), 1)
        once.events((lost, GOOD, BAD, LOSS))
        assert lost not in {self.sent(once, write(2, dscp=self.DSCP)) for _ in range(16)}

    def test_retransmissions_and_other_packets_as_usual(self, once: Sender) -> None:
        once.send(write(2, dscp=self.DSCP, rtx=True), 1)
        once.send(mrc(Opcode.SACK, HOST, PEER, dscp=self.DSCP), 1)
        ev = PATHS[1][0]
        once.send(write(2, dscp=self.DSCP, flow_label=EV_CHOSEN | ev), 1)

    def test_within_the_t0_group_there_is_no_t1(self, once: Sender) -> None:
        once.send(write(2, dscp=self.DSCP, target=NEIGHBOUR), 1)


class TestPolicyChange:
    def test_generations(self, sender: Sender) -> None:
        """Slots and bundles change with one MODIFY: no packet takes a mixture."""
        old = {plane: [path_ev(plane, n) for n in range(4)] for plane in (2, 3)}
        new = {plane: [path_ev(plane, 500 + n) for n in range(4)] for plane in (2, 3)}
        sender.install(old)
        for paths in (new, old, new):
            sender.new_generation(paths)
            used = [sender.write(2) for _ in range(8)]
            assert {ev for evs in used for ev in evs} == {*paths[2], *paths[3]}

    def test_class_comes_and_goes(self, sender: Sender) -> None:
        sender.install(few(2, 3))
        device = sender.bench.device
        device.modify(copy_class(CLASS[3], 2))
        sender.write(3, expect=2)
        device.delete(copy_class(CLASS[2], 2))
        sender.write(2, expect=1)
        device.insert(copy_class(CLASS[2], 2))
        sender.write(2)

    def test_without_bundles(self, sender: Sender) -> None:
        sender.install(few(2, 3))
        sender.bench.device.delete(*bundles(sender.group, few(2, 3), generation=sender.generation))
        sender.bench.drops(HOST_PORT, from_host(write(2)), DropReason.NO_SLOT)

    def test_plane_without_a_link(self, sender: Sender) -> None:
        """The copy for it is dropped and counted; the other one leaves."""
        sender.install(few(2, 3))
        sender.bench.device.delete(copy_macs(3))
        before = sender.bench.counters()
        packet = write(2)
        (ev,) = sender.send(packet, 1)
        size = len(from_host(packet))
        assert ev == PATHS[2][0]
        sender.bench.expect_counters(
            before,
            {
                ("port_in", HOST_PORT): Count(1, size),
                ("port_out", plane_port(ev)): Count(1, size),
                ("drops", DropReason.NO_LINK): Count(1, size),
            },
        )
