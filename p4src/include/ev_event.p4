// SPDX-License-Identifier: Apache-2.0
// States of a path, what changes them, and the digest that tells the controller (see ev_state.p4).
#ifndef MRC_EV_EVENT_P4
#define MRC_EV_EVENT_P4

enum bit<2> ev_state_t {
    GOOD        = 0,
    SKIP        = 1,
    ASSUMED_BAD = 2,
    DENIED      = 3
}

enum bit<8> ev_cause_t {
    NONE          = 0,
    ACKED         = 1,   // the packet or its headers arrived: no change, but the path is not dead
    SKIP_ONCE     = 2,   // SACK m=01: marked on its way
    TRIMMED       = 3,   // NACK TRIMMED
    ALWAYS_SKIP   = 4,   // SACK m=10
    LOSS          = 5,   // the host sends a PSN again that no NACK reported
    PROBE         = 6,   // answered probe
    PROBE_MARKED  = 7,   // answered probe, the answer says SKIP_ONCE
    ROTATION      = 8,   // a SKIP path's turn came: passed over once
    CONTROLLER    = 9,
    GENERATION    = 10   // the group begins another one: all its paths and planes are GOOD
}

// What the feedback did to the path's plane, for all packets of the path group.
const bit<8> PLANE_UNCHANGED    = 0;
const bit<8> PLANE_ASSUMED_DOWN = 1;
const bit<8> PLANE_BACK         = 2;

// One per change; a `generation` that no event had before voids all states of the path group, whatever
// the cause. `qp` is the one in the BTH that caused it: the own one in what arrives, the peer's in what
// the host sends; 0 from the controller.
struct ev_event_t {
    bit<24> qp;
    bit<16> path_group;
    bit<8>  generation;
    bit<16> path_ev;
    bit<8>  from_state;
    bit<8>  to_state;
    bit<8>  cause;
    bit<8>  plane_change;
    bit<48> time;         // microseconds since the switch started
}

#endif
