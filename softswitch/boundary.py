# SPDX-License-Identifier: Apache-2.0
"""What the P4Runtime server needs of a loaded pipeline, as protocols.

Two things implement them: `softswitch.dataplane.Dataplane`, which forwards packets, and
`softswitch.shadow.ShadowPipeline`, which only keeps entries and stands in for a pipeline that was
saved but not committed yet. All values are integers (raw bits); names are those of the BMv2 JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from softswitch.values import (
    ActionCall,
    Counts,
    Digest,
    FieldMatch,
    GroupRef,
    MemberRef,
    MeterConfig,
    MeterState,
    PacketIn,
    PortStatus,
    TablePlan,
)

if TYPE_CHECKING:
    from softswitch.batch import Planned

TableTarget = ActionCall | MemberRef | GroupRef


class TableLike(Protocol):
    """A match-action table.

    `initial_handles` are those of the entries that the program itself has, in the JSON's order.
    A higher `priority` wins, as in P4Runtime.
    """

    @property
    def initial_handles(self) -> Sequence[int]: ...
    def insert(self, match: Sequence[FieldMatch], priority: int, action: TableTarget) -> int: ...
    def modify(self, handle: int, action: TableTarget) -> None: ...
    def delete(self, handle: int) -> None: ...
    def set_default(self, action: ActionCall | None) -> None: ...
    def read_counter(self, handle: int) -> tuple[int, int]: ...
    def write_counter(self, handle: int, packets: int, bytes_: int) -> None: ...
    def read_default_counter(self) -> tuple[int, int]: ...
    def write_default_counter(self, packets: int, bytes_: int) -> None: ...
    def configure_meter(self, handle: int, config: MeterConfig | None) -> None: ...
    def read_meter(self, handle: int) -> MeterState: ...
    def count_meter(self, handle: int, counts: Counts) -> None: ...


class ProfileLike(Protocol):
    """An action profile or selector."""

    def add_member(self, action: ActionCall, weight: int = 1) -> int: ...
    def modify_member(self, member: int, action: ActionCall) -> None: ...
    def delete_member(self, member: int) -> None: ...
    def create_group(self, max_size: int) -> int: ...
    def set_group(
        self,
        group: int,
        members: Sequence[tuple[int, int]],
        *,
        down: Collection[int] = (),
        at_random: bool = False,
    ) -> None: ...
    def delete_group(self, group: int) -> None: ...


class CounterArrayLike(Protocol):
    """An indirect counter; `read` gives (packets, bytes)."""

    def read(self, index: int) -> tuple[int, int]: ...
    def write(self, index: int, packets: int, bytes_: int) -> None: ...


class MeterArrayLike(Protocol):
    """An indirect meter; `count` sets the counters of its colors."""

    def configure(self, cell: int, config: MeterConfig | None) -> None: ...
    def read(self, cell: int) -> MeterState: ...
    def count(self, cell: int, counts: Counts) -> None: ...


class RegisterArrayLike(Protocol):
    """A register array; values are raw bits."""

    def read(self, index: int) -> int: ...
    def write(self, index: int, value: int) -> None: ...


class ValueSetLike(Protocol):
    """A parser value set; a member has one item per field."""

    def replace(self, members: Sequence[tuple[FieldMatch, ...]]) -> None: ...


class PipelineLike(Protocol):
    """The entities of a loaded program, by name.

    Between `freeze` and `thaw` no packet is forwarded: all see everything that was written in
    between, or nothing. `freeze` waits for packets that are half-way and raises `Busy` when that
    takes too long. `plan` gives what writes whole batches into these tables, None where there is
    no such thing.
    """

    @property
    def tables(self) -> Mapping[str, TableLike]: ...
    @property
    def profiles(self) -> Mapping[str, ProfileLike]: ...
    @property
    def counters(self) -> Mapping[str, CounterArrayLike]: ...
    @property
    def registers(self) -> Mapping[str, RegisterArrayLike]: ...
    @property
    def meters(self) -> Mapping[str, MeterArrayLike]: ...
    @property
    def value_sets(self) -> Mapping[str, ValueSetLike]: ...
    def set_multicast_group(self, group_id: int, replicas: Sequence[tuple[int, int]]) -> None: ...
    def delete_multicast_group(self, group_id: int) -> None: ...
    def set_clone_session(
        self,
        session_id: int,
        replicas: Sequence[tuple[int, int]],
        truncate_len: int,
        priority: int = 0,
    ) -> None: ...
    def delete_clone_session(self, session_id: int) -> None: ...
    def port_is_up(self, number: int) -> bool: ...
    def plan(self, plans: Sequence[TablePlan]) -> Planned | None: ...
    def freeze(self, timeout_s: float) -> None: ...
    def thaw(self) -> None: ...


class DataplaneLike(PipelineLike, Protocol):
    """A switch: a pipeline that can be replaced, and its packets and digests."""

    def load(self, bmv2_json: bytes) -> None: ...
    def packet_out(self, data: bytes) -> None: ...
    def next_event(self, timeout_s: float) -> PacketIn | Digest | PortStatus | None: ...
