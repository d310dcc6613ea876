# SPDX-License-Identifier: GPL-2.0-only
"""nic.p4: EV states: every transition, its digest, and what is sent afterwards (ev_state.p4)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from enum import IntEnum

import pytest
from scapy.packet import Packet

from controller.addressing import own_carrier, path_ev
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench
from ptf_tests.nic_world import (
    DOWNLINK,
    EV_CHOSEN,
    HOST,
    HOST_PORT,
    OP_READ_ASSUMED,
    OP_READ_INACTIVE,
    OP_READ_PATH,
    OP_WRITE_PATH,
    PEER,
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
    set_down_planes,
    slots,
)
from ptf_tests.packets import (
    NEXT_HEADER_IPV6,
    ethernet,
    ev_probe_answer_of,
    ev_probe_of,
    ipv6,
    mrc,
    nack_of,
    sack_of,
    write_of,
)
from ptf_tests.world import BLOCK

GOOD, SKIP, BAD, DENIED = range(4)
SOURCE_PORT = 0xC0DE
PEER_QP = 0x123456
OWN_QP = 0x777
TRIMMED, LASTHOP, NO_PKT_BUFFER = 0x01, 0x02, 0x07
PLANE_DOWN, PLANE_BACK = 1, 2
PATHS = [path_ev(0, uplink) for uplink in range(6)]
OTHER_PLANE = [path_ev(1, uplink) for uplink in range(6)]
A = PATHS[0]
_generations = itertools.count(1)


class Cause(IntEnum):
    """`ev_cause_t`."""

    SKIP_ONCE = 2
    TRIMMED = 3
    ALWAYS_SKIP = 4
    LOSS = 5
    PROBE = 6
    PROBE_MARKED = 7
    ROTATION = 8
    CONTROLLER = 9
    GENERATION = 10


class Sender:
    """A host behind the NIC under test, its peer's answers, and what the NIC says of its paths."""

    def __init__(self, bench: Bench, group: int) -> None:
        self.bench = bench
        self.group = group
        self.generation = next(_generations)
        self._psn = self.generation << 12
        self._time = 0
        bench.device.modify(cross_t1(group))

    def install(
        self,
        paths: dict[int, list[int]],
        *,
        retirable: int = 5,
        alternates: bool = True,
        probe_successes: int = 3,
    ) -> None:
        """A spray group of these paths, in turn, a new generation; each is sent on once."""
        (number,) = {len(evs) for evs in paths.values()}
        config = group_cfg(
            self.group,
            number,
            generation=self.generation,
            random=False,
            retirable=retirable,
            probe_successes=probe_successes,
            planes=paths,
        )
        self.bench.device.insert(
            *plane_set([*paths], range(4)),
            *slots(self.group, paths, generation=self.generation, alternates=alternates),
            config,
        )
        evs = [ev for plane in paths.values() for ev in plane]
        assert {*self.rotation(len(evs))} == {*evs}
        self.events((PEER_QP, 0, GOOD, GOOD, Cause.GENERATION))

    def next_psn(self) -> int:
        """A PSN that has not been sent."""
        self._psn += 1
        return self._psn

    def write(self, psn: int | None = None, *, rtx: bool = False) -> int:
        """Send a WRITE; the EV it took. It goes out once, whole, by the EV's plane."""
        headers = write_of(self.next_psn() if psn is None else psn, rtx=rtx)
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER, headers=headers)
        self.bench.send(HOST_PORT, from_host(packet))
        ((port, frame),) = self.bench.receive(1)
        ev = path_ev_of(frame)
        assert (port, frame) == (plane_port(ev), expected_frame(packet, ev))
        self.bench.expect_nothing()
        return ev

    def rotation(self, packets: int) -> list[int]:
        """The EVs of so many WRITEs."""
        return [self.write() for _ in range(packets)]

    def on(self, ev: int) -> int:
        """Send WRITEs until one takes this EV; its PSN."""
        for _ in range(64):
            psn = self.next_psn()
            if self.write(psn) == ev:
                return psn
        raise AssertionError(f"no packet took EV {ev:#06x}")

    def answer(self, opcode: Opcode, headers: Packet) -> None:
        """The peer's packet arrives on plane 3, and goes to the host as it is."""
        inner = mrc(opcode, PEER, HOST, headers=headers)
        port = plane_port(path_ev(3, 0))
        outer = ipv6(PEER, own_carrier(BLOCK, 3, DOWNLINK), inner, NEXT_HEADER_IPV6)
        self.bench.forwards(
            port, ethernet(arriving(port), outer), HOST_PORT, ethernet(leaving(HOST_PORT), inner)
        )

    def sack(self, ev: int, m: int = 0, *, probe: bool = False) -> None:
        """A SACK of a packet on this EV."""
        self.answer(Opcode.SACK, sack_of(ev << 16 | SOURCE_PORT, m, answers_probe=probe))

    def nack(self, ev: int, psn: int, reason: int) -> None:
        """A NACK of a packet on this EV."""
        self.answer(Opcode.NACK, nack_of(ev << 16 | SOURCE_PORT, psn, reason))

    def lose(self, ev: int) -> int:
        """A packet on this EV is lost without a word and sent again; the EV it takes then."""
        return self.write(self.on(ev), rtx=True)

    def cell(self, ev: int) -> tuple[int, int, int]:
        """State, suspicion and successes of a path, by the register channel."""
        plane = path_group(self.group) << 3 | ev >> 13
        index = plane << UPLINK_BITS | ev >> 3 & 1023
        answer = ask_cpu(self.bench.device, OP_READ_PATH, plane, index << 32)
        cell = answer[2] & 0xFFFF
        if cell >> 8 != self.generation:
            cell = 0
        return cell >> 6 & 3, cell >> 5 & 1, cell & 15

    def set_state(self, ev: int, state: int) -> None:
        """What the controller does."""
        plane = path_group(self.group) << 3 | ev >> 13
        index = plane << UPLINK_BITS | ev >> 3 & 1023
        value = index << 32 | ev << 16 | self.generation << 8 | state << 6
        assert ask_cpu(self.bench.device, OP_WRITE_PATH, plane, value) == (
            OP_WRITE_PATH,
            plane,
            value,
        )

    def inactive(self, plane: int = 0) -> int:
        """How many paths of the plane are inactive."""
        index = path_group(self.group) << 3 | plane
        value = ask_cpu(self.bench.device, OP_READ_INACTIVE, index)[2]
        return value & 0xFF if value >> 8 == self.generation else 0

    def assumed_down(self) -> int:
        """The mask of planes that the group assumes to be down."""
        value = ask_cpu(self.bench.device, OP_READ_ASSUMED, path_group(self.group))[2]
        return value & 0xFF if value >> 8 == self.generation else 0

    def events(self, *expected: tuple[int, int, int, int, Cause]) -> None:
        """Exactly these digests: QP, EV, from, to, cause; on a path group's behalf, in time."""
        self.plane_events(*((*event, 0) for event in expected))

    def plane_events(self, *expected: tuple[int, int, int, int, Cause, int]) -> None:
        """The same with the change of the plane."""
        found: list[dict[str, int]] = []
        deadline = time.monotonic() + 2
        while len(found) < len(expected) and time.monotonic() < deadline:
            found += self.bench.device.digests(0.1)
        found += self.bench.device.digests(0.05)
        names = ("qp", "path_ev", "from_state", "to_state", "cause", "plane_change")
        assert [tuple(event[name] for name in names) for event in found] == [*expected]
        for event in found:
            assert event["path_group"] == path_group(self.group)
            assert event["generation"] == self.generation
            assert event["time"] > self._time
            self._time = event["time"]


