// SPDX-License-Identifier: Apache-2.0
// Select with masks and ranges, lookahead, advance, a header stack, verify and parser errors.
#include <core.p4>
#include <v1model.p4>

error { BadTotal }

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header item_t { bit<1> last; bit<7> kind; bit<8> value; }
header report_t { bit<8> error_code; bit<8> path; bit<16> length; }
header tail_t { bit<8> total; bit<4> low; bit<4> high; }

struct headers_t { report_t report; ethernet_t ethernet; item_t[4] items; tail_t tail; }
struct metadata_t { bit<8> path; bit<8> ahead; bit<20> wide; }

parser parse(packet_in packet, out headers_t h, inout metadata_t m,
             inout standard_metadata_t std) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.ether_type, h.ethernet.src[7:0]) {
            (0x0800 &&& 0xff00, _): items;
            (0x1000 .. 0x1007, 5): peek;
            (0x1000 .. 0x1007, 0x80 &&& 0x80): skip;
            (0x2000, _): tail;
            default: accept;
        }
    }
    state items {
        packet.extract(h.items.next);
        transition select(h.items.last.last, h.items.last.kind) {
            (1, 3): tail;
            (1, _): accept;
            (0, 0x7f): reject;
            (0, _): items;
        }
    }
    state peek {
        m.ahead = packet.lookahead<bit<8>>();
        m.wide = packet.lookahead<bit<20>>();
        m.path = 1;
        transition select(packet.lookahead<bit<4>>()) {
            3: items;
            4: skip;
            default: accept;
        }
    }
    state skip {
        m.path = m.path + 2;
        packet.advance(((bit<32>)h.ethernet.dst[3:0]) << 3);
        transition tail;
    }
    state tail {
        packet.extract(h.tail);
        verify(h.tail.total != 0x55, error.BadTotal);
        m.path = m.path + 4;
        transition accept;
    }
}

control verify_nothing(inout headers_t h, inout metadata_t m) { apply { } }
control update_nothing(inout headers_t h, inout metadata_t m) { apply { } }

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    apply {
        h.report.setValid();
        h.report.path = m.path ^ m.ahead ^ m.wide[7:0];
        h.report.length = (bit<16>)std.packet_length;
        if (std.parser_error == error.NoError) { h.report.error_code = 0; }
        else if (std.parser_error == error.PacketTooShort) { h.report.error_code = 1; }
        else if (std.parser_error == error.StackOutOfBounds) { h.report.error_code = 3; }
        else if (std.parser_error == error.BadTotal) { h.report.error_code = 9; }
        else { h.report.error_code = 0xff; }
        if (h.items[2].isValid()) { h.items.pop_front(1); }
        else if (h.items[0].isValid()) { h.items.push_front(1); h.items[0].setValid(); h.items[0] = { 0, 1, 2 }; }
        std.egress_spec = 2;
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }
control deparse(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(parse(), verify_nothing(), ingress(), egress(), update_nothing(), deparse()) main;
