# SPDX-License-Identifier: Apache-2.0
"""What the agent and its clients say to each other: commands' parameters and answers as types.

Each is a frozen dataclass whose fields hold JSON values, checked when it is made. `from_json`
refuses unknown and missing keys. The protocol around them is described in `mrc.agent`.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

MAX_REGION_BYTES = 256 << 20
PATH_MTUS = (256, 512, 1024, 2048, 4096)
MAX_BURST = 256
DEFAULT_SOURCE_PORT = 0xC000
_U16, _U24, _U32, _U64 = ((1 << bits) - 1 for bits in (16, 24, 32, 64))

Check = Callable[[Any], str | None]


class MessageError(ValueError):
    """A parameter that is unknown, missing or out of range; says which and what is allowed."""


def _checked(check: Check, **keywords: Any) -> Any:
    return field(metadata={"check": check}, **keywords)


def _integer(low: int, high: int) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        return f"an integer {low}..{high}"

    return check


def _number(low: float, high: float) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return None
        return f"a number {low:g}..{high:g}"

    return check


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _one_of(allowed: tuple[int, ...]) -> Check:
    return lambda value: None if value in allowed else f"one of {allowed}"


def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _ipv6(value: Any) -> str | None:
    try:
        socket.inet_pton(socket.AF_INET6, value)
    except (OSError, TypeError):
        return "an IPv6 address as text"
    return None


def _mac(value: Any) -> str | None:
    try:
        mac_bytes(value)
    except (ValueError, AttributeError):
        return "a MAC address like 02:00:00:00:00:01"
    return None


def _path_evs(value: Any) -> str | None:
    check = _integer(0, _U16)
    if isinstance(value, list) and value and not any(check(item) for item in value):
        return None
    return f"a list of at least one path EV, each 0..{_U16}"


def _ranges(value: Any) -> str | None:
    check = _integer(0, _U32)
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, list) and len(item) == 2 for item in value)
        and not any(check(number) for item in value for number in item)
    ):
        return None
    return "a list of at least one [offset, length] in bytes"


def mac_bytes(text: str) -> bytes:
    """The six bytes of a MAC address such as 02:00:00:00:00:01; ValueError when it is none."""
    parts = text.split(":")
    if len(parts) != 6 or any(len(part) != 2 for part in parts):
        raise ValueError(f"{text!r} is no MAC address")
    return bytes(int(part, 16) for part in parts)


def ipv6_bytes(text: str) -> bytes:
    """The 16 bytes of an IPv6 address; OSError when it is none."""
    return socket.inet_pton(socket.AF_INET6, text)


@dataclass(frozen=True, slots=True)
class Message:
    """Base: checks every field when made."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            check: Check | None = item.metadata.get("check")
            value = getattr(self, item.name)
            allowed = check(value) if check else None
            if allowed:
                raise MessageError(f"{item.name} = {value!r}: must be {allowed}")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Make one from a JSON object; MessageError names the key and what is allowed."""
        items = {item.name: item for item in dataclasses.fields(cls)}
        allowed = ", ".join(items) or "none"
        for name in values:
            if name not in items:
                raise MessageError(f"unknown parameter {name!r}: allowed are {allowed}")
        for name, item in items.items():
            required = (
                item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            )
            if required and name not in values:
                raise MessageError(f"parameter {name!r} is missing: allowed are {allowed}")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `from_json` makes this from."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Nothing(Message):
    """Parameters of a command that has none."""


@dataclass(frozen=True, slots=True)
class RegisterRequest(Message):
    """Register a memory region of `length` zero bytes; what is None the agent chooses."""

    length: int = _checked(_integer(1, MAX_REGION_BYTES))
    va: int | None = _checked(_optional(_integer(0, _U64)), default=None)
    rkey: int | None = _checked(_optional(_integer(0, _U32)), default=None)

    def __post_init__(self) -> None:
        super(RegisterRequest, self).__post_init__()
        if self.va is not None and self.va + self.length > _U64:
            raise MessageError(f"va = {self.va}: {self.length} bytes from there exceed 64 bits")


@dataclass(frozen=True, slots=True)
class RegionInfo(Message):
    """Where a region lies, for the writer."""

    va: int
    rkey: int
    length: int


@dataclass(frozen=True, slots=True)
class RegionRequest(Message):
    """Parameters of `read_digest` and `deregister`."""

    rkey: int = _checked(_integer(0, _U32))


@dataclass(frozen=True, slots=True)
class Digest(Message):
    """State of a region.

    `bytes_placed` counts every byte that was written, repeated ones too; `bytes_present` those
    that have arrived at least once; `missing` lists the others as [offset, length].
    """

    sha256: str
    length: int
    bytes_placed: int
    bytes_present: int
    missing: list[list[int]]


@dataclass(frozen=True, slots=True)
class WriteRequest(Message):
    """Write `length` bytes, the data of `seed`, as one RDMA WRITE message.

    `mac` is the next hop's. `payload` is the path MTU in bytes (None: the largest that fits the
    interface's MTU less the 40 bytes of an outer header). `rate` is in packets per second (None:
    unpaced), never more than `burst` at once. `path_ev` sends all on that path; else the NIC
    sprays. With `immediate` the last packet carries it. `ranges`, as [offset, length], re-sends
    only the packets that overlap them, with rtx = 1; this needs `first_psn` and `msn` (and `rqmsn`)
    as the first sending's answer gave them. Else they number the message when given, and the QP's
    own counters do otherwise. `dscp` None: TRIMMABLE, or TRIMMABLE_RETX when re-sending.

    `reliable`: acknowledged and repeated until all has arrived, on the connected QP `own_qp`, whose
    peer `address` and `qp` must be. The QP numbers the packets; `path_ev` then holds for what is
    sent the first time only, and a given `dscp` for everything. `source_port` None: the QP's, or
    0xC000 for a write that is not reliable.
    """

    address: str = _checked(_ipv6)
    mac: str = _checked(_mac)
    qp: int = _checked(_integer(0, _U24))
    va: int = _checked(_integer(0, _U64))
    rkey: int = _checked(_integer(0, _U32))
    length: int = _checked(_integer(1, _U32))
    seed: int = _checked(_integer(0, _U64))
    source_port: int | None = _checked(_optional(_integer(1, _U16)), default=None)
    payload: int | None = _checked(_optional(_one_of(PATH_MTUS)), default=None)
    rate: float | None = _checked(_optional(_number(0.1, 1e7)), default=None)
    burst: int = _checked(_integer(1, MAX_BURST), default=32)
    path_ev: int | None = _checked(_optional(_integer(0, _U16)), default=None)
    immediate: int | None = _checked(_optional(_integer(0, _U32)), default=None)
    dscp: int | None = _checked(_optional(_integer(0, 63)), default=None)
    first_psn: int | None = _checked(_optional(_integer(0, _U24)), default=None)
    msn: int | None = _checked(_optional(_integer(0, _U16)), default=None)
    rqmsn: int | None = _checked(_optional(_integer(0, _U16)), default=None)
    ranges: list[list[int]] | None = field(default=None, metadata={"check": _optional(_ranges)})
    reliable: bool = _checked(_boolean, default=False)
    own_qp: int | None = _checked(_optional(_integer(0, _U24)), default=None)

    def __post_init__(self) -> None:
        super(WriteRequest, self).__post_init__()
        if self.va + self.length > _U64:
            raise MessageError(f"va = {self.va}: {self.length} bytes from there exceed 64 bits")
        if self.reliable != (self.own_qp is not None):
            raise MessageError("a reliable write needs own_qp, and only a reliable write has one")
        if self.reliable:
            for name in ("first_psn", "msn", "rqmsn", "ranges"):
                if getattr(self, name) is not None:
                    raise MessageError(
                        f"{name}: the QP numbers and repeats a reliable write itself"
                    )
        if self.ranges is None:
            return
        if self.first_psn is None or self.msn is None:
            raise MessageError("ranges need first_psn and msn, as the first sending answered them")
        for offset, length in self.ranges:
            if length == 0 or offset + length > self.length:
                raise MessageError(
                    f"ranges: [{offset}, {length}] must not be empty nor go beyond the message, "
                    f"which has {self.length} bytes"
                )


@dataclass(frozen=True, slots=True)
class CreateQpRequest(Message):
    """Make a QP, with a number of its own choice or of the agent's."""

    qp: int | None = _checked(_optional(_integer(0x10, _U24)), default=None)


