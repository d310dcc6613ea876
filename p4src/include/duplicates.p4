// SPDX-License-Identifier: Apache-2.0
// Redundancy, the receiving side: of the copies of a WRITE the first one goes to the host, the others are
// dropped. Included by nic.p4 behind its headers and metadata.
//
// No bitmap and no window that moves: each QP has 1,024 cells, PSN mod 1,024 says which, and a cell holds
// the PSN that came last and when. So copies may lag by up to 1,023 PSNs, over the wrap too, and a QP that
// starts anew finds its cells empty after a second. QPs that share cells overwrite each other's: then a
// copy may pass, and the host finds the PSN taken; none is ever dropped for another QP's sake.
#ifndef MRC_DUPLICATES_P4
#define MRC_DUPLICATES_P4

#include "types.p4"

// Hash of the QP [5:0] ++ PSN [9:0].
const bit<32> SEEN_PSNS = 65536;

// In units of 2^14 us: just under a second.
const bit<25> SEEN_FOR = 61;

control DropDuplicates(in headers_t hdr, inout metadata_t meta, in bit<48> now) {
    direct_counter(CounterType.packets_and_bytes) duplicate_classes_counter;

    // hash of the QP [31:8] ++ PSN [23:10] ++ time [38:14] ++ valid(1). The time comes round every six days.
    register<bit<64>>(SEEN_PSNS) seen_psns;

    bool copied;
    bool trimmed;

    action first_only() { copied = true; }
    // Whatever its class was before a switch trimmed it.
    action trimmed_copy() { trimmed = true; }
    action every() { }

    // Traffic classes that senders send copies of, and those of trimmed packets.
    @name("duplicate_classes")
    table duplicate_classes {
        key = { hdr.ipv6.dscp: exact @name("dscp"); }
        actions = { first_only; trimmed_copy; @defaultonly every; }
        const default_action = every();
        counters = duplicate_classes_counter;
        size = DSCPS;
    }

    apply {
        copied = false;
        trimmed = false;
        if (IS_WRITE(hdr.bth)) {
            duplicate_classes.apply();
            if (copied || trimmed) {
                bit<32> qp;
                hash(qp, HashAlgorithm.crc32, 32w0, { hdr.ipv6.src_addr, hdr.bth.dqp },
                     64w0x100000000);
                bit<32> index = 16w0 ++ qp[5:0] ++ hdr.bth.psn[9:0];
                bit<64> cell;
                seen_psns.read(cell, index);
                bool seen = cell[0:0] == 1 && now[38:14] - cell[25:1] <= SEEN_FOR
                         && cell[63:26] == qp[31:8] ++ hdr.bth.psn[23:10];
                if (seen && hdr.bth.rtx == 0) {
                    // Of a trimmed copy, too: with a whole one here nothing is missing.
                    meta.drop_reason = drop_reason_t.DUPLICATE;
                } else if (copied) {
                    // A trimmed one leaves no trace: the whole copy behind it has to pass.
                    seen_psns.write(index,
                                    qp[31:8] ++ hdr.bth.psn[23:10] ++ now[38:14] ++ 1w1);
                }
            }
        }
    }
}

#endif
