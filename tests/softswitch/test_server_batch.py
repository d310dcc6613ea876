# SPDX-License-Identifier: Apache-2.0
"""Writes that are decoded in C do what the same updates do one by one, right and wrong ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.bmread import read_program
from softswitch.dataplane import Dataplane
from softswitch.description import describe
from softswitch.entities import EntityStore, Outcomes
from softswitch.p4info import view
from softswitch.values import DataplaneOptions
from tests.softswitch.p4rt import CPU_PORT, entity, load_config

CONFIG = load_config()
INFO = CONFIG.p4info
PLAIN = ("exact_table", "two_keys", "lpm_table", "acl")
OTHERS = ("const_table", "ecmp", "indirect")
DEFAULT_ONLY = 2  # p4.config.v1.ActionRef.Scope
ROUNDS = 300


@contextmanager
def stores(count: int) -> Iterator[list[tuple[Dataplane, EntityStore]]]:
    """Switches of their own with the program `entities`."""
    planes = [Dataplane(DataplaneOptions(cpu_port=CPU_PORT)) for _ in range(count)]
    try:
        made = []
        for plane in planes:
            plane.load(CONFIG.p4_device_config)
            description = describe(read_program(CONFIG.p4_device_config))
            made.append((plane, EntityStore(view(INFO), description, plane, {})))
        yield made
    finally:
        for plane in planes:
            plane.close()


class Generator:
    """Random updates of table entries: most are right, some wrong in one of many ways."""

    def __init__(self, seed: int, longest: int, errors: int) -> None:
        """`longest` batch in updates; each thing that can be wrong is in `errors` per mille."""
        self._rng = random.Random(seed)
        self._longest = longest
        self._errors = errors
        self._tables = {t.preamble.alias: t for t in INFO.tables}
        self._actions = {a.preamble.id: a for a in INFO.actions}

    def batch(self) -> list[Any]:
        return [self._update() for _ in range(self._rng.randint(1, self._longest))]

    def packet(self) -> tuple[int, bytes]:
        macs = b"".join(self._number(6).rjust(6, b"\0") for _ in range(2))
        ether_type = self._rng.choice((0x88CC, 0x8808, *range(4)))
        return self._rng.randrange(4), macs + ether_type.to_bytes(2, "big") + b"payload"

    def _rarely(self) -> bool:
        return self._rng.randrange(1000) < self._errors

    def _number(self, size: int) -> bytes:
        """A small number, or a large one; sometimes too long, empty or with a needless zero."""
        rng = self._rng
        value = rng.randrange(4) if rng.randrange(3) else (1 << 8 * size - 1) | rng.randrange(4)
        return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")[-size:]

    def _bytes(self, width: int) -> bytes:
        if self._rarely():
            return self._rng.choice((b"", b"\0\1", b"\xff" * (width // 8 + 2), b"\0\0"))
        rng = self._rng
        value = rng.randrange(4) if rng.randrange(4) else rng.getrandbits(width)
        return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")

    def _update(self) -> Any:
        name = self._rng.choice(OTHERS if self._rarely() else PLAIN)
        table = self._tables[name]
        update = p4r.Update(type=self._rng.choice((1, 1, 1, 1, 2, 3)))
        if self._rarely():
            update.type = self._rng.choice((0, 4))
        entry = update.entity.table_entry
        entry.table_id = table.preamble.id if not self._rarely() else 77
        for field in table.match_fields:
            if not self._rarely() and (field.match_type == 2 or self._rng.randrange(4)):
                self._match(entry, field)
        if self._rarely() and entry.match:
            entry.match.append(entry.match[0])
        if name == "acl":
            entry.priority = self._rng.randrange(1, 4)
        if self._rarely():
            entry.priority = self._rng.choice((0, 5, -1))
        if not self._rarely():
            self._action(entry, table)
        if self._rarely():
            self._spice(entry)
        return update

    def _match(self, entry: Any, field: Any) -> None:
        item = entry.match.add(field_id=field.id if not self._rarely() else 9)
        width = field.bitwidth
        kind = field.match_type if not self._rarely() else self._rng.choice((2, 3, 4, 6))
        if kind == 2:
            item.exact.value = self._bytes(width)
        elif kind == 4:
            length = self._rng.choice((1, 16, 46, 47, 48, width))
            keep = (1 << width) - (1 << max(0, width - length))
            value = int.from_bytes(self._bytes(width), "big") & (keep if not self._rarely() else ~0)
            item.lpm.value = value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
            item.lpm.prefix_len = length if not self._rarely() else self._rng.choice((0, 99, -1))
        elif kind == 3:
            item.ternary.mask = self._bytes(width)
            value = int.from_bytes(item.ternary.mask, "big") & self._rng.getrandbits(width)
            item.ternary.value = value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
            if self._rarely():
                item.ternary.value = self._bytes(width)
        elif kind == 5:
            bounds = sorted((self._bytes(width), self._bytes(width)), key=self._value)
            item.range.low, item.range.high = bounds if not self._rarely() else bounds[::-1]
            if self._rarely():
                item.range.low, item.range.high = b"\0", b"\xff" * (width // 8)
        else:
            item.optional.value = self._bytes(width)

    @staticmethod
    def _value(data: bytes) -> int:
        return int.from_bytes(data, "big")

    def _action(self, entry: Any, table: Any) -> None:
        refs = [ref for ref in table.action_refs if ref.scope != DEFAULT_ONLY]
        action = self._actions[self._rng.choice(refs).id]
        if self._rarely():
            action = self._rng.choice(list(self._actions.values()))
        made = entry.action.action
        made.action_id = action.preamble.id
        for param in action.params:
            if not self._rarely():
                made.params.add(
                    param_id=param.id if not self._rarely() else 7,
                    value=self._bytes(param.bitwidth),
                )
        if self._rarely():
            made.params.extend(reversed(made.params))

    def _spice(self, entry: Any) -> None:
        """A field that a plain entry has not, or that changes nothing."""
        match self._rng.randrange(9):
            case 0:
                entry.is_const = True
            case 1:
                entry.counter_data.packet_count = 5
            case 2:
                entry.idle_timeout_ns = 5
            case 3:
                entry.metadata = b"mine"
            case 4:
                entry.controller_metadata = 1 << 63
            case 5:
                entry.is_default_action = True
            case 6:
                entry.meter_config.cir = 1
            case 7:
                entry.action.action_profile_member_id = 1
            case 8:
                entry.time_since_last_hit.elapsed_ns = 1


def shown(outcomes: Outcomes) -> list[tuple[int, str] | None]:
    return [None if failure is None else (failure.code, failure.message) for failure in outcomes]


def everything(store: EntityStore) -> list[str]:
    """All entries of all tables with counters, as text; where two have no order, sorted."""
    queries = [p4r.TableEntry(table_id=t.preamble.id) for t in INFO.tables]
    for query in queries:
        query.counter_data.SetInParent()
    found, outcomes = store.read([entity(table_entry=query) for query in queries])
    assert not any(outcomes)
    return sorted(str(p4r.Entity.FromString(wire)) for wire in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rollback", [False, True])
def test_same_as_one_by_one(seed: int, rollback: bool) -> None:
    generator = Generator(seed, longest=3, errors=3) if rollback else Generator(seed, 12, 20)
    succeeded = failed = 0
    with stores(2) as ((fast_plane, fast), (slow_plane, slow)):
        for _ in range(ROUNDS):
            updates = generator.batch()
            request = p4r.WriteRequest(device_id=1, updates=updates)
            wire = request.SerializeToString()
            outcomes = shown(fast.write(updates, rollback=rollback, wire=wire))
            assert outcomes == shown(slow.write(updates, rollback=rollback)), request
            succeeded += outcomes.count(None)
            failed += len(outcomes) - outcomes.count(None)
            assert everything(fast) == everything(slow), request
            for _ in range(5):
                port, packet = generator.packet()
                assert fast_plane.process(port, packet) == slow_plane.process(port, packet)
        assert everything(fast) == everything(slow)
    assert succeeded > 40
    assert failed > 100


def test_plain_updates_of_another_order_and_with_unknown_fields() -> None:
    """What a serialiser of another language may write is left to Python, and understood."""
    with stores(1) as ((_, store),):
        table = next(t for t in INFO.tables if t.preamble.alias == "exact_table")
        drop = next(a for a in INFO.actions if a.preamble.alias == "drop")
        head = p4r.TableEntry(table_id=table.preamble.id).SerializeToString()
        match = p4r.TableEntry()
        match.match.add(field_id=1).exact.value = b"\5"
        action = p4r.TableEntry()
        action.action.action.action_id = drop.preamble.id
        parts = [head, match.SerializeToString(), action.SerializeToString()]
        unknown = b"\xf8\x07\x01"  # field 127, a number
        for entry in (b"".join(reversed(parts)), b"".join(parts) + unknown):
            entry_field = b"\x12" + bytes((len(entry),)) + entry
            update = b"\x12" + bytes((len(entry_field),)) + entry_field + b"\x08\x01"
            wire = b"\x22" + bytes((len(update),)) + update
            request = p4r.WriteRequest.FromString(wire)
            assert store.write(request.updates, wire=wire) == [None]
            request.updates[0].type = p4r.Update.DELETE
            assert store.write(request.updates) == [None]


def test_a_full_table_takes_what_fits() -> None:
    with stores(2) as ((_, fast), (_, slow)):
        request = p4r.WriteRequest(device_id=1)
        table = next(t for t in INFO.tables if t.preamble.alias == "two_keys")
        drop = next(a for a in INFO.actions if a.preamble.alias == "drop")
        for number in range(100):
            entry = request.updates.add(type=p4r.Update.INSERT).entity.table_entry
            entry.table_id = table.preamble.id
            entry.match.add(field_id=1).exact.value = b"\1"
            entry.match.add(field_id=2).exact.value = bytes((number,))
            entry.action.action.action_id = drop.preamble.id
        wire = request.SerializeToString()
        for rollback in (True, False):
            outcomes = shown(fast.write(request.updates, rollback=rollback, wire=wire))
            assert outcomes == shown(slow.write(request.updates, rollback=rollback))
            assert everything(fast) == everything(slow)
        assert outcomes.count(None) == 64 == table.size
