# SPDX-License-Identifier: Apache-2.0
"""Programs with entries and packets, the same for softswitch, BMv2 and BMv2's recorded answers.

Everything follows from seeds. Packets have at least 14 bytes (a packet socket sends no less) and
never a VLAN tag in front (kernels keep it beside the packet, and BMv2 gets it back only sometimes).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from tests.softswitch.p4rt import DELETE, INSERT, MODIFY, RawClient, update
from tests.softswitch.random_entries import edge, random_entries

PROGRAMS = Path(__file__).parent / "programs" / "build"
FIRST_BYTES = 14
VLAN_TYPES = (0x8100, 0x88A8, 0x9100)

Packet = tuple[int, bytes]


@dataclass(frozen=True)
class Scenario:
    """A program (name in `directory`), what is written to it, and what arrives where.

    Port CPU_PORT is the controller's. `any_entries` are the tables and profiles that get random
    entries (random_entries.py) after `updates`.
    """

    name: str
    updates: Callable[[RawClient], Sequence[Any]]
    packet: Callable[[random.Random], Packet]
    program: str = ""
    directory: Path = PROGRAMS
    any_entries: tuple[str, ...] = ()
    priority_queues: int = 1

    def entries(self, client: RawClient, seed: int) -> list[Any]:
        """All updates that belong to a seed."""
        source = random.Random(f"{self.name} entries {seed}")
        return [*self.updates(client), *random_entries(client, source, self.any_entries)]

    def packets(self, seed: int, count: int) -> Iterator[Packet]:
        """`count` packets that belong to a seed."""
        source = random.Random(f"{self.name} {seed}")
        while count:
            port, data = self.packet(source)
            if len(data) >= FIRST_BYTES and int.from_bytes(data[12:14]) not in VLAN_TYPES:
                count -= 1
                yield port, data


# ---- packets -------------------------------------------------------------------------------------


def mutated(source: random.Random, data: bytes) -> bytes:
    """Sometimes cut, lengthened, or changed in some bytes."""
    changed = bytearray(data)
    kind = source.random()
    if kind < 0.15:
        del changed[source.randrange(FIRST_BYTES, max(FIRST_BYTES + 1, len(changed))) :]
    elif kind < 0.3:
        changed += source.randbytes(source.randrange(1, 64))
    elif kind < 0.5:
        for _ in range(source.randrange(1, 4)):
            changed[source.randrange(len(changed))] = source.randrange(256)
    return bytes(changed)


def probe(source: random.Random, ops: int = 8) -> Packet:
    """Ethernet and probe_t with fields that like the ends of their ranges."""
    op = source.randrange(ops) if source.random() < 0.9 else source.randrange(256)
    data = source.randbytes(12) + source.choice((b"\x12\x34", source.randbytes(2)))
    data += bytes([op]) + (edge(source, 3) << 13 | edge(source, 13)).to_bytes(2)
    for bits in (8, 16, 32, 64, 128, 8, 16):
        data += edge(source, bits).to_bytes(bits // 8)
    if source.random() < 0.5:
        data += source.randbytes(source.randrange(100))
    return source.randrange(1, 5), mutated(source, data)


def parser_packet(source: random.Random) -> Packet:
    """For parser.p4: each way through the parser, and some that end too early."""
    ether_type = source.choice((0x0800, 0x08FF, 0x1000, 0x1003, 0x1007, 0x1008, 0x2000, 0x3000))
    low = source.choice((5, 5, 0x80, 0xFF, 0x11))
    data = source.randbytes(5) + bytes([source.randrange(4)]) + source.randbytes(5)
    data += bytes([low]) + ether_type.to_bytes(2)
    for _ in range(source.randrange(6)):
        data += bytes([source.choice((0, 3, 0x30, 0x40, 0x7F)), source.randrange(256)])
    if source.random() < 0.8:
        data += bytes([source.choice((0x83, 0x80, 0xBF)), source.randrange(256)])
    data += bytes([source.choice((0x55, 0x54, source.randrange(256)))])
    data += source.randbytes(source.randrange(12))
    return source.randrange(1, 5), mutated(source, data)


UN_BLOCK = 0xFCBB_BB00
UN_SID = 0x0100


def un_packet(source: random.Random) -> Packet:
    """For un.p4: carriers whose first micro-SID is the switch's own, or some other."""
    sids = [source.choice((UN_SID, 1, 2, 3, 4, source.getrandbits(16))) for _ in range(6)]
    carrier = b"".join(sid.to_bytes(2) for sid in sids)
    version = source.choice((6 << 28, source.getrandbits(32))).to_bytes(4)
    hop_limit = source.choice((64, 255, 2, 1, 0))
    data = source.randbytes(12) + b"\x86\xdd" + version + source.randbytes(3)
    data += bytes([hop_limit]) + source.randbytes(16) + UN_BLOCK.to_bytes(4) + carrier
    data += source.randbytes(source.randrange(40))
    return source.randrange(1, 5), mutated(source, data)


