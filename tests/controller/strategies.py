# SPDX-License-Identifier: Apache-2.0
"""Random fabrics for the laws of the controller's pure half."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from controller.fabric import Fabric
from topologies.schema import Topology, load_topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
BLOCKS = ["fcbb:bb00::/32", "2001:db8::/32", "5f00::/32"]


def shipped(name: str) -> Fabric:
    """The fabric of a topology file of the repository."""
    return Fabric.from_topology(load_topology(TOPOLOGIES / f"{name}.yaml"))


def fabric_of(planes: int, groups: int, uplinks: int, hosts: int, block: str = BLOCKS[0]) -> Fabric:
    """A fabric of these sizes."""
    return Fabric.from_topology(
        Topology.model_validate(
            {
                "name": "random",
                "block": block,
                "planes": planes,
                "t0_per_plane": groups,
                "t1_per_plane": uplinks,
                "hosts_per_t0_group": hosts,
            }
        )
    )


def fabrics(max_planes: int = 8, max_size: int = 5) -> st.SearchStrategy[Fabric]:
    """Small fabrics of every shape, with several locator blocks."""
    size = st.integers(1, max_size)
    return st.builds(
        fabric_of, st.integers(1, max_planes), size, size, size, st.sampled_from(BLOCKS)
    )
