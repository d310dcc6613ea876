// SPDX-License-Identifier: Apache-2.0
// What p4c compiles and BMv2 refuses or gets wrong: validity, keys, whole headers and bools of stack
// elements at run-time indices; bools in a hash; a message in the deparser.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header choice_t {
    bit<8>  op;
    bit<8>  at;
    bit<8>  from;
    bit<24> result;
}

header item_t {
    bool    flag;
    bit<7>  rest;
    bit<24> value;
}

struct headers_t { ethernet_t ethernet; choice_t choice; item_t[3] items; }
struct metadata_t { bit<8> at; bit<8> from; }

parser beyond_parser(packet_in packet, out headers_t h, inout metadata_t m,
                     inout standard_metadata_t std) {
    state start {
        packet.extract(h.ethernet);
        packet.extract(h.choice);
        packet.extract(h.items[0]);
        packet.extract(h.items[1]);
        m.at = h.choice.at;
        m.from = h.choice.from;
        transition accept;
    }
}

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    action found(bit<24> result) { h.choice.result = result; }
    table choose {
        key = { h.items[m.at].value: exact; h.items[m.from].isValid(): exact; }
        actions = { found; NoAction; }
    }

    apply {
        std.egress_spec = 2;
        switch (h.choice.op) {
            0: { if (h.items[m.at].isValid()) { h.choice.result = 1; } }
            1: { h.items[m.at].setValid(); h.items[m.from].setInvalid(); }
            2: { h.items[m.at] = h.items[m.from]; }
            3: { h.items[m.at].flag = h.items[m.from].flag; }
            4: { choose.apply(); }
            5: { hash(h.choice.result, HashAlgorithm.identity, 24w0, { h.items[0].flag, h.items[1].flag, 6w5 }, 24w0xffffff); }
            6: { h.items[m.at].value = h.items[m.from].value + 1; }
        }
    }
}
control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }

control no_checksums(inout headers_t h, inout metadata_t m) { apply { } }

control beyond_deparser(packet_out packet, in headers_t h) {
    apply {
        log_msg("leaving with {}", { h.choice.result });
        packet.emit(h);
    }
}

V1Switch(beyond_parser(), no_checksums(), ingress(), egress(),
         no_checksums(), beyond_deparser()) main;
