# SPDX-License-Identifier: Apache-2.0
"""A session of p4runtime-shell 0.0.6, run by the interpreter of its own virtual environment.

shell_session.py ADDRESS DEVICE_ID P4INFO PROGRAM: pushes `tests/softswitch/data/entities` and uses
every kind of object that the shell knows. Ports 1 and 2 of the switch must be wired to each other.
Prints one line per step; anything unexpected ends it with an exception.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

sh: Any = importlib.import_module("p4runtime_sh.shell")
client: Any = importlib.import_module("p4runtime_sh.p4runtime")

FRAME_TO_CPU = bytes.fromhex("0200000000050200000000060900") + b"payload".ljust(50, b"\0")


def check(what: str, got: object, expected: object) -> None:
    """Print the step, or fail with both values."""
    if got != expected:
        raise AssertionError(f"{what}: got {got!r}, expected {expected!r}")
    print(f"ok: {what}")


def exact_entry(mac: str, action: str) -> Any:
    """A TableEntry object of the shell for `exact_table`."""
    entry = sh.TableEntry("exact_table")(action=action)
    entry.match["dst_mac"] = mac
    return entry


def read_all(entry: Any) -> list[Any]:
    """Everything that a wildcard read gives."""
    found: list[Any] = []
    entry.read(found.append)
    return found


def short(entity: Any) -> Any:
    """The message of an entity with canonical byte strings; the shell may send longer ones."""
    message = entity.msg()
    copy = type(message)()
    copy.CopyFrom(message)
    _shorten(copy)
    return copy


def _shorten(message: Any) -> None:
    for field, value in message.ListFields():
        if field.type == field.TYPE_BYTES:
            setattr(message, field.name, value.lstrip(b"\0") or b"\0")
        elif field.type == field.TYPE_MESSAGE:
            for item in value if field.label == field.LABEL_REPEATED else (value,):
                _shorten(item)


def table_entries() -> None:
    """Insert, read, modify, delete; errors; default entries; all match kinds."""
    entry = exact_entry("02:00:00:00:00:01", "forward")
    entry.action["port"] = "1"
    entry.action["dst_mac"] = "02:00:00:00:00:02"
    entry.insert()
    (found,) = read_all(sh.TableEntry("exact_table"))
    check("inserted entry", short(found), short(entry))

    entry.action["port"] = "7"
    entry.modify()
    (found,) = read_all(sh.TableEntry("exact_table"))
    check("modified entry", short(found), short(entry))

    try:
        entry.insert()
    except client.P4RuntimeWriteException as error:
        check("second insert", "ALREADY_EXISTS" in str(error), True)
    else:
        raise AssertionError("the second insert succeeded")
    entry.delete()
    check("deleted entry", read_all(sh.TableEntry("exact_table")), [])

    prefix = sh.TableEntry("lpm_table")(action="drop")
    prefix.match["src_mac"] = "0xab0000000000/8"
    prefix.insert()
    acl = sh.TableEntry("acl")(action="NoAction", priority=5)
    acl.match["dst_mac"] = "0x0100&&&0xff00"
    acl.match["ether_type"] = "5..9"
    acl.match["port"] = "3"
    acl.insert()
    (found,) = read_all(sh.TableEntry("acl"))
    check("ternary, range and optional match", short(found), short(acl))
    acl.delete()
    prefix.delete()
    check("const entries", len(read_all(sh.TableEntry("const_table"))), 2)

    default = sh.TableEntry("lpm_table")(action="NoAction", is_default=True)
    default.modify()
    reset = sh.TableEntry("lpm_table")(is_default=True)
    reset.modify()


def action_profiles() -> None:
    """Members, groups, one-shot sets."""
    member = sh.ActionProfileMember("selector")(member_id=1, action="forward")
    member.action["port"] = "2"
    member.action["dst_mac"] = "2"
    member.insert()
    group = sh.ActionProfileGroup("selector")(group_id=1)
    group.add(1, 3)
    group.insert()
    entry = sh.TableEntry("ecmp")
    entry.match["ether_type"] = "0x0800"
    entry.group_id = 1
    entry.insert()
    check("group", short(read_all(sh.ActionProfileGroup("selector"))[0]), short(group))
    entry.delete()
    group.delete()
    member.delete()

    entry = sh.TableEntry("ecmp")
    entry.match["ether_type"] = "0x0800"
    action = sh.Action("forward")
    action["port"] = "2"
    action["dst_mac"] = "2"
    entry.oneshot.add(action, weight=2)
    entry.insert()
    check("one-shot", short(read_all(sh.TableEntry("ecmp"))[0]), short(entry))
    entry.delete()


def replication() -> None:
    """Multicast groups and clone sessions."""
    group = sh.MulticastGroupEntry(1)
    group.add(1, 1).add(2, 2)
    group.insert()
    check("multicast group", read_all(sh.MulticastGroupEntry(1))[0].msg(), group.msg())
    group.delete()
    session = sh.CloneSessionEntry(5)
    session.add(510, 1)
    session.insert()
    session.delete()


def packets_and_counters() -> None:
    """A packet-out on port 1 comes in on port 2, is counted and comes back as packet-in."""
    entry = exact_entry("02:00:00:00:00:05", "to_cpu")
    entry.insert()
    arriving = sh.PacketIn()
    packet = sh.PacketOut(payload=FRAME_TO_CPU)
    packet.metadata["egress_port"] = "1"
    packet.send()
    message = arriving.packet_in_queue.get(timeout=10)
    check("packet-in", message.packet.payload, FRAME_TO_CPU)
    check("its ingress port", message.packet.metadata[0].value, b"\x02")

    (found,) = read_all(_counted())
    check("direct counter", found.counter_data.packet_count, 1)
    direct = sh.DirectCounterEntry("exact_counter")
    direct.table_entry.match["dst_mac"] = "02:00:00:00:00:05"
    direct.read()
    cell = sh.CounterEntry("port_in")
    cell.index = 2
    (found,) = read_all(cell)
    check("indirect counter", found.packet_count, 1)
    cell.packet_count = 0
    cell.byte_count = 0
    cell.modify()
    entry.delete()


def _counted() -> Any:
    entry = sh.TableEntry("exact_table")
    entry.counter_data  # noqa: B018  (touching it asks for counters in the read)
    return entry


def main() -> None:
    """Run the session."""
    address, device_id, p4info, program = sys.argv[1:]
    sh.setup(
        device_id=int(device_id),
        grpc_addr=address,
        election_id=(0, 1),
        config=sh.FwdPipeConfig(p4info, program),
        verbose=False,
    )
    try:
        print(f"ok: P4Runtime {sh.APIVersion()}")
        table_entries()
        action_profiles()
        replication()
        packets_and_counters()
    finally:
        sh.teardown()


if __name__ == "__main__":
    main()
