// SPDX-License-Identifier: Apache-2.0
// Exact, lpm, ternary, range and mixed keys, constant entries, direct counters, hit and miss.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<16> result; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) lpm_counter;
    action set(bit<16> value) { h.probe.b = value; }
    action add(bit<16> value) { h.probe.b = h.probe.b + value; }
    action to(bit<9> port) { std.egress_spec = port; }
    action drop() { mark_to_drop(std); }

    table by_lpm {
        key = { h.probe.e: lpm; h.probe.a: exact; }
        actions = { set; drop; NoAction; }
        counters = lpm_counter;
        default_action = NoAction();
        size = 128;
    }
    table by_ternary {
        key = { h.probe.c: ternary; h.probe.y: ternary; h.probe.x: exact; }
        actions = { add; drop; NoAction; }
        default_action = add(1);
        size = 128;
    }
    table by_range {
        key = { h.probe.d: range; h.probe.a: ternary; h.probe.y: range; }
        actions = { add; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    table fixed {
        key = { h.probe.op: ternary; h.probe.isValid(): exact; }
        actions = { to; drop; }
        const entries = {
            (0x10 &&& 0xf0, true): to(3);
            (0x11, true): to(4);
            (0x80 &&& 0x81, true): to(2);
            (_, false): to(4);
            (0xff, true): drop();
        }
        const default_action = to(1);
    }
    apply {
        if (by_lpm.apply().hit) { h.probe.a = 0xaa; }
        by_ternary.apply();
        if (by_range.apply().miss) { h.probe.i = -1; }
        fixed.apply();
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
