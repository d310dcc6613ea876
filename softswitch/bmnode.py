# SPDX-License-Identifier: Apache-2.0
"""Access to JSON values that knows where it is, so that an error can say so; expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from softswitch.bmjson import (
    Arg,
    BoolConst,
    Const,
    Expr,
    FieldRef,
    HeaderRef,
    LastField,
    LastUnionField,
    Named,
    Op,
    Param,
    SizedConst,
    StackRef,
    Text,
    UnionRef,
    UnionStackRef,
    Vector,
)
from softswitch.errors import BadProgram, Unsupported

T = TypeVar("T")


class Node:
    """A JSON value and its path from the root."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, expected: str) -> BadProgram:
        """The error "here is X, expected Y"; the caller raises it."""
        return BadProgram(f"{self.path}: expected {expected}, not {str(self.value)[:60]!r}")

    def get(self, key: str) -> Node:
        """The value of a key that must be there."""
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        if key not in self.value:
            raise BadProgram(f"{self.path}: no key {key!r}")
        return Node(self.value[key], f"{self.path}.{key}")

    def optional(self, key: str) -> Node | None:
        """The value of a key, or None when it is missing or null."""
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        if self.value.get(key) is None:
            return None
        return self.get(key)

    def array(self, key: str | None = None) -> list[Node]:
        """The elements of an array."""
        node = self if key is None else self.get(key)
        if not isinstance(node.value, list):
            raise node.fail("an array")
        return [Node(v, f"{node.path}[{i}]") for i, v in enumerate(node.value)]

    def row(self, count: int, key: str | None = None, *, or_more: bool = False) -> list[Node]:
        """The elements of an array that must have so many."""
        node = self if key is None else self.get(key)
        elements = node.array()
        if len(elements) < count or (len(elements) > count and not or_more):
            raise node.fail(f"an array of {count}{' or more' if or_more else ''}")
        return elements

    def optional_array(self, key: str) -> list[Node]:
        """The elements of an array that may be missing."""
        node = self.optional(key)
        return node.array() if node else []

    def items(self, key: str) -> Iterator[tuple[str, Node]]:
        """The members of an object."""
        node = self.get(key)
        if not isinstance(node.value, dict):
            raise node.fail("an object")
        for k, v in node.value.items():
            yield k, Node(v, f"{node.path}.{k}")

    def text(self, key: str | None = None) -> str:
        """A string."""
        node = self if key is None else self.get(key)
        if not isinstance(node.value, str):
            raise node.fail("a string")
        return node.value

    def optional_text(self, key: str | None = None) -> str:
        """A string, "" when it is missing or null."""
        node = self if key is None else self.optional(key)
        return "" if node is None or node.value is None else node.text()

    def integer(self, key: str | None = None) -> int:
        """An integer that is not negative."""
        node = self if key is None else self.get(key)
        if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 0:
            raise node.fail("an integer of at least 0")
        return node.value

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean that may be missing."""
        node = self.optional(key)
        if node is None:
            return default
        if not isinstance(node.value, bool):
            raise node.fail("true or false")
        return node.value

    def hex(self, key: str | None = None) -> int:
        """A number in a hexadecimal string, possibly with a sign and 0x."""
        node = self if key is None else self.get(key)
        try:
            return int(node.text(), 16)
        except ValueError:
            raise node.fail("a hexadecimal number") from None

    def hex_bytes(self, key: str) -> bytes:
        """A hexadecimal string as bytes: leading zeros count. Negative ones are complemented."""
        node = self.get(key)
        sign, digits = node.text()[:1], node.text().removeprefix("-").removeprefix("0x")
        try:
            value = bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
        except ValueError:
            raise node.fail("a hexadecimal string") from None
        if sign != "-":
            return value
        return (-int.from_bytes(value) % (1 << 8 * len(value))).to_bytes(len(value))

    def lookup(self, key: str, table: Mapping[str, T], what: str) -> T:
        """The object that a name refers to."""
        name = self.text(key)
        if name not in table:
            raise BadProgram(f"{self.path}.{key}: there is no {what} {name!r}")
        return table[name]


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


class _HasId(_HasName, Protocol):
    @property
    def id(self) -> int: ...


NamedT = TypeVar("NamedT", bound=_HasName)
NumberedT = TypeVar("NumberedT", bound=_HasId)


def by_name(objects: Iterable[NamedT]) -> dict[str, NamedT]:
    """The objects by name. BadProgram when two share one."""
    found: dict[str, NamedT] = {}
    for each in objects:
        if each.name in found:
            raise BadProgram(f"{each.name}: there are two {type(each).__name__} of this name")
        found[each.name] = each
    return found


def by_id(objects: Iterable[NumberedT]) -> dict[int, NumberedT]:
    """The objects by number. BadProgram when two share one."""
    found: dict[int, NumberedT] = {}
    for each in objects:
        if each.id in found:
            raise BadProgram(f"{each.name}: another {type(each).__name__} has number {each.id} too")
        found[each.id] = each
    return found


_NAMED = ("calculation", "counter_array", "register_array", "meter_array", "extern")
_UNSUPPORTED = ("register", "field_list")


def read_expr(node: Node) -> Expr:
    """An expression, or an argument that is one.

    Raises:
        BadProgram: not a type-value object.
        Unsupported: it uses register expressions.
    """
    arg = read_arg(node)
    if isinstance(arg, Named | SizedConst | Text | Vector):
        raise node.fail("an expression")
    return arg


def read_field(node: Node) -> Expr:
    """A field as [header, field]; p4c has an operation for the header when it asks for validity."""
    header, field = node.row(2)
    if isinstance(header.value, dict) and field.value == "$valid$":
        return Op("valid", None, _operation(header))
    return FieldRef(header.text(), field.text())


def read_arg(node: Node) -> Arg:
    """An argument of a primitive or an input of a calculation: a type-value object."""
    kind = node.text("type")
    match kind:
        case "expression":
            inner = node.get("value")
            if isinstance(inner.value, dict) and "op" in inner.value:
                return _operation(inner)
            return read_expr(inner)
        case "field":
            return read_field(node.get("value"))
        case "stack_field":
            stack, field = node.row(2, "value")
            return LastField(stack.text(), field.text())
        case "hexstr":
            if width := node.optional("bitwidth"):
                return SizedConst(node.hex("value"), width.integer())
            return Const(node.hex("value"))
        case "bool":
            return BoolConst(bool(node.get("value").value))
        case "local" | "runtime_data":
            return Param(node.integer("value"))
        case "header":
            return HeaderRef(node.text("value"))
        case "header_stack":
            return StackRef(node.text("value"))
        case "header_union":
            return UnionRef(node.text("value"))
        case "header_union_stack":
            return UnionStackRef(node.text("value"))
        case "union_stack_field":
            stack, member, field = node.row(3, "value")
            return LastUnionField(stack.text(), member.text(), field.text())
        case "string":
            return Text(node.text("value"))
        case "parameters_vector":
            # p4c writes an empty object for a message without values.
            empty = node.get("value").value == {}
            return Vector(() if empty else tuple(map(read_arg, node.array("value"))))
        case _ if kind in _NAMED:
            return Named(kind, node.text("value"))
        case _ if kind in _UNSUPPORTED:
            raise Unsupported(node.path, f"values of type {kind} are not supported")
        case _:
            raise node.get("type").fail("a known type of value")


def _operation(node: Node) -> Op:
    op = node.text("op")
    left = node.optional("left")
    if op in ("access_field", "access_union_header"):
        if left is None:
            raise node.fail("an operation with a left side")
        return Op(op, read_expr(left), node.integer("right"))
    condition = node.optional("cond")
    return Op(
        op,
        read_expr(left) if left else None,
        read_expr(node.get("right")),
        read_expr(condition) if condition else None,
    )
