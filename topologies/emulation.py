# SPDX-License-Identifier: Apache-2.0
"""A fabric out of namespaces, wires and switch processes: brought up, described, taken down.

    with RunDir(path) as run_dir, Emulation(...) as emulation:
        emulation.inventory    # what runs where, also in inventory.json
        emulation.wires        # to cut and restore
        emulation.kill(name)   # a switch's process, and restart()

All switches start at the same time and are waited for by connecting to them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal

from mininet.net import Mininet

from controller.addressing import HOST_PORT, DeviceKind, ipv6, mac_text
from controller.fabric import Device, Fabric, LinkKind
from controller.inventory import Device as InventoryDevice
from controller.inventory import Host as InventoryHost
from controller.inventory import Inventory, save_inventory
from controller.inventory import Wire as InventoryWire
from controller.nic_agent.client import SOCKET, NicAgentClient
from controller.p4rt import DeviceError, connect
from mrc.agent_client import AgentError
from topologies.checks import Target
from topologies.hosts import HostAddress, configure, quieten
from topologies.nodes import (
    Bmv2Switch,
    FabricIntf,
    P4Switch,
    SoftSwitch,
    WireLink,
    empty_network,
)
from topologies.processes import Process, ProcessError, die_with_us, stop_all
from topologies.rundir import WIRES, RunDir
from topologies.wires import End, Wires

SWITCH_CLASSES: dict[Target, type[P4Switch]] = {"softswitch": SoftSwitch, "bmv2": Bmv2Switch}
START_TIMEOUT_S = 60.0
NIC_AGENT = "nic-agent"  # name of its process and log
_POLL_S = 0.05


class EmulationError(Exception):
    """The fabric did not come up; the message says what failed, with the end of its log."""


class Emulation:
    """A fabric that runs from entering to leaving the context."""

    def __init__(
        self,
        fabric: Fabric,
        topology_file: Path,
        target: Target,
        run_dir: RunDir,
        *,
        pcap: Path | None = None,
        linux_switches: Collection[str] = (),
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`pcap`: directory for captures of every switch port. `progress` hears of each step.

        `linux_switches` are only namespaces with the switch's interfaces: the caller lets Linux
        forward there. They are in Mininet (`net`), and not in the inventory.
        """
        self.fabric = fabric
        self._topology_file = topology_file.absolute()
        self._target = target
        self.run_dir = run_dir
        self._pcap = pcap
        self._linux_switches = frozenset(linux_switches)
        self._progress = progress
        self._undo = ExitStack()
        self._hosts: dict[str, HostAddress] = {}
        self._processes: dict[str, Process] = {}
        self.net: Mininet
        self.wires: Wires
        self.inventory: Inventory

    def __enter__(self) -> Emulation:
        """Bring it up. Raises EmulationError, NetnsError, or OSError."""
        with self._undo as undo:
            self.net = empty_network()
            undo.callback(self.net.stop)
            self._add_nodes()
            self._progress(f"{len(self._hosts)} hosts, {len(self.net.switches)} switches and NICs")
            self._plug_wires(undo)
            self._progress(f"{len(self.wires.all)} wires")
            undo.callback(lambda: stop_all(self._processes.values()))
            self._start_processes()
            asyncio.run(self._wait_until_ready(self.net.switches, self._hosts))
            _set_bmv2_queues(self.net.switches)
            self._progress(f"all of them answer on {self._target}")
            self.inventory = self._describe()
            save_inventory(self.inventory, self.run_dir.path)
            asyncio.run(self._start_nic_agent())
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take it down: processes, then wires, then hosts."""
        self._undo.close()

    # Faults of devices ---------------------------------------------------------------------------
    def kill(self, name: str) -> None:
        """End a switch's or NIC's process with SIGKILL: it forwards nothing, says nothing, and its
        neighbours keep carrier. Or that of the NIC agent. Raises EmulationError."""
        self._process_of(name).kill()

    @property
    def killed(self) -> list[str]:
        """Switches, NICs and NIC agent that do not run."""
        return [name for name in self._killable if not self._processes[name].running]

    async def restart(self, name: str) -> None:
        """Start a killed device again, with the same options and queues; it answers when this
        returns, without program and entries. Or the NIC agent. Raises EmulationError.

        To be awaited in the main thread, as all children are started there.
        """
        if self._process_of(name).running:
            raise EmulationError(f"{name} is running: `kill {name}` first")
        if name == NIC_AGENT:
            await self._start_nic_agent()
            return
        switch = self.net[name]
        self._start_switch(switch)
        await self._wait_until_ready([switch], [])
        await asyncio.to_thread(_set_bmv2_queues, [switch])
        device = self.inventory.devices[name].model_copy(update={"pid": self._processes[name].pid})
        self.inventory = self.inventory.model_copy(
            update={"devices": {**self.inventory.devices, name: device}}
        )
        save_inventory(self.inventory, self.run_dir.path)

    @property
    def _killable(self) -> list[str]:
        return [*(switch.name for switch in self.net.switches), NIC_AGENT]

    def _process_of(self, name: str) -> Process:
        """The process of a switch, NIC or NIC agent. Raises EmulationError."""
        if name not in self._killable:
            raise EmulationError(f"no process is {name}; allowed: {', '.join(self._killable)}")
        return self._processes[name]

    # Bringing up ---------------------------------------------------------------------------------
    def _add_nodes(self) -> None:
        topology = self.fabric.topology
        for device in self.fabric.devices():
            if device.kind is DeviceKind.HOST or device.name in self._linux_switches:
                node = self.net.addHost(device.name, ip=None)
                quieten(node.pid)
                if device.kind is DeviceKind.HOST:
                    self._hosts[device.name] = HostAddress(
                        pid=node.pid,
                        interface=self.fabric.interface(device, HOST_PORT),
                        mac=mac_text(self.fabric.mac(device, HOST_PORT)),
                        address=ipv6(self.fabric.host_address(device)),
                    )
            else:
                node = self.net.addSwitch(
                    device.name,
                    cls=SWITCH_CLASSES[self._target],
                    device_id=device.device_id,
                )
                node.queue_depth = topology.queue_depth
            self.run_dir.record(node.pid)

    def _plug_wires(self, undo: ExitStack) -> None:
        links = self.fabric.links
        cables = [
            (self._end(a, a_port), self._end(b, b_port))
            for a, a_port, b, b_port in zip(
                *(array.tolist() for array in (links.a, links.a_port, links.b, links.b_port)),
                strict=True,
            )
        ]
        self.wires = Wires(cables)
        undo.callback(self.wires.close)
        (self.run_dir.path / WIRES).symlink_to(self.wires.panel.outside_path)
        configure(list(self._hosts.values()))

        rates = self.fabric.topology.link_rates
        rate_of = {
            LinkKind.HOST_NIC: rates.host_nic,
            LinkKind.NIC_T0: rates.nic_t0,
            LinkKind.T0_T1: rates.t0_t1,
        }
        for number, (name, wire) in enumerate(self.wires.all.items()):
            rate = rate_of[LinkKind(int(links.kind[number]))]
            interfaces = []
            for end in wire.ends:
                node = self.net[end.device]
                port = int(end.interface.rpartition("-eth")[2])
                host = self._hosts.get(end.device)
                address = None if host is None else host.address
                interfaces.append(FabricIntf(end.interface, node, port, end.mac, address))
                if rate is not None and isinstance(node, P4Switch):
                    node.queue_rates[port] = rate
            self.net.links.append(WireLink(self.wires, name, *interfaces))

    def _start_processes(self) -> None:
        for switch in self.net.switches:
            self._start_switch(switch)
        for name, host in self._hosts.items():
            command = [sys.executable, "-m", "mrc.agent"]
            command += ["--interface", host.interface, "--address", host.address]
            command += ["--control", str(self._control(name))]
            self._start(name, command, host.pid)

    def _start_switch(self, switch: P4Switch) -> None:
        for port in (switch.grpc_port, switch.thrift_port):
            if port is not None:
                _check_free(switch.name, port)
        self._start(switch.name, switch.command(self._pcap))

    def _start(self, name: str, command: list[str], namespaces_of: int | None = None) -> None:
        try:
            process = Process(name, command, self._log(name), namespaces_of=namespaces_of)
        except ProcessError as error:
            raise EmulationError(str(error)) from error
        self._processes[name] = process
        self.run_dir.record(process.pid)

    async def _start_nic_agent(self) -> None:
        """Start the process beside the NICs, and wait until it has spoken to all that run."""
        command = [sys.executable, "-m", "controller.nic_agent"]
        self._start(NIC_AGENT, [*command, "--run-dir", str(self.run_dir.path)])
        client = NicAgentClient(self.run_dir.path / SOCKET)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._processes[NIC_AGENT].check()
                missing = [name for name, nic in (await client.status()).items()
                           if not nic["attached"] and self._processes[name].running]  # fmt: skip
                if not missing:
                    return
                error: Exception = EmulationError(f"it does not hold {', '.join(missing)}")
            except ProcessError as ended:
                raise EmulationError(str(ended)) from ended
            except AgentError as unreachable:
                error = unreachable
            if time.monotonic() > deadline:
                raise self._not_ready(NIC_AGENT, error)
            await asyncio.sleep(_POLL_S)

    async def _wait_until_ready(self, switches: Sequence[P4Switch], hosts: Collection[str]) -> None:
        """Until these switches and agents answer; EmulationError as soon as one has ended."""
        processes = [self._processes[name] for name in (*(s.name for s in switches), *hosts)]
        waiting = asyncio.gather(
            *(self._switch_ready(switch) for switch in switches),
            *(self._agent_ready(name) for name in hosts),
        )
        try:
            while not waiting.done():
                for process in processes:
                    process.check()
                await asyncio.wait([waiting], timeout=_POLL_S)
            await waiting
        except ProcessError as error:
            raise EmulationError(str(error)) from error
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _switch_ready(self, switch: P4Switch) -> None:
        try:
            async with connect(switch.name, switch.grpc_address, switch.device_id, START_TIMEOUT_S):
                return
        except DeviceError as error:
            raise self._not_ready(switch.name, error) from error

    async def _agent_ready(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_TIMEOUT_S
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(self._control(host))
            except (FileNotFoundError, ConnectionRefusedError) as error:
                if loop.time() > deadline:
                    raise self._not_ready(host, error) from error
                await asyncio.sleep(_POLL_S)
            else:
                writer.close()
                await writer.wait_closed()
                return

    def _not_ready(self, name: str, error: Exception) -> EmulationError:
        process = self._processes[name]
        return EmulationError(
            f"{name} does not answer within {START_TIMEOUT_S:g} s ({error}); "
            f"the end of {process.log}:\n{process.tail()}"
        )

    # Describing ----------------------------------------------------------------------------------
    def _describe(self) -> Inventory:
        return Inventory(
            topology=str(self._topology_file),
            target=self._target,
            pid=os.getpid(),
            devices={
                switch.name: InventoryDevice(
                    address=switch.grpc_address,
                    device_id=switch.device_id,
                    program=_program(self.fabric.device(switch.name)),
                    log=str(self._log(switch.name)),
                    pid=self._processes[switch.name].pid,
                    thrift_port=switch.thrift_port,
                )
                for switch in self.net.switches
            },
            hosts={
                name: InventoryHost(
                    pid=host.pid,
                    control=str(self._control(name)),
                    interface=host.interface,
                    address=host.address,
                )
                for name, host in self._hosts.items()
            },
            wires={
                name: InventoryWire(
                    ends=(wire.ends[0].interface, wire.ends[1].interface),
                    inner=wire.inner,
                    bridge=wire.bridge,
                )
                for name, wire in self.wires.all.items()
            },
        )

    def _end(self, row: int, port: int) -> End:
        device, topology = self.fabric.device_at(row), self.fabric.topology
        node = self.net[device.name]
        return End(
            device=device.name,
            interface=self.fabric.interface(device, port),
            mac=mac_text(self.fabric.mac(device, port)),
            # The NIC adds the outer header to what a host sends.
            mtu=topology.host_mtu if device.kind is DeviceKind.HOST else topology.mtu,
            host_pid=node.pid if node.inNamespace else None,
        )

    def _log(self, name: str) -> Path:
        return self.run_dir.path / f"{name}.log"

    def _control(self, host: str) -> Path:
        return self.run_dir.path / f"{host}.sock"


def _program(device: Device) -> Literal["fabric", "nic"]:
    return "nic" if device.kind is DeviceKind.NIC else "fabric"


def _check_free(name: str, port: int) -> None:
    """Raise EmulationError when somebody listens on a TCP port.

    gRPC servers share a port without a word (SO_REUSEPORT), and clients then reach either.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as test:
        test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ended connections do not count
        try:
            test.bind(("127.0.0.1", port))
        except OSError as error:
            raise EmulationError(
                f"{name} needs TCP port {port}, and another program has it ({error.strerror}); "
                f"`ss -tlnp sport = :{port}` shows which"
            ) from error


def _set_bmv2_queues(switches: Sequence[P4Switch]) -> None:
    """Queue rates and depths of BMv2 switches, all at the same time. Raises EmulationError."""
    running: list[tuple[Bmv2Switch, subprocess.Popen[str]]] = []
    with ExitStack() as stack:
        for switch in switches:
            if isinstance(switch, Bmv2Switch) and (commands := switch.queue_commands()):
                tool = stack.enter_context(_thrift_tool(switch, commands))
                running.append((switch, tool))
        for switch, tool in running:
            output, _ = tool.communicate()
            if tool.returncode != 0 or "Error" in output or "Invalid" in output:
                raise EmulationError(
                    f"simple_switch_CLI could not set the queues of {switch.name}: {output}"
                )


def _thrift_tool(switch: Bmv2Switch, commands: list[str]) -> subprocess.Popen[str]:
    """simple_switch_CLI at work on `commands`."""
    tool = subprocess.Popen(
        die_with_us(["simple_switch_CLI", "--thrift-port", str(switch.thrift_port)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert tool.stdin is not None
    tool.stdin.write("\n".join(commands) + "\n")
    tool.stdin.flush()
    return tool
