// SPDX-License-Identifier: Apache-2.0
// State of each path of a NIC, and what feedback does to it (MRC's EV states). Included by nic.p4
// behind its metadata. All of it is touched in ingress only, which is one thread on BMv2.
//
//          SKIP_ONCE, TRIMMED                 LOSS, ALWAYS_SKIP
//   GOOD ----------------------> SKIP    GOOD, SKIP ------------> ASSUMED_BAD
//        <----------------------                                   |  |
//          its turn has come     <---- answer is marked -----------+  |   after `probe_successes`
//        <--------------------------- answer is not marked -----------+   answered probes
//
//   any -- controller --> DENIED -- controller --> any
#ifndef MRC_EV_STATE_P4
#define MRC_EV_STATE_P4

#include "carrier.p4"

// Paths of 512 groups x 8 planes x 256 uplinks; fewer groups may have more uplinks.
const bit<32> PATHS       = 1 << 20;
const bit<32> PATH_GROUPS = 1024;

// Each value begins with the generation of the group that wrote it; another one's reads as zero.
register<bit<16>>(PATHS) path_states;                // generation(8) state(2) suspect(1) 0 successes(4)
register<bit<16>>(PATH_GROUPS * 8) inactive_paths;   // generation(8) ASSUMED_BAD and DENIED paths(8)
register<bit<16>>(PATH_GROUPS) assumed_down_planes;  // generation(8) bit p: plane p

#define CELL_STATE(cell)     (cell)[7:6]
#define CELL_SUSPECT(cell)   (cell)[5:5]
#define CELL_SUCCESSES(cell) (cell)[3:0]

// Where a path's state is, and what it is.
control PathState(in path_ev_t path_ev, inout metadata_t meta) {
    apply {
        meta.path = (bit<32>) (meta.path_group ++ EV_PLANE(path_ev)) << meta.uplink_bits
                  | (bit<32>) EV_UPLINK(path_ev);
        path_states.read(meta.path_cell, meta.path);
        if (meta.path_cell[15:8] != meta.generation) {
            meta.path_cell = meta.generation ++ 8w0;
        }
    }
}

// Which planes this group must not use: those that are down, and those it assumes to be. When that is
// all of them, assumptions do not count.
control DownPlanes(inout metadata_t meta) {
    apply {
        bit<16> assumed;
        assumed_down_planes.read(assumed, (bit<32>) meta.path_group);
        if (assumed[15:8] == meta.generation
                && (meta.usable_planes & ~(meta.down_planes | assumed[7:0])) != 0) {
            meta.down_planes = meta.down_planes | assumed[7:0];
        }
    }
}

// The state diagram: `feedback_cause` happened to `feedback_ev`.
control EvTransition(inout metadata_t meta) {
    PathState() path_state;

    apply {
        plane_t plane = EV_PLANE(meta.feedback_ev);
        plane_mask_t plane_bit = 8w1 << plane;
        bit<10> beyond = EV_UPLINK(meta.feedback_ev) >> meta.uplink_bits;
        // Feedback comes off the network: it must name a path that this group has.
        if (beyond == 0 && (meta.usable_planes & plane_bit) != 0) {
            path_state.apply(meta.feedback_ev, meta);
            bit<16> before = meta.path_cell;
            bit<2> state = CELL_STATE(before);
            bit<1> suspect = CELL_SUSPECT(before);
            bit<4> successes = CELL_SUCCESSES(before);
            bit<2> next = state;

            bit<32> plane_index = (bit<32>) (meta.path_group ++ plane);
            bit<16> inactive;
            inactive_paths.read(inactive, plane_index);
            if (inactive[15:8] != meta.generation) {
                inactive = meta.generation ++ 8w0;
            }
            bit<64> limit = meta.retirable >> (bit<8>) (plane ++ 3w0);
            bool above_floor = inactive[7:0] < limit[7:0];

            bit<16> assumed;
            assumed_down_planes.read(assumed, (bit<32>) meta.path_group);
            if (assumed[15:8] != meta.generation) {
                assumed = meta.generation ++ 8w0;
            }
            plane_mask_t down = assumed[7:0];
            bool active = state == ev_state_t.GOOD || state == ev_state_t.SKIP;
            bool probed = meta.feedback_cause == ev_cause_t.PROBE
                       || meta.feedback_cause == ev_cause_t.PROBE_MARKED;

            if (meta.feedback_cause == ev_cause_t.LOSS) {
                successes = 0;
                if (active) {
                    if (above_floor) {
                        next = ev_state_t.ASSUMED_BAD;
                        suspect = 0;
                    } else if (suspect == 0) {
                        suspect = 1;
                    } else if ((meta.usable_planes & ~(meta.down_planes | down | plane_bit)) != 0) {
                        // Kept by the floor, and it fails again: the plane is dead as a whole.
                        down = down | plane_bit;
                    }
                }
            } else if (meta.feedback_cause == ev_cause_t.ALWAYS_SKIP) {
                successes = 0;
                suspect = 0;
                if (active) {
                    next = above_floor ? ev_state_t.ASSUMED_BAD : ev_state_t.SKIP;
                }
            } else {
                suspect = 0;
                bool marked = meta.feedback_cause == ev_cause_t.SKIP_ONCE
                           || meta.feedback_cause == ev_cause_t.TRIMMED
                           || meta.feedback_cause == ev_cause_t.PROBE_MARKED;
                if (state == ev_state_t.ASSUMED_BAD && probed) {
                    successes = successes + 1;
                    if (successes >= meta.probe_successes) {
                        successes = 0;
                        next = marked ? ev_state_t.SKIP : ev_state_t.GOOD;
                    }
                } else if (state == ev_state_t.GOOD && marked) {
                    next = ev_state_t.SKIP;
                }
                if (probed && (next == ev_state_t.GOOD || next == ev_state_t.SKIP)) {
                    down = down & ~plane_bit;
                }
            }

            bit<16> after = meta.generation ++ next ++ suspect ++ 1w0 ++ successes;
            if (after != before) {
                path_states.write(meta.path, after);
            }
            if (next == ev_state_t.ASSUMED_BAD && active) {
                inactive_paths.write(plane_index, inactive + 1);
            } else if (next != ev_state_t.ASSUMED_BAD && state == ev_state_t.ASSUMED_BAD) {
                inactive_paths.write(plane_index, inactive - 1);
            }
            meta.event.plane_change = PLANE_UNCHANGED;
            if (down != assumed[7:0]) {
                assumed_down_planes.write((bit<32>) meta.path_group, meta.generation ++ down);
                meta.event.plane_change =
                    (down & plane_bit) != 0 ? PLANE_ASSUMED_DOWN : PLANE_BACK;
            }
            if (next != state || down != assumed[7:0]) {
                meta.event_cause = meta.feedback_cause;
                meta.event.path_group = (bit<16>) meta.path_group;
                meta.event.path_ev = meta.feedback_ev;
                meta.event.from_state = (bit<8>) state;
                meta.event.to_state = (bit<8>) next;
            }
        }
    }
}

#endif