def unions_packet(source: random.Random) -> Packet:
    """For unions.p4: the first union, then options of all members."""
    data = source.randbytes(5) + bytes([source.randrange(8)]) + source.randbytes(8)
    first = source.randrange(4)
    if first == 1:
        value = source.choice((0xFF, source.randrange(256)))
        data += bytes([1, value]) + (source.randbytes(5) if value == 0xFF else b"")
    elif first == 2:
        data += b"\x02" + source.randbytes(4)
    for _ in range(source.randrange(5)):
        kind = source.choice((0x10, 0x10, 0x1F, 0x20, 0x20, 0x30, 0x30, 0))
        if kind == 0x30:
            length = source.choice((0, 1, 3, 8, 8, 9, source.randrange(256)))
            data += bytes([kind, length]) + source.randbytes(length)
        elif kind == 0x20:
            data += bytes([kind]) + source.randbytes(4)
        elif kind:
            data += bytes([kind, source.randrange(256)])
        else:
            data += b"\0"
    if source.random() < 0.5:
        data += b"\x40" + source.randbytes(source.randrange(20))
    return source.randrange(1, 5), mutated(source, data)


def _varbit_ip(source: random.Random, kind: int) -> bytes:
    words = source.choice((2, 2, 3, 4, 6, 6, 7, source.randrange(16)))
    options = source.randbytes(4 * max(0, words - 2))
    if source.random() < 0.5:
        options = bytes(len(options))  # numbers that are equal though not of one length
    fields = bytes([words, kind]) + source.randbytes(4) + options
    return fields[:2] + _internet_checksum(fields).to_bytes(2) + fields[2:]


