# SPDX-License-Identifier: Apache-2.0
"""P4 data types as P4Runtime carries them in P4Data messages (8.5), for digests and registers.

The data plane knows a value as a flat list of integers, one per bit string, each the raw bits of
the field. A `TypeSpec` turns such a list into a P4Data message and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from finsy.proto import p4d

from softswitch.status import UNIMPLEMENTED, Failure, invalid


class TypeSpec(Protocol):
    """A P4 type. `length` is the number of integers that one value takes in the data plane."""

    @property
    def length(self) -> int: ...

    def encode(self, numbers: Iterator[int]) -> Any:
        """A P4Data message made of the next `length` integers."""
        ...

    def decode(self, data: Any, what: str) -> list[int]:
        """The integers in a P4Data message. Raises `Failure` when it is of another type."""
        ...


@dataclass(frozen=True, slots=True)
class Bits:
    """`bit<width>`, or `int<width>` when `signed`."""

    width: int
    signed: bool = False
    length: int = 1

    def encode(self, numbers: Iterator[int]) -> Any:
        return p4d.P4Data(bitstring=self.to_bytes(next(numbers)))

    def to_bytes(self, number: int) -> bytes:
        """The shortest byte string; for `int<W>` two's complement, `number` being the raw bits."""
        if not self.signed:
            return number.to_bytes((number.bit_length() + 7) // 8 or 1, "big")
        value = number - (1 << self.width) if number >> (self.width - 1) else number
        bits = (value if value >= 0 else ~value).bit_length() + 1
        return value.to_bytes((bits + 7) // 8, "big", signed=True)

    def decode(self, data: Any, what: str) -> list[int]:
        if data.WhichOneof("data") != "bitstring":
            raise invalid(f"{what}: expected a bit string of {self.width} bits")
        return [self.from_bytes(data.bitstring, what)]

    def from_bytes(self, value: bytes, what: str) -> int:
        """The raw bits in a byte string. Raises `Failure` when they do not fit in `width`."""
        if not value:
            raise invalid(f"{what}: empty byte string; a value of 0 is one zero byte")
        number = int.from_bytes(value, "big", signed=self.signed)
        if self.signed:
            if not -(1 << (self.width - 1)) <= number < 1 << (self.width - 1):
                raise invalid(f"{what}: {number} does not fit in int<{self.width}>")
            return number & ((1 << self.width) - 1)
        if number >> self.width:
            raise invalid(f"{what}: 0x{number:x} does not fit in {self.width} bits")
        return number


@dataclass(frozen=True, slots=True)
class Bool:
    """`bool`."""

    length: int = 1

    def encode(self, numbers: Iterator[int]) -> Any:
        return p4d.P4Data(bool=next(numbers) != 0)

    def decode(self, data: Any, what: str) -> list[int]:
        if data.WhichOneof("data") != "bool":
            raise invalid(f"{what}: expected a bool")
        return [int(data.bool)]


@dataclass(frozen=True, slots=True)
class EnumValue:
    """A serializable enum, which P4Data carries as `enum_value`."""

    bits: Bits
    length: int = 1

    def encode(self, numbers: Iterator[int]) -> Any:
        return p4d.P4Data(enum_value=self.bits.to_bytes(next(numbers)))

    def decode(self, data: Any, what: str) -> list[int]:
        if data.WhichOneof("data") != "enum_value":
            raise invalid(f"{what}: expected an enum value of {self.bits.width} bits")
        return [self.bits.from_bytes(data.enum_value, what)]


@dataclass(frozen=True, slots=True)
class Members:
    """A struct or tuple: `kind` is the P4Data field, "struct" or "tuple"."""

    kind: str
    members: tuple[TypeSpec, ...]

    @property
    def length(self) -> int:
        return sum(m.length for m in self.members)

    def encode(self, numbers: Iterator[int]) -> Any:
        data = p4d.P4Data()
        target = getattr(data, self.kind)
        target.SetInParent()
        target.members.extend([m.encode(numbers) for m in self.members])
        return data

    def decode(self, data: Any, what: str) -> list[int]:
        if data.WhichOneof("data") != self.kind:
            raise invalid(f"{what}: expected a {self.kind} with {len(self.members)} members")
        given = getattr(data, self.kind).members
        if len(given) != len(self.members):
            raise invalid(f"{what}: {len(given)} members instead of {len(self.members)}")
        return [
            number
            for member, value in zip(self.members, given, strict=True)
            for number in member.decode(value, what)
        ]


def type_spec(spec: Any, types: Any, what: str) -> TypeSpec:
    """The `TypeSpec` of a p4.config.v1.P4DataTypeSpec; `types` is the P4Info's type_info.

    Raises `Failure`: UNIMPLEMENTED for a type that v1model's registers and digests do not have on
    softswitch, INVALID_ARGUMENT for a name that the P4Info does not define. `what` names the
    object.
    """
    kind = spec.WhichOneof("type_spec")
    if kind == "bitstring":
        return _bits(spec.bitstring, what)
    if kind == "bool":
        return Bool()
    if kind == "tuple":
        return Members("tuple", tuple(type_spec(m, types, what) for m in spec.tuple.members))
    if kind == "struct":
        struct = _named(types.structs, spec.struct.name, what)
        members = tuple(type_spec(m.type_spec, types, what) for m in struct.members)
        return Members("struct", members)
    if kind == "serializable_enum":
        enum = _named(types.serializable_enums, spec.serializable_enum.name, what)
        return EnumValue(Bits(enum.underlying_type.bitwidth))
    if kind == "new_type":
        new = _named(types.new_types, spec.new_type.name, what)
        if new.WhichOneof("representation") == "original_type":
            return type_spec(new.original_type, types, what)
        if new.translated_type.WhichOneof("sdn_type") == "sdn_bitwidth":
            return Bits(new.translated_type.sdn_bitwidth)
    raise Failure(UNIMPLEMENTED, f"P4Info: {what}: type {kind or 'unset'!r} is not supported here")


def _bits(spec: Any, what: str) -> Bits:
    kind = spec.WhichOneof("type_spec")
    if kind == "bit":
        return Bits(spec.bit.bitwidth)
    if kind == "int":
        return Bits(spec.int.bitwidth, signed=True)
    raise Failure(UNIMPLEMENTED, f"P4Info: {what}: type {kind or 'unset'!r} is not supported here")


def _named(mapping: Any, name: str, what: str) -> Any:
    if name not in mapping:
        raise invalid(f"P4Info: {what} is of type {name!r}, which type_info does not define")
    return mapping[name]
