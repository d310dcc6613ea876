# SPDX-License-Identifier: Apache-2.0
"""Loading: what is refused and by which name, that the old program then stays, and the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softswitch.bmread import read_program
from softswitch.codegen import translate
from softswitch.compile import default_cache_dir
from softswitch.dataplane import Dataplane
from softswitch.errors import BadProgram, CompileError, Unsupported
from softswitch.values import ActionCall, DataplaneOptions, FieldMatch
from tests.softswitch.dataplanes import field, loaded, probe, program

ROOT = Path(__file__).parents[2]
Change = Callable[[dict[str, Any]], None]


def _meter(raw: dict[str, Any]) -> None:
    raw["meter_arrays"] = [{"name": "ingress.rate", "id": 0, "rate_count": 3}]


def _primitive(raw: dict[str, Any]) -> None:
    raw["actions"][0]["primitives"] = [{"op": "teleport", "parameters": []}]
    raw["actions"][0]["name"] = "ingress.beam"


def _algorithm(raw: dict[str, Any]) -> None:
    raw["calculations"][0]["algo"] = "md5"
    raw["calculations"][0]["name"] = "calc_of_mine"


def _match_type(raw: dict[str, Any]) -> None:
    table = raw["pipelines"][0]["tables"][0]
    table["key"][0]["match_type"] = "fuzzy"


def _varbit(raw: dict[str, Any]) -> None:
    probe_type = next(t for t in raw["header_types"] if t["name"] == "probe_t")
    probe_type["fields"] += [["tail", "*"], ["more", "*"]]
    probe_type["max_length"] = 80


def _next_state(raw: dict[str, Any]) -> None:
    raw["parsers"][0]["parse_states"][0]["transitions"][0]["next_state"] = "nowhere"


def _no_headers(raw: dict[str, Any]) -> None:
    del raw["headers"]


REFUSED: list[tuple[str, Change, type[Exception], str]] = [
    ("match", _meter, Unsupported, "ingress.rate: a meter with 3 rates"),
    ("match", _primitive, Unsupported, "action ingress.beam: primitive teleport"),
    ("hashes", _algorithm, Unsupported, "calculation calc_of_mine: algorithm md5"),
    ("match", _match_type, Unsupported, "match type fuzzy"),
    ("match", _varbit, BadProgram, "probe_t has more than one variable-length field"),
    ("match", _next_state, BadProgram, "nowhere"),
    ("match", _no_headers, BadProgram, "headers"),
]


@pytest.mark.parametrize(("name", "change", "error", "says"), REFUSED)
def test_a_refused_program_leaves_the_old_one(
    name: str, change: Change, error: type[Exception], says: str
) -> None:
    raw = json.loads(program(name))
    change(raw)
    with loaded("match") as dataplane:
        table = dataplane.tables["ingress.by_lpm"]
        match = [FieldMatch(5, prefix_len=128), FieldMatch(0)]
        handle = table.insert(match, 0, ActionCall("ingress.set", (40,)))
        with pytest.raises(error, match=says):
            dataplane.load(json.dumps(raw).encode())
        ((_, packet),) = dataplane.process(1, probe(e=5))
        assert field(packet, "b") == 41
        assert dataplane.tables["ingress.by_lpm"] is table
        assert table.read_counter(handle)[0] == 1


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"__meta__": 5}', b"null"]
)
def test_what_is_not_a_program_is_refused(text: bytes) -> None:
    with loaded("match") as dataplane:
        with pytest.raises(BadProgram):
            dataplane.load(text)
        assert len(dataplane.process(1, probe())) == 1


def test_another_program_starts_empty() -> None:
    with loaded("state") as dataplane:
        dataplane.process(1, probe(x=1))
        dataplane.load(program("state"))
        assert dataplane.counters["ingress.both"].read(1) == (0, 0)
        dataplane.load(program("control"))
        assert "ingress.both" not in dataplane.counters
        assert set(dataplane.tables) >= {"ingress.choose", "ingress.again"}
        assert len(dataplane.process(1, probe())) == 1


def test_the_same_json_gives_the_same_code() -> None:
    sources = {translate(read_program(program("match"))).source for _ in range(3)}
    assert len(sources) == 1


# ---- the cache -----------------------------------------------------------------------------------

LOAD = """
import sys
from pathlib import Path
from softswitch.dataplane import Dataplane
from softswitch.errors import DataplaneError
from softswitch.values import DataplaneOptions
try:
    dataplane = Dataplane(DataplaneOptions(cache_dir=Path(sys.argv[1])))
    dataplane.load(Path(sys.argv[2]).read_bytes())
    dataplane.close()
