// SPDX-License-Identifier: Apache-2.0
// Sending a host's packet on the path that an EV names: EV into the inner flow label, carrier and outer
// header in front. Included by nic.p4 behind its headers and metadata.
#ifndef MRC_TAKE_PATH_P4
#define MRC_TAKE_PATH_P4

#include "carrier.p4"

const bit<8> OUTER_HOP_LIMIT = 64;

// The host's packet gets the EV as its flow label, which is the only thing that the NIC writes into it;
// neither UDP checksum nor ICRC covers it, and the receiver echoes it. In front comes an outer header:
// DSCP and ECN copied out (RFC 6040 normal mode), the flow label repeated, so that a switch which hashes
// sees what the receiver will echo.
control TakePath(inout headers_t hdr, in metadata_t meta, in path_ev_t path_ev) {
    CrossT1Carrier() cross_t1_carrier;
    T0LocalCarrier() t0_local_carrier;

    apply {
        hdr.ipv6.flow_label = 4w0 ++ path_ev;
        if (meta.selection != selection_t.FLOW_HASH) {
            ipv6_addr_t carrier;
            bit<10> downlink = hdr.ipv6.dst_addr[9:0] - 1;
            if (meta.t0_local) {
                t0_local_carrier.apply(meta.template, path_ev, downlink, carrier);
            } else {
                cross_t1_carrier.apply(meta.template, path_ev, downlink, carrier);
                if (meta.replicated) {
                    carrier[79:74] = KIND_LOCAL ++ LOCAL_REPLICATE;  // of uplink carrier[73:64] and another
                }
            }
            hdr.outer_ipv6.setValid();
            hdr.outer_ipv6.version = 6;
            hdr.outer_ipv6.dscp = hdr.ipv6.dscp;
            hdr.outer_ipv6.ecn = hdr.ipv6.ecn;
            hdr.outer_ipv6.flow_label = hdr.ipv6.flow_label;
            hdr.outer_ipv6.payload_len = hdr.ipv6.payload_len + IPV6_HDR_BYTES;
            hdr.outer_ipv6.next_header = NEXT_HEADER_IPV6;
            hdr.outer_ipv6.hop_limit = OUTER_HOP_LIMIT;
            hdr.outer_ipv6.src_addr = hdr.ipv6.src_addr;
            hdr.outer_ipv6.dst_addr = carrier;
        }
    }
}

#endif
