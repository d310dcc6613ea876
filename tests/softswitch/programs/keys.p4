// SPDX-License-Identifier: Apache-2.0
// Optional keys, all kinds of keys together, constant entries of every kind, tables without keys,
// default actions that are set, and a direct counter on each kind of table.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<16> result; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) exact_counter;
    direct_counter(CounterType.packets) optional_counter;
    direct_counter(CounterType.bytes) everything_counter;
    direct_counter(CounterType.packets_and_bytes) range_counter;
    direct_counter(CounterType.packets_and_bytes) keyless_counter;
    action add(bit<16> value) { m.result = m.result + value; }
    action fold(bit<128> wide, int<16> signed) {
        h.probe.e = h.probe.e ^ wide;
        h.probe.j = h.probe.j |+| signed;
    }
    action to(bit<9> port) { std.egress_spec = port; }
    action drop() { mark_to_drop(std); }

    table by_exact {
        key = { h.probe.a: exact; h.probe.i: exact; }
        actions = { add; fold; drop; @defaultonly NoAction; }
        counters = exact_counter;
        default_action = NoAction();
        size = 64;
    }
    table by_optional {
        key = { h.probe.op: optional; h.probe.b: optional; h.probe.x: exact; }
        actions = { add; fold; NoAction; }
        counters = optional_counter;
        default_action = add(1000);
        size = 64;
    }
    table by_everything {
        key = {
            h.probe.c: ternary; h.probe.y: range; h.probe.op: optional; h.probe.x: exact;
            h.probe.e: ternary;
        }
        actions = { add; fold; drop; NoAction; }
        counters = everything_counter;
        default_action = fold(1, 77);
        size = 64;
    }
    table by_range {
        key = { h.probe.y: range; h.probe.e: range; }
        actions = { add; fold; NoAction; }
        counters = range_counter;
        default_action = NoAction();
        size = 64;
    }
    table keyless {
        actions = { add; fold; NoAction; }
        counters = keyless_counter;
        default_action = add(3);
    }
    table const_exact {
        key = { h.probe.x: exact; }
        actions = { add; NoAction; }
        const entries = { 0: add(1); 1: add(2); 7: add(4); }
        const default_action = add(8);
    }
    table const_lpm {
        key = { h.probe.d: lpm; }
        actions = { add; NoAction; }
        const entries = {
            0x8000000000000000 &&& 0x8000000000000000: add(0x10);
            0xffffffff00000000 &&& 0xffffffff00000000: add(0x20);
            0xffffffffffffffff: add(0x30);
            0 &&& 0: add(0x40);
        }
    }
    table const_range {
        key = { h.probe.y: range; h.probe.a: ternary; }
        actions = { add; NoAction; }
        const entries = {
            (0 .. 2, _): add(0x100);
            (0x1000 .. 0x1fff, 0x80 &&& 0x80): add(0x200);
            (1 .. 0x1ffe, _): add(0x300);
            (_, 0xff): add(0x400);
        }
        default_action = add(0x500);
    }
    table const_optional {
        key = { h.probe.a: optional; h.probe.op: optional; }
        actions = { add; NoAction; }
        const entries = { (0, 1): add(0x1000); (_, 2): add(0x2000); (0xff, _): add(0x3000); }
        default_action = NoAction();
    }
    apply {
        complete.apply(h, std);
        std.egress_spec = 2;
        by_exact.apply();
        if (by_optional.apply().hit) { m.result = m.result ^ 1; }
        switch (by_everything.apply().action_run) {
            add: { m.result = m.result ^ 2; }
            drop: { exit; }
            default: { }
        }
        by_range.apply();
        keyless.apply();
        const_exact.apply();
        const_lpm.apply();
        const_range.apply();
        if (const_optional.apply().miss) { m.result = m.result ^ 4; }
        h.probe.b = m.result;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
