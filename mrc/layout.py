# SPDX-License-Identifier: Apache-2.0
"""Headers as tables of bit fields, compiled to `struct` calls.

A header is a frozen dataclass whose fields are declared with `bits` and `octets` in wire order:

    @header("METH")
    @dataclass(frozen=True, slots=True)
    class Meth(Header):
        rqmsn: int = bits(16)
        msn: int = bits(16)

That declaration is the only definition of the header: the codec and the Scapy layers derive from
it. `header` generates one pack and one unpack function per layout, as `dataclasses` generates
`__init__`: a loop over the fields for every packet would be ten times slower.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar, cast

from mrc.options import DEFAULT_OPTIONS, WireOptions

Buffer = bytes | bytearray | memoryview

_METADATA_KEY = "mrc"
_WORD_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}


class WireError(ValueError):
    """Bytes or field values that are not legal on the wire; says what, where and what is."""


class IcrcError(WireError):
    """The ICRC does not match the bytes that it covers."""


class ChecksumError(WireError):
    """The UDP checksum does not match the datagram."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a header: `width` and `offset` in bits, `offset` from the header's start."""

    name: str
    width: int
    default: int | bytes
    signed: bool
    offset: int


def bits(width: int, default: int = 0, *, signed: bool = False) -> Any:
    """Declare an integer field of `width` bits, most significant bit first."""
    if signed and width != 16:
        raise ValueError(f"signed fields are 16 bits wide, not {width}")
    return field(default=default, metadata={_METADATA_KEY: (width, signed)})


def octets(count: int) -> Any:
    """Declare a field of `count` raw bytes, by default zero."""
    return field(default=bytes(count), metadata={_METADATA_KEY: (8 * count, False)})


class Layout:
    """One arrangement of a header's fields, with its compiled functions.

    Attributes: `name`; `size` in bytes; `code`, the `struct` format without byte order;
    `specs` in wire order; `pack(header) -> bytes`; `unpack_from(buffer, offset) -> header`.
    """

    def __init__(self, name: str, cls: type[Header], specs: tuple[FieldSpec, ...]) -> None:
        words = _words(specs)
        if words is None:
            raise ValueError(f"{name}: the fields do not fill whole words of 8, 16, 32 or 64 bits")
        self.name = name
        self.specs = specs
        self.code = "".join(_word_code(word) for word in words)
        compiled = struct.Struct(">" + self.code)
        self.size = compiled.size
        self.pack, self.unpack_from = _generate(name, cls, words, compiled)

    def spec(self, name: str) -> FieldSpec:
        """The field called `name`; KeyError when there is none."""
        for spec in self.specs:
            if spec.name == name:
                return spec
        raise KeyError(f"{self.name} has no field {name!r}")

    def byte_offset(self, name: str) -> int:
        """Byte in which the field called `name` starts."""
        return self.spec(name).offset // 8


class Header:
    """Base of every header: `pack`, `unpack`, and the layout that the options select."""

    __slots__ = ()
    NAME: ClassVar[str]
    SIZE: ClassVar[int]
    _layout: ClassVar[Layout]
    _swapped: ClassVar[Layout | None] = None
    _swap_option: ClassVar[str] = ""

    @classmethod
    def layout(cls, options: WireOptions = DEFAULT_OPTIONS) -> Layout:
        """The header's layout under `options`."""
        if cls._swapped is not None and getattr(options, cls._swap_option):
            return cls._swapped
        return cls._layout

    def pack(self, options: WireOptions = DEFAULT_OPTIONS) -> bytes:
        """The header's `SIZE` bytes. WireError names the first value that does not fit."""
        return self.layout(options).pack(self)

    @classmethod
    def unpack(cls, data: Buffer, offset: int = 0, options: WireOptions = DEFAULT_OPTIONS) -> Self:
        """Read the header that starts at byte `offset`. WireError when `data` ends too early."""
        return cast(Self, cls.layout(options).unpack_from(data, offset))


H = TypeVar("H", bound=Header)


def header(name: str, swap: tuple[str, str, str] | None = None) -> Callable[[type[H]], type[H]]:
    """Class decorator: compile the declared fields of a header dataclass.

    `swap = (option, field, other field)` names a disputed order: when that attribute of
    `WireOptions` is true, the two fields change places.
    """

    def decorate(cls: type[H]) -> type[H]:
        declared = [
            (item.name, *item.metadata[_METADATA_KEY], item.default)
            for item in fields(cast(Any, cls))
        ]
        cls.NAME = name
        cls._layout = Layout(name, cls, _place(declared))
        cls.SIZE = cls._layout.size
        if swap is not None:
            option, first, second = swap
            order = [entry[0] for entry in declared]
            i, j = order.index(first), order.index(second)
            declared[i], declared[j] = declared[j], declared[i]
            cls._swap_option = option
            cls._swapped = Layout(name, cls, _place(declared))
        return cls

    return decorate