@dataclass(frozen=True, slots=True)
class QpInfo(Message):
    """A QP and the address that it is reached at: what its peer must know."""

    qp: int
    address: str


@dataclass(frozen=True, slots=True)
class QpRequest(Message):
    """Parameters of `destroy_qp`."""

    qp: int = _checked(_integer(0, _U24))


@dataclass(frozen=True, slots=True)
class ConnectQpRequest(Message):
    """Tell a QP its peer and parameters; `mac` is the next hop's.

    `first_psn` numbers the first packet to the peer, `peer_first_psn` the first from there.
    `source_port` None: 0xC000 and the low 14 bits of `qp`. `mpr` is the window in units of 128
    packets. The others are those of `mrc.qp`.
    """

    qp: int = _checked(_integer(0, _U24))
    address: str = _checked(_ipv6)
    mac: str = _checked(_mac)
    peer_qp: int = _checked(_integer(0x10, _U24))
    source_port: int | None = _checked(_optional(_integer(1, _U16)), default=None)
    first_psn: int = _checked(_integer(0, _U24), default=0)
    peer_first_psn: int = _checked(_integer(0, _U24), default=0)
    mpr: int = _checked(_integer(1, 32), default=8)
    sack_gen_threshold: int = _checked(_integer(1, 256), default=16)
    timeout: int = _checked(_integer(0, 24), default=20)
    linear_cnt: int = _checked(_integer(0, 7), default=3)
    exp_cnt: int = _checked(_integer(0, 25), default=2)
    reorder_ns: int = _checked(_integer(0, 10**10), default=10_000_000)
    reorder_packets: int = _checked(_integer(0, 4096), default=3)

    def __post_init__(self) -> None:
        super(ConnectQpRequest, self).__post_init__()
        if self.linear_cnt + self.exp_cnt == 0:
            raise MessageError("linear_cnt + exp_cnt = 0: at least one timeout must be allowed")


