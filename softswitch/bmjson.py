# SPDX-License-Identifier: Apache-2.0
"""The BMv2 JSON as typed, immutable Python objects.

`bmread` fills these in. The format is docs/JSON_format.md of p4lang/behavioral-model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softswitch.errors import BadProgram

CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
"""Errors of core.p4; a program has all of them, whether or not it names them."""


@dataclass(frozen=True, slots=True)
class Const:
    """An integer of unlimited precision, possibly negative."""

    value: int


@dataclass(frozen=True, slots=True)
class BoolConst:
    """true or false."""

    value: bool


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field of a header instance; "$valid$" is the hidden validity bit."""

    header: str
    field: str


@dataclass(frozen=True, slots=True)
class LastField:
    """A field of the last element of a stack that the parser filled."""

    stack: str
    field: str


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the enclosing action, by index."""

    index: int


@dataclass(frozen=True, slots=True)
class HeaderRef:
    """A header instance."""

    name: str


@dataclass(frozen=True, slots=True)
class StackRef:
    """A header stack."""

    name: str


@dataclass(frozen=True, slots=True)
class UnionRef:
    """A header union."""

    name: str


@dataclass(frozen=True, slots=True)
class UnionStackRef:
    """A stack of header unions."""

    name: str


@dataclass(frozen=True, slots=True)
class LastUnionField:
    """A field of a member of the last union of a stack that the parser filled."""

    stack: str
    member: str
    field: str


@dataclass(frozen=True, slots=True)
class Op:
    """An operation; `left` is None when unary, `condition` is for "?"."""

    op: str
    left: Expr | None
    right: Expr | int
    condition: Expr | None = None


Expr = (
    Const
    | BoolConst
    | FieldRef
    | LastField
    | LastUnionField
    | Param
    | HeaderRef
    | StackRef
    | UnionRef
    | UnionStackRef
    | Op
)


@dataclass(frozen=True, slots=True)
class Lookahead:
    """`width` bits of the packet from `offset` bits after what was parsed."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Named:
    """A reference to an array or calculation. `kind` as in the JSON, e.g. register_array."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class SizedConst:
    """A constant of a known width in bits, as calculations need it."""

    value: int
    width: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string argument."""

    value: str


@dataclass(frozen=True, slots=True)
class Vector:
    """A list of values, for log_msg."""

    items: tuple[Arg, ...]


Arg = Expr | Named | SizedConst | Text | Vector


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a header type; `width` in bits, of a variable-length one the most it can have."""

    name: str
    width: int
    signed: bool
    varbit: bool = False


@dataclass(frozen=True, slots=True)
class HeaderType:
    """Fields in wire order."""

    name: str
    fields: tuple[Field, ...]

    @property
    def width(self) -> int:
        """Bits of the whole header, the most when it has a variable-length field."""
        return sum(f.width for f in self.fields)

    @property
    def varbit(self) -> Field | None:
        """The variable-length field; there is at most one."""
        return next((f for f in self.fields if f.varbit), None)


@dataclass(frozen=True, slots=True)
class Header:
    """A header or metadata instance. Metadata counts as always valid."""

    name: str
    type: HeaderType
    metadata: bool


@dataclass(frozen=True, slots=True)
class Stack:
    """A header stack; `headers` are the instances, element 0 first."""

    name: str
    type: HeaderType
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """A header union: the instances that are its members, by the name of the member.

    At most one of them is valid.
    """

    name: str
    members: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnionStack:
    """A stack of unions of one type; `unions` by name, element 0 first."""

    name: str
    unions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Primitive:
    """One call of a primitive; `source` is the P4 text it came from, for messages."""

    op: str
    args: tuple[Arg, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Action:
    """An action: parameters as (name, width in bits) and its primitives."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    primitives: tuple[Primitive, ...]


