// SPDX-License-Identifier: Apache-2.0
// Packet trimming: instead of being dropped, an MRC packet loses everything behind its BTH, METH and
// TSETH, and gets the DSCP that says so. Lengths and UDP checksum are those of what is left; the ICRC
// is gone, and the DSCP tells the receiver not to look for it.
//
//   Ethernet | IPv6 | [SRH] | [IPv6] | UDP | BTH | [METH | [TSETH]] | RETH ... payload ICRC
//   <------------------------ kept -------------------------------->
#ifndef MRC_TRIM_P4
#define MRC_TRIM_P4

#include "headers.p4"

// `frame_bytes` is what egress truncates the frame to. `trimmed` is false, and nothing is changed, where
// the headers of an MRC packet were not found or are longer than `max_bytes` together.
control TrimPacket(inout ipv6_t ipv6, in srh_t srh, inout ipv6_t inner_ipv6, in l4_ports_t l4_ports,
                   inout udp_length_t udp, in bth_t bth, in meth_t meth, in tseth_t tseth,
                   in bit<16> max_bytes, in bit<6> trim_dscp,
                   out bit<16> frame_bytes, out bool trimmed) {
    apply {
        trimmed = false;
        frame_bytes = ETHERNET_HDR_BYTES + IPV6_HDR_BYTES;
        if (srh.isValid()) {
            frame_bytes = frame_bytes + 8 + ((bit<16>) srh.hdr_ext_len << 3);
        }
        if (inner_ipv6.isValid()) {
            frame_bytes = frame_bytes + IPV6_HDR_BYTES;
        }
        bit<16> udp_bytes = UDP_HDR_BYTES + BTH_BYTES;
        if (meth.isValid()) {
            udp_bytes = udp_bytes + METH_BYTES;
        }
        if (tseth.isValid()) {
            udp_bytes = udp_bytes + TSETH_BYTES;
        }
        frame_bytes = frame_bytes + udp_bytes;

        // The UDP checksum of a packet with an SRH and no inner header covers its last segment instead
        // of its destination: not a packet of MRC's.
        if (bth.isValid() && (inner_ipv6.isValid() || !srh.isValid()) && frame_bytes <= max_bytes) {
            trimmed = true;
            ipv6_addr_t src_addr = ipv6.src_addr;
            ipv6_addr_t dst_addr = ipv6.dst_addr;
            ipv6.dscp = trim_dscp;
            ipv6.payload_len = frame_bytes - (ETHERNET_HDR_BYTES + IPV6_HDR_BYTES);
            if (inner_ipv6.isValid()) {
                src_addr = inner_ipv6.src_addr;
                dst_addr = inner_ipv6.dst_addr;
                inner_ipv6.dscp = trim_dscp;
                inner_ipv6.payload_len = udp_bytes;
            }
            udp.len = udp_bytes;
            if (udp.checksum != 0) {
                bit<16> checksum;
                if (tseth.isValid()) {
                    hash(checksum, HashAlgorithm.csum16, 16w0,
                         { src_addr, dst_addr, 16w0, udp_bytes, 24w0, NEXT_HEADER_UDP,
                           l4_ports.src_port, l4_ports.dst_port, udp_bytes, 16w0, bth, meth, tseth },
                         32w0x10000);
                } else if (meth.isValid()) {
                    hash(checksum, HashAlgorithm.csum16, 16w0,
                         { src_addr, dst_addr, 16w0, udp_bytes, 24w0, NEXT_HEADER_UDP,
                           l4_ports.src_port, l4_ports.dst_port, udp_bytes, 16w0, bth, meth },
                         32w0x10000);
                } else {
                    hash(checksum, HashAlgorithm.csum16, 16w0,
                         { src_addr, dst_addr, 16w0, udp_bytes, 24w0, NEXT_HEADER_UDP,
                           l4_ports.src_port, l4_ports.dst_port, udp_bytes, 16w0, bth },
                         32w0x10000);
                }
                // 0 would say that there is no checksum (RFC 768); both mean the same sum.
                udp.checksum = checksum == 0 ? 0xFFFF : checksum;
            }
        }
    }
}

#endif
