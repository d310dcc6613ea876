# SPDX-License-Identifier: GPL-2.0-only
"""SACKs, NACKs and acknowledgements of a responder, against Scapy's layers, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6

from mrc import scapy_layers as layers
from mrc.memory import Memory
from mrc.messages import RegionInfo, RegisterRequest
from mrc.qp import Peering, ResponderParameters
from mrc.responder import Responder
from mrc.wire import (
    Bth,
    Ipv6,
    Meth,
    Opcode,
    Packet,
    Peth,
    Reth,
    Seth,
    TrimmedPacket,
    Tseth,
    Udp,
    WireOptions,
    WriteView,
    parse_packet,
    parse_write,
    psn_add,
    psn_distance,
    sacked_psns,
)

OWN, PEER = bytes.fromhex("fd4d52430000000000000001000000") + b"\2", b"\xfd" + bytes(14) + b"\1"
PEERING = Peering(OWN, 0x123456, PEER, 0xABCDEF, 0xC056)
PORT, PATH_EV = 0xC0DE, 0x2405
PAYLOAD = 256


class End:
    """A responder with a region, and what arrives there."""

    def __init__(self, first_psn: int = 0, **parameters: Any) -> None:
        memory = Memory()
        self.region: RegionInfo = memory.register(RegisterRequest(length=1 << 20)).info()
        self.responder = Responder(PEERING, memory, first_psn, ResponderParameters(**parameters))
        self._first_psn = first_psn

    def packet(self, psn: int, *, ecn: int = 2, stamp: int | None = None, **bth: int) -> Packet:
        number = psn_distance(psn, self._first_psn)
        region = self.region
        tseth = () if stamp is None else (Tseth(tx_timestamp=stamp),)
        return Packet(
            Ipv6(dscp=4, ecn=ecn, flow_label=PATH_EV, source=PEER, destination=OWN),
            Udp(PORT),
            Bth(opcode=Opcode.WRITE_MIDDLE, dqp=PEERING.qp, psn=psn, ts=len(tseth), **bth),
            (Meth(0, 9), *tseth, Reth(region.va + number * PAYLOAD, region.rkey, region.length)),
            bytes(PAYLOAD),
        )

    def view(self, psn: int, **changes: Any) -> WriteView:
        return parse_write(memoryview(self.packet(psn, **changes).build()))

    def give(self, psn: int, **changes: Any) -> Packet | None:
        return self.responder.on_write(self.view(psn, **changes))


def on_the_way_back(opcode: int, psn: int) -> Any:
    """The headers of every answer; lengths, checksums and ICRC are Scapy's."""
    return (
        IPv6(src="fd4d:5243::1:0:2", dst="fd00::1", tc=46 << 2, fl=0xE2405, hlim=64)
        / UDP(sport=0xC056, dport=4791)
        / layers.MRC_BTH(opcode=opcode, dqp=0xABCDEF, psn=psn)
    )


def seth(**fields: int) -> Any:
    return layers.MRC_SETH(
        **{"entropy": 0x2405C0DE, "spdcid": 0x3456, "dpdcid": 0xCDEF, "mpr": 0, **fields}
    )


def same(answer: Packet | None, expected: Any) -> None:
    assert answer is not None
    assert answer.build() == bytes(expected)


def test_a_sack_of_packets_in_order() -> None:
    end = End(first_psn=100, sack_gen_threshold=3)
    assert end.give(100) is end.give(101) is None
    expected = seth(cack_psn=102, ack_psn_offset=0, sack_offset=64 - 102, sack_bitmap=(1 << 39) - 1)
    state = layers.MRC_CC_STATE(rcvd_bytes=3)
    same(end.give(102), on_the_way_back(0xDC, 102) / expected / state)
    assert end.give(103) is None, "counted from the last SACK on"


def test_a_marked_packet_across_the_wrap_with_a_gap_and_a_time_stamp() -> None:
    end = End(first_psn=0xFFFFFE)
    assert end.give(0xFFFFFE) is None
    expected = seth(m=1, cack_psn=0xFFFFFE, ack_psn_offset=3, sack_offset=2, sack_bitmap=0b10)
    state = layers.MRC_CC_STATE(tx_timestamp=0xBEEF, ooo_count=1, rcvd_bytes=2)
    answer = end.give(1, ecn=3, stamp=0xBEEF)
    same(answer, on_the_way_back(0xDC, 0xFFFFFE) / expected / state)


@pytest.mark.parametrize("flag", ["ack_request", "rtx"])
def test_what_asks_for_a_sack_gets_one(flag: str) -> None:
    end = End(first_psn=64)
    expected = seth(cack_psn=64, ack_psn_offset=0, sack_offset=0, sack_bitmap=1)
    state = layers.MRC_CC_STATE(rcvd_bytes=1)
    same(end.give(64, **{flag: 1}), on_the_way_back(0xDC, 64) / expected / state)


def test_a_duplicate_is_acknowledged_again() -> None:
    end = End(first_psn=64)
    end.give(64)
    expected = seth(cack_psn=64, ack_psn_offset=0, sack_offset=0, sack_bitmap=1)
    state = layers.MRC_CC_STATE(rcvd_bytes=1)
    same(end.give(64), on_the_way_back(0xDC, 64) / expected / state)
    assert end.responder.counters["new"] == end.responder.counters["duplicates"] == 1


