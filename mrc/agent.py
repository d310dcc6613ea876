# SPDX-License-Identifier: Apache-2.0
"""The host agent: MRC's end point in a host's network namespace.

    python -m mrc.agent --interface h0-0-eth0 --address fd4d:5243::0:1 --control PATH

It answers EV probes, takes WRITE packets into registered memory, and does what it is told on the
unix socket PATH. Needs root, for AF_PACKET. Ends on SIGTERM, SIGINT or `shutdown`, and then removes
the socket.

Protocol: one JSON object per line, a command each, answered by one JSON object per line, in order.
Commands on one connection run one after the other, those on different connections at the same
time. When a client hangs up, its running command is cancelled.

    -> {"command": "register", "length": 65536}
    <- {"ok": true, "result": {"va": 17592186044416, "rkey": 305419896, "length": 65536}}
    -> {"command": "deregister"}
    <- {"ok": false, "error": "deregister: parameter 'rkey' is missing: allowed are rkey"}

Commands, their parameters and results (types in `mrc.messages`):

    probe        ProbeRequest -> ProbeResult        EV probes and self-probes
    register     RegisterRequest -> RegionInfo      a memory region
    deregister   RegionRequest -> {}
    read_digest  RegionRequest -> Digest            SHA-256 of a region, and what is missing
    create_qp    CreateQpRequest -> QpInfo          a queue pair, for reliable writes
    connect_qp   ConnectQpRequest -> {}             its peer; both ends, before the first write
    destroy_qp   QpRequest -> {}
    write        WriteRequest -> WriteResult        send an RDMA WRITE message
    stats        nothing -> object                  all counters
    shutdown     nothing -> {}                      end after this answer
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import selectors
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from mrc.headers import Ipv6, Udp
from mrc.layout import WireError
from mrc.memory import Memory
from mrc.messages import (
    ConnectQpRequest,
    CreateQpRequest,
    MessageError,
    Nothing,
    ProbeRequest,
    QpRequest,
    RegionRequest,
    RegisterRequest,
    WriteRequest,
    ipv6_bytes,
)
from mrc.opcodes import ENDPOINT_QP, ICRC_BYTES, WRITE_OPCODES, Opcode
from mrc.options import WireOptions
from mrc.packet import Packet, TrimmedPacket, parse_packet
from mrc.probing import Prober
from mrc.rawsocket import ETHERNET_BYTES, RawSocket, RawSocketError
from mrc.reliable import QpFailedError, QueuePairs
from mrc.writing import Writer

_LINE_LIMIT_BYTES = 16 << 20
_TOO_LONG = b"\0"  # no JSON line
_FRAMES_PER_TURN = 64  # received at once before senders and commands get their turn
_BTH_OFFSET = Ipv6.SIZE + Udp.SIZE
_QP_CONTROL = frozenset({Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE, Opcode.PROBE_REQUEST})
_SHORTEST_BYTES = _BTH_OFFSET + 12 + ICRC_BYTES


class Agent:
    """The end point: its socket, memory, writer and prober, and the commands on them."""

    def __init__(self, raw: RawSocket, address: bytes, options: WireOptions) -> None:
        self.shutdown_asked = False
        self._raw = raw
        self._address = address
        self._options = options
        self._memory = Memory(options)
        self._writer = Writer(raw, address, options)
        self._qps = QueuePairs(raw, address, self._memory, options)
        self._prober = Prober(raw, address, options)
        self._opcodes: Counter[int] = Counter()
        self._ignored: Counter[str] = Counter()
        self._trimmed = {
            options.code_points.trimmed: "trimmed",
            options.code_points.trimmed_lasthop: "trimmed_lasthop",
        }
        self._started_ns = time.monotonic_ns()
        self._commands: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "probe": self._probe,
            "register": self._register,
            "deregister": self._deregister,
            "read_digest": self._read_digest,
            "create_qp": self._create_qp,
            "connect_qp": self._connect_qp,
            "destroy_qp": self._destroy_qp,
            "write": self._write,
            "stats": self._stats,
            "shutdown": self._shutdown,
        }

    def on_readable(self) -> None:
        """Take the frames that are waiting, a bounded number of them."""
        for _ in range(_FRAMES_PER_TURN):
            frame = self._raw.receive()
            if frame is None:
                return
            self._on_frame(frame)

    def _on_frame(self, frame: memoryview) -> None:
        packet = frame[ETHERNET_BYTES:]
        if packet[24:40] != self._address:
            self._ignored["not_own_address"] += 1
            return
        dscp = packet[0] << 2 & 0x3C | packet[1] >> 6
        if dscp in self._trimmed:
            self._on_trimmed(packet, self._trimmed[dscp])
            return
        if len(packet) < _SHORTEST_BYTES:
            self._ignored["short"] += 1
            return
        opcode = packet[_BTH_OFFSET]
        self._opcodes[opcode] += 1
        if opcode in WRITE_OPCODES:
            write = self._memory.parse(packet)
            if write is not None and not self._qps.on_write(write):
                self._memory.place(write)
        elif opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE):
            self._on_endpoint_operation(frame, packet)
        elif opcode in _QP_CONTROL:
            self._on_control(packet)
        else:
            self._ignored["opcode"] += 1

    def _on_trimmed(self, data: memoryview, kind: str) -> None:
        """Headers of a packet whose payload a switch dropped; not for a QP: counted as `kind`."""
        try:
            packet = parse_packet(data, self._options)
        except WireError:
            self._ignored["malformed"] += 1
            return
        if not isinstance(packet, TrimmedPacket) or not self._qps.on_trimmed(packet):
            self._ignored[kind] += 1

    def _on_control(self, data: memoryview) -> None:
        try:
            packet = parse_packet(data, self._options)
        except WireError:
            self._ignored["malformed"] += 1
            return
        if isinstance(packet, Packet):  # a trimmed one does not come here
            self._qps.on_control(packet)

    def _on_endpoint_operation(self, frame: memoryview, data: memoryview) -> None:
        try:
            packet = parse_packet(data, self._options)
        except WireError:
            self._ignored["malformed"] += 1
            return
        if not isinstance(packet, Packet) or packet.bth.dqp != ENDPOINT_QP:
            self._ignored["qp"] += 1
        elif packet.bth.opcode == Opcode.ENDPOINT_REQUEST:
            self._prober.on_request(frame, packet)
        else:
            self._prober.on_response(packet)

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Carry out the command in `line`; the object to answer with."""
        name = "command line"
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise MessageError("must be a JSON object")
            name = values.pop("command", None)
            command = self._commands.get(name) if isinstance(name, str) else None
            if command is None:
                known = ", ".join(self._commands)
                return _error(f"command = {name!r}: allowed are {known}")
            return {"ok": True, "result": await command(values)}
        except (ValueError, OSError, RawSocketError, QpFailedError) as error:
            return _error(f"{name}: {error}")

    async def _probe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return (await self._prober.probe(ProbeRequest.from_json(values))).to_json()

    async def _register(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._memory.register(RegisterRequest.from_json(values)).info().to_json()

    async def _deregister(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._memory.deregister(RegionRequest.from_json(values).rkey)
        return {}

    async def _read_digest(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._memory.region(RegionRequest.from_json(values).rkey).digest().to_json()

    async def _create_qp(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._qps.create(CreateQpRequest.from_json(values)).to_json()

    async def _connect_qp(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._qps.connect(ConnectQpRequest.from_json(values))
        return {}

    async def _destroy_qp(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._qps.destroy(QpRequest.from_json(values).qp)
        return {}

    async def _write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        request = WriteRequest.from_json(values)
        writer = self._qps if request.reliable else self._writer
        return (await writer.write(request)).to_json()

    async def _shutdown(self, values: Mapping[str, Any]) -> dict[str, Any]:
        Nothing.from_json(values)
        self.shutdown_asked = True
        return {}

    async def _stats(self, values: Mapping[str, Any]) -> dict[str, Any]:
        Nothing.from_json(values)
        memory = self._memory
        return {
            "interface": self._raw.interface,
            "address": _ipv6_text(self._address),
            "mac": self._raw.mac.hex(":"),
            "mtu": self._raw.mtu(),
            "uptime_ns": time.monotonic_ns() - self._started_ns,
            "frames_sent": self._raw.sent,
            "frames_received": self._raw.received,
            "send_errors": dict(self._raw.send_errors),
            "receive_errors": dict(self._raw.receive_errors),
            "kernel_drops": self._raw.kernel_drops(),
            "opcodes": {_opcode_name(code): count for code, count in self._opcodes.items()},
            "ignored": dict(self._ignored),
            "writes_refused": dict(memory.refused),
            "probing": dict(self._prober.counters),
            "qps": list(self._qps.stats()),
            "qps_ignored": dict(self._qps.ignored),
            "sources": [
                {
                    "address": _ipv6_text(address),
                    "qp": qp,
                    "source_port": port,
                    "packets": source.packets,
                    "bytes": source.bytes,
                    "retransmitted": source.retransmitted,
                    "ce_marked": source.ce_marked,
                    "path_evs": {str(ev): count for ev, count in source.path_evs.items()},
                }
                for (address, qp, port), source in memory.sources.items()
            ],
            "immediates_received": memory.immediates_received,
            "immediates": [
                {**item._asdict(), "source": _ipv6_text(item.source)} for item in memory.immediates
            ],
            "regions": [region.info().to_json() for region in memory.regions()],
        }


def _encode(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _error(text: str) -> dict[str, Any]:
    return {"ok": False, "error": text}


def _ipv6_text(address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET6, address)


def _opcode_name(code: int) -> str:
    try:
        return Opcode(code).name
    except ValueError:
        return f"0x{code:02X}"


class ControlServer:
    """The unix socket: reads lines, has the agent answer them, cancels what nobody waits for."""

    def __init__(self, agent: Agent, path: Path) -> None:
        self.stopping = asyncio.Event()
        self._agent = agent
        self._path = path
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. RawSocketError when another agent listens there or the path is not ours."""
        if self._path.is_socket():
            with socket.socket(socket.AF_UNIX) as test:
                if test.connect_ex(str(self._path)) == 0:
                    raise RawSocketError(f"{self._path}: another agent listens on it")
            self._path.unlink()  # left by an agent that was killed
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, str(self._path), limit=_LINE_LIMIT_BYTES
            )
        except OSError as error:
            raise RawSocketError(f"{self._path}: {error}") from error

    async def close(self) -> None:
        """Cancel the running commands, hang up, remove the socket."""
        if self._server is None:
            return
        self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or we are ending
        finally:
            self._clients.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await _read_line(reader)
        while line:
            if line == _TOO_LONG:
                writer.write(_encode(_error(f"a line has more than {_LINE_LIMIT_BYTES} bytes")))
                return
            # Reading on while the command runs is how a hang-up is noticed.
            following = asyncio.create_task(_read_line(reader))
            running = asyncio.create_task(self._agent.answer(line))
            try:
                await asyncio.wait({following, running}, return_when=asyncio.FIRST_COMPLETED)
                if following.done() and not following.result() and not running.done():
                    return
                writer.write(_encode(await running))
                await writer.drain()
                if self._agent.shutdown_asked:
                    self.stopping.set()
                    return
                line = await following
            finally:
                for task in (following, running):
                    task.cancel()
                await asyncio.gather(following, running, return_exceptions=True)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """The next line; b"" at the end, `_TOO_LONG` instead of one beyond the limit."""
    try:
        return await reader.readline()
    except ValueError:
        return _TOO_LONG


async def serve(raw: RawSocket, address: bytes, control: Path, options: WireOptions) -> None:
    """Run an agent until it is told to stop."""
    loop = asyncio.get_running_loop()
    agent = Agent(raw, address, options)
    server = ControlServer(agent, control)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopping.set)
    try:
        loop.add_reader(raw.fileno(), agent.on_readable)
        await server.start()
        await server.stopping.wait()
    finally:
        loop.remove_reader(raw.fileno())
        await server.close()


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit status."""
    parser = argparse.ArgumentParser(prog="mrc.agent", description="MRC host agent")
    parser.add_argument("--interface", required=True, help="interface towards the NIC")
    parser.add_argument("--address", required=True, help="this host's IPv6 address")
    parser.add_argument("--control", required=True, type=Path, help="unix socket to listen on")
    ports = WireOptions().udp_ports
    parser.add_argument(
        "--udp-port", type=int, choices=ports, default=ports[0], help="port to send to"
    )
    given = parser.parse_args(arguments)
    try:
        address = ipv6_bytes(given.address)
    except OSError:
        parser.error(f"--address {given.address}: must be an IPv6 address")
    others = tuple(port for port in ports if port != given.udp_port)
    options = WireOptions(udp_ports=(given.udp_port, *others))
    try:
        raw = RawSocket(given.interface, options)
        try:
            # select(), unlike epoll, waits for fractions of a millisecond, which pacing needs.
            with asyncio.Runner(
                loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())
            ) as runner:
                runner.run(serve(raw, address, given.control, options))
        finally:
            raw.close()
    except RawSocketError as error:
        print(f"mrc.agent: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
