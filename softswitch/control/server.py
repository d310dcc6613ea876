# SPDX-License-Identifier: Apache-2.0
"""The control socket: a Unix socket of the switch's owner, served by the event loop of P4Runtime.

A command runs under the lock of the pipeline, between the requests of controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from pathlib import Path
from typing import Any

from softswitch.control import arrays, parts, ports, profiles, replication, tables, value_sets
from softswitch.control.catalogue import COMMANDS, NOT_HERE
from softswitch.control.context import Answer, Context, Handler
from softswitch.control.protocol import (
    MAX_LINE_BYTES,
    ProtocolError,
    decode,
    encode,
    words_of_request,
)
from softswitch.control.words import CommandError
from softswitch.errors import DataplaneError
from softswitch.status import Failure

log = logging.getLogger("softswitch.control")

HANDLERS: dict[str, Handler] = {
    **tables.HANDLERS,
    **profiles.HANDLERS,
    **arrays.HANDLERS,
    **replication.HANDLERS,
    **value_sets.HANDLERS,
    **ports.HANDLERS,
    **parts.HANDLERS,
}


def execute(context: Context, words: list[str]) -> Answer:
    """Carry out a command. Raises `CommandError`, `Failure` or `DataplaneError`."""
    name, *rest = words
    usage = COMMANDS.get(name)
    if usage is None:
        reason = NOT_HERE.get(name, "help lists the commands")
        raise CommandError(f"there is no command {name!r}: {reason}")
    if len(rest) < usage.least or (usage.most is not None and len(rest) > usage.most):
        raise CommandError(f"usage: {name} {usage.arguments}".rstrip())
    return HANDLERS[name](context, rest)


class ControlServer:
    """Listens on a Unix socket, which only the owner can connect to."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._path: Path | None = None
        self._inode = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, path: Path) -> None:
        """Listen at `path`; a socket that a dead switch left there is replaced.

        Raises OSError, which names the path, when it cannot: a live switch has it, or something
        else is there.
        """
        listening = listen(path)
        self._path, self._inode = path, path.stat().st_ino
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listening, limit=MAX_LINE_BYTES
        )
        log.info("commands on %s", path)

    async def stop(self) -> None:
        """Close all connections and remove the socket."""
        if self._server is None or self._path is None:
            return
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while line := await reader.readline():
                writer.write(encode(await self._answer(line)))
                await writer.drain()
        except ValueError:
            writer.write(encode({"error": f"a line of more than {MAX_LINE_BYTES} bytes"}))
        except ConnectionError:
            log.info("a client of the control socket went away")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            words = words_of_request(decode(line))
            async with self._context.pipeline.lock:
                answer = execute(self._context, words)
        except (CommandError, ProtocolError, DataplaneError, Failure) as error:
            return {"error": str(error)}
        except Exception as error:
            log.exception("a command failed")
            return {"error": f"internal error, see the switch's log: {error!r}"}
        return {"text": answer.text, "data": answer.data}


def listen(path: Path) -> socket.socket:
    """A Unix socket of the owner's alone; one that a dead switch left there is replaced.

    Raises OSError, which names the path.
    """
    _make_room(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # so that at no moment others could connect
    try:
        listening.bind(str(path))
        listening.listen()
    except OSError as error:
        listening.close()
        raise OSError(f"--control: {path}: {error.strerror or error}") from None
    finally:
        os.umask(before)
    return listening


def _make_room(path: Path) -> None:
    """Remove a socket at which nobody listens."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise OSError(f"--control: {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(status.st_mode):
        raise OSError(f"--control: {path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise OSError(f"--control: {path}: {error.strerror}") from None
    raise OSError(f"--control: a running switch listens at {path}")
