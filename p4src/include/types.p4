// SPDX-License-Identifier: Apache-2.0
// Types and constants that both programs and all targets share.
#ifndef MRC_TYPES_P4
#define MRC_TYPES_P4

typedef bit<9>   port_t;
typedef bit<48>  mac_addr_t;
typedef bit<128> ipv6_addr_t;

typedef bit<16>  usid_t;          // kind(3) | plane(3) | index(10)
typedef bit<48>  locator_node_t;  // locator block(32) | active uSID(16)
typedef bit<3>   plane_t;
typedef bit<10>  uplink_t;
typedef bit<16>  path_ev_t;       // EV[31:16] = plane(3) | uplink(10) | tag(3)

const port_t CPU_PORT  = 510;     // `--cpu-port 510`
const port_t DROP_PORT = 511;     // `--drop-port 511`, which is also what mark_to_drop sets

const bit<16> ETHERTYPE_IPV6 = 0x86dd;

const bit<8> NEXT_HEADER_TCP     = 6;
const bit<8> NEXT_HEADER_UDP     = 17;
const bit<8> NEXT_HEADER_IPV6    = 41;
const bit<8> NEXT_HEADER_ROUTING = 43;

const bit<8> ROUTING_TYPE_SEGMENT_ROUTING = 4;  // RFC 8754

const bit<16> ETHERNET_HDR_BYTES = 14;
const bit<16> IPV6_HDR_BYTES     = 40;
const bit<16> UDP_HDR_BYTES      = 8;
const bit<16> BTH_BYTES          = 12;
const bit<16> METH_BYTES         = 4;
const bit<16> TSETH_BYTES        = 4;
const bit<16> NETH_BYTES         = 20;
const bit<16> ERTH_BYTES         = 16;
const bit<16> ICRC_BYTES         = 4;

// RoCEv2's UDP port, and the one that the MRC specification prints.
const bit<16> UDP_PORT_ROCE = 4791;
const bit<16> UDP_PORT_MRC  = 4971;

const bit<8> OPCODE_WRITE_BASE = 0xC0;    // opcodes 0xC0-0xCF are WRITEs, which have a METH
const bit<8> OPCODE_WRITE_MASK = 0xF0;
#define IS_WRITE(bth) ((bth).isValid() && (bth).opcode & OPCODE_WRITE_MASK == OPCODE_WRITE_BASE)
const bit<8> OPCODE_ENDPOINT_REQUEST  = 0xD8;
const bit<8> OPCODE_ENDPOINT_RESPONSE = 0xD9;
const bit<8> OPCODE_SACK              = 0xDC;
const bit<8> OPCODE_NACK              = 0xDD;

const bit<2>  SETH_M_NONE        = 0;
const bit<2>  SETH_M_SKIP_ONCE   = 1;
const bit<2>  SETH_M_ALWAYS_SKIP = 2;
const bit<8>  NACK_TRIMMED       = 1;
const bit<8>  NACK_TRIMMED_LASTHOP = 2;
const bit<2>  ENDPOINT_OP_PORT_STATUS = 0;
const bit<2>  ENDPOINT_OP_EV_PROBE = 1;
const bit<16> ENDPOINT_QP        = 2;

// Egress queues: priority 0 is data, 1 is control and served first.
const bit<3> PRIORITY_CONTROL = 1;

// uSID kinds, the top three bits. 0 is never used, so no uSID of a carrier is zero.
const bit<3> KIND_LOCAL = 7;      // 0xE000-0xFFFF: meaningful on one switch only (uA, decap)
const bit<3> LOCAL_REPLICATE = 1; // of that kind, in the place of the plane; index: the first uplink

// ECN code points (RFC 3168).
const bit<2> ECN_NOT_ECT = 0;
const bit<2> ECN_ECT_1   = 1;
const bit<2> ECN_ECT_0   = 2;
const bit<2> ECN_CE      = 3;

#endif
