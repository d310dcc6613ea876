# SPDX-License-Identifier: Apache-2.0
"""The engine's C functions (csrc/, marked SS_API there) as ctypes sees them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

from softswitch.compile import engine_library
from softswitch.errors import (
    AlreadyExists,
    AssertionFailed,
    DataplaneError,
    NotFound,
    PortError,
    TableFull,
)

ERROR_BYTES = 256
NONE = 0xFFFFFFFF
"""No action, no handle, not truncated."""

DIRECT, MEMBER, GROUP = 0, 1, 2
ALL = KEEP_DEPTH = 0xFFFFFFFF
KEEP_RATE = 0xFFFFFFFFFFFFFFFF
EVENT_PACKET, EVENT_DIGEST, EVENT_PORT = 1, 2, 3

_FULL, _NOT_FOUND, _EXISTS, _MEMORY, _SYSTEM, _ASSERTION, _LOOP, _STATE = range(-1, -9, -1)


class SwitchOptions(ctypes.Structure):
    """struct ss_options."""

    _fields_ = (
        ("cpu_port", c_uint32),
        ("drop_port", c_uint32),
        ("queue_depth", c_uint32),
        ("priorities", c_uint32),
        ("ring_bytes", c_uint32),
        ("has_seed", c_uint32),
        ("seed", c_uint64),
    )


class Event(ctypes.Structure):
    """struct ss_event; `bytes` bytes follow."""

    _fields_ = (
        ("next", c_void_p),
        ("kind", c_uint32),
        ("list", c_uint32),
        ("time_us", c_uint64),
        ("bytes", c_uint32),
        ("padding", c_uint32),
    )


class CrcParameters(ctypes.Structure):
    """struct ss_crc_desc."""

    _fields_ = (
        ("polynomial", c_uint64),
        ("initial", c_uint64),
        ("final_xor", c_uint64),
        ("bits", c_uint32),
        ("reflect_data", ctypes.c_bool),
        ("reflect_remainder", ctypes.c_bool),
    )


Pair = c_uint64 * 2

LogMessage = ctypes.CFUNCTYPE(None, c_char_p, c_char_p, POINTER(c_uint64))
"""ss_log_message; given to the engine as a c_void_p."""

_SWITCH = c_void_p
_WORDS = c_char_p  # 64-bit words as bytes, lowest first
PROTOTYPES: dict[str, tuple[type | None, list[type]]] = {
    "ss_create": (c_void_p, [POINTER(SwitchOptions)]),
    "ss_destroy": (None, [_SWITCH]),
    "ss_add_port": (c_int, [_SWITCH, c_uint32, c_char_p, c_char_p, c_char_p, c_char_p]),
    "ss_remove_port": (c_int, [_SWITCH, c_uint32]),
    "ss_port_is_up": (c_int, [_SWITCH, c_uint32]),
    "ss_port_read_stats": (c_int, [_SWITCH, c_uint32, POINTER(c_uint64)]),
    "ss_set_queue": (c_int, [_SWITCH, c_uint32, c_uint32, c_uint32, c_uint64]),
    "ss_queue_read": (c_int, [_SWITCH, c_uint32, c_uint32, c_uint64 * 4]),
    "ss_set_log": (None, [_SWITCH, c_void_p]),
    "ss_load": (c_int, [_SWITCH, c_char_p, c_char_p]),
    "ss_start": (c_int, [_SWITCH, c_char_p]),
    "ss_stop": (None, [_SWITCH]),
    "ss_process": (
        c_int,
        [_SWITCH, c_uint32, c_char_p, c_uint32, POINTER(c_void_p), POINTER(c_uint64), c_char_p],
    ),
    "ss_inject": (c_int, [_SWITCH, c_char_p, c_uint32]),
    "ss_next_event": (c_void_p, [_SWITCH, c_uint64]),
    "ss_event_free": (None, [c_void_p]),
    "ss_table_insert": (
        c_int,
        [_SWITCH, c_uint32, _WORDS, c_uint32, c_int32, c_uint32, c_uint32, _WORDS, c_uint32],
    ),
    "ss_table_modify": (
        c_int,
        [_SWITCH, c_uint32, c_uint32, c_uint32, c_uint32, _WORDS, c_uint32],
    ),
    "ss_table_delete": (c_int, [_SWITCH, c_uint32, c_uint32]),
    "ss_table_set_default": (c_int, [_SWITCH, c_uint32, c_uint32, _WORDS, c_uint32]),
    "ss_table_read_counter": (c_int, [_SWITCH, c_uint32, c_uint32, Pair]),
    "ss_table_write_counter": (c_int, [_SWITCH, c_uint32, c_uint32, c_uint64, c_uint64]),
    "ss_table_encode": (
        c_int,
        [
            *(_SWITCH, c_uint32, ctypes.c_bool, c_uint32),
            *(POINTER(c_uint32), POINTER(c_char_p), POINTER(c_uint32), c_char_p),
            POINTER(c_uint32),
        ],
    ),
    "ss_profile_set_member": (c_int, [_SWITCH, c_uint32, c_int, c_uint32, _WORDS, c_uint32]),
    "ss_profile_delete_member": (None, [_SWITCH, c_uint32, c_uint32]),
    "ss_profile_set_group": (
        c_int,
        [_SWITCH, c_uint32, c_int, POINTER(c_uint32), c_uint32, ctypes.c_bool],
    ),
    "ss_profile_delete_group": (None, [_SWITCH, c_uint32, c_uint32]),
    "ss_counter_read": (None, [_SWITCH, c_uint32, c_uint32, Pair]),
    "ss_counter_write": (None, [_SWITCH, c_uint32, c_uint32, c_uint64, c_uint64]),
    "ss_register_read": (None, [_SWITCH, c_uint32, c_uint32, c_char_p]),
    "ss_register_write": (None, [_SWITCH, c_uint32, c_uint32, c_char_p]),
    "ss_meter_configure": (
        c_int,
        [_SWITCH, ctypes.c_bool, c_uint32, c_uint32, c_uint32, POINTER(c_uint64)],
    ),
    "ss_meter_read": (c_int, [_SWITCH, ctypes.c_bool, c_uint32, c_uint32, POINTER(c_uint64)]),
    "ss_meter_count": (c_int, [_SWITCH, ctypes.c_bool, c_uint32, c_uint32, POINTER(c_uint64)]),
    "ss_table_set_timeout": (c_int, [_SWITCH, c_uint32, c_uint32, c_uint64]),
    "ss_table_idle_us": (c_int64, [_SWITCH, c_uint32, c_uint32]),
    "ss_table_expired": (
        c_uint32,
        [_SWITCH, c_uint32, POINTER(c_uint32), c_uint32, POINTER(c_uint64)],
    ),
    "ss_time_us": (c_uint64, [_SWITCH]),
    "ss_losses": (None, [_SWITCH, Pair]),
    "ss_set_clock": (None, [_SWITCH, c_uint64]),
    "ss_value_set_replace": (c_int, [_SWITCH, c_uint32, _WORDS, c_uint32, _WORDS, c_uint32]),
    "ss_crc_set": (c_int, [_SWITCH, c_uint32, POINTER(CrcParameters)]),
    "ss_set_replicas": (
        c_int,
        [_SWITCH, ctypes.c_bool, c_uint32, POINTER(c_uint32), c_uint32, c_uint32, c_uint32],
    ),
    "ss_delete_replicas": (c_int, [_SWITCH, ctypes.c_bool, c_uint32]),
    "ss_batch_decode": (
        c_int,
        [c_void_p, c_char_p, c_uint64, c_uint32, c_void_p, c_void_p, c_void_p, c_void_p],
    ),
    "ss_batch_insert": (
        c_uint32,
        [
            *(_SWITCH, c_void_p, c_void_p, c_uint32),
            *(c_void_p, c_void_p, ctypes.c_bool, POINTER(ctypes.c_int32)),
        ],
    ),
    "ss_batch_modify": (
        c_uint32,
        [_SWITCH, c_void_p, c_void_p, c_uint32, c_void_p, POINTER(c_uint32)],
    ),
    "ss_batch_delete": (c_uint32, [_SWITCH, c_uint32, POINTER(c_uint32), c_uint32]),
    "ss_freeze": (c_int, [_SWITCH, c_uint64]),
    "ss_thaw": (None, [_SWITCH]),
}


@cache
def load_engine(cache_dir: Path) -> ctypes.CDLL:
    """The engine, compiled if need be, with its functions' types."""
    library = ctypes.CDLL(str(engine_library(cache_dir)), use_errno=True)
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def check(result: int, what: str, message: str = "") -> int:
    """`result` when it is a success, otherwise the exception that it stands for."""
    if result >= 0:
        return result
    match result:
        case code if code == _FULL:
            raise TableFull(f"{what}: no room is left")
        case code if code == _NOT_FOUND:
            raise NotFound(f"{what}: there is no such entry")
        case code if code == _EXISTS:
            raise AlreadyExists(f"{what}: an entry with this match is there already")
        case code if code == _MEMORY:
            raise DataplaneError(f"{what}: out of memory")
        case code if code == _SYSTEM:
            raise PortError(f"{what}: {message}")
        case code if code == _ASSERTION:
            raise AssertionFailed(f"{what}: {message}")
        case code if code == _LOOP:
            raise DataplaneError(f"{what}: the packet goes round without an end")
        case _:
            raise DataplaneError(f"{what}: not possible while the switch is in this state")


def words(value: int, count: int) -> bytes:
    """A number as `count` 64-bit words, lowest first."""
    return value.to_bytes(8 * count, "little")
