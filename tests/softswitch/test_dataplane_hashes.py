# SPDX-License-Identifier: Apache-2.0
"""Custom CRCs against published check values, other algorithms that no recording can have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from softswitch.dataplane import Dataplane
from softswitch.errors import InvalidArgument
from softswitch.values import DataplaneOptions
from tests.softswitch.dataplanes import field, loaded, probe, program

CHECK: dict[str, Any] = {"d": int.from_bytes(b"12345678"), "a": ord("9")}
"""The fields of the calculation hold the string 123456789 then."""

# polynomial, initial remainder, final XOR, data and remainder reflected; the value for 123456789.
# From Greg Cook's catalogue of parametrised CRC algorithms.
CRC16 = {
    "ARC": ((0x8005, 0, 0, True, True), 0xBB3D),
    "XMODEM": ((0x1021, 0, 0, False, False), 0x31C3),
    "X-25": ((0x1021, 0xFFFF, 0xFFFF, True, True), 0x906E),
    "GENIBUS": ((0x1021, 0xFFFF, 0xFFFF, False, False), 0xD64E),
    "DDS-110": ((0x8005, 0x800D, 0, False, False), 0x9ECF),
}
CRC32 = {
    "ISO-HDLC": ((0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True, True), 0xCBF43926),
    "ISCSI": ((0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, True, True), 0xE3069283),
    "BZIP2": ((0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, False, False), 0xFC891918),
    "CKSUM": ((0x04C11DB7, 0, 0xFFFFFFFF, False, False), 0x765E7680),
}
CRC8 = {
    "SMBUS": ((0x07, 0, 0, False, False), 0xF4),
    "MAXIM-DOW": ((0x31, 0, 0, True, True), 0xA1),
}
CRC64 = {
    "ECMA-182": ((0x42F0E1EBA9EA3693, 0, 0, False, False), 0x6C40DF5F0B497347),
    "XZ": ((0x42F0E1EBA9EA3693, 2**64 - 1, 2**64 - 1, True, True), 0x995DC9BBDF1939FA),
}


def _set(dataplane: Dataplane, name: str, parameters: tuple[int, int, int, bool, bool]) -> None:
    polynomial, initial, final, data, remainder = parameters
    dataplane.hashes[name].set_crc(
        polynomial, initial, final, reflect_data=data, reflect_remainder=remainder
    )


def _named(dataplane: Dataplane, bits: int) -> str:
    return next(name for name, crc in dataplane.hashes.items() if crc.bits == bits)


@pytest.mark.parametrize("parameters", [CRC16, CRC32])
def test_custom_crcs_have_the_published_check_values(parameters: dict[str, Any]) -> None:
    bits = 16 if parameters is CRC16 else 32
    with loaded("hashes") as dataplane:
        name = _named(dataplane, bits)
        for values, expected in parameters.values():
            _set(dataplane, name, values)
            ((_, packet),) = dataplane.process(1, probe(op=4 if bits == 16 else 5, **CHECK))
            got = field(packet, "b") if bits == 16 else int.from_bytes(packet[2:6])
            assert got == expected
            crc = dataplane.hashes[name].parameters
            assert (crc.polynomial, crc.initial, crc.final_xor) == values[:3]


def _other_algorithm(name: str) -> bytes:
    """hashes.p4 with another algorithm instead of crc32_custom; 32 bits of its result are used."""
    raw = json.loads(program("hashes"))
    for calculation in raw["calculations"]:
        if calculation["algo"] == "crc32_custom":
            calculation["algo"] = name
    return json.dumps(raw).encode()


@pytest.mark.parametrize(("bits", "parameters"), [(8, CRC8), (64, CRC64)])
def test_crcs_that_only_bmv2_has(bits: int, parameters: dict[str, Any]) -> None:
    dataplane = Dataplane(DataplaneOptions())
    try:
        dataplane.load(_other_algorithm(f"crc{bits}_custom"))
        for values, expected in parameters.values():
            _set(dataplane, _named(dataplane, bits), values)
            ((_, packet),) = dataplane.process(1, probe(op=5, **CHECK))
            assert int.from_bytes(packet[2:6]) == expected & 0xFFFFFFFF
    finally:
        dataplane.close()


def test_a_random_hash_is_spread_and_follows_the_seed() -> None:
    drawn = []
    for _ in range(2):
        dataplane = Dataplane(DataplaneOptions(seed=3))
        dataplane.load(_other_algorithm("random"))
        results = [dataplane.process(1, probe(op=5))[0][1][2:6] for _ in range(200)]
        drawn.append(results)
        dataplane.close()
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 200
    assert 60 < sum(result[0] >= 128 for result in drawn[0]) < 140


def test_refused_parameters_leave_the_crc_as_it_was() -> None:
    with loaded("hashes") as dataplane:
        name = _named(dataplane, 16)
        before = dataplane.hashes[name].parameters
        for values in ((1 << 16, 0, 0), (1, 1 << 16, 0), (1, 0, -1)):
            with pytest.raises(InvalidArgument, match="does not fit 16 bits"):
                _set(dataplane, name, (*values, False, False))
        assert dataplane.hashes[name].parameters == before
        ((_, packet),) = dataplane.process(1, probe(op=4, **CHECK))
        assert field(packet, "b") == 0xBB3D
