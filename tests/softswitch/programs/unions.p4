// SPDX-License-Identifier: Apache-2.0
// Header unions, one and a stack of them: extracted, tested, made valid and invalid, copied, emitted.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header report_t { bit<8> error_code; bit<8> valid; bit<16> length; bit<16> seen; }
header short_t { bit<8> kind; bit<8> value; }
header long_t { bit<8> kind; bit<4> low; bit<28> value; }
header var_t { bit<8> kind; bit<8> bytes; varbit<64> value; }
header end_t { bit<8> kind; }

header_union option_t { short_t small; long_t big; var_t var; end_t end; }

struct headers_t {
    report_t report;
    ethernet_t ethernet;
    option_t first;
    option_t second;
    option_t[3] options;
    option_t[3] kept;
}
struct metadata_t { bit<16> seen; bit<16> ahead; }

parser parse(packet_in packet, out headers_t h, inout metadata_t m,
             inout standard_metadata_t std) {
    state start {
        packet.extract(h.ethernet);
        transition select(packet.lookahead<bit<8>>()) {
            1: first_small;
            2: first_big;
            default: options;
        }
    }
    state first_small {
        packet.extract(h.first.small);
        transition select(h.first.small.value) {
            0xff: again;
            default: options;
        }
    }
    state again {
        // Another member takes the place of the first.
        packet.extract(h.first.big);
        transition options;
    }
    state first_big {
        packet.extract(h.first.big);
        transition options;
    }
    state options {
        transition select(packet.lookahead<bit<8>>()) {
            0x10 &&& 0xf0: small;
            0x20 &&& 0xf0: big;
            0x30 &&& 0xf0: var;
            0: end;
            default: accept;
        }
    }
    state small {
        // p4c has no JSON for the last element of a stack of unions.
        m.ahead = packet.lookahead<bit<16>>();
        packet.extract(h.options.next.small);
        m.seen = m.seen + m.ahead;
        transition select(m.ahead[15:8], m.ahead[7:0]) {
            (0x1f, _): accept;
            (_, 0x80 &&& 0x80): end;
            default: options;
        }
    }
    state big {
        m.ahead = packet.lookahead<bit<16>>();
        packet.extract(h.options.next.big);
        transition select(m.ahead[7:4]) {
            7: accept;
            default: options;
        }
    }
    state var {
        m.ahead = packet.lookahead<bit<16>>();
        packet.extract(h.options.next.var, ((bit<32>)m.ahead[7:0]) << 3);
        transition options;
    }
    state end {
        packet.extract(h.options.next.end);
        transition accept;
    }
}

control verify_nothing(inout headers_t h, inout metadata_t m) { apply { } }
control update_nothing(inout headers_t h, inout metadata_t m) { apply { } }

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    action number(bit<8> valid) { h.report.valid = h.report.valid | valid; }
    apply {
        h.report.setValid();
        h.report.error_code = (bit<8>)(bit<16>)std.ingress_port;
        if (std.parser_error == error.NoError) { h.report.error_code = 0; }
        else if (std.parser_error == error.PacketTooShort) { h.report.error_code = 1; }
        else if (std.parser_error == error.StackOutOfBounds) { h.report.error_code = 3; }
        else if (std.parser_error == error.HeaderTooShort) { h.report.error_code = 4; }
        if (h.first.isValid()) { number(1); }
        if (h.first.small.isValid()) { number(2); }
        if (h.first.big.isValid()) { number(4); }
        // BMv2 cannot load isValid() of a union in a stack as p4c has it, only that of a member.
        if (h.options[0].small.isValid()) { number(8); }
        if (h.options[2].var.isValid()) { number(16); }

        switch (h.ethernet.dst[2:0]) {
            0: { h.second = h.first; }
            1: { h.first.end.setValid(); h.first.end.kind = 0xee; }
            2: { h.first.small.setInvalid(); }
            3: { h.kept = h.options; h.options[1].small.setValid(); h.options[1].small = { 1, 2 }; }
            4: { h.second.big.setValid(); h.second.big = { 5, 6, 7 }; h.first = h.second; }
            5: {
                h.second.small.setValid();
                h.second.small = { 8, 9 };
                if (h.options[0].big.isValid()) { h.second = h.options[0]; }
            }
            6: { h.kept[0] = h.options[2]; h.kept[1] = h.first; h.options[2].end.setInvalid(); }
            7: { h.first.big.setValid(); h.first.big = { 1, 2, 3 }; h.first.small.setInvalid(); }
        }
        if (h.second.isValid()) { number(32); }
        if (h.kept[1].big.isValid()) { number(64); }
        h.report.seen = m.seen;
        std.egress_spec = 2;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply { h.report.length = (bit<16>)std.packet_length; }
}
control deparse(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(parse(), verify_nothing(), ingress(), egress(), update_nothing(), deparse()) main;
