// SPDX-License-Identifier: Apache-2.0
// The SRH: at most MAX_SEGMENTS carriers behind the one in the destination address.
#ifndef MRC_SEGMENTS_P4
#define MRC_SEGMENTS_P4

#include "headers.p4"

#define MAX_SEGMENTS 4

// Replaces an empty carrier by the next segment (RFC 9800 section 4.1.1, R20 ff.; RFC 8754 4.3.1.1).
// `found` is false when no segment is left, `malformed` when there is one that cannot be read.
control NextSegment(inout ipv6_t ipv6, inout srh_t srh, in srh_segment_t[MAX_SEGMENTS] segments,
                    out bool found, out bool malformed) {
    apply {
        found = false;
        malformed = false;
        if (srh.isValid() && srh.segments_left != 0) {
            srh.segments_left = srh.segments_left - 1;
            if (srh.segments_left > srh.last_entry) {
                malformed = true;
            } else if (srh.segments_left == 0 && segments[0].isValid()) {
                ipv6.dst_addr = segments[0].sid;
                found = true;
            } else if (srh.segments_left == 1 && segments[1].isValid()) {
                ipv6.dst_addr = segments[1].sid;
                found = true;
            } else if (srh.segments_left == 2 && segments[2].isValid()) {
                ipv6.dst_addr = segments[2].sid;
                found = true;
            } else if (srh.segments_left == 3 && segments[3].isValid()) {
                ipv6.dst_addr = segments[3].sid;
                found = true;
            } else {
                malformed = true;
            }
        }
    }
}

#endif
