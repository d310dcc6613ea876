# SPDX-License-Identifier: Apache-2.0
"""What readers of the MRC specification disagree on, as one set of named options.

Section numbers in the comments refer to the fact digest (`mrc_facts.md`); "9 #n" is row n of its
table of contradictions. The defaults are this project's choices.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class CodePoints:
    """DSCP values of MRC's traffic classes (section 3.14).

    The specification leaves the numbers to the deployment; these are this project's. All six must
    differ, or a receiver could not tell a trimmed packet from a whole one.
    """

    trimmable: int = 4
    no_trim: int = 0
    trimmable_retx: int = 5
    trimmed: int = 8
    trimmed_lasthop: int = 9
    control: int = 46

    def __post_init__(self) -> None:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in values.items():
            if not 0 <= value <= 63:
                raise ValueError(f"CodePoints.{name} = {value}: a DSCP is 0..63")
        if len(set(values.values())) != len(values):
            raise ValueError(f"CodePoints: the six DSCP values must differ, got {values}")


@dataclass(frozen=True, slots=True)
class WireOptions:
    """Choices for the disputed bits of the wire format; the default of each is this project's."""

    # 9 #1: RoCEv2's port is 4791 and most readers assume it; section 7.5.5.2 of the specification
    # prints 4971 (probably two digits swapped). The first is sent, all are accepted.
    udp_ports: tuple[int, ...] = (4791, 4971)

    # 9 #2: top two bits of BTH byte 1. IBTA and one reader: SE is bit 7, M bit 6 (False).
    # Three readers: M is bit 7, SE bit 6 (True). MRC uses neither in practice.
    bth_m_first: bool = False

    # 9 #3: EETH.op in byte 1, bits 3:2 (False; two readers, a third compatible) or 5:4 (True; one).
    eeth_op_high: bool = False

    # Section 3.8: no source states the bit order of the SACK bitmap. False: bit 0 (the least
    # significant) is the base PSN. True: bit 63 is; one worked example writes it leftmost.
    sack_bitmap_msb_first: bool = False

    # 9 #5 and #12: how flow label and UDP source port make the 32-bit entropy (EV). False:
    # flow_label[15:0] is EV[31:16] and the port EV[15:0] (two readers); True: the reverse (one).
    entropy_port_first: bool = False

    # Section 3.5: the unit of a timestamp with tsr = 1 is up to the implementation; one reader
    # says 1 us. With tsr = 0 it is 128 ns, undisputed.
    tsr1_unit_ns: int = 1000

    code_points: CodePoints = field(default_factory=CodePoints)

    def __post_init__(self) -> None:
        if not self.udp_ports or not all(0 < port <= 0xFFFF for port in self.udp_ports):
            raise ValueError(
                f"WireOptions.udp_ports = {self.udp_ports}: at least one port, each 1..65535"
            )
        if self.tsr1_unit_ns <= 0:
            raise ValueError(f"WireOptions.tsr1_unit_ns = {self.tsr1_unit_ns}: must be positive")


DEFAULT_OPTIONS = WireOptions()
