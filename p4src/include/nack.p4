// SPDX-License-Identifier: Apache-2.0
// A trimmed packet is turned round: its headers become the NACK that tells the sender, and go back on
// a path that the spray group towards the sender chooses, as if the host had sent them. Included by
// nic.p4 behind its headers and metadata.
//
//   IPv6 A > B | UDP | BTH to QP b | [METH | TSETH] ...   arrives, DSCP TRIMMED[_LASTHOP]
//   IPv6 B > A | UDP | BTH to QP a | NETH | ICRC          leaves, DSCP CONTROL
//
// A data packet does not name its sender's QP: `peers` does. Where it has no entry, or the headers do
// not suffice for a NACK, they go up to the host, whose end point decides.
#ifndef MRC_NACK_P4
#define MRC_NACK_P4

const bit<32> PEERS = 16384;  // one per QP

const bit<8>  NACK_HOP_LIMIT = 64;
const bit<4>  NACK_CC_TYPE   = 2;
const bit<16> NACK_UDP_BYTES = UDP_HDR_BYTES + BTH_BYTES + NETH_BYTES + ICRC_BYTES;
const bit<16> NACK_FRAME_BYTES = ETHERNET_HDR_BYTES + IPV6_HDR_BYTES + NACK_UDP_BYTES;

// Index of the counter `trimmed`: what became of the trimmed packets that arrived.
enum bit<8> trimmed_fate_t {
    TURNED_ROUND  = 0,   // to a NACK; `drops` has those for which there was no path
    NO_PEER       = 1,   // up to the host: the sender's QP is not known
    NOT_NACKABLE  = 2    // up to the host: no WRITE, or its headers are cut or contradict each other
}
const bit<32> TRIMMED_FATES = 3;

