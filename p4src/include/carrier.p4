// SPDX-License-Identifier: Apache-2.0
// Building a carrier for one packet out of the destination's template and an EV (paper section 2.3):
// plane bits into every uSID, the uplink number into the T1 uSID, the downlink into the last one.
//
//   cross-T1:  block | T0(src) | T1 | T0(dst) | downlink(dst) | 0 | 0
//   T0-local:  block | T0      | downlink(dst) | 0 | 0 | 0 | 0
//
// uSID = kind(3) | plane(3) | index(10); path EV = plane(3) | uplink(10) | tag(3).
#ifndef MRC_CARRIER_P4
#define MRC_CARRIER_P4

#include "types.p4"

#define EV_PLANE(path_ev)  (path_ev)[15:13]
#define EV_UPLINK(path_ev) (path_ev)[12:3]

control CrossT1Carrier(in ipv6_addr_t template, in path_ev_t path_ev, in bit<10> downlink,
                       out ipv6_addr_t carrier) {
    apply {
        carrier = template;
        carrier[92:90] = EV_PLANE(path_ev);
        carrier[76:74] = EV_PLANE(path_ev);
        carrier[73:64] = EV_UPLINK(path_ev);
        carrier[60:58] = EV_PLANE(path_ev);
        carrier[44:42] = EV_PLANE(path_ev);
        carrier[41:32] = downlink;
    }
}

control T0LocalCarrier(in ipv6_addr_t template, in path_ev_t path_ev, in bit<10> downlink,
                       out ipv6_addr_t carrier) {
    apply {
        carrier = template;
        carrier[92:90] = EV_PLANE(path_ev);
        carrier[76:74] = EV_PLANE(path_ev);
        carrier[73:64] = downlink;
    }
}

#endif
