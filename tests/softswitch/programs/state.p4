// SPDX-License-Identifier: Apache-2.0
// Indirect counters and registers; indices out of bounds corrupt BMv2, so there are none.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<64> old; bit<16> old_bits; bit<128> wide; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    counter(8, CounterType.packets_and_bytes) both;
    counter(8, CounterType.packets) packets_only;
    register<bit<64>>(16) sums;
    register<bit<16>>(4) signed_sums;
    register<bit<128>>(4) wides;
    register<bit<1>>(4) flags;

    apply {
        complete.apply(h, std);
        both.count((bit<32>)h.probe.x);
        packets_only.count((bit<32>)h.probe.op[2:0]);
        sums.read(m.old, (bit<32>)h.probe.op[3:0]);
        sums.write((bit<32>)h.probe.op[3:0], m.old + h.probe.d);
        h.probe.d = m.old;
        signed_sums.read(m.old_bits, (bit<32>)h.probe.x[1:0]);
        signed_sums.write((bit<32>)h.probe.x[1:0], (bit<16>)((int<16>)m.old_bits |+| h.probe.j));
        h.probe.j = (int<16>)m.old_bits;
        wides.read(m.wide, (bit<32>)h.probe.x[1:0]);
        wides.write((bit<32>)h.probe.x[1:0], m.wide ^ h.probe.e);
        h.probe.e = m.wide;
        bit<1> flag;
        flags.read(flag, (bit<32>)h.probe.x[1:0]);
        flags.write((bit<32>)h.probe.x[1:0], flag + 1);
        h.probe.a = (bit<8>)flag;
        std.egress_spec = 2;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    counter(512, CounterType.packets_and_bytes) leaving;
    apply { leaving.count((bit<32>)std.egress_port); }
}

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
