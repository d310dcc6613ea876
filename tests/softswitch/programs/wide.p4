// SPDX-License-Identifier: Apache-2.0
// Numbers of 129 to 2048 bits: fields that start within a byte, arithmetic, action parameters,
// registers, hashes, keys of exact, lpm, ternary and range tables, lookahead, a key of 21 words.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header wide_t {
    bit<8>    op;
    bit<16>   by;
    bit<4>    x;
    bit<129>  a;
    bit<3>    y;
    bit<256>  b;
    int<200>  s;
    int<136>  t;
    bit<320>  c;
    bit<1024> k;
    bit<2048> m;
    bit<16>   note;
    bit<0>    nothing;
}

struct headers_t { ethernet_t ethernet; wide_t w; }
struct learned_t { bit<129> a; bit<200> s; bit<2048> m; bit<16> note; }
struct metadata_t { bit<0> none; bit<256> old; bit<129> narrow; bit<200> ahead; }

parser wide_parser(packet_in packet, out headers_t h, inout metadata_t m,
                   inout standard_metadata_t std) {
    state start {
        packet.extract(h.ethernet);
        m.ahead = packet.lookahead<bit<200>>();
        transition select(m.ahead[199:192], packet.lookahead<bit<160>>()) {
            (0xee, _): accept;
            (_, 0x0101010101010101010101010101010101010101): accept;
            default: wide;
        }
    }
    state wide {
        packet.extract(h.w);
        transition accept;
    }
}

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    register<bit<256>>(4) kept;
    register<bit<129>>(4) narrow;

    action put(bit<256> value, bit<129> other, bit<16> note) {
        h.w.b = value + h.w.b;
        h.w.a = other;
        h.w.note = note;
    }
    action mark(bit<16> note) { h.w.note = note; }
    table by_exact {
        key = { h.w.b: exact; h.w.y: exact; }
        actions = { put; NoAction; }
    }
    table by_lpm {
        key = { h.w.b: lpm; h.w.x: exact; }
        actions = { mark; NoAction; }
    }
    table by_ternary {
        key = { h.w.k: ternary; h.w.c: ternary; h.w.op: exact; }
        actions = { mark; NoAction; }
    }
    table by_range {
        key = { h.w.a: range; h.w.by: range; h.w.x: exact; }
        actions = { mark; NoAction; }
    }

    apply {
        // Fields of invalid headers are undefined; BMv2 leaves those of an earlier packet there.
        if (!h.w.isValid()) { std.egress_spec = 1; return; }
        std.egress_spec = 2;
        bit<129> a = h.w.a;
        bit<256> b = h.w.b;
        bit<320> c = h.w.c;
        int<200> s = h.w.s;
        int<136> t = h.w.t;
        bit<8> by = h.w.by[7:0];
        switch (h.w.op) {
            0: { h.w.a = a + 1; h.w.b = b - 1; h.w.m = h.w.m + (bit<2048>)b; }
            1: { h.w.a = a * 5; h.w.b = b * b; h.w.c = c * (bit<320>)a; h.w.m = h.w.m * h.w.m; }
            2: { h.w.a = a << by; h.w.b = b >> by; h.w.c = c << by << 64; h.w.m = h.w.m >> h.w.by[15:8] << 130; }
            3: { h.w.s = s >> by; h.w.t = t << by; h.w.c = c >> by; h.w.k = h.w.k << h.w.by[15:8] << 65; }
            4: { h.w.a = a |+| (a << 1); h.w.b = b |-| (b << 3); h.w.s = s |+| (int<200>)t; h.w.t = t |-| 5; }
            5: { h.w.a = ~a; h.w.s = -s; h.w.t = ~t; h.w.b = b ^ (bit<256>)a; h.w.m = ~h.w.m; }
            6: { h.w.b = a ++ b[126:0]; h.w.c[200:72] = a; h.w.a = c[319:191]; h.w.k = c ++ b ++ b[199:8] ++ c[255:0]; }
            7: { h.w.note = s < (int<200>)t ? 16w1 : 16w2; h.w.x = b > (bit<256>)a ? 4w3 : 4w4; }
            8: { h.w.note = (bit<16>)(bit<1>)(a == b[128:0]); if (c <= h.w.k[319:0]) { h.w.y = 5; } else { h.w.y = 6; } }
            9: { h.w.b = (bit<256>)(int<256>)t; h.w.s = (int<200>)t; h.w.t = (int<136>)s; h.w.c = (bit<320>)a; }
            10: { m.none = h.w.nothing; h.w.b = b | (b - 1) | (bit<256>)(m.none ++ h.w.x); h.w.c = c & (c - 1); h.w.a = (bit<129>)h.w.m[200:7]; }
            11: { h.w.s = s * (int<200>)t; h.w.t = t + (int<136>)s; h.w.note = (bit<16>)(int<16>)t; }
            12: { hash(h.w.note, HashAlgorithm.crc16, 16w0, { h.w.a, h.w.y, b, s }, 32w65535); }
            13: { hash(h.w.a, HashAlgorithm.crc32, 129w7, { h.w.b, h.w.k }, 64w0xffffffffff); }
            14: { hash(h.w.note, HashAlgorithm.csum16, 16w0, { h.w.m, h.w.x, h.w.y, h.w.a, h.w.c }, 32w65536); }
            15: { kept.read(m.old, (bit<32>)by[1:0]); kept.write((bit<32>)by[1:0], m.old ^ b); h.w.b = m.old; }
            16: { narrow.read(m.narrow, (bit<32>)by[1:0]); narrow.write((bit<32>)by[1:0], m.narrow + a); h.w.a = m.narrow; }
            17: { by_exact.apply(); }
            18: { by_lpm.apply(); }
            19: { by_ternary.apply(); }
            20: { by_range.apply(); }
            21: { h.w.b = (bit<256>)m.ahead; h.w.note = m.ahead[15:0]; }
            22: { h.w.b = a[0:0] == 1 ? b : (bit<256>)a; h.w.s = s > (int<200>)t ? s : -(int<200>)t; }
            23: { h.w.s = s |-| ((int<200>)t << 60); h.w.m = h.w.m |+| (h.w.m << 1); h.w.k = h.w.k |-| (bit<1024>)c; }
            24: { digest<learned_t>(1, { a, (bit<200>)s, h.w.m, h.w.note }); log_msg("a {}, s \\{{}\\}, {} of \"x\"", { a, s, h.w.x }); log_msg("plain"); }
            default: { h.w.m[1500:0] = h.w.m[1600:100]; h.w.y = h.w.m[2047:2045]; h.w.a = a & (bit<129>)h.w.by; }
        }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

control no_verify(inout headers_t h, inout metadata_t m) { apply { } }
control with_update(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.w.isValid() && h.w.op < 4, { h.w.op, h.w.by, h.w.x, h.w.a, h.w.y, h.w.b },
                        h.w.note, HashAlgorithm.csum16);
    }
}
control wide_deparser(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(wide_parser(), no_verify(), ingress(), egress(), with_update(), wide_deparser()) main;
