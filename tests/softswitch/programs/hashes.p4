// SPDX-License-Identifier: Apache-2.0
// hash(): every algorithm, over fields that do and do not fill bytes, with base and size.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<16> sixteen; bit<32> thirty_two; bit<64> sixty_four; bit<32> custom; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        bit<3> x = h.probe.x;
        bit<13> y = h.probe.y;
        std.egress_spec = 2;
        switch (h.probe.op[2:0]) {
            0: { hash(m.sixteen, HashAlgorithm.crc16, 16w0, { x, h.probe.c, y }, 32w0x10000); }
            1: { hash(m.sixteen, HashAlgorithm.csum16, 16w0, { h.probe.d, x }, 32w0x10000); }
            2: { hash(m.sixteen, HashAlgorithm.xor16, 16w7, { h.probe.e, h.probe.a }, 32w1000); }
            3: { hash(m.sixteen, HashAlgorithm.identity, 16w3, { y, x }, 32w100); }
            4: { hash(m.sixteen, HashAlgorithm.crc16_custom, 16w0, { h.probe.d, h.probe.a }, 32w0x10000); }
            5: { hash(m.custom, HashAlgorithm.crc32_custom, 32w0, { h.probe.d, h.probe.a }, 64w0x100000000); }
            default: { hash(m.sixteen, HashAlgorithm.crc16, 16w9, { h.probe.b }, 32w1); }
        }
        hash(m.thirty_two, HashAlgorithm.crc32, 32w0, { h.probe.e, h.probe.b }, 64w0x100000000);
        hash(m.sixty_four, HashAlgorithm.crc32, 64w0x10, { x }, 64w0xfffffff0);
        h.probe.b = m.sixteen;
        h.ethernet.dst = 16w0 ++ m.custom;
        h.probe.c = m.thirty_two;
        h.probe.d = m.sixty_four;
        hash(h.probe.e, HashAlgorithm.identity, 128w0, { h.ethernet.src, y }, 128w0xffffffffffff);
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
