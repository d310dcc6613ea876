# SPDX-License-Identifier: Apache-2.0
"""The kernel's notices about interfaces, as they come (rtnetlink(7), RTMGRP_LINK)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTMGRP_LINK

from controller.nic_agent.plane_ports import LinkNotice

log = logging.getLogger(__name__)

AF_BRIDGE: Final = 7  # <linux/socket.h>
AGAIN_S: Final = 0.05  # until all is read again: whatever made us fall behind may go on


async def link_notices() -> AsyncIterator[list[LinkNotice] | LinkNotice]:
    """First a dump of all interfaces, then each notice; another dump when notices were lost.

    Of the network namespace that the caller is in.
    """
    while True:
        try:
            async with AsyncIPRoute() as route:
                await route.bind(groups=RTMGRP_LINK)  # before the dump, so that nothing is missed
                yield [_notice(message) async for message in await route.link("dump")]
                while True:
                    async for message in route.get():
                        if _of_interface(message):
                            yield _notice(message)
        except (OSError, NetlinkError) as error:  # ENOBUFS: more came than was read
            log.warning("notices about interfaces were lost (%s): all are read again", error)
            await asyncio.sleep(AGAIN_S)


def _of_interface(message: Any) -> bool:
    """Whether it is about an interface itself, not about its leaving or joining a bridge."""
    return message["event"] in ("RTM_NEWLINK", "RTM_DELLINK") and message["family"] != AF_BRIDGE


def _notice(message: Any) -> LinkNotice:
    return LinkNotice(
        index=message["index"],
        interface=message.get_attr("IFLA_IFNAME"),
        flags=message["flags"],
        present=message["event"] == "RTM_NEWLINK",
    )
