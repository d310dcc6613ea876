# SPDX-License-Identifier: Apache-2.0
"""Send changed requests to a server whose engine and program are built with sanitizers.

    .venv/bin/python -m tests.softswitch.fuzz_p4runtime [--seconds N] [--seed N] [SCENARIO...]

Each request is one that a scenario would make, with fields changed, taken out, or doubled, and
sometimes with bytes changed. Answers may be any error that names what was wrong, never INTERNAL or
UNKNOWN for an update or a whole request that can be parsed; nothing may be logged with a traceback,
and a read in between has to work. The process starts itself again with the sanitizer's library in
front, and with Python's own allocator off, so that a byte read behind a message is seen.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import grpc
from finsy.proto import p4r, rpc_status
from google.protobuf.message import DecodeError

import softswitch.compile
from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.softswitch.controller_port import CPU_PORT
from tests.softswitch.differential import SCENARIOS, config_of
from tests.softswitch.mutations import change_message
from tests.softswitch.p4rt import (
    DELETE,
    DEVICE_ID,
    INSERT,
    MODIFY,
    RawClient,
    Stream,
    serving,
    set_election_id,
)
from tests.softswitch.scenarios import Scenario

FLAGS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ASAN = "detect_leaks=0:detect_stack_use_after_return=0:exitcode=86"
SERVICE = "/p4.v1.P4Runtime/"
CHECK_EVERY = 100
RESET_EVERY = 1000
MOST_UPDATES = 12
TIMEOUT_S = 20
FORBIDDEN = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}
FORBIDDEN_CODES = {code.value[0] for code in FORBIDDEN}
ENTITIES = (
    *("table_entry", "counter_entry", "direct_counter_entry", "meter_entry", "direct_meter_entry"),
    *("action_profile_member", "action_profile_group", "packet_replication_engine_entry"),
    *("register_entry", "digest_entry", "value_set_entry", "extern_entry"),
)


class WrongAnswerError(AssertionError):
    """The server did what it must not do."""


class Errors(logging.Handler):
    """Remembers what is logged as an error or with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.texts.append(logging.Formatter().format(record))


