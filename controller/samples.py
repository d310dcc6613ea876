# SPDX-License-Identifier: Apache-2.0
"""Probe samples as arrays, and their file format.

A sample is one probe: where it went and how long its answer took. Files are JSON (`.json`, to read
and to edit) or NPZ (`.npz`, for many samples); both hold the same columns and the shape of the
fabric, so that samples of another fabric are refused and not misread.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.fabric import Device, Fabric, frozen

FORMAT = "mrc-fabric probe samples"
VERSION = 1


class SamplesError(Exception):
    """Samples that cannot be used; the message names file, part, fault and what is allowed."""


class ProbeKind(IntEnum):
    """What a probe crosses."""

    T0_SELF = 0
    """NIC - T0 - the same NIC."""
    T1_SELF = 1
    """NIC - T0 - T1 - the same T0 - the same NIC."""
    PATH = 2
    """NIC to NIC on a chosen EV, answered by the other host."""


@dataclass(frozen=True)
class Samples:
    """N probes of one measurement.

    `shape` is (planes, T0 groups, uplinks, hosts per group) of the fabric; `src` and `dst` are host
    indices (group * hosts per group + downlink), equal for self-probes; `uplink` is 0 where a probe
    crosses no T1; `rtt_s` is the round trip in seconds, NaN when no answer came. `started` and
    `finished` are Unix times in seconds.
    """

    fabric: str
    shape: tuple[int, int, int, int]
    started: float
    finished: float
    kind: NDArray[np.uint8]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    plane: NDArray[np.int64]
    uplink: NDArray[np.int64]
    rtt_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.kind)

    def check_fabric(self, fabric: Fabric) -> None:
        """Raises `SamplesError` when the samples are of a fabric of another name or shape."""
        if (self.fabric, self.shape) != (fabric.name, shape_of(fabric)):
            raise SamplesError(
                f"samples are of fabric {self.fabric} {_shape_text(self.shape)}; allowed: "
                f"{fabric.name} {_shape_text(shape_of(fabric))}"
            )


COLUMNS = ("kind", "src", "dst", "plane", "uplink", "rtt_s")


def shape_of(fabric: Fabric) -> tuple[int, int, int, int]:
    """(planes, T0 groups, uplinks, hosts per group)."""
    return fabric.planes, fabric.groups, fabric.uplinks, fabric.hosts_per_group


def _shape_text(shape: tuple[int, ...]) -> str:
    planes, groups, uplinks, hosts = shape
    return f"({planes} planes, {groups} T0 groups, {uplinks} uplinks, {hosts} hosts per group)"


class SampleLog:
    """Collects samples while a measurement runs."""

    def __init__(self, fabric: Fabric, started: float) -> None:
        self._of = (fabric.name, shape_of(fabric))
        self._started = started
        self._rows: list[tuple[int, int, int, int, int, float]] = []

    def add(
        self,
        kind: ProbeKind,
        src: Device,
        dst: Device,
        plane: int,
        uplink: int,
        rtts_s: Sequence[float | None],
    ) -> None:
        """Notes probes that took the same way, one round trip in seconds each; None: no answer."""
        for rtt in rtts_s:
            lost = rtt is None
            self._rows.append(
                (kind, src.index, dst.index, plane, uplink, np.nan if lost else float(rtt or 0))
            )

    def finish(self, finished: float) -> Samples:
        """The samples so far; raises `SamplesError` when one is out of the fabric's range."""
        table = np.array(self._rows, dtype=np.float64).reshape(-1, len(COLUMNS))
        columns = dict(zip(COLUMNS, table.T, strict=True))
        return _checked("samples", *self._of, (self._started, finished), columns)


def save_samples(samples: Samples, path: str | Path) -> None:
    """Writes a `.json` or `.npz` file; raises `SamplesError` for another suffix."""
    path = Path(path)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "fabric": samples.fabric,
        "shape": list(samples.shape),
        "started": _iso(samples.started),
        "finished": _iso(samples.finished),
    }
    if _suffix(path) == ".npz":
        columns: dict[str, Any] = {name: getattr(samples, name) for name in COLUMNS}
        np.savez_compressed(path, header=np.array(json.dumps(header)), **columns)
        return
    rtts = [None if np.isnan(rtt) else rtt for rtt in samples.rtt_s.tolist()]
    kinds = [ProbeKind(kind).name for kind in samples.kind.tolist()]
    whole = {name: getattr(samples, name).tolist() for name in COLUMNS}
    document = {**header, "probes": {**whole, "kind": kinds, "rtt_s": rtts}}
    path.write_text(json.dumps(document) + "\n", encoding="utf-8")


