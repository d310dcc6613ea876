# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: the segment routing header: untouched while the carrier lasts, used when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.addressing import carrier, group_prefix, host_address, shift, ua_usid
from controller.drops import DropReason
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.packets import (
    NEXT_HEADER_ROUTING,
    NEXT_HEADER_TCP,
    NEXT_HEADER_UDP,
    NO_NEXT_HEADER,
    ethernet,
    ipv6,
    srh,
    tcp,
    udp,
)
from ptf_tests.world import (
    BLOCK,
    OTHER_T0,
    OTHER_T0_USID,
    T0,
    T0_USID,
    arriving,
    down_port,
    downlink_usid,
    ipv6_route,
    leaving,
    local_ua,
    next_hop,
    t1_usid,
    up_port,
)

IN = down_port(0)
HOST = host_address(T0, 0)
PEER = host_address(OTHER_T0, 2)
INNER = ipv6(HOST, PEER, udp(HOST, PEER, 0xC000, 4791, b"inner"), NEXT_HEADER_UDP)

ENDS_HERE = carrier(BLOCK, T0_USID)
LASTS = carrier(BLOCK, T0_USID, t1_usid(1), OTHER_T0_USID, downlink_usid(2))


def segments(count: int) -> list[int]:
    """Carriers of which number n, from the end of the path, goes to T1 n."""
    return [carrier(BLOCK, t1_usid(n), OTHER_T0_USID, downlink_usid(n)) for n in range(count)]


def routed(destination: int, header: bytes, payload: bytes = INNER, hop_limit: int = 64) -> bytes:
    """A packet with an SRH."""
    return ipv6(HOST, destination, header + payload, NEXT_HEADER_ROUTING, hop_limit=hop_limit)


def passes(destination: int, header: bytes, port: int, after: int, header_after: bytes) -> Forward:
    """A packet that goes on to ``after``, its SRH as ``header_after``."""
    return Forward(
        IN,
        ethernet(arriving(IN), routed(destination, header)),
        port,
        ethernet(leaving(port), routed(after, header_after, hop_limit=63)),
    )


def dropped(destination: int, header: bytes, reason: DropReason) -> Drop:
    """A packet with an SRH that ends here."""
    return Drop(IN, ethernet(arriving(IN), routed(destination, header)), reason)


MALFORMED = {
    "TLV of 8 bytes": srh(segments(1), 1, hdr_ext_len=3) + bytes.fromhex("0406000000000000"),
    "five segments": srh(segments(5), 1),
    "no segment": srh([], 1, last_entry=0),
    "length beyond the packet": srh(segments(1), 1, hdr_ext_len=200),
    "another routing type": srh(segments(1), 1, routing_type=3),
    "segments left beyond the list": srh(segments(2), 3),
    "segments left beyond the last entry": srh(segments(4), 3, last_entry=1),
    "segments left 255": srh(segments(4), 255),
    "last entry beyond the list": srh(segments(2), 3, last_entry=9),
}


class TestWhileTheCarrierLasts:
    """uN shifts the carrier and leaves the SRH alone, whatever is in it."""

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_every_number_of_segments_left(self, t0: Bench, count: int) -> None:
        headers = [srh(segments(count), left) for left in range(count + 1)]
        t0.check(*(passes(LASTS, h, up_port(1), shift(LASTS), h) for h in headers))

    def test_malformed(self, t0: Bench) -> None:
        t0.check(*(passes(LASTS, h, up_port(1), shift(LASTS), h) for h in MALFORMED.values()))


class TestWhenTheCarrierEnds:
    """The next segment takes its place (RFC 9800 section 4.1.1)."""

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_next_segment(self, t0: Bench, count: int) -> None:
        listed = segments(count)
        t0.check(
            *(
                passes(
                    ENDS_HERE,
                    srh(listed, left),
                    up_port(left - 1),
                    listed[left - 1],
                    srh(listed, left - 1),
                )
                for left in range(1, count + 1)
            )
        )

    def test_no_segment_left(self, t0: Bench) -> None:
        t0.check(
            *(
                dropped(ENDS_HERE, srh(segments(count), 0), DropReason.CARRIER_ENDED)
                for count in range(1, 5)
            )
        )

    @pytest.mark.parametrize("case", MALFORMED)
    def test_malformed(self, t0: Bench, case: str) -> None:
        t0.check(dropped(ENDS_HERE, MALFORMED[case], DropReason.BAD_SRH))

    def test_no_segment_left_in_a_malformed_one(self, t0: Bench) -> None:
        # Nothing has to be read from it.
        header = srh(segments(1), 0, hdr_ext_len=3) + bytes(8)
        t0.check(dropped(ENDS_HERE, header, DropReason.CARRIER_ENDED))

    def test_other_fields_are_kept(self, t0: Bench) -> None:
        (segment,) = listed = segments(1)
        before = srh(listed, 1, tag=0x1234)
        t0.check(passes(ENDS_HERE, before, up_port(0), segment, srh(listed, 0, tag=0x1234)))

    @pytest.mark.parametrize(
        ("kind", "payload"),
        [
            (NEXT_HEADER_UDP, udp(HOST, PEER, 1, 2, b"datagram")),
            (NEXT_HEADER_TCP, tcp(HOST, PEER, 1, 2, b"stream")),
            (NO_NEXT_HEADER, b""),
        ],
    )
    def test_any_payload(self, t0: Bench, kind: int, payload: bytes) -> None:
        (segment,) = listed = segments(1)
        before, after = (srh(listed, left, next_header=kind) for left in (1, 0))
        t0.forwards(
            IN,
            ethernet(arriving(IN), routed(ENDS_HERE, before, payload)),
            up_port(0),
            ethernet(leaving(up_port(0)), routed(segment, after, payload, hop_limit=63)),
        )