except DataplaneError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def _start(cache: Path, tmp_path: Path, **environment: str) -> subprocess.Popen[str]:
    source = tmp_path / "small.json"
    if not source.exists():
        source.write_bytes(program("checksum"))
    return subprocess.Popen(
        [sys.executable, "-c", LOAD, str(cache), str(source)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=100)
    return process.returncode, errors


def _counting_compiler(directory: Path) -> tuple[Path, Path]:
    """A compiler that writes a line for each compilation, and where it does."""
    log, script = directory / "compiled", directory / "cc"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo x >>{log}\nexec cc "$@"\n')
    script.chmod(0o755)
    return script, log


def test_eight_processes_compile_once(tmp_path: Path) -> None:
    compiler, log = _counting_compiler(tmp_path)
    cache = tmp_path / "cache"
    processes = [_start(cache, tmp_path, CC=str(compiler)) for _ in range(8)]
    assert [_finish(process) for process in processes] == [(0, "")] * 8
    assert len(log.read_text().splitlines()) == 2  # the engine and the program
    assert len(list(cache.glob("*.so"))) == 2
    assert not list(cache.glob(".build-*"))


def test_a_cache_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    code, errors = _finish(_start(tmp_path / "file" / "cache", tmp_path))
    assert code == 1
    assert errors.startswith(f"CompileError: compiled programs are kept in {tmp_path / 'file'}")
    assert "XDG_CACHE_HOME" in errors


def test_no_home_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(CompileError, match="name a directory in XDG_CACHE_HOME"):
        default_cache_dir()


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    code, errors = _finish(_start(tmp_path / "cache", tmp_path, CC="no-such-compiler"))
    assert code == 1
    assert errors.startswith("CompileError: no C compiler: looked for no-such-compiler")


def test_a_failing_compiler_leaves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "broken"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho no such luck >&2\nexit 3\n')
    script.chmod(0o755)
    cache = tmp_path / "cache"
    code, errors = _finish(_start(cache, tmp_path, CC=str(script)))
    assert code == 1
    assert "no such luck" in errors
    assert [path.name for path in cache.iterdir()] == ["lock"]
    assert _finish(_start(cache, tmp_path)) == (0, "")


def test_a_damaged_library_in_the_cache_is_named(tmp_path: Path) -> None:
    assert _finish(_start(tmp_path / "cache", tmp_path)) == (0, "")
    (library,) = (tmp_path / "cache").glob("program-*.so")
    library.write_bytes(b"damaged")
    code, errors = _finish(_start(tmp_path / "cache", tmp_path))
    assert code == 1
    assert errors.startswith("DataplaneError: loading the program")
    assert str(library) in errors


def test_code_is_free_of_warnings(tmp_path: Path) -> None:
    for name in ("parser", "match", "arithmetic", "selector", "loops"):
        source = tmp_path / f"{name}.c"
        source.write_text(translate(read_program(program(name))).source)
        flags = ("-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror")
        include = ROOT / "softswitch" / "csrc"
        subprocess.run(["cc", *flags, f"-I{include}", str(source)], check=True)


def test_compile_error_is_a_dataplane_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataplane = Dataplane(DataplaneOptions(cache_dir=tmp_path / "cache"))
    try:
        monkeypatch.setattr("softswitch.dataplane.translate", _broken_translation)
        with pytest.raises(CompileError, match="failed"):
            dataplane.load(program("checksum"))
        assert dataplane.tables == {}
    finally:
        dataplane.close()


def _broken_translation(*_: object) -> Any:
    translation = translate(read_program(program("checksum")))
    return type(translation)("this is not C", translation.layout)
