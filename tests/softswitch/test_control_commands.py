# SPDX-License-Identifier: Apache-2.0
"""Commands on a data plane without ports: what they answer, and what packets then meet."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softswitch.control.catalogue import COMMANDS, NOT_HERE
from softswitch.control.context import Context
from softswitch.control.local import adopt
from softswitch.control.server import HANDLERS, execute
from softswitch.control.words import CommandError
from softswitch.dataplane import Dataplane
from softswitch.errors import DataplaneError
from softswitch.server import P4RuntimeServer
from softswitch.status import Failure
from softswitch.values import DataplaneOptions
from tests.softswitch import dataplanes
from tests.softswitch.dataplanes import field, probe
from tests.softswitch.p4rt import CPU_PORT, DATA, DEVICE_ID

Switch = Callable[[bytes], Context]


@pytest.fixture
def switch() -> Iterator[Switch]:
    """Makes a switch with a program that no controller gave."""
    dataplane = Dataplane(
        DataplaneOptions(device_id=DEVICE_ID, cpu_port=CPU_PORT, priority_queues=2)
    )

    def make(program: bytes) -> Context:
        dataplane.load(program)
        server = P4RuntimeServer(dataplane, DEVICE_ID)
        adopt(dataplane, server.pipeline, program)
        return Context(dataplane, server.pipeline, "127.0.0.1:1")

    try:
        yield make
    finally:
        dataplane.close()


@pytest.fixture
def entities(switch: Switch) -> Context:
    """A switch with a program that has every kind of entity."""
    return switch((DATA / "entities.json").read_bytes())


def say(context: Context, *lines: str) -> str:
    """The text that the last of some commands answers."""
    return [execute(context, line.split()).text for line in lines][-1]


def data(context: Context, line: str) -> Any:
    """The same for programs."""
    return execute(context, line.split()).data


def refused(context: Context, line: str) -> str:
    with pytest.raises((CommandError, DataplaneError, Failure)) as error:
        execute(context, line.split())
    return str(error.value)


def frame(dst: int, src: int = 0, ether_type: int = 0x1234) -> bytes:
    return dst.to_bytes(6) + src.to_bytes(6) + ether_type.to_bytes(2) + bytes(50)


def leaving_a(context: Context, e: int) -> int:
    """Field `a` of the packet that leaves when a probe with this `e`, and `a` 7, arrives."""
    ((_, packet),) = context.dataplane.process(1, probe(a=7, e=e))
    return field(packet, "a")


def test_every_command_has_help_and_a_handler() -> None:
    assert set(HANDLERS) == set(COMMANDS)
    assert not set(NOT_HERE) & set(COMMANDS)
    assert all(usage.help.endswith(".") for usage in COMMANDS.values())


# --- tables -------------------------------------------------------------------------------------


def test_table_dump(entities: Context) -> None:
    say(
        entities,
        "table_add exact_table forward 00:00:00:00:00:01 => 3 0x0a",
        "table_add lpm_table EntitiesIngress.drop 0a:00:00:00:00:01/8 =>",
        "table_set_default lpm_table forward 1 0x10",
    )
    entities.dataplane.process(1, frame(1, src=0x0A0000000000))
    assert say(entities, "table_dump exact_table") == (
        "EntitiesIngress.exact_table: 1 of 1024 entries\n"
        "entry 0\n"
        "  dst_mac  exact  0x000000000001 (00:00:00:00:00:01)\n"
        "  => EntitiesIngress.forward(port=0x003 (3), dst_mac=0x00000000000a (00:00:00:00:00:0a))\n"
        "  1 packets, 64 bytes\n"
        "default\n"
        "  => NoAction()\n"
        "  0 packets, 0 bytes"
    )
    assert say(entities, "table_dump lpm_table") == (
        "EntitiesIngress.lpm_table: 1 of 4 entries\n"
        "entry 0\n"
        "  src_mac  lpm  0x0a0000000000/8 (0a:00:00:00:00:00/8)\n"
        "  => EntitiesIngress.drop()\n"
        "  1 packets, 64 bytes\n"
        "default\n"
        "  => EntitiesIngress.forward(port=0x001 (1), dst_mac=0x000000000010 (00:00:00:00:00:10))\n"
        "  0 packets, 0 bytes"
    )
    assert data(entities, "table_dump_entry lpm_table 0") == {
        "handle": 0,
        "key": [
            {
                "name": "src_mac",
                "match": "lpm",
                "width": 48,
                "value": "0x0a0000000000",
                "prefix_len": 8,
            }
        ],
        "action": {"action": "EntitiesIngress.drop", "params": []},
        "packets": 1,
        "bytes": 64,
    }


def test_ternary_and_range_with_priority(entities: Context) -> None:
    """The lowest number wins, as in simple_switch_CLI, which is P4Runtime's highest."""
    say(
        entities,
        "table_set_default lpm_table forward 2 0x10",
        "table_add acl drop 0x10&&&0xf0 100->0x200 1&&&0x1ff => 20",
        "table_add acl NoAction 0&&&0 0->65535 0&&&0 => 10",
    )
    assert say(entities, "table_dump_entry acl 0") == (
        "entry 0\n"
        "  dst_mac     ternary  0x000000000010&&&0x0000000000f0\n"
        "  ether_type  range    0x0064->0x0200 (100->512)\n"
        "  port        ternary  0x001&&&0x1ff\n"
        "  => EntitiesIngress.drop()\n"
        "  priority 20 (P4Runtime's 2147483627)"
    )
    packet = frame(0x10, ether_type=0x100)
    assert entities.dataplane.process(1, packet) != []  # the other entry wins
    text = say(entities, "table_dump_entry_from_key acl 0&&&0 0->0xffff 0&&&0 10")
    assert "  => NoAction()\n" in text
    assert say(entities, "table_delete_match acl 0&&&0 0->0xffff 0&&&0 10") == (
        "entry 1 of EntitiesIngress.acl deleted"
    )
    assert entities.dataplane.process(1, packet) == []


