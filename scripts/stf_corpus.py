#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run p4c's STF tests of v1model programs on softswitch, and on BMv2 in p4c's own way.

    python scripts/stf_corpus.py P4C [--work DIR] [--jobs N] [--only TEXT]
    unshare --net -- python scripts/stf_corpus.py P4C --bmv2

P4C is a checkout of p4c. Programs are compiled with p4c-bm2-ss into the work directory, each test
runs in a process of its own with a time-out. Without `--bmv2` BMv2's results of an earlier run with
the same work directory are shown. Prints the failures with their reasons and a table by feature;
the same is in DIR/results.json. Exits with 1 when softswitch fails a test that BMv2 passes, or one
for which BMv2 has no result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from softswitch.stf.__main__ import DIFFERS
from softswitch.stf.features import features

COMPILE_TIMEOUT_S = 120
TEST_TIMEOUT_S = 240
P4_14 = "p4_14_samples"
INLINE = "--parser-inline-opt"
V1MODEL = re.compile(rb"include.*v1model\.p4")
XFAIL = re.compile(r"^\s*testdata/(\S+)\.p4", re.MULTILINE)
XFAIL_BLOCK = re.compile(
    r"(?:set|list)\s*\((?:APPEND )?\s*XFAIL_TESTS(.*?)^\s*\)", re.DOTALL | re.M
)
WITH_ARGUMENTS = re.compile(
    r'p4c_add_test_with_args\("bmv2".*?"testdata/(?P<name>\S+)\.p4"\s+"(?P<args>[^"\\]*)', re.DOTALL
)
CONFIG_H = "#define HAVE_SIMPLE_SWITCH 1\n"


@dataclass(frozen=True)
class Pair:
    """A program and its test. `name` is relative to testdata, with the flags that matter."""

    name: str
    program: Path
    test: Path
    flags: tuple[str, ...] = ()
    xfail: bool = False
    note: str = ""


@dataclass
class Result:
    """What became of a pair. The outcomes are pass, fail, or "" for not run."""

    name: str
    test: str
    note: str = ""
    xfail: bool = False
    compiled: bool = False
    features: list[str] = field(default_factory=list)
    softswitch: str = ""
    reason: str = ""
    bmv2: str = ""
    bmv2_reason: str = ""


# ---- which tests there are -----------------------------------------------------------------------


def pairs(p4c: Path, work: Path) -> tuple[list[Pair], Counter[str]]:
    """All pairs for v1model, and how many others there are per reason for leaving them out.

    What p4c itself expects to fail on BMv2, or runs with arguments of its own, is marked as such.
    """
    testdata = p4c / "testdata"
    lists = (p4c / "backends" / "bmv2" / "CMakeLists.txt").read_text()
    xfail = {name for block in XFAIL_BLOCK.findall(lists) for name in XFAIL.findall(block)}
    special = {found["name"]: found["args"] for found in WITH_ARGUMENTS.finditer(lists)}
    found: list[Pair] = []
    others: Counter[str] = Counter()
    for test in sorted(testdata.rglob("*.stf")):
        program = test.with_suffix(".p4")
        relative = test.relative_to(testdata)
        name = str(relative.with_suffix(""))
        if relative.parts[0] == P4_14:
            translated = testdata / "p4_14_samples_outputs" / program.name
            if translated.is_file():
                found.append(_translated(name, translated, test, work, name in xfail))
            else:
                others["P4_14 without a translation to P4_16"] += 1
        elif not program.is_file():
            others["no program of this name"] += 1
        elif not V1MODEL.search(program.read_bytes()):
            others["another architecture than v1model"] += 1
        else:
            note = f"p4c runs it with {special[name]} ..." if name in special else ""
            found.append(Pair(name, program, test, xfail=name in xfail, note=note))
            if "parser-inline" in relative.parts:
                found.append(Pair(f"{name} {INLINE}", program, test, (INLINE,)))
    return found, others


def _translated(name: str, translated: Path, test: Path, work: Path, xfail: bool) -> Pair:
    """A P4_14 test with p4c's translation. The copy's path has no "p4_14", from which p4c's test
    script would conclude that it is to be compiled as such."""
    copy = work / "translated" / translated.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    if not copy.is_file() or copy.read_bytes() != translated.read_bytes():
        shutil.copyfile(translated, copy)
    return Pair(name, copy, test, xfail=xfail, note="P4_14, from p4c's translation to P4_16")


# ---- running one ---------------------------------------------------------------------------------


