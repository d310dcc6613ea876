# SPDX-License-Identifier: Apache-2.0
"""Hashes and checksums: their inputs as a byte string, as BMv2 lays them out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from softswitch.bmjson import Arg, Calculation, FieldRef, HeaderRef, Op, SizedConst
from softswitch.codegen.layout import CrcLayout, words_of
from softswitch.codegen.names import Names, c_bytes, literal, mask_of
from softswitch.errors import Unsupported

_BYTES = "buf, bytes"
_CODE = {
    "crc16": f"ss_crc16({_BYTES})",
    "crc32": f"ss_crc32({_BYTES})",
    "crcCCITT": f"ss_crcCCITT({_BYTES})",
    "csum16": f"ss_csum16({_BYTES})",
    "cksum16": f"ss_csum16({_BYTES})",
    "identity": f"ss_identity({_BYTES})",
    "xor16": f"ss_xor16({_BYTES})",
    "xor32": f"ss_xor32({_BYTES})",
    "random": "ss_random(s->random)",
}
_CUSTOM = {
    "crc8_custom": CrcLayout("", 8, 0x07, 0, 0, False, False),
    "crc16_custom": CrcLayout("", 16, 0x8005, 0, 0, True, True),
    "crc32_custom": CrcLayout("", 32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True, True),
    "crc64_custom": CrcLayout("", 64, 0x1B, 0, 0, True, True),
}


def custom_crcs(calculations: Iterable[tuple[str, Calculation]]) -> tuple[CrcLayout, ...]:
    """The CRCs among named calculations whose parameters can be set, as BMv2 begins."""
    return tuple(
        replace(_CUSTOM[calculation.algorithm], name=name)
        for name, calculation in calculations
        if calculation.algorithm in _CUSTOM
    )


def hash_function(names: Names, calculation: Calculation, c_name: str, crc: int | None) -> str:
    """A C function `c_name(s, p, v)` that computes the calculation; `crc`: by a CRC of `s->crcs`.

    BMv2 leaves fields of invalid headers out and pads the last byte with zeros.
    """
    where = f"calculation {calculation.name}"
    if crc is not None:
        code = f"ss_crc(SS_LOAD(&s->crcs[{crc}]), {_BYTES})"
    elif calculation.algorithm in _CODE:
        code = _CODE[calculation.algorithm]
    else:
        raise Unsupported(
            where,
            f"algorithm {calculation.algorithm}; supported: {', '.join((*_CODE, *_CUSTOM))}",
        )
    pieces = [piece for item in calculation.inputs for piece in _pieces(names, item, where)]
    aligned = all(piece.width % 8 == 0 for piece in pieces)
    most = (sum(piece.width for piece in pieces) + 7) // 8
    lines = [
        f"static uint64_t {c_name}(struct ss_state *s, const struct ss_packet *p, "
        "const struct phv *v) {",
        "    (void)s, (void)p, (void)v;",
        f"    uint8_t buf[{most or 1}{' + SS_MAX_PACKET' if calculation.payload else ''}];",
        f"    memset(buf, 0, {most or 1});",
        "    uint32_t at = 0;",
    ]
    for piece in pieces:
        guard = f"if ({piece.valid}) " if piece.valid else ""
        lines.append(f"    {guard}{{ {_append(piece, aligned=aligned)} }}")
    lines.append("    uint32_t bytes = (at + 7) / 8;")
    if calculation.payload:
        lines.append("    uint32_t payload = p->len < SS_MAX_PACKET ? p->len : SS_MAX_PACKET;")
        lines.append("    if (payload > p->truncated) payload = p->truncated;")
        lines.append("    memcpy(buf + bytes, p->data, payload);")
        lines.append("    bytes += payload;")
    lines += ["    (void)bytes;", f"    return {code};"]
    return "\n".join([*lines, "}"])


@dataclass(frozen=True, slots=True)
class _Piece:
    """`width` bits of input that count when `valid` ("": always), `bytes` of variable length."""

    valid: str
    code: str
    width: int
    bytes: str = ""


def _append(piece: _Piece, *, aligned: bool) -> str:
    if piece.bytes:
        append = f"ss_append_bytes(buf, at, {piece.code}, {piece.bytes});"
        return f"{append} at += 8 * {piece.bytes};"
    if piece.width > 128:
        append = f"ss_limbs_append(buf, at, ({piece.code}).limb, {piece.width});"
    elif aligned:
        append = f"ss_put(buf + at / 8, {piece.code}, {piece.width // 8});"
    else:
        append = f"ss_append(buf, at, {piece.code}, {piece.width});"
    return f"{append} at += {piece.width};"


def _pieces(names: Names, item: Arg, where: str) -> list[_Piece]:
    """The fields of one input."""
    match item:
        case FieldRef(header, field):
            return [_field(names, header, field, where)]
        case Op("d2b", None, FieldRef(header, field), _):  # how p4c writes one of type bool
            return [_field(names, header, field, where)]
        case HeaderRef(header):
            fields = names.header(header, where).type.fields
            return [_field(names, header, field.name, where) for field in fields]
        case SizedConst(value, width):
            return [_Piece("", literal(value & mask_of(width), words_of(width)), width)]
        case _:
            raise Unsupported(where, f"input {item} is not supported")


def _field(names: Names, header: str, field: str, where: str) -> _Piece:
    declared = names.field(header, field, where)
    valid = "" if names.header(header, where).metadata else names.c_field(header, "$valid$")
    length = f"{names.c_header(header)}.{c_bytes(field)}" if declared.varbit else ""
    return _Piece(valid, names.c_field(header, field), declared.width, length)
