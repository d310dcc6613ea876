// SPDX-License-Identifier: Apache-2.0
// One table in ingress, one in egress, and turns through the switch in between: a packet says whether
// it has seen two writes, one of them or none.
// Compiled by: p4c-bm2-ss --p4runtime-files atomic.p4info.txtpb -o atomic.json atomic.p4

#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

header pair_t {
    bit<8>  turns;
    bit<32> first;
    bit<32> second;
}

struct headers_t {
    pair_t pair;
}

struct meta_t {
}

parser AtomicParser(packet_in pkt, out headers_t hdr, inout meta_t meta,
                    inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.pair);
        transition accept;
    }
}

control AtomicVerify(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control AtomicIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    @name("set_first") action set_first(bit<32> value) {
        hdr.pair.first = value;
    }
    @name("first") table first {
        key = { hdr.pair.second : exact @name("key"); }
        actions = { set_first; NoAction; }
        default_action = NoAction();
    }
    apply {
        std.egress_spec = CPU_PORT;
        if (hdr.pair.first == 0) {
            first.apply();
        }
    }
}

control AtomicEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    @name("set_second") action set_second(bit<32> value) {
        hdr.pair.second = value;
    }
    @name("second") table second {
        key = { hdr.pair.second : exact @name("key"); }
        actions = { set_second; NoAction; }
        default_action = NoAction();
    }
    apply {
        if (hdr.pair.turns == 0) {
            second.apply();
        } else {
            hdr.pair.turns = hdr.pair.turns - 1;
            recirculate_preserving_field_list(0);
        }
    }
}

control AtomicCompute(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control AtomicDeparser(packet_out pkt, in headers_t hdr) {
    apply { pkt.emit(hdr); }
}

V1Switch(AtomicParser(), AtomicVerify(), AtomicIngress(), AtomicEgress(), AtomicCompute(),
         AtomicDeparser()) main;
