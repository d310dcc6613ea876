# SPDX-License-Identifier: Apache-2.0
"""The policy file: how NICs spray, what they keep away from, and what full queues do.

    version: 1
    spray:
      mode: random                                 # random | round_robin | ecmp
      slots_per_plane: 32
      ev_min_active: 1                             # paths of a plane that are never retired
      probe_successes: 3                           # answered probes that bring a path back
    plane_weights: {0: 2, 3: 1}                    # default 1; 0: not used
    path_weights:                                  # default 1; the last entry that matches counts
      - {plane: 0, uplink: 1, weight: 0.5}
      - {plane: 0, uplink: 1, weight: 0, from_group: 0, to_group: 1}
    deny:
      planes: [2]
      switches: [p0t1-3]
      links: [[p0t0-0, p0t1-1], [h0-1, p1t0-0]]
    queues:                                        # of T0s and T1s; thresholds in % of queue_depth
      ecn_mark_mode: all                           # all | none
      ecn_min_threshold: 25                        # below: no mark
      ecn_max_threshold: 75                        # from here on: every packet
      packet_admission_fail_action: drop_and_trim  # drop_and_trim | drop
      packet_trim_threshold: 100
      packet_trim_size: 256                        # bytes of a trimmed frame, at most
    redundancy:                                    # WRITEs of these DSCPs are sent more than once
      - {dscp: 10, copies: 2, mode: planes}        # each copy on a plane of its own
      - {dscp: 11, copies: 2, mode: in_network}    # one plane, the T0 sends it on by two T1s

`deny` and weights change what senders choose; the static tables of the switches stay, so that
probes can still reach what is denied. `controller.overlay` says what a policy means for a given
fabric, `controller.queue_entries` what `queues` means for a switch, and `controller.copy_entries`
what `redundancy` means for a NIC.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mrc.options import DEFAULT_OPTIONS
from topologies.yaml_model import load_model

MAX_SLOTS_PER_PLANE = 4096
MIN_TRIM_BYTES = 122
"""A frame that is cut behind the TSETH: Ethernet, outer and inner IPv6, UDP, BTH, METH, TSETH."""

Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class PolicyError(Exception):
    """A policy that cannot be; the message names file or key, the fault and what is allowed."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Spray(_Model):
    """How a NIC picks the path of the next packet."""

    mode: Literal["random", "round_robin", "ecmp"] = Field(
        default="random", description="ecmp: no spraying, one path per flow, chosen by its hash"
    )
    slots_per_plane: int = Field(
        default=32, ge=1, le=MAX_SLOTS_PER_PLANE, description="per destination; a power of two"
    )

    ev_min_active: int = Field(
        default=1, ge=1, le=MAX_SLOTS_PER_PLANE, description="per destination and plane"
    )
    probe_successes: int = Field(
        default=3, ge=1, le=15, description="answers until a path that was lost is used again"
    )

    @field_validator("slots_per_plane")
    @classmethod
    def _power_of_two(cls, slots: int) -> int:
        if slots & slots - 1:
            raise ValueError(
                f"{slots} is not a power of two; allowed: 1, 2, 4 .. {MAX_SLOTS_PER_PLANE}"
            )
        return slots


class PathWeight(_Model):
    """The share of one path among the paths of its plane."""

    plane: int = Field(ge=0)
    uplink: int = Field(ge=0)
    weight: Weight
    from_group: int | None = Field(default=None, ge=0, description="only from this T0 group")
    to_group: int | None = Field(default=None, ge=0, description="only towards this T0 group")


class Deny(_Model):
    """What no sprayed or hashed packet may use."""

    planes: tuple[int, ...] = Field(default=(), strict=False)
    switches: tuple[str, ...] = Field(default=(), strict=False)
    links: tuple[Annotated[tuple[str, str], Field(strict=False)], ...] = Field(
        default=(), strict=False, description="T0-T1 or NIC-T0 links, as pairs of device names"
    )