def test_life_of_an_entry(entities: Context) -> None:
    add = "table_add two_keys forward 1 0x0800 => 7 9"
    assert say(entities, add) == "entry 0 of EntitiesIngress.two_keys added"
    assert "has an entry with this match" in refused(entities, add)
    assert say(entities, "table_num_entries two_keys") == "1"
    say(entities, "table_modify two_keys forward 0 => 8 9")
    assert data(entities, "table_dump_entry two_keys 0")["action"]["params"][0]["value"] == "0x008"
    say(entities, "table_modify two_keys drop 0")
    assert say(entities, "table_delete two_keys 0") == "entry 0 of EntitiesIngress.two_keys deleted"
    assert refused(entities, "table_delete two_keys 0") == (
        "table EntitiesIngress.two_keys has no entry with handle 0"
    )
    say(entities, add, "table_add two_keys drop 2 2 =>")
    assert say(entities, "table_clear two_keys") == "2 entries of EntitiesIngress.two_keys deleted"


def test_table_info(entities: Context) -> None:
    assert say(entities, "table_info two_keys") == (
        "EntitiesIngress.two_keys: 0 of 64 entries\n"
        "  key     port                     exact               9 bits\n"
        "  key     ether_type               exact               16 bits\n"
        "  action  EntitiesIngress.drop\n"
        "  action  EntitiesIngress.forward  port/9, dst_mac/48\n"
        "  action  NoAction"
    )
    assert say(entities, "table_show_actions lpm_table") == (
        "EntitiesIngress.drop\nEntitiesIngress.forward  port/9, dst_mac/48\nNoAction"
    )
    line = next(t for t in say(entities, "show_tables").splitlines() if ".const_table" in t)
    assert line.split() == ["EntitiesIngress.const_table", "2", "2", "ether_type", "exact/16"]
    assert say(entities, "table_info ecmp").startswith(
        "EntitiesIngress.ecmp: 0 of 32 entries, action profile EntitiesIngress.selector\n"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("table_dump nowhere", "there is no table 'nowhere'; there is: EntitiesIngress.acl, "),
        ("table_dump", "usage: table_dump TABLE"),
        ("table_add two_keys forward 1 => 1 2", "has 2 keys (port exact, ether_type exact), not 1"),
        ("table_add two_keys forward 1 2 3 4", "no => between key and parameters"),
        ("table_add two_keys forward 512 2 => 1 2", "key port: 512 does not fit in 9 bits"),
        ("table_add two_keys forward 1 2 => 1", "has 2 parameters (port (9 bits), dst_mac (48"),
        (
            "table_add two_keys flood 1 2 => 1",
            "there is no action 'flood' of table EntitiesIngress.two_keys; there is: ",
        ),
        ("table_add lpm_table drop 1 =>", "'1' is not VALUE/LENGTH"),
        ("table_add lpm_table drop 1/49 =>", "prefix length '49'; allowed: 0 to 48"),
        ("table_add acl drop 1&&& 1->2 0&&&0 => 1", "'1&&&' is not VALUE&&&MASK"),
        ("table_add acl drop 1&&&1 2->1 0&&&0 => 1", "low 2 is above high 1"),
        ("table_add acl drop 1&&&1 1->2 0&&&0 =>", "PRIORITY is missing"),
        ("table_add const_table drop 5 =>", "is constant (const entries)"),
        ("table_set_default exact_table to_cpu", "is constant (const default_action)"),
        ("table_add ecmp drop 5 =>", "has an action profile, so its entries need a member"),
        ("table_delete const_table 0", "this entry is constant"),
        ("table_set_timeout two_keys 0 5", "has no entry with handle 0"),
        ("act_prof_delete_member selector 3", "has no member 4"),
        ("act_prof_add_member_to_group selector 0 0", "selector has no group 0"),
        ("mc_node_associate 0 0", "multicast group '0'; allowed: 1 to 65535"),
        ("mirroring_get 0", "session '0'; allowed: 1 to 32767"),
        ("mc_node_associate 1 0", "there is no node 0; mc_node_create makes one"),
        ("mc_mgrp_create 65536", "multicast group '65536'; allowed: 1 to 65535"),
        ("mc_mgrp_destroy 3", "there is no multicast group 3"),
        ("mc_node_create 1 2 | 3", "there are no link aggregation groups"),
        ("mirroring_get 5", "there is no clone session 5"),
        ("counter_read port_in 512", "index '512'; allowed: 0 to 511"),
        ("counter_read exact_counter 0", "has no entry with handle 0"),
        ("register_write cells 0 0x1000000000000", "does not fit in 48 bits"),
        ("meter_get_rates m 0", "there is no meter 'm'; there is: none"),
        ("pvs_get s", "there is no value set 's'; there is: none"),
        ("set_queue_depth 0", "queue depth 0; allowed: 1 to 1048576"),
        ("set_queue_rate 5 1 2", "priority 2; allowed: 0 to 1"),
        ("port_add lo 510", "port 510 is the CPU port"),
        ("port_add nonesuch 1", "port 1, interface nonesuch"),
        ("port_remove 9", "port 9"),
        ("mirroring_add_mc 1 1", "there is no command 'mirroring_add_mc': a clone session has"),
        ("frobnicate", "there is no command 'frobnicate': help lists the commands"),
    ],
)
def test_errors(entities: Context, line: str, message: str) -> None:
    assert message in refused(entities, line)