def _internet_checksum(data: bytes) -> int:
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[i : i + 2]) for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def varbit_packet(source: random.Random) -> Packet:
    """For varbit.p4: each way through the parser, with lengths that do and do not fit."""
    ether_type = source.choice((0x0800, 0x0800, 0x1000, 0x2000))
    data = source.randbytes(5) + bytes([source.randrange(8)]) + source.randbytes(6)
    data += ether_type.to_bytes(2)
    follow = {0x1000: 1, 0x2000: 2}.get(ether_type, 0)
    if ether_type == 0x0800:
        follow = source.choice((1, 2, 4, 4, 9))
        data += _varbit_ip(source, follow)
        if follow == 4:
            data += _varbit_ip(source, 0)
    if follow == 1:
        for number in range(source.randrange(1, 5)):
            length = source.choice((0, 1, 2, 2, 6, 6, 7))
            data += bytes([length << 1 | (number > 0 and source.random() < 0.4)])
            data += source.choice((bytes(length), source.randbytes(length)))
            data += bytes([source.choice((0x80, 0, source.randrange(256)))])
    if follow in (1, 2):
        bits = source.choice((0, 8, 16, 64, 64, 72, 12, source.randrange(4096)))
        data += (bits << 4 | source.randrange(16)).to_bytes(2) + source.randbytes(bits // 8 + 1)
    if source.random() < 0.5:
        data += source.randbytes(source.randrange(30))
    return source.randrange(1, 5), mutated(source, data)


# ---- entries -------------------------------------------------------------------------------------


def nothing(client: RawClient) -> list[Any]:
    """No entries."""
    del client
    return []


def _replicas(pairs: Sequence[tuple[int, int]]) -> list[Any]:
    return [p4r.Replica(port=port.to_bytes(2).lstrip(b"\0"), instance=rid) for port, rid in pairs]


def session(number: int, *pairs: tuple[int, int]) -> Any:
    session = p4r.CloneSessionEntry(session_id=number, replicas=_replicas(pairs))
    engine = p4r.PacketReplicationEngineEntry(clone_session_entry=session)
    return update(INSERT, packet_replication_engine_entry=engine)


def multicast(number: int, *pairs: tuple[int, int]) -> Any:
    group = p4r.MulticastGroupEntry(multicast_group_id=number, replicas=_replicas(pairs))
    engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
    return update(INSERT, packet_replication_engine_entry=engine)


def clone_updates(client: RawClient) -> list[Any]:
    """Sessions with one and two ports; 99 is missing. (BMv2 refuses to truncate clones.)"""
    del client
    return [
        session(5, (3, 1)),
        session(6, (4, 7)),
        session(7, (1, 2), (2, 3)),
    ]


def multicast_updates(client: RawClient) -> list[Any]:
    """Groups of one to three copies; 4 to 7 are missing.

    No port is in a group twice: PI takes the replicas out of a hash in no given order.
    """
    del client
    return [
        multicast(1, (1, 1), (2, 2), (3, 3)),
        multicast(2, (4, 2), (3, 5)),
        multicast(3, (2, 0)),
    ]


def match_updates(client: RawClient) -> list[Any]:
    """Overlapping prefixes, masks and ranges. No two that match alike have the same priority."""
    source = random.Random(17)
    updates = []
    seen = set()
    for length in (0, 1, 7, 8, 64, 65, 100, 127, 128, 32, 96):
        for a in (0, 1, 2, 0xFF):
            value = edge(source, 128) >> (128 - length) << (128 - length)
            if (value, length, a) in seen:
                continue
            seen.add((value, length, a))
            match: dict[str, Any] = {"h.probe.a": a}
            if length:
                match["h.probe.e"] = (value, length)
            action = ("set", length * 7) if a != 2 else ("drop",)
            updates.append(client.insert("by_lpm", match, *action))
    for priority in range(1, 60):
        match = {"h.probe.x": priority % 8}
        for key, bits in (("h.probe.c", 32), ("h.probe.y", 13)):
            mask = source.choice((0, 1, 0xFF, (1 << bits) - 1, source.getrandbits(bits)))
            if mask:
                match[key] = (edge(source, bits) & mask, mask)
        action = ("add", priority) if priority % 7 else ("drop",)
        updates.append(client.insert("by_ternary", match, *action, priority=priority))
    for priority in range(1, 40):
        match = {}
        for key, bits in (("h.probe.d", 64), ("h.probe.y", 13)):
            low, high = sorted((edge(source, bits), edge(source, bits)))
            if (low, high) != (0, (1 << bits) - 1):
                match[key] = (low, high)
        if mask := source.choice((0, 0x0F, 0xFF)):
            match["h.probe.a"] = (edge(source, 8) & mask, mask)
        updates.append(client.insert("by_range", match, "add", priority * 100, priority=priority))
    return updates


def handed_updates(client: RawClient) -> list[Any]:
    """Entries whose keys have bits outside of what the program looks at; a group to spread to."""
    source = random.Random(23)
    updates: list[Any] = [multicast(1, (1, 1), (3, 2))]
    actions = (("refuse",), ("send",), ("spread", 1), ("spread", 2))
    seen = set()
    for number in range(24):
        c, x = edge(source, 32), number % 8
        if (c & 0x00FF00F0, x) not in seen:
            seen.add((c & 0x00FF00F0, x))
            match: dict[str, Any] = {"h.probe.c & 0xff00f0": c, "h.probe.x": x}
            updates.append(client.insert("exactly", match, *actions[number % 4]))
        match = {}
        for key, bits in (("h.probe.c & 0xff00ff0", 32), ("h.probe.y & 0x1fe", 13)):
            mask = source.choice((0, 0xFF0, (1 << bits) - 1, source.getrandbits(bits)))
            if mask := mask & (1 << bits) - 1:
                match[key] = (edge(source, bits) & mask, mask)
        action = ("refuse",) if number % 3 else ("send",)
        updates.append(client.insert("masked", match, *action, priority=number + 1))
    return updates


def control_updates(client: RawClient) -> list[Any]:
    """An entry for each action."""
    return [
        client.insert("choose", {"h.probe.op": 0}, "one", 5),
        client.insert("choose", {"h.probe.op": 1}, "two"),
        client.insert("choose", {"h.probe.op": 2}, "three"),
        client.insert("choose", {"h.probe.op": 3}, "none"),
        client.insert("again", {"h.probe.a": 0}, "one", 7),
        client.insert("again", {"h.probe.a": 0xFF}, "NoAction"),
    ]


def _member(client: RawClient, profile: str, number: int, *action: Any) -> Any:
    member = p4r.ActionProfileMember(
        action_profile_id=client.id("action_profiles", profile),
        member_id=number,
        action=client.action(*action),
    )
    return update(INSERT, action_profile_member=member)


def selector_updates(client: RawClient) -> list[Any]:
    """Members in no order of their ids, groups with weights, entries of each kind."""
    updates = [_member(client, "marks", n, "mark", n * 3) for n in (4, 2, 9)]
    updates.append(_member(client, "marks", 5, "NoAction"))
    for op, number in enumerate((2, 4, 5, 9)):
        entry = client.entry("marking", {"h.probe.op": op})
        entry.action.action_profile_member_id = number
        updates.append(update(INSERT, table_entry=entry))
    for number in (7, 3, 11, 5, 2):
        updates.append(_member(client, "choices", number, "to", number % 4 + 1, number << 100))
    updates.append(_member(client, "choices", 20, "drop"))
    profile = client.id("action_profiles", "choices")
    groups = {
        1: [(3, 1)],
        2: [(11, 1), (3, 1), (7, 1)],
        3: [(2, 1), (5, 3), (20, 2)],
        4: [(2, 2), (3, 1), (5, 5), (7, 2)],
        5: [(11, 3), (3, 4), (7, 2)],
    }
    for number, members in groups.items():
        group = p4r.ActionProfileGroup(action_profile_id=profile, group_id=number, max_size=16)
        for member, weight in members:
            group.members.append(p4r.ActionProfileGroup.Member(member_id=member, weight=weight))
        updates.append(update(INSERT, action_profile_group=group))
        entry = client.entry("choosing", {"h.probe.x": number})
        entry.action.action_profile_group_id = number
        updates.append(update(INSERT, table_entry=entry))
    entry = client.entry("choosing", {"h.probe.x": 6})
    entry.action.action_profile_member_id = 11
    updates.append(update(INSERT, table_entry=entry))
    return updates


def one_shot_updates(client: RawClient) -> list[Any]:
    """Action sets with weights; some are deleted in between, so that handles are taken again."""

    def entry(number: int, actions: Sequence[tuple[int, int]]) -> Any:
        made = client.entry("choosing", {"h.probe.x": number})
        chosen = made.action.action_profile_action_set
        for port, weight in actions:
            one = chosen.action_profile_actions.add(weight=weight)
            one.action.CopyFrom(client.action("to", port, number << 64 | port << 8 | weight))
        return made

    sets = {
        0: [(1, 1)],
        1: [(4, 2), (1, 1), (3, 1)],
        2: [(3, 3), (2, 1)],
        3: [(1, 1), (2, 4), (3, 1), (4, 2)],
        4: [(4, 5), (3, 5)],
        5: [(2, 1), (2, 2), (1, 1)],
    }
    entries = {number: entry(number, actions) for number, actions in sets.items()}
    updates = [update(INSERT, table_entry=entries[number]) for number in (0, 1, 2, 3)]
    updates += [update(DELETE, table_entry=entries[number]) for number in (1, 0)]
    return updates + [update(INSERT, table_entry=entries[number]) for number in (4, 1, 5)]


def un_updates(client: RawClient) -> list[Any]:
    """The switch's own micro-SID, and neighbours behind every port."""
    routes = [
        client.insert(
            "routes",
            {"locator_node": UN_BLOCK << 16 | sid},
            *("forward", sid, 0x0200_0000_0000 + sid, 0x0200_0000_0100 + sid),
        )
        for sid in range(1, 5)
    ]
    return [client.insert("my_sid", {"locator_node": UN_BLOCK << 16 | UN_SID}, "un"), *routes]


def _meter(client: RawClient, name: str, index: int, *rates: int) -> Any:
    entry = p4r.MeterEntry(
        meter_id=client.id("meters", name), index=p4r.Index(index=index), config=_rates(*rates)
    )
    return update(MODIFY, meter_entry=entry)


def _rates(cir: int, cburst: int, pir: int, pburst: int) -> Any:
    return p4r.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst)


