// SPDX-License-Identifier: Apache-2.0
// Tables whose entries time out: exact with a direct counter and a direct meter, and ternary.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<2> color; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.packets) meter;
    action mark(bit<16> value) { meter.read(m.color); h.probe.b = value; }
    action set(bit<16> value) { h.probe.j = (int<16>)value; }

    table flows {
        key = { h.probe.op: exact; h.probe.a: exact; }
        actions = { mark; NoAction; }
        default_action = NoAction();
        counters = hits;
        meters = meter;
        support_timeout = true;
        size = 4096;
    }
    table classes {
        key = { h.probe.y: ternary; h.probe.d: range; }
        actions = { set; NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 64;
    }
    table fixed_time {
        key = { h.probe.x: exact; }
        actions = { set; NoAction; }
        default_action = NoAction();
        size = 8;
    }
    apply {
        // Fields of invalid headers are undefined; BMv2 leaves those of an earlier packet there.
        if (!h.probe.isValid()) { std.egress_spec = 1; return; }
        flows.apply();
        classes.apply();
        fixed_time.apply();
        h.probe.i = (int<8>)(bit<8>)m.color;
        std.egress_spec = 2;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
