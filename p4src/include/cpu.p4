// SPDX-License-Identifier: Apache-2.0
// Registers by packet-out, answered by packet-in. Included by nic.p4.
#ifndef MRC_CPU_P4
#define MRC_CPU_P4

#include "ev_state.p4"
#include "peer_ports.p4"

register<plane_mask_t>(1) down_planes;

control CpuAccess(inout headers_t hdr, in bit<48> now, inout metadata_t meta) {
    Epoch() begin_epoch;
    ReadPath() read_path;
    WritePath() write_path;
    ReadInactive() read_inactive;
    ReadAssumedDown() read_assumed_down;
    AccessPeerCell() access_peer_cell;

    apply {
        bit<8> op = hdr.packet_out.op;
        bit<64> value = hdr.packet_out.value;
        bit<13> plane = hdr.packet_out.index[12:0];
        bit<10> path_group = plane[12:3];
        bool of_path = op == cpu_op_t.READ_PATH || op == cpu_op_t.WRITE_PATH;
        bool of_inactive = op == cpu_op_t.READ_INACTIVE || op == cpu_op_t.WRITE_INACTIVE;
        bool of_assumed = op == cpu_op_t.READ_ASSUMED || op == cpu_op_t.WRITE_ASSUMED;

        if (of_path || of_inactive || of_assumed) {
            if (of_assumed) {
                path_group = hdr.packet_out.index[9:0];
            }
            // What is written belongs to the generation that it names; what is read, to the one in force.
            bit<40> in_force;
            epochs.read(in_force, (bit<32>) path_group);
            bit<8> generation = in_force[39:32];
            if (op == cpu_op_t.WRITE_PATH || op == cpu_op_t.WRITE_INACTIVE
                    || op == cpu_op_t.WRITE_ASSUMED) {
                generation = value[15:8];
            }
            begin_epoch.apply(path_group, generation, meta);

            if (of_path) {
                path_t path = value[51:32];
                path_cell_t cell;
                read_path.apply(path, meta.epoch, cell);
                if (op == cpu_op_t.WRITE_PATH) {
                    path_cell_t wanted = value[7:0];
                    write_path.apply(path, meta.epoch, wanted);
                    bit<2> from_state = CELL_STATE(cell);
                    bit<2> to_state = CELL_STATE(wanted);
                    bit<16> inactive;
                    read_inactive.apply(plane, meta.epoch, inactive);
                    // The upper bit: ASSUMED_BAD or DENIED.
                    if (from_state[1:1] == 0 && to_state[1:1] == 1) {
                        inactive_paths.write((bit<32>) plane, meta.epoch ++ (inactive + 1));
                    } else if (from_state[1:1] == 1 && to_state[1:1] == 0) {
                        inactive_paths.write((bit<32>) plane, meta.epoch ++ (inactive - 1));
                    }
                    if (from_state != to_state) {
                        meta.event_cause = ev_cause_t.CONTROLLER;
                        meta.event.path_ev = value[31:16];
                        meta.event.from_state = (bit<8>) from_state;
                        meta.event.to_state = (bit<8>) to_state;
                        meta.event.plane_change = PLANE_UNCHANGED;
                    }
                    cell = wanted;
                }
                value[15:0] = generation ++ cell;
            } else if (of_inactive) {
                bit<16> number;
                if (op == cpu_op_t.WRITE_INACTIVE) {
                    inactive_paths.write((bit<32>) plane, meta.epoch ++ 8w0 ++ value[7:0]);
                }
                read_inactive.apply(plane, meta.epoch, number);
                value = 48w0 ++ generation ++ (number > 255 ? 8w255 : number[7:0]);
            } else {
                plane_mask_t assumed;
                if (op == cpu_op_t.WRITE_ASSUMED) {
                    assumed_down_planes.write((bit<32>) path_group, meta.epoch ++ value[7:0]);
                }
                read_assumed_down.apply(path_group, meta.epoch, assumed);
                value = 48w0 ++ generation ++ assumed;
            }
            meta.event.qp = 0;
        } else if (op == cpu_op_t.READ_PEER_DOWN || op == cpu_op_t.WRITE_PEER_DOWN) {
            access_peer_cell.apply(op, hdr.packet_out.index[9:0], now, value);
        } else {
            if (op == cpu_op_t.WRITE_DOWN_PLANES) {
                down_planes.write(0, (plane_mask_t) value);
            }
            plane_mask_t in_force;
            down_planes.read(in_force, 0);
            value = (bit<64>) in_force;
        }
        hdr.packet_in.setValid();
        hdr.packet_in.op = op;
        hdr.packet_in.index = hdr.packet_out.index;
        hdr.packet_in.value = value;
        hdr.packet_out.setInvalid();
    }
}

#endif
