# SPDX-License-Identifier: Apache-2.0
"""Bit positions, against values worked out by hand and against each other."""

from __future__ import annotations

import ipaddress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import addressing as addr
from controller.addressing import AddressError, DeviceKind, EntropyValue, Usid, UsidKind

BLOCK = 0xFCBBBB00
planes = st.integers(0, 7)
indices = st.integers(0, 1023)


def text(address: int) -> str:
    return str(ipaddress.IPv6Address(address))


def test_usids_by_hand() -> None:
    assert addr.usid(UsidKind.T0, 3, 1) == 0b001_011_0000000001 == 0x2C01
    assert addr.usid(UsidKind.T1, 7, 255) == 0b010_111_0011111111
    assert addr.usid(UsidKind.DOWNLINK, 0, 0) == 0x6000
    assert addr.ua_usid(5) == 0xE005
    assert addr.DT6_USID == 0b111_111_0000000000


def test_carriers_by_hand() -> None:
    assert text(addr.cross_t1_carrier(BLOCK, 3, 0, 2, 1, 1)) == "fcbb:bb00:2c00:4c02:2c01:6c01::"
    assert text(addr.t0_local_carrier(BLOCK, 2, 1, 0)) == "fcbb:bb00:2801:6800::"
    assert text(addr.t1_probe_carrier(BLOCK, 0, 1, 3, 1)) == "fcbb:bb00:2001:4003:2001:6001::"
    assert text(addr.own_carrier(BLOCK, 1, 9)) == "fcbb:bb00:6409::"


def test_entropy_value_by_hand() -> None:
    ev = EntropyValue(plane=5, uplink=3, tag=0x5ABCD)
    assert ev.pack() == 0b101_0000000011_101_1010101111001101
    assert ev.path_ev == 0b101_0000000011_101
    assert ev.source_port == 0xABCD


def test_host_addresses_by_hand() -> None:
    assert text(addr.host_address(0, 0)) == "fd4d:5243::1"
    assert text(addr.host_address(0x1FF, 255)) == "fd4d:5243::1ff:100"
    assert text(addr.group_prefix(3)[0]) == "fd4d:5243::3:0"
    assert addr.group_prefix(3)[1] == 112


def test_macs_by_hand() -> None:
    assert addr.mac_text(addr.mac(DeviceKind.T0, 0, 0, 1)) == "02:08:00:00:00:01"
    assert addr.mac_text(addr.mac(DeviceKind.T1, 7, 1, 2)) == "02:17:00:00:04:02"
    assert addr.mac_text(addr.mac(DeviceKind.HOST, 0, 131071, 0)) == "02:20:07:ff:fc:00"


def test_port_numbers() -> None:
    assert addr.t0_downlink_port(0) == 1
    assert addr.t0_uplink_port(2, 0) == 3
    assert addr.t1_port(0) == 1
    assert addr.nic_plane_port(0) == 2


@given(st.integers(0, 2**32 - 1))
def test_ev_round_trip(value: int) -> None:
    ev = EntropyValue.unpack(value)
    assert ev.pack() == value
    assert EntropyValue.from_wire(ev.path_ev, ev.source_port) == ev
    assert ev.path_ev << 16 | ev.source_port == value


@given(planes, indices, st.integers(0, 7))
def test_path_ev_is_the_ev_without_port(plane: int, uplink: int, tag: int) -> None:
    path_ev = addr.path_ev(plane, uplink, tag)
    assert EntropyValue.from_wire(path_ev, 0) == EntropyValue(plane, uplink, tag << 16)


@given(st.sampled_from(UsidKind), planes, indices)
def test_usids_are_never_zero_and_parse_back(kind: UsidKind, plane: int, index: int) -> None:
    value = addr.usid(kind, plane, index)
    assert 0 < value <= 0xFFFF
    assert Usid.parse(value) == Usid(kind, plane, index)
    assert (value >= 0xE000) == (kind is UsidKind.LOCAL)  # the range kept for local uSIDs


@given(st.lists(st.integers(1, 0xFFFF), max_size=6))
def test_shifting_consumes_one_usid_after_another(usids: list[int]) -> None:
    address = addr.carrier(BLOCK, *usids)
    assert addr.carrier_usids(address) == usids
    for left in range(len(usids), 0, -1):
        assert addr.active_usid(address) == usids[-left]
        address = addr.shift(address)
        assert addr.carrier_block(address) == BLOCK
    assert address == BLOCK << 96


@given(planes, indices, indices, indices, indices)
def test_template_and_ev_give_the_carrier(p: int, g: int, u: int, h: int, d: int) -> None:
    template = addr.cross_t1_carrier(BLOCK, 0, g, 0, h, 0)
    expected = addr.cross_t1_carrier(BLOCK, p, g, u, h, d)
    assert addr.template_path(template, p, u, d, cross_t1=True) == expected
    template = addr.t0_local_carrier(BLOCK, 0, g, 0)
    expected = addr.t0_local_carrier(BLOCK, p, g, d)
    assert addr.template_path(template, p, u, d, cross_t1=False) == expected


@given(indices, st.integers(0, 1022))
def test_host_address_round_trip(group: int, downlink: int) -> None:
    address = addr.host_address(group, downlink)
    assert addr.parse_host_address(address) == (group, downlink)
    prefix, length = addr.group_prefix(group)
    assert address >> (128 - length) == prefix >> (128 - length)
    assert (address - 1) & 0x3FF == downlink  # how nic.p4 finds the downlink


@given(st.lists(st.tuples(planes, indices), min_size=1, max_size=20))
def test_arrays_agree_with_scalars(pairs: list[tuple[int, int]]) -> None:
    plane, index = (np.array(column) for column in zip(*pairs, strict=True))
    for kind in UsidKind:
        expected = [addr.usid(kind, p, i) for p, i in pairs]
        assert addr.usid_array(kind, plane, index).tolist() == expected
    assert addr.path_ev_array(plane, index).tolist() == [addr.path_ev(p, i) for p, i in pairs]
    for device in DeviceKind:
        expected = [addr.mac(device, p, i, i) for p, i in pairs]
        assert addr.mac_array(device, plane, index, index).tolist() == expected


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(AddressError, match=r"plane 8 .* allowed: 0\.\.7"):
        addr.usid(UsidKind.T0, 8, 0)
    with pytest.raises(AddressError, match=r"index 1024 .* allowed: 0\.\.1023"):
        addr.usid(UsidKind.T0, 0, 1024)
    with pytest.raises(AddressError, match="EV tag"):
        EntropyValue(0, 0, 1 << 19)
    with pytest.raises(AddressError, match="7 uSIDs"):
        addr.carrier(BLOCK, *[1] * 7)
    with pytest.raises(AddressError, match=r"kind 0; allowed: 1 \(T0\)"):
        Usid.parse(0)
    for address in ("fd4d:5243::1:0", "fd4d:5244::1", "fd4d:5243::400:1", "fd4d:5243::1:0:1"):
        with pytest.raises(AddressError, match="no host's address"):
            addr.parse_host_address(int(ipaddress.IPv6Address(address)))


def test_usids_in_words() -> None:
    assert str(Usid.parse(0x2C01)) == "p3t0-1"
    assert str(Usid.parse(0x4C02)) == "p3t1-2"
    assert str(Usid.parse(0x6C01)) == "downlink 1 of plane 3"
    assert str(Usid.parse(addr.ua_usid(9))) == "uA port 9"
    assert str(Usid.parse(addr.DT6_USID)) == "uDT6"
