# SPDX-License-Identifier: Apache-2.0
"""A requester and a responder joined by a simulated network, in simulated time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from mrc.memory import Memory
from mrc.messages import RegisterRequest
from mrc.pattern import Pattern, pattern_sha256
from mrc.qp import Peering, RequesterParameters, ResponderParameters
from mrc.requester import Posted, Probe, Requester, Transmission
from mrc.responder import Responder
from mrc.wire import (
    DEFAULT_OPTIONS,
    ECN_CE,
    ECN_ECT0,
    PSN_MODULUS,
    Aeth,
    Bth,
    Ipv6,
    Meth,
    Neth,
    Opcode,
    Packet,
    Peth,
    Seth,
    TrimmedPacket,
    Udp,
    WriteView,
)

MS = 1_000_000
PAYLOAD = 256
PORT = 0xC001
SENDER = Peering(b"\x01" * 16, 0x101, b"\x02" * 16, 0x202, PORT)
RECEIVER = Peering(b"\x02" * 16, 0x202, b"\x01" * 16, 0x101, 0xC002)


@dataclass(frozen=True)
class Faults:
    """What a direction of the network does to a packet; chances 0..1, delays in ns."""

    loss: float = 0.0
    duplication: float = 0.0
    trimming: float = 0.0
    marking: float = 0.0
    delay_ns: int = 1 * MS
    jitter_ns: int = 0  # on top of the delay, uniformly
    trimmed_delay_ns: int | None = None  # of trimmed packets, which overtake; None: as others


@dataclass
class Message:
    """A message of the simulation: where it goes, and its data."""

    va: int
    rkey: int
    length: int
    msn: int
    seed: int


@dataclass
class Network:
    """Both ends, what lies between them, and a clock."""

    forward: Faults = field(default_factory=Faults)
    backward: Faults = field(default_factory=Faults)
    seed: int = 0
    gap_ns: int = MS // 10  # between the sender's packets
    first_psn: int = 0
    requester_parameters: RequesterParameters = field(default_factory=RequesterParameters)
    responder_parameters: ResponderParameters = field(default_factory=ResponderParameters)
    peer_dead_from_ns: int | None = None

    def __post_init__(self) -> None:
        self.memory = Memory()
        self.requester: Requester[Message] = Requester(self.first_psn, self.requester_parameters)
        self.responder = Responder(RECEIVER, self.memory, self.first_psn, self.responder_parameters)
        self.now_ns = 0
        self.sent_psns: list[int] = []
        self.lost_psns: Counter[int] = Counter()  # on their way, by PSN
        self.trimmed_psns: Counter[int] = Counter()
        self.messages: list[tuple[Message, Posted[Message]]] = []
        self._random = random.Random(self.seed)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._wake_ns: int | None = None
        self._free_ns = 0  # when the sender may send its next packet

    def post(self, length: int) -> None:
        """Write a message of `length` bytes into a region of its own."""
        region = self.memory.register(RegisterRequest(length=length))
        number = len(self.messages)
        message = Message(region.va, region.rkey, length, number, seed=number)
        self.messages.append((message, self.requester.post(message, -(-length // PAYLOAD))))

    def run(self, limit_ns: int = 600_000 * MS) -> None:
        """Until nothing happens any more; AssertionError when the clock passes `limit_ns`."""
        self._turn()
        while self._events:
            self.now_ns, _, happen = heappop(self._events)
            assert self.now_ns <= limit_ns, "does not end"
            happen()

    def assert_written(self) -> None:
        """Every message is complete, and in memory just as it was sent."""
        assert self.requester.error is None
        for message, posted in self.messages:
            assert posted.complete
            digest = self.memory.region(message.rkey).digest()
            assert digest.missing == []
            assert digest.sha256 == pattern_sha256(message.seed, message.length)
            assert digest.bytes_placed == message.length, "a duplicate was written again"
        assert self.requester.outstanding == 0

    @property
    def retransmissions(self) -> Counter[str]:
        """By cause, of all messages."""
        total: Counter[str] = Counter()
        for _, posted in self.messages:
            total += posted.retransmissions
        return total

    def _at(self, time_ns: int, happen: Callable[[], None]) -> None:
        heappush(self._events, (time_ns, next(self._numbers), happen))

    def _turn(self) -> None:
        """The sender's turn: one packet, if its pace allows one."""
        self._wake_ns = None
        if self.now_ns < self._free_ns:
            return self._wake_at(self._free_ns)
        item = self.requester.poll(self.now_ns)
        if item is None:
            deadline = self.requester.deadline()
            if deadline is not None:
                self._wake_at(max(deadline, self.now_ns + 1))
            return None
        self._free_ns = self.now_ns + self.gap_ns
        self._wake_at(self._free_ns)
        if isinstance(item, Probe):
            self._carry(self.forward, lambda ecn: self._probe_arrives(item, ecn))
        else:
            self._transmit(item)
        return None

    def _wake_at(self, time_ns: int) -> None:
        if self._wake_ns is not None and self._wake_ns <= time_ns:
            return
        self._wake_ns = time_ns

        def wake() -> None:
            if self._wake_ns == time_ns:
                self._turn()

        self._at(time_ns, wake)

    def _transmit(self, item: Transmission[Message]) -> None:
        self.sent_psns.append(item.psn)
        message = item.message.content
        offset = item.number * PAYLOAD
        size = min(PAYLOAD, message.length - offset)
        data = bytes(Pattern(message.seed).read(offset, size))

        def arrive(ecn: int) -> None:
            self._answer(
                self.responder.on_write(
                    WriteView(
                        source=SENDER.address,
                        source_port=PORT,
                        flow_label=0x2001,
                        ecn=ecn,
                        opcode=Opcode.WRITE_MIDDLE,
                        dqp=RECEIVER.qp,
                        psn=item.psn,
                        rtx=item.rtx,
                        ack_request=item.ack_request,
                        tx_timestamp=0,
                        meth=Meth(0, message.msn),
                        va=message.va + offset,
                        rkey=message.rkey,
                        dma_length=message.length,
                        immediate=None,
                        payload=memoryview(data),
                    )
                )
            )

        def arrive_trimmed() -> None:
            packet = TrimmedPacket(
                Ipv6(dscp=8, flow_label=0x2001, source=SENDER.address),
                Udp(PORT),
                Bth(dqp=RECEIVER.qp, psn=item.psn),
                (),
                b"",
                last_hop=False,
            )
            self._answer(self.responder.on_trimmed(packet))

        if self._random.random() < self.forward.trimming:
            self.trimmed_psns[item.psn] += 1
            fast = self.forward.trimmed_delay_ns
            delay_ns = self._delay(self.forward) if fast is None else fast
            self._at(self.now_ns + delay_ns, arrive_trimmed)
        elif not self._carry(self.forward, arrive):
            self.lost_psns[item.psn] += 1

    def _probe_arrives(self, probe: Probe, ecn: int) -> None:
        self._answer(
            self.responder.on_probe(
                Packet(
                    Ipv6(ecn=ecn, flow_label=0x2001),
                    Udp(PORT),
                    Bth(opcode=Opcode.PROBE_REQUEST),
                    (Peth(probe_id=probe.probe_id),),
                )
            )
        )

    def _answer(self, packet: Packet | None) -> None:
        if packet is None:
            return
        if self.peer_dead_from_ns is not None and self.now_ns >= self.peer_dead_from_ns:
            return

        def arrive(_ecn: int) -> None:
            header = packet.headers[0]
            if isinstance(header, Seth):
                self.requester.on_sack(header, packet.headers[1], self.now_ns)
            elif isinstance(header, Neth):
                self.requester.on_nack(header, self.now_ns)
            else:
                assert isinstance(header, Aeth)
                self.requester.on_acknowledge(header)
            self._turn()

        packet.build(DEFAULT_OPTIONS)  # every value fits its field
        self._carry(self.backward, arrive)

    def _carry(self, faults: Faults, arrive: Callable[[int], None]) -> bool:
        """Carry a packet there, or lose it; whether one copy at least will arrive."""
        copies = 2 if self._random.random() < faults.duplication else 1
        carried = False
        for _ in range(copies):
            if self._random.random() < faults.loss:
                continue
            carried = True
            ecn = ECN_CE if self._random.random() < faults.marking else ECN_ECT0
            self._at(self.now_ns + self._delay(faults), partial(arrive, ecn))
        return carried

    def _delay(self, faults: Faults) -> int:
        return faults.delay_ns + self._random.randint(0, faults.jitter_ns)


def near_wrap(packets: int) -> int:
    """A first PSN with which so many packets cross the wrap in their middle."""
    return PSN_MODULUS - packets // 2
