# SPDX-License-Identifier: Apache-2.0
"""Table entries with counters as a read returns them.

csrc/encode.c does the same for whole tables.
"""

from __future__ import annotations

from typing import Any

from finsy.proto import p4r

from softswitch.wire import (
    ENTITY_DIRECT_COUNTER,
    ENTITY_TABLE_ENTRY,
    counter_data,
    message_field,
)

_COUNTER_DATA = 7  # a field of TableEntry
_DIRECT_TABLE_ENTRY, _DIRECT_DATA = 1, 2  # fields of DirectCounterEntry


def key_only(wire: bytes, *more: str) -> Any:
    """A TableEntry with table, match and priority of a stored one, and some `more` fields."""
    message = p4r.TableEntry.FromString(wire)
    for name in ("action", "controller_metadata", "metadata", "idle_timeout_ns", "is_const"):
        if name not in more:
            message.ClearField(name)
    return message


def counted_entry(wire: bytes, packets: int, bytes_: int) -> bytes:
    """A serialised Entity with a TableEntry and its counter."""
    counter = message_field(_COUNTER_DATA, counter_data(packets, bytes_))
    return message_field(ENTITY_TABLE_ENTRY, wire + counter)


def counted_key(wire: bytes, packets: int, bytes_: int) -> bytes:
    """A serialised Entity with a DirectCounterEntry of a TableEntry."""
    key = message_field(_DIRECT_TABLE_ENTRY, key_only(wire).SerializeToString())
    data = message_field(_DIRECT_DATA, counter_data(packets, bytes_))
    return message_field(ENTITY_DIRECT_COUNTER, key + data)
