// SPDX-License-Identifier: Apache-2.0
// Indirect and direct meters, of packets and bytes, in ingress and egress; a table with both a
// direct meter and a direct counter, and one with an action profile.
#include <core.p4>
#include <v1model.p4>

struct metadata_t {
    bit<2>  color;
    bit<8>  wide_color;
    bit<32> profile_color;
    bit<2>  egress_color;
}

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    meter(8, MeterType.packets) by_packets;
    meter(8, MeterType.bytes) by_bytes;
    direct_meter<bit<8>>(MeterType.packets) packet_meter;
    direct_meter<bit<32>>(MeterType.bytes) byte_meter;
    direct_counter(CounterType.packets_and_bytes) hits;
    action_profile(16) targets;

    action report() { packet_meter.read(m.wide_color); }
    action add(bit<8> more) {
        packet_meter.read(m.wide_color);
        h.probe.a = h.probe.a + more;
    }
    action profiled(bit<16> value) { byte_meter.read(m.profile_color); h.probe.j = (int<16>)value; }

    table direct {
        key = { h.probe.x: exact; }
        actions = { report; add; NoAction; }
        default_action = NoAction();
        meters = packet_meter;
        counters = hits;
        size = 64;
    }
    table indirect {
        key = { h.probe.y: ternary; }
        actions = { profiled; NoAction; }
        implementation = targets;
        meters = byte_meter;
        size = 64;
    }
    apply {
        // Fields of invalid headers are undefined; BMv2 leaves those of an earlier packet there.
        if (!h.probe.isValid()) { std.egress_spec = 1; return; }
        m.wide_color = 0x77;
        m.profile_color = 0x77;
        by_packets.execute_meter((bit<32>)h.probe.op[2:0], m.color);
        h.probe.b[1:0] = m.color;
        by_bytes.execute_meter((bit<32>)h.probe.op[2:0], m.color);
        h.probe.b[9:8] = m.color;
        direct.apply();
        indirect.apply();
        h.probe.c = m.profile_color;
        h.probe.i = (int<8>)m.wide_color;
        std.egress_spec = 2;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    meter(4, MeterType.packets) leaving;
    apply {
        if (h.probe.isValid()) {
            leaving.execute_meter((bit<32>)h.probe.op[1:0], m.egress_color);
            h.probe.b[13:12] = m.egress_color;
        }
    }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