def test_no_program(switch: Switch) -> None:
    context = switch((DATA / "entities.json").read_bytes())
    context.pipeline.running = None
    assert refused(context, "show_tables") == (
        "the switch has no program yet; a controller can load one"
    )
    assert data(context, "switch_info")["program"] is None


# --- action profiles and replication ------------------------------------------------------------


def test_action_profile(entities: Context) -> None:
    say(
        entities,
        "act_prof_create_member selector forward 1 0",
        "act_prof_create_member selector forward 2 0",
        "act_prof_create_group selector",
        "act_prof_add_member_to_group selector 0 0",
        "act_prof_add_member_to_group selector 1 0 3",
        "table_indirect_add_with_group ecmp 0x0800 => 0",
        "table_indirect_add ecmp 0x0801 => 1",
        "act_prof_modify_member selector forward 0 5 0",
    )
    assert say(entities, "act_prof_dump selector") == (
        "EntitiesIngress.selector: 2 of 64 members\n"
        "member 0\n"
        "  => EntitiesIngress.forward(port=0x005 (5), dst_mac=0x000000000000 (00:00:00:00:00:00))\n"
        "member 1\n"
        "  => EntitiesIngress.forward(port=0x002 (2), dst_mac=0x000000000000 (00:00:00:00:00:00))\n"
        "group 0\n"
        "  member 0, member 1 weight 3"
    )
    assert "=> group 0\n" in say(entities, "table_dump ecmp")
    assert "=> member 1\n" in say(entities, "table_dump ecmp")
    ports = {
        port
        for src in range(64)
        for port, _ in entities.dataplane.process(0, frame(1, src=src, ether_type=0x0800))
    }
    assert ports == {2, 5}
    assert "in 1 table entries" in refused(entities, "act_prof_delete_group selector 0")
    say(
        entities,
        "act_prof_remove_member_from_group selector 0 0",
        "table_indirect_delete ecmp 0",
        "act_prof_delete_group selector 0",
        "act_prof_delete_member selector 0",
    )
    assert say(entities, "act_prof_create_member selector drop").startswith("member 0 of")


