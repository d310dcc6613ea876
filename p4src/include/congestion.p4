// SPDX-License-Identifier: Apache-2.0
// What happens at a full egress queue. Each port has two: control, served first, and data.
//
//   depth      0 ....... ecn_min ........... ecn_max ......... trim_threshold ....... capacity
//   ECT        sent      marked: chance 0 to 1      marked     trimmed                trimmed
//   Not-ECT    sent      sent                       sent       trimmed                trimmed
//   no trim    sent      as ECT or Not-ECT                     the same               TAIL_DROP
//
// Trimmed packets leave in the control queue; when that is at its capacity, too: TRIM_DROP. Names of
// settings and counters are those of SAI's packet trimming, WRED and port statistics.
#ifndef MRC_CONGESTION_P4
#define MRC_CONGESTION_P4

#include "headers.p4"
#include "drops.p4"
#include "queue.p4"
#include "trim.p4"

const bit<32> TRAFFIC_CLASSES = 64;

// The chance of a mark grows from 0 at ecn_min_threshold to 1 at ecn_max_threshold. Only packets whose
// both ends understand ECN are marked. Of a carrier that is the outer header, as in any tunnel, and the end
// of the tunnel merges it inwards (ecn.p4); it would drop CE over Not-ECT, so that is not made.
control MarkEcn(inout ipv6_t ipv6, in ipv6_t inner_ipv6, in port_config_t config, in bit<32> depth,
                out bool marked) {
    apply {
        marked = false;
        if (config.mark_ecn && (ipv6.ecn == ECN_ECT_0 || ipv6.ecn == ECN_ECT_1)
                && (!inner_ipv6.isValid() || inner_ipv6.ecn != ECN_NOT_ECT)) {
            if (depth >= (bit<32>) config.ecn_max_threshold) {
                marked = true;
            } else if (depth > (bit<32>) config.ecn_min_threshold) {
                bit<16> limit;
                random(limit, config.ecn_min_threshold, config.ecn_max_threshold - 1);
                marked = depth > (bit<32>) limit;
            }
            if (marked) {
                ipv6.ecn = ECN_CE;
            }
        }
    }
}

