// SPDX-License-Identifier: Apache-2.0
// In-network redundancy: a T0 sends a carrier on by two T1s, which share no link and no switch between this
// T0 and the next one. Included by fabric.p4 behind its headers and metadata.
//
//   NIC to T0   block | T0 | local (replicate, uplink u) | T0 | downlink
//   T0 to T1 u  block      | T1 u                        | T0 | downlink      and the same to another T1
//
//   ingress: local_sid - replicate - a place in the queue of each port, or of one of them
//   egress:  port - replica_uplinks - the T1's uSID in the place of the local one, the link's MACs
//
// Copies are neither marked nor trimmed: a queue that is full gets none, which costs nothing as long as
// the other one is sent.
#ifndef MRC_REPLICATE_P4
#define MRC_REPLICATE_P4

#include "drops.p4"
#include "queue.p4"

const bit<32> REPLICA_UPLINKS = 512;

// A place in a port's data queue (queue.p4), if there is one left.
control TakeCopyPlace(in port_t port, in bit<16> capacity, inout queue_place_t place,
                      out bool admitted) {
    apply {
        admitted = true;
        if (capacity != 0) {
            bit<32> last;
            bit<32> left;
            bit<32> queue = (bit<32>) (port ++ 1w0);
            enqueued.read(last, queue);
            dequeued.read(left, queue);
            admitted = last - left < (bit<32>) capacity;
            if (admitted) {
                place.numbered = true;
                place.queue = queue;
                place.number = last + 1;
                enqueued.write(queue, place.number);
            }
        }
    }
}

// The end of ingress for a packet that is copied, instead of TakeQueuePlace.
control TakeCopyPlaces(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Copies that found their queue full, by port.
    @name("dropped_copies") counter(PORTS, CounterType.packets_and_bytes) dropped_copies;

    TakeCopyPlace() take_first;
    TakeCopyPlace() take_second;

    apply {
        bool first;
        bool second = false;
        take_first.apply(meta.replicas.first_port, meta.replicas.capacity, meta.place, first);
        if (!first) {
            dropped_copies.count((bit<32>) meta.replicas.first_port);
        }
        if (meta.replicas.multicast_group != 0) {
            take_second.apply(meta.replicas.second_port, meta.replicas.capacity,
                              meta.replicas.second_place, second);
            if (!second) {
                dropped_copies.count((bit<32>) meta.replicas.second_port);
            }
        }
        if (first && second) {
            standard_metadata.mcast_grp = meta.replicas.multicast_group;
        } else if (first) {
            standard_metadata.egress_spec = meta.replicas.first_port;
        } else if (second) {
            standard_metadata.egress_spec = meta.replicas.second_port;
        } else {
            meta.drop_reason = drop_reason_t.TAIL_DROP;
        }
    }
}

// Egress of a copy.
control SendReplica(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) replica_uplinks_counter;

    LeaveQueue() leave_second;

    action to_t1(bit<16> t1, mac_addr_t dst_mac, mac_addr_t src_mac) {
        ACTIVE_USID(hdr.ipv6.dst_addr) = t1;
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ethernet.src_addr = src_mac;
    }
    action no_uplink() {
        meta.drop_reason = drop_reason_t.NO_LINK;
        drops.count((bit<32>) (bit<8>) drop_reason_t.NO_LINK);
        mark_to_drop(standard_metadata);
    }

    // The T1 behind each uplink.
    @name("replica_uplinks")
    table replica_uplinks {
        key = { standard_metadata.egress_port: exact @name("egress_port"); }
        actions = { to_t1; @defaultonly no_uplink; }
        const default_action = no_uplink();
        counters = replica_uplinks_counter;
        size = REPLICA_UPLINKS;
    }

    apply {
        if (standard_metadata.egress_port == meta.replicas.second_port) {
            leave_second.apply(meta.replicas.second_place);
            meta.place.numbered = false;
        }
        replica_uplinks.apply();
    }
}

#endif
