# SPDX-License-Identifier: Apache-2.0
"""Reads a BMv2 JSON into the objects of `bmjson`.

Reading checks the shape and the references between objects that it meets. `Unsupported` is raised
here for kinds of objects that softswitch does not know at all, `BadProgram` for malformed JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from softswitch.bmjson import (
    CORE_ERRORS,
    Action,
    ActionProfile,
    Calculation,
    Checksum,
    Conditional,
    Const,
    ConstEntry,
    Expr,
    Field,
    FieldList,
    FieldRef,
    Header,
    HeaderType,
    Lookahead,
    Meter,
    Parser,
    ParserOp,
    ParserState,
    Pipeline,
    Primitive,
    Program,
    Register,
    Stack,
    Table,
    TableKey,
    Transition,
    Union,
    UnionStack,
    ValueSet,
)
from softswitch.bmnode import Node, by_id, by_name, read_arg, read_expr, read_field
from softswitch.errors import BadProgram, Unsupported

# A refusal for each kind of object that would otherwise have to be ignored.
WIDEST = 1 << 16
"""Bits of a field, parameter or cell: more would only be a mistake."""

WIDEST_INTRINSIC = 64

_REFUSED_LISTS = {
    "extern_instances": "extern instances are not supported",
}


def read_program(text: bytes | str) -> Program:
    """Read a BMv2 JSON.

    Raises:
        BadProgram: it is not JSON, or not in the format.
        Unsupported: it holds an object that softswitch has no counterpart for.
    """
    try:
        raw = json.loads(text)
    except ValueError as e:
        raise BadProgram(f"BMv2 JSON: not JSON: {e}") from e
    root = Node(raw, "BMv2 JSON")
    version = root.get("__meta__").row(2, "version")
    if version[0].integer() != 2:
        raise BadProgram(f"{version[0].path}: format version {raw['__meta__']}, this reads 2.x")
    for key, why in _REFUSED_LISTS.items():
        for item in root.optional_array(key):
            raise Unsupported(item.text("name"), why)
    types = by_name(map(_header_type, root.array("header_types")))
    headers = by_name(_header(n, types) for n in root.array("headers"))
    for field in headers["standard_metadata"].type.fields if "standard_metadata" in headers else ():
        if field.width > WIDEST_INTRINSIC:
            where = f"standard_metadata.{field.name}"
            raise Unsupported(where, f"{field.width} bits; at most {WIDEST_INTRINSIC}")
    names = {n.integer("id"): n.text("name") for n in root.array("headers")}
    unions = by_name(_unions(root, headers, names))
    counters, direct = _counters(root)
    pipelines = by_name(map(_pipeline, root.array("pipelines")))
    parsers = root.array("parsers")
    deparsers = root.array("deparsers")
    if len(parsers) != 1 or len(deparsers) != 1 or set(pipelines) != {"ingress", "egress"}:
        raise Unsupported("program", "one parser, one deparser, ingress and egress are expected")
    return Program(
        header_types=types,
        headers=headers,
        stacks=by_name(_stack(n, types, names) for n in root.array("header_stacks")),
        unions=unions,
        union_stacks=by_name(_union_stacks(root)),
        errors=_errors(root),
        parser=_parser(parsers[0]),
        value_sets=by_name(map(_value_set, root.optional_array("parse_vsets"))),
        deparse_order=tuple(n.text() for n in deparsers[0].array("order")),
        deparse_primitives=tuple(map(_primitive, deparsers[0].optional_array("primitives"))),
        counters=counters,
        direct_counters=direct,
        registers=by_name(map(_register, root.array("register_arrays"))),
        meters=by_name(map(_meter, root.optional_array("meter_arrays"))),
        calculations=by_name(map(_calculation, root.array("calculations"))),
        checksums=tuple(map(_checksum, root.array("checksums"))),
        actions=by_id(map(_action, root.array("actions"))),
        pipelines=pipelines,
        learn_lists=by_id(map(_field_list, root.array("learn_lists"))),
        field_lists=by_id(map(_field_list, root.optional_array("field_lists"))),
        aliases=dict(_aliases(root)),
    )


def _width(node: Node, owner: str) -> int:
    """A number of bits."""
    width = node.integer()
    if width > WIDEST:
        raise Unsupported(owner, f"{node.path}: {width} bits; at most {WIDEST}")
    return width


def _header_type(node: Node) -> HeaderType:
    name = node.text("name")
    fields = []
    for f in node.array("fields"):
        parts = f.row(2, or_more=True)
        if parts[1].value == "*":
            fields.append(Field(parts[0].text(), 0, signed=False, varbit=True))
            continue
        if len(parts) > 3 and parts[3].value:
            raise Unsupported(f"{name}.{parts[0].text()}", "saturating fields are not supported")
        signed = len(parts) > 2 and bool(parts[2].value)
        fields.append(Field(parts[0].text(), _width(parts[1], name), signed))
    if "$valid$" in by_name(fields):
        raise BadProgram(
            f"{node.path}: {name} has a field of the name $valid$, which all headers have"
        )
    varbits = [field for field in fields if field.varbit]
    if len(varbits) > 1:
        raise BadProgram(f"{node.path}: {name} has more than one variable-length field")
    if varbits:
        most = _width(node.get("max_length"), name) * 8 - sum(field.width for field in fields)
        if most < 0:
            raise BadProgram(f"{node.path}.max_length: less than the other fields of {name}")
        if node.optional("length_exp"):
            raise Unsupported(name, "length_exp; the length is expected with the extraction")
        place = fields.index(varbits[0])
        fields[place] = Field(varbits[0].name, most // 8 * 8, signed=False, varbit=True)
    return HeaderType(name, tuple(fields))


def _header(node: Node, types: Mapping[str, HeaderType]) -> Header:
    return Header(
        node.text("name"),
        node.lookup("header_type", types, "header type"),
        bool(node.get("metadata").value),
    )


def _distinct(nodes: list[Node]) -> tuple[int, ...]:
    """Numbers that are there once."""
    numbers = tuple(node.integer() for node in nodes)
    for place, number in enumerate(numbers):
        if number in numbers[:place]:
            raise nodes[place].fail("a number that is not there already")
    return numbers


def _stack(node: Node, types: Mapping[str, HeaderType], names: Mapping[int, str]) -> Stack:
    return Stack(
        node.text("name"),
        node.lookup("header_type", types, "header type"),
        tuple(_by_ids(node, "header_ids", names, "header")),
    )


def _by_ids(node: Node, key: str, names: Mapping[int, str], what: str) -> list[str]:
    """The names that belong to an array of ids."""
    found = []
    for number in node.array(key):
        if number.integer() not in names:
            raise BadProgram(f"{number.path}: no {what} has id {number.value}")
        found.append(names[number.integer()])
    return found


def _unions(root: Node, headers: Mapping[str, Header], names: Mapping[int, str]) -> Iterator[Union]:
    types = {n.text("name"): n for n in root.optional_array("header_union_types")}
    for node in root.optional_array("header_unions"):
        kind = node.lookup("union_type", types, "union type")
        instances = _by_ids(node, "header_ids", names, "header")
        members = kind.array("headers")
        if len(members) != len(instances):
            raise BadProgram(f"{node.path}: {len(members)} members, {len(instances)} headers")
        union = {}
        for member, instance in zip(members, instances, strict=True):
            name, header_type = member.row(2)
            if headers[instance].type.name != header_type.text():
                raise BadProgram(f"{node.path}: {instance} is not of type {header_type.value}")
            union[name.text()] = instance
        yield Union(node.text("name"), union)


def _union_stacks(root: Node) -> Iterator[UnionStack]:
    names = {n.integer("id"): n.text("name") for n in root.optional_array("header_unions")}
    for node in root.optional_array("header_union_stacks"):
        unions = _by_ids(node, "header_union_ids", names, "header union")
        yield UnionStack(node.text("name"), tuple(unions))


def _errors(root: Node) -> dict[str, int]:
    pairs = [n.row(2) for n in root.optional_array("errors")]
    errors = {name.text(): number.integer() for name, number in pairs}
    free = max(errors.values(), default=-1) + 1
    for name in CORE_ERRORS:
        if name not in errors:
            errors[name] = free
            free += 1
    return errors


def _primitive(node: Node) -> Primitive:
    source = node.optional("source_info")
    text = source.optional_text("source_fragment") if source else ""
    return Primitive(node.text("op"), tuple(map(read_arg, node.array("parameters"))), text)


def _action(node: Node) -> Action:
    name = node.text("name")
    params = tuple(
        (n.text("name"), _width(n.get("bitwidth"), name)) for n in node.array("runtime_data")
    )
    primitives = tuple(map(_primitive, node.array("primitives")))
    return Action(node.integer("id"), name, params, primitives)


def _parser_op(node: Node, state: str) -> ParserOp:
    op = node.text("op")
    count = {"extract_VL": 2, "set": 2, "verify": 2}.get(op, 1)
    args = node.row(count, "parameters")
    match op:
        case "extract" | "extract_VL":
            return _extract(args, state)
        case "set":
            return ParserOp("set", field=read_expr(args[0]), value=_source(args[1]))
        case "verify":
            return ParserOp("verify", condition=read_expr(args[0]), value=read_expr(args[1]))
        case "advance":
            return ParserOp("advance", value=read_expr(args[0]))
        case "shift":
            return ParserOp("shift", value=Const(args[0].integer()))
        case "primitive":
            return ParserOp("primitive", call=_primitive(args[0]))
        case _:
            raise Unsupported(f"parser state {state}", f"operation {op} is not supported")


def _extract(args: list[Node], state: str) -> ParserOp:
    length = read_expr(args[1]) if len(args) > 1 else None
    kind = args[0].text("type")
    match kind:
        case "regular":
            return ParserOp("extract", target=args[0].text("value"), length=length)
        case "stack":
            return ParserOp("extract_stack", target=args[0].text("value"), length=length)
        case "union_stack":
            stack, member = args[0].row(2, "value")
            return ParserOp(
                "extract_union_stack", target=stack.text(), member=member.text(), length=length
            )
        case _:
            raise Unsupported(f"parser state {state}", f"extract of type {kind} is not supported")


def _source(node: Node) -> Expr | Lookahead:
    if node.text("type") == "lookahead":
        offset, width = node.row(2, "value")
        return Lookahead(_width(offset, "lookahead"), _width(width, "lookahead"))
    return read_expr(node)


def _transition(node: Node, state: str, keys: int) -> Transition:
    kind = node.optional_text("type") or "hexstr"
    following = node.optional_text("next_state") or None
    if kind == "parse_vset":
        name = node.text("value")
        if node.optional("mask"):
            raise Unsupported(f"parser state {state}", f"a mask over value set {name}")
        return Transition(None, None, following, name)
    if kind == "default" or node.get("value").value == "default":
        return Transition(None, None, following)
    if keys > 1 and node.text("value").startswith("-"):
        # The values are in one number, from which another one than the first has borrowed.
        raise Unsupported(f"parser state {state}", "a select of several keys, the first negative")
    mask = node.optional("mask")
    return Transition(node.hex_bytes("value"), node.hex_bytes("mask") if mask else None, following)


def _value_set(node: Node) -> ValueSet:
    size = node.integer("max_size") if node.optional("max_size") else 0
    return ValueSet(node.text("name"), node.integer("compressed_bitwidth"), size)


def _parser(node: Node) -> Parser:
    states: dict[str, ParserState] = {}
    for n in node.array("parse_states"):
        name = n.text("name")
        states[name] = ParserState(
            name,
            tuple(_parser_op(o, name) for o in n.array("parser_ops")),
            tuple(_source(k) for k in n.array("transition_key")),
            tuple(
                _transition(t, name, len(n.array("transition_key"))) for t in n.array("transitions")
            ),
        )
    init = node.optional_text("init_state") or None
    for state in states.values():
        for t in state.transitions:
            if t.next_state is not None and t.next_state not in states:
                raise BadProgram(f"{node.path}: state {state.name} goes to unknown {t.next_state}")
    return Parser(init, states)


def _calculation(node: Node) -> Calculation:
    inputs = node.array("input")
    payload = [n for n in inputs if n.text("type") == "payload"]
    return Calculation(
        node.optional_text("name"),
        node.text("algo"),
        tuple(read_arg(n) for n in inputs if n.text("type") != "payload"),
        bool(payload),
    )


def _checksum(node: Node) -> Checksum:
    name = node.text("name")
    if node.text("type") != "generic":
        raise Unsupported(name, f"checksum type {node.text('type')} is not supported")
    header, field = node.row(2, "target")
    condition = node.optional("if_cond")
    return Checksum(
        name,
        header.text(),
        field.text(),
        node.text("calculation"),
        read_expr(condition) if condition else None,
        node.flag("update", default=True),
        node.flag("verify", default=True),
    )


def _counters(root: Node) -> tuple[dict[str, int], dict[str, str]]:
    arrays: dict[str, int] = {}
    direct: dict[str, str] = {}
    for n in root.array("counter_arrays"):
        if n.flag("is_direct", default=False):
            direct[n.text("name")] = n.text("binding")
        else:
            arrays[n.text("name")] = n.integer("size")
    return arrays, direct


def _register(node: Node) -> Register:
    name = node.text("name")
    return Register(name, node.integer("size"), _width(node.get("bitwidth"), name))


def _meter(node: Node) -> Meter:
    name = node.text("name")
    if (rates := node.integer("rate_count")) != 2:
        raise Unsupported(name, f"a meter with {rates} rates; only meters with 2 are supported")
    kind = node.text("type")
    if kind not in ("packets", "bytes"):
        raise node.get("type").fail("packets or bytes")
    target = None
    if node.flag("is_direct", default=False):
        header, field = node.row(2, "result_target")
        target = header.text(), field.text()
    return Meter(name, node.integer("size"), kind == "bytes", target)


def _field_list(node: Node) -> FieldList:
    fields = []
    for e in node.array("elements"):
        if e.text("type") != "field":
            raise Unsupported(
                node.text("name"), f"element of type {e.text('type')} in a field list"
            )
        header, field = e.row(2, "value")
        fields.append((header.text(), field.text()))
    return FieldList(node.integer("id"), node.text("name"), tuple(fields))


def _aliases(root: Node) -> Iterator[tuple[str, tuple[str, str]]]:
    for n in root.optional_array("field_aliases"):
        alias, target = n.row(2)
        header, field = target.row(2)
        yield alias.text(), (header.text(), field.text())


def _pipeline(node: Node) -> Pipeline:
    for call in node.optional_array("action_calls"):
        raise Unsupported(call.text("name"), "action calls outside of tables are not supported")
    return Pipeline(
        node.text("name"),
        node.optional_text("init_table") or None,
        by_name(map(_table, node.array("tables"))),
        by_name(map(_conditional, node.array("conditionals"))),
        by_name(map(_profile, node.array("action_profiles"))),
    )


def _conditional(node: Node) -> Conditional:
    return Conditional(
        node.text("name"),
        read_expr(node.get("expression")),
        node.optional_text("true_next") or None,
        node.optional_text("false_next") or None,
    )


def _profile(node: Node) -> ActionProfile:
    selector = node.optional("selector")
    calculation = _calculation(selector) if selector else None
    return ActionProfile(node.text("name"), node.integer("max_size"), calculation)


def _key(node: Node) -> TableKey:
    kind = node.text("match_type")
    target = node.get("target")
    if kind == "valid":
        return TableKey(node.text("name"), kind, FieldRef(target.text(), "$valid$"), None)
    # An expression is a field of an element with a run-time index.
    field = read_field(target) if isinstance(target.value, list) else read_expr(target)
    name = node.optional_text("name")
    if not name and isinstance(field, FieldRef):
        name = f"{field.header}.{field.field}"
    mask = node.optional("mask")
    return TableKey(name, kind, field, node.hex("mask") if mask else None)


def _table(node: Node) -> Table:
    name = node.text("name")
    default = node.optional("default_entry")
    entries = node.optional("entries")
    return Table(
        name=name,
        keys=tuple(map(_key, node.array("key"))),
        match_type=node.text("match_type"),
        type=node.text("type"),
        profile=node.optional_text("action_profile") or None,
        max_size=node.integer("max_size"),
        with_counters=node.flag("with_counters", default=False),
        meter=node.optional_text("direct_meters") or None,
        with_timeouts=node.flag("support_timeout", default=False),
        actions=_distinct(node.array("action_ids")),
        next_tables={k: n.optional_text() or None for k, n in node.items("next_tables")},
        base_default_next=node.optional_text("base_default_next") or None,
        default_action=default.integer("action_id") if default else None,
        default_data=tuple(n.hex() for n in default.array("action_data")) if default else (),
        default_const=default.flag("action_entry_const", default=False) if default else False,
        entries=tuple(map(_entry, node.array("entries"))) if entries else None,
    )


def _entry(node: Node) -> ConstEntry:
    keys: list[tuple[int, int | None, int | None, int | None]] = []
    for k in node.array("match_key"):
        match k.text("match_type"):
            case "exact":
                keys.append((k.hex("key"), None, None, None))
            case "valid":
                keys.append((int(bool(k.get("key").value)), None, None, None))
            case "lpm":
                keys.append((k.hex("key"), None, k.integer("prefix_length"), None))
            case "ternary":
                keys.append((k.hex("key"), k.hex("mask"), None, None))
            case "range":
                keys.append((k.hex("start"), None, None, k.hex("end")))
            case other:
                raise BadProgram(f"{k.path}: unknown match type {other!r}")
    action = node.get("action_entry")
    data = tuple(n.hex() for n in action.array("action_data"))
    return ConstEntry(tuple(keys), node.integer("priority"), action.integer("action_id"), data)
