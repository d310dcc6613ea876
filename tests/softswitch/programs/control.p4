// SPDX-License-Identifier: Apache-2.0
// switch on action_run, exit, return, nested conditions, headers that come, go and are copied.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<8> trace; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    action one(bit<8> n) { m.trace = m.trace + n; }
    action two() { m.trace = m.trace + 2; exit; }
    action three() { if (h.probe.x == 1) { m.trace = 100; return; } m.trace = m.trace + 3; }
    action none() { }

    table choose {
        key = { h.probe.op: exact; }
        actions = { one; two; three; none; }
        default_action = none();
        size = 16;
    }
    table again {
        key = { h.probe.a: exact; }
        actions = { one; NoAction; }
        default_action = one(64);
        size = 16;
    }
    apply {
        complete.apply(h, std);
        std.egress_spec = 2;
        h.ethernet.dst = 1;
        switch (choose.apply().action_run) {
            one: { h.ethernet.dst = 2; if (h.probe.b == 0) { exit; } }
            two: { h.ethernet.dst = 3; }
            three: { h.ethernet.dst = 4; if (h.probe.y[0:0] == 1) { return; } }
            default: { h.ethernet.dst = 5; }
        }
        if (again.apply().hit && h.probe.isValid()) { h.ethernet.src = 9; }
        if (h.probe.x == 2) { h.probe.setInvalid(); h.probe.setValid(); h.probe.b = 1; }
        if (h.probe.x == 3) { probe_t other = h.probe; other.b = 2; h.probe = other; }
        if (h.probe.x == 4) { h.probe.setInvalid(); h.ethernet.setInvalid(); }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        if (!h.probe.isValid()) { return; }
        h.ethernet.ether_type = (bit<16>)m.trace;
        if (h.probe.x == 6) { std.egress_spec = 3; exit; }
        if (h.probe.x == 7) { mark_to_drop(std); return; }
        h.ethernet.src[47:40] = 0xee;
    }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