def run(command: Sequence[str], timeout_s: float, cwd: Path | None = None) -> tuple[int, str]:
    """Return code and output, of both streams. Ends the whole process group after the time-out."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=cwd,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return -signal.SIGKILL, f"{output}\nno end after {timeout_s} s"
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def compile_program(pair: Pair, work: Path, compiler: str) -> tuple[Path | None, str]:
    """The JSON, from the work directory when it was compiled already; or None and the error."""
    stem = re.sub(r"[^\w.-]+", "+", pair.name)
    output = work / "json" / f"{stem}.json"
    if output.is_file() and output.stat().st_mtime > pair.program.stat().st_mtime:
        return output, ""
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_suffix(".partial")
    command = [compiler, *pair.flags, "-o", str(partial), str(pair.program)]
    code, text = run(command, COMPILE_TIMEOUT_S)
    if code or not partial.is_file():
        return None, first_error(text) or f"{compiler} ends with {code}"
    partial.replace(output)
    return output, ""


def first_error(text: str) -> str:
    """The line of a compiler's or test's output that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if "error" in line.lower() and "Test failed" not in line:
            return line
    return lines[0] if lines else ""


def run_softswitch(program: Path, test: Path) -> tuple[str, str]:
    """Outcome and reason. p4c's runner for BMv2 passes over check_counter: a test that fails by
    these commands only counts as passed, with a reason that says so."""
    command = [sys.executable, "-m", "softswitch.stf", str(program), str(test)]
    code, text = run(command, TEST_TIMEOUT_S)
    if code == 0:
        return "pass", ""
    if code == DIFFERS and run([*command, "--no-counters"], TEST_TIMEOUT_S)[0] == 0:
        return (
            "pass",
            f"but for check_counter, which p4c does not evaluate on BMv2:\n{text.strip()}",
        )
    return "fail", text.strip() or f"ends with {code}"


class Bmv2:
    """p4c's run-bmv2-test.py with simple_switch. Results are kept by what went into them."""

    def __init__(
        self, p4c: Path, work: Path, compiler: str, python: str, *, run_tests: bool
    ) -> None:
        self._p4c = p4c
        self._python = python
        self._build = work / "bmv2"
        self._results = work / "bmv2-results"
        self._run_tests = run_tests
        for directory in (self._build, self._results):
            directory.mkdir(parents=True, exist_ok=True)
        (self._build / "config.h").write_text(CONFIG_H)
        link = self._build / "p4c-bm2-ss"
        link.unlink(missing_ok=True)
        link.symlink_to(shutil.which(compiler) or compiler)

    def outcome(self, pair: Pair, program: Path) -> tuple[str, str]:
        """Outcome and reason, run now or earlier; ("", "") when it was not run."""
        content = program.read_bytes() + b"\0" + pair.test.read_bytes()
        kept = self._results / f"{program.stem}-{hashlib.sha256(content).hexdigest()[:24]}.json"
        if kept.is_file():
            outcome, reason = json.loads(kept.read_text())
            return str(outcome), str(reason)
        if not self._run_tests:
            return "", ""
        outcome, reason = self._run(pair)
        if outcome == "fail":  # p4c's way leaves things to timing: a failure has to come twice
            outcome, reason = self._run(pair)
        kept.write_text(json.dumps([outcome, reason]))
        return outcome, reason

    def _run(self, pair: Pair) -> tuple[str, str]:
        directory = self._build / re.sub(r"[^\w.-]+", "+", pair.name)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        driver = self._p4c / "backends" / "bmv2" / "run-bmv2-test.py"
        command = [self._python, str(driver), str(self._p4c), str(pair.program)]
        command += ["-tf", str(pair.test), "-bd", str(self._build), "-td", str(directory)]
        command += [f"-a={flag}" for flag in pair.flags]
        code, text = run(command, TEST_TIMEOUT_S, self._build)
        shutil.rmtree(directory, ignore_errors=True)
        return ("pass", "") if code == 0 else ("fail", first_error(text) or f"ends with {code}")


# ---- the report ----------------------------------------------------------------------------------


def table_by_feature(results: Sequence[Result]) -> Iterator[str]:
    """Lines: feature, pairs, what BMv2 passes, what softswitch passes, and of the former."""
    rows: dict[str, list[Result]] = {"all": [r for r in results if r.compiled]}
    for name in sorted({name for result in results for name in result.features}):
        rows[name] = [result for result in results if name in result.features]
    yield f"{'feature':32}{'pairs':>7}{'BMv2':>7}{'softswitch':>12}{'of BMv2 s':>11}"
    for name, row in rows.items():
        bmv2 = [r for r in row if r.bmv2 == "pass"]
        ours = sum(r.softswitch == "pass" for r in row)
        both = sum(r.softswitch == "pass" for r in bmv2)
        yield f"{name:32}{len(row):>7}{len(bmv2):>7}{ours:>12}{both:>11}"