@pytest.fixture
def sender(host_nic: Bench, spray_group: int, ev_events: None) -> Iterator[Sender]:
    """A sender without a spray group."""
    while host_nic.device.digests(0.1):
        pass
    yield Sender(host_nic, spray_group)


@pytest.fixture
def one_plane(sender: Sender) -> Sender:
    """Six paths in one plane, of which one stays active."""
    sender.install({0: PATHS})
    return sender


@pytest.fixture
def two_planes(sender: Sender) -> Sender:
    """Six paths in each of two planes, of which one each stays active."""
    sender.install({0: PATHS, 1: OTHER_PLANE})
    return sender


def retire(sender: Sender, *evs: int) -> None:
    """Lose a packet on each; the events are looked at."""
    for ev in evs:
        assert sender.lose(ev) != ev
        assert sender.cell(ev) == (BAD, 0, 0)
        sender.events((PEER_QP, ev, GOOD, BAD, Cause.LOSS))


class TestSkip:
    def test_marked_path_is_passed_over_once(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=1)
        one_plane.events((OWN_QP, A, GOOD, SKIP, Cause.SKIP_ONCE))
        assert one_plane.rotation(12) == [PATHS[1], *PATHS[1:], *PATHS]
        one_plane.events((PEER_QP, A, SKIP, GOOD, Cause.ROTATION))

    def test_trimmed_path_is_passed_over_once(self, one_plane: Sender) -> None:
        psn = one_plane.on(A)
        one_plane.nack(A, psn, TRIMMED)
        one_plane.events((OWN_QP, A, GOOD, SKIP, Cause.TRIMMED))
        assert one_plane.rotation(6) == [*PATHS[1:], PATHS[1]]
        one_plane.events((PEER_QP, A, SKIP, GOOD, Cause.ROTATION))

    @pytest.mark.parametrize("reason", [LASTHOP, NO_PKT_BUFFER, 0x06, 0x0A, 0x0B, 0x19])
    def test_other_nacks_are_no_penalty(self, one_plane: Sender, reason: int) -> None:
        one_plane.nack(A, one_plane.on(A), reason)
        one_plane.events()
        assert one_plane.cell(A) == (GOOD, 0, 0)

    def test_second_mark_changes_nothing(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=1)
        one_plane.sack(A, m=1)
        one_plane.events((OWN_QP, A, GOOD, SKIP, Cause.SKIP_ONCE))

    def test_unmarked_sack_changes_nothing(self, one_plane: Sender) -> None:
        one_plane.sack(A)
        one_plane.sack(A, m=3)
        one_plane.events()
        assert one_plane.rotation(6) == PATHS

    def test_only_path_is_used_all_the_same(self, sender: Sender) -> None:
        sender.install({0: [A]}, retirable=0)
        sender.sack(A, m=1)
        assert sender.rotation(2) == [A, A]
        sender.events(
            (OWN_QP, A, GOOD, SKIP, Cause.SKIP_ONCE), (PEER_QP, A, SKIP, GOOD, Cause.ROTATION)
        )

    def test_every_path_marked(self, one_plane: Sender) -> None:
        """One path becomes GOOD again per packet."""
        for ev in PATHS:
            one_plane.sack(ev, m=1)
        one_plane.events(*((OWN_QP, ev, GOOD, SKIP, Cause.SKIP_ONCE) for ev in PATHS))
        sent = one_plane.rotation(6)
        assert set(sent) <= set(PATHS)
        one_plane.events(*((PEER_QP, ev, SKIP, GOOD, Cause.ROTATION) for ev in PATHS))

    @pytest.mark.parametrize(
        "ev",
        [OTHER_PLANE[0], path_ev(0, 6), path_ev(0, 1023)],
        ids=["plane", "uplink", "last uplink"],
    )
    def test_path_that_the_group_does_not_use(self, one_plane: Sender, ev: int) -> None:
        """Feedback that names one is ignored."""
        for m, probe in itertools.product(range(4), (False, True)):
            one_plane.sack(ev, m=m, probe=probe)
        one_plane.nack(ev, one_plane.next_psn(), TRIMMED)
        one_plane.events()
        assert one_plane.cell(ev) == (GOOD, 0, 0)
        assert one_plane.inactive(ev >> 13) == 0


