// SPDX-License-Identifier: Apache-2.0
// Multicast with replication ids, truncation, and what wins over mark_to_drop.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<8> carried; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        m.carried = h.probe.a;
        std.mcast_grp = (bit<16>)h.probe.x;
        std.egress_spec = 4;
        if (h.probe.op == 1) { mark_to_drop(std); }
        if (h.probe.op == 2) { mark_to_drop(std); std.mcast_grp = 1; }
        if (h.probe.op == 3) { truncate((bit<32>)h.probe.a); }
        if (h.probe.op == 6) { mark_to_drop(std); std.egress_spec = 3; }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        if (!h.probe.isValid()) { return; }
        h.probe.b = std.egress_rid;
        h.probe.a = m.carried;
        h.probe.c = std.instance_type;
        h.probe.d[15:0] = (bit<16>)std.egress_port;
        h.probe.d[47:16] = std.packet_length;
        if (h.probe.op == 4) { truncate(20); }
        if (h.probe.op == 5 && std.egress_rid == 2) { mark_to_drop(std); }
        if (h.probe.op == 7) { truncate(60); truncate(30); truncate(50); }
    }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