class TestWhatTheNextSegmentIs:
    """A carrier is looked up by its first uSID, anything else as plain IPv6."""

    def with_segment(self, segment: int, left: int) -> bytes:
        return srh([segment], left)

    def test_carrier_of_an_unknown_switch(self, t0: Bench) -> None:
        segment = carrier(BLOCK, OTHER_T0_USID)
        t0.check(dropped(ENDS_HERE, self.with_segment(segment, 1), DropReason.UNKNOWN_USID))

    def test_carrier_of_this_switch(self, t0: Bench) -> None:
        # Every switch consumes one uSID and sends, or drops: no second turn here.
        segment = carrier(BLOCK, T0_USID, t1_usid(0))
        t0.check(dropped(ENDS_HERE, self.with_segment(segment, 1), DropReason.UNKNOWN_USID))

    def test_plain_address(self, t0: Bench) -> None:
        prefix, length = group_prefix(OTHER_T0)
        t0.device.insert(ipv6_route(prefix, length, next_hop("forward", up_port(2))))
        before, after = (self.with_segment(PEER, left) for left in (1, 0))
        t0.check(passes(ENDS_HERE, before, up_port(2), PEER, after))

    def test_plain_address_without_a_route(self, t0: Bench) -> None:
        t0.check(dropped(ENDS_HERE, self.with_segment(PEER, 1), DropReason.NO_ROUTE))

    def test_empty_carrier(self, t0: Bench) -> None:
        segment = carrier(BLOCK)
        t0.check(dropped(ENDS_HERE, self.with_segment(segment, 1), DropReason.UNKNOWN_USID))


class TestAfterAdjacency:
    """uA at the end of a carrier: the next segment leaves by uA's port."""

    ENDS_WITH_UA = carrier(BLOCK, T0_USID, ua_usid(up_port(3)))

    @pytest.fixture
    def with_ua(self, t0: Bench) -> Bench:
        t0.device.insert(local_ua(up_port(3)))
        return t0

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_next_segment_leaves_by_the_port(self, with_ua: Bench, count: int) -> None:
        listed = segments(count)
        with_ua.check(
            *(
                passes(
                    self.ENDS_WITH_UA,
                    srh(listed, left),
                    up_port(3),
                    listed[left - 1],
                    srh(listed, left - 1),
                )
                for left in range(1, count + 1)
            )
        )

    def test_next_segment_is_not_looked_up(self, with_ua: Bench) -> None:
        fates: list[Fate] = [
            passes(self.ENDS_WITH_UA, srh([segment], 1), up_port(3), segment, srh([segment], 0))
            for segment in (PEER, carrier(BLOCK, OTHER_T0_USID))
        ]
        with_ua.check(*fates)

    def test_untouched_while_the_carrier_lasts(self, with_ua: Bench) -> None:
        header = srh(segments(2), 2)
        destination = carrier(BLOCK, T0_USID, ua_usid(up_port(3)), OTHER_T0_USID)
        after = carrier(BLOCK, OTHER_T0_USID)
        with_ua.check(passes(destination, header, up_port(3), after, header))

    def test_no_segment_left(self, with_ua: Bench) -> None:
        header = srh(segments(2), 0)
        with_ua.check(dropped(self.ENDS_WITH_UA, header, DropReason.CARRIER_ENDED))

    @pytest.mark.parametrize("case", MALFORMED)
    def test_malformed(self, with_ua: Bench, case: str) -> None:
        with_ua.check(dropped(self.ENDS_WITH_UA, MALFORMED[case], DropReason.BAD_SRH))


def test_whole_list_is_walked_to_its_end(t0: Bench) -> None:
    """Three segments in turn end at this switch; the packet is sent on by each of them."""
    chain: Sequence[int] = [carrier(BLOCK, t1_usid(n), T0_USID) for n in range(3)]
    for left in (3, 2, 1):
        # A T1 has shifted its uSID out and sent the packet back, its carrier used up here.
        before, after = srh(chain, left), srh(chain, left - 1)
        t0.check(passes(ENDS_HERE, before, up_port(left - 1), chain[left - 1], after))
    t0.check(dropped(ENDS_HERE, srh(chain, 0), DropReason.CARRIER_ENDED))
