// SPDX-License-Identifier: Apache-2.0
// The EV of each PSN in the window of each QP. A QP is known by its peer's address and its UDP source
// port: the port is half of the entropy that answers reflect, the QP number in a packet is the other
// end's. Endpoint operations, whose answers reflect nothing, are kept under QP 2 and their request id.
#ifndef MRC_PSN_MEMORY_P4
#define MRC_PSN_MEMORY_P4

// Hash of the QP [5:0] ++ PSN [9:0]; QPs that share the six bits share a window of 1,024 PSNs.
const bit<32> REMEMBERED_PSNS = 65536;

// tag(16) PSN(24) path EV(16) 0(6) reported by a NACK(1) valid(1)
register<bit<64>>(REMEMBERED_PSNS) psn_memory;

control PsnMemory(inout metadata_t meta, in ipv6_addr_t peer, in bit<16> port, in bit<24> psn) {
    apply {
        bit<16> tag;
        hash(tag, HashAlgorithm.crc16, 16w0, { peer, port }, 32w65536);
        meta.psn_tag = tag;
        meta.psn = psn;
        meta.psn_index = 16w0 ++ tag[5:0] ++ psn[9:0];
        psn_memory.read(meta.psn_cell, meta.psn_index);
        meta.psn_found = meta.psn_cell[63:48] == tag && meta.psn_cell[47:24] == psn
                      && meta.psn_cell[0:0] == 1;
    }
}

#endif
