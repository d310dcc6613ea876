// SPDX-License-Identifier: Apache-2.0
// T0/T1 switch of an MRC fabric: static SRv6 uN forwarding (v1model).
//
//                   +-- punt (LLDP and the like) ----------------------------> controller
//   packet --parse--+
//                   +-- locator_block --+-- in: my_sid --un--+-- local_sid --+-- ua --> port
//                                       |     |              |               +-- replicate --> two ports
//                                       |     |              |               +-- dt6 -+
//                                       |    miss: drop      +-- usid_fib --> port    |
//                                       |                    (SRH when the carrier    |
//                                       |                     has run out)            |
//                                       +-- out ---------------------> ipv6_fib <-----+
//                                                                       |      +--> port
//                                                                       +-- ecmp_groups --> port
//
//   port --port_config--traffic_classes--+-- data or control queue, marked or trimmed --> egress
//                                        +-- drop
#include <core.p4>
#include <v1model.p4>

#include "include/types.p4"
#include "include/headers.p4"
#include "include/drops.p4"
#include "include/usid.p4"
#include "include/segments.p4"
#include "include/ecn.p4"
#include "include/queue.p4"

// A T0 has itself, up to 512 uplinks and downlinks; a T1 itself and up to 512 T0s: with 8 planes and
// 512 T0s about 513 entries are needed, and twice that has room for a change that is made before break.
const bit<32> MY_SID_ENTRIES      = 1024;
const bit<32> LOCAL_SID_ENTRIES   = 1024;
const bit<32> USID_FIB_ENTRIES    = 2048;
const bit<32> IPV6_FIB_ENTRIES    = 4096;
const bit<32> ECMP_GROUPS         = 512;
const bit<32> PUNT_ENTRIES        = 16;
const bit<32> BLOCK_ENTRIES       = 4;
const bit<32> PORTS               = 512;

@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> pad;
}

@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
    bit<7> pad;
}

struct headers_t {
    packet_in_t                 packet_in;
    packet_out_t                packet_out;
    ethernet_t                  ethernet;
    ipv6_t                      ipv6;         // outer header; a carrier when its block is ours
    srh_t                       srh;
    srh_segment_t[MAX_SEGMENTS] segments;
    ipv6_t                      inner_ipv6;
    l4_ports_t                  l4_ports;     // of the innermost IPv6 header
    udp_length_t                udp_length;
    bth_t                       bth;
    meth_t                      meth;
    tseth_t                     tseth;
}

// Where a packet (replicate.p4) is to be copied to. Without a multicast group to the first port only.
struct replicas_t {
    bool          made;
    bit<16>       multicast_group;
    port_t        first_port;
    port_t        second_port;
    bit<16>       capacity;       // of a data queue in packets, 0: P4 knows nothing of it
    queue_place_t second_place;   // the first one's is the packet's
}

struct metadata_t {
    drop_reason_t drop_reason;
    bool          decapsulate;
    bool          use_ecmp_group;
    bit<16>       ecmp_group_id;
    bit<16>       src_port;       // 0 when the flow has no ports: an invalid header's fields are
    bit<16>       dst_port;       // undefined, and would scatter the flow
    bit<16>       trim_bytes;     // of the frame, 0: not trimmed
    port_config_t port_config;
    queue_place_t place;
    replicas_t    replicas;
}

#include "include/congestion.p4"
#include "include/replicate.p4"

