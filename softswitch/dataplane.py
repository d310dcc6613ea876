# SPDX-License-Identifier: Apache-2.0
"""The loaded pipeline: what the P4Runtime server programs and what forwards the packets.

`load` translates p4c's JSON to C, compiles it, and gives it to the engine, whose thread forwards
without Python. Entries are written while packets pass; readers take no lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from softswitch.batch import Planned
from softswitch.bmjson import Program
from softswitch.bmread import read_program
from softswitch.codegen import translate
from softswitch.codegen.layout import Layout, RegisterLayout, words_of
from softswitch.compile import default_cache_dir, program_library
from softswitch.engine import (
    ALL,
    ERROR_BYTES,
    EVENT_PACKET,
    EVENT_PORT,
    KEEP_DEPTH,
    KEEP_RATE,
    NONE,
    Event,
    LogMessage,
    Pair,
    SwitchOptions,
    check,
    load_engine,
)
from softswitch.errors import Busy, DataplaneError, InvalidArgument, NotFound, PortError
from softswitch.hashes import CustomCrc
from softswitch.messages import log_message
from softswitch.meters import MeterArray
from softswitch.tables import ActionSet, Profile, Table
from softswitch.value_sets import ValueSet
from softswitch.values import (
    MAX_QUEUE_DEPTH,
    MAX_QUEUE_RATE,
    DataplaneOptions,
    Digest,
    PacketIn,
    PortStats,
    PortStatus,
    QueueSetting,
    QueueState,
    TablePlan,
)

MAX_PACKET_BYTES = 65535
MAX_PORT = 65535
NS_PER_S = 1_000_000_000


def _in_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgument(f"{what} {value}; allowed: {low} to {high}")


class CounterArray:
    """An indirect counter."""

    def __init__(self, engine: Any, switch: int, index: int, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self._engine = engine
        self._switch = switch
        self._index = index

    def read(self, index: int) -> tuple[int, int]:
        """(packets, bytes) of one cell; NotFound outside of the array."""
        out = Pair()
        self._engine.ss_counter_read(self._switch, self._index, self._cell(index), out)
        return int(out[0]), int(out[1])

    def write(self, index: int, packets: int, bytes_: int) -> None:
        """Set one cell."""
        self._engine.ss_counter_write(self._switch, self._index, self._cell(index), packets, bytes_)

    def _cell(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise NotFound(f"{self.name}: index {index}; allowed: 0 to {self.size - 1}")
        return index


class RegisterArray:
    """A register array; values are raw bits."""

    def __init__(self, engine: Any, switch: int, index: int, layout: RegisterLayout) -> None:
        self.name = layout.name
        self.size = layout.size
        self._engine = engine
        self._switch = switch
        self._index = index
        self._layout = layout

    def read(self, index: int) -> int:
        """One cell; NotFound outside of the array."""
        out = ctypes.create_string_buffer(self._layout.cell_bytes)
        self._engine.ss_register_read(self._switch, self._index, self._cell(index), out)
        return int.from_bytes(out.raw, "little")

    def write(self, index: int, value: int) -> None:
        """Set one cell."""
        if not 0 <= value < 1 << self._layout.width:
            raise InvalidArgument(f"{self.name}: {value:#x} does not fit {self._layout.width} bits")
        data = value.to_bytes(self._layout.cell_bytes, "little")
        self._engine.ss_register_write(self._switch, self._index, self._cell(index), data)

    def _cell(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise NotFound(f"{self.name}: index {index}; allowed: 0 to {self.size - 1}")
        return index


class Dataplane:
    """One switch. Nothing is forwarded before `start`; `close` gives everything back."""

    def __init__(self, options: DataplaneOptions) -> None:
        """Opens no interface yet. Raises CompileError when there is no C compiler."""
        self.options = options
        self._cache_dir = options.cache_dir or default_cache_dir()
        self._engine = load_engine(self._cache_dir)
        given = SwitchOptions(
            cpu_port=options.cpu_port or 0,
            drop_port=options.drop_port,
            queue_depth=options.queue_depth,
            priorities=options.priority_queues,
            ring_bytes=options.ring_bytes,
            has_seed=options.seed is not None,
            seed=options.seed or 0,
        )
        switch = self._engine.ss_create(ctypes.byref(given))
        if not switch:
            raise DataplaneError(f"no memory for a switch (errno {ctypes.get_errno()})")
        self._switch: int = switch
        self._log_message = LogMessage(log_message)  # the engine calls it, so it must stay
        if options.log_messages:
            self._engine.ss_set_log(switch, ctypes.cast(self._log_message, ctypes.c_void_p))
        self._closed = False
        self._started = False
        self._ports: dict[int, str] = {}
        self._digests: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.tables: Mapping[str, Table] = {}
        self.profiles: Mapping[str, Profile] = {}
        self.counters: Mapping[str, CounterArray] = {}
        self.registers: Mapping[str, RegisterArray] = {}
        self.meters: Mapping[str, MeterArray] = {}
        self.value_sets: Mapping[str, ValueSet] = {}
        self.hashes: Mapping[str, CustomCrc] = {}
        for setting in options.queues:
            self.set_queue(setting)

    # ---- life -----------------------------------------------------------------------------------

    def load(self, bmv2_json: bytes) -> None:
        """Replace the program; all entries and counters are gone then.

        Raises BadProgram, Unsupported or CompileError; the old program then stays as it was.
        """
        program = read_program(bmv2_json)
        translation = translate(program)
        path = program_library(translation.source, self._cache_dir)
        error = ctypes.create_string_buffer(ERROR_BYTES)
        result = self._engine.ss_load(self._switch, str(path).encode(), error)
        if result < 0:
            raise DataplaneError(f"loading the program: {error.value.decode(errors='replace')}")
        self._take_over(program, translation.layout)

    def _take_over(self, program: Program, layout: Layout) -> None:
        """Wrap what the program has; its own entries and default actions are written here."""
        sources = {
            table.name: table
            for pipeline in program.pipelines.values()
            for table in pipeline.tables.values()
        }
        profiles = []
        for index, (name, max_size) in enumerate(layout.profiles):
            ids = {
                number
                for table in layout.tables
                if table.profile == index
                for number in table.actions
            }
            actions = ActionSet(name, [layout.actions[number] for number in sorted(ids)])
            profiles.append(Profile(self._engine, self._switch, index, name, max_size, actions))
        self.profiles = MappingProxyType({profile.name: profile for profile in profiles})
        self.tables = MappingProxyType(
            {
                table.name: Table(
                    self._engine,
                    self._switch,
                    table,
                    sources[table.name],
                    [layout.actions[number] for number in table.actions],
                    None if table.profile is None else profiles[table.profile],
                )
                for table in layout.tables
            }
        )
        self.counters = MappingProxyType(
            {
                name: CounterArray(self._engine, self._switch, index, name, size)
                for index, (name, size) in enumerate(layout.counters)
            }
        )
        self.registers = MappingProxyType(
            {
                register.name: RegisterArray(self._engine, self._switch, index, register)
                for index, register in enumerate(layout.registers)
            }
        )
        self.meters = MappingProxyType(
            {
                name: MeterArray(self._engine, self._switch, index, name, size)
                for index, (name, size) in enumerate(layout.meters)
            }
        )
        self.value_sets = MappingProxyType(
            {
                value_set.name: ValueSet(self._engine, self._switch, index, value_set)
                for index, value_set in enumerate(layout.value_sets)
            }
        )
        self.hashes = MappingProxyType(
            {
                crc.name: CustomCrc(self._engine, self._switch, index, crc)
                for index, crc in enumerate(layout.crcs)
            }
        )
        self._digests = {digest.id: (digest.name, digest.widths) for digest in layout.digests}

    def start(self) -> None:
        """Open the ports and forward. Raises PortError naming the interface."""
        for number, interface in self.options.ports.items():
            self.add_port(number, interface)
        error = ctypes.create_string_buffer(ERROR_BYTES)
        result = self._engine.ss_start(self._switch, error)
        check(result, "start", error.value.decode())
        self._started = True

    def add_port(self, number: int, interface: str) -> None:
        """Open an interface as a port; the switch may run. PortError says why it cannot.

        When the interface is deleted the port stays, and resumes with the next one of its name.
        """
        if not 0 <= number <= MAX_PORT:
            raise PortError(f"port {number}: allowed: 0 to {MAX_PORT}")
        paths: list[bytes | None] = [None, None]
        if self.options.pcap_dir is not None:
            paths = [
                str(self.options.pcap_dir / f"{interface}_{way}.pcap").encode()
                for way in ("in", "out")
            ]
        error = ctypes.create_string_buffer(ERROR_BYTES)
        result = self._engine.ss_add_port(self._switch, number, interface.encode(), *paths, error)
        check(result, f"port {number}, interface {interface}", error.value.decode())
        self._ports[number] = interface

    def remove_port(self, number: int) -> None:
        """Close a port; the switch may run. NotFound when there is none."""
        check(self._engine.ss_remove_port(self._switch, number), f"port {number}")
        del self._ports[number]

    @property
    def interfaces(self) -> Mapping[int, str]:
        """Interfaces by port number."""
        return MappingProxyType(self._ports)

    def port_is_up(self, number: int) -> bool:
        """Whether the port's interface is there, up and connected; NotFound: no such port.

        The CPU port, which has no interface, always is.
        """
        if number and number == self.options.cpu_port:
            return True
        return bool(check(self._engine.ss_port_is_up(self._switch, number), f"port {number}"))

    def port_stats(self, number: int) -> PortStats:
        """What passed a port; NotFound when there is none."""
        out = (ctypes.c_uint64 * len(fields(PortStats)))()
        check(self._engine.ss_port_read_stats(self._switch, number, out), f"port {number}")
        return PortStats(*out)

    def set_queue(self, setting: QueueSetting) -> None:
        """Change depth or rate of egress queues, at once; what waits in them stays.

        InvalidArgument names what is out of range.
        """
        priorities = self.options.priority_queues
        if setting.priority is not None:
            if setting.port is None:
                raise InvalidArgument("a queue of one priority belongs to one port")
            _in_range("priority", setting.priority, 0, priorities - 1)
        if setting.port is not None:
            _in_range("port", setting.port, 0, MAX_PORT)
        if setting.depth is not None:
            _in_range("queue depth", setting.depth, 1, MAX_QUEUE_DEPTH)
        if setting.rate is not None:
            _in_range("queue rate", setting.rate, 0, MAX_QUEUE_RATE)
        result = self._engine.ss_set_queue(
            self._switch,
            ALL if setting.port is None else setting.port,
            ALL if setting.priority is None else setting.priority,
            KEEP_DEPTH if setting.depth is None else setting.depth,
            KEEP_RATE if setting.rate is None else setting.rate,
        )
        check(result, "queues" if setting.port is None else f"queues of port {setting.port}")

    def queue(self, port: int, priority: int) -> QueueState:
        """One queue of a port number, whether or not an interface has it."""
        _in_range("port", port, 0, MAX_PORT)
        _in_range("priority", priority, 0, self.options.priority_queues - 1)
        out = (ctypes.c_uint64 * 4)()
        check(self._engine.ss_queue_read(self._switch, port, priority, out), f"port {port}")
        waiting, depth, interval_ns, dropped = (int(value) for value in out)
        rate = NS_PER_S // interval_ns if interval_ns else 0
        return QueueState(port, priority, waiting, depth, rate, dropped)

    def close(self) -> None:
        """Stop forwarding and free everything. No other method may be running or follow."""
        if self._closed:
            return
        self._closed = True
        if self._started:
            self._engine.ss_stop(self._switch)
        self._engine.ss_destroy(self._switch)

    def plan(self, plans: Sequence[TablePlan]) -> Planned:
        """What writes whole batches into these tables of the loaded program."""
        return Planned(self._engine, self._switch, plans, self.tables)

    def freeze(self, timeout_s: float) -> None:
        """Forward nothing until `thaw`; packets that arrive wait. Does not hold the GIL.

        First what waits in the egress queues leaves, so that no packet is half-way. Raises Busy
        when packets still wait after this time: in queues with a low rate, or going round.
        """
        if self._engine.ss_freeze(self._switch, int(timeout_s * 1e9)) < 0:
            raise Busy(
                f"after {timeout_s:g} s packets still wait in egress queues or are recirculated"
            )

    def thaw(self) -> None:
        """Forward again."""
        self._engine.ss_thaw(self._switch)

    # ---- replication ----------------------------------------------------------------------------

    def set_multicast_group(self, group_id: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make or replace a multicast group of (port, replication id)."""
        self._replicate(False, group_id, replicas, 0, 0)

    def delete_multicast_group(self, group_id: int) -> None:
        """NotFound when there is none."""
        result = self._engine.ss_delete_replicas(self._switch, False, group_id)
        check(result, f"multicast group {group_id}")

    def set_clone_session(
        self,
        session_id: int,
        replicas: Sequence[tuple[int, int]],
        truncate_len: int,
        priority: int = 0,
    ) -> None:
        """Make or replace a clone session; `truncate_len` 0: whole packets.

        `priority` is the egress queue that copies wait in when the program does not choose one.
        """
        if priority >= self.options.priority_queues:
            raise InvalidArgument(
                f"clone session {session_id}: priority {priority}; there are "
                f"{self.options.priority_queues} queues a port (--priority-queues)"
            )
        self._replicate(True, session_id, replicas, truncate_len, priority)

    def delete_clone_session(self, session_id: int) -> None:
        """NotFound when there is none."""
        result = self._engine.ss_delete_replicas(self._switch, True, session_id)
        check(result, f"clone session {session_id}")

    def _replicate(
        self,
        clones: bool,
        number: int,
        replicas: Sequence[tuple[int, int]],
        truncate_len: int,
        priority: int,
    ) -> None:
        flat = [value for pair in replicas for value in pair]
        if any(not 0 <= value <= 0xFFFF for value in flat):
            raise InvalidArgument(f"replicas {replicas}: ports and ids are 0 to 65535")
        array = (ctypes.c_uint32 * len(flat))(*flat)
        result = self._engine.ss_set_replicas(
            self._switch, clones, number, array, len(replicas), truncate_len or NONE, priority
        )
        check(result, f"{'clone session' if clones else 'multicast group'} {number}")

    # ---- packets --------------------------------------------------------------------------------

    def packet_out(self, data: bytes) -> None:
        """A packet enters at the CPU port, `packet_out` header first. TableFull: too many wait."""
        if not self.options.cpu_port:
            raise InvalidArgument("packet-out: the switch has no CPU port (--cpu-port)")
        if len(data) > MAX_PACKET_BYTES:
            raise InvalidArgument(f"packet-out of {len(data)} bytes; at most {MAX_PACKET_BYTES}")
        check(self._engine.ss_inject(self._switch, data, len(data)), "packet-out")

    def next_event(self, timeout_s: float) -> PacketIn | Digest | PortStatus | None:
        """The next packet-in, digest or change of a port; None when none comes in time.

        Does not hold the GIL.
        """
        address = self._engine.ss_next_event(self._switch, max(0, int(timeout_s * 1e9)))
        if not address:
            return None
        try:
            event = Event.from_address(address)
            data = ctypes.string_at(address + ctypes.sizeof(Event), event.bytes)
            if event.kind == EVENT_PACKET:
                return PacketIn(data)
            if event.kind == EVENT_PORT:
                return PortStatus(event.list, bool(data[0]))
            known = self._digests.get(event.list)
            if known is None:  # it is of the program that `load` has just replaced
                return None
            name, widths = known
            values, at = [], 0
            for width in widths:
                size = 8 * words_of(width)
                values.append(int.from_bytes(data[at : at + size], "little"))
                at += size
            return Digest(name, values, event.time_us)
        finally:
            self._engine.ss_event_free(address)

    def time_us(self) -> int:
        """Microseconds since the switch's creation: what time stamps of packets count."""
        return int(self._engine.ss_time_us(self._switch))

    def losses(self) -> tuple[int, int]:
        """(packets to the CPU port and digests, recirculated packets) lost for want of room."""
        out = Pair()
        self._engine.ss_losses(self._switch, out)
        return int(out[0]), int(out[1])

    def set_clock(self, seconds: float) -> None:
        """Stop the clock of meters and time stamps at a time after the switch's creation.

        For tests: what depends on time can then be told in advance.
        """
        self._engine.ss_set_clock(self._switch, round(seconds * 1e9))

    def process(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Put one packet through a switch that is not started: what leaves, as (port, bytes)."""
        out, length = ctypes.c_void_p(), ctypes.c_uint64()
        error = ctypes.create_string_buffer(ERROR_BYTES)
        result = self._engine.ss_process(
            self._switch, port, data, len(data), ctypes.byref(out), ctypes.byref(length), error
        )
        check(result, "process", error.value.decode(errors="replace"))
        left = ctypes.string_at(out.value, length.value) if out.value else b""
        packets, at = [], 0
        while at < len(left):
            number = int.from_bytes(left[at : at + 4], "little")
            size = int.from_bytes(left[at + 4 : at + 8], "little")
            packets.append((number, left[at + 8 : at + 8 + size]))
            at += 8 + size
        return packets
