// SPDX-License-Identifier: Apache-2.0
// Parser and deparser of nic.p4.
#ifndef MRC_NIC_PARSER_P4
#define MRC_NIC_PARSER_P4

#include "nic_headers.p4"

parser NicParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition select(hdr.packet_out.op) {
            cpu_op_t.INJECT: parse_injected;
            default: accept;
        }
    }
    state parse_injected {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type, standard_metadata.ingress_port) {
            (ETHERTYPE_IPV6, HOST_PORT): parse_ipv6;
            (ETHERTYPE_IPV6, _): parse_from_plane;
            default: accept;
        }
    }
    // Version to next header, to tell a carrier from a plain packet.
    state parse_from_plane {
        transition select(packet.lookahead<bit<56>>()[7:0]) {
            NEXT_HEADER_IPV6: parse_outer_ipv6;
            NEXT_HEADER_ROUTING: parse_outer_ipv6;
            default: parse_ipv6;
        }
    }
    state parse_outer_ipv6 {
        packet.extract(hdr.outer_ipv6);
        transition select(hdr.outer_ipv6.next_header) {
            NEXT_HEADER_ROUTING: parse_srh;
            default: parse_ipv6;
        }
    }
    state parse_srh {
        packet.extract(hdr.srh);
        transition select(hdr.srh.next_header, hdr.srh.routing_type, hdr.srh.hdr_ext_len) {
            (NEXT_HEADER_IPV6, ROUTING_TYPE_SEGMENT_ROUTING, 2): parse_1_segment;
            (NEXT_HEADER_IPV6, ROUTING_TYPE_SEGMENT_ROUTING, 4): parse_2_segments;
            (NEXT_HEADER_IPV6, ROUTING_TYPE_SEGMENT_ROUTING, 6): parse_3_segments;
            (NEXT_HEADER_IPV6, ROUTING_TYPE_SEGMENT_ROUTING, 8): parse_4_segments;
            default: accept;
        }
    }
    state parse_4_segments {
        packet.extract(hdr.segments.next);
        transition parse_3_segments;
    }
    state parse_3_segments {
        packet.extract(hdr.segments.next);
        transition parse_2_segments;
    }
    state parse_2_segments {
        packet.extract(hdr.segments.next);
        transition parse_1_segment;
    }
    state parse_1_segment {
        packet.extract(hdr.segments.next);
        transition parse_ipv6;
    }
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.next_header) {
            NEXT_HEADER_UDP: parse_udp;
            NEXT_HEADER_TCP: parse_l4_ports;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.l4_ports);
        transition select(hdr.l4_ports.dst_port) {
            UDP_PORT_ROCE: parse_bth;
            UDP_PORT_MRC: parse_bth;
            default: accept;
        }
    }
    state parse_bth {
        packet.extract(hdr.udp_length);
        packet.extract(hdr.bth);
        transition select(hdr.bth.opcode, hdr.bth.ts) {
            (OPCODE_SACK, _): parse_seth;
            (OPCODE_NACK, _): parse_neth;
            (OPCODE_ENDPOINT_REQUEST, _): parse_endpoint_op;
            (OPCODE_ENDPOINT_RESPONSE, _): parse_endpoint_op;
            (OPCODE_WRITE_BASE &&& OPCODE_WRITE_MASK, 1): parse_time_stamp;
            default: accept;
        }
    }
    state parse_time_stamp {
        packet.extract(hdr.meth);
        packet.extract(hdr.tseth);
        transition accept;
    }
    state parse_seth {
        packet.extract(hdr.seth);
        transition accept;
    }
    state parse_neth {
        packet.extract(hdr.neth);
        transition accept;
    }
    state parse_endpoint_op {
        packet.extract(hdr.endpoint_op);
        transition select(hdr.bth.opcode, hdr.endpoint_op.request_op) {
            (OPCODE_ENDPOINT_REQUEST, ENDPOINT_OP_PORT_STATUS): parse_port_status;
            default: accept;
        }
    }
    state parse_port_status {
        packet.extract(hdr.port_status);
        transition accept;
    }
    state parse_l4_ports {
        packet.extract(hdr.l4_ports);
        transition accept;
    }
}

control NicDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.outer_ipv6);
        packet.emit(hdr.srh);
        packet.emit(hdr.segments);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.l4_ports);
        packet.emit(hdr.udp_length);
        packet.emit(hdr.bth);
        packet.emit(hdr.meth);
        packet.emit(hdr.tseth);
        packet.emit(hdr.seth);
        packet.emit(hdr.neth);
        packet.emit(hdr.icrc);
        packet.emit(hdr.endpoint_op);
        packet.emit(hdr.port_status);
    }
}

#endif
