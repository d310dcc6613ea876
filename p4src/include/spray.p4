// SPDX-License-Identifier: Apache-2.0
// Choice of the EV of each packet that a NIC sends. Included by nic.p4 behind its headers and metadata.
#ifndef MRC_SPRAY_P4
#define MRC_SPRAY_P4

#include "ev_state.p4"

// One spray group per destination; 256 slots for each of 512 groups fill `slots` at full size.
const bit<32> GROUPS        = 1024;
const bit<32> PLANE_SETS    = 4096;  // plane set x mask of planes that are down
const bit<32> SLOTS         = 131072;
const bit<32> GROUP_PLANES  = 8192;  // GROUPS x 8

// The path last found GOOD, by path group and plane: epoch(32) path EV(16).
register<bit<48>>(GROUP_PLANES) last_good;

// How a spray group sends, and where the states of its paths are.
control SprayGroup(inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) group_cfg_counter;

    Epoch() epoch;

    // Groups that lead to the same T0 group share `path_group`, a generation and the states of their
    // paths. A path's state is at (path_group, plane, uplink of `uplink_bits` bits); byte p of
    // `retirable` says how many paths of plane p may be inactive at a time.
    action configure(bit<8> generation, bit<16> slots, bit<8> plane_set,
                  bit<10> path_group, bit<8> uplink_bits, plane_mask_t planes,
                  bit<64> retirable, bit<4> probe_successes) {
        meta.generation = generation;
        meta.slots_per_plane = slots;
        meta.plane_set = plane_set;
        meta.path_group = path_group;
        meta.uplink_bits = uplink_bits;
        meta.usable_planes = planes;
        meta.retirable = retirable;
        meta.probe_successes = probe_successes;
    }
    action spray_random(bit<8> generation, bit<16> slots, bit<8> plane_set,
                  bit<10> path_group, bit<8> uplink_bits, plane_mask_t planes,
                  bit<64> retirable, bit<4> probe_successes) {
        meta.selection = selection_t.RANDOM;
        configure(generation, slots, plane_set, path_group, uplink_bits, planes, retirable,
                  probe_successes);
    }
    action spray_round_robin(bit<8> generation, bit<16> slots, bit<8> plane_set,
                  bit<10> path_group, bit<8> uplink_bits, plane_mask_t planes,
                  bit<64> retirable, bit<4> probe_successes) {
        meta.selection = selection_t.ROUND_ROBIN;
        configure(generation, slots, plane_set, path_group, uplink_bits, planes, retirable,
                  probe_successes);
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

    apply {
        if (group_cfg.apply().hit) {
            epoch.apply(meta.path_group, meta.generation, meta);
        }
    }
}

// Takes this path when it is better than the best found so far: GOOD before SKIP before ASSUMED_BAD,
// DENIED never.
control TryPath(in path_ev_t path_ev, inout metadata_t meta) {
    PathState() path_state;

    apply {
        path_state.apply(path_ev, meta);
        if (CELL_STATE(meta.path_cell) < meta.best_state) {
            meta.best_state = CELL_STATE(meta.path_cell);
            meta.path_ev = path_ev;
        }
    }
}

// The path of a slot or, when that is not GOOD, another one of the plane: the first GOOD one of three,
// else the one that was last found GOOD in this plane, else the best there is. A SKIP path whose turn
// has come is passed over once and is GOOD again.
control ChoosePath(inout metadata_t meta) {
    TryPath() try_path;
    WritePath() write_path;

    apply {
        bit<32> plane_index = (bit<32>) (meta.path_group ++ meta.plane);
        path_ev_t first_ev = meta.path_ev;
        meta.best_state = ev_state_t.DENIED;

        try_path.apply(first_ev, meta);
        // One change, and so one digest, per packet.
        if (meta.best_state == ev_state_t.SKIP && meta.event_cause == ev_cause_t.NONE) {
            write_path.apply(meta.path, meta.epoch, ev_state_t.GOOD ++ meta.path_cell[5:0]);
            meta.event_cause = ev_cause_t.ROTATION;
            meta.event.path_ev = first_ev;
            meta.event.from_state = (bit<8>) (bit<2>) ev_state_t.SKIP;
            meta.event.to_state = (bit<8>) (bit<2>) ev_state_t.GOOD;
            meta.event.plane_change = PLANE_UNCHANGED;
        }
        if (meta.best_state != ev_state_t.GOOD) {
            try_path.apply(meta.second_ev, meta);
        }
        if (meta.best_state != ev_state_t.GOOD) {
            try_path.apply(meta.third_ev, meta);
        }
        if (meta.best_state != ev_state_t.GOOD) {
            try_path.apply(meta.fourth_ev, meta);
        }
        if (meta.best_state != ev_state_t.GOOD) {
            bit<48> cell;
            last_good.read(cell, plane_index);
            // Zero: an epoch 0 in which nothing has been sent, which says nothing of path 0.
            if (cell[47:16] == meta.epoch && cell != 0) {
                try_path.apply(cell[15:0], meta);
            }
        }
        if (meta.best_state == ev_state_t.GOOD) {
            last_good.write(plane_index, meta.epoch ++ meta.path_ev);
            // From now on its feedback counts.
            if (CELL_SENT_ON(meta.path_cell) == 0) {
                write_path.apply(meta.path, meta.epoch, meta.path_cell | 8w0x10);
            }
        } else if (meta.best_state == ev_state_t.DENIED) {
            meta.drop_reason = drop_reason_t.NO_PATH;
        }
    }
}

// Which EV the next packet of a spray group takes. The plane is chosen first, among the live ones, so
// that every plane carries its share whatever the number of paths in it; then a slot of that plane.
control Spray(in headers_t hdr, inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) plane_sets_counter;
    direct_counter(CounterType.packets_and_bytes) slots_counter;

    // Next plane choice of each group, next slot of each group and plane (round robin).
    register<bit<16>>(GROUPS) next_choice;
    register<bit<16>>(GROUP_PLANES) next_slot;

    DownPlanes() down_planes;
    ChoosePath() choose_path;

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

    // The slot's path, and three others of the plane for when it is not to be used.
    action use_path(path_ev_t path_ev, path_ev_t second, path_ev_t third, path_ev_t fourth) {
        meta.path_ev = path_ev;
        meta.second_ev = second;
        meta.third_ev = third;
        meta.fourth_ev = fourth;
    }
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
            down_planes.apply(meta);
        }
        if (plane_sets.apply().hit) {
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
                if (slots.apply().hit) {
                    choose_path.apply(meta);
                }
            }
        }
    }
}

#endif
