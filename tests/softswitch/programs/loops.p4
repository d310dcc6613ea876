// SPDX-License-Identifier: Apache-2.0
// Resubmit and recirculate, with preserved fields, several times round.
#include <core.p4>
#include <v1model.p4>

struct metadata_t {
    @field_list(1) bit<8> rounds;
    @field_list(2) bit<16> kept;
    bit<16> lost;
}

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        h.ethernet.dst[7:0] = m.rounds;
        h.ethernet.dst[23:8] = m.kept;
        h.ethernet.dst[39:24] = m.lost;
        h.ethernet.dst[47:40] = (bit<8>)std.instance_type;
        m.lost = 0x1111;
        std.egress_spec = 2;
        if (h.probe.op == 1 && m.rounds < 3) {
            m.rounds = m.rounds + 1;
            h.probe.a = 0xff;
            resubmit_preserving_field_list(1);
        }
        if (h.probe.op == 2 && std.instance_type == 0) { mark_to_drop(std); resubmit_preserving_field_list(0); }
        if (h.probe.x == 5) { h.probe.setInvalid(); }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        if (!h.probe.isValid()) { return; }
        h.ethernet.src[31:0] = std.packet_length;
        h.ethernet.src[47:32] = (bit<16>)std.ingress_port;
        m.kept = h.probe.b;
        if (h.probe.op == 3 && h.probe.a < 3) {
            h.probe.a = h.probe.a + 1;
            recirculate_preserving_field_list(2);
        }
        if (h.probe.op == 4 && h.probe.a < 2) {
            h.probe.op = 1;
            truncate(53);
            recirculate_preserving_field_list(0);
        }
    }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
