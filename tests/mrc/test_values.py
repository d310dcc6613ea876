# SPDX-License-Identifier: Apache-2.0
"""PSN arithmetic, EVs, timestamps, SACK bitmaps, options and uSIDs."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc.usid import carrier_usids, describe_carrier, describe_usid, in_block, parse_block
from mrc.wire import (
    CodePoints,
    Seth,
    WireError,
    WireOptions,
    entropy,
    psn_add,
    psn_distance,
    sack_bitmap,
    sacked_psns,
    split_entropy,
    timestamp,
    timestamp_unit_ns,
)

PSN = st.integers(0, 0xFFFFFF)


@given(PSN, st.integers(-(1 << 23), (1 << 23) - 1))
def test_psn_distance_undoes_psn_add(psn: int, distance: int) -> None:
    assert psn_distance(psn_add(psn, distance), psn) == distance


def test_psn_wraps() -> None:
    assert psn_add(0xFFFFFF, 1) == 0
    assert psn_distance(0, 0xFFFFFF) == 1
    assert psn_distance(0xFFFFFF, 0) == -1


def test_entropy_order_is_an_option() -> None:
    port_first = WireOptions(entropy_port_first=True)
    assert entropy(0xE2405, 0xC000) == 0x2405C000  # the four marking bits are no part of the EV
    assert entropy(0xE2405, 0xC000, port_first) == 0xC0002405
    for options in (WireOptions(), port_first):
        assert split_entropy(entropy(0x2405, 0xC000, options), options) == (0x2405, 0xC000)


def test_timestamp_units() -> None:
    assert timestamp(128 * 5 + 127) == 5
    assert timestamp(128 * 0x10000) == 0
    assert timestamp_unit_ns(0) == 128
    assert timestamp_unit_ns(1) == 1000
    assert timestamp_unit_ns(1, WireOptions(tsr1_unit_ns=256)) == 256


def test_sack_bitmap_order_is_an_option() -> None:
    assert sack_bitmap(10, [10, 12]) == 0b101
    msb_first = WireOptions(sack_bitmap_msb_first=True)
    assert sack_bitmap(10, [10, 12], msb_first) == 0b101 << 61
    with pytest.raises(WireError, match=r"PSN 74 is not in the bitmap's range, which is 10\.\.73"):
        sack_bitmap(10, [74])
    with pytest.raises(WireError, match="PSN 9 is not"):
        sack_bitmap(10, [9])


@given(PSN, st.integers(-100, 100), st.sets(st.integers(0, 63)), st.booleans())
def test_sacked_psns_are_those_put_in(cack: int, offset: int, steps: set[int], msb: bool) -> None:
    options = WireOptions(sack_bitmap_msb_first=msb)
    base = psn_add(cack, offset)
    psns = [psn_add(base, step) for step in sorted(steps)]
    bitmap = sack_bitmap(base, psns, options)
    assert sacked_psns(Seth(cack_psn=cack, sack_offset=offset, sack_bitmap=bitmap), options) == psns


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"CodePoints.trimmed = 64: a DSCP is 0..63"):
        CodePoints(trimmed=64)
    with pytest.raises(ValueError, match="must differ"):
        CodePoints(trimmed=4)
    with pytest.raises(ValueError, match="at least one port"):
        WireOptions(udp_ports=())
    with pytest.raises(ValueError, match=r"udp_ports = \(0,\)"):
        WireOptions(udp_ports=(0,))
    with pytest.raises(ValueError, match="must be positive"):
        WireOptions(tsr1_unit_ns=0)


def test_usids_in_words() -> None:
    address = ipaddress.IPv6Address("fcbb:bb00:2401:4402:2403:6404::").packed
    assert carrier_usids(address) == [0x2401, 0x4402, 0x2403, 0x6404]
    assert describe_carrier(address) == "p1t0-1 | p1t1-2 | p1t0-3 | downlink 4 (plane 1)"
    assert describe_usid(0xE003) == "uA port 3"
    assert describe_usid(0xFC00) == "dt6"
    assert describe_usid(0xFC01) == "unknown 0xfc01"
    assert describe_usid(0x0001) == "unknown 0x0001"
    assert describe_carrier(ipaddress.IPv6Address("fcbb:bb00::").packed) == "no uSID left"
    six = ipaddress.IPv6Address("fcbb:bb00:2000:2000:2000:2000:2000:2000").packed
    assert len(carrier_usids(six)) == 6


def test_locator_block() -> None:
    block = parse_block("fc00:42::/32")
    assert in_block(ipaddress.IPv6Address("fc00:42:1::").packed, block)
    assert not in_block(ipaddress.IPv6Address("fcbb:bb00:1::").packed, block)
    with pytest.raises(ValueError, match="must be a /32, got /48"):
        parse_block("fc00:42::/48")
