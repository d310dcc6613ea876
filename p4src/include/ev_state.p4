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

// Paths of 512 groups x 8 planes x 256 uplinks; fewer groups may have more uplinks. A register cell
// costs BMv2 some 120 bytes whatever it holds, so that 16 paths share one.
const bit<32> PATH_WORDS  = 1 << 16;
const bit<32> PATH_GROUPS = 1024;

typedef bit<20>  path_t;       // index of a path: word(16) cell(4)
typedef bit<8>   path_cell_t;  // state(2) suspect(1) sent on(1) successes(4)
typedef bit<32>  epoch_t;
typedef bit<160> path_word_t;  // epoch(32), 16 x path_cell_t

// The states of a path group are void as soon as its generation is another one. Generations come
// round again; epochs count their changes and do not. What another epoch wrote reads as zero.
register<bit<40>>(PATH_GROUPS) epochs;               // generation(8) epoch(32)
register<path_word_t>(PATH_WORDS) path_states;
register<bit<48>>(PATH_GROUPS * 8) inactive_paths;   // epoch(32) ASSUMED_BAD and DENIED paths(16)
register<bit<40>>(PATH_GROUPS) assumed_down_planes;  // epoch(32) bit p: plane p

#define CELL_STATE(cell)     (cell)[7:6]
#define CELL_SUSPECT(cell)   (cell)[5:5]
#define CELL_SENT_ON(cell)   (cell)[4:4]
#define CELL_SUCCESSES(cell) (cell)[3:0]

// The epoch of `path_group`, which a `generation` that is not in force begins.
control Epoch(in bit<10> path_group, in bit<8> generation, inout metadata_t meta) {
    apply {
        bit<40> in_force;
        epochs.read(in_force, (bit<32>) path_group);
        meta.epoch = in_force[31:0];
        meta.event.path_group = (bit<16>) path_group;
        meta.event.generation = generation;
        if (in_force[39:32] != generation) {
            meta.epoch = meta.epoch + 1;
            epochs.write((bit<32>) path_group, generation ++ meta.epoch);
            meta.event_cause = ev_cause_t.GENERATION;
            meta.event.path_ev = 0;
            meta.event.from_state = (bit<8>) (bit<2>) ev_state_t.GOOD;
            meta.event.to_state = (bit<8>) (bit<2>) ev_state_t.GOOD;
            meta.event.plane_change = PLANE_UNCHANGED;
        }
    }
}

// What a path's cell holds.
control ReadPath(in path_t path, in epoch_t epoch, out path_cell_t cell) {
    apply {
        path_word_t word;
        path_states.read(word, (bit<32>) path[19:4]);
        cell = 0;
        if (word[159:128] == epoch) {
            cell = (path_cell_t) (word >> (path[3:0] ++ 3w0));
        }
    }
}

control WritePath(in path_t path, in epoch_t epoch, in path_cell_t cell) {
    apply {
        path_word_t word;
        bit<7> at = path[3:0] ++ 3w0;
        path_states.read(word, (bit<32>) path[19:4]);
        if (word[159:128] != epoch) {
            word = epoch ++ 128w0;
        }
        path_cell_t changed = (path_cell_t) (word >> at) ^ cell;
        path_states.write((bit<32>) path[19:4], word ^ ((path_word_t) changed << at));
    }
}

// Where a path's state is, and what it is.
control PathState(in path_ev_t path_ev, inout metadata_t meta) {
    ReadPath() read_path;

    apply {
        meta.path = (path_t) (meta.path_group ++ EV_PLANE(path_ev)) << meta.uplink_bits
                  | (path_t) EV_UPLINK(path_ev);
        read_path.apply(meta.path, meta.epoch, meta.path_cell);
    }
}

// How many paths of a plane (path group ++ plane) are inactive.
control ReadInactive(in bit<13> plane, in epoch_t epoch, out bit<16> inactive) {
    apply {
        bit<48> cell;
        inactive_paths.read(cell, (bit<32>) plane);
        inactive = cell[47:16] == epoch ? cell[15:0] : 0;
    }
}