class TestRetire:
    def test_loss_retires_at_once(self, one_plane: Sender) -> None:
        """The retransmission itself does not take the path any more."""
        retire(one_plane, A)
        assert one_plane.inactive() == 1
        assert A not in one_plane.rotation(24)
        one_plane.events()

    def test_loss_of_a_skipped_path(self, one_plane: Sender) -> None:
        psn = one_plane.on(A)
        one_plane.sack(A, m=1)
        assert one_plane.write(psn, rtx=True) != A
        one_plane.events(
            (OWN_QP, A, GOOD, SKIP, Cause.SKIP_ONCE), (PEER_QP, A, SKIP, BAD, Cause.LOSS)
        )

    def test_always_skip(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=2)
        one_plane.events((OWN_QP, A, GOOD, BAD, Cause.ALWAYS_SKIP))
        assert A not in one_plane.rotation(12)

    def test_always_skip_of_a_skipped_path(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=1)
        one_plane.sack(A, m=2)
        one_plane.events(
            (OWN_QP, A, GOOD, SKIP, Cause.SKIP_ONCE), (OWN_QP, A, SKIP, BAD, Cause.ALWAYS_SKIP)
        )

    @pytest.mark.parametrize("reason", [TRIMMED, LASTHOP, NO_PKT_BUFFER])
    def test_nack_excuses(self, one_plane: Sender, reason: int) -> None:
        psn = one_plane.on(A)
        one_plane.nack(A, psn, reason)
        one_plane.write(psn, rtx=True)
        trimmed = (OWN_QP, A, GOOD, SKIP, Cause.TRIMMED)
        one_plane.events(*[trimmed] * (reason == TRIMMED))
        assert one_plane.cell(A)[0] != BAD
        assert one_plane.inactive() == 0

    def test_nack_of_another_qp_does_not_excuse(self, one_plane: Sender) -> None:
        psn = one_plane.on(A)
        other = nack_of(A << 16 | 0xC0DF, psn, LASTHOP)
        one_plane.answer(Opcode.NACK, other)
        one_plane.write(psn, rtx=True)
        one_plane.events((PEER_QP, A, GOOD, BAD, Cause.LOSS))

    def test_retransmission_of_an_unknown_psn(self, one_plane: Sender) -> None:
        one_plane.write(one_plane.next_psn(), rtx=True)
        one_plane.events()

    def test_psn_over_the_wrap(self, one_plane: Sender) -> None:
        """PSN 2^24 - 1 and PSN 0 are remembered beside each other; 1,024 later replaces."""
        first, second = one_plane.write(0xFFFFFF), one_plane.write(0)
        one_plane.write(1024)
        one_plane.write(0, rtx=True)
        one_plane.events()
        one_plane.write(0xFFFFFF, rtx=True)
        one_plane.events((PEER_QP, first, GOOD, BAD, Cause.LOSS))
        assert one_plane.cell(second)[0] == GOOD

    def test_lost_again_on_another_path(self, one_plane: Sender) -> None:
        """The memory holds the EV of the last time a PSN was sent."""
        psn = one_plane.on(A)
        second = one_plane.write(psn, rtx=True)
        third = one_plane.write(psn, rtx=True)
        assert len({A, second, third}) == 3
        one_plane.events(
            (PEER_QP, A, GOOD, BAD, Cause.LOSS), (PEER_QP, second, GOOD, BAD, Cause.LOSS)
        )

    def test_share_stays_in_its_plane(self, two_planes: Sender) -> None:
        retire(two_planes, *PATHS[:3])
        sent = two_planes.rotation(24)
        assert [ev >> 13 for ev in sent] in ([0, 1] * 12, [1, 0] * 12)
        assert not {*PATHS[:3]} & {*sent}

    def test_four_candidates_retired(self, one_plane: Sender) -> None:
        """Slot and alternates all retired: the path last found good is taken."""
        retire(one_plane, *PATHS[:5])
        assert {*one_plane.rotation(12)} == {PATHS[5]}
        assert one_plane.inactive() == 5

    def test_loss_on_a_plane_whose_port_is_down(self, two_planes: Sender) -> None:
        """It says nothing of the path, which is used again when the port is up."""
        psn = two_planes.on(A)
        set_down_planes(two_planes.bench.device, 1)
        try:
            assert two_planes.write(psn, rtx=True) in OTHER_PLANE
        finally:
            set_down_planes(two_planes.bench.device, 0)
        two_planes.events()
        assert A in two_planes.rotation(12)

    def test_new_generation_starts_clean(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        one_plane.generation = next(_generations)
        config = group_cfg(one_plane.group, 6, generation=one_plane.generation, random=False)
        paths = slots(one_plane.group, {0: PATHS}, generation=one_plane.generation)
        one_plane.bench.device.insert(*paths)
        one_plane.bench.device.modify(config)
        assert A in one_plane.rotation(6)
        one_plane.events((PEER_QP, 0, GOOD, GOOD, Cause.GENERATION))
        assert (one_plane.inactive(), one_plane.cell(A)) == (0, (GOOD, 0, 0))


class TestFloor:
    def test_last_path_is_kept(self, one_plane: Sender) -> None:
        """And its plane, being the only one, too: however often it fails."""
        retire(one_plane, *PATHS[:5])
        for _ in range(3):
            assert one_plane.lose(PATHS[5]) == PATHS[5]
        one_plane.events()
        assert (one_plane.inactive(), one_plane.assumed_down()) == (5, 0)

    def test_ev_min_active(self, sender: Sender) -> None:
        sender.install({0: PATHS}, retirable=2)
        retire(sender, *PATHS[:2])
        sender.lose(PATHS[2])
        assert sender.cell(PATHS[2]) == (GOOD, 1, 0)
        sender.events()

    def test_always_skip_at_the_floor_is_skip_once(self, sender: Sender) -> None:
        sender.install({0: PATHS}, retirable=0)
        sender.sack(A, m=2)
        sender.events((OWN_QP, A, GOOD, SKIP, Cause.ALWAYS_SKIP))

    def test_dead_plane_is_left(self, two_planes: Sender) -> None:
        retire(two_planes, *PATHS[:5])
        two_planes.lose(PATHS[5])
        two_planes.events()
        assert two_planes.lose(PATHS[5]) in OTHER_PLANE
        two_planes.plane_events((PEER_QP, PATHS[5], GOOD, GOOD, Cause.LOSS, PLANE_DOWN))
        assert two_planes.assumed_down() == 1
        assert {*two_planes.rotation(12)} == {*OTHER_PLANE}

    def test_ack_between_two_losses(self, two_planes: Sender) -> None:
        """The plane is not dead."""
        retire(two_planes, *PATHS[:5])
        two_planes.lose(PATHS[5])
        two_planes.sack(PATHS[5])
        two_planes.lose(PATHS[5])
        two_planes.events()
        assert two_planes.assumed_down() == 0

    def test_probe_brings_the_plane_back(self, two_planes: Sender) -> None:
        self.test_dead_plane_is_left(two_planes)
        two_planes.sack(PATHS[5])  # late, and no probe
        assert two_planes.assumed_down() == 1
        two_planes.sack(PATHS[5], probe=True)
        two_planes.plane_events((OWN_QP, PATHS[5], GOOD, GOOD, Cause.PROBE, PLANE_BACK))
        assert PATHS[5] in two_planes.rotation(4)

    def test_retired_path_brings_the_plane_back_when_it_is_good(self, two_planes: Sender) -> None:
        self.test_dead_plane_is_left(two_planes)
        for _ in range(2):
            two_planes.sack(A, probe=True)
        assert two_planes.assumed_down() == 1
        two_planes.sack(A, probe=True)
        two_planes.plane_events((OWN_QP, A, BAD, GOOD, Cause.PROBE, PLANE_BACK))

    def test_last_plane_is_kept(self, two_planes: Sender) -> None:
        self.test_dead_plane_is_left(two_planes)
        retire(two_planes, *OTHER_PLANE[:5])
        for _ in range(3):
            two_planes.lose(OTHER_PLANE[5])
        two_planes.events()
        assert two_planes.assumed_down() == 1


class TestProbes:
    def test_answers_bring_a_path_back(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        for successes in (1, 2):
            one_plane.sack(A, probe=True)
            assert one_plane.cell(A) == (BAD, 0, successes)
        one_plane.sack(A, probe=True)
        one_plane.events((OWN_QP, A, BAD, GOOD, Cause.PROBE))
        assert one_plane.inactive() == 0
        assert A in one_plane.rotation(6)

    def test_marked_answer_brings_it_to_skip(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        one_plane.sack(A, probe=True)
        one_plane.sack(A, probe=True)
        one_plane.sack(A, m=1, probe=True)
        one_plane.events((OWN_QP, A, BAD, SKIP, Cause.PROBE_MARKED))

    def test_marked_answer_on_a_good_path(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=1, probe=True)
        one_plane.events((OWN_QP, A, GOOD, SKIP, Cause.PROBE_MARKED))

    def test_always_skip_resets_the_count(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        one_plane.sack(A, probe=True)
        one_plane.sack(A, m=2, probe=True)
        assert one_plane.cell(A) == (BAD, 0, 0)
        one_plane.events()

    def test_late_feedback_does_not_count(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        one_plane.sack(A)
        one_plane.sack(A, m=1)
        one_plane.events()
        assert one_plane.cell(A) == (BAD, 0, 0)

    def test_ev_probe_is_found_by_its_request_id(self, sender: Sender) -> None:
        sender.install({0: PATHS}, probe_successes=1)
        retire(sender, A)
        probe = mrc(
            Opcode.ENDPOINT_REQUEST,
            HOST,
            PEER,
            headers=ev_probe_of(0x4711),
            flow_label=EV_CHOSEN | A,
        )
        sender.bench.forwards(HOST_PORT, from_host(probe), plane_port(A), expected_frame(probe, A))
        sender.answer(Opcode.ENDPOINT_RESPONSE, ev_probe_answer_of(0x4712))
        sender.events()
        sender.answer(Opcode.ENDPOINT_RESPONSE, ev_probe_answer_of(0x4711))
        sender.events((2, A, BAD, GOOD, Cause.PROBE))


class TestGenerations:
    """A generation that is not in force voids all that was known, whatever its number."""

    @staticmethod
    def replace(sender: Sender, generation: int, planes: Sequence[int] = (0,)) -> None:
        """The paths of these planes in another generation."""
        sender.generation = generation
        paths = {plane: (PATHS, OTHER_PLANE)[plane] for plane in planes}
        sender.bench.device.insert(
            *slots(sender.group, paths, generation=generation, alternates=True)
        )
        sender.bench.device.modify(
            group_cfg(
                sender.group, 6, generation=generation, random=False, retirable=5, planes=planes
            )
        )

    def test_round_the_wrap_and_back(self, one_plane: Sender) -> None:
        """255, 0 and again 255: what the first 255 knew is gone."""
        self.replace(one_plane, 255)
        assert {*one_plane.rotation(6)} == {*PATHS}
        one_plane.events((PEER_QP, 0, GOOD, GOOD, Cause.GENERATION))
        retire(one_plane, *PATHS[:2])
        self.replace(one_plane, 0)
        assert {*one_plane.rotation(6)} == {*PATHS}
        one_plane.events((PEER_QP, 0, GOOD, GOOD, Cause.GENERATION))
        assert one_plane.inactive() == 0
        one_plane.generation = 255
        one_plane.bench.device.modify(
            group_cfg(one_plane.group, 6, generation=255, random=False, retirable=5, planes=[0])
        )
        assert {*one_plane.rotation(6)} == {*PATHS}
        one_plane.events((PEER_QP, 0, GOOD, GOOD, Cause.GENERATION))
        assert (one_plane.inactive(), one_plane.cell(A)) == (0, (GOOD, 0, 0))

    def test_assumed_down_plane_is_back(self, two_planes: Sender) -> None:
        TestFloor().test_dead_plane_is_left(two_planes)
        self.replace(two_planes, next(_generations), (0, 1))
        assert {*two_planes.rotation(12)} == {*PATHS, *OTHER_PLANE}
        two_planes.events((PEER_QP, 0, GOOD, GOOD, Cause.GENERATION))
        assert two_planes.assumed_down() == 0

    def test_first_feedback_of_a_generation(self, one_plane: Sender) -> None:
        """It is of the last one's packets, and begins the new one without counting."""
        psn = one_plane.on(A)
        self.replace(one_plane, next(_generations))
        one_plane.sack(A, m=2)
        one_plane.events((OWN_QP, 0, GOOD, GOOD, Cause.GENERATION))
        one_plane.write(psn, rtx=True)
        one_plane.events()
        assert one_plane.inactive() == 0

    def test_denied_before_anything_is_sent(self, one_plane: Sender) -> None:
        self.replace(one_plane, next(_generations))
        one_plane.set_state(A, DENIED)
        one_plane.events((0, A, GOOD, DENIED, Cause.CONTROLLER))
        assert A not in one_plane.rotation(12)
        one_plane.events()


class TestDenied:
    def test_only_the_controller(self, one_plane: Sender) -> None:
        psn = one_plane.on(A)
        one_plane.set_state(A, DENIED)
        one_plane.events((0, A, GOOD, DENIED, Cause.CONTROLLER))
        assert one_plane.inactive() == 1
        for m, probe in itertools.product(range(3), (False, True)):
            one_plane.sack(A, m=m, probe=probe)
        one_plane.write(psn, rtx=True)
        one_plane.events()
        assert one_plane.cell(A)[0] == DENIED
        assert A not in one_plane.rotation(12)
        one_plane.set_state(A, GOOD)
        one_plane.events((0, A, DENIED, GOOD, Cause.CONTROLLER))
        assert one_plane.inactive() == 0
        assert A in one_plane.rotation(6)

    def test_everything_denied(self, one_plane: Sender) -> None:
        for ev in PATHS:
            one_plane.set_state(ev, DENIED)
        one_plane.events(*((0, ev, GOOD, DENIED, Cause.CONTROLLER) for ev in PATHS))
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER)
        one_plane.bench.drops(HOST_PORT, from_host(packet), DropReason.NO_PATH)

    def test_retired_and_denied(self, one_plane: Sender) -> None:
        """A path that is retired already does not count twice."""
        retire(one_plane, A)
        one_plane.set_state(A, DENIED)
        assert one_plane.inactive() == 1
        one_plane.events((0, A, BAD, DENIED, Cause.CONTROLLER))
