# SPDX-License-Identifier: Apache-2.0
"""Host agents on real interfaces: two that talk directly, and one whose NIC is the test."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mrc.agent_client import AgentClient, AgentError
from mrc.messages import (
    Digest,
    ProbeRequest,
    ProbeTarget,
    RegionInfo,
    RegisterRequest,
    WriteRequest,
    ipv6_bytes,
)
from mrc.pattern import pattern_sha256
from mrc.wire import (
    Bth,
    Eeth,
    Erth,
    Ethernet,
    Ipv6,
    Meth,
    Opcode,
    Packet,
    Reth,
    Udp,
    parse_packet,
)
from tests.net.agents import (
    LEFT,
    LEFT_ADDRESS,
    PATIENCE_S,
    RIGHT,
    RIGHT_ADDRESS,
    WireEnd,
    agent,
    start_agent,
    until_ready,
    veth_pair,
)
from topologies.netns import Namespace

pytestmark = pytest.mark.net


class Pair(NamedTuple):
    """Two agents on one wire."""

    left: AgentClient
    right: AgentClient
    left_space: Namespace
    right_space: Namespace
    left_mac: str
    right_mac: str

    def to_right(self, region: RegionInfo, **changes: Any) -> WriteRequest:
        """A write from left that fills `region`, paced so that a busy machine keeps up."""
        request = WriteRequest(
            address=RIGHT_ADDRESS,
            mac=self.right_mac,
            qp=17,
            va=region.va,
            rkey=region.rkey,
            length=region.length,
            seed=5,
            rate=5000,
        )
        return replace(request, **changes)


class Lone(NamedTuple):
    """One agent and the far end of its wire."""

    client: AgentClient
    wire: WireEnd
    mac: bytes


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with (
        veth_pair() as (left, right),
        agent(left, LEFT, LEFT_ADDRESS, tmp_path / "left.sock") as left_client,
        agent(right, RIGHT, RIGHT_ADDRESS, tmp_path / "right.sock") as right_client,
    ):
        macs = [run(client.stats())["mac"] for client in (left_client, right_client)]
        yield Pair(left_client, right_client, left, right, *macs)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Lone]:
    with (
        veth_pair() as (left, right),
        agent(left, LEFT, LEFT_ADDRESS, tmp_path / "left.sock") as client,
    ):
        wire = WireEnd(right, RIGHT)
        try:
            mac = bytes.fromhex(run(client.stats())["mac"].replace(":", ""))
            yield Lone(client, wire, mac)
        finally:
            wire.close()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def settled(client: AgentClient, rkey: int, packets: int) -> Digest:
    """The region's digest once the agent has taken in `packets` WRITE packets in all."""

    async def arrived() -> bool:
        stats = await client.stats()
        counts = [n for name, n in stats["opcodes"].items() if name.startswith("WRITE")]
        return bool(sum(counts) >= packets)

    await until(arrived)
    return await client.read_digest(rkey)


# ---------------------------------------------------------------------------------------- probes


def test_probes_over_many_paths(pair: Pair) -> None:
    evs = list(range(200))
    target = ProbeTarget(mac=pair.right_mac, address=RIGHT_ADDRESS, path_evs=evs)
    request = ProbeRequest(targets=[target], count=10, rate=4000, timeout_s=5)
    result = run(pair.left.probe(request))
    assert [path.path_ev for path in result.paths] == evs
    for path in result.paths:
        assert (path.sent, path.received, path.late, path.duplicates) == (10, 10, 0, 0)
        assert len(path.rtt_ns) == 10
        assert all(1000 < rtt < 5e9 for rtt in path.rtt_ns)
    assert run(pair.right.stats())["probing"] == {"requests_answered": 2000}
    assert run(pair.left.stats())["probing"] == {"probes_sent": 2000, "answers": 2000}


def test_the_kernel_says_nothing_to_mrc_packets(pair: Pair) -> None:
    """It owns the address, so it would answer "port unreachable" if the agent let it."""
    target = ProbeTarget(mac=pair.right_mac, address=RIGHT_ADDRESS, path_evs=[1])
    assert run(pair.left.probe(ProbeRequest(targets=[target], count=20))).paths[0].received == 20
    snmp = pair.right_space.run(["cat", "/proc/self/net/snmp6"])
    counters = dict(line.split() for line in snmp.splitlines())
    assert int(counters["Ip6InDelivers"]) >= 20
    assert (counters["Udp6NoPorts"], counters["Icmp6OutDestUnreachs"]) == ("0", "0")


