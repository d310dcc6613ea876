# SPDX-License-Identifier: Apache-2.0
"""WRITEs of a redundant class cross a fabric twice: no single fault loses or repeats any."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from controller import addressing as addr
from controller.counters import FabricCounters
from controller.drops import DropReason
from controller.policy import Policy, Redundancy
from mrc.agent_client import AgentClient
from mrc.messages import RegisterRequest, WriteRequest
from mrc.pattern import pattern_sha256
from tests.net.nic_agents import wait_until_ready
from tests.net.running import apply, counters, running
from topologies.emulation import Emulation
from topologies.experiments.traffic import next_hop_mac
from topologies.processes import REPOSITORY

pytestmark = pytest.mark.net

MINI = REPOSITORY / "topologies" / "mini.yaml"
SOURCE, SINK = "h0-0", "h1-1"
NICS = ("n0-0", "n1-1")
URGENT, BY_TWO_T1S, ORDINARY = 10, 11, 0  # DSCPs
PAYLOAD = 256
PACKETS = 240
RATE = 1200.0
FAULT_AFTER_S = 0.05
"""A fault begins about 60 packets after the first."""
LINKS = [
    *(f"{nic}|p{plane}t0-{group}" for group, nic in enumerate(NICS) for plane in range(2)),
    *(
        f"p{plane}t0-{group}|p{plane}t1-{uplink}"
        for plane in range(2)
        for group in range(2)
        for uplink in range(2)
    ),
]
SEEN_FOR_S = 1.1
"""The receiving NIC forgets a PSN after a second."""
_seeds = itertools.count(1)


class Outcome(NamedTuple):
    """`copies`: that arrived at the receiving NIC. `placed`: packets' worth of bytes that the host
    wrote, repeated ones too."""

    copies: int
    placed: float
    complete: bool
    duplicates_dropped: int
    counted: FabricCounters


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    with running(MINI, tmp_path_factory.mktemp("copies") / "run") as emulation:
        classes = (
            Redundancy(dscp=URGENT, copies=2),
            Redundancy(dscp=BY_TWO_T1S, mode="in_network"),
        )
        apply(emulation, Policy(redundancy=classes))
        wait_until_ready(emulation)
        yield emulation


def write(
    mini: Emulation, wires: list[str], dscp: int = URGENT, *, cut: bool = False, first_psn: int = -1
) -> Outcome:
    """A message from SOURCE to SINK, in whose midst these wires swallow everything, or are cut."""
    hosts = mini.inventory.hosts
    seed, length = next(_seeds), PACKETS * PAYLOAD

    async def send() -> tuple[float, bool]:
        sender, receiver = (AgentClient(hosts[name].control) for name in (SOURCE, SINK))
        region = await receiver.register(RegisterRequest(length=length))
        request = WriteRequest(
            address=hosts[SINK].address,
            mac=next_hop_mac(mini.fabric, SOURCE),
            qp=7,
            va=region.va,
            rkey=region.rkey,
            length=length,
            seed=seed,
            payload=PAYLOAD,
            rate=RATE,
            burst=1,
            dscp=dscp,
            first_psn=first_psn if first_psn >= 0 else None,
            msn=1 if first_psn >= 0 else None,
        )
        sending = asyncio.create_task(sender.write(request))
        if wires:
            await asyncio.sleep(FAULT_AFTER_S)
            assert not sending.done()
        for wire in wires:
            (mini.wires.cut if cut else mini.wires.blackhole)(wire)
        try:
            await sending
            await asyncio.sleep(0.1)  # what is still on its way
        finally:
            for wire in wires:
                mini.wires.restore(wire)
        digest = await receiver.read_digest(region.rkey)
        await receiver.deregister(region.rkey)
        whole = digest.sha256 == pattern_sha256(seed, length)
        assert whole == (not digest.missing)
        return digest.bytes_placed / PAYLOAD, whole

    before = counters(mini)
    placed, complete = asyncio.run(send())
    counted = counters(mini) - before
    sink = counted.devices[NICS[1]]
    planes = [addr.nic_plane_port(plane) for plane in range(mini.fabric.planes)]
    return Outcome(
        copies=int(sink.port_in[planes, 0].sum()),
        placed=placed,
        complete=complete,
        duplicates_dropped=int(sink.drops[DropReason.DUPLICATE, 0]),
        counted=counted,
    )


def assert_each_once(outcome: Outcome) -> None:
    assert outcome.complete
    assert outcome.placed == PACKETS


def test_without_a_fault_each_packet_crosses_both_planes_and_is_delivered_once(
    mini: Emulation,
) -> None:
    outcome = write(mini, [])
    assert_each_once(outcome)
    assert outcome.copies == 2 * PACKETS
    assert outcome.duplicates_dropped == PACKETS
    source = outcome.counted.devices[NICS[0]]
    assert [int(source.port_out[addr.nic_plane_port(plane), 0]) for plane in range(2)] == [
        PACKETS,
        PACKETS,
    ]


def test_other_classes_are_sent_once_and_lose_what_a_link_swallows(mini: Emulation) -> None:
    """Or what follows would prove nothing."""
    outcome = write(mini, ["n0-0|p0t0-0"], ORDINARY)
    assert not outcome.complete
    assert outcome.duplicates_dropped == 0
    assert outcome.placed == outcome.copies < PACKETS


@pytest.mark.parametrize("link", LINKS)
def test_any_link_may_swallow_packets(mini: Emulation, link: str) -> None:
    outcome = write(mini, [link])
    assert PACKETS <= outcome.copies < 2 * PACKETS, "the link carried no copy"
    assert_each_once(outcome)
    assert outcome.duplicates_dropped == outcome.copies - PACKETS


@pytest.mark.parametrize("plane", [0, 1])
def test_any_plane_may_swallow_packets(mini: Emulation, plane: int) -> None:
    outcome = write(mini, [wire for wire in mini.wires.all if f"p{plane}t" in wire])
    assert PACKETS <= outcome.copies < 2 * PACKETS
    assert_each_once(outcome)
    assert outcome.duplicates_dropped == outcome.copies - PACKETS


def test_a_t0_sends_each_packet_by_two_t1s(mini: Emulation) -> None:
    outcome = write(mini, [], BY_TWO_T1S)
    assert_each_once(outcome)
    assert outcome.copies == 2 * PACKETS
    assert outcome.duplicates_dropped == PACKETS
    devices = outcome.counted.devices
    assert sum(int(devices[f"p{p}t0-0"].port_in[1, 0]) for p in range(2)) == PACKETS
    for plane in range(2):
        both = [int(devices[f"p{plane}t1-{t1}"].port_in[1, 0]) for t1 in range(2)]
        assert both[0] == both[1] > 0


@pytest.mark.parametrize(
    "wires", [*([link] for link in LINKS[4:]), ["p0t0-0|p0t1-1", "p0t0-1|p0t1-1"]], ids=str
)
def test_any_t1_and_any_link_to_one_may_swallow_packets(mini: Emulation, wires: list[str]) -> None:
    outcome = write(mini, wires, BY_TWO_T1S)
    assert PACKETS <= outcome.copies < 2 * PACKETS
    assert_each_once(outcome)
    assert outcome.duplicates_dropped == outcome.copies - PACKETS


def test_psns_may_wrap(mini: Emulation) -> None:
    outcome = write(mini, ["p0t0-0|p0t1-0"], first_psn=(1 << 24) - PACKETS // 2)
    assert outcome.copies < 2 * PACKETS
    assert_each_once(outcome)


def test_a_qp_that_starts_anew_is_not_taken_for_its_forerunner(mini: Emulation) -> None:
    """The same PSNs again, a second after the last of them."""
    for _ in range(2):
        outcome = write(mini, [], first_psn=1000)
        assert_each_once(outcome)
        assert outcome.duplicates_dropped == PACKETS
        time.sleep(SEEN_FOR_S)


@pytest.mark.parametrize("link", LINKS[::3])
def test_any_link_may_be_cut(mini: Emulation, link: str) -> None:
    """NICs leave planes out whose port has no carrier: what follows is sent once, and arrives.

    These are the last tests: the NICs tell each other of their ports, which others would count.
    """
    outcome = write(mini, [link], cut=True)
    assert_each_once(outcome)
    assert 0 < outcome.duplicates_dropped < PACKETS
    wait_until_ready(mini)
