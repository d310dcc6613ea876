// SPDX-License-Identifier: Apache-2.0
// Signed, saturating and wide arithmetic, slices, shifts by variables, concatenation, casts.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<128> wide; int<64> signed_wide; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        std.egress_spec = 2;
        bit<8> a = h.probe.a;
        bit<64> d = h.probe.d;
        bit<128> e = h.probe.e;
        int<8> i = h.probe.i;
        int<16> j = h.probe.j;
        switch (h.probe.op[3:0]) {
            0: { h.probe.i = i + 7; h.probe.j = (int<16>)i * j; h.probe.a = a |+| 200; }
            1: { h.probe.i = i |+| 100; h.probe.j = j |-| 20000; h.probe.a = a |-| 100; }
            2: { h.probe.e = e + 1; h.probe.d = d * 3; h.probe.c = ~h.probe.c; }
            3: { h.probe.e = e * 0x123456789abcdef0123456789abcdef; h.probe.y = h.probe.y - 5; }
            4: { h.probe.e = e << a; h.probe.d = d >> a; h.probe.j = j >> 3; }
            5: { h.probe.e = e >> a; h.probe.d = d << a; h.probe.i = i << a; }
            6: { h.probe.e = d ++ ~d; h.probe.b = h.probe.a ++ h.probe.op; h.probe.j = j >> a; }
            7: { h.probe.e[71:60] = h.probe.b[11:0]; h.probe.d[63:32] = h.probe.c; h.probe.x = e[66:64]; }
            8: { h.probe.a = (bit<8>)(bit<1>)(i < 0); h.probe.b = (bit<16>)j; h.probe.c = (bit<32>)(int<32>)j; }
            9: { h.probe.e = (bit<128>)(int<128>)i; h.probe.d = (bit<64>)(int<64>)j; h.probe.i = -i; }
            10: { h.probe.a = a * a; h.probe.b = h.probe.b - 7; h.probe.e = e | (e - 1); }
            11: { h.probe.e = e |+| (e << 1); h.probe.d = d |-| (d >> 1); h.probe.c = h.probe.c |+| 0x80000000; }
            12: { if (j > (int<16>)i) { h.probe.a = 1; } else { h.probe.a = 2; } h.probe.e = e ^ (bit<128>)d; }
            13: { h.probe.a = e > (bit<128>)d << 64 ? 8w1 : 8w2; h.probe.b = i == -128 ? 16w3 : 16w4; }
            14: { h.probe.c = (bit<32>)(h.probe.b * h.probe.b) << (bit<8>)h.probe.x; h.probe.j = -j - 1; }
            default: { h.probe.i = (int<8>)(i & 0x3f) | (int<8>)j; h.probe.a = a ^ (bit<8>)h.probe.y; h.probe.j = ~j; }
        }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