def endpoint_request(lone: Lone, **bth: int) -> bytes:
    return (
        Ethernet(lone.mac, lone.wire.mac).pack()
        + Packet(
            Ipv6(
                dscp=0,
                ecn=2,
                flow_label=0x2405,
                source=ipv6_bytes(RIGHT_ADDRESS),
                destination=ipv6_bytes(LEFT_ADDRESS),
            ),
            Udp(0xC123, 4971),
            Bth(**{"opcode": Opcode.ENDPOINT_REQUEST, "dqp": 2, "psn": 0xABCD, **bth}),
            (Erth(op=1, tx_timestamp=0x1234),),
        ).build()
    )


def test_the_responder_answers_on_the_path_that_the_request_took(lone: Lone) -> None:
    lone.wire.send(endpoint_request(lone))
    frame = lone.wire.receive()
    ethernet = Ethernet.unpack(frame)
    assert (ethernet.destination, ethernet.source) == (lone.wire.mac, lone.mac)
    packet = parse_packet(frame[14:])
    assert isinstance(packet, Packet)
    assert packet.ipv6.flow_label == 0xE2405  # "EV chosen", and the same path EV
    assert (packet.udp.source_port, packet.udp.destination_port) == (0xC123, 4971)
    assert (packet.ipv6.dscp, packet.ipv6.ecn) == (46, 0)
    assert packet.ipv6.source == ipv6_bytes(LEFT_ADDRESS)
    assert packet.ipv6.destination == ipv6_bytes(RIGHT_ADDRESS)
    assert (packet.bth.opcode, packet.bth.dqp, packet.bth.psn) == (0xD9, 2, 0xABCD)
    assert packet.headers == (Eeth(op=1, tx_timestamp=0x1234),)


def test_what_is_no_probe_is_not_answered_but_counted(lone: Lone) -> None:
    good = endpoint_request(lone)
    lone.wire.send(endpoint_request(lone, dqp=3))
    lone.wire.send(good[:-1] + bytes([good[-1] ^ 1]))  # ICRC
    lone.wire.send(good[:14] + b"\x62\x00" + good[16:])  # DSCP 8: trimmed
    lone.wire.send(good[:14] + b"\x62\x40" + good[16:])  # DSCP 9: on the last hop
    other = bytearray(good)
    other[14 + 24 + 15] ^= 1  # not this host's address
    lone.wire.send(bytes(other))
    lone.wire.send(good)
    assert parse_packet(lone.wire.receive()[14:]).bth  # the last one's answer comes first
    stats = run(lone.client.stats())
    trimmed = {"trimmed": 1, "trimmed_lasthop": 1}
    assert stats["ignored"] == {"qp": 1, "malformed": 1, "not_own_address": 1} | trimmed
    assert stats["probing"] == {"requests_answered": 1}


CARRIERS = ["fcbb:bb00:2000:6000::", "fcbb:bb00:2000:4001:2000:6000::"]


def returned(lone: Lone, frame: bytes) -> bytes:
    """What the NIC makes of a self-probe that has come back: the inner packet, to the host."""
    return Ethernet(lone.mac, lone.wire.mac).pack() + frame[54:]


def test_self_probes_are_carried_and_come_back(lone: Lone) -> None:
    seen: list[bytes] = []

    def reflect(frame: bytes) -> list[bytes]:
        seen.append(frame)
        return [returned(lone, frame)]

    targets = [ProbeTarget(mac=lone.wire.mac_text, carrier=carrier) for carrier in CARRIERS]
    with lone.wire.answering(reflect):
        result = run(lone.client.probe(ProbeRequest(targets=targets, count=3, timeout_s=5)))
    assert [(p.target, p.carrier, p.path_ev) for p in result.paths] == [
        (0, CARRIERS[0], None),
        (1, CARRIERS[1], None),
    ]
    assert [(path.sent, path.received) for path in result.paths] == [(3, 3), (3, 3)]
    own = ipv6_bytes(LEFT_ADDRESS)
    for number, frame in enumerate(seen):
        outer = Ipv6.unpack(frame, 14)
        assert outer == Ipv6(
            dscp=0,
            ecn=2,
            payload_length=len(frame) - 54,
            next_header=41,
            source=own,
            destination=ipv6_bytes(CARRIERS[number % 2]),
        )
        inner = parse_packet(frame[54:])
        assert isinstance(inner, Packet)
        assert (inner.ipv6.source, inner.ipv6.destination) == (own, own)
        assert inner.ipv6.flow_label == outer.flow_label == 0
        assert inner.bth.opcode == Opcode.ENDPOINT_REQUEST
        assert isinstance(inner.headers[0], Erth) and inner.headers[0].op == 1