def meter_updates(client: RawClient) -> list[Any]:
    """Meters whose colors do not depend on time: rates of 0, or more than packets can use up."""
    most = (1 << 32) - 1
    huge = (1 << 40, most, 1 << 40, most)
    updates = []
    for index in range(1, 7):  # 0 and 7 stay as they are
        updates.append(_meter(client, "by_packets", index, 0, index, 0, 3 * index))
        updates.append(_meter(client, "by_bytes", index, 0, 300 * index, 0, 1000 * index))
    updates += [
        _meter(client, "by_packets", 5, *huge),
        _meter(client, "by_bytes", 5, 0, 0, *huge[2:]),
        _meter(client, "leaving", 1, 0, 2, *huge[2:]),
        _meter(client, "leaving", 2, 0, 0, 0, 0),
        _meter(client, "leaving", 3, 0, 5, 0, 5),
    ]
    for x, rates in enumerate(((0, 2, 0, 8), huge, None, (0, 0, *huge[2:]), (0, 6, 0, 6))):
        action = ("add", x) if x % 2 else ("report",)
        entry = client.insert("direct", {"h.probe.x": x}, *action)
        if rates:
            entry.entity.table_entry.meter_config.CopyFrom(_rates(*rates))
        updates.append(entry)
    updates.append(_member(client, "targets", 1, "profiled", 77))
    for priority, (mask, rates) in enumerate(
        ((0x1001, (0, 400, 0, 2000)), (0x0006, huge), (0x0010, None)), start=1
    ):
        entry = client.entry("indirect", {"h.probe.y": (mask, mask)}, priority=priority)
        entry.action.action_profile_member_id = 1
        if rates:
            entry.meter_config.CopyFrom(_rates(*rates))
        updates.append(update(INSERT, table_entry=entry))
    return updates


