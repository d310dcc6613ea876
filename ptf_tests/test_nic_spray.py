# SPDX-License-Identifier: Apache-2.0
"""nic.p4: which EV a packet takes: planes and slots, at random and in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from controller.addressing import path_ev
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Forward
from ptf_tests.nic_world import (
    HOST,
    HOST_PORT,
    NEIGHBOUR,
    PEER,
    SPRAY_GROUP,
    cross_t1,
    expected_frame,
    from_host,
    group_cfg,
    path_ev_of,
    plane_port,
    plane_set,
    slots,
    t0_local,
)
from ptf_tests.packets import mrc
from ptf_tests.statistics import assert_drawn

DRAWS = 2048


def write(target: int = PEER) -> bytes:
    """A WRITE packet of the host that leaves the choice to the NIC."""
    return mrc(Opcode.WRITE_ONLY, HOST, target)


def install(
    bench: Bench,
    group: int,
    picks: Sequence[int],
    paths: Mapping[int, Sequence[int]],
    *,
    random: bool,
    plane_set_number: int = 3,
) -> None:
    """A spray group: planes in the order of picks, and each plane's slots."""
    (number,) = {len(evs) for evs in paths.values()}
    bench.device.insert(
        *plane_set(picks, number=plane_set_number),
        *slots(group, paths),
        group_cfg(group, number, plane_set=plane_set_number, random=random),
    )


def all_paths(planes: Sequence[int], count: int, first: int = 0) -> dict[int, list[int]]:
    """``count`` slots per plane with uplinks from ``first`` on, no two with the same EV."""
    return {plane: [path_ev(plane, first + slot) for slot in range(count)] for plane in planes}


def drawn(bench: Bench, packets: int = DRAWS) -> Counter[int]:
    """How often each path EV was taken. Each packet went out whole and by the EV's plane."""
    packet = write()
    out = bench.spread(HOST_PORT, [from_host(packet)] * packets)
    taken: Counter[int] = Counter()
    expected: dict[int, bytes] = {}
    for port, frames in out.items():
        for frame in frames:
            ev = path_ev_of(frame)
            if ev not in expected:
                expected[ev] = expected_frame(packet, ev)
            assert (port, frame) == (plane_port(ev), expected[ev])
            taken[ev] += 1
    return taken


def by_plane(taken: Mapping[int, int]) -> Counter[int]:
    """Packets by plane."""
    planes: Counter[int] = Counter()
    for ev, packets in taken.items():
        planes[ev >> 13] += packets
    return planes


