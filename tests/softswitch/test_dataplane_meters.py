# SPDX-License-Identifier: Apache-2.0
"""Meters of the engine against a model of BMv2's: exact colors at any rate, at a set clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.dataplane import Dataplane
from softswitch.errors import NotFound
from softswitch.values import ActionCall, FieldMatch, MemberRef, MeterConfig, MeterState
from tests.softswitch.dataplanes import field, loaded, probe

HEADERS = 14 + 37
GREEN, YELLOW, RED = range(3)
BIG = (1 << 63) - 1


@pytest.fixture(scope="module")
def dataplane() -> Iterator[Dataplane]:
    with loaded("meters") as dataplane:
        yield dataplane


@dataclass
class Bucket:
    """Tokens that a bucket of this size and rate (per second) has, counted from one origin."""

    rate: int
    size: int
    origin_us: int
    tokens: int = 0
    given: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.size

    def fill(self, now_us: int) -> int:
        """Fill up; the tokens that find no room."""
        due = (now_us - self.origin_us) * self.rate // 10**6
        room = self.size - self.tokens
        fresh, self.given = due - self.given, due
        self.tokens += min(fresh, room)
        return max(fresh - room, 0)

    def take(self, tokens: int) -> bool:
        enough = self.tokens >= tokens
        self.tokens -= tokens if enough else 0
        return enough


class Model:
    """RFC 2698 as BMv2 has it, and RFC 2697; both color-blind."""

    def __init__(self, config: MeterConfig, now_us: int) -> None:
        self.single = config.single_rate
        self.committed = Bucket(config.cir, config.cburst, now_us)
        self.second = Bucket(config.pir, config.pburst, now_us)
        if self.single:
            self.second = Bucket(0, config.eburst, now_us)

    def color(self, now_us: int, tokens: int) -> int:
        over = self.committed.fill(now_us)
        if self.single:
            self.second.tokens = min(self.second.size, self.second.tokens + over)
            if self.committed.take(tokens):
                return GREEN
            return YELLOW if self.second.take(tokens) else RED
        self.second.fill(now_us)
        if not self.second.take(tokens):
            return RED
        return GREEN if self.committed.take(tokens) else YELLOW


RATES = st.one_of(st.integers(0, 20), st.integers(0, 10**7), st.just(BIG))
BURSTS = st.one_of(st.integers(0, 5), st.integers(0, 4000), st.just(BIG))
PACKETS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 10**9)),  # us until it
        st.integers(0, 200),  # bytes after the headers
    ),
    max_size=40,
)


@st.composite
def configs(draw: st.DrawFn) -> MeterConfig:
    cir, pir = sorted((draw(RATES), draw(RATES)))
    cburst = draw(BURSTS)
    if draw(st.booleans()):
        return MeterConfig(cir, cburst, pir, draw(BURSTS))
    return MeterConfig(cir, cburst, cir, cburst, draw(BURSTS), single_rate=True)


@settings(max_examples=60, deadline=None)
@given(configs(), PACKETS)
def test_arrays_color_like_the_model(
    dataplane: Dataplane, config: MeterConfig, packets: list[tuple[int, int]]
) -> None:
    now = 10**6
    dataplane.set_clock(now / 1e6)
    by_packets = dataplane.meters["ingress.by_packets"]
    by_bytes = dataplane.meters["ingress.by_bytes"]
    for meters in (by_packets, by_bytes):
        meters.configure(3, config)
        meters.count(3, ((0, 0),) * 3)
    counting_packets, counting_bytes = Model(config, now), Model(config, now)
    counts = [[0, 0] for _ in range(3)]
    for wait, size in packets:
        now += wait
        dataplane.set_clock(now / 1e6)
        ((_, left),) = dataplane.process(1, probe(op=3, payload=bytes(size)))
        length = HEADERS + size
        color = counting_packets.color(now, 1)
        assert field(left, "b") == color | counting_bytes.color(now, length) << 8
        counts[color][0] += 1
        counts[color][1] += length
    green, yellow, red = ((packets, bytes_) for packets, bytes_ in counts)
    assert by_packets.read(3) == MeterState(config, (green, yellow, red))


@settings(max_examples=30, deadline=None)
@given(configs(), PACKETS)
def test_direct_meters_color_like_the_model(
    dataplane: Dataplane, config: MeterConfig, packets: list[tuple[int, int]]
) -> None:
    now = 10**6
    dataplane.set_clock(now / 1e6)
    direct, indirect = dataplane.tables["ingress.direct"], dataplane.tables["ingress.indirect"]
    targets = dataplane.profiles["ingress.targets"]
    member = targets.add_member(ActionCall("ingress.profiled", (5,)))
    one = direct.insert([FieldMatch(2)], 0, ActionCall("ingress.report"))
    other = indirect.insert([FieldMatch(0, mask=1)], 1, MemberRef(member))
    direct.configure_meter(one, config)
    indirect.configure_meter(other, config)
    counting_packets, counting_bytes = Model(config, now), Model(config, now)
    for wait, size in packets:
        now += wait
        dataplane.set_clock(now / 1e6)
        ((_, left),) = dataplane.process(1, probe(x=2, payload=bytes(size)))
        assert field(left, "i") == counting_packets.color(now, 1)
        assert field(left, "c") == counting_bytes.color(now, HEADERS + size)
    assert direct.read_meter(one).config == config
    direct.delete(one)
    indirect.delete(other)
    targets.delete_member(member)


def test_meters_are_off_at_first_and_again() -> None:
    with loaded("meters") as dataplane:
        meters = dataplane.meters["ingress.by_packets"]
        assert meters.read(0) == MeterState(None)
        closed = MeterConfig(0, 0, 0, 0)
        for config, color in ((None, GREEN), (closed, RED), (None, GREEN)):
            meters.configure(0, config)
            ((_, left),) = dataplane.process(1, probe())
            assert field(left, "b") == color
        assert meters.read(0).counts == ((2, 2 * HEADERS), (0, 0), (1, HEADERS))


def test_a_miss_leaves_the_color_s_field_alone() -> None:
    with loaded("meters") as dataplane:
        direct = dataplane.tables["ingress.direct"]
        ((_, left),) = dataplane.process(1, probe(x=1))
        assert field(left, "i") == 0x77
        first = direct.insert([FieldMatch(1)], 0, ActionCall("NoAction"))
        direct.configure_meter(first, MeterConfig(0, 0, 0, 0))
        ((_, left),) = dataplane.process(1, probe(x=1))
        assert field(left, "i") == RED
        direct.delete(first)
        # Another entry in its place does not get its meter.
        again = direct.insert([FieldMatch(1)], 0, ActionCall("NoAction"))
        assert again == first
        ((_, left),) = dataplane.process(1, probe(x=1))
        assert field(left, "i") == GREEN


def test_cells_outside_and_entries_that_are_gone() -> None:
    with loaded("meters") as dataplane:
        meters = dataplane.meters["ingress.by_packets"]
        for index in (-1, 8):
            with pytest.raises(NotFound, match="allowed: 0 to 7"):
                meters.configure(index, None)
            with pytest.raises(NotFound, match="allowed: 0 to 7"):
                meters.read(index)
        with pytest.raises(NotFound):
            dataplane.tables["ingress.direct"].read_meter(5)
