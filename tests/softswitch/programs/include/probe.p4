// SPDX-License-Identifier: Apache-2.0
// What the programs share: an Ethernet header, and one of fields of many widths. The includer
// defines metadata_t.
#ifndef PROBE_P4
#define PROBE_P4

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header probe_t {
    bit<8>   op;
    bit<3>   x;
    bit<13>  y;
    bit<8>   a;
    bit<16>  b;
    bit<32>  c;
    bit<64>  d;
    bit<128> e;
    int<8>   i;
    int<16>  j;
}

struct headers_t {
    ethernet_t ethernet;
    probe_t    probe;
}

parser probe_parser(packet_in packet, out headers_t h, inout metadata_t m,
                    inout standard_metadata_t std) {
    state start {
        packet.extract(h.ethernet);
        packet.extract(h.probe);
        transition accept;
    }
}

control no_checksums(inout headers_t h, inout metadata_t m) { apply { } }

control probe_deparser(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

#endif
