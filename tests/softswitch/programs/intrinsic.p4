// SPDX-License-Identifier: Apache-2.0
// Intrinsic metadata: lengths, ports, priorities, queue depths, instance types, time that passes.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<48> arrival; bit<8> early; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        m.arrival = std.ingress_global_timestamp;
        m.early = (bit<8>)std.egress_port ^ (bit<8>)std.egress_rid ^ (bit<8>)std.egress_spec;
        h.probe.b = (bit<16>)std.ingress_port;
        h.probe.c = std.packet_length;
        std.egress_spec = (bit<9>)h.probe.x;
        if (h.probe.op == 1) { h.probe.setInvalid(); }
        if (h.probe.op == 2) { std.egress_spec = 511; }
        if (h.probe.op == 3) { std.priority = 1; }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        if (!h.probe.isValid()) { return; }
        h.probe.a = m.early;
        h.probe.d = std.packet_length ++ 32w0;
        h.probe.d[15:0] = (bit<16>)std.egress_port;
        h.probe.d[31:16] = (bit<16>)std.egress_spec;
        h.ethernet.dst = (bit<48>)std.packet_length;
        h.ethernet.src[7:0] = (bit<8>)std.enq_qdepth;
        h.ethernet.src[15:8] = (bit<8>)std.deq_qdepth;
        h.ethernet.src[16:16] = (bit<1>)(std.egress_global_timestamp >= m.arrival);
        h.ethernet.src[17:17] = (bit<1>)((bit<48>)std.enq_timestamp + (bit<48>)std.deq_timedelta >= m.arrival);
        h.probe.e[31:0] = std.instance_type;
        h.probe.e[39:32] = (bit<8>)std.egress_rid;
    }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
