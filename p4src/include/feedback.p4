// SPDX-License-Identifier: Apache-2.0
// What an arriving SACK, NACK or EV probe response says about which path. Included by nic.p4.
#ifndef MRC_FEEDBACK_P4
#define MRC_FEEDBACK_P4

#include "ev_state.p4"
#include "psn_memory.p4"

control ReadFeedback(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.seth.isValid()) {
            meta.feedback_ev = hdr.seth.entropy[31:16];
            if (hdr.seth.m == SETH_M_ALWAYS_SKIP) {
                meta.feedback_cause = ev_cause_t.ALWAYS_SKIP;
            } else if (hdr.seth.m == SETH_M_SKIP_ONCE) {
                meta.feedback_cause = hdr.seth.pr == 1 ? ev_cause_t.PROBE_MARKED
                                                       : ev_cause_t.SKIP_ONCE;
            } else if (hdr.seth.m == SETH_M_NONE) {
                meta.feedback_cause = hdr.seth.pr == 1 ? ev_cause_t.PROBE : ev_cause_t.ACKED;
            }
        } else if (hdr.neth.isValid()) {
            // Whatever the reason: the packet or its headers arrived, its path is not to blame when
            // the host sends it again.
            if (meta.psn_found) {
                psn_memory.write(meta.psn_index, meta.psn_cell | 2);
            }
            meta.feedback_ev = hdr.neth.entropy[31:16];
            meta.feedback_cause = hdr.neth.reason == NACK_TRIMMED ? ev_cause_t.TRIMMED
                                                                  : ev_cause_t.ACKED;
        } else if (meta.psn_found) {
            meta.feedback_ev = meta.psn_cell[23:8];
            meta.feedback_cause = ev_cause_t.PROBE;
        }
    }
}

#endif