@dataclass(frozen=True, slots=True)
class Delivery(Message):
    """How a reliable write came to be delivered.

    `retransmissions` by cause: gap, timeout, nack_<reason>. Times are nanoseconds from the start of
    the write. `*_path_evs` count SACKs with a mark and NACKs by path EV (EV[31:16], in decimal);
    which path a gap is due to only the NIC knows.
    """

    retransmissions: dict[str, int]
    first_loss_ns: int | None
    last_retransmission_ns: int | None
    sacks: int
    marked: int
    probes: int
    timeouts: int
    nacks: dict[str, int]
    marked_path_evs: dict[str, int]
    nacked_path_evs: dict[str, int]
    srtt_ns: int | None
    reorder_guard_ns: int


@dataclass(frozen=True, slots=True)
class WriteResult(Message):
    """What was sent. `send_errors` of the `packets` were lost on the way out, as far as known.

    `bytes` counts payload; `sha256` is that of the whole message (None when only ranges were
    sent); `first_psn`, `msn`, `rqmsn` and `payload` are what a re-sending needs. A reliable write
    has a `delivery`, and `packets` and `bytes` count each packet once.
    """

    packets: int
    bytes: int
    send_errors: int
    duration_ns: int
    sha256: str | None
    payload: int
    first_psn: int
    msn: int
    rqmsn: int
    delivery: Delivery | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        delivery = values.get("delivery")
        if delivery is not None:
            values = {**values, "delivery": Delivery.from_json(delivery)}
        return super(WriteResult, cls).from_json(values)


@dataclass(frozen=True, slots=True)
class ProbeTarget(Message):
    """What to probe: another host over chosen paths, or a loop back to this host.

    Either `address` and `path_evs` (EV probes, one path per EV), or `carrier` (a self-probe: the
    agent builds the outer header itself). `mac` is the next hop's.
    """

    mac: str = _checked(_mac)
    address: str | None = _checked(_optional(_ipv6), default=None)
    path_evs: list[int] | None = field(default=None, metadata={"check": _optional(_path_evs)})
    carrier: str | None = _checked(_optional(_ipv6), default=None)

    def __post_init__(self) -> None:
        super(ProbeTarget, self).__post_init__()
        if (self.address is None) != (self.path_evs is None) or (self.address is None) == (
            self.carrier is None
        ):
            raise MessageError("a target has either address and path_evs, or carrier")


@dataclass(frozen=True, slots=True)
class ProbeRequest(Message):
    """Send `count` probes to every path of every target, in turn over the paths.

    `rate` is in probes per second over all paths (None: unpaced); a probe whose answer takes
    longer than `timeout_s` seconds counts as lost.
    """

    targets: list[ProbeTarget]
    count: int = _checked(_integer(1, 100_000), default=1)
    rate: float | None = _checked(_optional(_number(0.1, 1e7)), default=5000.0)
    burst: int = _checked(_integer(1, MAX_BURST), default=8)
    timeout_s: float = _checked(_number(0.001, 60.0), default=0.5)
    source_port: int = _checked(_integer(1, _U16), default=0xC000)
    dscp: int | None = _checked(_optional(_integer(0, 63)), default=None)

    def __post_init__(self) -> None:
        super(ProbeRequest, self).__post_init__()
        if not isinstance(self.targets, list) or not self.targets:
            raise MessageError("targets: must be a list of at least one target")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        targets = values.get("targets")
        if isinstance(targets, list):
            made = []
            for number, target in enumerate(targets):
                if not isinstance(target, dict):
                    raise MessageError(f"targets[{number}] = {target!r}: must be an object")
                try:
                    made.append(ProbeTarget.from_json(target))
                except MessageError as error:
                    raise MessageError(f"targets[{number}]: {error}") from error
            values = {**values, "targets": made}
        return super(ProbeRequest, cls).from_json(values)


@dataclass(frozen=True, slots=True)
class PathResult(Message):
    """What became of the probes of one path of `targets[target]`.

    `rtt_ns` are the round trips of the `received` ones, in order of arrival. `late` answers came
    after the time-out, `duplicates` again; `send_errors` probes were lost on the way out (they
    are part of `sent`).
    """

    target: int
    path_ev: int | None
    carrier: str | None
    sent: int
    received: int
    late: int
    duplicates: int
    send_errors: int
    rtt_ns: list[int]


@dataclass(frozen=True, slots=True)
class ProbeResult(Message):
    """Answer to `probe`: one `PathResult` per path, in the order of targets and EVs."""

    duration_ns: int
    paths: list[PathResult]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        made = [PathResult(**path) for path in values["paths"]]
        return cls(duration_ns=values["duration_ns"], paths=made)
