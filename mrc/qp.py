# SPDX-License-Identifier: Apache-2.0
"""A queue pair's two ends and its parameters, as both halves of it need them.

A QP is one requester and one responder at each end. A packet names the QP number of its receiver
only, so both ends learn each other's address and number before the first packet (`connect_qp`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mrc.headers import Ipv6, Udp
from mrc.opcodes import ECN_ECT0, ECN_NOT_ECT, EV_CHOSEN, PSN_MODULUS
from mrc.options import WireOptions

MPR_UNIT = 128  # packets (section 5)
INFINITE_EXP_CNT = 25  # of `exp_cnt`: the exponential phase never ends (section 4.3)
_MAX_DOUBLINGS = 16


class QpState(StrEnum):
    """Where a QP is in its life. RESET and RTR have no use here before issue 5's attributes."""

    INIT = "INIT"  # has a number, knows no peer
    RTS = "RTS"  # connected
    ERROR = "ERROR"


class QpError(StrEnum):
    """Why a QP is in ERROR."""

    RETRY_COUNTER = "retry counter exceeded"
    REMOTE_OPERATION = "remote operation error"  # NACK UNEXP_EVENT
    REMOTE_ACCESS = "remote access error"  # AETH NAK: R_Key or bounds
    CANCELLED = "write cancelled"  # by its client; a posted write can only be flushed


@dataclass(frozen=True, slots=True)
class Peering:
    """Who talks to whom: addresses of 16 bytes, QP numbers of 24 bits, our UDP source port."""

    address: bytes
    qp: int
    peer_address: bytes
    peer_qp: int
    source_port: int

    def control_header(self, path_ev: int, options: WireOptions) -> Ipv6:
        """IPv6 header of a SACK or NACK on the path on which `path_ev` has just come in.

        The way back over the same links is the best guess at a path that works (EV probes are
        answered so, too), until there is a reverse EV set (section 4.4).
        """
        return Ipv6(
            dscp=options.code_points.control,
            ecn=ECN_NOT_ECT,
            flow_label=EV_CHOSEN << 16 | path_ev & 0xFFFF,
            source=self.address,
            destination=self.peer_address,
        )

    def data_header(self, dscp: int, flow_label: int) -> Ipv6:
        """IPv6 header of data and probes; with flow label 0 the NIC sprays them."""
        return Ipv6(
            dscp=dscp,
            ecn=ECN_ECT0,
            flow_label=flow_label,
            source=self.address,
            destination=self.peer_address,
        )

    def udp(self, options: WireOptions) -> Udp:
        """UDP header; the source port is half of the QP's EVs and never changes."""
        return Udp(self.source_port, options.udp_ports[0])


@dataclass(frozen=True, slots=True)
class ResponderParameters:
    """Choices of the responder (section 5); the specification leaves the numbers open.

    `mpr`: PSNs beyond the cumulative one that are taken. `sack_gen_threshold`: a SACK at the
    latest after so many new packets. `nack_beyond_window`: section 9 #7, PSN_OOR_WINDOW (True)
    or silence (False).
    """

    mpr: int = 8 * MPR_UNIT
    sack_gen_threshold: int = 16
    nack_beyond_window: bool = True


@dataclass(frozen=True, slots=True)
class RequesterParameters:
    """Choices of the requester (section 4.3).

    `mpr`: PSNs beyond the cumulative one that may be in flight, at most the responder's.

    A PSN that a SACK reports as missing counts as lost when something that was sent at least
    `reorder_ns` + 4 * (mean deviation of the round trip) and `reorder_packets` transmissions later
    has been answered. That guard is what spraying may reorder without a retransmission; a
    spurious one makes the NIC retire a good path.

    `timeout`: local ACK timeout of 1.024 * 2^timeout us without any new acknowledgement; it stays
    so `linear_cnt` times, then doubles `exp_cnt` times, then the QP fails. The specification's
    `RETRY_CNT` is their sum.

    `initial_rtt_ns` stands for the round trip until one has been measured.
    """

    mpr: int = 8 * MPR_UNIT
    reorder_ns: int = 10_000_000
    reorder_packets: int = 3
    timeout: int = 20
    linear_cnt: int = 3
    exp_cnt: int = 2
    initial_rtt_ns: int = 100_000_000

    def ack_timeout_ns(self, retries: int) -> int:
        """How long to wait for an acknowledgement after `retries` timeouts in a row."""
        doublings = min(max(0, retries - self.linear_cnt + 1), _MAX_DOUBLINGS)
        return 1024 << self.timeout + doublings

    def exhausted(self, retries: int) -> bool:
        """Whether so many retries without progress are too many."""
        return self.exp_cnt < INFINITE_EXP_CNT and retries >= self.linear_cnt + self.exp_cnt

    def retry_time_ns(self) -> int:
        """From the last sign of life of the peer to the QP's error, at the most."""
        return sum(self.ack_timeout_ns(n) for n in range(self.linear_cnt + self.exp_cnt))


def wrapped(sequence: int) -> int:
    """The PSN of an unbounded sequence number, which is what both halves count with."""
    return sequence % PSN_MODULUS


def unwrapped(psn: int, near: int) -> int:
    """The sequence number of `psn` that is nearest to the sequence number `near`."""
    half = PSN_MODULUS // 2
    return near + (psn - near + half) % PSN_MODULUS - half