def test_a_silent_path_does_not_delay_the_others_and_answers_are_told_apart(lone: Lone) -> None:
    held: list[bytes] = []

    def reflect(frame: bytes) -> list[bytes]:
        destination = Ipv6.unpack(frame, 14).destination
        if destination == ipv6_bytes(CARRIERS[0]):  # silent
            held.append(frame)
            return []
        return [returned(lone, frame)] * 2  # twice

    targets = [ProbeTarget(mac=lone.wire.mac_text, carrier=carrier) for carrier in CARRIERS]
    request = ProbeRequest(targets=targets, count=20, rate=2000, timeout_s=1.0)
    with lone.wire.answering(reflect):
        result = run(lone.client.probe(request))
    silent, twice = result.paths
    assert (silent.sent, silent.received, silent.rtt_ns) == (20, 0, [])
    assert (twice.sent, twice.received, twice.duplicates, twice.late) == (20, 20, 20, 0)
    assert max(twice.rtt_ns) < 1e9
    assert 1e9 < result.duration_ns < 1e9 + PATIENCE_S * 1e9

    for frame in held:  # after the command has ended
        lone.wire.send(returned(lone, frame))
    stranger = bytearray(returned(lone, held[0]))
    stranger[14 + 48 + 10 : 14 + 48 + 12] = b"\xff\xfe"  # a request id that nobody has used
    packet = parse_packet(stranger[14:], verify=False)
    assert isinstance(packet, Packet)
    lone.wire.send(bytes(stranger[:14]) + packet.build())

    async def all_counted() -> bool:
        return "answers_unknown" in (await lone.client.stats())["probing"]

    run(until(all_counted))
    assert run(lone.client.stats())["probing"] == {
        "probes_sent": 40,
        "answers": 20,
        "answers_duplicate": 20,
        "timeouts": 20,
        "answers_late": 20,
        "answers_unknown": 1,
    }


def test_an_answer_after_the_time_out_is_late(lone: Lone) -> None:
    first: list[bytes] = []

    def reflect(frame: bytes) -> list[bytes]:
        # Each probe is answered when the one after the next is seen, 200 ms later.
        first.append(frame)
        return [returned(lone, first[-3])] if len(first) >= 3 else []

    target = ProbeTarget(mac=lone.wire.mac_text, carrier=CARRIERS[0])
    request = ProbeRequest(targets=[target], count=5, rate=10, burst=1, timeout_s=0.1)
    with lone.wire.answering(reflect):
        path = run(lone.client.probe(request)).paths[0]
    assert (path.sent, path.received, path.late) == (5, 0, 3)


def test_an_answer_from_another_host_is_none(lone: Lone) -> None:
    def forge(frame: bytes) -> list[bytes]:
        request = parse_packet(frame[14:])
        assert isinstance(request, Packet)
        request_header = request.headers[0]
        assert isinstance(request_header, Erth)
        answer = Packet(
            Ipv6(dscp=46, source=b"\x20" * 16, destination=request.ipv6.source),
            request.udp,
            Bth(opcode=Opcode.ENDPOINT_RESPONSE, dqp=2, psn=request.bth.psn),
            (Eeth(op=1, tx_timestamp=request_header.tx_timestamp),),
        )
        ethernet = Ethernet(lone.mac, lone.wire.mac).pack()
        stale = (Eeth(op=1, tx_timestamp=request_header.tx_timestamp ^ 1),)
        right = replace(answer.ipv6, source=request.ipv6.destination)
        return [
            ethernet + answer.build(),
            ethernet + replace(answer, ipv6=right, headers=stale).build(),
        ]

    target = ProbeTarget(mac=lone.wire.mac_text, address=RIGHT_ADDRESS, path_evs=[7])
    with lone.wire.answering(forge):
        path = run(lone.client.probe(ProbeRequest(targets=[target], timeout_s=0.5))).paths[0]
    assert (path.sent, path.received) == (1, 0)
    assert run(lone.client.stats())["probing"]["answers_unknown"] == 2


# ---------------------------------------------------------------------------------------- writes


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


# ------------------------------------------------------------------------- protocol and life time


