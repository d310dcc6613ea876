# SPDX-License-Identifier: Apache-2.0
"""Reliable writes between host agents on one wire, and an agent whose peer is the test."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mrc.agent_client import AgentError
from mrc.connecting import ConnectingEnd, QpEnd, connect
from mrc.messages import (
    ConnectQpRequest,
    Digest,
    RegionInfo,
    RegisterRequest,
    WriteRequest,
    WriteResult,
    ipv6_bytes,
)
from mrc.pattern import pattern_sha256
from mrc.wire import (
    Bth,
    CcState,
    Ethernet,
    Ipv6,
    Meth,
    Neth,
    Opcode,
    Packet,
    Peth,
    Reth,
    Seth,
    Udp,
    parse_packet,
)
from tests.net.agents import (
    LEFT,
    LEFT_ADDRESS,
    PATIENCE_S,
    RIGHT_ADDRESS,
    Lone,
    Pair,
    run,
    until,
)
from topologies.netns import Namespace

pytestmark = pytest.mark.net

LOSE_ONE_IN_TEN = "numgen inc mod 10 3 drop"


def lossy(space: Namespace, interface: str, rule: str) -> None:
    """Drop by `rule` what leaves through `interface`."""
    hook = f"type filter hook egress device {interface} priority 0"
    rules = f"table netdev t {{\n chain loss {{\n {hook}\n {rule}\n }}\n}}\n"
    space.run(["nft", "-f", "-"], rules)


def mended(space: Namespace) -> None:
    """Drop nothing any more."""
    space.run(["nft", "delete", "table", "netdev", "t"])


async def connected(pair: Pair, **parameters: Any) -> tuple[QpEnd, QpEnd]:
    return await connect(
        ConnectingEnd(pair.left, pair.right_mac),
        ConnectingEnd(pair.right, pair.left_mac),
        **parameters,
    )


async def written(
    pair: Pair, length: int, *, rate: float | None = 5000, **parameters: Any
) -> tuple[WriteResult, Digest]:
    """A reliable write of so many bytes from left to right, and what it left there."""
    end, _ = await connected(pair, **parameters)
    region = await pair.right.register(RegisterRequest(length=length))
    result = await pair.left.write(end.write_request(region, seed=5, rate=rate))
    return result, await pair.right.read_digest(region.rkey)


@pytest.mark.parametrize("length", [1, 4096, 4097, 3_000_001])
def test_a_reliable_write_has_arrived_when_it_returns(pair: Pair, length: int) -> None:
    result, digest = run(written(pair, length))
    assert (digest.missing, digest.bytes_placed) == ([], length)
    assert digest.sha256 == result.sha256 == pattern_sha256(5, length)
    packets = -(-length // 4096)
    assert (result.packets, result.bytes, result.send_errors) == (packets, length, 0)
    assert result.delivery is not None
    assert (result.delivery.retransmissions, result.delivery.nacks) == ({}, {})
    assert result.delivery.first_loss_ns is result.delivery.last_retransmission_ns is None
    assert packets / 16 - 1 <= result.delivery.sacks <= packets / 16 + 2
    (qp,) = run(pair.left.stats())["qps"]
    assert (qp["state"], qp["outstanding"], qp["next_psn"]) == ("RTS", 0, packets)


def test_lost_packets_are_sent_again_until_all_have_arrived(pair: Pair) -> None:
    lossy(pair.left_space, LEFT, LOSE_ONE_IN_TEN)
    result, digest = run(written(pair, 4096 * 500))
    assert (digest.missing, digest.sha256) == ([], result.sha256)
    assert digest.bytes_placed == 4096 * 500
    delivery = result.delivery
    assert delivery is not None
    again = sum(delivery.retransmissions.values())
    assert result.send_errors - delivery.probes <= again <= result.send_errors
    assert again >= 50
    assert delivery.retransmissions.keys() <= {"gap", "timeout"}
    assert delivery.first_loss_ns is not None and delivery.last_retransmission_ns is not None
    assert 0 < delivery.first_loss_ns <= delivery.last_retransmission_ns < result.duration_ns
    source = run(pair.right.stats())["sources"][0]
    assert source["retransmitted"] <= again


def test_lost_answers_cause_no_retransmission(pair: Pair) -> None:
    lossy(pair.right_space, "right-eth0", LOSE_ONE_IN_TEN)
    result, digest = run(written(pair, 4096 * 500 + 1, sack_gen_threshold=3))
    assert digest.sha256 == result.sha256
    assert result.delivery is not None
    assert result.delivery.retransmissions == {}
    (qp,) = run(pair.right.stats())["qps"]
    assert qp["responder"]["answers_lost"] >= 15


def test_several_writes_at_a_time(pair: Pair) -> None:
    async def all_at_once() -> None:
        there, back = await connected(pair)
        other, _ = await connected(pair)
        ends = [(there, pair.right), (there, pair.right), (other, pair.right), (back, pair.left)]
        regions = [await to.register(RegisterRequest(length=1_000_000)) for _, to in ends]
        results = await asyncio.gather(
            *(
                end.agent.write(end.write_request(region, seed=seed, rate=1500))
                for seed, ((end, _), region) in enumerate(zip(ends, regions, strict=True))
            )
        )
        for seed, ((_, to), region) in enumerate(zip(ends, regions, strict=True)):
            digest = await to.read_digest(region.rkey)
            assert digest.sha256 == results[seed].sha256 == pattern_sha256(seed, 1_000_000)
            delivery = results[seed].delivery
            assert delivery is not None and delivery.retransmissions == {}
        assert [results[0].msn, results[1].msn] == [0, 1]

    run(all_at_once())


def test_a_dead_peer_fails_the_qp_in_time_and_the_next_write_at_once(pair: Pair) -> None:
    async def to_nobody() -> None:
        end, _ = await connected(pair, timeout=14, linear_cnt=2, exp_cnt=2)
        region = await pair.right.register(RegisterRequest(length=100_000))
        request = end.write_request(region, seed=1, rate=5000)
        await pair.right.shutdown()
        started = asyncio.get_running_loop().time()
        with pytest.raises(AgentError, match=r"retry counter exceeded, 25 of 25 packets were not"):
            await pair.left.write(request)
        base = 1.024e-6 * 2**14
        took = asyncio.get_running_loop().time() - started
        assert base * (1 + 1 + 2 + 4) <= took < base * 8 + 2
        with pytest.raises(AgentError, match=r"QP \d+ is in ERROR: .*; destroy it and create"):
            await pair.left.write(request)
        await end.destroy()
        assert (await pair.left.stats())["qps"] == []

    run(to_nobody())


def test_a_cancelled_write_stops_and_fails_its_qp_only(pair: Pair) -> None:
    async def cancel() -> None:
        end, _ = await connected(pair)
        other, _ = await connected(pair)
        region = await pair.right.register(RegisterRequest(length=4096 * 2000))
        request = end.write_request(region, seed=1, rate=500)
        with pytest.raises(AgentError, match=r"no answer to write within 0\.3 s"):
            await pair.left.call("write", request.to_json(), 0.3)

        async def failed() -> bool:
            return bool((await pair.left.stats())["qps"][0]["state"] == "ERROR")

        await until(failed)
        sent = (await pair.left.stats())["frames_sent"]
        assert 0 < sent < 1000
        small = await pair.right.register(RegisterRequest(length=100_000))
        await pair.left.write(other.write_request(small, seed=2))
        states = {qp["qp"]: qp["error"] for qp in (await pair.left.stats())["qps"]}
        assert states == {end.qp: "write cancelled", other.qp: None}
        assert (await pair.left.stats())["frames_sent"] == sent + 25

    run(cancel())


def test_an_access_outside_the_region_fails_the_qp_and_writes_nothing(pair: Pair) -> None:
    async def outside() -> None:
        end, _ = await connected(pair)
        region = await pair.right.register(RegisterRequest(length=4096))
        request = replace(end.write_request(region, seed=1), va=region.va + 1)
        with pytest.raises(AgentError, match="remote access error, 1 of 1 packets"):
            await pair.left.write(request)
        assert (await pair.right.read_digest(region.rkey)).bytes_placed == 0

    run(outside())


def test_what_does_not_fit_is_refused(pair: Pair) -> None:
    async def refused() -> None:
        end, _ = await connected(pair)
        region = RegionInfo(0, 0, 100)
        good = end.write_request(region, seed=1)
        for change, words in (
            ({"own_qp": 0x999}, r"qp = 2457: there are 256; create_qp makes one"),
            ({"qp": 0x999}, r"qp = 2457: QP 256 is connected to another"),
            ({"mac": "02:00:00:00:00:09"}, r"mac = '02:00:00:00:00:09': QP 256 is connected to"),
            ({"source_port": 5}, r"source_port = 5: QP 256 is connected to another"),
        ):
            with pytest.raises(AgentError, match=words):
                await pair.left.write(replace(good, **change))
        with pytest.raises(AgentError, match="needs own_qp"):
            await pair.left.call("write", {**good.to_json(), "own_qp": None})
        with pytest.raises(AgentError, match="msn: the QP numbers and repeats"):
            await pair.left.call("write", {**good.to_json(), "msn": 1})
        with pytest.raises(AgentError, match="qp = 256: there is one; destroy it first"):
            await pair.left.create_qp(256)
        again = ConnectQpRequest(qp=256, address=RIGHT_ADDRESS, mac=end.mac, peer_qp=256)
        with pytest.raises(AgentError, match="is connected; destroy it and create another"):
            await pair.left.connect_qp(again)
        lonely = await pair.left.create_qp()
        with pytest.raises(AgentError, match="own_qp = 257: is not connected; connect_qp does"):
            await pair.left.write(replace(good, own_qp=lonely.qp))

    run(refused())


# ------------------------------------------------------------------------- the test as the peer


def opened(lone: Lone, **parameters: int) -> None:
    """QP 0x123 of the agent, whose peer is QP 0x456 of the test."""

    async def set_up() -> None:
        await lone.client.create_qp(0x123)
        await lone.client.connect_qp(
            ConnectQpRequest(
                qp=0x123,
                address=RIGHT_ADDRESS,
                mac=lone.wire.mac_text,
                peer_qp=0x456,
                **parameters,
            )
        )

    run(set_up())


def from_peer(lone: Lone, opcode: int, headers: tuple[Any, ...], **changes: int) -> bytes:
    """A frame of the test's QP to the agent's."""
    ipv6 = Ipv6(
        dscp=changes.pop("dscp", 4),
        ecn=changes.pop("ecn", 2),
        flow_label=0x2405,
        source=ipv6_bytes(RIGHT_ADDRESS),
        destination=ipv6_bytes(LEFT_ADDRESS),
    )
    payload = bytes(changes.pop("payload", 0))
    bth = Bth(**{"opcode": opcode, "dqp": 0x123, **changes})
    packet = Packet(ipv6, Udp(0xC456), bth, headers, payload)
    return Ethernet(lone.mac, lone.wire.mac).pack() + packet.build()


def answer(lone: Lone) -> Packet:
    """The agent's next frame, which must go back to the peer on the path of the other."""
    frame = lone.wire.receive()
    packet = parse_packet(frame[14:])
    assert isinstance(packet, Packet)
    assert Ethernet.unpack(frame) == Ethernet(lone.wire.mac, lone.mac)
    assert (packet.ipv6.source, packet.ipv6.destination) == (
        ipv6_bytes(LEFT_ADDRESS),
        ipv6_bytes(RIGHT_ADDRESS),
    )
    assert packet.bth.dqp == 0x456
    assert packet.udp.source_port == 0xC123
    return packet


