# SPDX-License-Identifier: Apache-2.0
"""The policy file: how NICs spray, and what they keep away from.

    version: 1
    spray: {mode: random, slots_per_plane: 32}     # random | round_robin | ecmp
    plane_weights: {0: 2, 3: 1}                    # default 1; 0: not used
    path_weights:                                  # default 1; the last entry that matches counts
      - {plane: 0, uplink: 1, weight: 0.5}
      - {plane: 0, uplink: 1, weight: 0, from_group: 0, to_group: 1}
    deny:
      planes: [2]
      switches: [p0t1-3]
      links: [[p0t0-0, p0t1-1], [h0-1, p1t0-0]]

A policy changes what senders choose; the static tables of the switches stay, so that probes can
still reach what is denied. `controller.overlay` says what a policy means for a given fabric.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from topologies.yaml_model import load_model

MAX_SLOTS_PER_PLANE = 4096

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


class Policy(_Model):
    """A whole policy; without a file everything is sprayed evenly."""

    version: Literal[1] = 1
    spray: Spray = Spray()
    plane_weights: dict[int, Weight] = Field(default={})
    path_weights: tuple[PathWeight, ...] = Field(default=(), strict=False)
    deny: Deny = Deny()


class _VersionedPolicy(Policy):
    version: Literal[1]  # a file must say which format it is in


def load_policy(path: str | Path) -> Policy:
    """Reads a policy file; raises `PolicyError`. Names and numbers are checked against a fabric by
    `controller.overlay.bind`."""
    loaded = load_model(path, _VersionedPolicy, PolicyError, "policy")
    return Policy(**dict(loaded))
