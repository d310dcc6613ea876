# SPDX-License-Identifier: Apache-2.0
"""What the data plane refuses, and why; every message names the object and what is allowed."""

from __future__ import annotations


class DataplaneError(Exception):
    """Base of everything that the data plane raises on purpose."""


class BadProgram(DataplaneError):  # noqa: N818
    """The BMv2 JSON is malformed: not JSON, a missing key, a reference to nothing."""


class Unsupported(DataplaneError):  # noqa: N818
    """The program needs something that softswitch does not do.

    `name` is the object (table, action, extern, parser state) as it is called in the JSON.
    """

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name


class CompileError(DataplaneError):
    """The C compiler is missing or rejected the generated code."""


class TableFull(DataplaneError):  # noqa: N818
    """The table or action profile has no room for another entry."""


class NotFound(DataplaneError):  # noqa: N818
    """No such entry, member, group, session, action or index."""


class AlreadyExists(DataplaneError):  # noqa: N818
    """An entry with the same match (and priority, where priorities count) is there already."""


class ReadOnly(DataplaneError):  # noqa: N818
    """The program fixes this: const entries or a const default action."""


class InUse(DataplaneError):  # noqa: N818
    """The member or group is still referred to."""


class Busy(DataplaneError):  # noqa: N818
    """Packets that wait in the switch keep it from being frozen."""


class InvalidArgument(DataplaneError):  # noqa: N818
    """A value that does not fit: wrong number of keys, value wider than its field, and so on."""


class PortError(DataplaneError):
    """An interface cannot be opened."""


class AssertionFailed(DataplaneError):  # noqa: N818
    """A P4 `assert` or `assume` did not hold (`process` only; a running switch aborts)."""
