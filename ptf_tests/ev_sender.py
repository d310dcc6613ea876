# SPDX-License-Identifier: GPL-2.0-only
"""A host behind the NIC under test that sends, and what its peers and the NIC say of its paths."""

from __future__ import annotations

import itertools
import time

from scapy.packet import Packet

from controller.addressing import own_carrier, path_ev
from controller.ev_events import EvCause
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench
from ptf_tests.nic_world import (
    DOWNLINK,
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
    slots,
)
from ptf_tests.packets import (
    NEXT_HEADER_IPV6,
    ethernet,
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
SENT_ON = 1 << 4
PATHS = [path_ev(0, uplink) for uplink in range(6)]
OTHER_PLANE = [path_ev(1, uplink) for uplink in range(6)]
A = PATHS[0]
_generations = itertools.cycle(range(1, 255))


class Sender:
    """A host behind the NIC under test, its peer's answers, and what the NIC says of its paths."""

    def __init__(self, bench: Bench, group: int) -> None:
        self.bench = bench
        self.group = group
        self.path_group = path_group(group)
        self.uplink_bits = UPLINK_BITS
        self.peer = PEER
        self.generation = next(_generations)
        self._psn = self.generation << 12
        self._time = 0
        bench.device.modify(cross_t1(group))

    def install(
        self,
        paths: dict[int, list[int]],
        *,
        retirable: int = 5,
        probe_successes: int = 3,
        random: bool = False,
        modify: bool = False,
    ) -> None:
        """A spray group of these paths in the current generation; each is sent on once."""
        (number,) = {len(evs) for evs in paths.values()}
        device = self.bench.device
        config = group_cfg(
            self.group,
            number,
            generation=self.generation,
            random=random,
            retirable=retirable,
            probe_successes=probe_successes,
            planes=paths,
            shared_states=self.path_group,
            uplink_bits=self.uplink_bits,
        )
        device.insert(*slots(self.group, paths, generation=self.generation, alternates=True))
        if modify:
            device.modify(config)
        else:
            device.insert(*plane_set([*paths], range(4)), config)
        self.use_all(paths)

    def use_all(self, paths: dict[int, list[int]]) -> None:
        """The generation begins, and soon every path has been used."""
        wanted = {ev for evs in paths.values() for ev in evs}
        for _ in range(100):
            wanted -= {*self.rotation(len(wanted))}
            if not wanted:
                break
        assert not wanted
        self.events((PEER_QP, 0, GOOD, GOOD, EvCause.GENERATION))

    def begin_generation(self, paths: dict[int, list[int]], generation: int | None = None) -> None:
        """The same spray group in another generation, that of this number or one never used."""
        self.generation = next(_generations) if generation is None else generation
        self.install(paths, modify=True)

    def next_psn(self) -> int:
        """A PSN that has not been sent."""
        self._psn += 1
        return self._psn

    def write(self, psn: int | None = None, *, rtx: bool = False) -> int:
        """Send a WRITE; the EV it took. It goes out once, whole, by the EV's plane."""
        headers = write_of(self.next_psn() if psn is None else psn, rtx=rtx)
        packet = mrc(Opcode.WRITE_ONLY, HOST, self.peer, headers=headers)
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
        for _ in range(400):  # slots may be drawn
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

    def _index(self, ev: int) -> tuple[int, int]:
        """Path group and plane, and the path."""
        plane = self.path_group << 3 | ev >> 13
        return plane, plane << self.uplink_bits | ev >> 3 & 1023

    def cell(self, ev: int) -> tuple[int, int, int]:
        """State, suspicion and successes of a path, by the register channel."""
        plane, path = self._index(ev)
        cell = self._in_generation(ask_cpu(self.bench.device, OP_READ_PATH, plane, path << 32)[2])
        return cell >> 6 & 3, cell >> 5 & 1, cell & 15

    def set_state(self, ev: int, state: int) -> None:
        """What the controller does; the path counts as one that has been sent on."""
        plane, path = self._index(ev)
        value = path << 32 | ev << 16 | self.generation << 8 | state << 6 | SENT_ON
        assert ask_cpu(self.bench.device, OP_WRITE_PATH, plane, value) == (
            OP_WRITE_PATH,
            plane,
            value,
        )

    def inactive(self, plane: int = 0) -> int:
        """How many paths of the plane are inactive."""
        index = self.path_group << 3 | plane
        return self._in_generation(ask_cpu(self.bench.device, OP_READ_INACTIVE, index)[2])

    def assumed_down(self) -> int:
        """The mask of planes that the group assumes to be down."""
        return self._in_generation(ask_cpu(self.bench.device, OP_READ_ASSUMED, self.path_group)[2])

    def _in_generation(self, value: int) -> int:
        """What a register holds of this generation, which is in force once it has been used."""
        return value & 0xFF if value >> 8 & 0xFF == self.generation else 0

    def events(self, *expected: tuple[int, int, int, int, EvCause]) -> None:
        """Exactly these digests: QP, EV, from, to, cause; on a path group's behalf, in time."""
        self.plane_events(*((*event, 0) for event in expected))

    def plane_events(self, *expected: tuple[int, int, int, int, EvCause, int]) -> None:
        """The same with the change of the plane."""
        found: list[dict[str, int]] = []
        deadline = time.monotonic() + 2
        while len(found) < len(expected) and time.monotonic() < deadline:
            found += self.bench.device.digests(0.1)
        found += self.bench.device.digests(0.05)
        names = ("qp", "path_ev", "from_state", "to_state", "cause", "plane_change")
        assert [tuple(event[name] for name in names) for event in found] == [*expected]
        for event in found:
            assert event["path_group"] == self.path_group
            assert event["generation"] == self.generation
            assert event["time"] > self._time
            self._time = event["time"]


def retire(sender: Sender, *evs: int) -> None:
    """Lose a packet on each; the events are looked at."""
    for ev in evs:
        assert sender.lose(ev) != ev
        assert sender.cell(ev) == (BAD, 0, 0)
        sender.events((PEER_QP, ev, GOOD, BAD, EvCause.LOSS))


def leave_plane(two_planes: Sender) -> None:
    """All paths of plane 0 fail until it is assumed to be down; the events are looked at."""
    last = PATHS[-1]
    retire(two_planes, *PATHS[:-1])
    assert two_planes.lose(last) >> 13 in (0, 1)
    two_planes.events()
    assert two_planes.lose(last) in OTHER_PLANE
    two_planes.plane_events((PEER_QP, last, GOOD, GOOD, EvCause.LOSS, PLANE_DOWN))
    assert two_planes.assumed_down() == 1