parser FabricParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.next_header) {
            NEXT_HEADER_ROUTING: parse_srh;
            NEXT_HEADER_IPV6: parse_inner_ipv6;
            NEXT_HEADER_UDP: parse_udp;
            NEXT_HEADER_TCP: parse_l4_ports;
            default: accept;
        }
    }
    state parse_srh {
        packet.extract(hdr.srh);
        // Without TLVs the length names the number of segments. Others are forwarded as long as the
        // carrier lasts, and dropped as BAD_SRH where a segment is needed.
        transition select(hdr.srh.routing_type, hdr.srh.hdr_ext_len) {
            (ROUTING_TYPE_SEGMENT_ROUTING, 2): parse_1_segment;
            (ROUTING_TYPE_SEGMENT_ROUTING, 4): parse_2_segments;
            (ROUTING_TYPE_SEGMENT_ROUTING, 6): parse_3_segments;
            (ROUTING_TYPE_SEGMENT_ROUTING, 8): parse_4_segments;
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
        transition select(hdr.srh.next_header) {
            NEXT_HEADER_IPV6: parse_inner_ipv6;
            NEXT_HEADER_UDP: parse_udp;
            NEXT_HEADER_TCP: parse_l4_ports;
            default: accept;
        }
    }
    state parse_inner_ipv6 {
        packet.extract(hdr.inner_ipv6);
        transition select(hdr.inner_ipv6.next_header) {
            NEXT_HEADER_UDP: parse_udp;
            NEXT_HEADER_TCP: parse_l4_ports;
            default: accept;
        }
    }
    state parse_l4_ports {
        packet.extract(hdr.l4_ports);
        transition accept;
    }
    state parse_udp {
        packet.extract(hdr.l4_ports);
        packet.extract(hdr.udp_length);
        transition select(hdr.l4_ports.dst_port) {
            UDP_PORT_ROCE: parse_bth;
            UDP_PORT_MRC: parse_bth;
            default: accept;
        }
    }
    state parse_bth {
        packet.extract(hdr.bth);
        transition select(hdr.bth.opcode, hdr.bth.ts) {
            (OPCODE_WRITE_BASE &&& OPCODE_WRITE_MASK, 0): parse_meth;
            (OPCODE_WRITE_BASE &&& OPCODE_WRITE_MASK, 1): parse_meth_tseth;
            default: accept;
        }
    }
    state parse_meth {
        packet.extract(hdr.meth);
        transition accept;
    }
    state parse_meth_tseth {
        packet.extract(hdr.meth);
        packet.extract(hdr.tseth);
        transition accept;
    }
}

control FabricVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control FabricIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) locator_block_counter;
    direct_counter(CounterType.packets_and_bytes) my_sid_counter;
    direct_counter(CounterType.packets_and_bytes) local_sid_counter;
    direct_counter(CounterType.packets_and_bytes) usid_fib_counter;
    direct_counter(CounterType.packets_and_bytes) ipv6_fib_counter;
    direct_counter(CounterType.packets_and_bytes) ecmp_groups_counter;
    direct_counter(CounterType.packets_and_bytes) punt_counter;
    @name("port_in") counter(PORTS, CounterType.packets_and_bytes) port_in;

    NextSegment() next_segment;
    MergeEcn() merge_ecn;
    TakeQueuePlace() take_queue_place;
    TakeCopyPlaces() take_copy_places;

    action drop(drop_reason_t reason) {
        meta.drop_reason = reason;
    }

    action set_next_hop(port_t port, mac_addr_t dst_mac, mac_addr_t src_mac) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ethernet.src_addr = src_mac;
    }

    // ---- which packets are carriers -------------------------------------------------------------

    action in_block() { }
    action not_in_block() { }

    // The fabric's locator block: what is inside it is a carrier, or does not belong here.
    @name("locator_block")
    table locator_block {
        key = { LOCATOR_BLOCK(hdr.ipv6.dst_addr): exact @name("block"); }
        actions = { in_block; @defaultonly not_in_block; }
        const default_action = not_in_block();
        counters = locator_block_counter;
        size = BLOCK_ENTRIES;
    }

    // ---- SRv6 -----------------------------------------------------------------------------------

    action un() {
        SHIFT_CARRIER(hdr.ipv6.dst_addr)
    }
    action not_my_sid() { drop(drop_reason_t.NOT_MY_SID); }

    // uN, End with NEXT-CSID (RFC 9800 section 4.1): this switch's own uSID.
    @name("my_sid")
    table my_sid {
        key = { LOCATOR_NODE(hdr.ipv6.dst_addr): exact @name("locator_node"); }
        actions = { un; @defaultonly not_my_sid; }
        const default_action = not_my_sid();
        counters = my_sid_counter;
        size = MY_SID_ENTRIES;
    }

    // uA, End.X with NEXT-CSID (RFC 9800 section 4.2): out of this port, whatever comes next.
    action ua(port_t port, mac_addr_t dst_mac, mac_addr_t src_mac) {
        SHIFT_CARRIER(hdr.ipv6.dst_addr)
        set_next_hop(port, dst_mac, src_mac);
    }
    // End.DT6 (RFC 8986 section 4.6): decapsulate, then route by the inner destination.
    action dt6() { meta.decapsulate = true; }
    // On by two T1s at once; egress puts their uSIDs in the place of this one (replicate.p4).
    action replicate(bit<16> multicast_group, port_t first_port, port_t second_port,
                     bit<16> capacity) {
        meta.replicas.made = true;
        meta.replicas.multicast_group = multicast_group;
        meta.replicas.first_port = first_port;
        meta.replicas.second_port = second_port;
        meta.replicas.capacity = capacity;
    }
    action unknown_local_sid() { drop(drop_reason_t.UNKNOWN_LOCAL_SID); }

    // Functions of this switch, after the shift.
    @name("local_sid")
    table local_sid {
        key = { ACTIVE_USID(hdr.ipv6.dst_addr): exact @name("local_sid"); }
        actions = { ua; dt6; replicate; @defaultonly unknown_local_sid; }
        const default_action = unknown_local_sid();
        counters = local_sid_counter;
        size = LOCAL_SID_ENTRIES;
    }

    action forward(port_t port, mac_addr_t dst_mac, mac_addr_t src_mac) {
        set_next_hop(port, dst_mac, src_mac);
    }
    action unknown_usid() { drop(drop_reason_t.UNKNOWN_USID); }

    // The static /48 routes, after the shift and only after a `un` hit: every switch on the way
    // consumes a uSID or drops, so a carrier can never loop.
    @name("usid_fib")
    table usid_fib {
        key = { LOCATOR_NODE(hdr.ipv6.dst_addr): exact @name("locator_node"); }
        actions = { forward; @defaultonly unknown_usid; }
        const default_action = unknown_usid();
        counters = usid_fib_counter;
        size = USID_FIB_ENTRIES;
    }

    // ---- plain IPv6: decapsulated packets, and the ECMP baseline ---------------------------------

    action to_ecmp(bit<16> group_id) {
        meta.use_ecmp_group = true;
        meta.ecmp_group_id = group_id;
    }
    action no_route() { drop(drop_reason_t.NO_ROUTE); }

    @name("ipv6_fib")
    table ipv6_fib {
        key = { hdr.ipv6.dst_addr: lpm @name("dst_addr"); }
        actions = { forward; to_ecmp; @defaultonly no_route; }
        const default_action = no_route();
        counters = ipv6_fib_counter;
        size = IPV6_FIB_ENTRIES;
    }

    // Apart from ipv6_fib, because BMv2 gives a table with a selector no default action. CRC-32: the
    // low bits of CRC-16, whose polynomial has few terms, do not tell neighbouring flows apart.
    @name("ecmp_selector")
    action_selector(HashAlgorithm.crc32, 2048, 32) ecmp_selector;

    @name("ecmp_groups")
    table ecmp_groups {
        key = {
            meta.ecmp_group_id: exact @name("group_id");
            hdr.ipv6.src_addr: selector;
            hdr.ipv6.dst_addr: selector;
            hdr.ipv6.flow_label: selector;
            hdr.ipv6.next_header: selector;
            meta.src_port: selector;
            meta.dst_port: selector;
        }
        actions = { forward; }
        implementation = ecmp_selector;
        counters = ecmp_groups_counter;
        size = ECMP_GROUPS;
    }

    // ---- to the controller ----------------------------------------------------------------------

    action to_controller() { standard_metadata.egress_spec = CPU_PORT; }
    action not_ipv6() { drop(drop_reason_t.NOT_IPV6); }

    @name("punt")
    table punt {
        key = { hdr.ethernet.ether_type: exact @name("ether_type"); }
        actions = { to_controller; @defaultonly not_ipv6; }
        const default_action = not_ipv6();
        counters = punt_counter;
        size = PUNT_ENTRIES;
    }

    apply {
        // Port 0 is a port: start from "drop", so that nothing leaves by accident.
        mark_to_drop(standard_metadata);
        meta.drop_reason = drop_reason_t.NONE;

        bool route_by_ipv6 = false;
        bool route_by_usid = false;
        bool as_it_is = false;      // punted, or sent by the controller

        if (!hdr.packet_out.isValid()) {
            port_in.count((bit<32>) standard_metadata.ingress_port);
        }

        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
            as_it_is = true;
        } else if (!hdr.ethernet.isValid()) {
            drop(drop_reason_t.TRUNCATED);
        } else if (!hdr.ipv6.isValid()) {
            if (hdr.ethernet.ether_type == ETHERTYPE_IPV6) {
                drop(drop_reason_t.TRUNCATED);
            } else {
                as_it_is = punt.apply().hit;
            }
        } else if (hdr.ipv6.version != 6) {
            drop(drop_reason_t.NOT_IPV6);
        } else if (hdr.ipv6.hop_limit <= 1) {
            drop(drop_reason_t.HOP_LIMIT);
        } else if (locator_block.apply().hit) {
            bit<32> block = LOCATOR_BLOCK(hdr.ipv6.dst_addr);
            if (my_sid.apply().hit) {
                if (ACTIVE_KIND(hdr.ipv6.dst_addr) == KIND_LOCAL) {
                    local_sid.apply();
                } else {
                    route_by_usid = true;
                }
                // An empty carrier, after uN or uA: on to the next segment.
                if (!meta.decapsulate && meta.drop_reason == drop_reason_t.NONE
                        && ACTIVE_USID(hdr.ipv6.dst_addr) == 0) {
                    bool found;
                    bool malformed;
                    next_segment.apply(hdr.ipv6, hdr.srh, hdr.segments, found, malformed);
                    if (malformed) {
                        drop(drop_reason_t.BAD_SRH);
                    } else if (!found) {
                        drop(drop_reason_t.CARRIER_ENDED);
                    } else if (LOCATOR_BLOCK(hdr.ipv6.dst_addr) != block && route_by_usid) {
                        route_by_usid = false;  // the segment is a plain address
                        route_by_ipv6 = true;
                    }
                }
            }
        } else {
            route_by_ipv6 = true;
        }

        if (meta.decapsulate) {
            if (!hdr.inner_ipv6.isValid()) {
                drop(drop_reason_t.NOT_ENCAPSULATED);
            } else if (hdr.inner_ipv6.version != 6) {
                drop(drop_reason_t.NOT_IPV6);
            } else if (hdr.srh.isValid() && hdr.srh.segments_left != 0) {
                drop(drop_reason_t.BAD_SRH);
            } else if (hdr.inner_ipv6.hop_limit <= 1) {
                drop(drop_reason_t.HOP_LIMIT);
            } else {
                bool illegal_ecn;
                merge_ecn.apply(hdr.ipv6.ecn, hdr.inner_ipv6.ecn, illegal_ecn);
                if (illegal_ecn) {
                    drop(drop_reason_t.ECN_NOT_ECT);
                }
                hdr.ipv6 = hdr.inner_ipv6;
                hdr.inner_ipv6.setInvalid();
                hdr.srh.setInvalid();
                hdr.segments[0].setInvalid();
                hdr.segments[1].setInvalid();
                hdr.segments[2].setInvalid();
                hdr.segments[3].setInvalid();
                route_by_ipv6 = true;
            }
        }

        if (meta.drop_reason == drop_reason_t.NONE) {
            if (route_by_usid) {
                usid_fib.apply();
            } else if (route_by_ipv6) {
                ipv6_fib.apply();
                if (meta.use_ecmp_group) {
                    if (hdr.l4_ports.isValid()) {
                        meta.src_port = hdr.l4_ports.src_port;
                        meta.dst_port = hdr.l4_ports.dst_port;
                    }
                    ecmp_groups.apply();
                    if (standard_metadata.egress_spec == DROP_PORT) {
                        drop(drop_reason_t.NO_ROUTE);  // no such group
                    }
                }
            }
        }

        if (meta.drop_reason == drop_reason_t.NONE) {
            if (meta.replicas.made) {
                take_copy_places.apply(meta, standard_metadata);
            } else {
                take_queue_place.apply(hdr, meta, standard_metadata);
            }
        }

        if (meta.drop_reason != drop_reason_t.NONE) {
            drops.count((bit<32>) (bit<8>) meta.drop_reason);
            mark_to_drop(standard_metadata);
        } else if (!as_it_is) {
            hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
        }
    }
}

control FabricEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    @name("port_out") counter(PORTS, CounterType.packets_and_bytes) port_out;
    LeaveQueue() leave_queue;
    SendReplica() send_replica;

    apply {
        if (meta.replicas.made) {
            send_replica.apply(hdr, meta, standard_metadata);
        }
        leave_queue.apply(meta.place);
        if (meta.drop_reason == drop_reason_t.NONE) {
            port_out.count((bit<32>) standard_metadata.egress_port);
        }
        if (meta.trim_bytes != 0) {
            truncate((bit<32>) meta.trim_bytes);
        }
        if (standard_metadata.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard_metadata.ingress_port;
            hdr.packet_in.pad = 0;
        }
    }
}

control FabricComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control FabricDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.srh);
        packet.emit(hdr.segments);
        packet.emit(hdr.inner_ipv6);
        packet.emit(hdr.l4_ports);
        packet.emit(hdr.udp_length);
        packet.emit(hdr.bth);
        packet.emit(hdr.meth);
        packet.emit(hdr.tseth);
    }
}

V1Switch(FabricParser(), FabricVerifyChecksum(), FabricIngress(), FabricEgress(),
         FabricComputeChecksum(), FabricDeparser()) main;