// The end of ingress: a packet that is to leave takes a place in a queue of its port, marked or trimmed as
// the queue's depth asks, or is dropped. Included behind the program's headers_t and metadata_t.
control TakeQueuePlace(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) port_config_counter;
    direct_counter(CounterType.packets_and_bytes) traffic_classes_counter;
    // SAI_PORT_STAT_ECN_MARKED_PACKETS
    @name("ecn_marked_packets") counter(PORTS, CounterType.packets_and_bytes) ecn_marked_packets;
    // SAI_PORT_STAT_TRIM_PACKETS, sent or not
    @name("trim_packets") counter(PORTS, CounterType.packets_and_bytes) trim_packets;
    // SAI_PORT_STAT_DROPPED_TRIM_PACKETS: those of them that found the control queue at its capacity
    @name("dropped_trim_packets") counter(PORTS, CounterType.packets_and_bytes) dropped_trim_packets;
    // SAI_QUEUE_STAT_DROPPED_PACKETS, of both queues: not trimmed and dropped
    @name("dropped_packets") counter(PORTS, CounterType.packets_and_bytes) dropped_packets;

    MarkEcn() mark_ecn;
    TrimPacket() trim_packet;

    bool is_control;
    bool trimmable;

    // Towards another switch.
    action to_switch(bit<16> ecn_min_threshold, bit<16> ecn_max_threshold,
                     bit<16> packet_trim_threshold, bit<16> packet_trim_size,
                     bit<6> packet_trim_dscp, bit<16> capacity) {
        meta.port_config.mark_ecn = true;
        meta.port_config.ecn_min_threshold = ecn_min_threshold;
        meta.port_config.ecn_max_threshold = ecn_max_threshold;
        meta.port_config.trim_threshold = packet_trim_threshold;
        meta.port_config.trim_size = packet_trim_size;
        meta.port_config.trim_dscp = packet_trim_dscp;
        meta.port_config.capacity = capacity;
    }
    // The last hop: congestion there is no path's fault, and no mark may move senders to another one.
    action to_host(bit<16> packet_trim_threshold, bit<16> packet_trim_size, bit<6> packet_trim_dscp,
                   bit<16> capacity) {
        meta.port_config.mark_ecn = false;
        meta.port_config.trim_threshold = packet_trim_threshold;
        meta.port_config.trim_size = packet_trim_size;
        meta.port_config.trim_dscp = packet_trim_dscp;
        meta.port_config.capacity = capacity;
    }
    action unlimited() { }

    // What kind of neighbour a port has, and its thresholds in packets. `capacity` is at most the depth that
    // the target gives to each queue. A port without an entry has one queue that P4 knows nothing of:
    // nothing is marked or trimmed, and what it loses, the target loses.
    @name("port_config")
    table port_config {
        key = { standard_metadata.egress_spec: exact @name("port"); }
        actions = { to_switch; to_host; @defaultonly unlimited; }
        const default_action = unlimited();
        counters = port_config_counter;
        size = PORTS;
    }

    action data_trim() { trimmable = true; }
    action data_no_trim() { }
    action control_class() { is_control = true; }

    // DSCP to traffic class.
    @name("traffic_classes")
    table traffic_classes {
        key = { hdr.ipv6.dscp: exact @name("dscp"); }
        actions = { data_trim; data_no_trim; control_class; }
        const default_action = data_no_trim();
        counters = traffic_classes_counter;
        size = TRAFFIC_CLASSES;
    }

    bit<32> last;   // number of the last packet admitted
    bit<32> left;   // and of the last that left
    bit<32> depth;

    action read_depth(bit<1> control_queue) {
        meta.place.queue = (bit<32>) (standard_metadata.egress_spec ++ control_queue);
        enqueued.read(last, meta.place.queue);
        dequeued.read(left, meta.place.queue);
        depth = last - left;
    }

    apply {
        is_control = false;
        trimmable = false;
        last = 0;
        depth = 0;
        if (port_config.apply().hit) {
            bit<32> port = (bit<32>) standard_metadata.egress_spec;
            bit<32> capacity = (bit<32>) meta.port_config.capacity;
            bool trimmed = false;
            bit<16> frame_bytes = 0;
            if (hdr.ipv6.isValid()) {
                traffic_classes.apply();
            } else {
                is_control = true;  // LLDP and the like, from the controller
            }
            if (!is_control) {
                read_depth(0);
                if (trimmable && depth >= (bit<32>) meta.port_config.trim_threshold) {
                    trim_packet.apply(hdr.ipv6, hdr.srh, hdr.inner_ipv6, hdr.l4_ports, hdr.udp_length,
                                      hdr.bth, hdr.meth, hdr.tseth, meta.port_config.trim_size,
                                      meta.port_config.trim_dscp, frame_bytes, trimmed);
                }
                if (trimmed) {
                    meta.trim_bytes = frame_bytes;
                    trim_packets.count(port);
                    is_control = true;
                }
            }
            if (is_control) {
                read_depth(1);
                standard_metadata.priority = PRIORITY_CONTROL;
            }

            if (depth >= capacity) {
                if (trimmed) {
                    dropped_trim_packets.count(port);
                    meta.drop_reason = drop_reason_t.TRIM_DROP;
                } else {
                    dropped_packets.count(port);
                    meta.drop_reason = drop_reason_t.TAIL_DROP;
                }
            } else {
                if (!is_control) {
                    bool marked;
                    mark_ecn.apply(hdr.ipv6, hdr.inner_ipv6, meta.port_config, depth, marked);
                    if (marked) {
                        ecn_marked_packets.count(port);
                    }
                }
                meta.place.numbered = true;
                meta.place.number = last + 1;
                enqueued.write(meta.place.queue, meta.place.number);
            }
        }
    }
}

#endif
