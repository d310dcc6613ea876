# SPDX-License-Identifier: Apache-2.0
"""Errors of the P4Runtime server and their wire form (P4Runtime 1.4, "Error Reporting Messages").

A `Failure` is what one update or one request reports to the client: a canonical code of
google.rpc.Code and a sentence. `batch_status` packs the outcome of a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from finsy.proto import p4r, rpc_code, rpc_status

from softswitch import errors

OK: int = rpc_code.OK
UNKNOWN: int = rpc_code.UNKNOWN
INVALID_ARGUMENT: int = rpc_code.INVALID_ARGUMENT
NOT_FOUND: int = rpc_code.NOT_FOUND
ALREADY_EXISTS: int = rpc_code.ALREADY_EXISTS
PERMISSION_DENIED: int = rpc_code.PERMISSION_DENIED
RESOURCE_EXHAUSTED: int = rpc_code.RESOURCE_EXHAUSTED
FAILED_PRECONDITION: int = rpc_code.FAILED_PRECONDITION
ABORTED: int = rpc_code.ABORTED
UNAVAILABLE: int = rpc_code.UNAVAILABLE
OUT_OF_RANGE: int = rpc_code.OUT_OF_RANGE
UNIMPLEMENTED: int = rpc_code.UNIMPLEMENTED
INTERNAL: int = rpc_code.INTERNAL

# A client refuses the answer to a write when its trailing metadata exceed the client's limit
# (finsy: 64 KiB, of which the codes of 1,000 updates take 36) and then sees none of the reasons. So
# the messages of one answer share a budget: every failure keeps its code, the first ones keep their
# sentences.
_MESSAGES_BYTES = 16 * 1024

Undo = list[Callable[[], None]]
"""How to take back what a batch has done so far: to be called in reverse order."""


class Failure(Exception):  # noqa: N818  (it is the client's error, reported and not raised further)
    """One request or update that the client gets back as an error.

    `code` is a google.rpc.Code; `message` says what is wrong, where, and what is allowed.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> Failure:
    """A `Failure` with INVALID_ARGUMENT, the most common one."""
    return Failure(INVALID_ARGUMENT, message)


_CODES: tuple[tuple[type[errors.DataplaneError], int], ...] = (
    (errors.TableFull, RESOURCE_EXHAUSTED),
    (errors.NotFound, NOT_FOUND),
    (errors.AlreadyExists, ALREADY_EXISTS),
    (errors.ReadOnly, PERMISSION_DENIED),
    (errors.InUse, FAILED_PRECONDITION),
    (errors.Busy, UNAVAILABLE),
    (errors.InvalidArgument, INVALID_ARGUMENT),
    (errors.Unsupported, UNIMPLEMENTED),
)


def failure_of(error: errors.DataplaneError) -> Failure:
    """What a client is told when the data plane refused its update."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Failure(code, str(error))
    return Failure(INTERNAL, f"data plane: {error}")


def code_name(code: int) -> str:
    """The name of a google.rpc.Code, for logs."""
    return str(rpc_code.Code.Name(code))


def batch_status(outcomes: Sequence[Failure | None], message: str) -> bytes:
    """A serialised google.rpc.Status for a batch with at least one failure.

    One p4.v1.Error per update or request, in the batch's order, code OK for those that succeeded;
    the overall code is UNKNOWN (P4Runtime 1.4, "Write RPC", "Error Reporting").
    """
    status: Any = rpc_status.Status(code=UNKNOWN, message=message)
    budget = _MESSAGES_BYTES
    for outcome in outcomes:
        error = p4r.Error()
        if outcome is not None:
            error.canonical_code = outcome.code
            if len(outcome.message) <= budget:
                error.message = outcome.message
                budget -= len(outcome.message)
        status.details.add().Pack(error)
    return bytes(status.SerializeToString())
