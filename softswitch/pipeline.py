# SPDX-License-Identifier: Apache-2.0
"""Forwarding pipeline configurations: verify, save, commit, reconcile (P4Runtime 1.4, section 14).

A configuration is checked completely before the running program is touched: the JSON is read, the
P4Info indexed, and both compared. Then the data plane loads it; if it refuses, the old program goes
on with its entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from finsy.proto import p4r

from softswitch.bmjson import Program
from softswitch.bmread import read_program
from softswitch.boundary import DataplaneLike, PipelineLike
from softswitch.codegen import translate
from softswitch.description import (
    Description,
    check_same_program,
    describe,
    leave_out_absent,
)
from softswitch.digests import DigestQueue
from softswitch.entities import EntityStore
from softswitch.errors import DataplaneError
from softswitch.idle import IdleMonitor
from softswitch.p4info import P4InfoView, view
from softswitch.shadow import ShadowPipeline
from softswitch.status import FAILED_PRECONDITION, INTERNAL, NOT_FOUND, Failure, invalid
from softswitch.stream import PacketHeader, StreamHub, packet_headers

log = logging.getLogger("softswitch.pipeline")

_Request = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest


@dataclass(slots=True)
class Config:
    """A verified configuration: the client's message and what was found in it."""

    message: Any
    view: P4InfoView
    description: Description
    packet_in: PacketHeader | None
    packet_out: PacketHeader | None

    program: bytes
    """The BMv2 JSON."""

    parsed: Program


@dataclass(frozen=True, slots=True)
class Running:
    """The program that forwards packets, and its entities.

    `from_controller` is False for one of the command line, which P4Runtime does not know.
    """

    program: Program
    store: EntityStore
    from_controller: bool


def verify(message: Any) -> Config:
    """Check a ForwardingPipelineConfig. Raises `Failure` INVALID_ARGUMENT or UNIMPLEMENTED."""
    if not message.HasField("p4info"):
        raise invalid("the config has no p4info")
    if not message.p4_device_config:
        raise invalid("the config has no p4_device_config; it must be p4c's BMv2 JSON")
    program = device_data(message.p4_device_config)
    try:
        parsed = read_program(program)
        description = describe(parsed)
    except DataplaneError as error:
        raise invalid(f"p4_device_config: {error}") from None
    info = view(message.p4info)
    if left_out := leave_out_absent(info, description):
        log.warning("p4c has optimised away, and writes are refused for: %s", ", ".join(left_out))
    check_same_program(info, description)
    packet_in, packet_out = packet_headers(info)
    return Config(message, info, description, packet_in, packet_out, program, parsed)


def check_translates(config: Config) -> None:
    """Translate the program without running it. Raises `Failure` as loading it would."""
    try:
        translate(config.parsed)
    except DataplaneError as error:
        raise invalid(f"p4_device_config: {error}") from None


def device_data(blob: bytes) -> bytes:
    """The program in a p4_device_config.

    Usually that is the JSON itself. Older scripts (p4lang/tutorials) wrap it into a message
    p4.tmp.P4DeviceConfig, whose fields are reassign (1), extras (2) and the program (3); BMv2 takes
    that too. What is neither comes back as it is.
    """
    position, found = 0, blob
    while position < len(blob):
        tag = blob[position]
        if tag not in (1 << 3, 2 << 3 | 2, 3 << 3 | 2):
            return blob
        size, position = _varint(blob, position + 1)
        if tag == 3 << 3 | 2:
            found = blob[position : position + size]
        if tag != 1 << 3:
            position += size
    return found if position == len(blob) else blob


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """A base-128 integer and the position after it, which is beyond `data` when it is cut off."""
    number = 0
    for count, byte in enumerate(data[start : start + 10]):
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number, start + count + 1
    return number, len(data) + 1


