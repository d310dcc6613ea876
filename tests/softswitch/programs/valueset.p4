// SPDX-License-Identifier: Apache-2.0
// Parser value sets: one key and several, of odd widths, wide, looked ahead at; one set in two states.
#include <core.p4>
#include <v1model.p4>

struct metadata_t { bit<16> path; }

#include "include/probe.p4"

struct mixed_t {
    @match(ternary) bit<16> b;
    @match(lpm)     bit<13> y;
    @match(exact)   bit<3>  x;
    @match(range)   bit<8>  a;
}

struct wide_t {
    bit<128> e;
    int<8>   i;
}

parser parse(packet_in packet, out headers_t h, inout metadata_t m,
             inout standard_metadata_t std) {
    value_set<bit<8>>(4) ops;
    value_set<mixed_t>(8) mixed;
    value_set<wide_t>(100) wide;
    value_set<bit<4>>(0) ahead;

    state start {
        packet.extract(h.ethernet);
        transition select(packet.lookahead<bit<4>>()) {
            ahead: looked;
            default: probe;
        }
    }
    state looked {
        m.path = 1;
        transition probe;
    }
    state probe {
        packet.extract(h.probe);
        transition select(h.probe.op) {
            0xff: other;
            ops: is_op;
            0xfe: other;
            default: fields;
        }
    }
    state is_op {
        m.path = m.path | 2;
        transition fields;
    }
    state fields {
        transition select(h.probe.b, h.probe.y, h.probe.x, h.probe.a) {
            (7, _, _, _): wide_fields;
            mixed: are_mixed;
            default: wide_fields;
        }
    }
    state are_mixed {
        m.path = m.path | 4;
        transition wide_fields;
    }
    state wide_fields {
        transition select(h.probe.e, h.probe.i) {
            wide: are_wide;
            (0x10000000000000000 &&& 0xff0000000000000000, _): other;
            (_, 3): other;
            default: accept;
        }
    }
    state are_wide {
        m.path = m.path | 8;
        transition accept;
    }
    state other {
        m.path = m.path | 16;
        transition select(h.probe.a) {
            ops: other_op;
            default: accept;
        }
    }
    state other_op {
        m.path = m.path | 32;
        transition accept;
    }
}

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        h.ethernet.ether_type = m.path;
        std.egress_spec = 2;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

V1Switch(parse(), no_checksums(), ingress(), egress(), no_checksums(), probe_deparser()) main;