def failures(results: Sequence[Result]) -> Iterator[str]:
    """One paragraph for each test that is not passed, or not wholly."""
    for result in results:
        marks = [f"BMv2: {result.bmv2}"] if result.bmv2 else []
        marks += ["XFAIL in p4c"] if result.xfail else []
        marks += [result.note] if result.note else []
        suffix = f" ({'; '.join(marks)})" if marks else ""
        if not result.compiled:
            yield f"{result.name}{suffix}: not compiled: {result.reason}"
        elif result.reason:
            title = f"{result.name}{suffix}: {result.softswitch}"
            yield f"{title}\n    " + result.reason.replace("\n", "\n    ")


def summary(results: Sequence[Result]) -> Iterator[str]:
    """The figures."""
    for title, chosen in (
        ("P4_16", [r for r in results if not r.name.startswith(P4_14)]),
        ("P4_14 as P4_16", [r for r in results if r.name.startswith(P4_14)]),
    ):
        compiled = [r for r in chosen if r.compiled]
        bmv2 = [r for r in compiled if r.bmv2 == "pass"]
        ours = sum(r.softswitch == "pass" for r in compiled)
        both = sum(r.softswitch == "pass" for r in bmv2)
        yield (
            f"{title}: {len(chosen)} pairs, {len(compiled)} compile; softswitch passes {ours}; "
            f"BMv2 passes {len(bmv2)}, softswitch {both} of these"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; see the module's description."""
    parser = argparse.ArgumentParser(description="run p4c's STF tests on softswitch")
    parser.add_argument("p4c", type=Path, help="a checkout of p4c")
    parser.add_argument("--work", type=Path, default=Path("stf-corpus"), help="keeps what is built")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time (2)")
    parser.add_argument("--only", default="", metavar="TEXT", help="pairs whose name contains it")
    parser.add_argument("--compiler", default="p4c-bm2-ss", help="p4c-bm2-ss")
    parser.add_argument("--bmv2", action="store_true", help="also on simple_switch, p4c's way")
    parser.add_argument(
        "--bmv2-python", default=sys.executable, help="a Python with ply and ptf, which p4c needs"
    )
    options = parser.parse_args(arguments)
    p4c, work = options.p4c.resolve(), options.work.resolve()
    if not (p4c / "backends" / "bmv2" / "run-bmv2-test.py").is_file():
        parser.error(f"{p4c} is no checkout of p4c: it has no backends/bmv2/run-bmv2-test.py")
    needed = [options.compiler, *(["simple_switch", "simple_switch_CLI"] if options.bmv2 else [])]
    if missing := [name for name in needed if shutil.which(name) is None]:
        parser.error(f"not on PATH: {', '.join(missing)}")
    if options.bmv2 and run([options.bmv2_python, "-c", "import ply, ptf.pcap_writer"], 60)[0]:
        parser.error(f"{options.bmv2_python} lacks ply or ptf: pip install ply ptf")
    work.mkdir(parents=True, exist_ok=True)
    everything, others = pairs(p4c, work)
    chosen = [pair for pair in everything if options.only in pair.name]
    bmv2 = Bmv2(p4c, work, options.compiler, options.bmv2_python, run_tests=options.bmv2)
    results = run_all(
        chosen, options.jobs, lambda pair: examine(pair, work, options.compiler, bmv2)
    )
    print("\nNot wholly passed:", *failures(results), "", *table_by_feature(results), "", sep="\n")
    for reason, count in others.items():
        print(f"left out: {count} tests: {reason}")
    print(*summary(results), sep="\n")
    report: dict[str, Any] = {"left out": others, "results": [asdict(r) for r in results]}
    (work / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    bad = [r for r in results if r.compiled and r.softswitch == "fail" and r.bmv2 in ("", "pass")]
    return 1 if bad else 0


def examine(pair: Pair, work: Path, compiler: str, bmv2: Bmv2) -> Result:
    """Compile and run one pair."""
    result = Result(pair.name, str(pair.test), pair.note, pair.xfail)
    program, result.reason = compile_program(pair, work, compiler)
    if program is None:
        return result
    result.compiled = True
    result.features = sorted(features(json.loads(program.read_bytes())))
    result.softswitch, result.reason = run_softswitch(program, pair.test)
    result.bmv2, result.bmv2_reason = bmv2.outcome(pair, program)
    return result


def run_all(chosen: Sequence[Pair], jobs: int, work: Callable[[Pair], Result]) -> list[Result]:
    """Results in the order of `chosen`; progress is shown."""
    results = []
    with ThreadPoolExecutor(jobs) as pool:
        for number, result in enumerate(pool.map(work, chosen), 1):
            ours = result.softswitch if result.compiled else "not compiled"
            theirs = f", BMv2: {result.bmv2}" if result.bmv2 else ""
            print(f"[{number}/{len(chosen)}] {result.name}: {ours}{theirs}", flush=True)
            results.append(result)
    return results


if __name__ == "__main__":
    sys.exit(main())
