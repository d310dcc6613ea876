// SPDX-License-Identifier: Apache-2.0
// ECN at decapsulation, RFC 6040 section 4.2:
//
//              outer  Not-ECT  ECT(0)   ECT(1)   CE
//   inner Not-ECT     Not-ECT  Not-ECT  Not-ECT  drop
//         ECT(0)      ECT(0)   ECT(0)   ECT(1)   CE
//         ECT(1)      ECT(1)   ECT(1)   ECT(1)   CE
//         CE          CE       CE       CE       CE
#ifndef MRC_ECN_P4
#define MRC_ECN_P4

#include "types.p4"

control MergeEcn(in bit<2> outer, inout bit<2> inner, out bool illegal) {
    apply {
        illegal = false;
        if (outer == ECN_CE) {
            if (inner == ECN_NOT_ECT) {
                illegal = true;
            } else {
                inner = ECN_CE;
            }
        } else if (outer == ECN_ECT_1 && inner == ECN_ECT_0) {
            inner = ECN_ECT_1;
        }
    }
}

#endif