def idle_updates(client: RawClient) -> list[Any]:
    """Entries that time out, at some time, and some that do not."""
    hour = 3600 * 10**9
    updates = []
    for op in range(8):
        for a in (0, 1, 2, 0xFF):
            match = {"h.probe.op": op, "h.probe.a": a}
            updates.append(client.insert("flows", match, "mark", op + a, idle_timeout_ns=op * hour))
    for x in (1, 5):
        updates.append(client.insert("fixed_time", {"h.probe.x": x}, "set", x))
    for priority, bits in enumerate((1, 2, 4, 0x1000), start=1):
        keys = {"h.probe.y": (bits, bits), "h.probe.d": (priority % 3, 1 << 63)}
        fields = {"priority": priority, "idle_timeout_ns": priority % 2 * hour}
        updates.append(client.insert("classes", keys, "set", 100 + bits, **fields))
    return updates


def _feature(
    name: str, updates: Callable[[RawClient], Sequence[Any]] = nothing, ops: int = 8
) -> Scenario:
    return Scenario(name, updates, lambda source: probe(source, ops))


FEATURES = (
    Scenario("parser", nothing, parser_packet),
    _feature("valueset"),
    Scenario("unions", nothing, unions_packet),
    Scenario("varbit", nothing, varbit_packet),
    _feature("match", match_updates, 24),
    _feature("selector", selector_updates),
    Scenario("one_shot", one_shot_updates, probe, program="selector"),
    _feature("state", nothing, 20),
    _feature("meters", meter_updates),
    _feature("idle", idle_updates),
    _feature("hashes"),
    _feature("clone", clone_updates),
    _feature("multicast", multicast_updates),
    _feature("loops"),
    _feature("checksum", nothing, 4),
    _feature("arithmetic", nothing, 16),
    _feature("control", control_updates),
    _feature("handed", handed_updates),
    _feature("intrinsic"),
    Scenario("un", un_updates, un_packet),
)