class TestRandom:
    """Drawn for every packet: first the plane, then a slot of that plane."""

    def test_every_slot_is_used_equally(self, host_nic: Bench) -> None:
        paths = all_paths(range(4), 16)
        install(host_nic, SPRAY_GROUP, range(4), paths, random=True)
        assert_drawn(drawn(host_nic), {ev: 1 for evs in paths.values() for ev in evs})

    def test_planes_share_equally_whatever_their_paths(self, host_nic: Bench) -> None:
        # Plane 0 has two paths, plane 1 sixteen: slots repeat, the planes' shares are equal.
        paths = {
            0: [path_ev(0, slot % 2) for slot in range(16)],
            1: [path_ev(1, slot) for slot in range(16)],
        }
        install(host_nic, SPRAY_GROUP, [0, 1], paths, random=True)
        taken = drawn(host_nic)
        assert_drawn(by_plane(taken), {0: 1, 1: 1})
        weights = dict.fromkeys(paths[0], 8) | dict.fromkeys(paths[1], 1)
        assert_drawn(taken, weights)

    def test_slots_are_weights_of_paths(self, host_nic: Bench) -> None:
        weights = {path_ev(2, 0): 5, path_ev(2, 1): 2, path_ev(2, 2): 1}
        evs = [ev for ev, weight in weights.items() for _ in range(weight)]
        install(host_nic, SPRAY_GROUP, [2], {2: evs}, random=True)
        assert_drawn(drawn(host_nic), weights)

    def test_picks_are_weights_of_planes(self, host_nic: Bench) -> None:
        picks = [0, 1, 1, 5, 5, 5, 5]
        install(host_nic, SPRAY_GROUP, picks, all_paths([0, 1, 5], 2), random=True)
        assert_drawn(by_plane(drawn(host_nic)), {0: 1, 1: 2, 5: 4})

    def test_sixteen_picks(self, host_nic: Bench) -> None:
        picks = [*range(8), *range(8)]
        install(host_nic, SPRAY_GROUP, picks, all_paths(range(8), 1), random=True)
        assert_drawn(by_plane(drawn(host_nic)), dict.fromkeys(range(8), 1))

    def test_denied_path_is_never_used(self, host_nic: Bench) -> None:
        paths = all_paths(range(4), 8)
        denied = paths[2][5]
        paths[2][5] = paths[2][4]  # its slot goes to another path of the same plane
        install(host_nic, SPRAY_GROUP, range(4), paths, random=True)
        taken = drawn(host_nic)
        assert denied not in taken
        weights = {ev: 2 if ev == paths[2][4] else 1 for evs in paths.values() for ev in evs}
        assert_drawn(taken, weights)

    def test_denied_plane_is_never_used(self, host_nic: Bench) -> None:
        install(host_nic, SPRAY_GROUP, [0, 1, 3], all_paths(range(4), 8), random=True)
        assert_drawn(by_plane(drawn(host_nic)), dict.fromkeys([0, 1, 3], 1))

    def test_only_the_configured_number_of_slots_is_used(self, host_nic: Bench) -> None:
        paths = all_paths(range(2), 16)
        install(host_nic, SPRAY_GROUP, range(2), paths, random=True)
        host_nic.device.modify(group_cfg(SPRAY_GROUP, 4, random=True))
        weights = {ev: 1 for evs in paths.values() for ev in evs[:4]}
        assert_drawn(drawn(host_nic, 1024), weights)

    def test_successive_packets_are_independent(self, host_nic: Bench) -> None:
        # A draw must not depend on the one before it: all 16 pairs of planes are equally likely.
        install(host_nic, SPRAY_GROUP, range(4), all_paths(range(4), 1), random=True)
        packet = write()
        planes = []
        for number in range(1024):
            host_nic.send(HOST_PORT, from_host(packet))
            frames = host_nic.receive(1)
            planes.append(path_ev_of(frames[0][1]) >> 13)
            assert number + 1 == len(planes)
        pairs = Counter(zip(planes[::2], planes[1::2], strict=True))
        assert_drawn(pairs, {(a, b): 1 for a in range(4) for b in range(4)})


def in_turn(bench: Bench, evs: Sequence[int], target: int = PEER) -> None:
    """The next packets take exactly these EVs."""
    packet = write(target)
    for ev in evs:
        bench.send(HOST_PORT, from_host(packet))
        bench.expect(plane_port(ev), expected_frame(packet, ev))
    bench.expect_nothing()


