# SPDX-License-Identifier: Apache-2.0
"""All P4Runtime entities of one loaded program: batches of updates, and reads.

Not thread-safe and never waits: the server calls it from its event loop, so a batch is applied as a
whole before anything else is looked at (strict serialisability, P4Runtime 1.4, section 12.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from finsy.proto import p4r

from softswitch.boundary import PipelineLike
from softswitch.description import Description
from softswitch.digests import DigestQueue
from softswitch.entities_array import CounterStore, RegisterStore
from softswitch.entities_idle import IdleTimeouts
from softswitch.entities_meter import MeterStore
from softswitch.entities_profile import ProfileStore
from softswitch.entities_replication import ReplicationStore
from softswitch.entities_table import TableStore
from softswitch.entities_value_set import ValueSetStore
from softswitch.errors import DataplaneError
from softswitch.p4info import ActionInfo, P4InfoView, ProfileInfo
from softswitch.status import ABORTED, NOT_FOUND, UNIMPLEMENTED, Failure, Undo, failure_of, invalid

Outcomes = list[Failure | None]
Store = TypeVar("Store")

_INSERT: int = p4r.Update.INSERT
_MODIFY: int = p4r.Update.MODIFY
_DELETE: int = p4r.Update.DELETE

_UNSUPPORTED = {
    "extern_entry": "externs (v1model has none that P4Runtime reaches)",
}


class EntityStore:
    """The entities of a program that `pipeline` runs; `digests` by P4Info id."""

    def __init__(
        self,
        view: P4InfoView,
        description: Description,
        pipeline: PipelineLike,
        digests: Mapping[int, DigestQueue],
    ) -> None:
        self.pipeline = pipeline
        self.view = view
        self.digests = digests
        self._profiles = {
            i: ProfileStore(
                profile,
                *_profile_actions(profile, view, description),
                pipeline.profiles[profile.name],
                pipeline.port_is_up,
            )
            for i, profile in view.profiles.items()
        }
        self._tables = {
            i: TableStore(
                table,
                description.tables[table.name],
                pipeline.tables[table.name],
                self._profiles[table.profile_id] if table.profile_id else None,
            )
            for i, table in view.tables.items()
        }
        self._counters = {
            i: CounterStore(info, pipeline.counters[info.name]) for i, info in view.counters.items()
        }
        self._registers = {
            i: RegisterStore(
                info, description.registers[info.name][1], pipeline.registers[info.name]
            )
            for i, info in view.registers.items()
        }
        self._meters = {
            i: MeterStore(info, pipeline.meters[info.name]) for i, info in view.meters.items()
        }
        self._value_sets = {
            i: ValueSetStore(info, pipeline.value_sets[info.name])
            for i, info in view.value_sets.items()
        }
        self._replication = ReplicationStore(pipeline)
        plans = [plan for table in self._tables.values() if (plan := table.plan()) is not None]
        self.planned = pipeline.plan(plans)
        self._planned_tables = {table.info.name: table for table in self._tables.values()}

    def idle_timeouts(self) -> list[IdleTimeouts]:
        """Those of the tables that have them."""
        return [t.timeouts for t in self._tables.values() if t.timeouts.supported]

    # --- writes -------------------------------------------------------------------------------

    def write(
        self, updates: Sequence[Any], *, rollback: bool = False, wire: bytes | None = None
    ) -> Outcomes:
        """Apply p4.v1.Update messages in order; the outcome of each, None for success.

        With `rollback`, the first failure takes everything back that came before it in the batch,
        and no update has succeeded then. `wire` is the serialised WriteRequest that has these
        updates, where there is one: then plain ones of many tables are applied at once.
        """
        outcomes: Outcomes = [None] * len(updates)
        undo: Undo | None = [] if rollback else None
        for number in self._singly(updates, wire, undo):
            outcome = self._outcome(updates[number], undo)
            if outcome is not None and undo is not None:
                for step in reversed(undo):
                    step()
                before = Failure(ABORTED, f"rolled back: update {number} failed")
                after = Failure(ABORTED, f"not attempted: update {number} failed")
                return [*[before] * number, outcome, *[after] * (len(updates) - number - 1)]
            outcomes[number] = outcome
        return outcomes

    def _singly(
        self, updates: Sequence[Any], wire: bytes | None, undo: Undo | None
    ) -> Iterator[int]:
        """Apply the runs of plain updates; gives the others, in order, to be applied one by one."""
        if self.planned is None or wire is None or not updates:
            yield from range(len(updates))
            return
        batch = self.planned.decode(wire, len(updates))
        for run in batch.runs:
            if not run.kind:
                yield from range(run.first, run.first + run.count)
                continue
            for number in self._planned_tables[run.table].apply(batch, run, undo):
                yield run.first + number

    def _outcome(self, update: Any, undo: Undo | None) -> Failure | None:
        try:
            self._apply(update, undo)
        except Failure as failure:
            return failure
        except DataplaneError as error:
            return failure_of(error)
        return None

    def port_changed(self, port: int) -> None:
        """A port went up or down: what watches it follows."""
        for profile in self._profiles.values():
            profile.port_changed(port)
        self._replication.port_changed(port)

    def _apply(self, update: Any, undo: Undo | None) -> None:
        entity = update.entity
        kind = update.type
        which = entity.WhichOneof("entity")
        if which == "table_entry":
            message = entity.table_entry
            store = self._tables.get(message.table_id) or self.table(message.table_id)
            _operation(kind, store.insert, store.modify, store.delete)(message, undo)
        elif which == "action_profile_member":
            message = entity.action_profile_member
            profile = _known(self._profiles, message.action_profile_id, "action profile")
            _operation(kind, profile.insert_member, profile.modify_member, profile.delete_member)(
                message, undo
            )
        elif which == "action_profile_group":
            message = entity.action_profile_group
            profile = _known(self._profiles, message.action_profile_id, "action profile")
            _operation(kind, profile.insert_group, profile.modify_group, profile.delete_group)(
                message, undo
            )
        elif which == "counter_entry":
            _only_modify(kind, "a counter")
            message = entity.counter_entry
            _known(self._counters, message.counter_id, "counter").modify(message, undo)
        elif which == "direct_counter_entry":
            _only_modify(kind, "a direct counter")
            message = entity.direct_counter_entry
            data = message.data if message.HasField("data") else None
            table = self.table(message.table_entry.table_id)
            table.modify_direct_counter(message.table_entry, data, undo)
        elif which == "meter_entry":
            _only_modify(kind, "a meter")
            message = entity.meter_entry
            _known(self._meters, message.meter_id, "meter").modify(message, undo)
        elif which == "direct_meter_entry":
            _only_modify(kind, "a direct meter")
            message = entity.direct_meter_entry
            self.table(message.table_entry.table_id).modify_direct_meter(message, undo)
        elif which == "register_entry":
            _only_modify(kind, "a register")
            message = entity.register_entry
            _known(self._registers, message.register_id, "register").modify(message, undo)
        elif which == "value_set_entry":
            _only_modify(kind, "a value set")
            message = entity.value_set_entry
            _known(self._value_sets, message.value_set_id, "value set").modify(message, undo)
        elif which == "packet_replication_engine_entry":
            _operation(kind, None, None, None)
            self._replication.write(kind, entity.packet_replication_engine_entry, undo)
        elif which == "digest_entry":
            _operation(kind, None, None, None)
            message = entity.digest_entry
            _known(self.digests, message.digest_id, "digest").write(kind, message, undo)
        else:
            raise _unsupported(which)

    def table(self, table_id: int) -> TableStore:
        """The entries of a table. Raises `Failure` INVALID_ARGUMENT when there is no such id."""
        return _known(self._tables, table_id, "table")

    # --- reads --------------------------------------------------------------------------------

    def read(self, queries: Iterable[Any]) -> tuple[list[bytes], Outcomes]:
        """Serialised Entity messages for the Entity messages that a ReadRequest holds.

        Also the outcome of each query; one that failed contributed nothing.
        """
        found: list[bytes] = []
        outcomes: Outcomes = []
        for query in queries:
            try:
                # A list of its own, so that a query that fails half-way leaves nothing behind.
                found.extend(list(self._read(query)))
            except Failure as failure:
                outcomes.append(failure)
            except DataplaneError as error:
                outcomes.append(failure_of(error))
            else:
                outcomes.append(None)
        return found, outcomes

    def _read(self, entity: Any) -> Iterator[bytes]:
        which = entity.WhichOneof("entity")
        if which == "table_entry":
            yield from self._read_tables(entity.table_entry)
        elif which == "action_profile_member":
            message = entity.action_profile_member
            for profile in _some(self._profiles, message.action_profile_id, "action profile"):
                yield from profile.read_members(message.member_id)
        elif which == "action_profile_group":
            message = entity.action_profile_group
            for profile in _some(self._profiles, message.action_profile_id, "action profile"):
                yield from profile.read_groups(message.group_id)
        elif which == "counter_entry":
            message = entity.counter_entry
            for counter in _some(self._counters, message.counter_id, "counter"):
                yield from counter.read(message)
        elif which == "direct_counter_entry":
            message = entity.direct_counter_entry.table_entry
            if message.table_id:
                yield from self.table(message.table_id).read_direct_counters(message)
            else:
                for table in self._tables.values():
                    if table.info.has_counter:
                        yield from table.read_direct_counters(message)
        elif which == "meter_entry":
            message = entity.meter_entry
            for meter in _some(self._meters, message.meter_id, "meter"):
                yield from meter.read(message)
        elif which == "direct_meter_entry":
            message = entity.direct_meter_entry
            if message.table_entry.table_id:
                yield from self.table(message.table_entry.table_id).read_direct_meters(message)
            else:
                for table in self._tables.values():
                    if table.info.meter is not None:
                        yield from table.read_direct_meters(message)
        elif which == "register_entry":
            message = entity.register_entry
            for register in _some(self._registers, message.register_id, "register"):
                yield from register.read(message)
        elif which == "value_set_entry":
            number = entity.value_set_entry.value_set_id
            for value_set in _some(self._value_sets, number, "value set"):
                yield value_set.read()
        elif which == "packet_replication_engine_entry":
            yield from self._replication.read(entity.packet_replication_engine_entry)
        elif which == "digest_entry":
            yield from self._read_digests(entity.digest_entry.digest_id)
        elif not self._reads_nothing(which, entity):
            raise _unsupported(which)

    def _read_tables(self, message: Any) -> Iterator[bytes]:
        if message.table_id:
            yield from self.table(message.table_id).read(message)
            return
        if message.match or message.HasField("action"):
            raise invalid("a read of all tables (table_id 0) can have neither match nor action")
        for table in self._tables.values():
            yield from table.read(message)

    def _read_digests(self, digest_id: int) -> Iterator[bytes]:
        for digest in _some(self.digests, digest_id, "digest"):
            config = digest.read()
            if config is not None:
                yield config
            elif digest_id:
                raise Failure(NOT_FOUND, f"digest {digest.info.name!r} is not configured")

    def _reads_nothing(self, which: str | None, entity: Any) -> bool:
        """True for a read of all objects of a kind of which this program has none."""
        return which == "extern_entry" and not entity.extern_entry.extern_type_id

    def export(self) -> list[Any]:
        """Updates that rebuild this state in an empty store of a program."""
        updates: list[Any] = []

        def add(field: str, message: Any, kind: int = _INSERT) -> None:
            updates.append(p4r.Update(type=kind, entity=p4r.Entity(**{field: message})))

        for profile in self._profiles.values():
            for wire in (*profile.read_members(0), *profile.read_groups(0)):
                updates.append(p4r.Update(type=_INSERT, entity=p4r.Entity.FromString(wire)))
        for table in self._tables.values():
            for kind, entry in table.export():
                add("table_entry", entry, kind)
        for message in self._replication.export():
            add("packet_replication_engine_entry", message)
        for digest in self.digests.values():
            for message in digest.export():
                add("digest_entry", message)
        for counter in self._counters.values():
            for message in counter.export():
                add("counter_entry", message, _MODIFY)
        for meter in self._meters.values():
            for message in meter.export():
                add("meter_entry", message, _MODIFY)
        for register in self._registers.values():
            for message in register.export():
                add("register_entry", message, _MODIFY)
        for value_set in self._value_sets.values():
            for message in value_set.export():
                add("value_set_entry", message, _MODIFY)
        return updates


def _profile_actions(
    profile: ProfileInfo, view: P4InfoView, description: Description
) -> tuple[Mapping[int, tuple[ActionInfo, int]], Mapping[str, tuple[int, ...]]]:
    """The actions of a profile's tables, with scopes, and the widths of their parameters."""
    actions: dict[int, tuple[ActionInfo, int]] = {}
    widths: dict[str, tuple[int, ...]] = {}
    for table in view.tables.values():
        if table.profile_id == profile.id:
            actions.update(table.actions)
            widths.update(description.tables[table.name].actions)
    return actions, widths


def _known(stores: Mapping[int, Store], number: int, kind: str) -> Store:
    store = stores.get(number)
    if store is None:
        raise invalid(f"the program has no {kind} with id {number}; it has {sorted(stores)}")
    return store


def _some(stores: Mapping[int, Store], number: int, kind: str) -> Iterable[Store]:
    """The store with this id, or all of them for id 0."""
    return (_known(stores, number, kind),) if number else stores.values()


def _operation(kind: int, insert: Store, modify: Store, delete: Store) -> Store:
    if kind == _INSERT:
        return insert
    if kind == _MODIFY:
        return modify
    if kind == _DELETE:
        return delete
    raise invalid(f"update type {kind} is none of INSERT (1), MODIFY (2), DELETE (3)")


def _only_modify(kind: int, what: str) -> None:
    if kind != _MODIFY:
        raise invalid(f"{what} can only be modified (update type 2, MODIFY), not {kind}")


def _unsupported(which: str | None) -> Failure:
    if which is None:
        return invalid("an Entity without an entity in it")
    return Failure(UNIMPLEMENTED, f"{which}: {_UNSUPPORTED[which]} are not supported")
