// SPDX-License-Identifier: Apache-2.0
// Elements of header stacks at run-time indices: read, written, copied, compared; lastIndex, size.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header choice_t {
    bit<8> op;
    bit<8> index;
    bit<8> other;
    bit<8> result;
}

header item_t {
    bit<1>   last;
    bit<7>   next;
    int<8>   signed;
    bit<160> wide;
    bit<24>  value;
}

struct headers_t { ethernet_t ethernet; choice_t choice; item_t[4] items; item_t[4] copies; item_t spare; }
struct metadata_t { bit<8> at; bit<8> from; bit<8> total; }

parser stack_parser(packet_in packet, out headers_t h, inout metadata_t m,
                    inout standard_metadata_t std) {
    state start {
        packet.extract(h.ethernet);
        packet.extract(h.choice);
        m.at = h.choice.index & 3;
        m.from = h.choice.other & 3;
        transition items;
    }
    state items {
        packet.extract(h.items.next);
        m.total = m.total + (bit<8>)h.items.lastIndex;
        transition select(h.items.last.last) {
            0: items;
            default: accept;
        }
    }
}

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    bit<24> sum = 0;
    action add() { sum = h.items[m.at].value + h.items[m.from].value; }

    apply {
        // Fields of invalid headers are undefined; BMv2 leaves those of an earlier packet there. So are
        // elements beyond the end, at which BMv2 ends.
        if (!h.items[3].isValid()) {
            std.egress_spec = 1;
            if (h.choice.op == 12) { h.items.push_front(1); }
            if (h.choice.op == 13) { h.items.pop_front(2); }
            if (h.choice.op == 14) { h.items.push_front(3); }
            return;
        }
        std.egress_spec = 2;
        h.choice.result = m.total;
        switch (h.choice.op) {
            0: { h.items[m.at].value = h.items[m.from].value + 1; }
            1: { h.items[m.at].wide = h.items[m.from].wide * 3; h.items[m.at].signed = -h.items[m.from].signed; }
            2: { h.items[m.at].next = h.items[m.from].next << h.items[m.at].next; }
            3: { h.items[m.at].value = h.items[(bit<2>)h.items[m.from].next == 0 ? m.at : m.from].value - 2; }
            4: { h.spare = h.items[m.from]; h.spare.last = 1; }
            5: { h.copies = h.items; h.items[1].setInvalid(); h.items[2] = h.copies[3]; }
            6: { if (h.items[m.at].signed > h.items[m.from].signed) { h.choice.result = 1; } }
            7: { h.spare = h.items[1]; if (h.spare == h.items[2]) { h.choice.result = 77; } h.spare.setInvalid(); }
            8: { h.items[m.from].last = h.items[m.at].last; sum = h.items[m.at].value ^ h.items[m.from].value; h.items[0].value = sum; }
            9: { h.choice.result = (bit<8>)h.items[m.from].wide[100:93]; h.items[m.at].wide[99:4] = h.items[m.from].wide[159:64]; }
            10: { h.items.push_front(2); h.items[1].setValid(); h.items[1].value = h.items[m.from].value; }
            11: { h.items.pop_front(1); h.items[m.at].value = 5; }
            default: { add(); h.items[1].value = sum; }
        }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

control no_checksums(inout headers_t h, inout metadata_t m) { apply { } }

control stack_deparser(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(stack_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), stack_deparser()) main;
