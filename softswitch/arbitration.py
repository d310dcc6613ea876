# SPDX-License-Identifier: Apache-2.0
"""Client arbitration: which controller of a role is the primary (P4Runtime 1.4, section 5).

Pure state, no gRPC: a `Client` is one open StreamChannel; what it is told goes through its
`notify`. Not thread-safe; the server calls it from its event loop only.

A role here is a name. Every role has full access to the pipeline (an unset `role.config`); a role
configuration is refused, because no scheme for it was agreed on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import p4r

from softswitch.status import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    NOT_FOUND,
    OK,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    Failure,
    invalid,
)

MAX_CLIENTS_PER_ROLE = 1024


def election_id_of(message: Any) -> int | None:
    """The 128-bit election id in a message with an `election_id` field; None when it is unset."""
    if not message.HasField("election_id"):
        return None
    return int(message.election_id.high) << 64 | int(message.election_id.low)


@dataclass(eq=False, slots=True)
class Client:
    """A controller with an open stream. `role` and `election_id` are set by its first update."""

    notify: Callable[[Any], None]
    role: str | None = None
    election_id: int | None = None


@dataclass(slots=True)
class _Role:
    clients: list[Client] = field(default_factory=list)
    highest: int | None = None
    """The highest election id ever seen from a client of this role; it outlives the client."""

    def primary(self) -> Client | None:
        if self.highest is None:
            return None
        return next((c for c in self.clients if c.election_id == self.highest), None)


class Arbitration:
    """The controllers of one device."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._roles: dict[str, _Role] = {"": _Role()}

    def update(self, client: Client, message: Any) -> None:
        """Handle a MasterArbitrationUpdate from `client` and notify whom it concerns.

        Raises `Failure` when the stream must be closed with that error; the caller then calls
        `remove`.
        """
        if message.device_id != self.device_id:
            # A live client's device id is ours, so any other one differs from what the stream has.
            code = NOT_FOUND if client.role is None else FAILED_PRECONDITION
            raise Failure(code, self.wrong_device(message.device_id))
        name = message.role.name
        if message.role.id:
            raise invalid(
                f"role.id {message.role.id}: numbers were replaced by names (role.name) in "
                "P4Runtime 1.4"
            )
        if client.role is not None and name != client.role:
            raise Failure(
                FAILED_PRECONDITION,
                f"this stream has role {client.role!r}; open another one for role {name!r}",
            )
        if message.role.HasField("config"):
            raise invalid(
                f"role {name!r}: role.config ({message.role.config.type_url}) is not supported; "
                "leave it unset for full pipeline access"
            )
        role = self._roles.setdefault(name, _Role())
        election_id = election_id_of(message)
        if election_id is not None and any(
            c.election_id == election_id for c in role.clients if c is not client
        ):
            # finsy recognises this message by its wording and then tries another id.
            raise invalid(f"election id {election_id} is already used by another live controller")
        if client.role is None and len(role.clients) >= MAX_CLIENTS_PER_ROLE:
            raise Failure(
                RESOURCE_EXHAUSTED, f"role {name!r} has {MAX_CLIENTS_PER_ROLE} controllers already"
            )

        was_primary = role.primary() is client
        if client.role is None:
            client.role = name
            role.clients.append(client)
        client.election_id = election_id
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            role.highest = election_id
            self._notify(name, [c for c in role.clients if c is not client] + [client])
        elif was_primary:
            self._notify(name, role.clients)
        else:
            self._notify(name, [client])

    def remove(self, client: Client) -> None:
        """Forget a client whose stream has ended; tell the others when it was the primary."""
        if client.role is None:
            return
        role = self._roles[client.role]
        was_primary = role.primary() is client
        role.clients.remove(client)
        if was_primary:
            self._notify(client.role, role.clients)
        client.role = None

    def is_primary(self, client: Client) -> bool:
        """True when `client` is the primary of its role."""
        return client.role is not None and self._roles[client.role].primary() is client

    def primaries(self) -> list[Client]:
        """The primary of every role that has one: who receives packets and digests."""
        found = (role.primary() for role in self._roles.values())
        return [client for client in found if client is not None]

    def check_device(self, device_id: int) -> None:
        """Raise `Failure` NOT_FOUND unless `device_id` is this device."""
        if device_id != self.device_id:
            raise Failure(NOT_FOUND, self.wrong_device(device_id))

    def check_primary(self, request: Any) -> None:
        """Check a Write or SetForwardingPipelineConfig request, in the specification's order.

        Raises `Failure`: NOT_FOUND for an unknown device or role, PERMISSION_DENIED unless the
        request's election id is the primary's.
        """
        self.check_device(request.device_id)
        if request.role_id:
            raise invalid(
                f"role_id {request.role_id}: numbers were replaced by names (role) in P4Runtime 1.4"
            )
        role = self._roles.get(request.role)
        if role is None:
            raise Failure(
                NOT_FOUND, f"no controller ever opened a stream for role {request.role!r}"
            )
        primary = role.primary()
        election_id = election_id_of(request)
        if primary is None or election_id is None or primary.election_id != election_id:
            who = (
                "there is none" if primary is None else f"it has election id {primary.election_id}"
            )
            raise Failure(
                PERMISSION_DENIED,
                f"only the primary may write ({who}; the request has "
                f"{'no election id' if election_id is None else election_id})",
            )

    def wrong_device(self, device_id: int) -> str:
        """What to tell a client that asked for another device."""
        return (
            f"unknown device id {device_id}: this switch is device {self.device_id} "
            "(its option --device-id)"
        )

    def _notify(self, name: str, clients: list[Client]) -> None:
        role = self._roles[name]
        primary = role.primary()
        for client in clients:
            response = p4r.StreamMessageResponse()
            update = response.arbitration
            update.device_id = self.device_id
            if name:
                update.role.name = name
            if role.highest is not None:
                update.election_id.high = role.highest >> 64
                update.election_id.low = role.highest & (1 << 64) - 1
            if client is primary:
                update.status.code = OK
                update.status.message = "is the primary"
            elif primary is not None:
                update.status.code = ALREADY_EXISTS
                update.status.message = "is a backup"
            else:
                update.status.code = NOT_FOUND
                update.status.message = "there is no primary"
            client.notify(response)
