# SPDX-License-Identifier: Apache-2.0
"""Which paths the slots of a NIC's spray groups name: arrays over all groups and planes at once.

A row is one plane of one spray group that sends to another T0 group. At full size a NIC has 4,088
rows of 32 slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller import addressing as addr
from controller.apportion import Counts, fill_slots
from controller.overlay import Floats

ALTERNATES = 3
"""Other paths of the plane that a slot names for when its own is not to be used."""


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of R rows of S slots each.

    row    (R, 2)                  index of the spray group, plane
    evs    (R, S, 1 + ALTERNATES)  path EV of the slot and its alternates
    paths  (R,)                    different paths in the row
    """

    row: Counts
    evs: Counts
    paths: Counts


def choose_slots(weights: Floats, dst_groups: Sequence[int], slots: int, seed: int) -> Slots:
    """The slots of spray groups towards `dst_groups`.

    `weights` (spray groups, planes, uplinks); where a plane has none above 0, it has no slots.
    Chance depends on seed, T0 group and plane only: what a policy says about one of them does not
    move the others' slots, and spray groups towards one T0 group have the same paths.
    """
    planes, uplinks = weights.shape[1:]
    # In the order of the T0 groups, each group's at its place whichever of them there are.
    shape = (max(dst_groups) + 1, planes, uplinks)
    exponential, rank = (
        np.random.default_rng([seed, purpose]).standard_exponential(shape) for purpose in range(2)
    )
    row = np.argwhere(np.any(weights > 0, axis=-1))
    spray_group, plane = row.T
    drawn = np.asarray(dst_groups, dtype=np.int64)[spray_group], plane
    chosen = fill_slots(weights[spray_group, plane], slots, exponential[drawn], rank[drawn])
    with_alternates, paths = alternates(chosen)
    evs = addr.path_ev_array(plane[:, np.newaxis, np.newaxis], with_alternates)
    return Slots(row, evs.astype(np.int64), paths)


def alternates(uplinks: Counts) -> tuple[Counts, Counts]:
    """For each slot of each row (R, S) its uplink and three others of the row: (R, S, 4); and the
    number of different uplinks in each row (R,).

    With fewer than four uplinks they repeat. Slots with the same uplink have different alternates
    as far as there are any, so that what a retired path carried spreads over the plane.
    """
    slots = uplinks.shape[1]
    order = np.argsort(uplinks, axis=1, kind="stable")
    ascending = np.take_along_axis(uplinks, order, axis=1)
    place = np.zeros_like(uplinks)  # of each uplink among the row's different ones
    np.cumsum(ascending[:, 1:] != ascending[:, :-1], axis=1, out=place[:, 1:])
    different = np.zeros_like(uplinks)
    np.put_along_axis(different, place, ascending, axis=1)
    count = place[:, -1] + 1
    own = np.empty_like(place)
    np.put_along_axis(own, order, place, axis=1)

    others = np.maximum(count - 1, 1)[:, np.newaxis, np.newaxis]
    stride = np.maximum(others // ALTERNATES, 1)
    steps = np.arange(slots)[:, np.newaxis] + stride * np.arange(ALTERNATES)
    after = (own[:, :, np.newaxis] + 1 + steps % others) % count[:, np.newaxis, np.newaxis]
    found = np.take_along_axis(different[:, np.newaxis, :], after, axis=2)
    return np.concatenate([uplinks[:, :, np.newaxis], found], axis=2), count
