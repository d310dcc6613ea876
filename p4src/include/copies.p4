// SPDX-License-Identifier: Apache-2.0
// Redundancy, the sending side: WRITEs of some classes leave as 2 or 3 copies, each on a plane of its own,
// so that the copies' paths share no link and no switch. Included by nic.p4 behind its headers and metadata.
//
//   ingress: copy_classes - copy_turns: k planes alive - bundles: a path in each plane
//            - multicast group COPY_GROUPS + mask of the planes
//   egress:  port - plane - that plane's path - carrier, flow label, MACs (copy_macs)
//
// Retransmissions are not copied: the receiver could not tell two of them from two different attempts.
#ifndef MRC_COPIES_P4
#define MRC_COPIES_P4

#include "ev_state.p4"
#include "spray.p4"
#include "take_path.p4"

const bit<32> DSCPS   = 64;
const bit<32> BUNDLES = 16384;   // groups x slots_per_plane: an eighth of `slots`
const bit<32> TURNS   = 2048;    // masks of live planes x planes

const bit<16> COPY_GROUPS = 0x100;   // multicast group of a mask of planes: this + mask

// Which WRITEs are copied: sets meta.copies or meta.replicated.
control CopyClass(in headers_t hdr, inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) copy_classes_counter;

    action over_planes(bit<2> copies) { meta.copies = copies; }
    // Sent once, to a T0 that sends it on by two T1s (replicate.p4).
    action in_network() { meta.replicated = true; }
    action once() { }

    // How each traffic class is sent; classes that are not in it are sent once.
    @name("copy_classes")
    table copy_classes {
        key = { hdr.ipv6.dscp: exact @name("dscp"); }
        actions = { over_planes; in_network; @defaultonly once; }
        const default_action = once();
        counters = copy_classes_counter;
        size = DSCPS;
    }

    apply {
        if (IS_WRITE(hdr.bth) && hdr.bth.rtx == 0) {
            copy_classes.apply();
        }
    }
}

// One copy more, on a path of this plane that ChoosePath takes out of the bundle's two; none where all are
// denied.
control AddCopy(in plane_t plane, in bit<128> evs, in bit<128> alternates, inout metadata_t meta) {
    ChoosePath() choose_path;

    apply {
        meta.plane = plane;
        meta.path_ev = (path_ev_t) (evs >> (plane ++ 4w0));
        meta.second_ev = (path_ev_t) (alternates >> (plane ++ 4w0));
        meta.third_ev = meta.second_ev;
        meta.fourth_ev = meta.second_ev;
        choose_path.apply(meta);
        if (meta.drop_reason != drop_reason_t.NONE) {
            meta.drop_reason = drop_reason_t.NONE;
        } else {
            if (meta.copies == 0) {
                meta.first_copy = meta.path_ev;
            } else if (meta.copies == 1) {
                meta.second_copy = meta.path_ev;
            } else {
                meta.third_copy = meta.path_ev;
            }
            meta.copies = meta.copies + 1;
            meta.copy_planes = meta.copy_planes | 8w1 << plane;
        }
    }
}