Percent = Annotated[int, Field(ge=1, le=100)]


class Queues(_Model):
    """What switches do at egress queues that fill; the names are SAI's.

    Thresholds are percentages of the topology's queue_depth. Ports to hosts never mark.
    """

    ecn_mark_mode: Literal["all", "none"] = "all"
    ecn_min_threshold: Percent = Field(default=25, description="up to here no packet is marked")
    ecn_max_threshold: Percent = Field(
        default=75, description="from here on every ECT packet is, in between by chance"
    )
    packet_admission_fail_action: Literal["drop_and_trim", "drop"] = "drop_and_trim"
    packet_trim_threshold: Percent = Field(
        default=100, description="from here on packets that may be trimmed are"
    )
    packet_trim_size: int = Field(
        default=256,
        ge=MIN_TRIM_BYTES,
        le=0xFFFF,
        description="bytes; a packet with longer headers is not trimmed",
    )

    @field_validator("ecn_max_threshold")
    @classmethod
    def _in_order(cls, maximum: int, info: ValidationInfo) -> int:
        minimum = info.data.get("ecn_min_threshold", maximum)
        if maximum < minimum:
            raise ValueError(
                f"{maximum} is less than ecn_min_threshold {minimum}; allowed: {minimum}..100"
            )
        return maximum


class Redundancy(_Model):
    """A traffic class of which each WRITE packet is sent more than once."""

    dscp: int = Field(ge=0, le=63)
    copies: int = Field(default=2, ge=2, le=3)
    mode: Literal["planes", "in_network"] = Field(
        default="planes",
        description="planes: the sender's NIC sends each copy on another plane; in_network: its T0 "
        "sends two copies by different T1s",
    )

    @model_validator(mode="after")
    def _a_t0_makes_two(self) -> Redundancy:
        if self.mode == "in_network" and self.copies != 2:
            raise ValueError(f"mode in_network makes 2 copies, not {self.copies}; allowed: 2")
        return self

    @field_validator("dscp")
    @classmethod
    def _not_of_the_switches(cls, dscp: int) -> int:
        points = DEFAULT_OPTIONS.code_points
        taken = {
            points.trimmed: "trimmed packets",
            points.trimmed_lasthop: "packets trimmed on the last hop",
            points.control: "control packets",
        }
        if dscp in taken:
            raise ValueError(
                f"{dscp} is the DSCP of {taken[dscp]}; allowed: 0..63 without "
                f"{', '.join(map(str, sorted(taken)))}"
            )
        return dscp


class Policy(_Model):
    """A whole policy; without a file everything is sprayed evenly."""

    version: Literal[1] = 1
    spray: Spray = Spray()
    plane_weights: dict[int, Weight] = Field(default={})
    path_weights: tuple[PathWeight, ...] = Field(default=(), strict=False)
    deny: Deny = Deny()
    queues: Queues = Queues()
    redundancy: tuple[Redundancy, ...] = Field(default=(), strict=False)

    @field_validator("redundancy")
    @classmethod
    def _classes_differ(
        cls, classes: tuple[Redundancy, ...], info: ValidationInfo
    ) -> tuple[Redundancy, ...]:
        dscps = [item.dscp for item in classes]
        for dscp in dscps:
            if dscps.count(dscp) > 1:
                raise ValueError(f"DSCP {dscp} is in it twice; allowed: each once")
        spray = info.data.get("spray")
        if classes and spray is not None and spray.mode == "ecmp":
            raise ValueError(
                "spray mode ecmp gives each flow one path; allowed with redundancy: "
                "random, round_robin"
            )
        return classes


class _VersionedPolicy(Policy):
    version: Literal[1]  # a file must say which format it is in


def load_policy(path: str | Path) -> Policy:
    """Reads a policy file; raises `PolicyError`. Names and numbers are checked against a fabric by
    `controller.overlay.bind`."""
    loaded = load_model(path, _VersionedPolicy, PolicyError, "policy")
    return Policy(**dict(loaded))
