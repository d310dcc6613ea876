// SPDX-License-Identifier: Apache-2.0
// Data plane of an MRC NIC: per-packet spraying between one host port and the plane ports (v1model).
//
//   host --+-- in-block destination: host's own carrier --------------------------> plane of uSID 0
//          +-- destinations --+-- EV chosen by the host ----------------+
//                             +-- group_cfg - plane_sets - slots: an EV +-- carrier --> plane of EV
//                             +-- ecmp: plane by flow hash, no carrier -----------> plane
//
//   plane --+-- carrier: own_sid - decapsulate - merge ECN --+-- own_address --> host
//           +-- plain (ECMP baseline) -----------------------+
#include <core.p4>
#include <v1model.p4>

#include "include/types.p4"
#include "include/headers.p4"
#include "include/drops.p4"
#include "include/usid.p4"
#include "include/segments.p4"
#include "include/carrier.p4"
#include "include/ecn.p4"

const port_t HOST_PORT        = 1;
const port_t FIRST_PLANE_PORT = 2;   // plane p is port p + 2

const bit<32> DESTINATIONS  = 4096;  // one per T0 group and as many exceptions
const bit<32> PORTS         = 512;
const bit<32> SMALL_TABLE   = 16;    // one entry per port or address of the NIC
const bit<32> BLOCK_ENTRIES = 4;

const bit<4> FLOW_LABEL_EV_CHOSEN = 0xE;  // flow label [19:16] of a packet whose EV the host chose

const bit<8> OUTER_HOP_LIMIT = 64;

// What a packet-out asks for; the packet-in that answers repeats it with the value now in force.
// (P4Runtime on BMv2 cannot reach registers.)
enum bit<8> cpu_op_t {
    READ_DOWN_PLANES  = 1,
    WRITE_DOWN_PLANES = 2
}

@controller_header("packet_in")
header packet_in_t {
    bit<8>  op;
    bit<16> index;
    bit<64> value;
}

@controller_header("packet_out")
header packet_out_t {
    bit<8>  op;
    bit<16> index;
    bit<64> value;
}

typedef bit<10> group_id_t;
typedef bit<8>  plane_mask_t;    // bit p: plane p

struct headers_t {
    packet_in_t                 packet_in;
    packet_out_t                packet_out;
    ethernet_t                  ethernet;
    ipv6_t                      outer_ipv6;  // between NIC and T0 only
    srh_t                       srh;
    srh_segment_t[MAX_SEGMENTS] segments;
    ipv6_t                      ipv6;        // the host's own header
    l4_ports_t                  l4_ports;
}

enum bit<2> selection_t {
    RANDOM      = 0,
    ROUND_ROBIN = 1,
    FLOW_HASH   = 2     // ECMP: one plane per flow, no carrier, the fabric chooses the rest
}

struct metadata_t {
    drop_reason_t   drop_reason;
    selection_t     selection;
    bool            t0_local;
    ipv6_addr_t     template;
    group_id_t      group_id;
    bit<8>          generation;
    bit<16>         slots_per_plane;
    bit<8>          plane_set;
    plane_mask_t    down_planes;
    bit<8>          plane_choices;
    bit<48>         planes;
    plane_t         plane;
    bit<16>         slot;
    path_ev_t       path_ev;
}

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
        transition accept;
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
            NEXT_HEADER_UDP: parse_l4_ports;
            NEXT_HEADER_TCP: parse_l4_ports;
            default: accept;
        }
    }
    state parse_l4_ports {
        packet.extract(hdr.l4_ports);
        transition accept;
    }
}

control NicVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

#include "include/spray.p4"

control NicIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) locator_block_counter;
    direct_counter(CounterType.packets_and_bytes) destinations_counter;
    direct_counter(CounterType.packets_and_bytes) own_sid_counter;
    direct_counter(CounterType.packets_and_bytes) own_address_counter;
    direct_counter(CounterType.packets_and_bytes) link_macs_counter;
    @name("port_in") counter(PORTS, CounterType.packets_and_bytes) port_in;
    @name("drops") counter(DROP_REASONS, CounterType.packets_and_bytes) drops;

    register<plane_mask_t>(1) down_planes;

    Spray() spray;
    CrossT1Carrier() cross_t1_carrier;
    T0LocalCarrier() t0_local_carrier;
    MergeEcn() merge_ecn;

    action drop(drop_reason_t reason) {
        meta.drop_reason = reason;
    }

    action in_block() { }
    action not_in_block() { }

    // The fabric's locator block: a destination inside it is a carrier that the host built itself.
    @name("locator_block")
    table locator_block {
        key = { LOCATOR_BLOCK(hdr.ipv6.dst_addr): exact @name("block"); }
        actions = { in_block; @defaultonly not_in_block; }
        const default_action = not_in_block();
        counters = locator_block_counter;
        size = BLOCK_ENTRIES;
    }

    // The template of the destination's T0 group and the spray group that serves it.
    action cross_t1(ipv6_addr_t template, group_id_t group_id) {
        meta.template = template;
        meta.group_id = group_id;
        meta.t0_local = false;
    }
    action t0_local(ipv6_addr_t template, group_id_t group_id) {
        meta.template = template;
        meta.group_id = group_id;
        meta.t0_local = true;
    }
    // The baseline: one plane per flow out of this set, and no carrier.
    action ecmp(bit<8> plane_set) {
        meta.selection = selection_t.FLOW_HASH;
        meta.plane_set = plane_set;
    }
    action no_destination() { drop(drop_reason_t.NO_DESTINATION); }

    @name("destinations")
    table destinations {
        key = { hdr.ipv6.dst_addr: lpm @name("dst_addr"); }
        actions = { cross_t1; t0_local; ecmp; @defaultonly no_destination; }
        const default_action = no_destination();
        counters = destinations_counter;
        size = DESTINATIONS;
    }

    // Is the carrier that has arrived on this port this NIC's own?
    action own_carrier() { }
    action not_own_carrier() { drop(drop_reason_t.NOT_OWN_CARRIER); }

    @name("own_sid")
    table own_sid {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
            hdr.outer_ipv6.dst_addr: exact @name("outer_dst");
        }
        actions = { own_carrier; @defaultonly not_own_carrier; }
        const default_action = not_own_carrier();
        counters = own_sid_counter;
        size = SMALL_TABLE;
    }

    action deliver() { standard_metadata.egress_spec = HOST_PORT; }
    action not_own_address() { drop(drop_reason_t.NOT_OWN_ADDRESS); }

    @name("own_address")
    table own_address {
        key = { hdr.ipv6.dst_addr: exact @name("dst_addr"); }
        actions = { deliver; @defaultonly not_own_address; }
        const default_action = not_own_address();
        counters = own_address_counter;
        size = SMALL_TABLE;
    }

    action set_macs(mac_addr_t dst_mac, mac_addr_t src_mac) {
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ethernet.src_addr = src_mac;
    }
    action no_link() { drop(drop_reason_t.NO_LINK); }

    // Both ends of the link behind each port: T0s on the plane ports, the host on its own.
    @name("link_macs")
    table link_macs {
        key = { standard_metadata.egress_spec: exact @name("egress_port"); }
        actions = { set_macs; @defaultonly no_link; }
        const default_action = no_link();
        counters = link_macs_counter;
        size = SMALL_TABLE;
    }

    action send_to_plane(plane_t plane) {
        standard_metadata.egress_spec = FIRST_PLANE_PORT + (bit<9>) plane;
    }

    // Outer header in front of the host's: DSCP and ECN copied out (RFC 6040 normal mode), the flow
    // label repeated, so that a switch which hashes sees what the receiver will echo.
    action encapsulate(ipv6_addr_t carrier) {
        hdr.outer_ipv6.setValid();
        hdr.outer_ipv6.version = 6;
        hdr.outer_ipv6.dscp = hdr.ipv6.dscp;
        hdr.outer_ipv6.ecn = hdr.ipv6.ecn;
        hdr.outer_ipv6.flow_label = hdr.ipv6.flow_label;
        hdr.outer_ipv6.payload_len = hdr.ipv6.payload_len + IPV6_HDR_BYTES;
        hdr.outer_ipv6.next_header = NEXT_HEADER_IPV6;
        hdr.outer_ipv6.hop_limit = OUTER_HOP_LIMIT;
        hdr.outer_ipv6.src_addr = hdr.ipv6.src_addr;
        hdr.outer_ipv6.dst_addr = carrier;
    }

    action decapsulate() {
        hdr.outer_ipv6.setInvalid();
        hdr.srh.setInvalid();
        hdr.segments[0].setInvalid();
        hdr.segments[1].setInvalid();
        hdr.segments[2].setInvalid();
        hdr.segments[3].setInvalid();
    }

    apply {
        if (hdr.packet_out.isValid()) {
            if (hdr.packet_out.op == cpu_op_t.WRITE_DOWN_PLANES) {
                down_planes.write(0, (plane_mask_t) hdr.packet_out.value);
            }
            plane_mask_t in_force;
            down_planes.read(in_force, 0);
            hdr.packet_in.setValid();
            hdr.packet_in.op = hdr.packet_out.op;
            hdr.packet_in.index = hdr.packet_out.index;
            hdr.packet_in.value = (bit<64>) in_force;
            hdr.packet_out.setInvalid();
            standard_metadata.egress_spec = CPU_PORT;
            exit;
        }
        mark_to_drop(standard_metadata);
        meta.drop_reason = drop_reason_t.NONE;
        port_in.count((bit<32>) standard_metadata.ingress_port);

        if (!hdr.ethernet.isValid()) {
            drop(drop_reason_t.TRUNCATED);
        } else if (hdr.ethernet.ether_type != ETHERTYPE_IPV6) {
            drop(drop_reason_t.NOT_IPV6);
        } else if (!hdr.ipv6.isValid()) {
            if (hdr.srh.isValid() && standard_metadata.parser_error == error.NoError) {
                drop(drop_reason_t.BAD_SRH);
            } else {
                drop(drop_reason_t.TRUNCATED);
            }
        } else if (hdr.ipv6.version != 6
                || (hdr.outer_ipv6.isValid() && hdr.outer_ipv6.version != 6)) {
            drop(drop_reason_t.NOT_IPV6);
        } else if (standard_metadata.ingress_port == HOST_PORT) {
            // ---------------------------------------------------------------------- sending
            if (locator_block.apply().hit) {
                send_to_plane(ACTIVE_PLANE(hdr.ipv6.dst_addr));
            } else if (destinations.apply().hit) {
                if (hdr.ipv6.flow_label[19:16] == FLOW_LABEL_EV_CHOSEN) {
                    meta.path_ev = hdr.ipv6.flow_label[15:0];
                } else {
                    down_planes.read(meta.down_planes, 0);
                    spray.apply(hdr, meta);
                }
                // The only thing that the NIC writes into the host's packet; neither UDP checksum nor
                // ICRC covers it, and the receiver echoes it.
                hdr.ipv6.flow_label = 4w0 ++ meta.path_ev;
                send_to_plane(EV_PLANE(meta.path_ev));
                if (meta.selection != selection_t.FLOW_HASH) {
                    ipv6_addr_t carrier;
                    bit<10> downlink = hdr.ipv6.dst_addr[9:0] - 1;
                    if (meta.t0_local) {
                        t0_local_carrier.apply(meta.template, meta.path_ev, downlink, carrier);
                    } else {
                        cross_t1_carrier.apply(meta.template, meta.path_ev, downlink, carrier);
                    }
                    encapsulate(carrier);
                }
            }
        } else {
            // -------------------------------------------------------------------- receiving
            if (hdr.outer_ipv6.isValid()) {
                if (own_sid.apply().hit) {
                    bool illegal_ecn;
                    merge_ecn.apply(hdr.outer_ipv6.ecn, hdr.ipv6.ecn, illegal_ecn);
                    if (hdr.srh.isValid() && hdr.srh.segments_left != 0) {
                        drop(drop_reason_t.BAD_SRH);
                    } else if (illegal_ecn) {
                        drop(drop_reason_t.ECN_NOT_ECT);
                    }
                    decapsulate();
                }
            }
            if (meta.drop_reason == drop_reason_t.NONE) {
                own_address.apply();
            }
        }

        if (meta.drop_reason == drop_reason_t.NONE) {
            link_macs.apply();
        }
        if (meta.drop_reason != drop_reason_t.NONE) {
            drops.count((bit<32>) (bit<8>) meta.drop_reason);
            mark_to_drop(standard_metadata);
        }
    }
}

control NicEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    @name("port_out") counter(PORTS, CounterType.packets_and_bytes) port_out;

    apply {
        port_out.count((bit<32>) standard_metadata.egress_port);
    }
}

control NicComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
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
    }
}

V1Switch(NicParser(), NicVerifyChecksum(), NicIngress(), NicEgress(), NicComputeChecksum(),
         NicDeparser()) main;
