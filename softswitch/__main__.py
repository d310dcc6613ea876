# SPDX-License-Identifier: Apache-2.0
"""Starts a switch: `softswitch` or `python -m softswitch`."""

from __future__ import annotations

import signal

# Until the switch takes signals itself, Ctrl-C ends it without Python's traceback. Before the other
# imports, which take most of that time. A parent's decision to ignore it stays.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import asyncio
import logging
import logging.handlers
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from softswitch.control.protocol import make_run_time_dir
from softswitch.errors import DataplaneError
from softswitch.options import Options, parse

if TYPE_CHECKING:
    from softswitch.control.server import ControlServer

log = logging.getLogger("softswitch")

_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a switch until SIGINT or SIGTERM. Returns the exit code: 0, or 1 when it cannot start."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    # gRPC's own messages would bury the one line that says what is wrong.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        _set_up_logging(options)
    except OSError as error:
        print(f"softswitch: error: --log-file: {error}", file=sys.stderr)
        return 1
    for notice in options.notices:
        log.warning(notice)
    try:
        asyncio.run(_run(options))
    except (DataplaneError, OSError) as error:
        log.error("%s", error)
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the event loop left Python's own
    return 0


def _set_up_logging(options: Options) -> None:
    """Log to where the options say; warnings and errors also go to standard error."""
    level = _LEVELS[options.log_level]
    handlers: list[logging.Handler] = []
    if options.log_file is not None:
        handlers.append(
            logging.handlers.RotatingFileHandler(
                options.log_file,
                maxBytes=options.log_max_size,
                backupCount=options.log_max_files,
                encoding="utf-8",
            )
        )
    if options.log_console:
        handlers.append(logging.StreamHandler(sys.stdout))
    for handler in handlers:
        handler.setLevel(level)
        handler.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))
    complaints = logging.StreamHandler(sys.stderr)
    complaints.setLevel(max(level, logging.WARNING))
    complaints.setFormatter(logging.Formatter("softswitch: %(levelname)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[*handlers, complaints], force=True)


async def _run(options: Options) -> None:
    """Open the ports, load the program if there is one, and serve until a signal.

    Raises `DataplaneError` or OSError when something cannot be opened, read or loaded.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # Only here, so that a wrong command line is answered at once.
    from softswitch.control.context import Context
    from softswitch.control.local import adopt
    from softswitch.control.server import ControlServer
    from softswitch.dataplane import Dataplane
    from softswitch.server import P4RuntimeServer

    program = None if options.program is None else options.program.read_bytes()
    dataplane = Dataplane(options.dataplane)
    try:
        if program is not None:
            dataplane.load(program)
        server = P4RuntimeServer(dataplane, options.dataplane.device_id)
        if program is not None:
            adopt(dataplane, server.pipeline, program)
        control: ControlServer | None = None
        try:
            port = await server.start(options.address, options.tls)
            dataplane.start()
            host = options.address.rpartition(":")[0]
            where = options.address if host == "unix" else f"{host}:{port}"
            if options.control is not None:
                control = ControlServer(Context(dataplane, server.pipeline, where))
                await _start_control(control, options.control, must=options.control_given)
            print(f"Server listening on {where}", flush=True)
            log.info(
                "device %d serves P4Runtime on %s with %d ports%s",
                options.dataplane.device_id,
                where,
                len(options.dataplane.ports),
                "" if options.tls is None else ", over TLS",
            )
            await server.serve_until(stop)
            log.info("ending on a signal")
        finally:
            if control is not None:
                await control.stop()
            await server.stop()
    finally:
        dataplane.close()


async def _start_control(control: ControlServer, path: Path, *, must: bool) -> None:
    """Take commands at `path`. Where nobody asked for it, a switch also runs without."""
    try:
        if not must:
            make_run_time_dir()
        await control.start(path)
    except OSError as error:
        if must:
            raise
        log.warning("no commands (softswitch-ctl): %s", error)


if __name__ == "__main__":
    sys.exit(main())
