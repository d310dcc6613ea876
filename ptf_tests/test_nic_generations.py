# SPDX-License-Identifier: Apache-2.0
"""nic.p4: a spray group gets other slots while it sends; no packet notices (`group_cfg`)."""

from __future__ import annotations

import threading
import time

import pytest

from controller.addressing import path_ev
from mrc.opcodes import Opcode
from ptf_tests.bench import SETTLE_TIMEOUT_S, WINDOW, Bench
from ptf_tests.nic_world import (
    HOST,
    HOST_PORT,
    PEER,
    SPRAY_GROUP,
    expected_frame,
    from_host,
    group_cfg,
    path_ev_of,
    plane_port,
    plane_set,
    slots,
)
from ptf_tests.packets import mrc

PACKET = mrc(Opcode.WRITE_ONLY, HOST, PEER)
PHASE_PACKETS = 300

# Generation -> plane -> paths. The new generation has fewer slots and uses other planes as well.
OLD = {plane: [path_ev(plane, slot) for slot in range(8)] for plane in (0, 1)}
NEW = {plane: [path_ev(plane, 100 + slot) for slot in range(4)] for plane in (1, 2, 3)}


class Stream(threading.Thread):
    """The host sending one packet after the other, a window ahead of what has come out at most."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self._start_count = bench.received_count()
        self._stopped = threading.Event()
        self.sent = 0

    @property
    def received(self) -> int:
        """Packets that came out since the stream began."""
        return self._bench.received_count() - self._start_count

    def run(self) -> None:
        frame = from_host(PACKET)
        while not self._stopped.is_set():
            if self.sent - self.received < WINDOW:
                self._bench.send(HOST_PORT, frame)
                self.sent += 1
            else:
                time.sleep(0.0005)

    def wait_for(self, packets: int) -> None:
        """Until so many more packets have come out."""
        goal = self.received + packets
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while self.received < goal:
            assert time.monotonic() < deadline, f"stuck: {self.sent} sent, {self.received} came out"
            time.sleep(0.001)

    def stop(self) -> None:
        """Stop sending."""
        self._stopped.set()
        self.join()


def evs_by_port(bench: Bench, packets: int) -> dict[int, list[int]]:
    """The path EVs of all packets, in order; each went out whole and by its EV's plane."""
    out: dict[int, list[int]] = {}
    for port, frame in bench.receive(packets):
        ev = path_ev_of(frame)
        assert (port, frame) == (plane_port(ev), expected_frame(PACKET, ev))
        out.setdefault(port, []).append(ev)
    bench.expect_nothing()
    return out


@pytest.mark.parametrize("random", [True, False], ids=["random", "round robin"])
def test_switch_over_while_sending(host_nic: Bench, random: bool) -> None:
    """All packets of the old generation, then all of the new one, none lost, none astray."""
    device = host_nic.device
    device.insert(
        *plane_set([*OLD]),
        *plane_set([*NEW], number=4),
        *slots(SPRAY_GROUP, OLD),
        group_cfg(SPRAY_GROUP, 8, random=random),
    )
    stream = Stream(host_nic)
    stream.start()
    try:
        stream.wait_for(PHASE_PACKETS)
        device.insert(*slots(SPRAY_GROUP, NEW, generation=1))
        stream.wait_for(PHASE_PACKETS)
        device.modify(group_cfg(SPRAY_GROUP, 4, generation=1, plane_set=4, random=random))
        # The old slots may go at once when the switch-over has been acknowledged, but for packets
        # that have read the old group_cfg entry and not yet their slot.
        stream.wait_for(WINDOW)
        device.delete(*slots(SPRAY_GROUP, OLD))
        stream.wait_for(PHASE_PACKETS)
    finally:
        stream.stop()
    old = {ev for evs in OLD.values() for ev in evs}
    new = {ev for evs in NEW.values() for ev in evs}
    out = evs_by_port(host_nic, stream.sent)
    seen = set().union(*out.values())
    assert seen == old | new
    for evs in out.values():
        generations = [ev in new for ev in evs]
        assert generations == sorted(generations)


def test_switching_to_and_fro(host_nic: Bench) -> None:
    """Ten switch-overs in a row: nothing is lost and nothing is mixed up."""
    device = host_nic.device
    device.insert(
        *plane_set([*OLD]),
        *plane_set([*NEW], number=4),
        *slots(SPRAY_GROUP, OLD),
        *slots(SPRAY_GROUP, NEW, generation=1),
        group_cfg(SPRAY_GROUP, 8, random=True),
    )
    stream = Stream(host_nic)
    stream.start()
    try:
        for turn in range(10):
            stream.wait_for(50)
            if turn % 2:
                device.modify(group_cfg(SPRAY_GROUP, 8, random=True))
            else:
                device.modify(group_cfg(SPRAY_GROUP, 4, generation=1, plane_set=4, random=True))
        stream.wait_for(50)
    finally:
        stream.stop()
    allowed = {ev for paths in (OLD, NEW) for evs in paths.values() for ev in evs}
    assert set().union(*evs_by_port(host_nic, stream.sent).values()) <= allowed