def converse(path: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Send lines over one connection; the answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(b"".join(lines))
        with connection.makefile("rb") as answers:
            return [json.loads(answers.readline()) for _ in lines]


def test_bad_commands_are_answered_with_what_is_allowed(lone: Lone) -> None:
    answers = converse(
        lone.client.path,
        b"nonsense\n",
        b"[1]\n",
        b"{}\n",
        b'{"command": "fly"}\n',
        b'{"command": "register"}\n',
        b'{"command": "stats", "verbose": true}\n',
        b'{"command": "read_digest", "rkey": 5}\n',
        b'{"command": "probe", "targets": []}\n',
        b'{"command": "register", "length": 16}\n',
    )
    assert [answer["ok"] for answer in answers] == [False] * 8 + [True]
    errors = [answer.get("error", "") for answer in answers]
    commands = "probe, register, deregister, read_digest, write, stats, shutdown"
    assert errors[0].startswith("command line: Expecting value")
    assert errors[1] == "command line: must be a JSON object"
    assert errors[2] == f"command = None: allowed are {commands}"
    assert errors[3] == f"command = 'fly': allowed are {commands}"
    assert errors[4] == "register: parameter 'length' is missing: allowed are length, va, rkey"
    assert errors[5] == "stats: unknown parameter 'verbose': allowed are none"
    assert errors[6] == "read_digest: rkey = 5: registered are none"
    assert errors[7] == "probe: targets: must be a list of at least one target"


def test_self_addressed_ev_probes_are_refused(lone: Lone) -> None:
    target = ProbeTarget(mac=lone.wire.mac_text, address=LEFT_ADDRESS, path_evs=[1])
    with pytest.raises(AgentError, match=r"targets\[0\]: fd4d.* is this host; a loop needs a carr"):
        run(lone.client.probe(ProbeRequest(targets=[target])))


def test_a_command_ends_when_its_client_hangs_up(lone: Lone) -> None:
    request = WriteRequest(
        address=RIGHT_ADDRESS,
        mac=lone.wire.mac_text,
        qp=1,
        va=0,
        rkey=0,
        length=8 << 20,
        seed=0,
        payload=256,
        rate=100,
    )

    async def hang_up() -> tuple[int, int]:
        with pytest.raises(AgentError, match=r"no answer to write within 0\.3 s"):
            await lone.client.call("write", request.to_json(), 0.3)
        sent: list[int] = []

        async def unchanged() -> bool:
            sent.append((await lone.client.stats())["frames_sent"])
            await asyncio.sleep(0.1)  # ten packets' time
            return bool((await lone.client.stats())["frames_sent"] == sent[-1])

        await until(unchanged)
        return sent[0], sent[-1]

    first, last = run(hang_up())
    assert 0 < first <= last < 100


def test_shutdown_answers_and_ends(tmp_path: Path) -> None:
    with veth_pair() as (left, _):
        control = tmp_path / "a.sock"
        process = start_agent(left, LEFT, LEFT_ADDRESS, control)
        try:
            client = AgentClient(control)

            async def shut_down() -> None:
                await until_ready(client)
                await client.shutdown()

            run(shut_down())
            _, errors = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, errors) == (0, "")
            assert not control.exists()
            with pytest.raises(AgentError, match="No such file"):
                run(client.stats())
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_the_middle_of_a_command(tmp_path: Path, number: int) -> None:
    with veth_pair() as (left, _):
        control = tmp_path / "a.sock"
        process = start_agent(left, LEFT, LEFT_ADDRESS, control)
        try:
            client = AgentClient(control)

            async def interrupt() -> None:
                await until_ready(client)
                target = ProbeTarget(mac="02:00:00:00:00:01", carrier=CARRIERS[0])
                request = ProbeRequest(targets=[target], count=1000, rate=50)
                probing = asyncio.create_task(client.probe(request))

                async def started() -> bool:
                    return bool((await client.stats())["frames_sent"])

                await until(started)
                process.send_signal(number)
                with pytest.raises(AgentError, match="ended before it answered probe"):
                    await probing

            run(interrupt())
            _, errors = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, errors) == (0, "")
            assert not control.exists()
        finally:
            process.kill()
            process.communicate()


def failure(process: subprocess.Popen[str]) -> str:
    """What a process that must fail says."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode not in (0, None)
    return errors


def test_start_failures_say_why(tmp_path: Path) -> None:
    with veth_pair() as (left, right):
        control = tmp_path / "a.sock"
        errors = failure(start_agent(left, "eth7", LEFT_ADDRESS, control))
        assert errors == "mrc.agent: interface eth7: [Errno 19] No such device\n"
        errors = failure(start_agent(left, LEFT, "10.0.0.1", control))
        assert "--address 10.0.0.1: must be an IPv6 address" in errors
        errors = failure(start_agent(left, LEFT, LEFT_ADDRESS, tmp_path / "no" / "a.sock"))
        assert re.match(r"mrc\.agent: .*/no/a\.sock: \[Errno 2\]", errors)
        with agent(left, LEFT, LEFT_ADDRESS, control):
            errors = failure(start_agent(left, LEFT, LEFT_ADDRESS, tmp_path / "b.sock"))
            assert "UDP port 4791 in this namespace" in errors
            assert "is another agent running here?" in errors
            errors = failure(start_agent(right, RIGHT, RIGHT_ADDRESS, control))
            assert errors == f"mrc.agent: {control}: another agent listens on it\n"


def test_a_socket_left_by_a_killed_agent_is_replaced(tmp_path: Path) -> None:
    with veth_pair() as (left, _):
        control = tmp_path / "a.sock"
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(control))
        with agent(left, LEFT, LEFT_ADDRESS, control) as client:
            assert run(client.stats())["interface"] == LEFT