def test_the_answers_of_a_responder(lone: Lone) -> None:
    opened(lone, peer_first_psn=0xFFFFFF)
    region = run(lone.client.register(RegisterRequest(length=1024)))

    def write(psn: int, number: int, **changes: int) -> bytes:
        headers = (Meth(0, 0), Reth(region.va + 256 * number, region.rkey, 1024))
        opcode = Opcode.WRITE_MIDDLE
        return from_peer(lone, opcode, headers, psn=psn, payload=256, **changes)

    lone.wire.send(write(0xFFFFFF, 0))  # nothing to say
    lone.wire.send(write(2, 3, ack_request=1, ecn=3))
    sack = answer(lone)
    assert (sack.ipv6.dscp, sack.ipv6.ecn, sack.ipv6.flow_label) == (46, 0, 0xE2405)
    assert (sack.bth.opcode, sack.bth.psn) == (Opcode.SACK, 0xFFFFFF)
    seth, state = sack.headers
    assert isinstance(seth, Seth) and isinstance(state, CcState)
    assert (seth.m, seth.pr, seth.entropy) == (1, 0, 0x2405C456)
    assert (seth.spdcid, seth.dpdcid, seth.cack_psn) == (0x123, 0x456, 0xFFFFFF)
    assert seth.ack_psn_offset == 3  # PSN 2 is the third behind 0xFFFFFF
    # The bitmap begins at PSN 0, the first that is missing.
    assert (seth.sack_offset, seth.sack_bitmap) == (1, 0b100)
    assert (state.ooo_count, state.rcvd_bytes) == (1, 2)

    trimmed = bytearray(write(0, 1)[: 14 + 40 + 8 + 12 + 4])
    trimmed[14:16] = b"\x62\x00"  # DSCP 8, TRIMMED
    lone.wire.send(bytes(trimmed))
    nack = answer(lone)
    assert (nack.ipv6.dscp, nack.bth.opcode) == (46, Opcode.NACK)
    neth = nack.headers[0]
    assert isinstance(neth, Neth)
    assert (neth.nack_reason, neth.nack_psn, neth.entropy) == (0x01, 0, 0x2405C456)
    assert (neth.spdcid, neth.dpdcid, neth.cc_type) == (0x123, 0x456, 2)

    probe = from_peer(lone, Opcode.PROBE_REQUEST, (Peth(probe_id=0xFFEE, tx_timestamp=77),))
    lone.wire.send(probe)
    seth, state = answer(lone).headers
    assert isinstance(seth, Seth) and isinstance(state, CcState)
    assert (seth.pr, seth.ack_psn_offset & 0xFFFF, seth.m) == (1, 0xFFEE, 0)
    assert state.tx_timestamp == 77

    lone.wire.send(write(0, 1, rtx=1, dscp=5))
    seth = answer(lone).headers[0]
    assert isinstance(seth, Seth)
    assert (seth.cack_psn, seth.ack_psn_offset) == (0, 0)
    lone.wire.send(write(0, 1))  # a duplicate
    assert answer(lone).bth.opcode == Opcode.SACK
    lone.wire.send(write(0x401, 1))  # one beyond the window of 1,024 behind PSN 0
    neth = answer(lone).headers[0]
    assert isinstance(neth, Neth)
    assert (neth.nack_reason, neth.nack_psn) == (0x0B, 0x401)
    digest = run(lone.client.read_digest(region.rkey))
    assert digest.missing == [[512, 256]]
    assert digest.bytes_placed == 768
    (qp,) = run(lone.client.stats())["qps"]
    assert qp["responder"] == {
        "new": 3,
        "sacks": 4,
        "ce_echoed": 1,
        "nack_trimmed": 1,
        "probes": 1,
        "duplicates": 1,
        "beyond_window": 1,
        "nack_psn_oor_window": 1,
    }


