# SPDX-License-Identifier: Apache-2.0
"""Placement of WRITE packets, what is refused and why, and finding what is missing."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc.memory import Memory, Region
from mrc.messages import MessageError, RegisterRequest
from mrc.pattern import BLOCK_BYTES, Pattern, pattern_sha256
from mrc.wire import Bth, ImmDt, Ipv6, Meth, Opcode, Packet, Reth, Udp

VA, RKEY, LENGTH = 0x1000, 7, 1000


def packet(
    opcode: Opcode,
    va: int,
    payload: bytes,
    *,
    length: int = LENGTH,
    rkey: int = RKEY,
    psn: int = 0,
    rtx: int = 0,
    ecn: int = 2,
) -> bytes:
    headers: tuple[Meth | Reth | ImmDt, ...] = (Meth(3, 4), Reth(va, rkey, length))
    if opcode in (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM):
        headers = (*headers, ImmDt(0xABCD))
    return Packet(
        Ipv6(dscp=4, ecn=ecn, flow_label=0x2405, source=b"\x01" * 16),
        Udp(0xC000),
        Bth(opcode=opcode, dqp=17, psn=psn, rtx=rtx),
        headers,
        payload,
    ).build()


@pytest.fixture
def memory() -> Memory:
    made = Memory()
    made.register(RegisterRequest(length=LENGTH, va=VA, rkey=RKEY))
    return made


def give(memory: Memory, data: bytes | bytearray) -> None:
    memory.receive(memoryview(data))


def test_any_order_fills_the_region(memory: Memory) -> None:
    data = bytes(i % 251 for i in range(LENGTH))
    give(memory, packet(Opcode.WRITE_LAST, VA + 768, data[768:], psn=3))
    give(memory, packet(Opcode.WRITE_FIRST, VA, data[:256]))
    digest = memory.region(RKEY).digest()
    assert digest.missing == [[256, 512]]
    assert (digest.bytes_present, digest.bytes_placed) == (488, 488)
    give(memory, packet(Opcode.WRITE_MIDDLE, VA + 512, data[512:768], psn=2))
    give(memory, packet(Opcode.WRITE_MIDDLE, VA + 256, data[256:512], psn=1, rtx=1, ecn=3))
    give(memory, packet(Opcode.WRITE_FIRST, VA, data[:256], rtx=1))  # a duplicate
    digest = memory.region(RKEY).digest()
    assert digest.sha256 == hashlib.sha256(data).hexdigest()
    assert (digest.missing, digest.bytes_present, digest.bytes_placed) == ([], LENGTH, LENGTH + 256)
    source = memory.sources[b"\x01" * 16, 17, 0xC000]
    assert (source.packets, source.bytes, source.retransmitted) == (5, LENGTH + 256, 2)
    assert source.ce_marked == 1
    assert source.path_evs == {0x2405: 5}
    assert not memory.refused


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packet(Opcode.WRITE_MIDDLE, VA, b"x" * 8, rkey=8), "rkey"),
        (packet(Opcode.WRITE_MIDDLE, VA - 1, b"x" * 8), "bounds"),
        (packet(Opcode.WRITE_MIDDLE, VA + LENGTH - 7, b"x" * 8), "bounds"),
        (packet(Opcode.WRITE_MIDDLE, 0, b"x" * 8), "bounds"),
        (packet(Opcode.WRITE_MIDDLE, (1 << 64) - 4, b"x" * 8), "bounds"),
        (packet(Opcode.WRITE_ONLY, VA, b"x" * 8, length=9), "dma_length"),
        (packet(Opcode.WRITE_MIDDLE, VA, b"x" * 8, length=7), "dma_length"),
        (packet(Opcode.WRITE_FIRST, VA + 4, b"x" * 8, length=LENGTH - 3), "dma_length"),
        (packet(Opcode.WRITE_FIRST, VA, b"x" * 8, length=LENGTH + 1), "dma_length"),
        (packet(Opcode.WRITE_ONLY, VA, b"", length=0), "dma_length"),
        (packet(Opcode.WRITE_ONLY, VA, b"x" * 8, length=8)[:-1] + b"\xff", "icrc"),
        (packet(Opcode.WRITE_ONLY, VA, b"x" * 8, length=8)[:-5], "malformed"),
    ],
)
def test_what_is_refused_writes_nothing(memory: Memory, data: bytes, reason: str) -> None:
    give(memory, data)
    assert memory.refused == {reason: 1}
    assert memory.region(RKEY).data == bytes(LENGTH)
    assert memory.region(RKEY).digest().bytes_placed == 0
    assert not memory.sources


def test_a_wrong_udp_checksum_is_refused(memory: Memory) -> None:
    data = bytearray(packet(Opcode.WRITE_ONLY, VA, b"x" * 8, length=8))
    data[46] ^= 1  # the ICRC does not cover it
    give(memory, data)
    assert memory.refused == {"udp_checksum": 1}
    data[46:48] = b"\0\0"  # none
    give(memory, data)
    assert memory.region(RKEY).digest().bytes_present == 8


def test_immediates_are_recorded(memory: Memory) -> None:
    give(memory, packet(Opcode.WRITE_ONLY_IMM, VA, b"abc", length=3))
    give(memory, packet(Opcode.WRITE_LAST_IMM, VA + 3, b"abcd", length=7, rtx=1))
    first, second = memory.immediates
    assert (first.immediate, first.rqmsn, first.msn, first.qp, first.rtx) == (0xABCD, 3, 4, 17, 0)
    assert second.rtx == 1
    assert memory.immediates_received == 2


def test_registering() -> None:
    memory = Memory()
    first = memory.register(RegisterRequest(length=5000))
    second = memory.register(RegisterRequest(length=1))
    assert second.va >= first.va + 5000 + 4096
    assert first.rkey != second.rkey
    with pytest.raises(MessageError, match=f"rkey = {first.rkey}: is registered"):
        memory.register(RegisterRequest(length=1, rkey=first.rkey))
    memory.deregister(first.rkey)
    with pytest.raises(MessageError, match=f"registered are {second.rkey}"):
        memory.region(first.rkey)
    memory.deregister(second.rkey)
    with pytest.raises(MessageError, match="registered are none"):
        memory.deregister(second.rkey)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 30)), max_size=10))
def test_missing_ranges_are_exactly_what_was_not_placed(pieces: list[tuple[int, int]]) -> None:
    region = Region(0, 1, 130)
    present: set[int] = set()
    for offset, size in pieces:
        region.place(offset, memoryview(bytes(size)))
        present.update(range(offset, offset + size))
    digest = region.digest()
    missing = [set(range(start, start + size)) for start, size in digest.missing]
    assert set().union(*missing) == set(range(130)) - present
    assert digest.bytes_present == len(present)
    starts = [start for start, _ in digest.missing]
    assert starts == sorted(starts)
    assert all(a + n < b for (a, n), (b, _) in pairwise(digest.missing))


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 3 * BLOCK_BYTES), st.integers(0, 70000))
def test_pattern_parts_are_those_of_the_whole(seed: int, offset: int, length: int) -> None:
    whole = b"".join(Pattern(seed).blocks(offset + length))
    assert len(whole) == offset + length
    assert bytes(Pattern(seed).read(offset, length)) == whole[offset:]
    assert pattern_sha256(seed, len(whole)) == hashlib.sha256(whole).hexdigest()


def test_patterns_differ_by_seed() -> None:
    assert pattern_sha256(1, 100) != pattern_sha256(2, 100)
    with pytest.raises(ValueError, match="seed -1: allowed are 0"):
        Pattern(-1)


def test_ethernet_padding_is_no_payload(memory: Memory) -> None:
    data = packet(Opcode.WRITE_ONLY, VA, b"x" * 8, length=8)
    give(memory, data + bytes(10))  # Ethernet padding
    assert memory.region(RKEY).digest().bytes_present == 8
