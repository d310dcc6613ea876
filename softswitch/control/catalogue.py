# SPDX-License-Identifier: Apache-2.0
"""The commands, with what their help says. Most have the names and arguments of simple_switch_CLI.

Only text, so that `softswitch-ctl` can show it without a switch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """A command's arguments as shown, what it does, and how many words they are at least, at most.

    `most` None: any number.
    """

    arguments: str
    help: str
    least: int
    most: int | None


_KEY = "KEY..."
_PRIORITY = (
    "Tables with a ternary or range key take a PRIORITY: a number of which the lowest wins, as in "
    "simple_switch_CLI."
)
_FORMS = (
    "A KEY is VALUE, lpm VALUE/LENGTH, ternary VALUE&&&MASK, range LOW->HIGH. Values are decimal, "
    "0x, 0b or 0o numbers, IPv4 (32 bits), IPv6 (128 bits) or MAC addresses (48 bits)."
)
_IN_SHELL = "In a shell, quote => and &&&."
_CRC = "CRC POLYNOMIAL INITIAL FINAL_XOR REFLECT_DATA REFLECT_REMAINDER"
_CRC_HELP = "Parameters of a custom CRC: three in hexadecimal, then true or false twice."

COMMANDS: dict[str, Usage] = {
    # tables
    "show_tables": Usage("", "All tables: entries, size, keys.", 0, 0),
    "show_actions": Usage("", "All actions with their parameters.", 0, 0),
    "table_show_actions": Usage("TABLE", "The actions of a table.", 1, 1),
    "table_info": Usage("TABLE", "Keys, size, occupancy and actions of a table.", 1, 1),
    "table_num_entries": Usage("TABLE", "How many entries a table has.", 1, 1),
    "table_dump": Usage("TABLE", "All entries of a table and its default action.", 1, 1),
    "table_dump_entry": Usage("TABLE HANDLE", "One entry.", 2, 2),
    "table_dump_entry_from_key": Usage(
        f"TABLE {_KEY} [PRIORITY]", f"The entry with this key. {_PRIORITY}", 2, None
    ),
    "table_add": Usage(
        f"TABLE ACTION {_KEY} => [PARAMETER...] [PRIORITY]",
        f"Add an entry. {_FORMS} {_PRIORITY} {_IN_SHELL}", 3, None,
    ),
    "table_modify": Usage(
        "TABLE ACTION HANDLE [=>] [PARAMETER...]", "Give an entry another action.", 3, None
    ),
    "table_delete": Usage("TABLE HANDLE", "Delete an entry.", 2, 2),
    "table_delete_match": Usage(
        f"TABLE {_KEY} [PRIORITY]", f"Delete the entry with this key. {_PRIORITY}", 2, None
    ),
    "table_clear": Usage("TABLE", "Delete all entries of a table, but not its default.", 1, 1),
    "table_set_default": Usage(
        "TABLE ACTION [=>] [PARAMETER...]", "Set a table's default action.", 2, None
    ),
    "table_reset_default": Usage(
        "TABLE", "Give a table the default action that the program says.", 1, 1
    ),
    "table_set_timeout": Usage(
        "TABLE HANDLE MILLISECONDS",
        "Set an entry's idle time-out; 0: none. The program must ask for time-outs.", 3, 3,
    ),
    "table_indirect_add": Usage(
        f"TABLE {_KEY} => MEMBER [PRIORITY]",
        f"Add an entry that refers to a member of the table's action profile. {_PRIORITY}", 3, None,
    ),
    "table_indirect_add_with_group": Usage(
        f"TABLE {_KEY} => GROUP [PRIORITY]",
        f"Add an entry that refers to a group of the table's action profile. {_PRIORITY}", 3, None,
    ),
    "table_indirect_delete": Usage("TABLE HANDLE", "Delete an entry.", 2, 2),
    # action profiles
    "act_prof_dump": Usage(
        "PROFILE",
        "Members and groups of an action profile. Handles count from 0 as in simple_switch_CLI; "
        "P4Runtime's ids are higher by 1.", 1, 1,
    ),
    "act_prof_create_member": Usage(
        "PROFILE ACTION [=>] [PARAMETER...]", "Add a member; its handle is printed.", 2, None
    ),
    "act_prof_modify_member": Usage(
        "PROFILE ACTION MEMBER [=>] [PARAMETER...]", "Give a member another action.", 3, None
    ),
    "act_prof_delete_member": Usage("PROFILE MEMBER", "Delete a member.", 2, 2),
    "act_prof_create_group": Usage("PROFILE", "Add an empty group; its handle is printed.", 1, 1),
    "act_prof_delete_group": Usage("PROFILE GROUP", "Delete a group.", 2, 2),
    "act_prof_add_member_to_group": Usage(
        "PROFILE MEMBER GROUP [WEIGHT]", "Put a member into a group; default weight 1.", 3, 4
    ),
    "act_prof_remove_member_from_group": Usage(
        "PROFILE MEMBER GROUP", "Take a member out of a group.", 3, 3
    ),
    # counters, meters, registers
    "show_counters": Usage("", "All counters: direct ones with their tables.", 0, 0),
    "counter_read": Usage(
        "COUNTER [INDEX]",
        "One cell, or all that are not 0. The index of a direct counter is an entry's handle.",
        1, 2,
    ),
    "counter_write": Usage("COUNTER INDEX PACKETS BYTES", "Set a cell.", 4, 4),
    "counter_reset": Usage("COUNTER", "Set all cells to 0.", 1, 1),
    "show_registers": Usage("", "All register arrays.", 0, 0),
    "register_read": Usage("REGISTER [INDEX]", "One cell, or all of them.", 1, 2),
    "register_write": Usage("REGISTER INDEX VALUE", "Set a cell.", 3, 3),
    "register_reset": Usage("REGISTER", "Set all cells to 0.", 1, 1),
    "show_meters": Usage("", "All meters: direct ones with their tables.", 0, 0),
    "meter_get_rates": Usage(
        "METER INDEX", "Rates of a meter and the packets it has colored.", 2, 2
    ),
    "meter_set_rates": Usage(
        "METER INDEX RATE:BURST RATE:BURST",
        "Committed and peak rate (in packets or bytes per MICROSECOND) with their bursts (packets "
        "or bytes). The index of a direct meter is an entry's handle.", 4, 4,
    ),
    "meter_array_set_rates": Usage(
        "METER RATE:BURST RATE:BURST", "The same for all cells.", 3, 3
    ),
    # replication
    "mc_dump": Usage("", "Multicast groups, nodes that belong to none, clone sessions.", 0, 0),
    "mc_mgrp_create": Usage("GROUP", "Make an empty multicast group.", 1, 1),
    "mc_mgrp_destroy": Usage("GROUP", "Delete a multicast group.", 1, 1),
    "mc_node_create": Usage(
        "RID PORT...", "Make a node: a replication id and ports; its handle is printed.", 2, None
    ),
    "mc_node_update": Usage("NODE PORT...", "Give a node other ports.", 2, None),
    "mc_node_associate": Usage("GROUP NODE", "Put a node into a multicast group.", 2, 2),
    "mc_node_dissociate": Usage("GROUP NODE", "Take a node out of a multicast group.", 2, 2),
    "mc_node_destroy": Usage("NODE", "Delete a node, also from its group.", 1, 1),
    "mirroring_add": Usage(
        "SESSION PORT...", "Make a clone session, or give it other ports.", 2, None
    ),
    "mirroring_delete": Usage("SESSION", "Delete a clone session.", 1, 1),
    "mirroring_get": Usage("SESSION", "A clone session's ports.", 1, 1),
    # parser value sets
    "show_pvs": Usage("", "All parser value sets.", 0, 0),
    "pvs_get": Usage("SET", "The values of a set.", 1, 1),
    "pvs_add": Usage(
        "SET VALUE...",
        "Put a value into a set: one of all keys together, or one of each key.", 2, None,
    ),
    "pvs_remove": Usage("SET VALUE...", "Take a value out of a set.", 2, None),
    "pvs_clear": Usage("SET", "Empty a set.", 1, 1),
    # custom CRCs
    "show_crcs": Usage("", "All custom CRCs with their parameters.", 0, 0),
    "set_crc16_parameters": Usage(_CRC, _CRC_HELP, 6, 6),
    "set_crc32_parameters": Usage(_CRC, _CRC_HELP, 6, 6),
    # ports and queues
    "show_ports": Usage("", "Ports: interface, state, what passed and what was dropped.", 0, 0),
    "port_add": Usage("INTERFACE PORT", "Use an interface as a port.", 2, 2),
    "port_remove": Usage("PORT", "Close a port.", 1, 1),
    "show_queues": Usage(
        "[PORT]", "Egress queues: packets that wait, depth, rate, packets dropped.", 0, 1
    ),
    "set_queue_depth": Usage(
        "PACKETS [PORT [PRIORITY]]",
        "Packets that egress queues hold: of all ports, one port, or one of its queues.", 1, 3,
    ),
    "set_queue_rate": Usage(
        "PACKETS_PER_SECOND [PORT [PRIORITY]]",
        "Rate of egress queues, 0: none; of all ports, one port, or one of its queues.", 1, 3,
    ),
    # the switch
    "switch_info": Usage("", "Device, program, run time, packets, memory.", 0, 0),
    "get_time_elapsed": Usage("", "Microseconds since the switch started.", 0, 0),
    "reset_state": Usage(
        "", "Delete all entries, groups and sessions; counters, meters, registers to 0.", 0, 0
    ),
}  # fmt: skip

_TABLE_INDIRECT = "give the action profile itself: act_prof_..."
_NO_DEFAULT = "the default of a table with an action profile is constant in P4Runtime"
NOT_HERE: dict[str, str] = {
    "load_new_config_file": "programs are replaced by P4Runtime's SetForwardingPipelineConfig",
    "swap_configs": "programs are replaced by P4Runtime's SetForwardingPipelineConfig",
    "write_config_to_file": "P4Runtime's GetForwardingPipelineConfig gives the program",
    "serialize_state": "there are no state files; table_dump --json gives entries",
    "mc_set_lag_membership": "there are no link aggregation groups; give ports",
    "mirroring_add_mc": "a clone session has ports of its own: mirroring_add SESSION PORT...",
    "set_toeplitz_hash_key": "there is no Toeplitz hash",
    "table_indirect_create_member": _TABLE_INDIRECT,
    "table_indirect_delete_member": _TABLE_INDIRECT,
    "table_indirect_modify_member": _TABLE_INDIRECT,
    "table_indirect_create_group": _TABLE_INDIRECT,
    "table_indirect_delete_group": _TABLE_INDIRECT,
    "table_indirect_add_member_to_group": _TABLE_INDIRECT,
    "table_indirect_remove_member_from_group": _TABLE_INDIRECT,
    "table_indirect_set_default": _NO_DEFAULT,
    "table_indirect_set_default_with_group": _NO_DEFAULT,
    "table_indirect_reset_default": _NO_DEFAULT,
}
"""Commands of simple_switch_CLI that are not among `COMMANDS`, and why."""
