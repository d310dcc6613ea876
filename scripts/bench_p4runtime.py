#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the P4Runtime servers of switches in one run: entries written and read per second.

    unshare --net -- sh -c "ip link set lo up; .venv/bin/python scripts/bench_p4runtime.py"

Program: fabric.p4, exact entries of usid_fib with a direct counter each. Each number is the median
of ROUNDS; the entries are deleted in between. "raw" sends a request that was serialised before, and
so measures the server; "finsy" is what a controller of this project sees. Client and server share
the machine, so compare the switches with one another and with nothing else.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from finsy import P4TableAction
from finsy.proto import p4r

from ptf_tests.device import ELECTION_ID, LOAD_TIMEOUT_S, Device, entry
from ptf_tests.namespace import require_private_namespace
from ptf_tests.switch import TARGETS, SwitchProcess

ROUNDS = 5
WRITTEN = 1000  # entries in one write
READ = 10_000  # entries in one read
BLOCK = 0xFCBBBB00


class RawStub:
    """The calls of a device's stub with requests as bytes."""

    def __init__(self, device: Device) -> None:
        channel = device._channel
        self.write = channel.unary_unary("/p4.v1.P4Runtime/Write")
        self.read = channel.unary_stream("/p4.v1.P4Runtime/Read")


def enlarge(device: Device) -> None:
    """Load the program once more, with a usid_fib that holds READ entries."""
    config = device.schema.get_pipeline_config()
    table = next(t for t in config.p4info.tables if t.preamble.alias == "usid_fib")
    program = json.loads(config.p4_device_config)
    for pipeline in program["pipelines"]:
        for described in pipeline["tables"]:
            if described["name"] == table.preamble.name:
                described["max_size"] = READ
    table.size = READ
    config.p4_device_config = json.dumps(program).encode()
    request = p4r.SetForwardingPipelineConfigRequest(
        device_id=1,
        election_id=ELECTION_ID,
        action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        config=config,
    )
    device._stub.SetForwardingPipelineConfig(request, timeout=LOAD_TIMEOUT_S)


def updates(device: Device, kind: int, count: int) -> Any:
    """A WriteRequest with `count` entries of usid_fib."""
    forward = P4TableAction("forward", port=2, dst_mac=1, src_mac=2)
    request = p4r.WriteRequest(device_id=1, election_id=ELECTION_ID)
    for index in range(count):
        made = entry("usid_fib", {"locator_node": BLOCK << 16 | index + 1}, forward)
        request.updates.append(p4r.Update(type=kind, entity=made.encode(device.schema)))
    return request


def rate(count: int, work: Callable[[], object], undo: Callable[[], object]) -> float:
    """Median of `count` per second over ROUNDS of `work`, each followed by `undo`."""
    rates = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - started))
        undo()
    return statistics.median(rates)


def measure(target: str) -> dict[str, float]:
    """What one target does per second, by the name of the measurement."""
    with tempfile.TemporaryDirectory() as name:
        switch = SwitchProcess(target, 1, {}, Path(name) / "switch.log")
        switch.start()
        try:
            device = Device("fabric", switch.address, 1)
            try:
                enlarge(device)
                return _measure(device)
            finally:
                device.close()
        finally:
            switch.stop()


def _measure(device: Device) -> dict[str, float]:
    raw = RawStub(device)
    results = {}
    kinds = {"insert": p4r.Update.INSERT, "modify": p4r.Update.MODIFY, "delete": p4r.Update.DELETE}
    for count in (WRITTEN, READ):
        insert, modify, delete = (
            updates(device, kind, count).SerializeToString() for kind in kinds.values()
        )
        results[f"raw insert of {count}"] = rate(
            count, lambda: raw.write(insert), lambda: raw.write(delete)  # noqa: B023
        )  # fmt: skip
        raw.write(insert)
        results[f"raw modify of {count}"] = rate(
            count, lambda: raw.write(modify), lambda: None  # noqa: B023
        )  # fmt: skip
        results[f"raw delete of {count}"] = rate(
            count, lambda: raw.write(delete), lambda: raw.write(insert)  # noqa: B023
        )  # fmt: skip
        raw.write(delete)
    forward = P4TableAction("forward", port=2, dst_mac=1, src_mac=2)
    entries = [
        entry("usid_fib", {"locator_node": BLOCK << 16 | index + 1}, forward)
        for index in range(WRITTEN)
    ]
    results[f"finsy insert of {WRITTEN}"] = rate(
        WRITTEN, lambda: device.insert(*entries), lambda: device.delete(*entries)
    )
    raw.write(updates(device, p4r.Update.INSERT, READ).SerializeToString())
    table = p4r.TableEntry(table_id=device.schema.tables["usid_fib"].id)
    for what in ("plain", "counters"):
        if what == "counters":
            table.counter_data.SetInParent()
        query = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=table)])
        wire = query.SerializeToString()

        def read_all(wire: bytes = wire) -> None:
            found = sum(len(p4r.ReadResponse.FromString(r).entities) for r in raw.read(wire))
            if found != READ:
                sys.exit(f"{found} entries were read, not {READ}")

        results[f"raw read of {READ}, {what}"] = rate(READ, read_all, lambda: None)
    return results


def main() -> None:
    """Measure the targets named on the command line, or all that are installed."""
    targets = sys.argv[1:] or [
        target
        for target in TARGETS
        if target != "bmv2" or shutil.which("simple_switch_grpc") is not None
    ]
    if unknown := set(targets) - set(TARGETS):
        sys.exit(f"unknown target {', '.join(unknown)}: allowed are {', '.join(TARGETS)}")
    require_private_namespace()
    print(
        f"fabric.p4, usid_fib, entries/s, median of {ROUNDS}; {os.cpu_count()} cores, "
        f"Linux {platform.release()}"
    )
    results = {target: measure(target) for target in targets}
    print(f"{'':<32}" + "".join(f"{target:>14}" for target in targets) + f"{'ratio':>8}")
    first, last = results[targets[0]], results[targets[-1]]
    for what in first:
        numbers = "".join(f"{results[target][what]:>14,.0f}" for target in targets)
        print(f"{what:<32}{numbers}{first[what] / last[what]:>8.2f}")


if __name__ == "__main__":
    main()
