# SPDX-License-Identifier: Apache-2.0
"""``python -m controller.nic_agent --run-dir DIR``: the NIC agent of a running fabric.

Ends on SIGTERM or SIGINT, and then removes its socket.
"""

from __future__ import annotations

import argparse
import asyncio
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

_ENDING = (signal.SIGTERM, signal.SIGINT)


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
        asyncio.run(_work(NicAgent(fabric, inventory), options.run_dir / SOCKET))
    except (InventoryError, TopologyError, ServiceError) as error:
        print(f"nic_agent: {error}", file=sys.stderr)
        return 1
    return 0


async def _work(agent: NicAgent, socket: Path) -> None:
    """Until a signal asks for the end; further ones do not disturb it."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in _ENDING:
        # Not the loop's own handlers: they go with the loop, before the process does.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    try:
        async with serving(agent, socket):
            tasks = {asyncio.create_task(agent.run()), asyncio.create_task(stop.wait())}
            done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
    for task in done:
        task.result()  # raises what ended the agent by itself


if __name__ == "__main__":
    sys.exit(main())
