// SPDX-License-Identifier: Apache-2.0
// Parsers that stop anywhere, and controls that go on with the headers that are there: guarded, as
// keys, in checksums, and made valid by hand.
#include <core.p4>
#include <v1model.p4>

error { Custom, Another }

header first_t { bit<8> kind; bit<8> count; bit<16> sum; }
header second_t { bit<4> low; bit<12> high; bit<24> rest; }
header third_t { bit<8> left; bit<8> value; }
header fourth_t { bit<40> whole; }
header report_t { bit<8> error_code; bit<8> parts; bit<16> length; bit<16> result; }

struct headers_t {
    report_t report;
    first_t first;
    second_t second;
    third_t[3] third;
    fourth_t fourth;
}
struct metadata_t { bit<8> parts; bit<16> result; }

parser parse(packet_in packet, out headers_t h, inout metadata_t m,
             inout standard_metadata_t std) {
    state start {
        packet.extract(h.first);
        m.parts = 1;
        // Nothing fits 6 and 7: NoMatch.
        transition select(h.first.kind & 0xf) {
            0: accept;
            1: reject;
            2: second;
            3: third;
            4: skip;
            5: fourth;
            8 .. 15: second;
        }
    }
    state second {
        packet.extract(h.second);
        m.parts = m.parts + 2;
        verify(h.second.low != 0xf, error.Custom);
        verify(h.second.high != 0, error.Another);
        transition select(h.second.low) {
            0 .. 7: third;
            8: fourth;
            default: accept;
        }
    }
    state third {
        packet.extract(h.third.next);
        m.parts = m.parts + 4;
        transition select(h.third.last.left) {
            0: fourth;
            1 &&& 1: third;
            default: accept;
        }
    }
    state skip {
        packet.advance((bit<32>)h.first.count);
        m.parts = m.parts + 0x40;
        transition fourth;
    }
    state fourth {
        packet.extract(h.fourth);
        m.parts = m.parts + 0x80;
        transition accept;
    }
}

control verify_all(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.first.isValid(), { h.first.kind, h.first.count }, h.first.sum, HashAlgorithm.csum16);
        verify_checksum_with_payload(h.second.isValid(), { h.second.rest }, h.first.sum,
                                     HashAlgorithm.csum16);
    }
}
control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    action add(bit<16> value) { m.result = m.result + value; }
    action revive() { h.second = { 1, 2, 3 }; m.result = m.result ^ 0x8000; }
    action shift() { h.third.push_front(1); h.third[0] = { 9, 9 }; }
    action unshift() { h.third.pop_front(1); }
    action drop() { mark_to_drop(std); }
    table by_parts {
        key = {
            h.first.kind: ternary; h.second.high: ternary; h.fourth.whole: ternary;
            h.second.isValid(): exact @name("second"); h.fourth.isValid(): exact @name("fourth");
        }
        actions = { add; revive; shift; unshift; drop; NoAction; }
        default_action = add(1);
        size = 64;
    }
    table by_checksum {
        key = { m.parts: ternary; std.checksum_error: exact; }
        actions = { add; NoAction; }
        default_action = add(0x100);
        size = 64;
    }
    apply {
        std.egress_spec = 2;
        by_parts.apply();
        by_checksum.apply();
        if (h.third[1].isValid()) { m.result = m.result + (bit<16>)h.third[1].value; }
        if (h.fourth.isValid() && h.fourth.whole[0:0] == 1) { h.fourth.setInvalid(); }
        h.report.setValid();
        h.report.parts = m.parts;
        h.report.result = m.result;
        h.report.length = (bit<16>)std.packet_length;
        if (std.parser_error == error.NoError) { h.report.error_code = 0; }
        else if (std.parser_error == error.PacketTooShort) { h.report.error_code = 1; }
        else if (std.parser_error == error.NoMatch) { h.report.error_code = 2; }
        else if (std.parser_error == error.StackOutOfBounds) { h.report.error_code = 3; }
        else if (std.parser_error == error.ParserInvalidArgument) { h.report.error_code = 6; }
        else if (std.parser_error == error.Custom) { h.report.error_code = 9; }
        else if (std.parser_error == error.Another) { h.report.error_code = 10; }
        else { h.report.error_code = 0xff; }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }
control update_all(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.first.isValid(), { h.first.kind, h.first.count }, h.first.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(h.fourth.isValid() && h.second.isValid(), { h.second.rest },
                                     h.fourth.whole, HashAlgorithm.crc32);
    }
}
control deparse(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(parse(), verify_all(), ingress(), egress(), update_all(), deparse()) main;
