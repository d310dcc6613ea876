// SPDX-License-Identifier: Apache-2.0
// Clones from ingress and from egress with preserved fields; clones of packets that are dropped.
#include <core.p4>
#include <v1model.p4>

struct metadata_t {
    @field_list(1) bit<16> one;
    @field_list(1, 2) bit<32> both;
    bit<16> none;
}

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        m.one = h.probe.b;
        m.both = h.probe.c;
        m.none = 0xabcd;
        std.egress_spec = 2;
        if (h.probe.op == 1) { clone_preserving_field_list(CloneType.I2E, 5, 1); }
        if (h.probe.op == 2) { clone_preserving_field_list(CloneType.I2E, 6, 2); mark_to_drop(std); }
        if (h.probe.op == 3) { clone(CloneType.I2E, 7); }
        h.probe.a = 0x77;
        if (h.probe.x == 1) { h.probe.setInvalid(); }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        h.ethernet.dst[7:0] = (bit<8>)std.instance_type;
        h.ethernet.dst[23:8] = m.one;
        h.ethernet.src[31:0] = m.both;
        h.ethernet.src[47:32] = m.none;
        h.ethernet.dst[31:24] = (bit<8>)std.egress_rid;
        h.ethernet.dst[47:32] = (bit<16>)std.packet_length;
        if (std.instance_type == 0 && h.probe.isValid()) {
            if (h.probe.op == 4) { clone_preserving_field_list(CloneType.E2E, 5, 2); }
            if (h.probe.op == 5) { clone_preserving_field_list(CloneType.E2E, 6, 1); mark_to_drop(std); }
            if (h.probe.op == 6) { clone(CloneType.E2E, 99); }
            m.both = m.both + 1;
        }
        h.ethernet.ether_type = (bit<16>)std.egress_port;
    }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