def test_multicast(entities: Context) -> None:
    say(
        entities,
        "mc_mgrp_create 3",
        "mc_node_create 7 1 2",
        "mc_node_create 8 4",
        "mc_node_associate 3 0",
        "table_add exact_table flood 1 => 3",
    )
    assert [port for port, _ in entities.dataplane.process(0, frame(1))] == [1, 2]
    say(entities, "mc_node_associate 3 1", "mc_node_update 0 2", "mirroring_add 5 9 10")
    assert [port for port, _ in entities.dataplane.process(0, frame(1))] == [4, 2]
    assert say(entities, "mc_dump") == (
        "multicast group 3: port 4 rid 8, port 2 rid 7\n"
        "node 0 in group 3: port 2 rid 7\n"
        "node 1 in group 3: port 4 rid 8\n"
        "clone session 5: port 9 rid 0, port 10 rid 0"
    )
    say(entities, "mc_node_dissociate 3 0", "mc_node_destroy 1")
    assert entities.dataplane.process(0, frame(1)) == []
    assert data(entities, "mc_dump")["groups"] == [{"group": 3, "replicas": []}]
    say(entities, "mc_mgrp_destroy 3", "mirroring_add 5 11")
    assert say(entities, "mirroring_get 5") == "clone session 5: port 11 rid 0"
    say(entities, "mirroring_delete 5", "mc_node_destroy 0")
    assert say(entities, "mc_dump") == "no groups, nodes or sessions"


# --- arrays -------------------------------------------------------------------------------------


def test_counters(entities: Context) -> None:
    say(entities, "table_add exact_table drop 1 =>")
    for _ in range(3):
        entities.dataplane.process(2, frame(1))
    assert say(entities, "counter_read port_in") == (
        "EntitiesIngress.port_in[2] = 3 packets, 192 bytes"
    )
    assert data(entities, "counter_read exact_counter") == [
        {"index": 0, "packets": 3, "bytes": 192}
    ]
    say(entities, "counter_write exact_counter 0 5 6", "counter_write port_in 511 7 8")
    assert "5 packets, 6 bytes" in say(entities, "table_dump_entry exact_table 0")
    assert say(entities, "counter_read port_in 511") == (
        "EntitiesIngress.port_in[511] = 7 packets, 8 bytes"
    )
    say(entities, "counter_reset exact_counter", "counter_reset port_in")
    assert say(entities, "counter_read exact_counter") == (
        "EntitiesIngress.exact_counter: all cells are 0"
    )
    assert say(entities, "counter_read port_in") == "EntitiesIngress.port_in: all cells are 0"
    assert say(entities, "show_counters") == (
        "EntitiesIngress.exact_counter  direct, of table EntitiesIngress.exact_table\n"
        "EntitiesIngress.lpm_counter    direct, of table EntitiesIngress.lpm_table\n"
        "EntitiesIngress.port_in        512 cells"
    )


