// SPDX-License-Identifier: Apache-2.0
// Packet headers that both programs parse.
#ifndef MRC_HEADERS_P4
#define MRC_HEADERS_P4

#include "types.p4"

header ethernet_t {
    mac_addr_t dst_addr;
    mac_addr_t src_addr;
    bit<16>    ether_type;
}

header ipv6_t {
    bit<4>      version;
    bit<6>      dscp;
    bit<2>      ecn;
    bit<20>     flow_label;
    bit<16>     payload_len;
    bit<8>      next_header;
    bit<8>      hop_limit;
    ipv6_addr_t src_addr;
    ipv6_addr_t dst_addr;
}

// Segment Routing Header without TLVs (RFC 8754 section 2); its segment list follows.
header srh_t {
    bit<8>  next_header;
    bit<8>  hdr_ext_len;    // in 8-byte units behind the first 8 bytes: 2 per segment
    bit<8>  routing_type;
    bit<8>  segments_left;
    bit<8>  last_entry;
    bit<8>  flags;
    bit<16> tag;
}

header srh_segment_t {
    ipv6_addr_t sid;
}

// The part that UDP and TCP have in common; ECMP hashes over it.
header l4_ports_t {
    bit<16> src_port;
    bit<16> dst_port;
}

// The rest of a UDP header.
header udp_length_t {
    bit<16> len;            // of header and data, in bytes
    bit<16> checksum;
}

// MRC base transport header: IBTA's with the bits `rtx` and `ts`.
header bth_t {
    bit<8>  opcode;
    bit<1>  se;
    bit<1>  m;
    bit<2>  pad;
    bit<4>  tver;
    bit<16> pkey;
    bit<8>  reserved;
    bit<24> dqp;
    bit<1>  ack_request;
    bit<1>  r;
    bit<1>  rtx;            // a retransmission
    bit<1>  ts;             // TSETH follows METH
    bit<4>  reserved2;
    bit<24> psn;
}

// Message header, after the BTH of every WRITE.
header meth_t {
    bit<16> rqmsn;
    bit<16> msn;
}

// Time stamp header.
header tseth_t {
    bit<16> tx_timestamp;
    bit<1>  tsr;
    bit<11> reserved;
    bit<4>  ftype;
}

// Selective acknowledgement (opcode 0xDC): its first 8 bytes.
header seth_t {
    bit<4>  type;
    bit<5>  nxt;
    bit<2>  m;              // SETH_M_...
    bit<3>  reserved;
    bit<1>  pr;             // answers a probe
    bit<1>  reserved2;
    bit<16> ack_psn_offset;
    bit<32> entropy;        // EV of the packet that triggered it
}

// Negative acknowledgement (opcode 0xDD).
header neth_t {
    bit<16> type_nxt;
    bit<8>  reason;
    bit<8>  vendor_info;
    bit<32> entropy;
    bit<16> spdcid;
    bit<16> dpdcid;
    bit<8>  reserved;
    bit<24> psn;
    bit<4>  cc_type;
    bit<4>  cc_flags;
    bit<8>  reserved2;
    bit<16> tx_timestamp;
}

// Invariant CRC at the end of every MRC packet, least significant byte first.
header icrc_t {
    bit<32> crc;
}

// Endpoint operation, request (opcode 0xD8) and response (0xD9): their first 4 bytes.
header endpoint_op_t {
    bit<8>  type_nxt;
    bit<4>  reserved;
    bit<2>  response_op;
    bit<2>  request_op;
    bit<8>  reserved2;
    bit<8>  vendor_info;
}

// The rest of a port status update (Endpoint Request op 0), to the end of the packet.
header port_status_t {
    bit<32> mask;           // bit p: can be reached on plane p
    bit<32> reserved;
    bit<32> time_stamp;     // as TSETH
    bit<32> icrc;
}

#endif
