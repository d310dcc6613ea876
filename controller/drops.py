# SPDX-License-Identifier: Apache-2.0
"""Why a packet was dropped: the indices of both programs' `drops` counter.

`p4src/include/drops.p4` is the source; a test compares the two.
"""

from __future__ import annotations

from enum import IntEnum


class DropReason(IntEnum):
    """The index in the `drops` counter."""

    NONE = 0
    NOT_IPV6 = 1
    TRUNCATED = 2
    HOP_LIMIT = 3
    NOT_MY_SID = 4
    UNKNOWN_USID = 5
    UNKNOWN_LOCAL_SID = 6
    CARRIER_ENDED = 7
    BAD_SRH = 8
    NOT_ENCAPSULATED = 9
    NO_ROUTE = 10
    NO_DESTINATION = 11
    NO_GROUP = 12
    NO_LIVE_PLANE = 13
    NO_SLOT = 14
    NOT_OWN_CARRIER = 15
    NOT_OWN_ADDRESS = 16
    ECN_NOT_ECT = 17
    NO_LINK = 18
    TAIL_DROP = 19
    TRIM_DROP = 20
    NO_PATH = 21
    DUPLICATE = 22
