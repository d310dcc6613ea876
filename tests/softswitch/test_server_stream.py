# SPDX-License-Identifier: Apache-2.0
"""Packet-in, packet-out and digests over gRPC, and their logic by itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from finsy.proto import p4d, p4r, rpc_code
from hypothesis import given
from hypothesis import strategies as st

from softswitch.digests import DigestQueue
from softswitch.p4info import DigestInfo, Value
from softswitch.p4types import Bits, Members
from softswitch.stream import OUTBOX_MESSAGES, Outbox, PacketHeader
from softswitch.values import Digest, PacketIn
from tests.softswitch.p4rt import (
    DELETE,
    INSERT,
    MODIFY,
    TIMEOUT_S,
    FakeDataplane,
    RawClient,
    Stream,
    codes,
    entity,
    serving,
    update,
)


class Setup:
    def __init__(self, address: str, dataplane: FakeDataplane) -> None:
        self.dataplane = dataplane
        self.client = RawClient(address)
        self.stream = self.client.stream()
        self.stream.arbitrate(1)
        self.client.set_pipeline()

    def backup(self) -> Stream:
        backup = self.client.stream()
        backup.arbitrate(0)
        return backup


@pytest.fixture
def setup() -> Iterator[Setup]:
    dataplane = FakeDataplane()
    with serving(dataplane) as address:
        setup = Setup(address, dataplane)
        yield setup
        setup.client.close()


def metadata(*values: bytes) -> list[Any]:
    return [p4r.PacketMetadata(metadata_id=i, value=v) for i, v in enumerate(values, 1)]


# --- packets ----------------------------------------------------------------------------------


def test_packet_out_gets_its_header(setup: Setup) -> None:
    setup.stream.send(
        packet=p4r.PacketOut(payload=b"frame", metadata=metadata(b"\x01\x02", b"\x00"))
    )
    assert setup.dataplane.sent.get(timeout=TIMEOUT_S) == b"\x81\x00frame"


def test_packet_out_without_padding_field(setup: Setup) -> None:
    setup.stream.send(packet=p4r.PacketOut(payload=b"frame", metadata=metadata(b"\x03")))
    assert setup.dataplane.sent.get(timeout=TIMEOUT_S) == b"\x01\x80frame"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (metadata(b"\x02\x00"), "packet_out.egress_port: 0x200 does not fit in 9 bits"),
        (metadata(b""), "empty byte string"),
        ([p4r.PacketMetadata(metadata_id=7, value=b"\x00")], "no metadata field 7; it has [1, 2]"),
        (metadata(b"\x01") + metadata(b"\x01"), "'egress_port' given twice"),
    ],
)
def test_wrong_packet_out_is_dropped_with_an_error(
    setup: Setup, fields: list[Any], message: str
) -> None:
    packet = p4r.PacketOut(payload=b"frame", metadata=fields)
    setup.stream.send(packet=packet)
    error = setup.stream.receive("error")
    assert error.canonical_code == rpc_code.INVALID_ARGUMENT
    assert message in error.message
    assert error.packet_out.packet_out == packet
    assert setup.dataplane.sent.empty()


def test_only_the_primary_sends_and_receives_packets(setup: Setup) -> None:
    backup = setup.backup()
    backup.send(packet=p4r.PacketOut(payload=b"frame", metadata=metadata(b"\x01")))
    assert backup.receive("error").canonical_code == rpc_code.PERMISSION_DENIED
    setup.dataplane.events.put(PacketIn(b"\x81\x00frame"))
    packet = setup.stream.receive("packet")
    assert packet.payload == b"frame"
    assert list(packet.metadata) == metadata(b"\x01\x02", b"\x00")
    assert backup.responses.empty()


def test_primary_of_every_role_receives_packets(setup: Setup) -> None:
    blue = setup.client.stream()
    blue.arbitrate(1, role="blue")
    setup.dataplane.events.put(PacketIn(b"\x81\x00frame"))
    assert setup.stream.receive("packet") == blue.receive("packet")


def test_packets_come_in_order(setup: Setup) -> None:
    for i in range(1000):
        setup.dataplane.events.put(PacketIn(b"\x00\x80" + i.to_bytes(2, "big")))
    got = [setup.stream.receive("packet").payload for _ in range(1000)]
    assert got == [i.to_bytes(2, "big") for i in range(1000)]


def test_packet_before_arbitration_or_program() -> None:
    with serving(FakeDataplane()) as address:
        client = RawClient(address)
        stream = client.stream()
        stream.send(packet=p4r.PacketOut(payload=b"frame"))
        assert stream.receive("error").canonical_code == rpc_code.PERMISSION_DENIED
        stream.arbitrate(1)
        stream.send(packet=p4r.PacketOut(payload=b"frame"))
        assert stream.receive("error").canonical_code == rpc_code.FAILED_PRECONDITION
        client.close()


def test_packet_out_while_the_program_is_replaced(setup: Setup) -> None:
    setup.dataplane.loading = threading.Event()
    pushing = threading.Thread(target=setup.client.set_pipeline)
    pushing.start()
    try:
        # The push has been taken up when the switch refuses packets.
        for _ in range(1000):
            setup.stream.send(packet=p4r.PacketOut(payload=b"frame", metadata=metadata(b"\x01")))
            try:
                setup.dataplane.sent.get(timeout=0.01)
            except queue.Empty:
                break
        assert setup.stream.receive("error").canonical_code == rpc_code.FAILED_PRECONDITION
    finally:
        setup.dataplane.loading.set()
        pushing.join()


def test_unknown_stream_messages(setup: Setup) -> None:
    setup.stream.send(other={"type_url": "type.googleapis.com/x.Y"})
    error = setup.stream.receive("error")
    assert error.canonical_code == rpc_code.UNIMPLEMENTED
    assert error.other.other.type_url == "type.googleapis.com/x.Y"
    setup.stream.send()
    assert setup.stream.receive("error").canonical_code == rpc_code.INVALID_ARGUMENT


def test_runt_on_the_cpu_port_is_dropped(setup: Setup) -> None:
    setup.dataplane.events.put(PacketIn(b"\x81"))
    setup.dataplane.events.put(PacketIn(b"\x81\x00ok"))
    assert setup.stream.receive("packet").payload == b"ok"


@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=8).flatmap(
        lambda widths: st.tuples(
            st.just(widths), st.tuples(*(st.integers(0, (1 << w) - 1) for w in widths))
        )
    ),
    st.binary(max_size=20),
)
def test_header_packs_and_unpacks(case: tuple[list[int], tuple[int, ...]], payload: bytes) -> None:
    widths, values = case
    widths.append(-sum(widths) % 8 or 8)
    fields = tuple(Value(i, f"f{i}", w) for i, w in enumerate(widths, 1))
    header = PacketHeader(fields, "header")
    numbers = [*values, 0]
    given_fields = [
        p4r.PacketMetadata(metadata_id=i, value=n.to_bytes(12, "big"))
        for i, n in enumerate(numbers, 1)
    ]
    packed = header.pack(reversed(given_fields))
    expected = 0
    for width, number in zip(widths, numbers, strict=True):
        expected = expected << width | number
    assert packed == expected.to_bytes(sum(widths) // 8, "big")
    packet = p4r.PacketIn()
    assert header.unpack(packed + payload, packet)
    assert packet.payload == payload
    assert [int.from_bytes(m.value, "big") for m in packet.metadata] == numbers
    assert all(len(m.value) == 1 or m.value[0] for m in packet.metadata)


def test_header_is_padded_at_its_end() -> None:
    header = PacketHeader((Value(1, "port", 9), Value(2, "target", 9)), "packet_in")
    given = [
        p4r.PacketMetadata(metadata_id=1, value=b"\x01\x02"),
        p4r.PacketMetadata(metadata_id=2, value=b"\x03"),
    ]
    assert header.pack(given) == (0x102 << 15 | 3 << 6).to_bytes(3, "big")
    packet = p4r.PacketIn()
    assert header.unpack((0x102 << 15 | 3 << 6 | 0x3F).to_bytes(3, "big") + b"rest", packet)
    assert list(packet.metadata) == given
    assert packet.payload == b"rest"


def test_slow_client_loses_packets_but_no_notices() -> None:
    outbox = Outbox()
    for i in range(OUTBOX_MESSAGES + 5):
        outbox.offer(i)
    outbox.notify("notice")
    assert outbox.dropped == 5


# --- digests over gRPC ------------------------------------------------------------------------


def digest_entry(setup: Setup, timeout_ns: int = 0, size: int = 0, ack_ns: int = 0) -> Any:
    return p4r.DigestEntry(
        digest_id=setup.client.id("digests", "learn_t"),
        config=p4r.DigestEntry.Config(
            max_timeout_ns=timeout_ns, max_list_size=size, ack_timeout_ns=ack_ns
        ),
    )


def learn(mac: int, port: int) -> Digest:
    return Digest("learn_t", [mac, port], 0)


def test_digest_configuration(setup: Setup) -> None:
    entry = digest_entry(setup, 5, 6, 7)
    change = [update(k, digest_entry=entry) for k in (MODIFY, DELETE, INSERT, INSERT)]
    assert codes(setup.client.outcomes(*change)) == [
        "NOT_FOUND",
        "NOT_FOUND",
        "OK",
        "ALREADY_EXISTS",
    ]
    assert setup.client.read(entity(digest_entry=p4r.DigestEntry()))[0].digest_entry == entry
    entry.config.max_list_size = 60
    setup.client.write(update(MODIFY, digest_entry=entry))
    query = p4r.DigestEntry(digest_id=entry.digest_id)
    assert setup.client.read(entity(digest_entry=query))[0].digest_entry == entry
    bad = digest_entry(setup, -1)
    assert codes(setup.client.outcomes(update(MODIFY, digest_entry=bad))) == ["INVALID_ARGUMENT"]
    setup.client.write(update(DELETE, digest_entry=entry))
    assert setup.client.read(entity(digest_entry=p4r.DigestEntry())) == []


def test_digest_list_and_ack(setup: Setup) -> None:
    setup.dataplane.events.put(learn(1, 1))  # not configured yet: dropped
    # Events are handled in order: once this packet is there, the digest before it was handled.
    setup.dataplane.events.put(PacketIn(b"\x81\x00frame"))
    setup.stream.receive("packet")
    entry = digest_entry(setup, 10**12, 2, 10**12)
    setup.client.write(update(INSERT, digest_entry=entry))
    for event in (learn(0xAA, 3), learn(0xAA, 3), learn(0xBB, 4)):
        setup.dataplane.events.put(event)
    lists = setup.stream.receive("digest")
    assert lists.digest_id == entry.digest_id
    assert lists.timestamp > 0
    struct = [p4d.P4Data(bitstring=b) for b in (b"\xaa", b"\x03")]
    assert lists.data[0] == p4d.P4Data(struct=p4d.P4StructLike(members=struct))
    assert len(lists.data) == 2

    # Known until acknowledged, then new again.
    for event in (learn(0xAA, 3), learn(1, 1), learn(2, 2)):
        setup.dataplane.events.put(event)
    assert len(setup.stream.receive("digest").data) == 2
    setup.stream.send(
        digest_ack=p4r.DigestListAck(digest_id=entry.digest_id, list_id=lists.list_id)
    )
    # Arbitration is answered after the ack was handled, because both take the same stream.
    setup.stream.arbitrate(1)
    for event in (learn(0xAA, 3), learn(0xBB, 4)):
        setup.dataplane.events.put(event)
    again = setup.stream.receive("digest")
    assert again.data == lists.data
    assert again.list_id != lists.list_id


def test_digest_timeout(setup: Setup) -> None:
    setup.client.write(update(INSERT, digest_entry=digest_entry(setup, 20_000_000, 100)))
    setup.dataplane.events.put(learn(1, 1))
    assert len(setup.stream.receive("digest").data) == 1


def test_ack_of_an_unknown_digest_and_by_a_backup(setup: Setup) -> None:
    ack = p4r.DigestListAck(digest_id=5, list_id=1)
    setup.stream.send(digest_ack=ack)
    error = setup.stream.receive("error")
    assert error.canonical_code == rpc_code.INVALID_ARGUMENT
    assert error.digest_list_ack.digest_list_ack == ack
    backup = setup.backup()
    backup.send(digest_ack=ack)
    assert backup.receive("error").canonical_code == rpc_code.PERMISSION_DENIED


def test_new_program_starts_without_digests(setup: Setup) -> None:
    setup.client.write(update(INSERT, digest_entry=digest_entry(setup)))
    setup.client.set_pipeline()
    assert setup.client.read(entity(digest_entry=p4r.DigestEntry())) == []


# --- digest queue -----------------------------------------------------------------------------


class FakeTimer:
    def __init__(self, clock: FakeClock, when: float, callback: Callable[[], object]) -> None:
        self.clock, self.when, self.callback = clock, when, callback

    def cancel(self) -> None:
        self.clock.timers.discard(self)


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.timers: set[FakeTimer] = set()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object], /) -> FakeTimer:
        timer = FakeTimer(self, when, callback)
        self.timers.add(timer)
        return timer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [t for t in self.timers if t.when <= end]:
            timer = min(due, key=lambda t: t.when)
            self.timers.discard(timer)
            self.now = timer.when
            timer.callback()
        self.now = end


class Learner:
    """A digest queue under a clock of its own; `sent` holds the lists as tuples of numbers."""

    def __init__(self, timeout_s: float, size: int, ack_s: float) -> None:
        info = DigestInfo(1, "d", "d", Members("struct", (Bits(8),)))
        self.clock = FakeClock()
        self.sent: list[tuple[int, ...]] = []
        self.queue = DigestQueue(info, self.clock, self._send)
        config = p4r.DigestEntry.Config(
            max_timeout_ns=int(timeout_s * 1e9), max_list_size=size, ack_timeout_ns=int(ack_s * 1e9)
        )
        self.queue.write(INSERT, p4r.DigestEntry(digest_id=1, config=config), None)

    def _send(self, message: Any) -> None:
        data = message.digest.data
        self.sent.append(tuple(d.struct.members[0].bitstring[0] for d in data))

    def add(self, *numbers: int) -> None:
        for number in numbers:
            self.queue.add((number,))


def test_list_size_and_timeout() -> None:
    learner = Learner(timeout_s=1, size=3, ack_s=0)
    learner.add(1, 1, 2)
    assert learner.sent == []
    learner.add(3, 4)
    assert learner.sent == [(1, 2, 3)]
    learner.clock.advance(0.9)
    assert len(learner.sent) == 1
    learner.clock.advance(0.2)
    assert learner.sent[1:] == [(4,)]
    learner.clock.advance(10)
    assert len(learner.sent) == 2, "an empty list is never sent"


def test_timeout_of_zero_sends_at_once() -> None:
    learner = Learner(timeout_s=0, size=10, ack_s=1)
    learner.add(1, 1, 2)
    assert learner.sent == [(1,), (2,)]


def test_list_size_of_zero_is_no_limit() -> None:
    learner = Learner(timeout_s=1, size=0, ack_s=0)
    learner.add(*range(200))
    learner.clock.advance(1)
    assert learner.sent == [tuple(range(200))]


def test_without_ack_timeout_nothing_is_remembered() -> None:
    learner = Learner(timeout_s=0, size=1, ack_s=0)
    learner.add(1, 1)
    assert learner.sent == [(1,), (1,)]


def test_unacknowledged_lists_expire_each_at_its_time() -> None:
    learner = Learner(timeout_s=0, size=1, ack_s=2)
    learner.add(1)
    learner.clock.advance(1)
    learner.add(2)
    learner.clock.advance(1.1)
    learner.add(1, 2)
    assert learner.sent == [(1,), (2,), (1,)]
    learner.clock.advance(1)
    learner.add(2)
    assert learner.sent[3:] == [(2,)]
    learner.clock.advance(100)
    assert not learner.clock.timers


def test_acknowledged_list_is_forgotten() -> None:
    learner = Learner(timeout_s=0, size=1, ack_s=100)
    learner.add(1)
    learner.queue.acknowledge(99)
    learner.add(1)
    learner.queue.acknowledge(1)
    learner.queue.acknowledge(1)
    learner.add(1)
    assert learner.sent == [(1,), (1,)]


def test_delete_stops_timers_and_drops_what_waits() -> None:
    learner = Learner(timeout_s=1, size=10, ack_s=1)
    learner.add(1)
    learner.queue.write(DELETE, p4r.DigestEntry(digest_id=1), None)
    assert not learner.clock.timers
    learner.add(2)
    learner.clock.advance(10)
    assert learner.sent == []


def test_smaller_list_size_takes_effect_at_once() -> None:
    learner = Learner(timeout_s=100, size=10, ack_s=0)
    learner.add(1, 2)
    config = p4r.DigestEntry.Config(max_timeout_ns=10**11, max_list_size=2)
    learner.queue.write(MODIFY, p4r.DigestEntry(digest_id=1, config=config), None)
    assert learner.sent == [(1, 2)]
