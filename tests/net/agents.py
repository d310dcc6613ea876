# SPDX-License-Identifier: Apache-2.0
"""Host agents for tests: two namespaces joined by a veth pair, and a test's own end of a wire."""

from __future__ import annotations

import asyncio
import selectors
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mrc.agent_client import AgentClient, AgentError
from mrc.messages import Digest, RegionInfo, WriteRequest
from topologies.netns import Namespace

LEFT, RIGHT = "left-eth0", "right-eth0"
LEFT_ADDRESS, RIGHT_ADDRESS = "fd4d:5243::0:1", "fd4d:5243::1:2"
MTU = 4500
PATIENCE_S = 20.0


@contextmanager
def veth_pair() -> Iterator[tuple[Namespace, Namespace]]:
    """Two namespaces, `left-eth0` in the first wired to `right-eth0` in the second, both up."""
    left, right = Namespace.new(), Namespace.new()
    try:
        peer = f"peer name {RIGHT} mtu {MTU} netns {right.path}"
        left.ip([f"link add {LEFT} mtu {MTU} type veth {peer}", f"link set {LEFT} up"], [right])
        right.ip([f"link set {RIGHT} up", f"addr add {RIGHT_ADDRESS}/64 dev {RIGHT} nodad"])
        yield left, right
    finally:
        left.close()
        right.close()


def start_agent(
    namespace: Namespace, interface: str, address: str, control: Path
) -> subprocess.Popen[str]:
    """Start an agent and do not wait for it."""
    command = ["nsenter", f"--net={namespace.outside_path}", "--", sys.executable, "-m"]
    command += ["mrc.agent", "--interface", interface, "--address", address]
    return subprocess.Popen(
        [*command, "--control", str(control)], stderr=subprocess.PIPE, text=True
    )


async def until_ready(client: AgentClient) -> None:
    """Wait until the agent answers."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            await client.stats()
            return
        except AgentError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.01)


@contextmanager
def agent(
    namespace: Namespace, interface: str, address: str, control: Path
) -> Iterator[AgentClient]:
    """A running agent; ended by SIGTERM, which must end it cleanly."""
    process = start_agent(namespace, interface, address, control)
    try:
        client = AgentClient(control)
        asyncio.run(until_ready(client))
        yield client
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, "")
        assert not control.exists()
    finally:
        process.kill()
        process.communicate()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def settled(client: AgentClient, rkey: int, packets: int) -> Digest:
    """The region's digest once the agent has taken in `packets` WRITE packets in all."""

    async def arrived() -> bool:
        stats = await client.stats()
        counts = [n for name, n in stats["opcodes"].items() if name.startswith("WRITE")]
        return bool(sum(counts) >= packets)

    await until(arrived)
    return await client.read_digest(rkey)


class WireEnd:
    """A raw socket at the far end of an agent's wire, in the NIC's place."""

    def __init__(self, namespace: Namespace, interface: str) -> None:
        self._socket = namespace.open_socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind((interface, 0x86DD))
        self._socket.settimeout(PATIENCE_S)
        self.mac: bytes = self._socket.getsockname()[4]
        self.mac_text = self.mac.hex(":")

    def receive(self) -> bytes:
        """The next UDP or carrier frame; TimeoutError when none comes."""
        while True:
            frame = self._socket.recv(65536)
            if frame[20] in (17, 41):  # no neighbour discovery
                return frame

    def send(self, frame: bytes) -> None:
        """Send one frame."""
        self._socket.send(frame)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    @contextmanager
    def answering(self, reply: Callable[[bytes], list[bytes]]) -> Iterator[None]:
        """Send what `reply` makes of every frame, in a thread, until the block ends."""
        stop, stopped = socket.socketpair()

        def loop() -> None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(stopped, selectors.EVENT_READ)
                while all(key.fileobj is not stopped for key, _ in selector.select()):
                    frame = self._socket.recv(65536)
                    if frame[20] in (17, 41):
                        for answer in reply(frame):
                            self._socket.send(answer)

        with stopped, ThreadPoolExecutor(1) as executor:
            running = executor.submit(loop)
            try:
                yield
            finally:
                stop.close()
                running.result()


class Pair(NamedTuple):
    """Two agents on one wire."""

    left: AgentClient
    right: AgentClient
    left_space: Namespace
    right_space: Namespace
    left_mac: str
    right_mac: str

    def to_right(self, region: RegionInfo, **changes: Any) -> WriteRequest:
        """A write from left that fills `region`, paced so that a busy machine keeps up."""
        request = WriteRequest(
            address=RIGHT_ADDRESS,
            mac=self.right_mac,
            qp=17,
            va=region.va,
            rkey=region.rkey,
            length=region.length,
            seed=5,
            rate=5000,
        )
        return replace(request, **changes)


class Lone(NamedTuple):
    """One agent and the far end of its wire."""

    client: AgentClient
    wire: WireEnd
    mac: bytes