// Planes and paths of the meta.copies copies of a packet. Afterwards meta.copies says how many there are:
// as many as there are planes alive with a path that is not denied, at most as many as wanted. The paths
// are first_copy (meta.path_ev, too, which psn_memory remembers), second_copy and third_copy, the planes
// meta.copy_planes.
control ChooseCopies(inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) copy_turns_counter;
    direct_counter(CounterType.packets_and_bytes) bundles_counter;

    register<bit<8>>(GROUPS) next_turns;
    register<bit<16>>(GROUP_PLANES) next_bundle;   // by group and first plane

    DownPlanes() down_planes;
    AddCopy() add_first;
    AddCopy() add_second;
    AddCopy() add_third;

    bit<2> possible;
    plane_t first;
    plane_t second;
    plane_t third;
    bit<8> next_turn;
    bit<128> evs;
    bit<128> others;

    action take_planes(bit<2> count, plane_t first_plane, plane_t second_plane,
                       plane_t third_plane, bit<8> next) {
        possible = count;
        first = first_plane;
        second = second_plane;
        third = third_plane;
        next_turn = next;
    }
    action no_plane_alive() { meta.drop_reason = drop_reason_t.NO_LIVE_PLANE; }

    // The first three planes alive, from the one on whose turn it is, and the turn after that.
    @name("copy_turns")
    table copy_turns {
        key = {
            meta.live_planes: exact @name("live_planes");
            meta.turn: exact @name("turn");
        }
        actions = { take_planes; @defaultonly no_plane_alive; }
        const default_action = no_plane_alive();
        counters = copy_turns_counter;
        size = TURNS;
    }

    action use_bundle(bit<128> path_evs, bit<128> alternates) {
        evs = path_evs;
        others = alternates;
    }
    action no_bundle() { meta.drop_reason = drop_reason_t.NO_SLOT; }

    // One path of each plane, plane p's at bits 16 p to 16 p + 15, and another one for when that is not
    // GOOD: slot `index` of every plane of the spray group.
    @name("bundles")
    table bundles {
        key = {
            meta.group_id: exact @name("group_id");
            meta.generation: exact @name("generation");
            meta.slot: exact @name("index");
        }
        actions = { use_bundle; @defaultonly no_bundle; }
        const default_action = no_bundle();
        counters = bundles_counter;
        size = BUNDLES;
    }

    apply {
        possible = 0;
        first = 0;
        second = 0;
        third = 0;
        next_turn = 0;
        evs = 0;
        others = 0;
        down_planes.apply(meta);
        meta.live_planes = meta.usable_planes & ~meta.down_planes;
        next_turns.read(meta.turn, (bit<32>) meta.group_id);
        if (copy_turns.apply().hit) {
            next_turns.write((bit<32>) meta.group_id, next_turn);
            // Bundles take turns for each first plane, or an even number of them would bind some bundles
            // to some planes.
            if (meta.selection == selection_t.ROUND_ROBIN) {
                bit<32> index = (bit<32>) (meta.group_id ++ first);
                next_bundle.read(meta.slot, index);
                if (meta.slot >= meta.slots_per_plane) {
                    meta.slot = 0;
                }
                next_bundle.write(index, meta.slot + 1);
            } else {
                random(meta.slot, 0, meta.slots_per_plane - 1);
            }
            if (bundles.apply().hit) {
                bit<2> wanted = meta.copies;
                meta.copies = 0;
                add_first.apply(first, evs, others, meta);
                if (possible > 1) {
                    add_second.apply(second, evs, others, meta);
                }
                if (possible > 2 && wanted == 3) {
                    add_third.apply(third, evs, others, meta);
                }
                meta.path_ev = meta.first_copy;
                if (meta.copies == 0) {
                    meta.drop_reason = drop_reason_t.NO_PATH;
                }
            }
        }
    }
}

// Egress: one copy, on the plane behind its port.
control SendCopy(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) copy_macs_counter;

    TakePath() take_path;

    action set_copy_macs(mac_addr_t dst_mac, mac_addr_t src_mac) {
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ethernet.src_addr = src_mac;
    }
    action no_copy_link() {
        meta.drop_reason = drop_reason_t.NO_LINK;
        drops.count((bit<32>) (bit<8>) drop_reason_t.NO_LINK);
        mark_to_drop(standard_metadata);
    }

    // As link_macs, which ingress applies before it is known which plane a copy is for.
    @name("copy_macs")
    table copy_macs {
        key = { standard_metadata.egress_port: exact @name("egress_port"); }
        actions = { set_copy_macs; @defaultonly no_copy_link; }
        const default_action = no_copy_link();
        counters = copy_macs_counter;
        size = 16;
    }

    apply {
        bit<9> port = standard_metadata.egress_port - FIRST_PLANE_PORT;
        plane_t plane = port[2:0];
        path_ev_t path_ev = meta.third_copy;
        if (EV_PLANE(meta.path_ev) == plane) {
            path_ev = meta.path_ev;
        } else if (EV_PLANE(meta.second_copy) == plane) {
            path_ev = meta.second_copy;
        }
        take_path.apply(hdr, meta, path_ev);
        copy_macs.apply();
    }
}

#endif
