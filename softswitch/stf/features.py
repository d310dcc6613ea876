# SPDX-License-Identifier: Apache-2.0
"""Which features of v1model a BMv2 JSON uses, for the corpus's table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

WIDE_BITS = 128

_ARRAYS = {
    "header_unions": "header unions",
    "header_union_stacks": "header union stacks",
    "header_stacks": "header stacks",
    "parse_vsets": "parser value sets",
    "learn_lists": "digest",
    "meter_arrays": "meters",
    "counter_arrays": "counters",
    "register_arrays": "registers",
    "checksums": "checksums",
    "extern_instances": "extern objects",
}

_PRIMITIVES = {
    "clone_ingress_pkt_to_egress": "clone",
    "clone_egress_pkt_to_egress": "clone",
    "resubmit": "resubmit",
    "recirculate": "recirculate",
    "truncate": "truncate",
    "modify_field_with_hash_based_offset": "hash",
    "modify_field_rng_uniform": "random",
    "assert": "assert and assume",
    "assume": "assert and assume",
    "log_msg": "log_msg",
    "push": "stack push and pop",
    "pop": "stack push and pop",
    "assign_header_stack": "whole stacks assigned",
    "assign_union": "unions assigned",
    "advance": "advance",
    "verify": "verify",
}

_OPERATIONS = {
    "sat_cast": "saturating arithmetic",
    "usat_cast": "saturating arithmetic",
    "two_comp_mod": "signed values",
    "dereference_header_stack": "run-time stack index",
    "last_stack_index": "stack index in expressions",
    "?": "conditional expressions",
    "/": "division",
    "%": "division",
    "*": "multiplication",
    "==h": "headers compared",
    "!=h": "headers compared",
    "==u": "header unions",
    "!=u": "header unions",
}

_IMPLEMENTATIONS = {"indirect": "action profiles", "indirect_ws": "action selectors"}


def features(program: Any) -> set[str]:
    """Names of the features that the parsed JSON uses."""
    found = {name for key, name in _ARRAYS.items() if program.get(key)}
    for header in program.get("header_types", []):
        for field in header["fields"]:
            if field[1] == "*":
                found.add("varbit")
            elif field[1] > WIDE_BITS:
                found.add(f"fields over {WIDE_BITS} bits")
    for pipeline in program.get("pipelines", []):
        for table in pipeline["tables"]:
            found |= _table_features(table)
    for node in _objects(program):
        found |= _node_features(node)
    return found


def _table_features(table: Any) -> set[str]:
    """Kinds of match and of action implementation, counters, meters, constant entries."""
    found = {f"{key['match_type']} keys" for key in table["key"]}
    if table["type"] in _IMPLEMENTATIONS:
        found.add(_IMPLEMENTATIONS[table["type"]])
    if table.get("with_counters"):
        found.add("direct counters")
    if table.get("direct_meters") is not None:
        found.add("direct meters")
    if table.get("support_timeout"):
        found.add("idle time-outs")
    if table.get("entries"):
        found.add("constant entries")
    if not {"__HIT__", "__MISS__"} & set(table["next_tables"]) and (
        len(set(table["next_tables"].values())) > 1
    ):
        found.add("switch on action_run")
    return found


def _node_features(node: dict[str, Any]) -> set[str]:
    """What one object of the JSON says: a primitive, an operation, a parser step, a field."""
    found = set()
    op = node.get("op")
    if isinstance(op, str):
        if op in _PRIMITIVES:
            found.add(_PRIMITIVES[op])
        if op in _OPERATIONS:
            found.add(_OPERATIONS[op])
    match node.get("type"), node.get("value"):
        case "lookahead", _:
            found.add("lookahead")
        case "field", ["standard_metadata", "mcast_grp"]:
            found.add("multicast")
        case "field", ["standard_metadata", "parser_error"]:
            found.add("parser_error")
        case "field", ["standard_metadata", "checksum_error"]:
            found.add("checksum_error")
    return found


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    """Every object in a parsed JSON."""
    pending = [node]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
