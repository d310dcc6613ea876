# SPDX-License-Identifier: Apache-2.0
"""What the data plane refuses, and why; every message names the object and what is allowed."""

from __future__ import annotations


class DataplaneError(Exception):
    """Base of everything that the data plane raises on purpose."""


class BadProgram(DataplaneError):
    """The BMv2 JSON is malformed: not JSON, a missing key, a reference to nothing."""


class Unsupported(DataplaneError):
    """The program needs something that softswitch does not do.

    `name` is the object (table, action, extern, parser state) as it is called in the JSON.
    """

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name


class CompileError(DataplaneError):
    """The C compiler is missing or rejected the generated code."""


class TableFull(DataplaneError):
    """The table or action profile has no room for another entry."""


class NotFound(DataplaneError):
    """No such entry, member, group, session, action or index."""


class AlreadyExists(DataplaneError):
    """An entry with the same match (and priority, where priorities count) is there already."""


class ReadOnly(DataplaneError):
    """The program fixes this: const entries or a const default action."""


class InUse(DataplaneError):
    """The member or group is still referred to."""


class InvalidArgument(DataplaneError):
    """A value that does not fit: wrong number of keys, value wider than its field, and so on."""


class PortError(DataplaneError):
    """An interface cannot be opened."""


class AssertionFailed(DataplaneError):
    """A P4 `assert` or `assume` did not hold (`process` only; a running switch stops, as BMv2 does)."""
