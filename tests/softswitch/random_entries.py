# SPDX-License-Identifier: Apache-2.0
"""Random contents of tables and action profiles, from what the P4Info says of them.

Values like the ends of their ranges, so that packets of the same taste meet them. Priorities are
used once per table: BMv2 has no order between equal ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from finsy.proto import p4i, p4r

from tests.softswitch.controller_port import CPU_PORT
from tests.softswitch.p4rt import INSERT, MODIFY, RawClient, byte_string, update

MOST_ENTRIES = 48
MOST_MEMBERS = 12
MOST_GROUPS = 6
GROUP_MEMBERS = 5
MOST_WEIGHT = 3
PORT_BITS = 9
PORTS = (1, 2, 3, 4, 4, CPU_PORT, 511, 77)


def edge(source: random.Random, bits: int) -> int:
    """A number at or near an end of its range, a small one, or any."""
    top = (1 << bits) - 1
    choices = (0, 1, 2, top, top - 1, top >> 1, (top >> 1) + 1, source.getrandbits(bits))
    small = source.randrange(min(top, 20) + 1)
    return source.choice((*choices, source.getrandbits(bits), small)) & top


def random_entries(client: RawClient, source: random.Random, names: Sequence[str]) -> list[Any]:
    """INSERTs into the tables and profiles of these names, profiles first."""
    info = client.info
    profiles = {profile.preamble.id: profile for profile in info.action_profiles}
    pools: dict[int, _Pool] = {}
    updates: list[Any] = []
    for number, profile in profiles.items():
        if profile.preamble.alias in names:
            pools[number] = pool = _Pool(info, profile, source)
            updates += pool.updates
    for table in info.tables:
        if table.preamble.alias not in names:
            continue
        pool_of_table = pools.get(table.implementation_id)
        if table.implementation_id and pool_of_table is None:
            raise ValueError(f"{table.preamble.alias} needs its action profile to be named too")
        updates += _table_entries(info, table, source, pool_of_table)
    return updates


# ---- actions -------------------------------------------------------------------------------------


def _action(info: Any, number: int, source: random.Random) -> Any:
    action = next(action for action in info.actions if action.preamble.id == number)
    return p4r.Action(
        action_id=number,
        params=[
            p4r.Action.Param(param_id=param.id, value=byte_string(_value(source, param.bitwidth)))
            for param in action.params
        ],
    )


def _value(source: random.Random, bits: int) -> int:
    return source.choice(PORTS) if bits == PORT_BITS else edge(source, bits)


def _actions_of(table: Any) -> list[int]:
    default_only = p4i.ActionRef.DEFAULT_ONLY
    return [int(ref.id) for ref in table.action_refs if ref.scope != default_only]


class _Pool:
    """Members and groups of a profile, or one-shot action sets; not both, P4Runtime forbids it."""

    def __init__(self, info: Any, profile: Any, source: random.Random) -> None:
        self._info = info
        self._source = source
        self._actions = _actions_of(
            next(table for table in info.tables if table.preamble.id == profile.table_ids[0])
        )
        self._one_shot = profile.with_selector and source.random() < 0.4
        self.updates: list[Any] = []
        self._members: list[int] = []
        self._groups: list[int] = []
        if self._one_shot:
            return
        number = profile.preamble.id
        for member_id in source.sample(range(1, 100), MOST_MEMBERS):
            member = p4r.ActionProfileMember(
                action_profile_id=number, member_id=member_id, action=self._any_action()
            )
            self.updates.append(update(INSERT, action_profile_member=member))
            self._members.append(member_id)
        for group_id in source.sample(range(1, 100), MOST_GROUPS if profile.with_selector else 0):
            group = p4r.ActionProfileGroup(
                action_profile_id=number, group_id=group_id, max_size=GROUP_MEMBERS * MOST_WEIGHT
            )
            for member_id in source.sample(self._members, source.randrange(1, GROUP_MEMBERS)):
                weight = source.randrange(1, MOST_WEIGHT + 1)
                group.members.append(
                    p4r.ActionProfileGroup.Member(member_id=member_id, weight=weight)
                )
            self.updates.append(update(INSERT, action_profile_group=group))
            self._groups.append(group_id)

    def _any_action(self) -> Any:
        return _action(self._info, self._source.choice(self._actions), self._source)

    def target(self) -> Any:
        """What an entry may refer to."""
        if self._one_shot:
            actions = [
                p4r.ActionProfileAction(
                    action=self._any_action(), weight=self._source.randrange(1, MOST_WEIGHT + 1)
                )
                for _ in range(self._source.randrange(1, GROUP_MEMBERS))
            ]
            chosen = p4r.ActionProfileActionSet(action_profile_actions=actions)
            return p4r.TableAction(action_profile_action_set=chosen)
        if self._groups and self._source.random() < 0.6:
            return p4r.TableAction(action_profile_group_id=self._source.choice(self._groups))
        return p4r.TableAction(action_profile_member_id=self._source.choice(self._members))


# ---- entries -------------------------------------------------------------------------------------


def _exact(source: random.Random, field: Any) -> Any:
    return p4r.FieldMatch.Exact(value=byte_string(edge(source, field.bitwidth)))


def _optional(source: random.Random, field: Any) -> Any:
    if source.random() < 0.4:
        return None
    return p4r.FieldMatch.Optional(value=byte_string(edge(source, field.bitwidth)))


def _lpm(source: random.Random, field: Any) -> Any:
    bits = field.bitwidth
    length = source.choice((0, 1, bits, bits // 2, source.randrange(bits + 1)))
    if length == 0:
        return None
    value = edge(source, bits) >> (bits - length) << (bits - length)
    return p4r.FieldMatch.LPM(value=byte_string(value), prefix_len=length)


def _ternary(source: random.Random, field: Any) -> Any:
    bits = field.bitwidth
    mask = source.choice((0, 1, (1 << bits) - 1, edge(source, bits), source.getrandbits(bits)))
    if mask == 0:
        return None
    value = byte_string(edge(source, bits) & mask)
    return p4r.FieldMatch.Ternary(value=value, mask=byte_string(mask))


def _range(source: random.Random, field: Any) -> Any:
    low, high = sorted((edge(source, field.bitwidth), edge(source, field.bitwidth)))
    if (low, high) == (0, (1 << field.bitwidth) - 1):
        return None
    return p4r.FieldMatch.Range(low=byte_string(low), high=byte_string(high))


_MATCHES: dict[str, tuple[str, Callable[[random.Random, Any], Any]]] = {
    "EXACT": ("exact", _exact),
    "OPTIONAL": ("optional", _optional),
    "LPM": ("lpm", _lpm),
    "TERNARY": ("ternary", _ternary),
    "RANGE": ("range", _range),
}


def _match(table: Any, source: random.Random) -> list[Any]:
    matches = []
    for field in table.match_fields:
        name, make = _MATCHES[p4i.MatchField.MatchType.Name(field.match_type)]
        if (value := make(source, field)) is not None:
            matches.append(p4r.FieldMatch(field_id=field.id, **{name: value}))
    return matches


def _table_entries(info: Any, table: Any, source: random.Random, pool: _Pool | None) -> list[Any]:
    kinds = {p4i.MatchField.MatchType.Name(field.match_type) for field in table.match_fields}
    with_priority = bool(kinds & {"TERNARY", "RANGE", "OPTIONAL"})
    actions = _actions_of(table)
    count = min(table.size, MOST_ENTRIES)
    priorities = source.sample(range(1, 10 * MOST_ENTRIES), count)
    seen: set[tuple[bytes, ...]] = set()
    updates = []
    for priority in priorities:
        match = _match(table, source)
        key = tuple(field.SerializeToString(deterministic=True) for field in match)
        if key in seen or not table.match_fields:
            continue
        seen.add(key)
        entry = p4r.TableEntry(table_id=table.preamble.id, match=match)
        entry.priority = priority if with_priority else 0
        if pool is None:
            entry.action.action.CopyFrom(_action(info, source.choice(actions), source))
        else:
            entry.action.CopyFrom(pool.target())
        updates.append(update(INSERT, table_entry=entry))
    if pool is None and not table.const_default_action_id and source.random() < 0.5:
        entry = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        entry.action.action.CopyFrom(_action(info, source.choice(actions), source))
        updates.append(update(MODIFY, table_entry=entry))
    return updates
