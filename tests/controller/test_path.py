# SPDX-License-Identifier: Apache-2.0
"""Traces: every EV of every pair arrives, and wrong tables show as the data plane sees them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from controller import addressing as addr
from controller.addressing import DeviceKind, EntropyValue
from controller.drops import DropReason
from controller.fabric import Fabric, FabricError
from controller.path import (
    Trace,
    UntraceableError,
    trace,
    trace_carrier,
    trace_t0_probe,
    trace_t1_probe,
)
from controller.routes import StaticTables, static_tables
from tests.controller.strategies import fabrics, shipped


def names(found: Trace) -> list[str]:
    return [hop.device.name for hop in found.hops]


def test_cross_t1_hop_by_hop() -> None:
    found = trace(shipped("lab"), "h0-0", "h1-1", EntropyValue(3, 2, 77))
    assert names(found) == ["n0-0", "p3t0-0", "p3t1-2", "p3t0-1", "n1-1"]
    assert [(hop.in_port, hop.out_port) for hop in found.hops] == [
        *((1, 5), (1, 5), (1, 2), (5, 2), (5, 1)),
    ]
    wires = [addr.ipv6(hop.destination_out) for hop in found.hops if hop.destination_out]
    assert wires == [
        "fcbb:bb00:2c00:4c02:2c01:6c01::",
        "fcbb:bb00:4c02:2c01:6c01::",
        "fcbb:bb00:2c01:6c01::",
        "fcbb:bb00:6c01::",
    ]
    assert [hop.active_usid for hop in found.hops] == [None, 0x2C00, 0x4C02, 0x2C01, 0x6C01]
    assert found.end is not None
    assert found.end.name == "h1-1"
    assert found.drop is None
    assert found.faults == ()


def test_t0_local_and_self_probes() -> None:
    lab = shipped("lab")
    assert names(trace(lab, "h0-0", "h0-1", EntropyValue(1, 3))) == ["n0-0", "p1t0-0", "n0-1"]
    assert names(trace_t0_probe(lab, "h1-0", 2)) == ["n1-0", "p2t0-1", "n1-0"]
    found = trace_t1_probe(lab, "h1-0", 2, 3)
    assert names(found) == ["n1-0", "p2t0-1", "p2t1-3", "p2t0-1", "n1-0"]
    assert found.end is not None
    assert found.end.name == "h1-0"


@settings(max_examples=60, deadline=None)
@given(fabrics(max_planes=3, max_size=3))
def test_every_ev_of_every_pair_arrives(fabric: Fabric) -> None:
    hosts = list(fabric.devices(DeviceKind.HOST))
    for src in hosts:
        for dst in hosts:
            if src == dst:
                continue
            for plane in range(fabric.planes):
                for uplink in range(fabric.uplinks):
                    found = trace(fabric, src.name, dst.name, EntropyValue(plane, uplink, 5))
                    assert found.end == dst
                    assert found.faults == ()
                    local = src.group == dst.group
                    expected = [f"p{plane}t0-{src.group}"]
                    if not local:
                        expected += [f"p{plane}t1-{uplink}", f"p{plane}t0-{dst.group}"]
                    assert [switch.name for switch in found.switches] == expected


@settings(max_examples=60, deadline=None)
@given(fabrics(max_planes=3, max_size=3))
def test_every_self_probe_returns_over_its_link(fabric: Fabric) -> None:
    for host in fabric.devices(DeviceKind.HOST):
        for plane in range(fabric.planes):
            t0 = f"p{plane}t0-{host.group}"
            found = trace_t0_probe(fabric, host.name, plane)
            assert (found.end, [s.name for s in found.switches]) == (host, [t0])
            for uplink in range(fabric.uplinks):
                found = trace_t1_probe(fabric, host.name, plane, uplink)
                assert found.end == host
                assert [s.name for s in found.switches] == [t0, f"p{plane}t1-{uplink}", t0]


def changed(tables: StaticTables, table: str, column: str, at: int, value: int) -> StaticTables:
    """The tables with one number of a table replaced; column "": the table is an array."""
    whole: Any = getattr(tables, table)
    array = np.array(getattr(whole, column) if column else whole)
    array[at] = value
    new: Any = dataclasses.replace(whole, **{column: array}) if column else array
    return dataclasses.replace(tables, **{table: new})


def entry(fabric: Fabric, switch: str, key: int) -> int:
    found = static_tables(fabric).usid_fib.lookup(
        fabric.device(switch).row, fabric.block << 16 | key
    )
    assert found is not None
    return found


def test_wrong_tables_show() -> None:
    lab = shipped("lab")
    good = static_tables(lab)

    def way(tables: StaticTables) -> Trace:
        return trace(lab, "h0-0", "h1-1", EntropyValue(3, 2), tables)

    # The source T0 sends to the wrong T1: that one finds a uSID that is not its own.
    at = entry(lab, "p3t0-0", 0x4C02)
    found = way(changed(good, "usid_fib", "port", at, 6))
    assert names(found) == ["n0-0", "p3t0-0", "p3t1-3"]
    assert found.drop is DropReason.NOT_MY_SID
    assert "p3t0-0 port 6 sends to MAC" in found.faults[0]

    # An entry is missing.
    found = way(changed(good, "usid_fib", "key", at, 1))
    assert (names(found)[-1], found.drop) == ("p3t0-0", DropReason.UNKNOWN_USID)

    # A switch has the wrong uSID of its own.
    row = lab.device("p3t1-2").row
    found = way(changed(good, "my_sid", "", row, 1))
    assert (names(found)[-1], found.drop) == ("p3t1-2", DropReason.NOT_MY_SID)

    # The last T0 sends to the wrong NIC.
    at = entry(lab, "p3t0-1", 0x6C01)
    found = way(changed(good, "usid_fib", "port", at, 1))
    assert (names(found)[-1], found.drop) == ("n1-0", DropReason.NOT_OWN_CARRIER)

    # Only a MAC is wrong.
    found = way(changed(good, "usid_fib", "dst_mac", at, 2))
    assert found.end is not None
    assert len(found.faults) == 1


def test_carriers_that_hosts_build() -> None:
    lab = shipped("lab")
    inner = addr.host_address(1, 1)

    def way(*usids: int) -> Trace:
        return trace_carrier(lab, "h0-0", addr.carrier(lab.block, *usids), inner)

    assert way(0x2C00, 0x4C07).drop is DropReason.UNKNOWN_USID
    assert way(0x2C01).drop is DropReason.NOT_MY_SID
    assert way(0x2C00).drop is DropReason.CARRIER_ENDED
    assert way(0x2C00, 0xE009).drop is DropReason.UNKNOWN_LOCAL_SID
    assert way(0x2C00, 0xE005).drop is DropReason.CARRIER_ENDED
    # uA instead of a node's uSID: the same way.
    found = way(0x2C00, 0xE005, 0x4C02, 0x2C01, 0x6C01)
    assert (names(found)[1:4], found.drop) == (["p3t0-0", "p3t1-2", "p3t0-1"], None)
    # uDT6 at the last T0 or at the T1: on by the inner address, without a carrier.
    for usids in ([0x2C00, 0x4C02, 0x2C01, 0xFC00], [0x2C00, 0x4C02, 0xFC00]):
        found = way(*usids)
        assert found.end is not None
        assert found.end.name == "h1-1"
        assert found.hops[-1].destination_in is None
    # Another host's address inside.
    other = addr.host_address(0, 1)
    found = trace_carrier(lab, "h0-0", addr.carrier(lab.block, 0x2C00, 0x6C00), other)
    assert found.drop is DropReason.NOT_OWN_ADDRESS
    found = trace_carrier(lab, "h0-0", addr.carrier(lab.block, 0x2C00, 0xFC00), 1)
    assert found.drop is DropReason.NO_ROUTE
    with pytest.raises(UntraceableError, match="p3t0-0 spreads fd4d:5243::1:2"):
        way(0x2C00, 0xFC00)


def test_what_cannot_be_traced() -> None:
    mini = shipped("mini")
    with pytest.raises(FabricError, match=r"no plane 2; allowed: 0\.\.1"):
        trace(mini, "h0-0", "h1-0", EntropyValue(2, 0))
    with pytest.raises(FabricError, match="two different hosts"):
        trace(mini, "h0-0", "h0-0", EntropyValue(0, 0))
    with pytest.raises(FabricError, match="n0-0 is a NIC; allowed: a host"):
        trace(mini, "n0-0", "h1-0", EntropyValue(0, 0))
    assert trace(mini, "h0-0", "h1-0", EntropyValue(0, 2)).drop is DropReason.UNKNOWN_USID
