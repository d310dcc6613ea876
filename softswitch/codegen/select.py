# SPDX-License-Identifier: Apache-2.0
"""Where the parser goes after a state: keys, values with masks, and value sets.

A key of any width is held in 64-bit words, lowest first, as value sets compare it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softswitch.bmjson import (
    Expr,
    FieldRef,
    LastField,
    LastUnionField,
    Lookahead,
    ParserState,
    Transition,
)
from softswitch.codegen.layout import WORD_BITS, ValueSetLayout, words_of
from softswitch.codegen.names import Names, c_member, c_words, field_of, literal, mask_of
from softswitch.codegen.packetbits import lookahead_guard, read_bits
from softswitch.errors import BadProgram, Unsupported


@dataclass(frozen=True, slots=True)
class _Key:
    """A key: what ends the parser when it cannot be read, and its words as C code."""

    width: int
    guard: str
    words: tuple[str, ...]


def value_set_layouts(names: Names) -> tuple[ValueSetLayout, ...]:
    """The program's value sets. One that no state selects on has no widths."""
    widths: dict[str, tuple[int, ...]] = {}
    for state in names.program.parser.states.values():
        for transition in state.transitions:
            if (name := transition.value_set) is None:
                continue
            where = f"parser state {state.name}"
            if name not in names.program.value_sets:
                raise BadProgram(f"{where}: there is no value set {name!r}")
            keys = tuple(key_width(names, key, where) for key in state.keys)
            if widths.setdefault(name, keys) != keys:
                raise Unsupported(name, f"used with keys of {widths[name]} and of {keys} bits")
    return tuple(
        ValueSetLayout(v.name, v.size, widths.get(v.name, ()))
        for v in names.program.value_sets.values()
    )


def key_width(names: Names, key: Expr | Lookahead, where: str) -> int:
    """Bits of a key."""
    match key:
        case Lookahead(_, width):
            return width
        case FieldRef(header, field):
            declared = names.field(header, field, where)
        case LastField(stack, field):
            declared = field_of(names.stack(stack, where).type, field, where)
        case LastUnionField(stack, member, field):
            declared = field_of(names.union_member(stack, member, where), field, where)
        case _:
            raise Unsupported(where, f"select over {key} is not supported")
    if declared.varbit:
        raise Unsupported(where, f"select over {declared.name} of variable length")
    return declared.width


def select(
    names: Names, state: ParserState, labels: Mapping[str, str], errors: Mapping[str, str]
) -> list[str]:
    """C lines that go to the next state's label.

    `errors` are statements that leave the parser with an error, by its name.
    """
    where = f"parser state {state.name}"
    keys = [_key(names, key, where, errors) for key in state.keys]
    lines = ["{"]
    for number, key in enumerate(keys):
        if key.guard:
            lines.append(f"    {key.guard}")
        for i, code in enumerate(key.words):
            # Not every key is looked at: a mask may be 0.
            lines.append(f"    const uint64_t k{number}_{i} = {code}; (void)k{number}_{i};")
    names_of_words = ", ".join(
        f"k{number}_{i}" for number, key in enumerate(keys) for i in range(len(key.words))
    )
    default, sets = "done", list(names.program.value_sets)
    for transition in state.transitions:
        target = "done" if transition.next_state is None else labels[transition.next_state]
        if transition.value_set is not None:
            number = sets.index(transition.value_set)
            key_array = f"(const uint64_t[]){{ {names_of_words} }}"
            test = f"ss_value_set_has(&s->value_sets[{number}], {key_array})"
        elif transition.value is None:
            default = target
            continue
        else:
            test = _case(transition, [key.width for key in keys], where)
        lines.append(f"    if ({test}) goto {target};")
    return [*lines, f"    goto {default};", "}"]


def _key(names: Names, key: Expr | Lookahead, where: str, errors: Mapping[str, str]) -> _Key:
    width = key_width(names, key, where)
    match key:
        case Lookahead(offset, _):
            words, end = [], offset + width
            for low in range(0, width, WORD_BITS):
                start = max(offset, end - low - WORD_BITS)
                words.append(f"(uint64_t){read_bits('data', start, end - low - start)}")
            return _Key(width, lookahead_guard(key, errors["PacketTooShort"]), tuple(words))
        case FieldRef(header, field):
            return _Key(width, "", tuple(c_words(names.c_field(header, field), width)))
        case LastField(stack, field):
            element = names.c_element(stack, f"{names.c_next(stack)} - 1")
        case LastUnionField(stack, member, field):
            element = names.c_union_element(stack, member, f"{names.c_next(stack)} - 1")
        case _:
            raise Unsupported(where, f"select over {key} is not supported")
    empty = f"if ({names.c_next(stack)} == 0) {errors['StackOutOfBounds']}"
    return _Key(width, empty, tuple(c_words(f"{element}.{c_member(field)}", width)))


def _case(transition: Transition, widths: Sequence[int], where: str) -> str:
    """C code of whether the keys have a value below a mask."""
    sizes = [(width + 7) // 8 for width in widths]
    value, mask = transition.value or b"", transition.mask
    if len(value) > sum(sizes) or (mask is not None and len(mask) > sum(sizes)):
        raise BadProgram(f"{where}: a select value of {len(value)} bytes, keys of {sum(sizes)}")
    value = value.rjust(sum(sizes), b"\0")
    mask = mask.rjust(sum(sizes), b"\0") if mask is not None else b"\xff" * sum(sizes)
    tests, at = [], 0
    for number, (size, width) in enumerate(zip(sizes, widths, strict=True)):
        bits = int.from_bytes(mask[at : at + size]) & mask_of(width)
        wanted = int.from_bytes(value[at : at + size]) & bits
        at += size
        for i in range(words_of(width)):
            ones = mask_of(min(WORD_BITS, width - WORD_BITS * i))
            part, bits_here = wanted >> WORD_BITS * i & ones, bits >> WORD_BITS * i & ones
            if bits_here == ones:
                tests.append(f"k{number}_{i} == {literal(part)}")
            elif bits_here:
                tests.append(f"(k{number}_{i} & {literal(bits_here)}) == {literal(part)}")
    return " && ".join(tests) or "true"
