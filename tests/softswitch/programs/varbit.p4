// SPDX-License-Identifier: Apache-2.0
// Variable-length fields: extracted alone, in a stack, in the middle of a byte; copied, compared,
// hashed, in checksums, made valid again.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header report_t {
    bit<8>  error_code;
    bit<8>  same;
    bit<16> length;
    bit<16> hash16;
    bit<32> hash32;
    bit<8>  wrong;
}
header ip_t {
    bit<4>      version;
    bit<4>      words;
    bit<8>      kind;
    bit<16>     checksum;
    bit<32>     target;
    varbit<128> options;
}
header item_t { bit<7> bytes; bit<1> last; varbit<48> data; bit<8> tail; }
header odd_t { bit<12> bits; varbit<64> data; bit<3> x; bit<9> y; }

struct headers_t {
    report_t report;
    ethernet_t ethernet;
    ip_t ip;
    ip_t inner;
    item_t[3] items;
    odd_t odd;
    odd_t copy;
}
struct metadata_t { bit<8> ahead; bit<32> bits; }

parser parse(packet_in packet, out headers_t h, inout metadata_t m,
             inout standard_metadata_t std) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.ether_type) {
            0x0800: ip;
            0x1000: items;
            0x2000: odd;
            default: accept;
        }
    }
    state ip {
        m.ahead = packet.lookahead<bit<8>>();
        verify(m.ahead[3:0] >= 2, error.HeaderTooShort);
        packet.extract(h.ip, ((bit<32>)(m.ahead[3:0] - 2)) * 32);
        transition select(h.ip.kind) {
            1: items;
            2: odd;
            4: inner;
            default: accept;
        }
    }
    state inner {
        packet.extract(h.inner, (bit<32>)(h.ip.words - 2) * 32);
        transition accept;
    }
    state items {
        m.ahead = packet.lookahead<bit<8>>();
        packet.extract(h.items.next, ((bit<32>)m.ahead[7:1]) << 3);
        transition select(h.items.last.last, h.items.last.tail) {
            (0, _): items;
            (1, 0x80 &&& 0x80): odd;
            default: accept;
        }
    }
    state odd {
        m.bits = (bit<32>)packet.lookahead<bit<12>>();
        packet.extract(h.odd, m.bits);
        transition accept;
    }
}

control verify_ip(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.ip.isValid() && h.ip.kind != 9,
            { h.ip.version, h.ip.words, h.ip.kind, h.ip.target, h.ip.options },
            h.ip.checksum, HashAlgorithm.csum16);
    }
}

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        h.report.setValid();
        h.report.error_code = 0xff;
        if (std.parser_error == error.NoError) { h.report.error_code = 0; }
        else if (std.parser_error == error.PacketTooShort) { h.report.error_code = 1; }
        else if (std.parser_error == error.StackOutOfBounds) { h.report.error_code = 3; }
        else if (std.parser_error == error.HeaderTooShort) { h.report.error_code = 4; }
        else if (std.parser_error == error.ParserInvalidArgument) { h.report.error_code = 6; }
        h.report.wrong = (bit<8>)std.checksum_error;

        if (h.ip.isValid() && h.inner.isValid() && h.ip.options == h.inner.options) {
            h.report.same = 1;
        }
        if (h.items[1].isValid() && h.items[0].data == h.items[1].data) {
            h.report.same = h.report.same | 2;
        }
        if (h.odd.isValid()) {
            hash(h.report.hash32, HashAlgorithm.crc32, 32w0, { h.odd.x, h.odd.data, h.odd.y },
                 64w0x100000000);
        }
        if (h.items[0].isValid()) {
            hash(h.report.hash16, HashAlgorithm.crc16, 16w0, { h.items[0].data, h.items[0].tail },
                 32w0x10000);
        }

        switch (h.ethernet.dst[2:0]) {
            0: { h.copy = h.odd; }
            1: { if (h.inner.isValid()) { h.inner.options = h.ip.options; } }
            2: { h.items.pop_front(1); }
            3: { h.items.push_front(1); h.items[0] = h.items[2]; }
            4: { h.ip.setInvalid(); h.ip.setValid(); h.ip.words = 3; }
            5: { h.odd.setInvalid(); h.items[0].setInvalid(); }
            6: {
                if (h.items[1].isValid()) { h.items[0].data = h.items[1].data; }
                h.inner = h.ip;
            }
        }
        std.egress_spec = 2;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply { h.report.length = (bit<16>)std.packet_length; }
}
control update_ip(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.ip.isValid(),
            { h.ip.version, h.ip.words, h.ip.kind, h.ip.target, h.ip.options },
            h.ip.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(h.inner.isValid(),
            { h.inner.version, h.inner.words, h.inner.kind, h.inner.target, h.inner.options },
            h.inner.checksum, HashAlgorithm.csum16);
    }
}
control deparse(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(parse(), verify_ip(), ingress(), egress(), update_ip(), deparse()) main;
