// SPDX-License-Identifier: Apache-2.0
// How full an egress queue is, known in ingress, where it can still be acted on.
//
// Depth in packets = admitted - left. Ingress numbers the packets that it admits to a queue, each carries its
// number through the queue, and egress notes it. So the depth counts also what has only just been
// admitted: a queue that is given no packet at its capacity never overflows, and none is lost unseen, in
// bursts neither. (What the targets report as depth is as old as the last packet that left.)
#ifndef MRC_QUEUE_P4
#define MRC_QUEUE_P4

const bit<32> PORT_QUEUES = 1024;  // index: port ++ control

// A packet's place in its queue, carried to egress.
struct queue_place_t {
    bool    numbered;
    bit<32> queue;
    bit<32> number;
}

// What the controller says about a port; thresholds in packets.
struct port_config_t {
    bool    mark_ecn;
    bit<16> ecn_min_threshold;
    bit<16> ecn_max_threshold;
    bit<16> trim_threshold;
    bit<16> trim_size;
    bit<6>  trim_dscp;
    bit<16> capacity;
}

@name("enqueued") register<bit<32>>(PORT_QUEUES) enqueued;  // number of the last packet admitted
@name("dequeued") register<bit<32>>(PORT_QUEUES) dequeued;  // number of the last packet that left

// For each packet in egress.
control LeaveQueue(in queue_place_t place) {
    apply {
        if (place.numbered) {
            dequeued.write(place.queue, place.number);
        }
    }
}

#endif
