# SPDX-License-Identifier: Apache-2.0
"""The values that cross the boundary between the data plane and its users.

All numbers are Python integers holding raw bits (a signed field of width w is given modulo 2**w).
Names are those of the BMv2 JSON: fully qualified P4 names, which P4Info has as preamble names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

MAX_QUEUE_DEPTH = 1 << 20
MAX_QUEUE_RATE = 1_000_000_000
"""Packets, and packets per second, of an egress queue."""


@dataclass(frozen=True, slots=True)
class FieldMatch:
    """One key of an entry, in the table's key order.

    `mask` is for ternary and optional keys (None: all bits), `prefix_len` for lpm keys, `high` for
    range keys (the range is value..high, both included). Bits of `value` that the mask or the
    prefix does not cover are ignored.
    """

    value: int
    mask: int | None = None
    prefix_len: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its parameters, in the order of its declaration."""

    name: str
    params: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberRef:
    """A member of the table's action profile, by handle."""

    member: int


@dataclass(frozen=True, slots=True)
class GroupRef:
    """A group of the table's action selector, by handle."""

    group: int


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What P4Runtime messages for one table look like, where all of its entries are plain ones.

    `fields` in key order: id, match type as P4Info numbers it, width in bits. `actions`: id, name,
    and id and width of each parameter. `timeouts`: entries may have idle time-outs.
    """

    id: int
    name: str
    needs_priority: bool
    fields: tuple[tuple[int, int, int], ...]
    actions: tuple[tuple[int, str, tuple[tuple[int, int], ...]], ...]
    timeouts: bool = False


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Rates in tokens per second, bursts in tokens; a token is a packet or a byte.

    With `single_rate` it is RFC 2697's meter: `pir` and `pburst` are those of `cir` and `cburst`,
    and `eburst` is the excess burst. Otherwise it is RFC 2698's, without `eburst`.
    """

    cir: int
    cburst: int
    pir: int
    pburst: int
    eburst: int = 0
    single_rate: bool = False


Counts = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""(packets, bytes) of green, yellow and red packets."""


@dataclass(frozen=True, slots=True)
class MeterState:
    """A meter; without a configuration it colors every packet green."""

    config: MeterConfig | None
    counts: Counts = ((0, 0), (0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that left through the CPU port, with the packet_in header put on by the program."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Digest:
    """One digest: the learn list's name, its fields in order, microseconds since the start."""

    name: str
    fields: list[int]
    timestamp: int


@dataclass(frozen=True, slots=True)
class PortStatus:
    """The interface of a port went up, or went down or away."""

    port: int
    up: bool


@dataclass(frozen=True, slots=True)
class PortStats:
    """What passed a port, and what did not, in packets and bytes since it was opened.

    `rx_dropped`: the receive ring was full, or no program is loaded. `tx_full`: the interface is
    slower than what is sent to it. `tx_dropped`: by its queueing discipline or a filter. `tx_down`:
    it was down or absent. `tx_errors`: the kernel refused otherwise, such as a packet above the
    MTU. `queue_dropped`: by the port's egress queues.
    """

    rx_packets: int
    rx_bytes: int
    rx_dropped: int
    rx_errors: int
    tx_packets: int
    tx_bytes: int
    tx_full: int
    tx_dropped: int
    tx_down: int
    tx_errors: int
    queue_dropped: int


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """A change of egress queues; None as port or priority: of all, as depth or rate: unchanged.

    `depth` in packets, at least 1; `rate` in packets per second, 0: sent at once.
    """

    port: int | None = None
    priority: int | None = None
    depth: int | None = None
    rate: int | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """One egress queue: packets that wait, its depth and rate (0: none), packets dropped by it."""

    port: int
    priority: int
    waiting: int
    depth: int
    rate: int
    dropped: int


def _no_ports() -> Mapping[int, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DataplaneOptions:
    """How a switch is set up. The defaults are simple_switch_grpc's.

    Attributes:
        device_id: P4Runtime device id; only shown in messages here.
        ports: port number (0 to 65535) to interface name.
        cpu_port: packets for it become events, `packet_out` enters there; None or 0: no such port.
        drop_port: an `egress_spec` of this value drops.
        queue_depth: packets that each egress queue holds before it drops at its tail.
        queues: depths and rates of single ports or queues, applied in this order.
        priority_queues: queues per port, 1 to 8; the highest number is served first.
        pcap_dir: directory that gets `<interface>_in.pcap` and `<interface>_out.pcap`.
        cache_dir: where compiled programs are kept; None: ${XDG_CACHE_HOME:-~/.cache}/softswitch.
        ring_bytes: receive ring per port; 4,096 packets, so that a thread that does not run for
            some milliseconds loses none.
        seed: of the program's random numbers; None: from the kernel.
        log_messages: whether the program's log_msg is logged (`softswitch.program`, level INFO).
    """

    device_id: int = 0
    ports: Mapping[int, str] = field(default_factory=_no_ports)
    cpu_port: int | None = None
    drop_port: int = 511
    queue_depth: int = 64
    queues: Sequence[QueueSetting] = ()
    priority_queues: int = 1
    pcap_dir: Path | None = None
    cache_dir: Path | None = None
    ring_bytes: int = 8 << 20
    seed: int | None = None
    log_messages: bool = False


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `ca` verifies clients' certificates, which `client_auth` demands."""

    certificate: Path
    key: Path
    ca: Path | None = None
    client_auth: bool = False