def test_registers(entities: Context) -> None:
    say(entities, "register_write cells 2 0xff")
    entities.dataplane.process(2, frame(1))
    assert say(entities, "register_read cells 2") == "EntitiesIngress.cells[2] = 256"
    assert say(entities, "register_read cells") == (
        "EntitiesIngress.cells = 0, 0, 256, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0"
    )
    assert data(entities, "register_read cells")[2] == "0x000000000100"
    say(entities, "register_reset cells")
    assert data(entities, "register_read cells 2") == {"index": 2, "value": 0}
    assert say(entities, "show_registers") == "EntitiesIngress.cells  16 cells  48 bits"


def test_meters(switch: Switch) -> None:
    context = switch(dataplanes.program("meters"))
    context.dataplane.set_clock(1)
    assert say(context, "meter_set_rates by_packets 3 0.000001:1 0.000002:2") == (
        "ingress.by_packets[3] set"
    )
    for _ in range(4):
        context.dataplane.process(0, probe(op=3))
    assert say(context, "meter_get_rates by_packets 3") == (
        "ingress.by_packets[3]: committed 1e-06:1, peak 2e-06:2 (per microsecond)\n"
        "  green: 1 packets, 51 bytes\n"
        "  yellow: 1 packets, 51 bytes\n"
        "  red: 2 packets, 102 bytes"
    )
    assert say(context, "meter_get_rates by_packets 0").startswith(
        "ingress.by_packets[0]: no rates, all packets are green\n"
    )
    say(context, "meter_array_set_rates by_bytes 1:2 3:4")
    config = data(context, "meter_get_rates by_bytes 7")["config"]
    assert (config["cir"], config["cburst"], config["pir"]) == (1_000_000, 2, 3_000_000)
    assert "is below the first" in refused(context, "meter_set_rates by_bytes 0 2:1 1:1")
    assert "is not RATE:BURST" in refused(context, "meter_set_rates by_bytes 0 x:1 1:1")
    assert "direct, of table" in say(context, "show_meters")


def test_value_sets(switch: Switch) -> None:
    context = switch(dataplanes.program("valueset"))
    say(
        context, "pvs_add ops 0x2a", "pvs_add ops 42", "pvs_add ops 7", "pvs_add mixed 0xffffffffff"
    )
    assert say(context, "pvs_get ops") == "0x2a (42)\n0x07 (7)"
    assert say(context, "pvs_get mixed") == "0xffff (65535)  0x1fff (8191)  0x7 (7)  0xff (255)"
    assert "does not fit in 8 bits" in refused(context, "pvs_add ops 256")
    say(context, "pvs_remove ops 7")
    assert "7 is not in" in refused(context, "pvs_remove ops 7")
    assert "parse.ops    1 of 4 values" in say(context, "show_pvs").replace("parse.parse", "parse")
    assert say(context, "pvs_clear ops", "pvs_get ops").endswith("is empty")


def test_crcs(switch: Switch) -> None:
    context = switch(dataplanes.program("hashes"))
    name = next(item["name"] for item in data(context, "show_crcs") if item["bits"] == 16)
    before = context.dataplane.process(0, probe(op=4, d=5))
    say(context, f"set_crc16_parameters {name} 0x1021 ffff 0 false false")
    assert context.dataplane.process(0, probe(op=4, d=5)) != before
    assert "0x1021" in say(context, "show_crcs")
    assert "there is no custom CRC of 32 bits" in refused(
        context, f"set_crc32_parameters {name} 1 2 3 true true"
    )
    assert "neither true nor false" in refused(
        context, f"set_crc16_parameters {name} 1 2 3 yes true"
    )


# --- queues and the switch ----------------------------------------------------------------------


def test_queues(entities: Context) -> None:
    say(
        entities,
        "set_queue_depth 100",
        "set_queue_depth 10 3",
        "set_queue_depth 5 3 1",
        "set_queue_rate 1000 3",
    )
    assert say(entities, "show_queues 3") == (
        "port  priority  waiting  depth  packets/s  dropped\n"
        "3     1         0        5      1000       0\n"
        "3     0         0        10     1000       0"
    )
    assert say(entities, "set_queue_rate 0") == "all queues: rate 0 packets/s"
    assert say(entities, "show_queues") == (
        "port  priority  waiting  depth  packets/s  dropped\n"
        "510   1         0        100    no limit   0\n"
        "510   0         0        100    no limit   0"
    )
    assert say(entities, "show_ports") == "no ports"


