// SPDX-License-Identifier: Apache-2.0
// Headers and metadata of nic.p4.
#ifndef MRC_NIC_HEADERS_P4
#define MRC_NIC_HEADERS_P4

#include "types.p4"
#include "headers.p4"
#include "segments.p4"
#include "drops.p4"
#include "ev_event.p4"

const port_t HOST_PORT        = 1;
const port_t FIRST_PLANE_PORT = 2;   // plane p is port p + 2

// What a packet-out asks for; the packet-in that answers repeats it with the value now in force.
// (P4Runtime on BMv2 cannot reach registers.)
enum bit<8> cpu_op_t {
    READ_DOWN_PLANES  = 1,
    WRITE_DOWN_PLANES = 2,
    // Of a path group, all in the generation in force, which writing another one replaces.
    // index: path group ++ plane; value: index of the path (32), path EV (16), generation (8),
    // path_cell_t (8)
    READ_PATH         = 3,
    WRITE_PATH        = 4,
    // index: path group ++ plane; value: generation (8), number (8), 255 for more
    READ_INACTIVE     = 5,
    WRITE_INACTIVE    = 6,
    // index: path group; value: generation (8), mask (8)
    READ_ASSUMED      = 7,
    WRITE_ASSUMED     = 8,
    // A frame follows and is treated as if the host had sent it. There is no answer: what becomes of it
    // is counted in `port_in` of the CPU port, and in `port_out` or `drops`.
    INJECT            = 9,
    // index: cell; value: peer_cell_t with the age (1.024 ms) instead of the time, 0 when it is free
    READ_PEER_DOWN    = 10,
    WRITE_PEER_DOWN   = 11
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
    udp_length_t                udp_length;
    bth_t                       bth;
    seth_t                      seth;
    meth_t                      meth;        // with a TSETH behind it only
    tseth_t                     tseth;
    neth_t                      neth;
    icrc_t                      icrc;        // of what the NIC itself makes
    endpoint_op_t               endpoint_op;
    port_status_t               port_status;
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
    plane_mask_t    peer_down;       // planes on which the peer cannot be reached
    bit<8>          plane_choices;
    bit<48>         planes;
    plane_t         plane;
    bit<16>         slot;
    path_ev_t       path_ev;
    path_ev_t       second_ev;
    path_ev_t       third_ev;
    path_ev_t       fourth_ev;
    bit<2>          copies;          // how many are sent, from 2 on each on another plane
    bool            replicated;      // by the first T0, over two T1s
    plane_mask_t    live_planes;
    bit<8>          turn;            // of a plane to carry the first copy
    plane_mask_t    copy_planes;
    path_ev_t       first_copy;
    path_ev_t       second_copy;
    path_ev_t       third_copy;
    ipv6_addr_t     peer;            // at the other end of this packet
    bool            sending;
    bool            trimmed;         // a switch has cut off its payload
    bit<8>          nack_reason;     // that says so to its sender
    bit<6>          nack_dscp;
    bool            feedback;        // arrives and says how packets to the peer fared
    bool            notice;          // arrives and says which of the peer's ports are up
    bit<10>         path_group;
    bit<8>          uplink_bits;
    plane_mask_t    usable_planes;
    bit<64>         retirable;
    bit<4>          probe_successes;
    bit<32>         epoch;           // of the path group
    bit<20>         path;
    bit<8>          path_cell;
    bit<2>          best_state;      // of the paths looked at
    bit<16>         psn_tag;
    bit<24>         psn;
    bit<32>         psn_index;
    bit<64>         psn_cell;
    bool            psn_found;
    path_ev_t       feedback_ev;
    ev_cause_t      feedback_cause;
    ev_cause_t      event_cause;
    ev_event_t      event;
}

#endif
