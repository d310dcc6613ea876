# SPDX-License-Identifier: Apache-2.0
"""Host agents for tests: two namespaces joined by a veth pair, and a test's own end of a wire."""

from __future__ import annotations

import asyncio
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from mrc.agent_client import AgentClient, AgentError
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
