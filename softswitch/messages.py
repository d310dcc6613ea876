# SPDX-License-Identifier: Apache-2.0
"""Messages of log_msg: their text with values in it, to Python's log."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

log = logging.getLogger("softswitch.program")

_PARTS = re.compile(r"\\([{}])|\{[^}]*\}")


def log_message(text: bytes, kinds: bytes, limbs: Any) -> None:
    """Log a message of the program; the arguments are those of csrc/ss.h's ss_log_message."""
    values, at = [], 0
    for kind in kinds.decode().split():
        count, signed = int(kind[:-1]), kind.endswith("s")
        raw = b"".join(word.to_bytes(8, "little") for word in limbs[at : at + count])
        values.append(int.from_bytes(raw, "little", signed=signed))
        at += count
    log.info("%s", with_values(text.decode(errors="replace"), values))


def with_values(text: str, values: Sequence[int]) -> str:
    r"""The text with a value in place of each `{}`; \{ and \} stand for braces.

    Where there are fewer values than places the rest stays, and values beyond them follow the text.
    """
    left = list(values)

    def part(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        return str(left.pop(0)) if left else match[0]

    return " ".join([_PARTS.sub(part, text), *map(str, left)])
