# SPDX-License-Identifier: Apache-2.0
"""Programs and table entries for a running fabric, or for some devices of it."""

from __future__ import annotations

from collections.abc import Collection

from controller.entries import desired_entries
from controller.overlay import bind
from controller.policy import Policy
from controller.push import PushReport, push
from topologies.emulation import Emulation

CONNECT_TIMEOUT_S = 30.0


class ProgrammingError(Exception):
    """Devices that are not as the policy wants them; the message names each with the reason."""


async def program(
    emulation: Emulation, policy: Policy, only: Collection[str] | None = None
) -> PushReport:
    """Bring all devices (or `only` these) to what `policy` wants of them.

    Raises ProgrammingError when one is not as wanted then, PolicyError when the policy does not
    suit the fabric.
    """
    fabric = emulation.fabric
    overlay = bind(policy, fabric)
    names = emulation.inventory.devices if only is None else only
    desired = {name: desired_entries(fabric, name, overlay) for name in names}
    report = await push(emulation.inventory, desired, connect_timeout_s=CONNECT_TIMEOUT_S)
    failed = {name: device.errors for name, device in report.devices.items() if not device.ok}
    if failed:
        listed = "\n".join(f"  {name}: {error}" for name in failed for error in failed[name])
        raise ProgrammingError(f"{len(failed)} devices could not be programmed:\n{listed}")
    return report
