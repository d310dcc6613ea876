# SPDX-License-Identifier: Apache-2.0
"""``python -m controller.nic_agent --run-dir DIR``: the NIC agent of a running fabric.

Ends on SIGTERM or SIGINT, and then removes its socket.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from controller.fabric import Fabric
from controller.inventory import InventoryError, default_run_dir, load_inventory
from controller.nic_agent.agent import NicAgent
from controller.nic_agent.client import SOCKET
from controller.nic_agent.service import ServiceError, serving
from topologies.schema import TopologyError, load_topology


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="controller.nic_agent", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--run-dir", type=Path, default=default_run_dir(), metavar="DIR",
        help="of the running fabric (default: $MRC_RUN_DIR or /run/mrc-fabric)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        inventory = load_inventory(options.run_dir)
        fabric = Fabric.from_topology(load_topology(Path(inventory.topology)))
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(_work(NicAgent(fabric, inventory), options.run_dir / SOCKET))
    except (InventoryError, TopologyError, ServiceError) as error:
        print(f"nic_agent: {error}", file=sys.stderr)
        return 1
    return 0


async def _work(agent: NicAgent, socket: Path) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with serving(agent, socket):
        await agent.run()


if __name__ == "__main__":
    sys.exit(main())
