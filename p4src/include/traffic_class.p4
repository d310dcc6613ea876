// SPDX-License-Identifier: Apache-2.0
// What the DSCP of the host's header says: which of a port's queues a packet takes, in both directions, and
// whether a switch has trimmed it. Included by nic.p4 behind its headers and metadata.
#ifndef MRC_TRAFFIC_CLASS_P4
#define MRC_TRAFFIC_CLASS_P4

const bit<32> TRAFFIC_CLASSES = 64;

control TrafficClass(in headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) traffic_classes_counter;

    action data_class() { }
    action control_class() { standard_metadata.priority = PRIORITY_CONTROL; }
    // Trimmed inside the fabric: the path is to be avoided for once. `control_dscp` is for the NACK.
    action trimmed_in_fabric(bit<6> control_dscp) {
        control_class();
        meta.trimmed = true;
        meta.nack_reason = NACK_TRIMMED;
        meta.nack_dscp = control_dscp;
    }
    // Trimmed on the last hop: no path would have been better.
    action trimmed_on_last_hop(bit<6> control_dscp) {
        control_class();
        meta.trimmed = true;
        meta.nack_reason = NACK_TRIMMED_LASTHOP;
        meta.nack_dscp = control_dscp;
    }

    // DSCP to traffic class; the code points are the deployment's.
    @name("traffic_classes")
    table traffic_classes {
        key = { hdr.ipv6.dscp: exact @name("dscp"); }
        actions = { data_class; control_class; trimmed_in_fabric; trimmed_on_last_hop; }
        const default_action = data_class();
        counters = traffic_classes_counter;
        size = TRAFFIC_CLASSES;
    }

    apply {
        if (hdr.ipv6.isValid()) {
            traffic_classes.apply();
        }
    }
}

#endif
