# SPDX-License-Identifier: Apache-2.0
"""Probes of host agents: two that talk directly, and one whose NIC is the test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mrc.messages import (
    ProbeRequest,
    ProbeTarget,
    ipv6_bytes,
)
from mrc.probing import HOST_REQUEST_IDS
from mrc.wire import (
    Bth,
    Eeth,
    Erth,
    Ethernet,
    Ipv6,
    Opcode,
    Packet,
    Udp,
    parse_packet,
)
from tests.net.agents import (
    LEFT_ADDRESS,
    PATIENCE_S,
    RIGHT_ADDRESS,
    Lone,
    Pair,
    run,
    until,
)

pytestmark = pytest.mark.net


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


def endpoint_request(lone: Lone, erth: Erth | None = None, **bth: int) -> bytes:
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
            (erth or Erth(op=1, tx_timestamp=0x1234),),
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


def test_a_port_status_update_is_answered_on_its_path(lone: Lone) -> None:
    """What it says is for the NIC, which has read it in passing."""
    update = Erth(op=0, port_status_mask=0b1101, tx_timestamp=0x4321)
    lone.wire.send(endpoint_request(lone, update, psn=0x8001))
    packet = parse_packet(lone.wire.receive()[14:], verify=True)
    assert isinstance(packet, Packet)
    assert packet.ipv6.flow_label == 0xE2405
    assert (packet.ipv6.dscp, packet.ipv6.destination) == (46, ipv6_bytes(RIGHT_ADDRESS))
    assert (packet.bth.opcode, packet.bth.dqp, packet.bth.psn) == (0xD9, 2, 0x8001)
    assert packet.headers == (Eeth(op=0, tx_timestamp=0x4321),)
    probing = run(lone.client.stats())["probing"]
    assert probing == {"requests_answered": 1, "port_status_updates": 1}


@pytest.mark.parametrize("op", [2, 3])
def test_an_endpoint_request_that_means_nothing_is_not_answered(lone: Lone, op: int) -> None:
    lone.wire.send(endpoint_request(lone, Erth(op=op)))
    lone.wire.send(endpoint_request(lone))
    packet = parse_packet(lone.wire.receive()[14:])
    assert packet.headers == (Eeth(op=1, tx_timestamp=0x1234),)
    probing = run(lone.client.stats())["probing"]
    assert probing == {"requests_answered": 1, "requests_unsupported": 1}


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
    stranger[14 + 48 + 10 : 14 + 48 + 12] = b"\x7f\xfe"  # a request id that nobody has used
    packet = parse_packet(stranger[14:], verify=False)
    assert isinstance(packet, Packet)
    lone.wire.send(bytes(stranger[:14]) + packet.build())
    of_nic = replace(packet, bth=replace(packet.bth, psn=HOST_REQUEST_IDS))
    lone.wire.send(bytes(stranger[:14]) + of_nic.build())

    async def all_counted() -> bool:
        return "answers_for_nic" in (await lone.client.stats())["probing"]

    run(until(all_counted))
    assert run(lone.client.stats())["probing"] == {
        "probes_sent": 40,
        "answers": 20,
        "answers_duplicate": 20,
        "timeouts": 20,
        "answers_late": 20,
        "answers_unknown": 1,
        "answers_for_nic": 1,
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
