# SPDX-License-Identifier: Apache-2.0
"""Writes between host agents on real interfaces."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from mrc.agent_client import AgentError
from mrc.messages import (
    ProbeRequest,
    ProbeTarget,
    RegisterRequest,
    WriteRequest,
)
from mrc.pattern import pattern_sha256
from mrc.wire import (
    Ethernet,
    Meth,
    Packet,
    Reth,
    parse_packet,
)
from tests.net.agents import (
    LEFT,
    LEFT_ADDRESS,
    RIGHT,
    RIGHT_ADDRESS,
    Lone,
    Pair,
    run,
    settled,
    until,
)

pytestmark = pytest.mark.net


@pytest.mark.parametrize(
    ("length", "payload", "opcodes"),
    [
        (1, None, {"WRITE_ONLY": 1}),
        (4096, None, {"WRITE_ONLY": 1}),
        (4097, None, {"WRITE_FIRST": 1, "WRITE_LAST": 1}),
        (1_000_003, None, {"WRITE_FIRST": 1, "WRITE_MIDDLE": 243, "WRITE_LAST": 1}),
        (100_000, 256, {"WRITE_FIRST": 1, "WRITE_MIDDLE": 389, "WRITE_LAST": 1}),
    ],
)
def test_a_written_message_arrives(
    pair: Pair, length: int, payload: int | None, opcodes: dict[str, int]
) -> None:
    region = run(pair.right.register(RegisterRequest(length=length)))
    sent = run(pair.left.write(pair.to_right(region, payload=payload)))
    packets = sum(opcodes.values())
    assert (sent.packets, sent.bytes, sent.send_errors) == (packets, length, 0)
    digest = run(settled(pair.right, region.rkey, packets))
    assert (digest.missing, digest.bytes_present, digest.bytes_placed) == ([], length, length)
    assert digest.sha256 == sent.sha256 == pattern_sha256(5, length)
    stats = run(pair.right.stats())
    assert stats["opcodes"] == opcodes
    assert stats["writes_refused"] == stats["ignored"] == {}
    source = {"address": "fd4d:5243::1", "qp": 17, "source_port": 0xC000, "packets": packets}
    source |= {"bytes": length, "retransmitted": 0, "ce_marked": 0, "path_evs": {"0": packets}}
    assert stats["sources"] == [source]


def test_the_packets_of_a_message(lone: Lone) -> None:
    request = WriteRequest(
        address=RIGHT_ADDRESS,
        mac=lone.wire.mac_text,
        qp=0x123456,
        va=0x1000,
        rkey=9,
        length=600,
        seed=1,
        source_port=0xC001,
        payload=256,
        immediate=0xFEED,
        first_psn=0xFFFFFF,
    )
    result = run(lone.client.write(request))
    assert (result.first_psn, result.msn, result.rqmsn) == (0xFFFFFF, 0, 0)
    expected = [(0xC6, 0xFFFFFF, 0x1000), (0xC7, 0, 0x1100), (0xC9, 1, 0x1200)]
    for opcode, psn, va in expected:
        frame = lone.wire.receive()
        packet = parse_packet(frame[14:])
        assert isinstance(packet, Packet)
        assert Ethernet.unpack(frame) == Ethernet(lone.wire.mac, lone.mac)
        assert (packet.bth.opcode, packet.bth.psn, packet.bth.dqp) == (opcode, psn, 0x123456)
        assert (packet.bth.rtx, packet.bth.ts) == (0, 0)
        assert packet.headers[:2] == (Meth(0, 0), Reth(va, 9, 600))
        assert (packet.ipv6.dscp, packet.ipv6.ecn, packet.ipv6.flow_label) == (4, 2, 0)
        assert packet.udp.source_port == 0xC001
    # The next message goes on counting; re-sending repeats the numbers, on a chosen path.
    again = run(lone.client.write(replace(request, first_psn=None, path_ev=0x2405)))
    assert (again.first_psn, again.msn, again.rqmsn) == (2, 1, 1)
    for _ in range(3):
        packet = parse_packet(lone.wire.receive()[14:])
        assert packet.ipv6.flow_label == 0xE2405
    repaired = run(lone.client.resend(request, result, [[300, 1], [310, 4]]))
    assert (repaired.packets, repaired.bytes, repaired.sha256) == (1, 256, None)
    packet = parse_packet(lone.wire.receive()[14:])
    assert isinstance(packet, Packet)
    assert (packet.bth.opcode, packet.bth.psn, packet.bth.rtx) == (0xC7, 0, 1)
    assert (packet.ipv6.dscp, packet.headers[0]) == (5, Meth(0, 0))


def test_bounds_violations_write_nothing(pair: Pair) -> None:
    region = run(pair.right.register(RegisterRequest(length=8192)))
    empty = run(pair.right.read_digest(region.rkey))
    good = pair.to_right(region)
    for request in (
        replace(good, rkey=region.rkey ^ 1, length=1),
        replace(good, va=region.va - 1, length=1),
        replace(good, va=region.va + 8192, length=1),
        replace(good, va=region.va + 8191, length=2),
        replace(good, length=8193),  # three packets, the last beyond the end
    ):
        run(pair.left.write(request))
    digest = run(settled(pair.right, region.rkey, 7))
    stats = run(pair.right.stats())
    # Two packets of the last message lie within the region, but its length does not fit.
    assert stats["writes_refused"] == {"rkey": 1, "bounds": 4, "dma_length": 2}
    assert digest == empty
    assert stats["sources"] == []
    run(pair.right.deregister(region.rkey))
    run(pair.left.write(replace(good, length=1)))

    async def refused() -> bool:
        return bool((await pair.right.stats())["writes_refused"]["rkey"] == 2)

    run(until(refused))


def test_lost_packets_are_missing_and_repaired(pair: Pair) -> None:
    region = run(pair.right.register(RegisterRequest(length=4096 * 100 + 7)))
    request = pair.to_right(region)
    hook = f"type filter hook egress device {LEFT} priority 0"
    rules = f"table netdev t {{\n chain loss {{\n {hook}\n numgen inc mod 10 3 drop\n }}\n}}\n"
    pair.left_space.run(["nft", "-f", "-"], rules)
    sent = run(pair.left.write(request))
    assert (sent.packets, sent.send_errors) == (101, 10)  # the sender goes on, and knows
    digest = run(settled(pair.right, region.rkey, 91))
    assert digest.bytes_present == region.length - 10 * 4096
    lost = [offset // 4096 for offset, _ in digest.missing]
    assert [number % 10 for number in lost] == [lost[0]] * 10
    assert all(size == 4096 for _, size in digest.missing)
    assert digest.sha256 != sent.sha256
    pair.left_space.run(["nft", "delete", "table", "netdev", "t"])

    repaired = run(pair.left.resend(request, sent, digest.missing))
    assert (repaired.packets, repaired.send_errors) == (10, 0)
    digest = run(settled(pair.right, region.rkey, 101))
    assert (digest.missing, digest.sha256) == ([], sent.sha256)
    stats = run(pair.right.stats())
    assert stats["sources"][0]["retransmitted"] == 10
    assert run(pair.left.stats())["send_errors"] == {"ENOBUFS": 10}


def test_immediates_arrive(pair: Pair) -> None:
    region = run(pair.right.register(RegisterRequest(length=5000)))
    run(pair.left.write(pair.to_right(region, immediate=7)))
    run(pair.left.write(pair.to_right(region, immediate=8, length=1)))
    run(settled(pair.right, region.rkey, 3))
    stats = run(pair.right.stats())
    assert stats["immediates_received"] == 2
    immediates = [(i["immediate"], i["rqmsn"], i["msn"], i["qp"]) for i in stats["immediates"]]
    assert immediates == [(7, 0, 0, 17), (8, 1, 1, 17)]
    assert stats["opcodes"] == {"WRITE_FIRST": 1, "WRITE_LAST_IMM": 1, "WRITE_ONLY_IMM": 1}


def test_writes_both_ways_and_probes_at_the_same_time(pair: Pair) -> None:
    async def all_at_once() -> None:
        regions = [
            await client.register(RegisterRequest(length=2_000_000))
            for client in (pair.right, pair.right, pair.left)
        ]
        there = [
            pair.to_right(region, source_port=port, seed=port, rate=2500)
            for region, port in zip(regions, (0xC001, 0xC002), strict=False)
        ]
        back = replace(
            pair.to_right(regions[2], seed=3, rate=2500), address=LEFT_ADDRESS, mac=pair.left_mac
        )
        target = ProbeTarget(mac=pair.right_mac, address=RIGHT_ADDRESS, path_evs=[1, 2])
        *sent, probed = await asyncio.gather(
            pair.left.write(there[0]),
            pair.left.write(there[1]),
            pair.right.write(back),
            pair.left.probe(ProbeRequest(targets=[target], count=50, rate=500, timeout_s=5)),
        )
        assert [path.received for path in probed.paths] == [50, 50]
        packets = [2 * sent[0].packets] * 2 + [sent[2].packets]
        receivers = (pair.right, pair.right, pair.left)
        for result, client, region, count in zip(sent, receivers, regions, packets, strict=True):
            digest = await settled(client, region.rkey, count)
            assert (digest.missing, digest.sha256) == ([], result.sha256)

    run(all_at_once())


def test_pacing_is_kept(pair: Pair) -> None:
    region = run(pair.right.register(RegisterRequest(length=256 * 400)))
    sent = run(pair.left.write(pair.to_right(region, payload=256, rate=1000)))
    assert sent.duration_ns >= 0.39e9


def test_the_payload_must_fit_the_mtu_and_an_outer_header(pair: Pair) -> None:
    region = run(pair.right.register(RegisterRequest(length=5000)))
    pair.left_space.ip([f"link set {LEFT} mtu 4223"])  # 4096 + 128 is one more
    assert run(pair.left.write(pair.to_right(region))).payload == 2048
    with pytest.raises(AgentError, match=r"payload = 4096: needs an MTU of 4224 .* has 4223"):
        run(pair.left.write(pair.to_right(region, payload=4096)))
    pair.left_space.ip([f"link set {LEFT} mtu 1280"])
    assert run(pair.left.write(pair.to_right(region))).payload == 1024


def test_an_interface_that_goes_down_is_counted_and_comes_back(pair: Pair) -> None:
    region = run(pair.right.register(RegisterRequest(length=4096 * 10)))
    pair.left_space.ip([f"link set {LEFT} down"])
    sent = run(pair.left.write(pair.to_right(region)))
    assert (sent.packets, sent.send_errors) == (10, 10)
    stats = run(pair.left.stats())
    assert (stats["send_errors"], stats["receive_errors"]) == ({"ENETDOWN": 10}, {"ENETDOWN": 1})
    pair.left_space.ip([f"link set {LEFT} up"])

    async def running() -> bool:
        return pair.left_space.is_running(LEFT) and pair.right_space.is_running(RIGHT)

    run(until(running))
    run(pair.left.resend(pair.to_right(region), sent, [[0, region.length]]))
    assert run(settled(pair.right, region.rkey, 10)).missing == []
    target = ProbeTarget(mac=pair.right_mac, address=RIGHT_ADDRESS, path_evs=[1])
    probed = run(pair.left.probe(ProbeRequest(targets=[target], count=5, timeout_s=5)))
    assert probed.paths[0].received == 5  # left receives again, too
