// SPDX-License-Identifier: Apache-2.0
// random() within its bounds, at several widths, and digests of two kinds.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { }
struct small_t { bit<8> op; bit<13> y; }
struct large_t { bit<128> e; bit<48> src; int<16> j; }

#include "include/probe.p4"

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        complete.apply(h, std);
        random(h.probe.a, 8w10, 8w12);
        random(h.probe.b, 16w7, 16w7);
        random(h.probe.c, 32w0, 32w0xffffffff);
        random(h.probe.d, 64w0x100000000, 64w0x1000003e7);
        random(h.probe.y, 13w0, 13w0x1fff);
        std.egress_spec = 2;
        if (h.probe.op == 1) { digest<small_t>(1, { h.probe.op, h.probe.y }); }
        if (h.probe.op == 2) { digest<large_t>(1, { h.probe.e, h.ethernet.src, h.probe.j }); }
        if (h.probe.x == 7) { mark_to_drop(std); }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(probe_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), probe_deparser()) main;
