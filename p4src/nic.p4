// SPDX-License-Identifier: Apache-2.0
// Data plane of an MRC NIC: per-packet spraying between one host port and the plane ports (v1model).
//
//   host --+-- in-block destination: host's own carrier --------------------------> plane of uSID 0
//          +-- destinations --+-- EV chosen by the host ----------------+
//                             +-- group_cfg - plane_sets - slots: an EV +-- carrier --> plane of EV
//                             +-- ecmp: plane by flow hash, no carrier -----------> plane
//
//   plane --+-- carrier: own_sid - decapsulate - merge ECN --+-- own_address --+---------> host
//           +-- plain (ECMP baseline) -----------------------+                 |
//                                 trimmed: peers - NACK -----------------------+-- destinations ...
#include <core.p4>
#include <v1model.p4>

#include "include/nic_headers.p4"
#include "include/nic_parser.p4"
#include "include/usid.p4"
#include "include/segments.p4"
#include "include/carrier.p4"
#include "include/ecn.p4"
#include "include/psn_memory.p4"
#include "include/spray.p4"
#include "include/take_path.p4"
#include "include/copies.p4"
#include "include/duplicates.p4"
#include "include/feedback.p4"
#include "include/traffic_class.p4"
#include "include/nack.p4"
#include "include/peer_ports.p4"
#include "include/cpu.p4"

const bit<32> DESTINATIONS  = 4096;  // one per T0 group and as many exceptions
const bit<32> PORTS         = 512;
const bit<32> SMALL_TABLE   = 16;    // one entry per port or address of the NIC
const bit<32> BLOCK_ENTRIES = 4;

const bit<4> FLOW_LABEL_EV_CHOSEN = 0xE;  // flow label [19:16] of a packet whose EV the host chose

control NicVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control NicIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) locator_block_counter;
    direct_counter(CounterType.packets_and_bytes) destinations_counter;
    direct_counter(CounterType.packets_and_bytes) own_sid_counter;
    direct_counter(CounterType.packets_and_bytes) own_address_counter;
    direct_counter(CounterType.packets_and_bytes) link_macs_counter;
    @name("port_in") counter(PORTS, CounterType.packets_and_bytes) port_in;

    CpuAccess() cpu_access;
    ReadFeedback() read_feedback;
    TrafficClass() traffic_class;
    TurnRound() turn_round;
    AvoidPeerPlanes() avoid_peer_planes;
    LearnPeerPorts() learn_peer_ports;
    SprayGroup() spray_group;
    Spray() spray;
    EvTransition() ev_transition;
    PsnMemory() recall;
    CopyClass() copy_class;
    ChooseCopies() choose_copies;
    DropDuplicates() drop_duplicates;
    TakePath() take_path;
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
        key = { meta.peer: lpm @name("dst_addr"); }
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

    action decapsulate() {
        hdr.outer_ipv6.setInvalid();
        hdr.srh.setInvalid();
        hdr.segments[0].setInvalid();
        hdr.segments[1].setInvalid();
        hdr.segments[2].setInvalid();
        hdr.segments[3].setInvalid();
    }

    apply {
        meta.event_cause = ev_cause_t.NONE;
        bool injected = hdr.packet_out.isValid() && hdr.packet_out.op == cpu_op_t.INJECT;
        if (hdr.packet_out.isValid() && !injected) {
            cpu_access.apply(hdr, standard_metadata.ingress_global_timestamp, meta);
            standard_metadata.egress_spec = CPU_PORT;
        } else {
            mark_to_drop(standard_metadata);
            meta.drop_reason = drop_reason_t.NONE;
            meta.feedback_cause = ev_cause_t.NONE;
            port_in.count((bit<32>) standard_metadata.ingress_port);
            traffic_class.apply(hdr, meta, standard_metadata);

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
            } else if (standard_metadata.ingress_port == HOST_PORT || injected) {
                // ---------------------------------------------------------------------- sending
                if (locator_block.apply().hit) {
                    send_to_plane(ACTIVE_PLANE(hdr.ipv6.dst_addr));
                } else {
                    meta.sending = true;
                    meta.peer = hdr.ipv6.dst_addr;
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
                if (meta.drop_reason == drop_reason_t.NONE && own_address.apply().hit) {
                    meta.peer = hdr.ipv6.src_addr;
                    drop_duplicates.apply(hdr, meta, standard_metadata.ingress_global_timestamp);
                    meta.feedback = hdr.seth.isValid() || hdr.neth.isValid()
                                 || (hdr.endpoint_op.isValid()
                                     && hdr.bth.opcode == OPCODE_ENDPOINT_RESPONSE
                                     && hdr.endpoint_op.response_op == ENDPOINT_OP_EV_PROBE);
                    meta.notice = hdr.endpoint_op.isValid() && !meta.trimmed
                               && hdr.bth.opcode == OPCODE_ENDPOINT_REQUEST
                               && hdr.endpoint_op.request_op == ENDPOINT_OP_PORT_STATUS;
                    if (meta.drop_reason == drop_reason_t.NONE) {
                        turn_round.apply(hdr, meta);
                    }
                }
            }

            if ((meta.sending || meta.feedback || meta.notice) && destinations.apply().hit) {
                bool chosen = meta.sending && hdr.ipv6.flow_label[19:16] == FLOW_LABEL_EV_CHOSEN;
                bool remembers = meta.sending && hdr.bth.isValid()
                              && (hdr.bth.opcode & OPCODE_WRITE_MASK == OPCODE_WRITE_BASE
                                  || (hdr.endpoint_op.isValid()
                                      && hdr.bth.opcode == OPCODE_ENDPOINT_REQUEST
                                      && hdr.endpoint_op.request_op == ENDPOINT_OP_EV_PROBE));
                if (meta.selection != selection_t.FLOW_HASH) {
                    if (remembers || hdr.neth.isValid() || meta.feedback) {
                        bit<16> port = hdr.l4_ports.src_port;
                        bit<24> psn = hdr.bth.psn;
                        if (hdr.endpoint_op.isValid()) {
                            port = ENDPOINT_QP;
                            psn = 8w0 ++ hdr.bth.psn[15:0];
                        } else if (meta.feedback && hdr.neth.isValid()) {
                            port = hdr.neth.entropy[15:0];
                            psn = hdr.neth.psn;
                        }
                        recall.apply(meta, meta.peer, port, psn);
                    }
                    if (!chosen) {
                        spray_group.apply(meta);
                    }
                    if (!chosen && meta.drop_reason == drop_reason_t.NONE) {
                        down_planes.read(meta.down_planes, 0);
                        avoid_peer_planes.apply(standard_metadata.ingress_global_timestamp, meta);
                        if (meta.feedback) {
                            read_feedback.apply(hdr, meta);
                        } else if (remembers && hdr.bth.rtx == 1 && !hdr.endpoint_op.isValid()
                                   && meta.psn_found && meta.psn_cell[1:1] == 0) {
                            meta.feedback_cause = ev_cause_t.LOSS;
                            meta.feedback_ev = meta.psn_cell[23:8];
                        }
                        if (meta.feedback_cause != ev_cause_t.NONE) {
                            ev_transition.apply(meta);
                        }
                    }
                } else {
                    down_planes.read(meta.down_planes, 0);
                }
                if (meta.sending) {
                    if (chosen) {
                        meta.path_ev = hdr.ipv6.flow_label[15:0];
                    } else if (meta.drop_reason == drop_reason_t.NONE) {
                        if (meta.selection != selection_t.FLOW_HASH) {
                            copy_class.apply(hdr, meta);
                        }
                        if (meta.copies > 1) {
                            choose_copies.apply(meta);
                        } else {
                            spray.apply(hdr, meta);
                        }
                    }
                    if (remembers && meta.selection != selection_t.FLOW_HASH
                            && meta.drop_reason == drop_reason_t.NONE) {
                        psn_memory.write(meta.psn_index,
                                         meta.psn_tag ++ meta.psn ++ meta.path_ev ++ 8w1);
                    }
                    if (meta.copies > 1) {
                        standard_metadata.mcast_grp = COPY_GROUPS + (bit<16>) meta.copy_planes;
                    } else {
                        send_to_plane(EV_PLANE(meta.path_ev));
                        take_path.apply(hdr, meta, meta.path_ev);
                    }
                }
            }
            if (meta.notice) {
                learn_peer_ports.apply(hdr, standard_metadata.ingress_global_timestamp, meta);
            }
            // Feedback from where the host never sends is of no use, but the host's all the same.
            if (meta.feedback || meta.notice) {
                meta.drop_reason = drop_reason_t.NONE;
            }

            if (meta.drop_reason == drop_reason_t.NONE && standard_metadata.mcast_grp == 0) {
                link_macs.apply();
            }
            if (meta.drop_reason != drop_reason_t.NONE) {
                drops.count((bit<32>) (bit<8>) meta.drop_reason);
                mark_to_drop(standard_metadata);
            }
        }
        // One call, because one packet makes one digest.
        if (meta.event_cause != ev_cause_t.NONE) {
            meta.event.cause = (bit<8>) meta.event_cause;
            if (hdr.bth.isValid()) {
                meta.event.qp = hdr.bth.dqp;
            }
            meta.event.time = standard_metadata.ingress_global_timestamp;
            digest<ev_event_t>(1, meta.event);
        }
    }
}

control NicEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    @name("port_out") counter(PORTS, CounterType.packets_and_bytes) port_out;

    SendCopy() send_copy;
    EndNack() end_nack;

    apply {
        if (meta.copies > 1) {
            send_copy.apply(hdr, meta, standard_metadata);
        }
        end_nack.apply(hdr);
        if (meta.drop_reason == drop_reason_t.NONE) {
            port_out.count((bit<32>) standard_metadata.egress_port);
        }
    }
}

control NicComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

V1Switch(NicParser(), NicVerifyChecksum(), NicIngress(), NicEgress(), NicComputeChecksum(),
         NicDeparser()) main;
