# SPDX-License-Identifier: Apache-2.0
"""Which link or T1 is behind it when paths go bad."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Network
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.addressing import DeviceKind
from controller.ev_events import path_devices
from controller.fabric import Fabric
from controller.suspects import BadPath, rank
from topologies.schema import Topology

# With two T0s the two links of a T1 have the same paths: three tell them apart.
LAB = Fabric.from_topology(
    Topology(
        name="three",
        block=IPv6Network("fcbb:bb00::/32"),
        planes=2,
        t0_per_plane=3,
        t1_per_plane=3,
        hosts_per_t0_group=2,
    )
)


def all_paths() -> Iterator[tuple[BadPath, list[str]]]:
    """Every path of every NIC, and the names of what it crosses in order."""
    for nic in LAB.devices(DeviceKind.NIC):
        for group in range(LAB.groups):
            for plane in range(LAB.planes):
                for uplink in range(LAB.uplinks if group != nic.group else 1):
                    crossed = path_devices(LAB, nic, group, plane, uplink)
                    names = [nic.name, *(device.name for device in crossed)]
                    yield BadPath(nic.name, group, plane, uplink), names


PATHS = list(all_paths())
LINKS = sorted(
    {frozenset(pair) for _, names in PATHS for pair in pairwise(names)},
    key=sorted,
)


def across(suspect: frozenset[str]) -> list[BadPath]:
    """The paths that cross a link or, of one name, a switch."""
    return [
        path
        for path, names in PATHS
        if (suspect <= set(names) if len(suspect) == 1 else suspect in links_of(names))
    ]


def links_of(names: list[str]) -> list[frozenset[str]]:
    return [frozenset(pair) for pair in pairwise(names)]


@given(st.sampled_from(LINKS))
def test_a_dead_link_is_the_first_one_and_counted_exactly(link: frozenset[str]) -> None:
    bad = across(link)
    first = rank(LAB, bad)[0]
    assert frozenset(first.names) == link
    assert (first.bad, first.paths, first.share) == (len(bad), len(bad), 1.0)


@given(st.sampled_from([device.name for device in LAB.devices(DeviceKind.T1)]))
def test_a_dead_t1_is_among_those_whose_paths_are_all_bad(name: str) -> None:
    bad = across(frozenset([name]))
    ranked = rank(LAB, bad)
    assert (name,) in [each.names for each in ranked if each.share == 1.0]
    assert all(name in each.names for each in ranked if each.share == 1.0)


@given(st.sampled_from(LINKS), st.data())
def test_part_of_a_links_paths_is_enough(link: frozenset[str], data: st.DataObject) -> None:
    bad = across(link)
    some = data.draw(st.lists(st.sampled_from(bad), min_size=1, unique=True))
    ranked = rank(LAB, some)
    (of_link,) = [each for each in ranked if frozenset(each.names) == link]
    assert of_link.bad == len(some)
    assert max(each.bad for each in ranked) == len(some)


def test_the_same_path_counts_once() -> None:
    path = BadPath("n0-0", 1, 0, 0)
    assert {each.bad for each in rank(LAB, [path, path])} == {1}


def test_nothing_bad_has_no_suspects() -> None:
    assert rank(LAB, []) == []


def test_a_path_that_the_fabric_does_not_have() -> None:
    with pytest.raises(IndexError, match="no path by plane 7"):
        rank(LAB, [BadPath("n0-0", 1, 7, 0)])
