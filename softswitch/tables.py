# SPDX-License-Identifier: Apache-2.0
"""Tables and action profiles of a loaded program, as Python programs them."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from softswitch.bmjson import ConstEntry
from softswitch.bmjson import Table as TableSource
from softswitch.boundary import TableTarget
from softswitch.codegen.layout import WORD_BITS, ActionLayout, TableLayout, words_of
from softswitch.engine import DIRECT, GROUP, MEMBER, NONE, Pair, check, words
from softswitch.errors import InUse, InvalidArgument, NotFound, ReadOnly, TableFull
from softswitch.keys import KeyPacker
from softswitch.meters import Meters
from softswitch.values import (
    ActionCall,
    Counts,
    FieldMatch,
    GroupRef,
    MemberRef,
    MeterConfig,
    MeterState,
)

NO_TIMEOUT = (1 << 64) - 1
ENTITY_MORE = 55  # SS_ENTITY_MORE of csrc/encode.c


class ActionSet:
    """The actions that a table or profile may have, by name."""

    def __init__(self, owner: str, actions: Sequence[ActionLayout]) -> None:
        self._owner = owner
        self._by_name = {action.name: action for action in actions}

    def named(self, name: str) -> ActionLayout:
        """The action of this name, which is one of them."""
        return self._by_name[name]

    def pack(self, call: ActionCall) -> tuple[int, bytes, int]:
        """(id, parameters as words, number of words). InvalidArgument says what does not fit."""
        action = self._by_name.get(call.name)
        if action is None:
            raise InvalidArgument(
                f"{self._owner}: no action {call.name!r}; allowed: {', '.join(self._by_name)}"
            )
        if len(call.params) != len(action.params):
            raise InvalidArgument(
                f"{self._owner}: {call.name} takes {len(action.params)} parameters, "
                f"not {len(call.params)}"
            )
        data, count = 0, 0
        for value, (name, width) in zip(call.params, action.params, strict=True):
            if not 0 <= value < 1 << width:
                raise InvalidArgument(
                    f"{self._owner}: {call.name}.{name} = {value:#x} does not fit {width} bits"
                )
            data |= value << WORD_BITS * count
            count += words_of(width)
        return action.id, words(data, count), count


class Profile:
    """An action profile or selector. Handles are the engine's."""

    def __init__(
        self, engine: Any, switch: int, index: int, name: str, max_size: int, actions: ActionSet
    ) -> None:
        self.name = name
        self.max_size = max_size
        self._engine = engine
        self._switch = switch
        self._index = index
        self._actions = actions
        self._members: dict[int, ActionCall] = {}
        # Per member the further handles that weights need. As over BMv2 a copy is a member of its
        # own, shared by all groups: the handles order a group, so they decide what is picked.
        self._copies: dict[int, list[int]] = {}
        self._groups: dict[int, dict[int, int]] = {}  # weights by member
        self._uses: Counter[tuple[int, int]] = Counter()  # (kind, handle): entries and groups

    def add_member(self, action: ActionCall, weight: int = 1) -> int:
        """A new member; its handle. TableFull when `max_size` are there.

        With the `weight` that it will have, the copies for it get the handles after it.
        """
        if len(self._members) >= self.max_size:
            raise TableFull(f"{self.name}: {self.max_size} members are there already")
        member = self._set_member(-1, action)
        self._members[member] = action
        self._copies[member] = copies = []
        for _ in range(weight - 1):
            copies.append(self._set_member(-1, action))
        return member

    def modify_member(self, member: int, action: ActionCall) -> None:
        """Another action for a member."""
        self._need_member(member)
        for handle in (member, *self._copies[member]):
            self._set_member(handle, action)
        self._members[member] = action

    def _set_member(self, member: int, action: ActionCall) -> int:
        number, data, count = self._actions.pack(action)
        result = self._engine.ss_profile_set_member(
            self._switch, self._index, member, number, data, count
        )
        return check(result, self.name)

    def delete_member(self, member: int) -> None:
        """Remove a member that no entry and no group uses."""
        self._need_member(member)
        self._need_unused(MEMBER, member, "member")
        for handle in (member, *self._copies[member]):
            self._engine.ss_profile_delete_member(self._switch, self._index, handle)
        del self._members[member], self._copies[member]

    def create_group(self, max_size: int) -> int:
        """A new, empty group; its handle. `max_size` is the caller's affair."""
        del max_size
        return self._write_group(-1, {}, (), at_random=False)

    def set_group(
        self,
        group: int,
        members: Sequence[tuple[int, int]],
        *,
        down: Collection[int] = (),
        at_random: bool = False,
    ) -> None:
        """Replace a group's (member, weight). A weight is how often the member is in the group.

        Members that are `down` are in the group and not picked. `at_random`: for each packet one
        is picked by chance and not by the hash of its selector fields.
        """
        self._need_group(group)
        for member, weight in members:
            self._need_member(member)
            if weight < 1:
                raise InvalidArgument(f"{self.name}: weight {weight}; allowed: 1 and more")
        weights = dict(members)
        if len(weights) != len(members):
            raise InvalidArgument(f"{self.name}: a member is in group {group} twice")
        self._write_group(group, weights, down, at_random=at_random)

    def _write_group(
        self, group: int, weights: Mapping[int, int], down: Collection[int], *, at_random: bool
    ) -> int:
        handles = []
        for member, weight in weights.items():
            copies = self._copies[member]
            while len(copies) < weight - 1:
                copies.append(self._set_member(-1, self._members[member]))
            if member not in down:
                handles += [member, *copies[: weight - 1]]
        array = (ctypes.c_uint32 * len(handles))(*sorted(handles))
        result = self._engine.ss_profile_set_group(
            self._switch, self._index, group, array, len(handles), at_random
        )
        group = check(result, self.name)
        before = self._groups.get(group, {})
        self._groups[group] = dict(weights)
        self._count_uses(before, -1)
        self._count_uses(weights, 1)
        return group

    def _count_uses(self, members: Iterable[int], by: int) -> None:
        """Members enter or leave a group; copies that no group's weight needs are removed."""
        for member in members:
            self._uses[MEMBER, member] += by
            if by > 0:
                continue
            most = max((group.get(member, 1) for group in self._groups.values()), default=1)
            for handle in self._copies[member][most - 1 :]:
                self._engine.ss_profile_delete_member(self._switch, self._index, handle)
            del self._copies[member][most - 1 :]

    def delete_group(self, group: int) -> None:
        """Remove a group that no entry uses."""
        self._need_group(group)
        self._need_unused(GROUP, group, "group")
        self._engine.ss_profile_delete_group(self._switch, self._index, group)
        self._count_uses(self._groups.pop(group), -1)

    def reference(self, target: MemberRef | GroupRef) -> tuple[int, int]:
        """(kind, handle) of a member or group that exists."""
        if isinstance(target, MemberRef):
            self._need_member(target.member)
            return MEMBER, target.member
        self._need_group(target.group)
        return GROUP, target.group

    def use(self, kind: int, handle: int, by: int) -> None:
        """An entry begins (`by` 1) or ends (-1) to refer to a member or group."""
        self._uses[kind, handle] += by

    def _need_member(self, member: int) -> None:
        if member not in self._members:
            raise NotFound(f"{self.name}: there is no member {member}")

    def _need_group(self, group: int) -> None:
        if group not in self._groups:
            raise NotFound(f"{self.name}: there is no group {group}")

    def _need_unused(self, kind: int, handle: int, what: str) -> None:
        if self._uses[kind, handle]:
            raise InUse(f"{self.name}: {what} {handle} is still referred to")


