// SPDX-License-Identifier: Apache-2.0
// Registers by packet-out, answered by packet-in. Included by nic.p4.
#ifndef MRC_CPU_P4
#define MRC_CPU_P4

#include "ev_state.p4"

register<plane_mask_t>(1) down_planes;

control CpuAccess(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<8> op = hdr.packet_out.op;
        bit<32> index = (bit<32>) hdr.packet_out.index;
        bit<64> value = hdr.packet_out.value;
        bit<16> cell;
        if (op == cpu_op_t.READ_PATH || op == cpu_op_t.WRITE_PATH) {
            path_states.read(cell, value[63:32]);
            if (op == cpu_op_t.WRITE_PATH) {
                bit<16> wanted = value[15:0];
                path_states.write(value[63:32], wanted);
                bit<2> from_state = wanted[15:8] == cell[15:8] ? CELL_STATE(cell) : 2w0;
                bit<2> to_state = CELL_STATE(wanted);
                bit<16> inactive;
                inactive_paths.read(inactive, index);
                if (inactive[15:8] != wanted[15:8]) {
                    inactive = wanted[15:8] ++ 8w0;
                }
                // The upper bit: ASSUMED_BAD or DENIED.
                if (from_state[1:1] == 0 && to_state[1:1] == 1) {
                    inactive_paths.write(index, inactive + 1);
                } else if (from_state[1:1] == 1 && to_state[1:1] == 0) {
                    inactive_paths.write(index, inactive - 1);
                }
                if (from_state != to_state) {
                    meta.event_cause = ev_cause_t.CONTROLLER;
                    meta.event.path_group = 3w0 ++ hdr.packet_out.index[15:3];
                    meta.event.path_ev = value[31:16];
                    meta.event.from_state = (bit<8>) from_state;
                    meta.event.to_state = (bit<8>) to_state;
                    meta.event.plane_change = PLANE_UNCHANGED;
                    meta.event.qp = 0;
                }
                cell = wanted;
            }
            value[15:0] = cell;
        } else if (op == cpu_op_t.READ_INACTIVE || op == cpu_op_t.WRITE_INACTIVE) {
            if (op == cpu_op_t.WRITE_INACTIVE) {
                inactive_paths.write(index, value[15:0]);
            }
            inactive_paths.read(cell, index);
            value = (bit<64>) cell;
        } else if (op == cpu_op_t.READ_ASSUMED || op == cpu_op_t.WRITE_ASSUMED) {
            if (op == cpu_op_t.WRITE_ASSUMED) {
                assumed_down_planes.write(index, value[15:0]);
            }
            assumed_down_planes.read(cell, index);
            value = (bit<64>) cell;
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
