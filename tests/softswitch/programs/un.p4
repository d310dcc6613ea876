// SPDX-License-Identifier: Apache-2.0
// The least that forwards by a micro-SID (uN, RFC 9800 NEXT-CSID): shift the carrier, look the next
// one up. scripts/bench_switch.py measures switches with it.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header ipv6_t {
    bit<4>   version;
    bit<8>   traffic_class;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> src;
    bit<128> dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv6_t     ipv6;
}

struct metadata_t { }

parser un_parser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.ether_type) {
            0x86DD: parse_ipv6;
            default: accept;
        }
    }
    state parse_ipv6 {
        packet.extract(h.ipv6);
        transition accept;
    }
}

control no_checksums(inout headers_t h, inout metadata_t m) { apply { } }

control ingress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) forwarded;

    action drop() { mark_to_drop(std); }
    action un() { h.ipv6.dst = h.ipv6.dst[127:96] ++ h.ipv6.dst[79:0] ++ 16w0; }
    action forward(bit<9> port, bit<48> dst, bit<48> src) {
        forwarded.count();
        h.ethernet.dst = dst;
        h.ethernet.src = src;
        h.ipv6.hop_limit = h.ipv6.hop_limit - 1;
        std.egress_spec = port;
    }

    table my_sid {
        key = { h.ipv6.dst[127:80] : exact @name("locator_node"); }
        actions = { un; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 16;
    }
    table routes {
        key = { h.ipv6.dst[127:80] : exact @name("locator_node"); }
        actions = { forward; @defaultonly drop; }
        const default_action = drop;
        counters = forwarded;
        size = 65536;
    }

    apply {
        if (h.ipv6.isValid() && h.ipv6.hop_limit > 1) {
            my_sid.apply();
            routes.apply();
        } else {
            drop();
        }
    }
}

control egress(inout headers_t h, inout metadata_t m, inout standard_metadata_t std) { apply { } }
control un_deparser(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(un_parser(), no_checksums(), ingress(), egress(), no_checksums(), un_deparser()) main;
