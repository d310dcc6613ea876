# SPDX-License-Identifier: Apache-2.0
"""A switch process under test: BMv2's simple_switch_grpc or softswitch, by the same arguments."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from controller.addressing import CPU_PORT, DROP_PORT
from topologies.processes import die_with_us

TARGETS = ("softswitch", "bmv2")
STOP_TIMEOUT_S = 5.0
LOG_TAIL_LINES = 40
# BMv2 says so about each port's carrier all the time, because /sys is another namespace's.
NO_SYSFS = "open: No such file or directory"


class SwitchError(Exception):
    """The switch could not be started; the message says why."""


class SwitchProcess:
    """One switch, running from ``start()`` to ``stop()``; its output goes to ``log``.

    ``number`` makes its address, and is its device id unless another is given. It starts with a
    ``program`` (BMv2 JSON) or waits for a controller's. ``control`` is where softswitch listens for
    softswitch-ctl (its default when None).
    """

    def __init__(
        self,
        target: str,
        number: int,
        interfaces: Mapping[int, str],
        log: Path,
        *,
        device_id: int | None = None,
        program: Path | None = None,
        priority_queues: int = 1,
        control: Path | None = None,
    ) -> None:
        self.address = f"127.0.0.1:{50050 + number}"
        self.log = log
        self._device_id = number if device_id is None else device_id
        self.control = control
        self.thrift_port = 9090 + number
        self._command = self._arguments(target, interfaces, program, priority_queues, control)
        self._process: subprocess.Popen[bytes] | None = None

    def _arguments(
        self,
        target: str,
        interfaces: Mapping[int, str],
        program: Path | None,
        priority_queues: int,
        control: Path | None,
    ) -> list[str]:
        if target == "bmv2":
            executable = shutil.which("simple_switch_grpc")
            if executable is None:
                raise SwitchError("simple_switch_grpc is not on PATH: use --target softswitch")
            command = [executable, "--thrift-port", str(self.thrift_port)]
        else:
            command = [sys.executable, "-m", "softswitch"]
            command += [] if control is None else ["--control", str(control)]
        command += ["--device-id", str(self._device_id)]
        command += ["--no-p4"] if program is None else [str(program)]
        for port, interface in interfaces.items():
            command += ["-i", f"{port}@{interface}"]
        command += ["--", "--grpc-server-addr", self.address]
        command += ["--cpu-port", str(CPU_PORT), "--drop-port", str(DROP_PORT)]
        command += ["--priority-queues", str(priority_queues)]
        # The kernel ends the switch should this process be killed; Ctrl-C is ours to handle.
        return die_with_us(command)

    def start(self) -> None:
        """Start the process; it is not yet reachable when this returns."""
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=Path(__file__).resolve().parents[1],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the running switch."""
        if self._process is None:
            raise SwitchError("the switch does not run")
        return self._process.pid

    def check(self) -> None:
        """Raise SwitchError when the process has ended."""
        if self._process is not None and self._process.poll() is not None:
            code = self._process.returncode
            raise SwitchError(f"the switch ended with code {code}:\n{self.log_tail()}")

    def stop(self) -> None:
        """Terminate the process and wait for its end."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log_tail(self) -> str:
        """The last lines that the switch wrote."""
        lines = self.log.read_text(errors="replace").splitlines()
        lines = [line for line in lines if line != NO_SYSFS]
        return "\n".join(lines[-LOG_TAIL_LINES:])