// Which planes a path group assumes to be down.
control ReadAssumedDown(in bit<10> path_group, in epoch_t epoch, out plane_mask_t down) {
    apply {
        bit<40> cell;
        assumed_down_planes.read(cell, (bit<32>) path_group);
        down = cell[39:8] == epoch ? cell[7:0] : 0;
    }
}

// Which planes this group must not use: those that are down, and those it assumes to be. When that is
// all of them, assumptions do not count.
control DownPlanes(inout metadata_t meta) {
    ReadAssumedDown() read_assumed_down;

    apply {
        plane_mask_t assumed;
        read_assumed_down.apply(meta.path_group, meta.epoch, assumed);
        if ((meta.usable_planes & ~(meta.down_planes | assumed)) != 0) {
            meta.down_planes = meta.down_planes | assumed;
        }
    }
}

// The state diagram: `feedback_cause` happened to `feedback_ev`.
control EvTransition(inout metadata_t meta) {
    PathState() path_state;
    WritePath() write_path;
    ReadInactive() read_inactive;
    ReadAssumedDown() read_assumed_down;

    apply {
        plane_t plane = EV_PLANE(meta.feedback_ev);
        plane_mask_t plane_bit = 8w1 << plane;
        bit<10> beyond = EV_UPLINK(meta.feedback_ev) >> meta.uplink_bits;
        // Feedback comes off the network: it must name a path that this group has. What got lost on a
        // plane whose port is down, here or at the peer, says nothing of the path.
        if (beyond == 0 && (meta.usable_planes & plane_bit) != 0
                && (meta.feedback_cause != ev_cause_t.LOSS
                    || ((meta.down_planes | meta.peer_down) & plane_bit) == 0)) {
            path_state.apply(meta.feedback_ev, meta);
        } else {
            meta.path_cell = 0;
        }
        // Nor has a path that nothing has been sent on in this epoch any feedback.
        if (meta.path_cell != 0) {
            path_cell_t before = meta.path_cell;
            bit<2> state = CELL_STATE(before);
            bit<1> suspect = CELL_SUSPECT(before);
            bit<4> successes = CELL_SUCCESSES(before);
            bit<2> next = state;

            bit<13> plane_index = meta.path_group ++ plane;
            bit<16> inactive;
            read_inactive.apply(plane_index, meta.epoch, inactive);
            bit<64> limit = meta.retirable >> (bit<8>) (plane ++ 3w0);
            bool above_floor = inactive < (bit<16>) limit[7:0];

            plane_mask_t assumed;
            read_assumed_down.apply(meta.path_group, meta.epoch, assumed);
            plane_mask_t down = assumed;
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

            path_cell_t after = next ++ suspect ++ CELL_SENT_ON(before) ++ successes;
            if (after != before) {
                write_path.apply(meta.path, meta.epoch, after);
            }
            if (next == ev_state_t.ASSUMED_BAD && active) {
                inactive_paths.write((bit<32>) plane_index, meta.epoch ++ (inactive + 1));
            } else if (next != ev_state_t.ASSUMED_BAD && state == ev_state_t.ASSUMED_BAD) {
                inactive_paths.write((bit<32>) plane_index, meta.epoch ++ (inactive - 1));
            }
            if (down != assumed) {
                assumed_down_planes.write((bit<32>) meta.path_group, meta.epoch ++ down);
            }
            if (next != state || down != assumed) {
                meta.event_cause = meta.feedback_cause;
                meta.event.path_ev = meta.feedback_ev;
                meta.event.from_state = (bit<8>) state;
                meta.event.to_state = (bit<8>) next;
                if (down == assumed) {
                    meta.event.plane_change = PLANE_UNCHANGED;
                } else if ((down & plane_bit) != 0) {
                    meta.event.plane_change = PLANE_ASSUMED_DOWN;
                } else {
                    meta.event.plane_change = PLANE_BACK;
                }
            }
        }
    }
}

#endif
