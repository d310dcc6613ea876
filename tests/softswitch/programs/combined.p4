// SPDX-License-Identifier: Apache-2.0
// What happens when one packet asks for many things: bits of `a` ask in ingress, bits of `op` in
// egress. Copies ask for nothing further where BMv2's threads would race for the order.
#include <core.p4>
#include <v1model.p4>

struct metadata_t {
    @field_list(1, 2, 3) bit<8> rounds;
    @field_list(1, 2) bit<16> first;
    @field_list(3) bit<32> second;
    bit<16> lost;
}
struct message_t { bit<48> dst; bit<48> src; bit<8> rounds; bit<32> type; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    counter(8, CounterType.packets_and_bytes) passes;
    apply {
        complete.apply(h, std);
        passes.count((bit<32>)std.instance_type & 7);
        h.probe.i = (int<8>)m.rounds;
        h.probe.d = m.first ++ m.second ++ m.lost;
        m.first = h.probe.b;
        m.second = h.probe.c;
        m.lost = 0xdead;
        std.egress_spec = (bit<9>)h.probe.x[1:0] + 1;
        bit<8> ask = h.probe.a;
        if (ask[0:0] == 1) { clone_preserving_field_list(CloneType.I2E, (bit<32>)h.probe.b[1:0] + 4, 1); }
        if (ask[1:1] == 1) {
            digest<message_t>(1, { h.ethernet.dst, h.ethernet.src, m.rounds, std.instance_type });
        }
        if (ask[2:2] == 1) { std.mcast_grp = (bit<16>)h.probe.x; }
        if (ask[3:3] == 1) { mark_to_drop(std); }
        if (ask[4:4] == 1 && m.rounds < 2) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(2);
        }
        if (ask[5:5] == 1) { truncate((bit<32>)h.probe.c[6:0] + 14); }
        if (ask[6:6] == 1) { std.egress_spec = 4; }
        log_msg("asked for {} in round {}", { ask, m.rounds });
        assert(m.rounds < 5);
        assume(h.probe.isValid());
        if (ask[7:7] == 1) { exit; }
        h.ethernet.src[7:0] = h.ethernet.src[7:0] + 1;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std); // clones come as the parser left them
        h.ethernet.ether_type = m.first;
        h.ethernet.dst[31:0] = m.second;
        h.ethernet.dst[47:32] = m.lost;
        h.ethernet.src[47:40] = (bit<8>)std.instance_type;
        h.ethernet.src[39:32] = (bit<8>)std.egress_rid;
        h.ethernet.src[31:16] = (bit<16>)std.packet_length;
        bit<8> ask = h.probe.op;
        if (ask[7:7] == 1) { exit; }
        if (std.instance_type == 0) {
            if (ask[0:0] == 1) { clone_preserving_field_list(CloneType.E2E, (bit<32>)h.probe.b[3:2] + 4, 3); }
            if (ask[1:1] == 1 && m.rounds < 2) {
                m.rounds = m.rounds + 1;
                recirculate_preserving_field_list(1);
            }
            m.second = m.second + 1;
        }
        if (ask[2:2] == 1) { truncate((bit<32>)h.probe.c[5:0] + 14); }
        if (ask[3:3] == 1) { mark_to_drop(std); }
        if (ask[4:4] == 1) { h.probe.setInvalid(); }
        if (ask[5:5] == 1) { std.egress_spec = 3; }
        if (ask[6:6] == 1) { std.mcast_grp = 1; }
    }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