class Fuzzer:
    """One server with a scenario's program, and requests for it."""

    def __init__(self, client: RawClient, scenario: Scenario, seed: int, errors: Errors) -> None:
        self._client = client
        self._source = random.Random(seed)
        self._errors = errors
        self._updates = list(scenario.entries(client, seed)) or [p4r.Update(type=INSERT)]
        self.codes: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Send requests for so long."""
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            number += 1
            self._one()
            if number % CHECK_EVERY == 0:
                self._check()
            if number % RESET_EVERY == 0:
                self._client.set_pipeline()

    def _one(self) -> None:
        kind = self._source.random()
        if kind < 0.6:
            self._send("Write", self._write_request())
        elif kind < 0.85:
            self._send("Read", self._read_request())
        elif kind < 0.88:
            self._send("SetForwardingPipelineConfig", self._pipeline_request())
        elif kind < 0.92:
            self._send(
                "GetForwardingPipelineConfig",
                self._changed(p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE_ID)),
            )
        else:
            self._stream()

    # ---- requests --------------------------------------------------------------------------------

    def _write_request(self) -> Any:
        count = self._source.randrange(1, MOST_UPDATES)
        request = p4r.WriteRequest(device_id=DEVICE_ID)
        set_election_id(request, self._client.election_id)
        for wanted in self._source.choices(self._updates, k=count):
            update = request.updates.add()
            update.CopyFrom(wanted)
            update.type = self._source.choice((INSERT, INSERT, MODIFY, DELETE))
        if self._source.random() < 0.2:
            request.atomicity = self._source.randrange(3)
        if self._source.random() < 0.7:  # the rest is as it should be
            for _ in range(self._source.randrange(4)):
                change_message(self._source, self._source.choice(list(request.updates)).entity)
            return request
        return self._changed(request)

    def _read_request(self) -> Any:
        request = p4r.ReadRequest(device_id=DEVICE_ID)
        for _ in range(self._source.randrange(1, 4)):
            entity = request.entities.add()
            if self._source.random() < 0.5:
                entity.CopyFrom(self._source.choice(self._updates).entity)
            else:
                getattr(entity, self._source.choice(ENTITIES)).SetInParent()
        return self._changed(request)

    def _pipeline_request(self) -> Any:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID, action="VERIFY", config=self._client.config
        )
        set_election_id(request, self._client.election_id)
        return self._changed(request)

    def _changed(self, request: Any) -> Any:
        for _ in range(self._source.randrange(1, 4)):
            change_message(self._source, request)
        return request

    def _stream(self) -> None:
        """A stream of its own: what a secondary, or anybody, may send."""
        stream = Stream(self._client.stub)
        for _ in range(self._source.randrange(1, 5)):
            message = p4r.StreamMessageRequest()
            kind = self._source.choice(("arbitration", "packet", "digest_ack", "other"))
            getattr(message, kind).SetInParent()
            if kind == "arbitration":
                message.arbitration.device_id = DEVICE_ID
            self._changed(message)
            if message.arbitration.election_id.high or message.arbitration.election_id.low:
                message.arbitration.election_id.high = 0
                message.arbitration.election_id.low = 0  # nobody else becomes the primary
            stream.send_message(message)
        stream.close()
        while isinstance(
            answer := stream.responses.get(timeout=TIMEOUT_S), p4r.StreamMessageResponse
        ):
            pass
        if isinstance(answer, grpc.RpcError):
            self._judge("StreamChannel", answer, b"", parses=True)

    # ---- answers ---------------------------------------------------------------------------------

    def _send(self, method: str, request: Any) -> None:
        wire = bytearray(request.SerializeToString())
        if self._source.random() < 0.1 and wire:
            for _ in range(self._source.randrange(1, 4)):
                wire[self._source.randrange(len(wire))] = self._source.randrange(256)
        try:
            type(request).FromString(bytes(wire))
            parses = True
        except DecodeError:
            parses = False
        channel = self._client.channel
        make = channel.unary_stream if method == "Read" else channel.unary_unary
        call = make(SERVICE + method)
        try:
            answer = call(bytes(wire), timeout=TIMEOUT_S)
            if method == "Read":
                for _ in answer:
                    pass
            self.codes[f"{method} OK"] += 1
        except grpc.RpcError as error:
            self._judge(method, error, bytes(wire), parses=parses)
        if parses and self._errors.texts:
            raise WrongAnswerError(f"{method} {bytes(wire).hex()}: logged {self._errors.texts[0]}")
        self._errors.texts.clear()

    def _judge(self, method: str, error: Any, wire: bytes, *, parses: bool) -> None:
        code, where = error.code(), f"{method} {wire.hex()}: {error.details()}"
        self.codes[f"{method} {code.name}"] += 1
        if code is grpc.StatusCode.UNKNOWN:
            details = dict(error.trailing_metadata()).get("grpc-status-details-bin")
            if details is None and parses:
                raise WrongAnswerError(where)
            for item in rpc_status.Status.FromString(details or b"").details:
                one = p4r.Error()
                item.Unpack(one)
                self.codes[f"update {one.canonical_code}"] += 1
                if one.canonical_code in FORBIDDEN_CODES:
                    raise WrongAnswerError(f"{where}: {one}")
        elif code in FORBIDDEN and parses:
            raise WrongAnswerError(where)

    def _check(self) -> None:
        """The server works for those who ask it properly."""
        self._client.read(p4r.Entity(table_entry=p4r.TableEntry()))


# ---- processes -----------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """That of a process with the sanitizer's library in front of all others."""
    found = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    more = {"LD_PRELOAD": " ".join(found), "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": ASAN}
    return {**os.environ, **more, "CC": "gcc", "UBSAN_OPTIONS": "print_stacktrace=1"}


def fuzz(scenario: Scenario, seconds: float, seed: int) -> Counter[str]:
    """How often each answer came."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT))
    try:
        config = config_of(scenario)
        dataplane.load(config.p4_device_config)  # compiling may take longer than a client waits
        with serving(dataplane) as address:
            client = RawClient(address, config)
            stream = client.stream()
            stream.arbitrate(1)
            client.set_pipeline()
            fuzzer = Fuzzer(client, scenario, seed, errors)
            fuzzer.run(seconds)
            stream.cancel()
            client.close()
    finally:
        logging.getLogger().removeHandler(errors)
        dataplane.close()
    return fuzzer.codes


def main(arguments: Sequence[str]) -> int:
    """The child sends; its parent starts it."""
    parser = argparse.ArgumentParser(description="fuzz softswitch's P4Runtime server")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--seconds", type=float, default=600, help="for all scenarios together")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "tests.softswitch.fuzz_p4runtime", *arguments]
            env = {**environment(), "XDG_CACHE_HOME": cache}
            return subprocess.run(command, env=env, check=False).returncode
    softswitch.compile.FLAGS = (*softswitch.compile.FLAGS, *FLAGS)  # type: ignore[assignment]
    names = options.scenarios or list(SCENARIOS)
    for name in names:
        codes = fuzz(SCENARIOS[name], options.seconds / len(names), options.seed)
        counts = ", ".join(f"{code} {count}" for code, count in sorted(codes.items()))
        print(f"{name}: {sum(codes.values())} answers: {counts}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
