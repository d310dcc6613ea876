// SPDX-License-Identifier: Apache-2.0
// Arithmetic on uSID carriers (F3216, RFC 9800 NEXT-CSID) in the outer IPv6 destination:
//
//   127      96 95     80 79     64 63     48 47     32 31     16 15      0
//   |  block   | uSID 0  | uSID 1  | uSID 2  | uSID 3  | uSID 4  | uSID 5  |
//
// Slices, not masks: Tofino rejects 128-bit masking.
#ifndef MRC_USID_P4
#define MRC_USID_P4

#include "types.p4"

#define LOCATOR_BLOCK(addr) (addr)[127:96]
#define LOCATOR_NODE(addr)  (addr)[127:80]
#define ACTIVE_USID(addr)   (addr)[95:80]
#define ACTIVE_KIND(addr)   (addr)[95:93]
#define ACTIVE_PLANE(addr)  (addr)[92:90]

// Consumes the active uSID: the rest moves up by 16 bits, zeroes fill the end.
#define SHIFT_CARRIER(addr) { addr[95:16] = addr[79:0]; addr[15:0] = 0; }

#endif