def test_switch_info(entities: Context) -> None:
    info = data(entities, "switch_info")
    assert (info["device_id"], info["priority_queues"]) == (DEVICE_ID, 2)
    assert info["program"] == {"from": "the command line", "tables": 10, "entries": 2}
    assert info["memory_bytes"] > 1 << 20
    assert (info["events_lost"], info["recirculated_lost"]) == (0, 0)
    assert "from the command line, 10 tables, 2 entries" in say(entities, "switch_info")
    first = data(entities, "get_time_elapsed")
    assert 0 < first <= data(entities, "get_time_elapsed")


def test_reset_state(entities: Context) -> None:
    fresh = [say(entities, f"table_dump {t}") for t in ("exact_table", "lpm_table", "ecmp")]
    say(
        entities,
        "table_add exact_table drop 1 =>",
        "table_set_default lpm_table NoAction",
        "act_prof_create_member selector drop",
        "act_prof_create_group selector",
        "table_indirect_add_with_group ecmp 1 => 0",
        "mc_mgrp_create 1",
        "mc_node_create 1 1",
        "mirroring_add 1 1",
        "register_write cells 1 1",
    )
    entities.dataplane.process(1, frame(1))
    say(entities, "reset_state")
    assert fresh == [say(entities, f"table_dump {t}") for t in ("exact_table", "lpm_table", "ecmp")]
    assert say(entities, "mc_dump") == "no groups, nodes or sessions"
    assert say(entities, "counter_read port_in").endswith("all cells are 0")
    assert data(entities, "register_read cells 1")["value"] == 0
    assert data(entities, "switch_info")["program"]["entries"] == 2  # the program's own


def test_probe_program_by_script(switch: Switch) -> None:
    """Keys of all kinds in a program with 128-bit values, as scripts give them."""
    context = switch(dataplanes.program("match"))
    names = {item["name"] for item in data(context, "show_tables")}
    assert "ingress.by_lpm" in names
    action = data(context, "table_info by_lpm")["actions"][0]
    params = " ".join("1" for _ in action["params"])
    low, high = 0x20010DB8 << 96, 0x20010DB9 << 96  # inside and outside of the prefix
    assert leaving_a(context, low) == leaving_a(context, high) == 7
    say(context, f"table_add by_lpm {action['name']} 2001:db8::/32 7 => {params}")
    assert leaving_a(context, low) == 0xAA  # what the program writes on a hit
    assert leaving_a(context, high) == 7
    key = data(context, "table_dump_entry by_lpm 0")["key"]
    assert key[0]["value"] == "0x20010db8000000000000000000000000"
    assert "(2001:db8::/32)" in say(context, "table_dump by_lpm")


_WORDS = st.sampled_from(
    [
        *("exact_table", "two_keys", "lpm_table", "acl", "const_table", "ecmp", "indirect"),
        *("EntitiesIngress.acl", "tbl_entities154", "selector", "profile", "port_in", "cells"),
        *("exact_counter", "lpm_counter", "forward", "drop", "flood", "NoAction", "=>", "|"),
        *[
            "0",
            "1",
            "2",
            "5",
            "0x10",
            "-1",
            "65536",
            "18446744073709551616",
            "99999999999999999999",
        ],
        *("1/8", "0/0", "1/48", "1&&&1", "0&&&0", "1->5", "0->65535", "10.0.0.1", "::1", "a:b"),
        *("true", "1:2", "0.5:1", "nan:1", "inf:1", "1e400:1", "", "nonesuch", "\u00e9"),
    ]
)


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(COMMANDS)), st.lists(_WORDS, max_size=7)), max_size=40
    )
)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_words_are_answered_or_refused(
    entities: Context, commands: list[tuple[str, list[str]]]
) -> None:
    for name, words in commands:
        with contextlib.suppress(CommandError, DataplaneError, Failure):
            answer = execute(entities, [name, *words])
            json.dumps(answer.data)
    execute(entities, ["reset_state"])
    assert data(entities, "switch_info")["program"]["entries"] == 2
