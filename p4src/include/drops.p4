// SPDX-License-Identifier: Apache-2.0
// Why a packet was dropped: the index into the counter `drops` of either program.
// controller/drops.py has the same list; a test compares them.
#ifndef MRC_DROPS_P4
#define MRC_DROPS_P4

enum bit<8> drop_reason_t {
    NONE              = 0,
    NOT_IPV6          = 1,   // neither IPv6 nor an EtherType that is punted
    TRUNCATED         = 2,   // ends inside a header that is needed
    HOP_LIMIT         = 3,   // hop limit 0 or 1 on arrival
    NOT_MY_SID        = 4,   // in the locator block, leading uSID not this switch's: mis-cabling
    UNKNOWN_USID      = 5,   // next uSID not in the static table
    UNKNOWN_LOCAL_SID = 6,   // next uSID is in the local range and not installed
    CARRIER_ENDED     = 7,   // no uSID left, no segment left, and the switch is not the destination
    BAD_SRH           = 8,   // a segment is needed and the SRH is malformed or has over 4 segments
    NOT_ENCAPSULATED  = 9,   // decapsulation asked for, nothing inside
    NO_ROUTE          = 10,  // no route for a plain IPv6 destination, or its ECMP group is missing
    NO_DESTINATION    = 11,  // NIC: no template for the host's destination
    NO_GROUP          = 12,  // NIC: spray group not configured
    NO_LIVE_PLANE     = 13,  // NIC: every plane of the set is down
    NO_SLOT           = 14,  // NIC: slot not filled
    NOT_OWN_CARRIER   = 15,  // NIC: arrived with another NIC's carrier or on another plane's port
    NOT_OWN_ADDRESS   = 16,  // NIC: inner destination is not its host
    ECN_NOT_ECT       = 17,  // decapsulation: outer CE over inner Not-ECT (RFC 6040 section 4.2)
    NO_LINK           = 18,  // NIC: the EV or the host's carrier names a plane that it has no port for
    TAIL_DROP         = 19,  // the egress queue is at its capacity, and the packet is not to be trimmed
    TRIM_DROP         = 20,  // trimmed, and the queue for trimmed packets is at its capacity, too
    NO_PATH           = 21,  // NIC: every path that the slot offers is denied
    DUPLICATE         = 22   // NIC: a copy of the packet has arrived before
}

const bit<32> DROP_REASONS = 32;

// For both ingress and egress.
@name("drops") counter(DROP_REASONS, CounterType.packets_and_bytes) drops;

#endif