@pytest.mark.parametrize("probe_id", [0, 1, 0x8000, 0xFFFF])
def test_a_probe_gets_its_id_back(probe_id: int) -> None:
    end = End(first_psn=64)
    probe = Packet(
        Ipv6(dscp=0, ecn=3, flow_label=PATH_EV, source=PEER, destination=OWN),
        Udp(PORT),
        Bth(opcode=Opcode.PROBE_REQUEST, dqp=PEERING.qp),
        (Peth(probe_id=probe_id, tx_timestamp=77),),
    )
    slot = probe_id - (probe_id >> 15 << 16)
    # Nothing has arrived: the bitmap begins at the first PSN.
    expected = seth(pr=1, m=1, cack_psn=63, ack_psn_offset=slot, sack_offset=1, sack_bitmap=0)
    state = layers.MRC_CC_STATE(tx_timestamp=77)
    same(end.responder.on_probe(probe), on_the_way_back(0xDC, 63) / expected / state)


@pytest.mark.parametrize(("last_hop", "reason"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("stamp", [None, 0xBEEF])
def test_a_trimmed_packet_is_asked_for_again(
    last_hop: bool, reason: int, stamp: int | None
) -> None:
    end = End()
    data = bytearray(end.packet(5, stamp=stamp).build()[: 60 + 8])
    data[:2] = ((6 << 12) + ((9 if last_hop else 8) << 6)).to_bytes(2, "big")
    trimmed = parse_packet(data)
    assert isinstance(trimmed, TrimmedPacket)
    neth = layers.MRC_NETH(
        nack_reason=reason,
        entropy=0x2405C0DE,
        spdcid=0x3456,
        dpdcid=0xCDEF,
        nack_psn=5,
        cc_type=2,
        tx_timestamp=stamp or 0,
    )
    same(end.responder.on_trimmed(trimmed), on_the_way_back(0xDD, 5) / neth)
    end.give(5)
    repeated = end.responder.on_trimmed(trimmed)  # a copy of what has arrived
    assert repeated is not None and repeated.bth.opcode == Opcode.SACK
    assert (
        end.responder.on_trimmed(TrimmedPacket(trimmed.ipv6, trimmed.udp, None, (), b"", True))
        is None
    )


@pytest.mark.parametrize("mpr", [1, 128, 1024])
def test_the_window_ends_where_it_ends(mpr: int) -> None:
    end = End(first_psn=0xFFFF00, mpr=mpr)
    last = psn_add(0xFFFF00, mpr - 1)
    assert end.give(last, ack_request=1).bth.opcode == Opcode.SACK  # type: ignore[union-attr]
    beyond = psn_add(last, 1)
    neth = layers.MRC_NETH(
        nack_reason=0x0B,
        entropy=0x2405C0DE,
        spdcid=0x3456,
        dpdcid=0xCDEF,
        nack_psn=beyond,
        cc_type=2,
    )
    if mpr > 1:  # with one, it has moved on
        same(end.give(beyond), on_the_way_back(0xDD, beyond) / neth)
    silent = End(first_psn=0xFFFF00, mpr=mpr, nack_beyond_window=False)
    assert silent.give(beyond) is None
    assert silent.responder.counters == {"beyond_window": 1}


def test_an_access_outside_memory_is_refused_by_an_acknowledgement() -> None:
    end = End()
    view = end.view(3)._replace(rkey=end.region.rkey ^ 1)
    aeth = layers.MRC_AETH(syndrome=0x62, msn=9)
    same(end.responder.on_write(view), on_the_way_back(0xD1, 3) / aeth)
    assert end.give(3, ack_request=1) is not None, "the PSN has not arrived yet"
    assert end.responder.counters["new"] == 1


@given(st.permutations(range(300)), st.booleans(), st.sampled_from([0, 0xFFFF80]))
def test_sacks_never_report_what_has_not_arrived(
    order: list[int], msb_first: bool, first_psn: int
) -> None:
    options = WireOptions(sack_bitmap_msb_first=msb_first)
    memory = Memory()
    region = memory.register(RegisterRequest(length=300 * PAYLOAD)).info()
    responder = Responder(
        PEERING, memory, first_psn, ResponderParameters(sack_gen_threshold=16), options
    )
    end = End(first_psn)
    end.region = region
    arrived: set[int] = set()
    told: set[int] = set()
    for count, number in enumerate(order, 1):
        psn = psn_add(first_psn, number)
        arrived.add(psn)
        answer = responder.on_write(end.view(psn))
        assert (answer is not None) == (count % 16 == 0)
        if answer is not None:
            header = answer.headers[0]
            assert isinstance(header, Seth)
            told |= reported(header, first_psn, options)
            assert told <= arrived
    probe = Packet(Ipv6(), Udp(PORT), Bth(opcode=Opcode.PROBE_REQUEST), (Peth(),))
    header = responder.on_probe(probe).headers[0]
    assert isinstance(header, Seth)
    assert header.cack_psn == psn_add(first_psn, 299)


@given(st.sets(st.integers(1, 999)))
def test_probes_in_turn_report_everything_behind_a_gap(numbers: set[int]) -> None:
    end = End()
    for number in numbers:
        end.give(number)
    told: set[int] = set()
    for probe_id in range(2 * 16 + 1):  # words of 64, each in turn with those that have news
        probe = Packet(
            Ipv6(), Udp(PORT), Bth(opcode=Opcode.PROBE_REQUEST), (Peth(probe_id=probe_id),)
        )
        header = end.responder.on_probe(probe).headers[0]
        assert isinstance(header, Seth)
        assert header.cack_psn == 0xFFFFFF
        told |= reported(header, 0, WireOptions())
    assert told == numbers


def reported(header: Seth, first_psn: int, options: WireOptions) -> set[int]:
    """PSNs that a SACK says have arrived, of those that were ever sent."""
    count = psn_distance(header.cack_psn, first_psn) + 1
    cumulative = {psn_add(first_psn, number) for number in range(count)}
    in_bitmap = {p for p in sacked_psns(header, options) if psn_distance(p, first_psn) >= 0}
    return cumulative | in_bitmap