@dataclass(frozen=True, slots=True)
class ParserOp:
    """One step of a parser state. `op` says which of the other attributes count:

    extract (target: header), extract_stack (target: stack), extract_union_stack (target, member),
    each with a length in bits where the header has a variable-length field; set (field, value),
    verify (condition, value: error code), advance (value: bits), shift (value: bytes), primitive
    (call).
    """

    op: str
    target: str = ""
    member: str = ""
    length: Expr | None = None
    field: Expr | None = None
    condition: Expr | None = None
    value: Expr | Lookahead | None = None
    call: Primitive | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """`value` and `mask` cover the byte-padded keys one after the other.

    With neither a value nor a value set it is the default.
    """

    value: bytes | None
    mask: bytes | None
    next_state: str | None
    value_set: str | None = None


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A parser value set: `width` bits in all keys together, at most `size` members (0: any)."""

    name: str
    width: int
    size: int


@dataclass(frozen=True, slots=True)
class ParserState:
    """Operations, then a select over `keys`."""

    name: str
    ops: tuple[ParserOp, ...]
    keys: tuple[Expr | Lookahead, ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class Parser:
    """Parse states by name."""

    init_state: str | None
    states: Mapping[str, ParserState]


@dataclass(frozen=True, slots=True)
class Calculation:
    """A hash or checksum over `inputs`; with `payload`, what the parser left follows them."""

    name: str
    algorithm: str
    inputs: tuple[Arg, ...]
    payload: bool


@dataclass(frozen=True, slots=True)
class Checksum:
    """Written by the deparser (`update`) or checked after parsing (`verify`)."""

    name: str
    header: str
    field: str
    calculation: str
    condition: Expr | None
    update: bool
    verify: bool


@dataclass(frozen=True, slots=True)
class TableKey:
    """One key of a table. `match_type`: exact, lpm, ternary, range or valid.

    `target` is a field of a header, or of an element of a stack.
    """

    name: str
    match_type: str
    target: Expr
    mask: int | None


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """An entry that the program fixes; keys as (value, mask, prefix length, high). The lowest
    `priority` wins (BMv2's order, the opposite of P4Runtime's)."""

    keys: tuple[tuple[int, int | None, int | None, int | None], ...]
    priority: int
    action: int
    data: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A match-action table. `next_tables` maps action names, or __HIT__ and __MISS__, to nodes."""

    name: str
    keys: tuple[TableKey, ...]
    match_type: str
    type: str
    profile: str | None
    max_size: int
    with_counters: bool
    meter: str | None
    with_timeouts: bool
    actions: tuple[int, ...]
    next_tables: Mapping[str, str | None]
    base_default_next: str | None
    default_action: int | None
    default_data: tuple[int, ...]
    default_const: bool
    entries: tuple[ConstEntry, ...] | None

    @property
    def above_entries(self) -> int:
        """This less an entry's `priority` is one as P4Runtime has it: the highest wins."""
        return max((entry.priority for entry in self.entries or ()), default=0) + 1


@dataclass(frozen=True, slots=True)
class Conditional:
    """An `if` of the control flow."""

    name: str
    expression: Expr
    true_next: str | None
    false_next: str | None


@dataclass(frozen=True, slots=True)
class ActionProfile:
    """`selector` names the hash and its fields when members are chosen by hash."""

    name: str
    max_size: int
    selector: Calculation | None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The control flow of ingress or egress."""

    name: str
    init: str | None
    tables: Mapping[str, Table]
    conditionals: Mapping[str, Conditional]
    profiles: Mapping[str, ActionProfile]


@dataclass(frozen=True, slots=True)
class Register:
    """`width` in bits of each of `size` cells."""

    name: str
    size: int
    width: int


@dataclass(frozen=True, slots=True)
class Meter:
    """A meter array of `size` cells that counts bytes, or packets.

    `target` is the field that gets the color when it is a table's direct meter; None: an array.
    """

    name: str
    size: int
    bytes: bool
    target: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class FieldList:
    """A list of fields: what a copy keeps, or what a digest holds."""

    id: int
    name: str
    fields: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that softswitch uses of a JSON."""

    header_types: Mapping[str, HeaderType]
    headers: Mapping[str, Header]
    stacks: Mapping[str, Stack]
    unions: Mapping[str, Union]
    union_stacks: Mapping[str, UnionStack]
    errors: Mapping[str, int]
    parser: Parser
    value_sets: Mapping[str, ValueSet]
    deparse_order: tuple[str, ...]
    deparse_primitives: tuple[Primitive, ...]
    counters: Mapping[str, int]
    direct_counters: Mapping[str, str]
    registers: Mapping[str, Register]
    meters: Mapping[str, Meter]
    calculations: Mapping[str, Calculation]
    checksums: tuple[Checksum, ...]
    actions: Mapping[int, Action]
    pipelines: Mapping[str, Pipeline]
    learn_lists: Mapping[int, FieldList]
    field_lists: Mapping[int, FieldList]
    aliases: Mapping[str, tuple[str, str]]


def find_action(program: Program, action_id: int, where: str) -> Action:
    """The action of that id; `where` names who refers to it.

    Raises:
        BadProgram: there is none.
    """
    action = program.actions.get(action_id)
    if action is None:
        raise BadProgram(f"{where}: no action has id {action_id}")
    return action
