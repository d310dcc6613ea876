# SPDX-License-Identifier: Apache-2.0
"""Byte strings, P4Data types and the wire format of answers, by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from finsy.proto import p4d, p4i, p4r, p4t
from hypothesis import given
from hypothesis import strategies as st

from softswitch import wire
from softswitch.p4info import decode_unsigned, encode_unsigned, is_canonical, view
from softswitch.p4types import Bits, type_spec
from softswitch.status import Failure, batch_status, invalid


@given(st.integers(0, 1 << 140), st.integers(0, 5))
def test_unsigned_byte_strings(number: int, zeros: int) -> None:
    short = encode_unsigned(number)
    assert is_canonical(short)
    assert decode_unsigned(bytes(zeros) + short, number.bit_length() or 1, "x") == number
    if number > 1:
        with pytest.raises(Failure, match="does not fit"):
            decode_unsigned(short, number.bit_length() - 1, "x")


# The examples of P4Runtime 1.4, section 8.4, tables 5 and 6.
@pytest.mark.parametrize(
    ("width", "signed", "text", "value"),
    [
        (8, False, "63", 99),
        (16, False, "0063", 99),
        (16, False, "003064", 12388),
        (12, False, "000063", 99),
        (8, True, "63", 99),
        (8, True, "9d", -99),
        (8, True, "ff9d", -99),
        (12, True, "fd1d", -739),
        (16, True, "0000", 0),
        (8, False, "0163", None),
        (8, False, "", None),
        (16, False, "010063", None),
        (12, False, "1063", None),
        (12, False, "004063", None),
        (8, True, "009d", None),
        (12, True, "8d1d", None),
        (16, True, "", None),
    ],
)
def test_examples_of_the_specification(
    width: int, signed: bool, text: str, value: int | None
) -> None:
    bits = Bits(width, signed)
    if value is None:
        with pytest.raises(Failure):
            bits.from_bytes(bytes.fromhex(text), "x")
    else:
        raw = bits.from_bytes(bytes.fromhex(text), "x")
        assert raw == value % (1 << width)
        assert len(bits.to_bytes(raw)) <= len(text) // 2


@given(st.integers(1, 140), st.booleans(), st.data())
def test_bits_round_trip(width: int, signed: bool, data: st.DataObject) -> None:
    raw = data.draw(st.integers(0, (1 << width) - 1))
    bits = Bits(width, signed)
    text = bits.to_bytes(raw)
    assert bits.from_bytes(text, "x") == raw
    number = raw - (1 << width) if signed and raw >> (width - 1) else raw
    assert int.from_bytes(text, "big", signed=signed) == number
    if len(text) > 1:
        assert int.from_bytes(text[1:], "big", signed=signed) != number, "not the shortest"


def _types() -> Any:
    return p4t.P4TypeInfo(
        structs={
            "pair": p4t.P4StructTypeSpec(
                members=[
                    {"name": "a", "type_spec": {"bitstring": {"bit": {"bitwidth": 9}}}},
                    {"name": "b", "type_spec": {"bool": {}}},
                ]
            )
        },
        serializable_enums={"e": p4t.P4SerializableEnumTypeSpec(underlying_type={"bitwidth": 16})},
        new_types={
            "n": p4t.P4NewTypeSpec(original_type={"bitstring": {"bit": {"bitwidth": 32}}}),
            "t": p4t.P4NewTypeSpec(translated_type={"uri": "u", "sdn_bitwidth": 32}),
            "s": p4t.P4NewTypeSpec(translated_type={"uri": "u", "sdn_string": {}}),
        },
    )


def test_nested_types() -> None:
    spec = p4t.P4DataTypeSpec(
        tuple={
            "members": [
                {"struct": {"name": "pair"}},
                {"serializable_enum": {"name": "e"}},
                {"new_type": {"name": "n"}},
                {"new_type": {"name": "t"}},
                {"bitstring": {"int": {"bitwidth": 8}}},
            ]
        }
    )
    kind = type_spec(spec, _types(), "x")
    assert kind.length == 6
    values = [511, 1, 7, 5, 6, 0xFF]
    data = kind.encode(iter(values))
    assert data.tuple.members[0].struct.members[1] == p4d.P4Data(bool=True)
    assert data.tuple.members[1] == p4d.P4Data(enum_value=b"\x07")
    assert data.tuple.members[4] == p4d.P4Data(bitstring=b"\xff")
    assert kind.decode(data, "x") == values
    for wrong in (p4d.P4Data(), p4d.P4Data(bool=True), p4d.P4Data(tuple={"members": []})):
        with pytest.raises(Failure):
            kind.decode(wrong, "x")


@pytest.mark.parametrize(
    "spec",
    [
        {"struct": {"name": "missing"}},
        {"new_type": {"name": "s"}},
        {"error": {}},
        {"bitstring": {"varbit": {"max_bitwidth": 8}}},
        {},
    ],
)
def test_types_that_are_refused_by_name(spec: Any) -> None:
    with pytest.raises(Failure, match="digest 'd'"):
        type_spec(p4t.P4DataTypeSpec(**spec), _types(), "digest 'd'")


@given(st.integers(0, 1 << 70))
def test_varints(number: int) -> None:
    encoded = wire.varint(number)
    decoded = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(encoded))
    assert decoded == number
    assert [b >> 7 for b in encoded] == [1] * (len(encoded) - 1) + [0]


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_counter_data(packets: int, bytes_: int) -> None:
    data = p4r.CounterData.FromString(wire.counter_data(packets, bytes_))
    assert data == p4r.CounterData(packet_count=packets, byte_count=bytes_)


@given(st.lists(st.integers(0, 400_000), max_size=20))
def test_responses_hold_all_entities_in_order(sizes: list[int]) -> None:
    entities = [p4r.Entity(table_entry={"metadata": bytes(size)}) for size in sizes]
    answers = list(wire.responses(e.SerializeToString() for e in entities))
    assert max(map(len, answers)) < wire.RESPONSE_BYTES + 500_000
    assert [e for a in answers for e in p4r.ReadResponse.FromString(a).entities] == entities


def test_messages_of_a_large_failed_batch_fit_the_clients_limit() -> None:
    """finsy takes 64 KiB; every failure keeps its code."""
    status = batch_status([invalid("x" * 200)] * 1000, "Write")
    assert len(status) < 64 * 1024
    status = batch_status([None, invalid("y" * 200)] * 10, "Write")
    assert status.count(b"y" * 200) == 10


def test_p4info_with_a_string_translation_is_refused_by_name() -> None:
    info = p4i.P4Info(type_info=_types())
    action = info.actions.add(preamble={"id": 1, "name": "a"})
    action.params.add(id=1, name="port", bitwidth=9, type_name={"name": "s"})
    with pytest.raises(Failure, match="'port': its type 's' is translated to a string"):
        view(info)
    action.params[0].type_name.name = "t"
    (param,) = view(info).actions[1].params
    assert param.translated


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"action_refs": [{"id": 9}]}, "action id 9"),
        ({"implementation_id": 9}, "action profile id 9"),
        ({"direct_resource_ids": [9]}, "direct resource id 9"),
        (
            {"match_fields": [{"id": 1, "bitwidth": 8, "other_match_type": "odd"}]},
            "match type 'odd'",
        ),
        ({"match_fields": [{"id": 1, "bitwidth": 0, "match_type": 2}]}, "bitwidth 0"),
        ({"match_fields": [{"id": 1, "bitwidth": 8, "match_type": 2}] * 2}, "id twice"),
    ],
)
def test_p4info_that_contradicts_itself(table: Any, message: str) -> None:
    info = p4i.P4Info(tables=[{"preamble": {"id": 1, "name": "t"}, **table}])
    with pytest.raises(Failure) as caught:
        view(info)
    assert message in caught.value.message