control TurnRound(inout headers_t hdr, inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) peers_counter;
    @name("trimmed") counter(TRIMMED_FATES, CounterType.packets_and_bytes) trimmed;

    action peer(bit<24> peer_qp) {
        hdr.neth.setValid();
        hdr.neth.spdcid = hdr.bth.dqp[15:0];
        hdr.neth.dpdcid = peer_qp[15:0];
        hdr.bth.dqp = peer_qp;
    }
    action no_peer() { }

    // Filled when QPs are set up, not by pushes: who sends to the own QP `qp`.
    @name("peers")
    table peers {
        key = {
            hdr.ipv6.src_addr: exact @name("src_addr");
            hdr.bth.dqp: exact @name("qp");
        }
        actions = { peer; @defaultonly no_peer; }
        const default_action = no_peer();
        counters = peers_counter;
        size = PEERS;
    }

    action write_neth() {
        hdr.neth.type_nxt = 0;
        hdr.neth.reason = meta.nack_reason;
        hdr.neth.vendor_info = 0;
        hdr.neth.entropy = hdr.ipv6.flow_label[15:0] ++ hdr.l4_ports.src_port;
        hdr.neth.reserved = 0;
        hdr.neth.psn = hdr.bth.psn;
        hdr.neth.cc_type = NACK_CC_TYPE;
        hdr.neth.cc_flags = 0;
        hdr.neth.reserved2 = 0;
        hdr.neth.tx_timestamp = 0;
    }

    action write_bth() {
        hdr.bth.opcode = OPCODE_NACK;
        hdr.bth.se = 0;
        hdr.bth.m = 0;
        hdr.bth.pad = 0;
        hdr.bth.reserved = 0;
        hdr.bth.ack_request = 0;
        hdr.bth.r = 0;
        hdr.bth.rtx = 0;
        hdr.bth.ts = 0;
        hdr.bth.reserved2 = 0;
        hdr.meth.setInvalid();
        hdr.tseth.setInvalid();
    }

    action write_ipv6() {
        ipv6_addr_t own = hdr.ipv6.dst_addr;
        hdr.ipv6.dst_addr = hdr.ipv6.src_addr;
        hdr.ipv6.src_addr = own;
        hdr.ipv6.dscp = meta.nack_dscp;
        hdr.ipv6.ecn = ECN_NOT_ECT;
        hdr.ipv6.flow_label = 0;    // not chosen by anybody
        hdr.ipv6.hop_limit = NACK_HOP_LIMIT;
        hdr.ipv6.payload_len = NACK_UDP_BYTES;
        hdr.udp_length.len = NACK_UDP_BYTES;
    }

    // Ones stand for what may change on the way: traffic class, flow label, hop limit, UDP checksum and
    // the fifth byte of the BTH; eight more bytes of them for a local route header.
    action write_icrc() {
        bit<32> crc;
        hash(crc, HashAlgorithm.crc32, 32w0,
             { 64w0xFFFFFFFFFFFFFFFF, 4w6, 28w0xFFFFFFF, hdr.ipv6.payload_len,
               hdr.ipv6.next_header, 8w0xFF, hdr.ipv6.src_addr, hdr.ipv6.dst_addr,
               hdr.l4_ports, hdr.udp_length.len, 16w0xFFFF,
               hdr.bth.opcode, hdr.bth.se, hdr.bth.m, hdr.bth.pad, hdr.bth.tver, hdr.bth.pkey,
               8w0xFF, hdr.bth.dqp, hdr.bth.ack_request, hdr.bth.r, hdr.bth.rtx, hdr.bth.ts,
               hdr.bth.reserved2, hdr.bth.psn, hdr.neth },
             64w0x100000000);
        hdr.icrc.setValid();
        hdr.icrc.crc = crc[7:0] ++ crc[15:8] ++ crc[23:16] ++ crc[31:24];
    }

    // Always, even if the trimmed packet had none: a checksum is accepted wherever 0 is (RFC 6935),
    // and only the sender's host knows whether it takes 0.
    action write_udp_checksum() {
        bit<16> checksum;
        hash(checksum, HashAlgorithm.csum16, 16w0,
             { hdr.ipv6.src_addr, hdr.ipv6.dst_addr, 16w0, hdr.udp_length.len,
               24w0, NEXT_HEADER_UDP, hdr.l4_ports, hdr.udp_length.len, 16w0,
               hdr.bth, hdr.neth, hdr.icrc },
             32w0x10000);
        hdr.udp_length.checksum = checksum == 0 ? 0xFFFF : checksum;
    }

    apply {
        if (meta.trimmed) {
            trimmed_fate_t fate = trimmed_fate_t.NOT_NACKABLE;
            // Switches may leave the lengths of the whole packet, but a datagram that ends before what
            // is read of it is broken.
            bit<16> udp_bytes = UDP_HDR_BYTES + BTH_BYTES;
            if (hdr.tseth.isValid()) {
                udp_bytes = udp_bytes + METH_BYTES + TSETH_BYTES;
            }
            if (hdr.bth.isValid() && hdr.bth.opcode & OPCODE_WRITE_MASK == OPCODE_WRITE_BASE
                    && hdr.bth.tver == 0 && (hdr.bth.ts == 0 || hdr.tseth.isValid())
                    && hdr.ipv6.payload_len >= udp_bytes && hdr.udp_length.len >= udp_bytes) {
                fate = trimmed_fate_t.NO_PEER;
                if (peers.apply().hit) {
                    fate = trimmed_fate_t.TURNED_ROUND;
                    meta.sending = true;
                    write_neth();
                    if (hdr.tseth.isValid()) {
                        hdr.neth.tx_timestamp = hdr.tseth.tx_timestamp;
                    }
                    write_bth();
                    write_ipv6();
                    write_icrc();
                    write_udp_checksum();
                }
            }
            trimmed.count((bit<32>) (bit<8>) fate);
        }
    }
}

// For each packet in egress: nothing of the trimmed packet is left behind the NACK.
control EndNack(in headers_t hdr) {
    apply {
        if (hdr.icrc.isValid()) {
            bit<16> frame_bytes = NACK_FRAME_BYTES;
            if (hdr.outer_ipv6.isValid()) {
                frame_bytes = frame_bytes + IPV6_HDR_BYTES;
            }
            truncate((bit<32>) frame_bytes);
        }
    }
}

#endif
