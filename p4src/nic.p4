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

// One destination per T0 group and as many exceptions; one spray group per destination. 256 slots for
// each of 512 groups fill `slots` at full size.
const bit<32> DESTINATIONS  = 4096;
const bit<32> GROUPS        = 1024;
const bit<32> PLANE_SETS    = 4096;  // plane set x mask of planes that are down
const bit<32> SLOTS         = 131072;
const bit<32> GROUP_PLANES  = 8192;  // GROUPS x 8
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

// Which EV the next packet of a spray group takes. The plane is chosen first, among the live ones, so
// that every plane carries its share whatever the number of paths in it; then a slot of that plane.
control Spray(in headers_t hdr, inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) group_cfg_counter;
    direct_counter(CounterType.packets_and_bytes) plane_sets_counter;
    direct_counter(CounterType.packets_and_bytes) slots_counter;

    // Next plane choice of each group, next slot of each group and plane (round robin).
    register<bit<16>>(GROUPS) next_choice;
    register<bit<16>>(GROUP_PLANES) next_slot;

    action spray_random(bit<8> generation, bit<16> slots, bit<8> plane_set) {
        meta.selection = selection_t.RANDOM;
        meta.generation = generation;
        meta.slots_per_plane = slots;
        meta.plane_set = plane_set;
    }
    action spray_round_robin(bit<8> generation, bit<16> slots, bit<8> plane_set) {
        meta.selection = selection_t.ROUND_ROBIN;
        meta.generation = generation;
        meta.slots_per_plane = slots;
        meta.plane_set = plane_set;
    }
    action no_group() { meta.drop_reason = drop_reason_t.NO_GROUP; }

    // A group's generation and number of slots change in one MODIFY, after the new generation's slots
    // have been written: no packet ever meets a half-written set.
    @name("group_cfg")
    table group_cfg {
        key = { meta.group_id: exact @name("group_id"); }
        actions = { spray_random; spray_round_robin; @defaultonly no_group; }
        const default_action = no_group();
        counters = group_cfg_counter;
        size = GROUPS;
    }

    action choose_from(bit<8> count, bit<48> planes) {
        meta.plane_choices = count;
        meta.planes = planes;
    }
    action no_live_plane() { meta.drop_reason = drop_reason_t.NO_LIVE_PLANE; }

    // Up to 16 choices of 3 bits, the first in the lowest bits; a plane is in it as often as it weighs.
    @name("plane_sets")
    table plane_sets {
        key = {
            meta.plane_set: exact @name("plane_set");
            meta.down_planes: exact @name("down_planes");
        }
        actions = { choose_from; @defaultonly no_live_plane; }
        const default_action = no_live_plane();
        counters = plane_sets_counter;
        size = PLANE_SETS;
    }

    action use_path(path_ev_t path_ev) { meta.path_ev = path_ev; }
    action no_slot() { meta.drop_reason = drop_reason_t.NO_SLOT; }

    @name("slots")
    table slots {
        key = {
            meta.group_id: exact @name("group_id");
            meta.generation: exact @name("generation");
            meta.plane: exact @name("plane");
            meta.slot: exact @name("slot");
        }
        actions = { use_path; @defaultonly no_slot; }
        const default_action = no_slot();
        counters = slots_counter;
        size = SLOTS;
    }

    apply {
        if (meta.selection != selection_t.FLOW_HASH) {
            group_cfg.apply();
        }
        if (meta.drop_reason == drop_reason_t.NONE && plane_sets.apply().hit) {
            bit<16> choice = 0;
            if (meta.selection == selection_t.ROUND_ROBIN) {
                next_choice.read(choice, (bit<32>) meta.group_id);
                // ">=": there are fewer choices as soon as a plane goes down.
                if (choice >= (bit<16>) meta.plane_choices) {
                    choice = 0;
                }
                next_choice.write((bit<32>) meta.group_id, choice + 1);
            } else if (meta.selection == selection_t.RANDOM) {
                random(choice, 0, (bit<16>) meta.plane_choices - 1);
            } else {
                // An invalid header's fields are undefined, and would scatter a flow without ports.
                bit<16> src_port = 0;
                bit<16> dst_port = 0;
                if (hdr.l4_ports.isValid()) {
                    src_port = hdr.l4_ports.src_port;
                    dst_port = hdr.l4_ports.dst_port;
                }
                // The fields in another order than in fabric.p4's ECMP: with the same hash twice, all
                // flows of a plane would take the same uplink of the T0.
                hash(choice, HashAlgorithm.crc32, 16w0,
                     { src_port, dst_port, hdr.ipv6.next_header,
                       hdr.ipv6.flow_label, hdr.ipv6.dst_addr, hdr.ipv6.src_addr },
                     (bit<16>) meta.plane_choices);
            }
            bit<48> first_is_chosen = meta.planes >> (bit<8>) (choice + choice + choice);
            meta.plane = first_is_chosen[2:0];

            if (meta.selection == selection_t.FLOW_HASH) {
                meta.path_ev = meta.plane ++ 13w0;
            } else {
                if (meta.selection == selection_t.ROUND_ROBIN) {
                    bit<32> index = (bit<32>) (meta.group_id ++ meta.plane);
                    next_slot.read(meta.slot, index);
                    if (meta.slot >= meta.slots_per_plane) {
                        meta.slot = 0;
                    }
                    next_slot.write(index, meta.slot + 1);
                } else {
                    random(meta.slot, 0, meta.slots_per_plane - 1);
                }
                slots.apply();
            }
        }
    }
}

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