class PipelineManager:
    """The configuration of a data plane and the store of its entities.

    `lock` is held while the program is replaced; whoever reads or writes entities takes it first.

    `running` has the program that forwards, also while another one is saved for COMMIT.
    """

    def __init__(self, dataplane: DataplaneLike, hub: StreamHub) -> None:
        self._dataplane = dataplane
        self._hub = hub
        self._committed: Config | None = None
        self._saved: Config | None = None
        self._store: EntityStore | None = None
        self._idle: IdleMonitor | None = None
        self.running: Running | None = None
        self.lock = asyncio.Lock()
        self._changed_ports: set[int] = set()
        self._following: asyncio.Task[None] | None = None

    @property
    def store(self) -> EntityStore:
        """The entities that reads and writes refer to. Raises `Failure` FAILED_PRECONDITION."""
        if self._store is None:
            # finsy recognises this message by its wording.
            raise Failure(
                FAILED_PRECONDITION, "no forwarding pipeline config is set on this device"
            )
        return self._store

    def port_changed(self, port: int, up: bool) -> None:
        """A port went up or down: entities that watch it follow, when nothing else is written."""
        log.info("port %d is %s", port, "up" if up else "down")
        self._changed_ports.add(port)
        if self._following is None:
            self._following = asyncio.ensure_future(self._follow_ports())

    async def _follow_ports(self) -> None:
        async with self.lock:
            ports, self._changed_ports = self._changed_ports, set()
            self._following = None
            if self._store is not None:
                for port in ports:
                    self._store.port_changed(port)

    def adopt(self, program: Program, description: Description, info: P4InfoView) -> None:
        """The data plane has loaded a program that no controller gave; `info` stands for P4Info."""
        store = EntityStore(info, description, self._dataplane, {})
        self.running = Running(program, store, from_controller=False)

    def get(self, response_type: int) -> Any:
        """A GetForwardingPipelineConfigResponse; its config is unset when there is none."""
        response = p4r.GetForwardingPipelineConfigResponse()
        config = self._saved or self._committed
        if response_type not in _Get.ResponseType.values():
            raise invalid(f"unknown response_type {response_type}")
        if config is None:
            return response
        target = response.config
        if response_type in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            target.p4info.CopyFrom(config.message.p4info)
        if response_type in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            target.p4_device_config = config.message.p4_device_config
        if config.message.HasField("cookie"):
            target.cookie.CopyFrom(config.message.cookie)
        target.SetInParent()
        return response

    async def set(self, request: Any) -> None:
        """Carry out a SetForwardingPipelineConfigRequest; the caller holds `lock`.

        Raises `Failure`; the configuration and all entities are then as they were.
        """
        action = request.action
        if action == _Request.COMMIT:
            await self._commit_saved(request)
            return
        if action not in _Request.Action.values() or action == _Request.UNSPECIFIED:
            raise invalid(f"unknown action {action} in SetForwardingPipelineConfig")
        if not request.HasField("config"):
            raise invalid("SetForwardingPipelineConfig without a config")
        config = verify(request.config)
        if action in (_Request.VERIFY, _Request.VERIFY_AND_SAVE):
            await asyncio.to_thread(check_translates, config)
        if action == _Request.VERIFY:
            return
        if action == _Request.VERIFY_AND_SAVE:
            self._saved = config
            self._store = self._make_store(config, self._shadow(config))
            log.info("pipeline saved; COMMIT makes it run")
        elif action == _Request.VERIFY_AND_COMMIT:
            await self._commit(config, [])
        else:
            await self._reconcile(config)

    async def _commit_saved(self, request: Any) -> None:
        if request.HasField("config"):
            raise invalid("COMMIT takes the saved config; leave config out")
        if self._saved is None:
            raise Failure(NOT_FOUND, "COMMIT: no config was saved by VERIFY_AND_SAVE")
        await self._commit(self._saved, self.store.export())

    async def _reconcile(self, config: Config) -> None:
        updates = self._store.export() if self._store is not None else []
        trial = self._make_store(config, self._shadow(config))
        _replay(trial, updates, lambda what: invalid(f"RECONCILE_AND_COMMIT: {what}"))
        await self._commit(config, updates)

    async def _commit(self, config: Config, updates: list[Any]) -> None:
        """Load a program and put entries into it that are known to fit."""
        self._hub.busy = True
        self.close()
        try:
            await asyncio.to_thread(self._dataplane.load, config.program)
        except DataplaneError as error:
            if self._idle is not None:
                self._idle.start()
            raise invalid(f"p4_device_config: {error}") from None
        finally:
            self._hub.busy = False
        store = self._make_store(config, self._dataplane)
        loop = asyncio.get_running_loop()
        self._idle = IdleMonitor(store.idle_timeouts(), loop, self._hub.publish)
        self._committed, self._saved, self._store = config, None, store
        self.running = Running(config.parsed, store, from_controller=True)
        self._hub.configure(config.packet_in, config.packet_out, store.digests)
        log.info(
            "pipeline committed: %d tables, %d bytes of program",
            len(config.view.tables),
            len(config.program),
        )
        _replay(store, updates, lambda what: Failure(INTERNAL, f"entries lost: {what}"))

    def close(self) -> None:
        """Look for idle entries no more: the program is about to go."""
        if self._idle is not None:
            self._idle.stop()

    def _shadow(self, config: Config) -> ShadowPipeline:
        return ShadowPipeline(config.description, self._dataplane.port_is_up)

    def _make_store(self, config: Config, pipeline: PipelineLike) -> EntityStore:
        loop = asyncio.get_running_loop()
        digests = {
            i: DigestQueue(info, loop, self._hub.publish) for i, info in config.view.digests.items()
        }
        return EntityStore(config.view, config.description, pipeline, digests)


def _replay(store: EntityStore, updates: list[Any], failure: Callable[[str], Failure]) -> None:
    for update, outcome in zip(updates, store.write(updates), strict=True):
        if outcome is not None:
            raise failure(f"{update.entity.WhichOneof('entity')}: {outcome.message}")
