# SPDX-License-Identifier: Apache-2.0
"""A switch under test with a PTF port on each of its ports, and what every test does with it.

``check`` is the core: it sends packets, each with its fate (where it must come out, and as which
bytes, or why it must be dropped), and verifies that nothing else comes out anywhere and that the
program's counters tell the same story, packet for packet and byte for byte.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ptf.base_tests import BaseTest
from ptf.dataplane import DataPlane
from ptf.testutils import send_packet, verify_no_other_packets, verify_packet

from controller.addressing import CPU_PORT
from controller.drops import DropReason
from ptf_tests.device import Count, Device

SETTLE_TIMEOUT_S = 3.0
QUIET_S = 0.02
# BMv2's egress queues hold 64 packets, so no more than this many are on their way at a time.
WINDOW = 32
# By port, of fabric.p4.
QUEUE_COUNTERS = (
    "ecn_marked_packets",
    "trim_packets",
    "dropped_trim_packets",
    "dropped_packets",
    "dropped_copies",
)


@dataclass(frozen=True)
class Forward:
    """A packet that comes out of ``port_out`` as ``expected``, and is counted there as ``also``."""

    port_in: int
    packet: bytes
    port_out: int
    expected: bytes
    also: Sequence[str] = ()


@dataclass(frozen=True)
class Drop:
    """A packet that is dropped and counted; ``also`` are further cells (counter, index)."""

    port_in: int
    packet: bytes
    reason: DropReason
    also: Sequence[tuple[str, int]] = ()


Fate = Forward | Drop
Counters = dict[tuple[str, int], Count]


class Bench(BaseTest):
    """One switch under test. PTF's functions take it as their ``test``."""

    __test__ = False  # not a case that pytest should collect

    def __init__(
        self, device: Device, dataplane: DataPlane, ptf_device: int, ports: Sequence[int]
    ) -> None:
        super().__init__()
        self.device = device
        self.dataplane = dataplane
        self.ports = ports
        self._ptf_device = ptf_device
        self._received = b""

    def at_receive(self, pkt: bytes, device_number: int = 0, port_number: int = -1) -> None:
        """Called by PTF with every packet that it takes from a port."""
        self._received = bytes(pkt)

    # ---- single steps --------------------------------------------------------------------------

    def send(self, port: int, packet: bytes) -> None:
        """Send a packet into the switch's port."""
        send_packet(self, (self._ptf_device, port), packet)

    def expect(self, port: int, packet: bytes) -> None:
        """The next packet from the switch's port has exactly these bytes."""
        verify_packet(self, packet, (self._ptf_device, port))
        # PTF takes a longer packet for a short one that was padded.
        assert self._received == packet, f"port {port}: {self._received.hex()}"

    def expect_nothing(self) -> None:
        """No packet comes out of any port."""
        verify_no_other_packets(self, self._ptf_device, timeout=QUIET_S)

    def received_count(self) -> int:
        """Packets that have come out of all ports since the beginning, looked at or not."""
        return sum(self.dataplane.rx_counters[self._ptf_device, port] for port in self.ports)

    # ---- packets with their fates --------------------------------------------------------------

    def check(self, *fates: Fate) -> None:
        """Send each packet; each meets its fate, and nothing else happens."""
        assert fates
        before = self.counters()
        for start in range(0, len(fates), WINDOW):
            window = fates[start : start + WINDOW]
            for fate in window:
                self.send(fate.port_in, fate.packet)
            for fate in window:
                if isinstance(fate, Forward):
                    self.expect(fate.port_out, fate.expected)
        self.expect_counters(before, _counted(fates))
        self.expect_nothing()

    def forwards(self, port_in: int, packet: bytes, port_out: int, expected: bytes) -> None:
        """The packet comes out of ``port_out`` as ``expected``."""
        self.check(Forward(port_in, packet, port_out, expected))

    def drops(self, port_in: int, packet: bytes, reason: DropReason) -> None:
        """The packet is dropped for this reason."""
        self.check(Drop(port_in, packet, reason))

    # ---- many packets whose port is the switch's choice ------------------------------------------

    def spread(self, port_in: int, packets: Sequence[bytes]) -> dict[int, list[bytes]]:
        """Send all packets, each of which must come out somewhere; what came out, by port."""
        before = self.counters()
        out: dict[int, list[bytes]] = {}
        for start in range(0, len(packets), WINDOW):
            window = packets[start : start + WINDOW]
            for packet in window:
                self.send(port_in, packet)
            for port, frame in self.receive(len(window), before):
                out.setdefault(port, []).append(frame)
        self.expect_nothing()
        return out

    def receive(self, count: int, before: Counters | None = None) -> list[tuple[int, bytes]]:
        """The next ``count`` packets from any port: (port, packet), the oldest first."""
        received: list[tuple[int, bytes]] = []
        for _ in range(count):
            result = self.dataplane.poll(self._ptf_device, timeout=SETTLE_TIMEOUT_S)
            assert isinstance(result, DataPlane.PollSuccess), (
                f"{len(received)} of {count} packets came out; "
                f"counters: {self._changes(before) if before else 'not read'}"
            )
            received.append((result.port, bytes(result.packet)))
        return received

    # ---- counters ------------------------------------------------------------------------------

    def counters(self) -> Counters:
        """The program's indirect counters: all drop reasons, all ports of this bench."""
        indices: dict[str, Sequence[int]] = {
            "port_in": [*self.ports, CPU_PORT],
            "port_out": [*self.ports, CPU_PORT],
            "drops": [0, *DropReason],
        }
        known = {counter.alias for counter in self.device.schema.counters}
        indices |= {name: self.ports for name in QUEUE_COUNTERS if name in known}
        return self.device.counters(indices)

    def expect_counters(self, before: Counters, expected: Counters) -> None:
        """Since ``before`` the counters have grown by this and nothing else."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while (changes := self._changes(before)) != expected and time.monotonic() < deadline:
            time.sleep(0.002)
        assert changes == expected

    def _changes(self, before: Counters) -> Counters:
        changes = {
            cell: Count(now.packets - before[cell].packets, now.bytes - before[cell].bytes)
            for cell, now in self.counters().items()
        }
        return {cell: change for cell, change in changes.items() if any(change)}


def _counted(fates: Iterable[Fate]) -> Counters:
    """What the counters must show. All of them count the bytes that came in."""
    packets: Counter[tuple[str, int]] = Counter()
    octets: Counter[tuple[str, int]] = Counter()
    for fate in fates:
        cells: list[tuple[str, int]] = [("port_in", fate.port_in)]
        if isinstance(fate, Forward):
            cells.append(("port_out", fate.port_out))
            cells += [(name, fate.port_out) for name in fate.also]
        else:
            cells += [("drops", fate.reason), *fate.also]
        for cell in cells:
            packets[cell] += 1
            octets[cell] += len(fate.packet)
    return {cell: Count(packets[cell], octets[cell]) for cell in packets}
