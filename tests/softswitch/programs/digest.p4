// SPDX-License-Identifier: Apache-2.0
// Digests of two kinds: the last call wins, the values are those at the end of ingress, and neither
// drops nor resubmissions suppress it.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { @field_list(1) bit<8> rounds; bit<16> sum; }
// Addresses and rounds differ, so that no message is taken for a repetition.
struct small_t { bit<48> dst; bit<48> src; bit<8> op; bit<13> y; bit<16> sum; bit<8> rounds; }
struct large_t { bit<48> dst; bit<48> src; bit<128> e; bit<16> j; bit<1> valid; bit<3> x; bit<64> d; bit<8> rounds; }
// (PI refuses signed members.)

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        m.sum = h.probe.b;
        std.egress_spec = 2;
        if (h.probe.op[0:0] == 1) {
            digest<small_t>(1, { h.ethernet.dst, h.ethernet.src, h.probe.op, h.probe.y, m.sum, m.rounds });
        }
        if (h.probe.op[1:1] == 1) {
            digest<large_t>(1, { h.ethernet.dst, h.ethernet.src, h.probe.e, (bit<16>)h.probe.j,
                                 (bit<1>)h.probe.isValid(), h.probe.x, h.probe.d, m.rounds });
        }
        if (h.probe.op[2:2] == 1) { mark_to_drop(std); }
        if (h.probe.op[3:3] == 1 && m.rounds == 0) {
            m.rounds = 1;
            h.ethernet.src[7:0] = 0x55;
            resubmit_preserving_field_list(1);
        }
        if (h.probe.op[4:4] == 1) { h.probe.e = h.probe.e + 1; m.sum = m.sum + 1; exit; }
        h.probe.a = m.rounds;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
