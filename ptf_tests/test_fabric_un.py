# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: uN."""

from __future__ import annotations

from finsy import P4TableAction as Action

from controller import addressing as a
from ptf_tests import packets as pk
from ptf_tests.bench import Bench
from ptf_tests.device import entry

BLOCK=0xfcbbbb00
def test_un(fabric: Bench) -> None:
    t0 = a.usid(a.UsidKind.T0, 3, 5)
    t1 = a.usid(a.UsidKind.T1, 3, 2)
    e = [
        entry("locator_block", {"block": BLOCK}, Action("in_block")),
        entry("my_sid", {"locator_node": a.locator_node(BLOCK, t0)}, Action("un")),
        entry("usid_fib", {"locator_node": a.locator_node(BLOCK, t1)}, Action("forward", port=5, dst_mac=1, src_mac=2)),
    ]
    fabric.device.insert(*e)
    c = a.carrier(BLOCK, t0, t1, t0)
    src = a.host_address(5, 1); dst = a.host_address(6, 1)
    i = pk.ipv6(src, dst, pk.udp(src, dst, 1, 2, b"hello"), 17)
    fabric.forwards(1, pk.ethernet(pk.Macs(5,6), pk.ipv6(src, c, i, 41)), 5, pk.ethernet(pk.Macs(1,2), pk.ipv6(src, a.shift(c), i, 41, hop_limit=63)))
    print([fabric.device.hits(x) for x in e])
    print(fabric.device.entries("usid_fib"))