class TestRoundRobin:
    """In turn: the planes one after the other, and the slots of each plane likewise."""

    def test_exact_sequence(self, host_nic: Bench, spray_group: int) -> None:
        host_nic.device.modify(cross_t1(spray_group))
        paths = all_paths(range(4), 4)
        install(host_nic, spray_group, range(4), paths, random=False)
        in_turn(host_nic, [paths[n % 4][n // 4 % 4] for n in range(40)])

    def test_weights_of_planes(self, host_nic: Bench, spray_group: int) -> None:
        host_nic.device.modify(cross_t1(spray_group))
        paths = all_paths([1, 6], 2)
        install(host_nic, spray_group, [6, 1, 6], paths, random=False)
        a, b = paths[6]
        c, d = paths[1]
        # Plane 6 has two picks of three; each plane goes through its own slots.
        in_turn(host_nic, [a, c, b, a, d, b] * 3)

    def test_weights_of_paths(self, host_nic: Bench, spray_group: int) -> None:
        host_nic.device.modify(cross_t1(spray_group))
        heavy, light = path_ev(3, 8), path_ev(3, 9)
        paths = {3: [heavy, heavy, heavy, light]}
        install(host_nic, spray_group, [3], paths, random=False)
        in_turn(host_nic, [heavy, heavy, heavy, light] * 4)

    def test_plane_with_one_slot_goes_on_where_it_was(
        self, host_nic: Bench, spray_group: int
    ) -> None:
        host_nic.device.modify(cross_t1(spray_group))
        paths = all_paths([0], 8)
        install(host_nic, spray_group, [0], paths, random=False)
        in_turn(host_nic, paths[0][:5])
        in_turn(host_nic, [*paths[0][5:], *paths[0][:5]])

    def test_fewer_slots_start_again(self, host_nic: Bench, spray_group: int) -> None:
        host_nic.device.modify(cross_t1(spray_group))
        paths = all_paths([0], 8)
        install(host_nic, spray_group, [0], paths, random=False)
        in_turn(host_nic, paths[0][:7])
        host_nic.device.modify(group_cfg(spray_group, 4, random=False))
        in_turn(host_nic, [*paths[0][:4], *paths[0][:2]])

    def test_groups_do_not_disturb_one_another(
        self, host_nic: Bench, spray_group: int, second_spray_group: int
    ) -> None:
        host_nic.device.modify(cross_t1(spray_group), t0_local(second_spray_group))
        far, near = all_paths(range(3), 4), all_paths(range(2), 8, first=100)
        install(host_nic, spray_group, range(3), far, random=False)
        install(host_nic, second_spray_group, range(2), near, random=False, plane_set_number=4)
        far_turn = [far[n % 3][n // 3 % 4] for n in range(24)]
        near_turn = [near[n % 2][n // 2 % 8] for n in range(24)]
        for n in range(0, 24, 3):
            in_turn(host_nic, far_turn[n : n + 3], PEER)
            in_turn(host_nic, [near_turn[n // 3]], NEIGHBOUR)
        in_turn(host_nic, near_turn[8:], NEIGHBOUR)

    def test_destinations_of_one_group_share_its_turn(
        self, host_nic: Bench, spray_group: int
    ) -> None:
        host_nic.device.modify(cross_t1(spray_group), t0_local(spray_group))
        paths = all_paths(range(2), 2)
        install(host_nic, spray_group, range(2), paths, random=False)
        turn = [paths[n % 2][n // 2 % 2] for n in range(8)]
        for n, ev in enumerate(turn):
            in_turn(host_nic, [ev], (PEER, NEIGHBOUR)[n % 2])

    def test_chosen_ev_does_not_take_a_turn(self, host_nic: Bench, spray_group: int) -> None:
        host_nic.device.modify(cross_t1(spray_group))
        paths = all_paths(range(2), 2)
        install(host_nic, spray_group, range(2), paths, random=False)
        in_turn(host_nic, [paths[0][0]])
        ev = path_ev(7, 5)
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER, flow_label=0xE << 16 | ev)
        host_nic.check(
            Forward(HOST_PORT, from_host(packet), plane_port(ev), expected_frame(packet, ev))
        )
        in_turn(host_nic, [paths[1][0], paths[0][1]])

    def test_highest_group_and_slot(self, host_nic: Bench) -> None:
        host_nic.device.modify(cross_t1(1023))
        paths = {7: [path_ev(7, slot) for slot in range(256)]}
        install(host_nic, 1023, [7], paths, random=False)
        # Wherever the turn is, 300 packets go through all 256 slots in order.
        packet = write()
        out = host_nic.spread(HOST_PORT, [from_host(packet)] * 300)
        evs = [path_ev_of(frame) for frame in out[plane_port(paths[7][0])]]
        first = paths[7].index(evs[0])
        assert evs == [paths[7][(first + n) % 256] for n in range(300)]


@pytest.mark.parametrize("random", [True, False])
def test_spray_mode_changes_by_one_modify(host_nic: Bench, random: bool) -> None:
    paths = all_paths(range(2), 8)
    install(host_nic, SPRAY_GROUP, range(2), paths, random=not random)
    host_nic.device.modify(group_cfg(SPRAY_GROUP, 8, random=random))
    taken = drawn(host_nic, 512)
    assert set(taken) == {ev for evs in paths.values() for ev in evs}
    # Round robin is exact, random is not (all 16 equal once in 10^20).
    assert (set(taken.values()) == {32}) is not random