class Table:
    """A match-action table. Entries that the program begins with are fixed until `unfix`."""

    def __init__(
        self,
        engine: Any,
        switch: int,
        layout: TableLayout,
        source: TableSource,
        actions: Sequence[ActionLayout],
        profile: Profile | None,
    ) -> None:
        self.name = layout.name
        self.layout = layout
        self.has_counter = layout.with_counters
        self._engine = engine
        self._switch = switch
        self._index = layout.index
        self._source = source
        self.actions = tuple(actions)
        self.packer = KeyPacker(layout.kind, layout.keys, layout.words)
        self.action_set = ActionSet(layout.name, actions)
        self._names = {action.id: action.name for action in actions}
        self._profile = profile
        self._meters = Meters(engine, switch, layout.index, direct=True, name=layout.name)
        self._references: dict[int, tuple[int, int]] = {}
        self._read_only = False
        if source.default_action is not None:
            self._write_default(self._program_default())
        self.initial_handles = [self._insert_const(entry) for entry in source.entries or ()]
        self._read_only = bool(source.entries)

    # ---- entries --------------------------------------------------------------------------------

    def insert(self, match: Sequence[FieldMatch], priority: int, action: TableTarget) -> int:
        """Add an entry; its handle.

        Raises AlreadyExists, TableFull, InvalidArgument, NotFound (member or group), ReadOnly.
        """
        if self._read_only:
            raise ReadOnly(f"{self.name}: the program fixes the entries of this table")
        key, prefix_len = self._pack_key(match)
        kind, number, data, count = self._pack_target(action)
        handle = self._engine.ss_table_insert(
            self._switch, self._index, key, prefix_len, priority, kind, number, data, count
        )
        if handle < 0:
            check(handle, self.name)
        self._refer(int(handle), kind, number)
        return int(handle)

    def unfix(self) -> None:
        """The program's entries are initial ones: they and the table can be changed.

        The JSON does not tell them from constant ones; P4Info does.
        """
        self._read_only = False

    def modify(self, handle: int, action: TableTarget) -> None:
        """Give an entry another action."""
        if self._read_only:
            raise ReadOnly(f"{self.name}: the program fixes the entries of this table")
        kind, number, data, count = self._pack_target(action)
        result = self._engine.ss_table_modify(
            self._switch, self._index, handle, kind, number, data, count
        )
        check(result, self.name)
        self._refer(handle, kind, number)

    def delete(self, handle: int) -> None:
        """Remove an entry."""
        if self._read_only:
            raise ReadOnly(f"{self.name}: the program fixes the entries of this table")
        check(self._engine.ss_table_delete(self._switch, self._index, handle), self.name)
        self._refer(handle, DIRECT, 0)

    def _refer(self, handle: int, kind: int, number: int) -> None:
        """Keep count of what refers to the profile's members and groups."""
        if self._profile is None:
            return
        if (old := self._references.pop(handle, None)) is not None:
            self._profile.use(*old, -1)
        if kind != DIRECT:
            self._profile.use(kind, number, 1)
            self._references[handle] = kind, number

    def _pack_target(self, action: TableTarget) -> tuple[int, int, bytes, int]:
        if isinstance(action, ActionCall):
            if self._profile is not None:
                raise InvalidArgument(f"{self.name}: entries refer to members or groups")
            return DIRECT, *self.action_set.pack(action)
        if self._profile is None:
            raise InvalidArgument(f"{self.name}: the table has no action profile")
        return *self._profile.reference(action), b"", 0

    def _pack_key(self, match: Sequence[FieldMatch]) -> tuple[bytes, int]:
        """(packed key, with mask and high where the look-up needs them; prefix length)."""
        layout = self.layout
        if layout.kind == "KEYLESS":
            raise InvalidArgument(f"{self.name}: a table without keys has no entries")
        if len(match) != len(layout.keys):
            raise InvalidArgument(
                f"{self.name}: {len(layout.keys)} keys are needed, not {len(match)}"
            )
        for field, given in zip(layout.keys, match, strict=True):
            ones = (1 << field.width) - 1
            where = f"{self.name}.{field.name}"
            if not 0 <= given.value <= ones:
                raise InvalidArgument(f"{where}: {given.value:#x} does not fit {field.width} bits")
            length = given.prefix_len
            if field.match_type == "lpm" and length is not None and not 0 <= length <= field.width:
                raise InvalidArgument(f"{where}: prefix length {length}; at most {field.width}")
            mask = given.mask
            if field.match_type == "ternary" and mask is not None and not 0 <= mask <= ones:
                raise InvalidArgument(f"{where}: mask {mask:#x} does not fit {field.width} bits")
            top = ones if given.high is None else given.high
            if field.match_type == "range" and not given.value <= top <= ones:
                raise InvalidArgument(
                    f"{where}: range {given.value:#x}..{top:#x} is empty or does not fit "
                    f"{field.width} bits"
                )
        return self.packer.pack(match)

    def _insert_const(self, entry: ConstEntry) -> int:
        match = [
            FieldMatch(value, mask, prefix_len, high)
            for value, mask, prefix_len, high in entry.keys
        ]
        call = ActionCall(self._names[entry.action], entry.data)
        return self.insert(match, self._source.above_entries - entry.priority, call)

    # ---- default action -------------------------------------------------------------------------

    def set_default(self, action: ActionCall | None) -> None:
        """Another default action; None: the program's own. ReadOnly where the program fixes it."""
        if self._source.default_const:
            if action is not None and action != self._program_default():
                raise ReadOnly(f"{self.name}: the program fixes the default action")
            return
        self._write_default(action or self._program_default())

    def _program_default(self) -> ActionCall | None:
        number = self._source.default_action
        if number is None:
            return None
        return ActionCall(self._names[number], self._source.default_data)

    def _write_default(self, action: ActionCall | None) -> None:
        number, data, count = (NONE, b"", 0) if action is None else self.action_set.pack(action)
        result = self._engine.ss_table_set_default(self._switch, self._index, number, data, count)
        check(result, self.name)

    # ---- counters -------------------------------------------------------------------------------

    def read_counter(self, handle: int) -> tuple[int, int]:
        """(packets, bytes) that an entry has matched."""
        out = Pair()
        result = self._engine.ss_table_read_counter(self._switch, self._index, handle, out)
        check(result, self.name)
        return int(out[0]), int(out[1])

    def counted(
        self, handles: Sequence[int], wires: Sequence[bytes], *, direct: bool
    ) -> list[bytes]:
        """Serialised Entity messages of entries with their counters; `wires` are TableEntry ones.

        As table entries, or as direct counter entries. Fast: it is for whole tables.
        """
        count = len(handles)
        lengths = (ctypes.c_uint32 * count)(*map(len, wires))
        room = sum(lengths) + ENTITY_MORE * (count + 1)
        out, ends = ctypes.create_string_buffer(room), (ctypes.c_uint32 * count)()
        result = self._engine.ss_table_encode(
            *(self._switch, self._index, direct, count, (ctypes.c_uint32 * count)(*handles)),
            *((ctypes.c_char_p * count)(*wires), lengths, out, ends),
        )
        check(result, self.name)
        data = memoryview(out).tobytes()
        return [data[start:end] for start, end in pairwise((0, *ends))]

    def read_default_counter(self) -> tuple[int, int]:
        """(packets, bytes) that no entry has matched."""
        return self.read_counter(NONE)

    def write_default_counter(self, packets: int, bytes_: int) -> None:
        """Set the counter of packets that no entry has matched."""
        self.write_counter(NONE, packets, bytes_)

    def write_counter(self, handle: int, packets: int, bytes_: int) -> None:
        """Set an entry's counter."""
        result = self._engine.ss_table_write_counter(
            self._switch, self._index, handle, packets, bytes_
        )
        check(result, self.name)

    # ---- meters ---------------------------------------------------------------------------------

    def configure_meter(self, handle: int, config: MeterConfig | None) -> None:
        """Set an entry's meter; None: all packets are green."""
        self._meters.configure(handle, config)

    def read_meter(self, handle: int) -> MeterState:
        """An entry's meter."""
        return self._meters.read(handle)

    def count_meter(self, handle: int, counts: Counts) -> None:
        """Set the counters of an entry's meter."""
        self._meters.count(handle, counts)

    # ---- time-outs ------------------------------------------------------------------------------

    def set_timeout(self, handle: int, timeout_ns: int) -> None:
        """Let an entry's time-out, 0: none, run from now on. Only for tables with time-outs."""
        timeout_us = -(-timeout_ns // 1000)
        result = self._engine.ss_table_set_timeout(self._switch, self._index, handle, timeout_us)
        check(result, self.name)

    def idle_ns(self, handle: int) -> int:
        """Since when an entry was not hit; before its first hit since its insertion."""
        result = self._engine.ss_table_idle_us(self._switch, self._index, handle)
        return 1000 * check(result, self.name)

    def expired(self, most: int) -> tuple[list[int], float | None]:
        """Handles of entries, at most `most`, whose time-outs have passed, and run again now.

        Also in how many seconds there may be more; None: no entry has a time-out.
        """
        handles, left = (ctypes.c_uint32 * most)(), ctypes.c_uint64()
        count = self._engine.ss_table_expired(
            self._switch, self._index, handles, most, ctypes.byref(left)
        )
        seconds = None if left.value == NO_TIMEOUT else left.value / 1e6
        return handles[:count], seconds