def _place(declared: list[tuple[str, int, bool, Any]]) -> tuple[FieldSpec, ...]:
    specs = []
    offset = 0
    for name, width, signed, default in declared:
        specs.append(FieldSpec(name, width, default, signed, offset))
        offset += width
    return tuple(specs)


def _words(specs: tuple[FieldSpec, ...]) -> list[tuple[FieldSpec, ...]] | None:
    """Cut the fields into words that `struct` knows; None when that is impossible."""
    if not specs:
        return []
    width = 0
    for count, spec in enumerate(specs, start=1):
        width += spec.width
        alone = isinstance(spec.default, bytes) or spec.signed
        if width in _WORD_CODES or (alone and count == 1):
            rest = _words(specs[count:])
            if rest is not None:
                return [specs[:count], *rest]
        if alone or width >= 64:
            return None
    return None


def _word_code(word: tuple[FieldSpec, ...]) -> str:
    if isinstance(word[0].default, bytes):
        return f"{word[0].width // 8}s"
    return "h" if word[0].signed else _WORD_CODES[sum(spec.width for spec in word)]


def _generate(
    name: str, cls: type[Header], words: list[tuple[FieldSpec, ...]], compiled: struct.Struct
) -> tuple[Callable[[Header], bytes], Callable[[Buffer, int], Header]]:
    """Write and compile the pack and unpack functions of one layout."""
    packed: list[str] = []
    read: dict[str, str] = {}
    good: list[str] = []
    for index, word in enumerate(words):
        shift = sum(spec.width for spec in word)
        parts = []
        for spec in word:
            value = f"h.{spec.name}"
            shift -= spec.width
            if isinstance(spec.default, bytes):
                good.append(f"len({value}) == {spec.width // 8}")
                read[spec.name] = f"w{index}"
            elif spec.signed:
                good.append(f"-0x8000 <= {value} < 0x8000")
                read[spec.name] = f"w{index}"
            else:
                good.append(f"not {value} >> {spec.width}")
                shifted = f"w{index} >> {shift}" if shift else f"w{index}"
                masked = f"{shifted} & {(1 << spec.width) - 1}"
                read[spec.name] = shifted if spec is word[0] else masked
            parts.append(f"{value} << {shift}" if shift else value)
        packed.append(" | ".join(parts))
    names = ", ".join(f"w{index}" for index in range(len(words)))
    arguments = ", ".join(f"{attribute}={expression}" for attribute, expression in read.items())
    source = (
        f"def pack(h):\n"
        f"    if {' and '.join(good)}:\n"
        f"        return pack_words({', '.join(packed)})\n"
        f"    raise value_error(h)\n"
        f"def unpack_from(buffer, offset):\n"
        f"    if offset + {compiled.size} > len(buffer):\n"
        f"        raise short_error(buffer, offset)\n"
        f"    {names}, = unpack_words(buffer, offset)\n"
        f"    return cls({arguments})\n"
    )

    def value_error(value: Header) -> WireError:
        return _value_error(name, words, value)

    def short_error(buffer: Buffer, offset: int) -> WireError:
        return WireError(
            f"{name} needs {compiled.size} bytes from byte {offset} on, "
            f"but the data ends after {len(buffer)} bytes"
        )

    namespace: dict[str, Any] = {
        "cls": cls,
        "pack_words": compiled.pack,
        "unpack_words": compiled.unpack_from,
        "value_error": value_error,
        "short_error": short_error,
    }
    exec(compile(source, f"<layout of {name}>", "exec"), namespace)
    return namespace["pack"], namespace["unpack_from"]


def _value_error(name: str, words: list[tuple[FieldSpec, ...]], value: Header) -> WireError:
    for word in words:
        for spec in word:
            given = getattr(value, spec.name)
            if isinstance(spec.default, bytes):
                if len(given) != spec.width // 8:
                    return WireError(
                        f"{name}.{spec.name} has {len(given)} bytes, must have {spec.width // 8}"
                    )
                continue
            low, high = (-0x8000, 0x7FFF) if spec.signed else (0, (1 << spec.width) - 1)
            if not low <= given <= high:
                return WireError(f"{name}.{spec.name} = {given}: allowed are {low}..{high}")
    return WireError(f"{name}: a value does not fit its field: {value}")