def test_the_packets_of_a_requester(lone: Lone) -> None:
    opened(lone, first_psn=7, timeout=24)
    request = WriteRequest(
        address=RIGHT_ADDRESS,
        mac=lone.wire.mac_text,
        qp=0x456,
        own_qp=0x123,
        reliable=True,
        va=0x1000,
        rkey=9,
        length=600,
        seed=1,
        payload=256,
    )

    async def write_and_answer() -> WriteResult:
        writing = asyncio.create_task(lone.client.write(request))
        packets = [await asyncio.to_thread(answer, lone) for _ in range(3)]
        opcodes = [(0xC6, 7, 0), (0xC7, 8, 0), (0xC8, 9, 1)]
        assert [(p.bth.opcode, p.bth.psn, p.bth.ack_request) for p in packets] == opcodes
        assert {p.ipv6.dscp for p in packets} == {4}
        assert {p.ipv6.ecn for p in packets} == {2}
        assert {(p.ipv6.flow_label, p.bth.rtx) for p in packets} == {(0, 0)}
        neth = Neth(nack_reason=1, entropy=0x2405C123, nack_psn=8)
        lone.wire.send(from_peer(lone, Opcode.NACK, (neth,), dscp=46, ecn=0))
        again = await asyncio.to_thread(answer, lone)
        assert (again.bth.opcode, again.bth.psn, again.bth.rtx) == (0xC7, 8, 1)
        assert (again.ipv6.dscp, again.ipv6.flow_label) == (5, 0)
        assert (again.headers, again.payload) == (packets[1].headers, packets[1].payload)
        # Nothing is heard any more: a probe asks.
        probe = await asyncio.to_thread(answer, lone)
        assert probe.bth.opcode == Opcode.PROBE_REQUEST
        assert (probe.ipv6.dscp, probe.ipv6.ecn, probe.ipv6.flow_label) == (0, 2, 0)
        assert isinstance(probe.headers[0], Peth)
        # Another host, or another QP, cannot acknowledge.
        seth = Seth(cack_psn=9, sack_offset=1, m=1, entropy=0x2405C123)
        good = from_peer(lone, Opcode.SACK, (seth, CcState()), dscp=46, ecn=0)
        lone.wire.send(from_peer(lone, Opcode.SACK, (seth, CcState()), dqp=0x124))
        stranger = replace(parsed(good).ipv6, source=b"\x20" * 16)
        lone.wire.send(good[:14] + replace(parsed(good), ipv6=stranger).build())
        await asyncio.sleep(0.1)
        assert not writing.done()
        lone.wire.send(good)
        async with asyncio.timeout(PATIENCE_S):
            return await writing

    result = run(write_and_answer())
    delivery = result.delivery
    assert delivery is not None
    assert delivery.retransmissions == {"nack_trimmed": 1}
    assert (delivery.nacks, delivery.nacked_path_evs) == ({"trimmed": 1}, {str(0x2405): 1})
    assert (delivery.marked, delivery.marked_path_evs) == (1, {str(0x2405): 1})
    assert (delivery.sacks, delivery.timeouts) == (1, 0)
    assert run(lone.client.stats())["qps_ignored"] == {"unknown_qp": 1, "not_the_peer": 1}


def parsed(frame: bytes) -> Packet:
    packet = parse_packet(frame[14:])
    assert isinstance(packet, Packet)
    return packet
