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

// What a packet too short for it has for a probe: values of the Ethernet header, so that controls run on
// with what the parser left. (Fields of invalid headers are undefined; BMv2 has an earlier packet's.)
control complete(inout headers_t h, in standard_metadata_t std) {
    apply {
        if (!h.probe.isValid()) {
            h.probe.setValid();
            h.probe.op = h.ethernet.dst[7:0] & 0x1f;
            h.probe.x = h.ethernet.dst[10:8];
            h.probe.y = h.ethernet.dst[28:16];
            h.probe.a = h.ethernet.dst[39:32];
            h.probe.b = h.ethernet.src[15:0];
            h.probe.c = std.packet_length;
            h.probe.d = h.ethernet.src ++ h.ethernet.dst[15:0];
            h.probe.e = h.ethernet.src ++ h.ethernet.dst ++ 32w7;
            h.probe.i = (int<8>)h.ethernet.src[23:16];
            h.probe.j = -1;
        }
    }
}

control no_checksums(inout headers_t h, inout metadata_t m) { apply { } }

control probe_deparser(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

#endif