def load_samples(path: str | Path) -> Samples:
    """Reads a file written by `save_samples`; raises `SamplesError`."""
    path = Path(path)
    try:
        if _suffix(path) == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                header = json.loads(str(archive["header"]))
                columns = {name: archive[name] for name in COLUMNS}
        else:
            header = json.loads(path.read_text(encoding="utf-8"))
            columns = _json_columns(path, header)
    except KeyError as ex:
        raise SamplesError(f"{path}: {ex} is missing; allowed: files of mrcctl probe") from ex
    except (OSError, ValueError, zipfile.BadZipFile) as ex:
        raise SamplesError(f"{path}: cannot read the samples: {ex}") from ex
    _check_header(path, header)
    shape = (header["shape"][0], header["shape"][1], header["shape"][2], header["shape"][3])
    times = (_unix(path, "started", header), _unix(path, "finished", header))
    return _checked(str(path), header["fabric"], shape, times, columns)


def _suffix(path: Path) -> str:
    if path.suffix not in (".json", ".npz"):
        raise SamplesError(f"{path}: samples as {path.suffix or 'no suffix'}; allowed: .json, .npz")
    return path.suffix


def _check_header(path: Path, header: Any) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise SamplesError(f"{path}: format: not a samples file; allowed: {FORMAT!r}")
    if header.get("version") != VERSION:
        raise SamplesError(
            f"{path}: version: {header.get('version')!r} is unknown; allowed: {VERSION}"
        )
    if not isinstance(header.get("fabric"), str):
        raise SamplesError(f"{path}: fabric: {header.get('fabric')!r}; allowed: the fabric's name")
    shape = header.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != 4
        or not all(type(size) is int and size > 0 for size in shape)
    ):
        raise SamplesError(
            f"{path}: shape: {shape!r}; allowed: [planes, T0 groups, uplinks, hosts per group]"
        )


def _json_columns(path: Path, header: Any) -> dict[str, NDArray[Any]]:
    if not isinstance(header, dict) or not isinstance(header.get("probes"), dict):
        raise SamplesError(f"{path}: probes: no such mapping; allowed: {', '.join(COLUMNS)}")
    columns = {}
    kinds = {kind.name: kind.value for kind in ProbeKind}
    for name in COLUMNS:
        values = header["probes"][name]
        if not isinstance(values, list):
            raise SamplesError(f"{path}: probes.{name}: {values!r}; allowed: a list")
        column = np.empty(len(values))
        for at, value in enumerate(values):
            if name == "kind" and isinstance(value, str) and value in kinds:
                column[at] = kinds[value]
            elif name == "rtt_s" and value is None:
                column[at] = np.nan
            elif name != "kind" and type(value) in (int, float):
                column[at] = value
            else:
                allowed = ", ".join(kinds) if name == "kind" else "numbers"
                raise SamplesError(f"{path}: probes.{name} {at}: {value!r}; allowed: {allowed}")
        columns[name] = column
    return columns


def _checked(
    source: str,
    fabric: str,
    shape: tuple[int, int, int, int],
    times: tuple[float, float],
    columns: Mapping[str, NDArray[Any]],
) -> Samples:
    """The samples, when every number is in its range."""
    planes, groups, uplinks, hosts = shape
    limits = {
        "kind": len(ProbeKind),
        "src": groups * hosts,
        "dst": groups * hosts,
        "plane": planes,
        "uplink": uplinks,
    }
    count = len(columns["kind"])
    for name in COLUMNS:
        column = columns[name]
        if column.ndim != 1 or len(column) != count:
            raise SamplesError(
                f"{source}: {name} has shape {column.shape}; allowed: as many values as kind, "
                f"{count}"
            )
        if not np.issubdtype(column.dtype, np.number):
            raise SamplesError(f"{source}: {name} is of type {column.dtype}; allowed: numbers")
        if name in limits:
            wrong = (column < 0) | (column >= limits[name]) | (column != np.floor(column))
            allowed = f"whole numbers 0..{limits[name] - 1}"
        else:
            wrong = (column < 0) | np.isinf(column)
            allowed = "seconds >= 0, or none where no answer came"
        if wrong.any():
            at = int(np.argmax(wrong))
            raise SamplesError(f"{source}: {name} {at} is {column[at]}; allowed: {allowed}")
    if times[1] < times[0]:
        raise SamplesError(f"{source}: finished before started, at {_iso(times[0])}")
    return Samples(
        fabric,
        shape,
        *times,
        kind=frozen(columns["kind"].astype(np.uint8)),
        src=frozen(columns["src"].astype(np.int64)),
        dst=frozen(columns["dst"].astype(np.int64)),
        plane=frozen(columns["plane"].astype(np.int64)),
        uplink=frozen(columns["uplink"].astype(np.int64)),
        rtt_s=frozen(columns["rtt_s"].astype(np.float64)),
    )


def _iso(unix_s: float) -> str:
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).isoformat()


def _unix(path: Path, key: str, header: Mapping[str, Any]) -> float:
    value = header.get(key)
    time = None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            time = datetime.datetime.fromisoformat(value)
    if time is None or time.tzinfo is None:
        raise SamplesError(
            f"{path}: {key}: {value!r}; allowed: ISO 8601 with a time zone, as in "
            "2026-01-31T12:00:00+00:00"
        )
    return time.timestamp()
