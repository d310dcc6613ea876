# SPDX-License-Identifier: Apache-2.0
"""Table entries: one store per table (P4Runtime 1.4, section 9.1).

The store keeps each entry as the serialised TableEntry that a read returns, without its counter and
meter, which come from the data plane. `undo`, where it is not None, collects how to take an
operation back (the rollback of an atomic batch); the functions in it run in reverse order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from softswitch.batch import Batch, Run
from softswitch.boundary import TableLike, TableTarget
from softswitch.counted import key_only
from softswitch.description import TableDescription
from softswitch.engine import NONE
from softswitch.entities_direct import DirectResources, Snapshot
from softswitch.entities_entry import Entry, EntrySet, Target
from softswitch.entities_idle import IdleTimeouts
from softswitch.entities_match import ActionParser, Key, KeyParser, match_messages, shorten
from softswitch.entities_profile import Group, Member, OneShot, ProfileStore
from softswitch.p4info import TableInfo
from softswitch.status import (
    ALREADY_EXISTS,
    PERMISSION_DENIED,
    Failure,
    Undo,
    invalid,
)
from softswitch.values import ActionCall, FieldMatch, TablePlan
from softswitch.wire import (
    ENTITY_DIRECT_METER,
    ENTITY_TABLE_ENTRY,
    message_field,
)

Action = ActionCall | Target

MAX_PLAN_FIELDS = 32
_INSERT: int = p4r.Update.INSERT
_MODIFY: int = p4r.Update.MODIFY
_DELETE: int = p4r.Update.DELETE

# Fields of a TableEntry that the store does not keep.
_RESOURCES = ("counter_data", "meter_config", "meter_counter_data")


class TableStore:
    """The entries of one table.

    `profile` is the store of the table's action profile, None for a direct table.
    """

    def __init__(
        self,
        info: TableInfo,
        described: TableDescription,
        table: TableLike,
        profile: ProfileStore | None,
    ) -> None:
        self.info = info
        self._described = described
        self._table = table
        self._profile = profile
        self._keys = KeyParser(
            self._where, info.fields, described.keys, needs_priority=info.needs_priority
        )
        self._actions = ActionParser(f"table {info.name!r}", info.actions, described.actions)
        self._default: tuple[ActionCall, bytes] | None = None
        self._entries = EntrySet(info, self._keys, self._program_default())
        self._direct = DirectResources(info, table)
        self.timeouts = IdleTimeouts(info, table)
        if described.entries and not info.is_const:
            table.unfix()
        for const, handle in zip(described.entries, table.initial_handles, strict=True):
            self._add_initial(const.match, const.priority, const.action, handle)
        self._initial = {key: entry.wire for key, entry in self._entries.by_key.items()}

    @property
    def entries(self) -> EntrySet:
        """What is there, for who shows it."""
        return self._entries

    def _add_initial(
        self, match: tuple[FieldMatch, ...], priority: int, action: ActionCall, handle: int
    ) -> None:
        message = p4r.TableEntry(
            table_id=self.info.id,
            match=match_messages(self.info.fields, match),
            priority=priority,
            is_const=self.info.is_const,
        )
        key, _, _ = self._keys.parse(message.match, priority)
        told = self._actions.to_message(action)
        if told is not None:
            message.action.action.CopyFrom(told)
        self._entries.by_key[key] = Entry(
            handle, message.SerializeToString(), const=self.info.is_const
        )

    def _program_default(self) -> bytes:
        """The default entry's TableEntry while nobody has changed it."""
        message = p4r.TableEntry(table_id=self.info.id, is_default_action=True)
        if self._described.default is not None:
            told = self._actions.to_message(self._described.default)
            if told is not None:
                message.action.action.CopyFrom(told)
        return bytes(message.SerializeToString())

    # --- writes -------------------------------------------------------------------------------

    def insert(self, message: Any, undo: Undo | None) -> None:
        """INSERT a TableEntry. Raises `Failure` or a `DataplaneError`; then nothing has changed."""
        if message.is_default_action:
            raise invalid(f"{self._where}: the default entry always exists; use MODIFY")
        if not self.info.fields:
            raise invalid(f"{self._where} has no key, so it has only the default entry")
        key, match, canonical = self._keys.parse(message.match, message.priority)
        self._check_common(message)
        if self.info.is_const:
            raise Failure(PERMISSION_DENIED, f"{self._where} is constant (const entries)")
        if key in self._entries.by_key:
            raise Failure(ALREADY_EXISTS, f"{self._where} has an entry with this match; use MODIFY")
        if not message.HasField("action"):
            raise invalid(f"{self._where}: an INSERT needs an action")
        action, plain = self._parse_action(message.action, default=False)
        try:
            wire = self._to_wire(message, canonical and plain)
            handle = self._table.insert(match, message.priority, _in_engine(action))
        except Exception:
            self._release(action)
            raise
        entry = Entry(handle, wire, _referred(action))
        _hold(entry.target)
        self._direct.initialise(entry, message)
        self.timeouts.set(entry, message.idle_timeout_ns)
        self._entries.by_key[key] = entry
        if undo is not None:
            undo.append(lambda: self._remove(key, entry))

    def modify(self, message: Any, undo: Undo | None) -> None:
        """MODIFY a TableEntry or the default entry (9.1.3)."""
        if message.is_default_action:
            self._modify_default(message, undo)
            return
        _, entry, canonical = self._entries.find(message)
        self._check_common(message)
        if entry.const or self.info.is_const:
            if message.HasField("action"):
                raise Failure(
                    PERMISSION_DENIED,
                    f"{self._where}: this entry is constant; only its counter and meter can be "
                    "modified, so leave the action out",
                )
            self._direct.modify(entry, message, undo)
            return
        before = (entry.target, entry.wire)
        if message.HasField("action"):
            action, plain = self._parse_action(message.action, default=False)
            try:
                wire = self._to_wire(message, canonical and plain)
                self._table.modify(entry.handle, _in_engine(action))
            except Exception:
                self._release(action)
                raise
            entry.target, entry.wire = _referred(action), wire
            _hold(entry.target)
            self._let_go(before[0])
        else:
            merged = p4r.TableEntry()
            merged.CopyFrom(message)
            merged.action.CopyFrom(p4r.TableEntry.FromString(entry.wire).action)
            entry.wire = self._to_wire(merged, canonical=False)
        if undo is not None:
            undo.append(lambda: self._restore(entry, *before))
        self.timeouts.set(entry, message.idle_timeout_ns)
        self._direct.modify(entry, message, undo)

    def delete(self, message: Any, undo: Undo | None) -> None:
        """DELETE a TableEntry; only its key counts."""
        if message.is_default_action:
            raise invalid(f"{self._where}: the default entry cannot be deleted; reset it by MODIFY")
        key, entry, _ = self._entries.find(message)
        if entry.const or self.info.is_const:
            raise Failure(PERMISSION_DENIED, f"{self._where}: this entry is constant")
        if undo is None:
            self._remove(key, entry)
            return
        snapshot = self._direct.snapshot(entry)
        self._remove(key, entry)
        undo.append(lambda: self._put_back(key, entry, snapshot))

    # --- whole runs of a write ----------------------------------------------------------------

    def plan(self) -> TablePlan | None:
        """How csrc/batch.c reads plain entries of this table; None when it cannot have any."""
        info = self.info
        if (
            self.info.is_const
            or self._profile is not None
            or self._described.entries
            or not 0 < len(info.fields) <= MAX_PLAN_FIELDS
        ):
            return None
        return TablePlan(
            *(info.id, info.name, info.needs_priority, self._keys.plan(), self._actions.plan()),
            timeouts=info.idle_timeout,
        )

    def apply(self, batch: Batch, run: Run, undo: Undo | None) -> list[int]:
        """Apply a run of plain updates; which of them, counted from 0, are left to be done singly.

        What would fail is among these.
        """
        if run.kind == _INSERT:
            return self._insert_run(batch, run, undo)
        if run.kind == _MODIFY:
            if self.info.meter is not None or self.info.idle_timeout:
                return list(range(run.count))  # each one resets its meter and its time-out
            return self._modify_run(batch, run, undo)
        if undo is not None and (self.info.has_counter or self.info.meter is not None):
            return list(range(run.count))  # what is to be put back needs its counter and meter
        return self._delete_run(batch, run, undo)

    def _insert_run(self, batch: Batch, run: Run, undo: Undo | None) -> list[int]:
        handles = batch.insert(run, stop=undo is not None)
        entries = zip(run.keys, map(Entry, handles, run.wires), strict=True)
        if min(handles) >= 0:
            self._entries.by_key.update(entries)
            left: list[int] = []
        else:
            self._entries.by_key.update((key, entry) for key, entry in entries if entry.handle >= 0)
            left = [i for i, handle in enumerate(handles) if handle < 0]
        if self.timeouts.supported:
            for key, handle, seconds in zip(run.keys, handles, batch.timeouts(run), strict=True):
                if seconds and handle >= 0:
                    self.timeouts.begun(self._entries.by_key[key], seconds)
        if undo is not None:
            missing = set(left)
            added = [key for i, key in enumerate(run.keys) if i not in missing]

            def remove() -> None:
                for key in added:
                    self._remove(key, self._entries.by_key[key])

            undo.append(remove)
        return left

    def _modify_run(self, batch: Batch, run: Run, undo: Undo | None) -> list[int]:
        found = [self._entries.by_key.get(key) for key in run.keys]
        if undo is not None:
            before = [(entry, entry.wire) for entry in found if entry is not None]

            def restore() -> None:
                for entry, wire in before:
                    self._restore(entry, None, wire)

            undo.append(restore)
        done = batch.modify(run, [NONE if entry is None else entry.handle for entry in found])
        left = []
        for i, (entry, wire) in enumerate(zip(found, run.wires, strict=True)):
            if entry is None or i >= done:
                left.append(i)
            else:
                entry.wire = wire
        return left

    def _delete_run(self, batch: Batch, run: Run, undo: Undo | None) -> list[int]:
        found = [self._entries.by_key.pop(key, None) for key in run.keys]
        for entry in found:
            if entry is not None:
                self.timeouts.forget(entry)
        batch.delete(run, [entry.handle for entry in found if entry is not None])
        if undo is not None:

            def put_back() -> None:
                for key, entry in zip(run.keys, found, strict=True):
                    if entry is not None:
                        self._put_back(key, entry, (None, None))

            undo.append(put_back)
        return [i for i, entry in enumerate(found) if entry is None]

    def modify_direct_counter(self, message: Any, data: Any, undo: Undo | None) -> None:
        """MODIFY the direct counter of the entry that a TableEntry names; `data` None: no-op."""
        self._direct.need_counter()
        entry = self._entries.named(message)
        if data is not None:
            self._direct.check_counter(data)
            self._direct.modify_counter(entry, data, undo)

    def modify_direct_meter(self, message: Any, undo: Undo | None) -> None:
        """MODIFY the meter of the entry that a DirectMeterEntry names."""
        self._direct.need_meter()
        self._direct.need_entry(message.table_entry)
        self._direct.modify_meter(self._entries.named(message.table_entry), message, undo)

    def _modify_default(self, message: Any, undo: Undo | None) -> None:
        where = f"{self._where}, default entry"
        self._entries.check_default_key(message)
        self._check_common(message)
        if message.HasField("meter_config") or message.HasField("meter_counter_data"):
            self._direct.need_entry(message)
        if self._profile is not None:
            raise invalid(
                f"{where}: a table with an action profile has a constant NoAction default"
            )
        if self.info.const_default:
            raise Failure(PERMISSION_DENIED, f"{where} is constant (const default_action)")
        before = self._default
        if not message.HasField("action"):
            self._set_default(None)
        else:
            action, plain = self._parse_action(message.action, default=True)
            if not isinstance(action, ActionCall):
                raise invalid(f"{where}: must be a direct action")
            self._set_default((action, self._to_wire(message, plain)))
        if undo is not None:
            undo.append(lambda: self._set_default(before))
        self._direct.modify(self._entries.default_entry(), message, undo)

    def _set_default(self, default: tuple[ActionCall, bytes] | None) -> None:
        self._table.set_default(None if default is None else default[0])
        self._default = default
        self._entries.default = self._program_default() if default is None else default[1]

    def _remove(self, key: Key, entry: Entry) -> None:
        self.timeouts.forget(entry)
        self._table.delete(entry.handle)
        del self._entries.by_key[key]
        self._let_go(entry.target)

    def _put_back(self, key: Key, entry: Entry, snapshot: Snapshot) -> None:
        message = p4r.TableEntry.FromString(entry.wire)
        _, match, _ = self._keys.parse(message.match, message.priority)
        action = self._renew(entry.target, message)
        entry.handle = self._table.insert(match, message.priority, action)
        _hold(entry.target)
        self._direct.restore(entry, snapshot)
        self.timeouts.set(entry, message.idle_timeout_ns)
        self._entries.by_key[key] = entry

    def _restore(self, entry: Entry, target: Target | None, wire: bytes) -> None:
        if target is None or target is not entry.target:
            action = self._renew(target, p4r.TableEntry.FromString(wire))
            self._table.modify(entry.handle, action)
            _hold(target)
            self._let_go(entry.target)
        entry.target, entry.wire = target, wire
        self.timeouts.set(entry, p4r.TableEntry.FromString(wire).idle_timeout_ns)

    def _renew(self, target: Target | None, message: Any) -> TableTarget:
        """The action that an entry had, with what it needs in the profile."""
        if target is None:
            return self._actions.parse(message.action.action, default=False)[0]
        if isinstance(target, OneShot):
            assert self._profile is not None
            self._profile.recreate(target)
        return target.target()

    def _parse_action(self, message: Any, *, default: bool) -> tuple[Action, bool]:
        kind = message.WhichOneof("type")
        if self._profile is None or (default and kind == "action"):
            if kind != "action":
                raise invalid(
                    f"{self._where} has no action profile, so its entries need an action, not "
                    f"{kind or 'an empty action'}"
                )
            return self._actions.parse(message.action, default=default)
        if kind == "action_profile_member_id":
            return self._profile.member(message.action_profile_member_id), True
        if kind == "action_profile_group_id":
            return self._profile.group(message.action_profile_group_id), True
        if kind == "action_profile_action_set":
            return self._profile.create_one_shot(message.action_profile_action_set), False
        raise invalid(
            f"{self._where} has an action profile, so its entries need a member, a group or an "
            f"action set, not {kind or 'an empty action'}"
        )

    def _release(self, action: Action) -> None:
        """Take back what parsing an action created, after the table refused the entry."""
        if isinstance(action, OneShot):
            assert self._profile is not None
            self._profile.destroy_one_shot(action)

    def _let_go(self, target: Target | None) -> None:
        if isinstance(target, (Member, Group)):
            target.entries -= 1
        elif target is not None:
            self._release(target)

    def _check_common(self, message: Any) -> None:
        if message.is_const:
            raise invalid(f"{self._where}: is_const cannot be written")
        self._direct.check(message)
        self.timeouts.check(message)

    def _to_wire(self, message: Any, canonical: bool) -> bytes:
        if canonical and not any(map(message.HasField, _RESOURCES)):
            return bytes(message.SerializeToString())
        copy = p4r.TableEntry()
        copy.CopyFrom(message)
        for name in _RESOURCES:
            copy.ClearField(name)
        for item in copy.match:
            shorten(item)
        kind = copy.action.WhichOneof("type")
        if kind in ("action", "action_profile_action_set"):
            shorten(getattr(copy.action, kind))
        return bytes(copy.SerializeToString())

    # --- reads --------------------------------------------------------------------------------

    def read(self, query: Any) -> Iterator[bytes]:
        """Serialised Entity messages of the entries that a TableEntry asks for (9.1.6)."""
        self.timeouts.check_read(query)
        with_resources = self._direct.asked_for(query)
        with_time = query.HasField("time_since_last_hit")
        if self._direct.only_counters(query) and not with_time:
            yield from self._direct.counted(self._entries.select(query), direct=False)
            return
        for entry in self._entries.select(query):
            wire = entry.wire
            if with_resources:
                wire += self._direct.fields(entry, query)
            if with_time:
                wire += self.timeouts.field(entry)
            yield message_field(ENTITY_TABLE_ENTRY, wire)

    def read_direct_counters(self, query: Any) -> Iterator[bytes]:
        """Serialised Entity messages with a DirectCounterEntry for each entry asked for (9.3.1)."""
        self._direct.need_counter()
        yield from self._direct.counted(self._entries.select_by_key(query), direct=True)

    def read_direct_meters(self, query: Any) -> Iterator[bytes]:
        """Serialised Entity messages with a DirectMeterEntry for each entry asked for (9.4.1)."""
        self._direct.need_meter()
        self._direct.need_entry(query.table_entry)
        with_counts = query.HasField("counter_data")
        for entry in self._entries.select_by_key(query.table_entry):
            key = key_only(entry.wire).SerializeToString()
            content = self._direct.meter_entry(entry, key, with_counts=with_counts)
            yield message_field(ENTITY_DIRECT_METER, content)

    def export(self) -> Iterator[tuple[int, Any]]:
        """Update types and TableEntry messages that bring another store of this table here."""
        if not (self.info.const_default or self._profile):
            default = p4r.TableEntry.FromString(self._entries.default)
            if self._default is None:
                default.ClearField("action")  # which leaves the program's own
            used = self._direct.export(self._entries.default_entry(), default)
            if used or self._default is not None:
                yield _MODIFY, default
        for key, wire in self._initial.items():
            if key not in self._entries.by_key:
                yield _DELETE, key_only(wire)
        for key, entry in self._entries.by_key.items():
            message = p4r.TableEntry.FromString(entry.wire)
            if entry.const:
                message = key_only(entry.wire)
            used = self._direct.export(entry, message)
            if key not in self._initial:
                yield _INSERT, message
            elif used or entry.wire != self._initial[key]:
                yield _MODIFY, message

    @property
    def _where(self) -> str:
        return f"table {self.info.name!r}"


def _in_engine(action: Action) -> TableTarget:
    return action if isinstance(action, ActionCall) else action.target()


def _referred(action: Action) -> Target | None:
    return None if isinstance(action, ActionCall) else action


def _hold(target: Target | None) -> None:
    if isinstance(target, (Member, Group)):
        target.entries += 1
