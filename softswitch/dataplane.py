# SPDX-License-Identifier: Apache-2.0
"""The loaded pipeline: what the P4Runtime server programs and what forwards the packets."""

from __future__ import annotations

from softswitch.errors import (
    AlreadyExists,
    BadProgram,
    CompileError,
    DataplaneError,
    InUse,
    InvalidArgument,
    NotFound,
    PortError,
    ReadOnly,
    TableFull,
    Unsupported,
)
from softswitch.values import (
    ActionCall,
    DataplaneOptions,
    Digest,
    FieldMatch,
    GroupRef,
    MemberRef,
    PacketIn,
)

__all__ = [
    "ActionCall",
    "AlreadyExists",
    "BadProgram",
    "CompileError",
    "DataplaneError",
    "DataplaneOptions",
    "Digest",
    "FieldMatch",
    "GroupRef",
    "InUse",
    "InvalidArgument",
    "MemberRef",
    "NotFound",
    "PacketIn",
    "PortError",
    "ReadOnly",
    "TableFull",
    "Unsupported",
]
